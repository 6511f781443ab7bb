// The one forward pass: a run of tokens of one sequence goes through all layers together, K and V
// land in the sequence's pages, and hidden states come out where they are wanted. The result of a
// token does not depend on how the run was cut, on the number of threads or on the kernel level.
//
//   x = embedding                                        [n_tok, n_embd]
//   per layer:  h = norm(x);  q, k, v = W h (+ b);  rope;  K, V -> page
//               x += Wo attention(q, pages)
//               h = norm(x);  x += Wd (silu(Wg h) * (Wu h))
//   hidden = norm(x);  logits = output hidden            [n_vocab]
//
// Owns the scratch memory, allocated once. Not thread-safe: one pass at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/kv.h"
#include "model/rope.h"
#include "model/weights.h"

namespace picolm {

// Spec and weights of an open file; what a forward pass reads.
struct Model {
    ModelSpec spec;
    Weights weights;
    RopeTable rope;
};
Result<Model> load_model(const GgufFile& file);

class Forward {
  public:
    // All references must outlive this. max_chunk: the most tokens of one pass.
    // no_memory: the scratch could not be allocated.
    static Result<std::unique_ptr<Forward>> create(const Model& model, const Kernels& kernels,
                                                   ThreadPool& pool, uint32_t max_chunk);
    ~Forward();

    // Bytes that create() will allocate.
    static size_t scratch_bytes(const Model& model, uint32_t n_threads, uint32_t max_chunk);

    uint32_t max_chunk() const;

    // Appends `tokens` to the sequence. The hidden states (behind the final norm) of the last
    // n_hidden tokens go to `hidden`: [n_hidden, n_embd].
    // REQUIRES: 1 <= tokens.size() <= max_chunk(), ids < n_vocab, n_hidden <= tokens.size().
    // corrupt: a value that is not finite (names the layer); cancelled: `cancel` was set. After an
    // error the sequence holds what it held before.
    Status run(KvSequence& sequence, std::span<const uint32_t> tokens, uint32_t n_hidden,
               float* hidden, const std::atomic<bool>* cancel = nullptr);

    // logits: [n, n_vocab] of hidden: [n, n_embd]. REQUIRES: 1 <= n <= max_chunk().
    Status output_head(const float* hidden, uint32_t n, float* logits);

    // Layers that run() has computed since creation, over all tokens' passes: 0 shows that a warm
    // start did no work.
    uint64_t layers_run() const;

  private:
    struct State;
    explicit Forward(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace picolm
