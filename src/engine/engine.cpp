#include "engine/engine.h"

#include <algorithm>

#include "base/format.h"
#include "base/machine.h"
#include "engine/identity.h"

namespace picolm {

Engine::Engine(GgufFile file, Model model, std::unique_ptr<Tokenizer> tokenizer,
               const Kernels& kernels, const EngineOptions& options, uint32_t n_threads)
    : file_(std::move(file)),
      model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      kernels_(kernels),
      options_(options),
      pool_(n_threads) {}

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, EngineOptions options) {
    if (options.max_chunk == 0)
        return Error{ErrorKind::invalid, "a prefill chunk must have at least one token"};
    TRY(const Kernels* kernels, select_kernels());
    TRY(GgufFile file, GgufFile::open(path));
    TRY(Model model, load_model(file));
    // The tokenizer keeps views into the mapping, which stays where it is when `file` moves.
    TRY(std::unique_ptr<Tokenizer> tokenizer, load_tokenizer(file));
    if (tokenizer->n_vocab() != model.spec.n_vocab)
        return Error{ErrorKind::corrupt,
                     format("%s: the tokenizer has %u tokens, the model %u", path.c_str(),
                            tokenizer->n_vocab(), model.spec.n_vocab)};
    const uint32_t n_threads =
        options.n_threads ? options.n_threads : read_cpu_facts().default_threads();
    std::unique_ptr<Engine> engine(new Engine(std::move(file), std::move(model),
                                              std::move(tokenizer), *kernels, options, n_threads));
    TRY(engine->forward_, Forward::create(engine->model_, engine->kernels_, engine->pool_,
                                          std::min(options.max_chunk, engine->max_context())));
    return engine;
}

uint32_t Engine::max_context() const {
    return std::min(model_.spec.n_ctx_train, kMaxContext);
}

MemoryPlan Engine::plan(uint32_t n_positions, uint32_t n_logits) const {
    const ModelSpec& s = model_.spec;
    const uint64_t n_pages = (uint64_t{n_positions} + kPage - 1) / kPage;
    MemoryPlan plan;
    plan.n_positions = n_positions;
    plan.weights = file_.file_size();
    plan.kv = n_pages * kv_geometry().page_bytes();
    plan.kv_types = options_.kv_types;
    plan.scratch = Forward::scratch_bytes(model_, pool_.n_threads(), forward_->max_chunk());
    plan.logits = uint64_t{s.n_vocab} * (sizeof(float) + 10) + uint64_t{s.n_embd} * sizeof(float);
    if (n_logits > 1)
        plan.logits += sizeof(float) * (uint64_t{n_logits} * s.n_vocab +
                                        uint64_t{forward_->max_chunk()} * s.n_embd);
    plan.tokenizer = uint64_t{s.n_vocab} * 24;
    return plan;
}

const std::string& Engine::cache_identity() {
    if (identity_.empty())
        identity_ =
            picolm::cache_identity(file_, model_, options_.kv_types, options_.strict_identity);
    return identity_;
}

}  // namespace picolm
