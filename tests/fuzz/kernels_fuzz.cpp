// Every level against the specification (`generic`), on weights, halves and activations of any
// bits. Loaders do not look into weights, so scales may be infinite or NaN: where the
// specification's result is finite, the bits must be equal; elsewhere both results must be not
// finite.
//
// The first byte chooses what is computed, the next ones sizes; the rest is repeated to fill the
// operands.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "kernels/half.h"
#include "kernels/kernels.h"

namespace picolm {
namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

class Input {
  public:
    Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
    uint8_t byte() { return size_ == 0 ? 0 : data_[at_++ % size_]; }
    // 1 to `largest`, or 0 to `largest` - 1.
    uint32_t count(uint32_t largest) { return 1 + byte() % largest; }
    uint32_t index(uint32_t n) { return byte() % n; }
    void fill(void* to, size_t n) {
        for (size_t i = 0; i < n; ++i) static_cast<uint8_t*>(to)[i] = byte();
    }
    std::vector<uint8_t> bytes(size_t n) {
        std::vector<uint8_t> out(n);
        fill(out.data(), n);
        return out;
    }
    std::vector<uint16_t> halves(size_t n) {
        std::vector<uint16_t> out(n);
        fill(out.data(), n * sizeof out[0]);
        return out;
    }
    // Floats of any bits, or small ones, of which a group is likely to be finite.
    std::vector<float> floats(size_t n) {
        std::vector<float> out(n);
        const uint8_t mode = byte();
        if (mode % 4 == 0) {
            fill(out.data(), n * sizeof out[0]);
        } else {
            const float unit = std::ldexp(1.0f, static_cast<int8_t>(byte()) / (mode % 4));
            for (float& each : out) each = static_cast<int8_t>(byte()) * unit;
        }
        return out;
    }

  private:
    const uint8_t* data_;
    size_t size_;
    size_t at_ = 0;
};

void require_same(const float* want, const float* got, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        if (std::isfinite(want[i]))
            require(std::memcmp(want + i, got + i, sizeof *want) == 0);
        else
            require(!std::isfinite(got[i]));
    }
}
void require_same(const std::vector<float>& want, const std::vector<float>& got) {
    require(want.size() == got.size());
    require_same(want.data(), got.data(), want.size());
}

// On the heap and of exact size, so that a sanitizer sees more; aligned as kernels.h asks for.
class Aligned {
  public:
    explicit Aligned(size_t n) : data_(new (std::align_val_t{64}) uint8_t[n]) {}
    ~Aligned() { operator delete[](data_, std::align_val_t{64}); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    uint8_t* get() const { return data_; }

  private:
    uint8_t* data_;
};

struct Levels {
    const Kernels& spec = *find_kernels("generic");
    std::vector<const Kernels*> others;

    Levels() {
        for (const std::string_view name : usable_levels())
            if (name != "generic") others.push_back(find_kernels(name));
    }
};
const Levels& levels() {
    static const Levels all;
    return all;
}

// ---- matrices

constexpr float kUntouched = 1234.5f;
using Acts = std::vector<ActBlock>;

// In batches of at most kMaxSmallBatch.
void small(const Kernels& kernels, TensorType type, MatArgs a, const Acts& acts) {
    const uint32_t n_tok = a.n_tok;
    float* const y = a.y;
    for (uint32_t t = 0; t < n_tok; t += kMaxSmallBatch) {
        a.n_tok = std::min<uint32_t>(kMaxSmallBatch, n_tok - t);
        a.y = y + t * a.y_stride;
        kernels.mat_small[static_cast<size_t>(type)](a, &acts[t * act_blocks(a.n_in)]);
    }
}

void large(const Kernels& kernels, TensorType type, const MatArgs& a, const Acts& acts) {
    const LargeBatch& batch = kernels.large;
    const size_t blocks = act_blocks(a.n_in), tile_row = blocks * batch.tile_bytes;
    const uint32_t n_tiles = (a.n_tok + batch.tile_tokens - 1) / batch.tile_tokens;
    const Aligned tiles(n_tiles * tile_row), panel(kPanelBytes);
    for (uint32_t t = 0; t < n_tiles; ++t) {
        const uint32_t first = t * batch.tile_tokens;
        batch.pack(&acts[first * blocks], blocks, static_cast<uint32_t>(blocks),
                   std::min(batch.tile_tokens, a.n_tok - first), tiles.get() + t * tile_row);
    }
    batch.mat[static_cast<size_t>(type)](a, tiles.get(), panel.get());
}

void quantised_matrix(Input& in) {
    std::vector<TensorType> types;
    for (const TensorTypeInfo& each : tensor_types())
        if (act_kind(each.type) != ActKind::f32) types.push_back(each.type);
    const TensorType type = types[in.index(static_cast<uint32_t>(types.size()))];
    const bool q256 = act_kind(type) == ActKind::q256;
    const uint32_t n_in = q256 ? 256 * in.count(3) : 32 * in.count(25);
    const uint32_t n_rows = in.count(36), n_tok = in.count(70), stride = n_rows + in.index(3);
    const std::vector<float> x = in.floats(size_t{n_tok} * n_in);
    const std::vector<uint8_t> w = in.bytes(n_rows * row_bytes(type, n_in));
    const Kernels& spec = levels().spec;
    const size_t blocks = act_blocks(n_in);
    Acts acts(n_tok * blocks);
    for (uint32_t t = 0; t < n_tok; ++t)
        if (!(q256 ? spec.quantize_q256 : spec.quantize_q32)(&x[t * n_in], n_in, &acts[t * blocks]))
            return;
    std::vector<float> want(size_t{n_tok} * stride, kUntouched);
    MatArgs a{w.data(), row_bytes(type, n_in), n_rows, n_in, n_tok, want.data(), stride};
    small(spec, type, a, acts);
    for (const Kernels* level : levels().others) {
        std::vector<float> got(want.size(), kUntouched);
        a.y = got.data();
        small(*level, type, a, acts);
        require_same(want, got);
        if (level->large.tile_tokens == 0) continue;
        std::fill(got.begin(), got.end(), kUntouched);
        large(*level, type, a, acts);
        require_same(want, got);
    }
}

void float_matrix(Input& in) {
    const TensorType types[] = {TensorType::f32, TensorType::f16, TensorType::bf16};
    const TensorType type = types[in.index(3)];
    const uint32_t n_in = in.count(255) + 256 * in.index(4), n_rows = in.count(6);
    const uint32_t n_tok = in.count(12), stride = n_rows + in.index(3);
    const std::vector<float> x = in.floats(size_t{n_tok} * n_in);
    const std::vector<uint8_t> w = in.bytes(n_rows * row_bytes(type, n_in));
    std::vector<float> want(size_t{n_tok} * stride, kUntouched), got = want;
    MatArgs a{w.data(), row_bytes(type, n_in), n_rows, n_in, n_tok, want.data(), stride};
    levels().spec.mat_float[static_cast<size_t>(type)](a, x.data(), n_in);
    a.y = got.data();
    for (const Kernels* level : levels().others) {
        std::fill(got.begin(), got.end(), kUntouched);
        level->mat_float[static_cast<size_t>(type)](a, x.data(), n_in);
        require_same(want, got);
    }
}

// ---- operators

void quantise(Input& in) {
    const uint32_t n = 256 * in.count(3), n32 = n - 32 * in.index(8);
    const std::vector<float> x = in.floats(n);
    const Kernels& spec = levels().spec;
    const auto same = [](const Acts& a, const Acts& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof(ActBlock)) == 0;
    };
    for (const Kernels* level : levels().others) {
        Acts want(act_blocks(n)), got(act_blocks(n));
        const bool finite = spec.quantize_q256(x.data(), n, want.data());
        require(level->quantize_q256(x.data(), n, got.data()) == finite);
        require(!finite || same(want, got));
        const bool finite32 = spec.quantize_q32(x.data(), n32, want.data());
        require(level->quantize_q32(x.data(), n32, got.data()) == finite32);
        require(!finite32 || same(want, got));
    }
}

void elementwise(Input& in) {
    const uint32_t n = in.count(255) + 256 * in.index(3);
    const std::vector<float> x = in.floats(n), y = in.floats(n), z = in.floats(n);
    const float factor = in.floats(1)[0];
    const float eps = 1e-5f;
    const Kernels& spec = levels().spec;
    for (const Kernels* level : levels().others) {
        std::vector<float> want(n, kUntouched), got(n, kUntouched);
        const bool finite = spec.rms_norm(x.data(), y.data(), n, eps, want.data());
        require(level->rms_norm(x.data(), y.data(), n, eps, got.data()) == finite);
        if (finite) require_same(want, got);
        const auto both = [&](auto&& run) {
            want = got = x;
            run(spec, want.data());
            run(*level, got.data());
            require_same(want, got);
        };
        both([&](const Kernels& k, float* v) { k.swiglu(v, y.data(), n); });
        both([&](const Kernels& k, float* v) { k.add(v, y.data(), n); });
        both([&](const Kernels& k, float* v) { k.scale(v, factor, n); });
        both([&](const Kernels& k, float* v) { k.rope_norm(v, y.data(), z.data(), n / 2 * 2); });
        for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
            std::vector<uint16_t> scales(kv_blocks(type, n)), level_scales = scales;
            std::vector<uint8_t> data(kv_data_bytes(type, n)), level_data = data;
            const bool fits = spec.quantize_kv(type, x.data(), n, scales.data(), data.data());
            require(level->quantize_kv(type, x.data(), n, level_scales.data(), level_data.data()) ==
                    fits);
            require(!fits || (scales == level_scales && data == level_data));
        }
        std::vector<uint16_t> half_want(n), half_got(n);
        spec.to_f16(x.data(), half_want.data(), n);
        level->to_f16(x.data(), half_got.data(), n);
        for (uint32_t i = 0; i < n; ++i)
            require(half_want[i] == half_got[i] ||
                    (std::isnan(f16_to_f32(half_want[i])) && std::isnan(f16_to_f32(half_got[i]))));
    }
}

struct AttnState {
    std::vector<float> o;
    std::vector<AttnQuery> queries;

    AttnState(const std::vector<float>& q, uint32_t n_q, uint32_t n_k, uint32_t n_v)
        : o(size_t{n_q} * n_v) {
        for (uint32_t i = 0; i < n_q; ++i)
            queries.push_back({&q[i * n_k], &o[i * n_v], -std::numeric_limits<float>::infinity(),
                               0.0f, 0, kPage});
    }
};

constexpr KvType kKvTypes[] = {KvType::f16, KvType::q8_0, KvType::q4_0};

// K or V of two pages. Unless `wild`, no scale (or value) is infinite or NaN.
std::vector<uint16_t> kv_pages(Input& in, KvType type, uint32_t size, bool wild) {
    std::vector<uint16_t> pages = in.halves(size_t{kv_row_bytes(type, size)} * kPage);
    for (uint16_t& half : pages)
        if (!wild) half &= 0xbfff;
    return pages;
}

// Two pages; slots that nobody sees keep what the input put there.
void attention(Input& in) {
    const uint32_t n_q = in.count(19), n_k = in.count(140), n_v = in.count(140);
    const KvTypes types{kKvTypes[in.byte() % 3], kKvTypes[in.byte() % 3]};
    const bool wild = in.byte() % 2 != 0;
    const std::vector<float> q = in.floats(size_t{n_q} * n_k);
    const std::vector<uint16_t> k = kv_pages(in, types.k, n_k, wild);
    const std::vector<uint16_t> v = kv_pages(in, types.v, n_v, wild);
    uint32_t first[2][19], end[2][19];
    for (auto page : {0, 1})
        for (uint32_t i = 0; i < n_q; ++i) {
            first[page][i] = in.index(kPage);
            end[page][i] = first[page][i] + in.count(kPage - first[page][i]);
        }
    const auto run = [&](const Kernels& kernels, AttnState& state) {
        for (uint32_t page : {0, 1}) {
            for (uint32_t i = 0; i < n_q; ++i) {
                state.queries[i].first = first[page][i];
                state.queries[i].end = end[page][i];
            }
            kernels.attn_page({&k[page * k.size() / 2], &v[page * v.size() / 2], types}, n_k, n_v,
                              state.queries.data(), n_q);
        }
    };
    AttnState want(q, n_q, n_k, n_v);
    run(levels().spec, want);
    for (const Kernels* level : levels().others) {
        AttnState got(q, n_q, n_k, n_v);
        run(*level, got);
        require_same(want.o, got.o);
        for (uint32_t i = 0; i < n_q; ++i) {
            require_same(&want.queries[i].m, &got.queries[i].m, 1);
            require_same(&want.queries[i].l, &got.queries[i].l, 1);
        }
    }
}

}  // namespace
}  // namespace picolm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    picolm::Input in(data, size);
    switch (in.byte() % 8) {
        case 0:
        case 1:
        case 2:
            picolm::quantised_matrix(in);
            break;
        case 3:
            picolm::float_matrix(in);
            break;
        case 4:
            picolm::quantise(in);
            break;
        case 5:
            picolm::elementwise(in);
            break;
        default:
            picolm::attention(in);
    }
    return 0;
}
