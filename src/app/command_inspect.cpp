// picolm inspect MODEL.gguf: what the file holds, what it needs and what this machine has.
#include <algorithm>
#include <map>

#include "app/commands.h"
#include "app/describe_value.h"
#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"
#include "engine/engine.h"
#include "kernels/kernels.h"

namespace picolm::app {
namespace {

using ull = unsigned long long;

constexpr size_t kShownName = 64;

std::string describe_file(const GgufFile& file) {
    return format(
        "File: %s\n"
        "  GGUF version %u, %s (%llu bytes), alignment %u\n"
        "  %zu metadata entries, %zu tensors, %s before the tensor data\n",
        printable(file.name(), 256).c_str(), file.version(), format_bytes(file.file_size()).c_str(),
        static_cast<ull>(file.file_size()), file.alignment(), file.metadata().size(),
        file.tensors().size(), format_bytes(file.header_bytes().size()).c_str());
}

std::string describe_spec(const ModelSpec& s, bool tied) {
    std::string text = format("Architecture: %s%s%s\n", printable(s.arch).c_str(),
                              s.name.empty() ? "" : ", ", printable(s.name).c_str());
    text += format("  layers %u, n_embd %u, n_ff %u, vocabulary %u, trained context %u\n",
                   s.n_layer, s.n_embd, s.n_ff, s.n_vocab, s.n_ctx_train);
    text +=
        format("  heads %u, KV heads %u, key length %u, value length %u, RMS eps %g\n", s.n_head,
               s.n_head_kv, s.n_embd_head_k, s.n_embd_head_v, static_cast<double>(s.norm_rms_eps));
    text +=
        format("  rope dimensions %u, base %g, scale %g; output %s\n", s.n_rot, s.rope_freq_base,
               s.rope_freq_scale, tied ? "tied to the embedding" : "of its own");
    return text;
}

std::string describe_special(const char* what, const Tokenizer& tokenizer,
                             std::optional<TokenId> id) {
    if (!id) return format("%s none", what);
    return format("%s %u \"%s\"", what, *id,
                  printable(tokenizer.token_text(*id), kShownName).c_str());
}

std::string describe_tokenizer(const GgufFile& file) {
    const Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(file);
    if (!loaded) return "Tokenizer: cannot be used: " + loaded.error().text + "\n";
    const Tokenizer& tokenizer = **loaded;
    const auto kind = file.get_string("tokenizer.ggml.model");
    std::string text =
        format("Tokenizer: %s, %u tokens\n  ",
               kind && *kind ? printable(**kind).c_str() : "unknown kind", tokenizer.n_vocab());
    text += describe_special("BOS", tokenizer, tokenizer.bos());
    text += tokenizer.add_bos() ? " (put in front of a prompt), " : " (not put in front), ";
    text += describe_special("EOS", tokenizer, tokenizer.eos()) + "\n  ends generation:";
    for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
        if (tokenizer.is_end_of_generation(id))
            text +=
                format(" %u \"%s\"", id, printable(tokenizer.token_text(id), kShownName).c_str());
    }
    return text + '\n';
}

std::string describe_metadata(const GgufFile& file) {
    std::string text = "Metadata:\n";
    for (const GgufFile::Entry& entry : file.metadata())
        text += format("  %-42s %-14s %s\n", printable(entry.key, 128).c_str(),
                       describe_type(entry.value).c_str(), describe_value(entry.value).c_str());
    return text;
}

std::string describe_shape(const TensorInfo& tensor) {
    std::string text;
    for (uint32_t i = 0; i < tensor.n_dims; ++i)
        text += format("%s%llu", i > 0 ? " x " : "", static_cast<ull>(tensor.dims[i]));
    return text;
}

std::string describe_tensors(const GgufFile& file) {
    struct Total {
        size_t n = 0;
        uint64_t bytes = 0;
    };
    std::map<std::string, Total> totals;
    std::string text = "Tensors:\n";
    for (const TensorInfo& tensor : file.tensors()) {
        const char* type = info(tensor.type).name;
        text +=
            format("  %-32s %-7s %-18s %10s  at %llu\n", printable(tensor.name, kShownName).c_str(),
                   type, describe_shape(tensor).c_str(), format_bytes(tensor.data.size()).c_str(),
                   static_cast<ull>(tensor.offset));
        Total& total = totals[type];
        ++total.n;
        total.bytes += tensor.data.size();
    }
    text += "Types:\n";
    for (const auto& [type, total] : totals)
        text += format("  %-7s %5zu tensors %10s\n", type.c_str(), total.n,
                       format_bytes(total.bytes).c_str());
    return text;
}

std::string describe_machine() {
    std::string text = "Machine:\n  levels usable here:";
    for (const std::string_view level : usable_levels()) text.append(" ").append(level);
    const Result<const Kernels*> kernels = select_kernels();
    text += kernels ? format("; selected: %s\n", (*kernels)->name)
                    : "; none selected: " + kernels.error().text + '\n';
    const CpuFacts cpu = read_cpu_facts();
    text +=
        format("  %zu CPUs allowed, %u cores, %u of them fast; %u threads unless -j says other\n",
               cpu.allowed.size(), cpu.n_cores, cpu.n_fast_cores, cpu.default_threads());
    if (cpu.quota) text += format("  CPU quota: %.2f\n", *cpu.quota);
    const MemoryFacts memory = read_memory_facts();
    text += format("  memory %s, available %s", format_bytes(memory.total).c_str(),
                   format_bytes(memory.available).c_str());
    if (memory.limit)
        text += format(", limited to %s, %s left", format_bytes(*memory.limit).c_str(),
                       format_bytes(memory.limit_free.value_or(0)).c_str());
    return text + '\n';
}

// What can only be said of a model that can be run; the error says why it cannot.
Result<std::string> describe_plan(const InspectOptions& options) {
    EngineOptions engine_options;
    engine_options.kv_types = options.kv_types;
    TRY(const std::unique_ptr<Engine> engine, Engine::open(options.model, engine_options));
    const uint32_t n_ctx =
        options.n_ctx == 0 ? engine->max_context() : std::min(options.n_ctx, engine->max_context());
    const MemoryPlan plan = engine->plan(n_ctx);
    const Status fits = plan.check(read_memory_facts());
    return plan.describe() + "  " + (fits ? "fits into this machine now" : fits.error().text) +
           '\n';
}

}  // namespace

ExitCode command_inspect(const InspectOptions& options, Console& console) {
    handle_faults(options.model, "");
    const Result<GgufFile> file = GgufFile::open(options.model);
    if (!file) return fail(console, file.error());
    const Result<ModelSpec> spec = read_spec(*file);

    std::string text = describe_file(*file);
    if (spec) text += describe_spec(*spec, file->tensor("output.weight") == nullptr);
    text += describe_tokenizer(*file) + describe_metadata(*file) + describe_tensors(*file);
    const Result<std::string> plan = describe_plan(options);
    if (plan) text += *plan;
    text += describe_machine();
    console.answer(text);
    const ExitCode written = output_status(console);
    if (written != ExitCode::ok || plan) return written;
    console.error("this model cannot be run: " + plan.error().text);
    return exit_code(plan.error().kind);
}

}  // namespace picolm::app
