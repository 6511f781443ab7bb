// Engine: a loaded model, ready to be run. Session (session.h) is one timeline of tokens on it. The
// command line, the server, benchmarks and anyone who links the library use these two headers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/memory_plan.h"
#include "gguf/gguf.h"
#include "model/forward.h"
#include "text/tokenizer.h"

namespace picolm {

struct EngineOptions {
    uint32_t n_threads = 0;        // 0: as many as the machine has fast cores for us
    uint32_t max_chunk = 128;      // tokens of one prefill pass, at least 1
    KvTypes kv_types = {};         // what keys and values are rounded to
    bool strict_identity = false;  // hash the whole model file for the cache, not samples of it
};

class Engine {
  public:
    // Maps and checks the file, loads the tokenizer, allocates scratch, starts threads. The error
    // says what is wrong with the file and what to do.
    static Result<std::unique_ptr<Engine>> open(const std::string& path, EngineOptions options);

    const GgufFile& file() const { return file_; }
    const ModelSpec& spec() const { return model_.spec; }
    const Model& model() const { return model_; }
    const Tokenizer& tokenizer() const { return *tokenizer_; }
    const Kernels& kernels() const { return kernels_; }
    KvTypes kv_types() const { return options_.kv_types; }
    KvGeometry kv_geometry() const { return KvGeometry(model_.spec, options_.kv_types); }
    Forward& forward() { return *forward_; }
    uint32_t n_threads() const { return pool_.n_threads(); }
    // The largest context a session may have: the model's own, at most kMaxContext.
    uint32_t max_context() const;
    // Bytes of weights that are read for one generated token.
    uint64_t weight_bytes_per_token() const { return model_.weights.bytes_per_token(); }

    // What this engine and one session of that many positions take. n_logits: positions whose
    // logits are held at once, more than one for Session::evaluate.
    MemoryPlan plan(uint32_t n_positions, uint32_t n_logits = 1) const;

    // Everything that K and V depend on, as one printable string (docs/KVC.md). Reads samples of
    // the weights, or all of them, when it is first called.
    const std::string& cache_identity();

  private:
    Engine(GgufFile file, Model model, std::unique_ptr<Tokenizer> tokenizer, const Kernels& kernels,
           const EngineOptions& options, uint32_t n_threads);

    GgufFile file_;
    Model model_;
    std::unique_ptr<Tokenizer> tokenizer_;
    const Kernels& kernels_;
    EngineOptions options_;
    ThreadPool pool_;
    std::unique_ptr<Forward> forward_;
    std::string identity_;
};

}  // namespace picolm
