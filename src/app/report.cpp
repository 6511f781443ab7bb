#include "app/report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "base/format.h"
#include "base/machine.h"

namespace picolm::app {
namespace {

// The type that most bytes of the weights have.
const char* main_type(const GgufFile& file) {
    std::map<TensorType, uint64_t> bytes;
    const char* name = "no tensors";
    uint64_t most = 0;
    for (const TensorInfo& tensor : file.tensors()) {
        const uint64_t sum = bytes[tensor.type] += tensor.data.size();
        if (sum <= most) continue;
        most = sum;
        name = info(tensor.type).name;
    }
    return name;
}

std::string rate_line(const char* what, uint32_t n, double seconds) {
    return format("%s: %u tokens in %.2fs (%.1f tok/s)", what, n, seconds,
                  seconds > 0 ? n / seconds : 0.0);
}

}  // namespace

std::string describe_model(const Engine& engine) {
    const ModelSpec& s = engine.spec();
    std::string text = "Model: ";
    if (!s.name.empty()) text += printable(s.name) + ", ";
    return text + format(
                      "%s, %u layers, n_embd %u, %u/%u heads, n_ff %u, vocabulary %u, context "
                      "%u, mostly %s, %s",
                      s.arch.c_str(), s.n_layer, s.n_embd, s.n_head, s.n_head_kv, s.n_ff, s.n_vocab,
                      engine.max_context(), main_type(engine.file()),
                      format_bytes(engine.file().file_size()).c_str());
}

std::string describe_reuse(const SyncReport& r, uint32_t n_ctx) {
    std::string text = format("Reused %u of %u prompt tokens", r.n_reused(), r.n_prompt);
    if (r.recomputed_last)
        text += "; the last one was computed again, for its hidden state was not saved";
    const bool damaged = std::any_of(r.notes.begin(), r.notes.end(), [](const cache::Note& note) {
        return note.level == LogLevel::warning;
    });
    if (damaged && r.cache_matched < r.n_prompt)
        text += format("; what the cache holds from token %u on cannot be used", r.cache_matched);
    else if (r.cache_matched < r.n_prompt && r.cache_saved > r.cache_matched)
        text += format("; prompt and cache part at token %u", r.cache_matched);
    else if (r.cache_matched > 0 && r.cache_matched < r.n_prompt)
        text += format("; the cache ends at token %u", r.cache_matched);
    if (r.cache_matched == r.n_prompt && r.cache_saved > r.n_prompt)
        text += format("; the cache goes on to token %u", r.cache_saved);
    if (r.cache_matched > 0 && r.cache_saved > n_ctx)
        text += format("; what lies beyond the context of %u was not loaded", n_ctx);
    return text;
}

std::string describe_finish(const GenerateReport& report, uint32_t max_tokens, uint32_t n_ctx) {
    switch (report.reason) {
        case FinishReason::end_of_generation:
            return "stop (the model ended its answer)";
        case FinishReason::stop_string:
            return "stop (a stop text came)";
        case FinishReason::length:
            return report.n_generated >= max_tokens
                       ? format("length (%u tokens were asked for)", max_tokens)
                       : format("length (the context of %u is full)", n_ctx);
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::sink_closed:
            return "closed (nobody reads the answer)";
    }
    return "";
}

std::string describe_statistics(const SyncReport* synced, const GenerateReport* generated,
                                const RunTimes& times, uint64_t state_bytes, KvTypes kv_types) {
    std::string text;
    if (synced) {
        text += rate_line("Prefill", synced->n_computed, synced->seconds);
        if (synced->n_reused() > 0)
            text += synced->n_computed == 0 ? " [all from the cache]" : " [partially cached]";
        text += '\n';
    }
    text += rate_line("Generation", generated ? generated->n_generated : 0,
                      generated ? generated->seconds : 0) +
            '\n';
    text += format("Total: %.2fs\n", times.end - times.loaded);
    if (times.first_token > 0)
        text += format("Time to first token: %.1f ms after loading (%.1f ms after start)\n",
                       (times.first_token - times.loaded) * 1e3,
                       (times.first_token - times.start) * 1e3);
    text += format("Memory: %.2f MB runtime state (%s KV cache)\n",
                   static_cast<double>(state_bytes) * 1e-6,
                   kv_types == KvTypes{} ? "FP16" : kv_types_name(kv_types).c_str());
    if (const std::optional<ProcessMemory> memory = read_process_memory())
        text += format("Memory: %s anonymous, %s file-backed\n",
                       format_bytes(memory->anonymous).c_str(),
                       format_bytes(memory->file_backed).c_str());
    return text;
}

namespace {

const char* name_of(FinishReason reason) {
    switch (reason) {
        case FinishReason::end_of_generation:
        case FinishReason::stop_string:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::sink_closed:
            return "closed";
    }
    return "";
}

}  // namespace

std::string statistics_json(const RunStatistics& s) {
    using Json = nlohmann::ordered_json;
    Json json;
    json["version"] = PICOLM_VERSION;
    json["exit_code"] = s.exit_code;
    json["model"] = {{"name", s.engine->spec().name},
                     {"architecture", s.engine->spec().arch},
                     {"bytes", s.engine->file().file_size()}};
    json["kernels"] = s.engine->kernels().name;
    json["threads"] = s.engine->n_threads();
    if (s.synced) {
        json["prompt"] = {{"tokens", s.synced->n_prompt},
                          {"reused", s.synced->n_reused()},
                          {"computed", s.synced->n_computed},
                          {"seconds", s.synced->seconds}};
    }
    if (s.generated) {
        json["answer"] = {{"tokens", s.generated->n_generated},
                          {"finish_reason", name_of(s.generated->reason)},
                          {"seconds", s.generated->seconds}};
    }
    const auto since_start = [&](double moment) {
        return moment > 0 ? Json(moment - s.times.start) : Json(nullptr);
    };
    json["seconds_since_start"] = {{"model_loaded", since_start(s.times.loaded)},
                                   {"first_token", since_start(s.times.first_token)},
                                   {"end", since_start(s.times.end)}};
    if (!s.cache.empty() && s.synced) {
        Json& cache = json["cache"];
        cache["place"] = s.cache;
        cache["hits"] = s.synced->n_loaded > 0 ? 1 : 0;
        cache["tokens_reused"] = s.synced->n_loaded;
        cache["tokens_matched"] = s.synced->cache_matched;
        cache["bytes_read"] = s.synced->cache_bytes_read;
        cache["records_damaged"] = s.synced->cache_damaged;
        cache["tokens_saved"] = s.saved ? s.saved->positions_new : 0;
        cache["bytes_written"] = s.saved ? s.saved->bytes_written : 0;
        cache["records_evicted"] = s.saved ? s.saved->n_evicted : 0;
    }
    if (const std::optional<ProcessMemory> memory = read_process_memory())
        json["memory"] = {{"anonymous_bytes", memory->anonymous},
                          {"file_backed_bytes", memory->file_backed}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Status write_text_file(const std::string& path, const std::string& text) {
    const auto failed = [&] { return file_error("write", path, errno ? -errno : -EIO); };
    errno = 0;
    std::FILE* file = std::fopen(path.c_str(), "we");
    if (!file) return failed();
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (!written) {
        const Error error = failed();
        std::fclose(file);
        return error;
    }
    if (std::fclose(file) != 0) return failed();
    return {};
}

}  // namespace picolm::app
