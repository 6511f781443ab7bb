#include "engine/memory_plan.h"

#include "base/format.h"

namespace picolm {

std::string MemoryPlan::describe() const {
    const auto line = [](const char* what, uint64_t bytes, const char* how) {
        return format("  %-12s %10s  %s\n", what, format_bytes(bytes).c_str(), how);
    };
    std::string text = format("Memory plan for %u positions\n", n_positions);
    text += line("weights", weights, "mapped from the file, shared and reclaimable");
    text +=
        line("KV pages", kv, (kv_types_name(kv_types) + "; come as positions are used").c_str());
    text += line("scratch", scratch, "activations of one prefill chunk");
    text += line("logits", logits, "logits, hidden state, sampler");
    text += line("tokenizer", tokenizer, "estimate");
    text += line("in RAM", anonymous(), "at most, beside the mapped weights");
    return text;
}

Status MemoryPlan::check(const MemoryFacts& machine) const {
    if (machine.usable() == 0 || anonymous() <= machine.usable()) return {};
    return Error{ErrorKind::no_memory,
                 format("%u positions need %s of memory beside the model (%s of it for the KV "
                        "cache), but this machine has %s left; ask for a smaller context (-c)%s",
                        n_positions, format_bytes(anonymous()).c_str(), format_bytes(kv).c_str(),
                        format_bytes(machine.usable()).c_str(),
                        kv_types == KvTypes{} ? " or a smaller --kv-type" : "")};
}

}  // namespace picolm
