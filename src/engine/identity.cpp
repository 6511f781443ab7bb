#include "engine/identity.h"

#include <algorithm>

#include "base/format.h"
#include "base/hash.h"
#include "kernels/kernels.h"

namespace picolm {
namespace {

constexpr size_t kSample = 4096;
constexpr uint64_t kSmallFile = 32 << 20;

template <typename T>
Bytes bytes_of(const T* values, size_t n) {
    return {reinterpret_cast<const uint8_t*>(values), n * sizeof(T)};
}

}  // namespace

Key128 model_fingerprint(const GgufFile& file, bool strict) {
    Hasher hasher;
    const uint64_t size = file.file_size();
    hasher.update(bytes_of(&size, 1));
    hasher.update(file.header_bytes());
    for (const TensorInfo& tensor : file.tensors()) {
        if (strict || size <= kSmallFile) {
            hasher.update(tensor.data);
            continue;
        }
        // The middle: quantised rows there differ whenever the weights do.
        const size_t start = tensor.data.size() > kSample ? tensor.data.size() / 2 / 64 * 64 : 0;
        hasher.update(tensor.data.subspan(start, std::min(kSample, tensor.data.size() - start)));
    }
    return hasher.digest128();
}

std::string cache_identity(const GgufFile& file, const Model& model, KvTypes types, bool strict) {
    const ModelSpec& s = model.spec;
    const std::vector<double>& f = model.rope.frequencies();
    return format("format=1;numerics=%s;model=%s%s;kv=%s;geometry=%ux%ux%u+%u;rope=norm,%u,%s",
                  kNumericsId, strict ? "strict-" : "",
                  model_fingerprint(file, strict).hex().c_str(), kv_types_name(types).c_str(),
                  s.n_layer, s.n_head_kv, s.n_embd_head_k, s.n_embd_head_v, s.n_rot,
                  hash128(bytes_of(f.data(), f.size())).hex().c_str());
}

}  // namespace picolm
