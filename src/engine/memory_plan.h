// What a run will take, as a value that can be printed before anything is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "base/machine.h"
#include "base/result.h"
#include "kernels/kv_type.h"

namespace picolm {

struct MemoryPlan {
    uint64_t weights = 0;    // bytes of the mapped file: reclaimable, read again when needed
    uint64_t kv = 0;         // pages for n_positions; they come as they are used
    uint64_t scratch = 0;    // activations of one prefill chunk
    uint64_t logits = 0;     // logits, hidden state and the sampler's tables
    uint64_t tokenizer = 0;  // estimate
    uint32_t n_positions = 0;
    KvTypes kv_types;

    // What must stay in RAM.
    uint64_t anonymous() const { return kv + scratch + logits + tokenizer; }

    // Several lines for people.
    std::string describe() const;
    // no_memory, with the numbers, when the anonymous part exceeds what the machine has left.
    Status check(const MemoryFacts& machine) const;
};

}  // namespace picolm
