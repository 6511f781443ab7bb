// logits_hash [MODEL.gguf ...]: one hash over the logits and the sampled tokens of fixed prompts,
// equal on every CPU, at every level and thread count. Without models it makes small random ones of
// every format and variant. Each prompt is computed in several chunkings, which must agree.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "decode/sampler.h"
#include "gguf/gguf.h"
#include "model/forward.h"
#include "model/random_model.h"

namespace {

using namespace picolm;

constexpr uint32_t kTokens = 70;  // more than one page of 64 positions

constexpr uint32_t kLong = 2000;  // positions of the long prompt

KvTypes kv_types;  // of all models; the sliding windows are f16

struct Chunking {
    const char* name;
    unsigned n_threads;
    std::vector<uint32_t> sizes;  // repeated until the prompt ends
};
const Chunking kChunkings[] = {
    {"at once", 2, {kTokens}}, {"in pieces", 3, {3, 1, 9, 20, 2, 33}}, {"one by one", 1, {1}}};

struct Case {
    std::string name;
    RandomModelSpec spec;
};

// The quantised rows are as long as their formats ask for and no longer: under an emulator every
// weight costs.
std::vector<Case> cases() {
    std::vector<Case> all;
    const auto add = [&](const char* name, const char* type) -> RandomModelSpec& {
        RandomModelSpec spec;
        spec.type = type;
        spec.n_ff = 512;
        spec.n_layer = 2;
        all.push_back({name, spec});
        return all.back().spec;
    };
    const auto add_narrow = [&](const char* name, const char* type) -> RandomModelSpec& {
        RandomModelSpec& spec = add(name, type);
        spec.n_embd = 96;  // no multiple of 256: a short last activation block
        spec.n_ff = 160;
        spec.n_head = 6;
        spec.n_head_kv = 2;
        return spec;
    };
    add("Q4_K_M", "Q4_K_M").n_layer = 3;
    add("Q2_K, tied", "Q2_K").tied = true;
    add("Q3_K_M", "Q3_K_M").n_layer = 1;
    add("Q5_K_S", "pure:Q5_K").n_layer = 1;
    add("Q6_K", "pure:Q6_K").n_layer = 1;
    add("IQ4_XS", "IQ4_XS").n_layer = 1;
    RandomModelSpec& everything =
        add("Q4_K_S, rope factors, biases, head 80 of it 48 turned", "Q4_K_S");
    everything.rope_freqs = everything.attn_bias = everything.ffn_bias = true;
    everything.n_head = 5;
    everything.n_head_kv = 5;
    everything.head_dim = 80;
    everything.rope_dim = 48;
    everything.rope_base = 500000.0f;
    everything.rope_scale = 4.0f;
    add_narrow("Q8_0", "Q8_0").attn_bias = true;
    add_narrow("Q4_0", "Q4_0").rope_freqs = true;
    add_narrow("Q4_1", "Q4_1");
    add_narrow("Q5_0", "Q5_0");
    add_narrow("Q5_1", "Q5_1");
    add_narrow("IQ4_NL", "pure:IQ4_NL");
    add_narrow("F32", "F32").n_head_kv = 1;
    add_narrow("F16", "F16");
    add_narrow("BF16", "BF16").ffn_bias = true;
    return all;
}

// Logits of every position: [tokens.size(), n_vocab].
Result<std::vector<float>> all_logits(const Model& model, std::span<const uint32_t> tokens,
                                      const Chunking& chunking) {
    TRY(const Kernels* kernels, select_kernels());
    ThreadPool pool(chunking.n_threads);
    TRY(auto forward, Forward::create(model, *kernels, pool, kTokens));
    KvSequence kv{KvGeometry(model.spec, kv_types)};
    std::vector<float> hidden(size_t{kTokens} * model.spec.n_embd);
    std::vector<float> logits(tokens.size() * model.spec.n_vocab);
    size_t chunk = 0;
    for (size_t done = 0; done < tokens.size();) {
        const uint32_t size = chunking.sizes[chunk++ % chunking.sizes.size()];
        const uint32_t n = std::min(size, static_cast<uint32_t>(tokens.size() - done));
        TRY(forward->run(kv, tokens.subspan(done, n), n, hidden.data()));
        TRY(forward->output_head(hidden.data(), n, logits.data() + done * model.spec.n_vocab));
        done += n;
    }
    return logits;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

Status hash_model(const GgufFile& file, size_t n_chunkings, bool verbose, Hasher& total) {
    TRY(const Model model, load_model(file));
    const uint32_t n_vocab = model.spec.n_vocab;
    std::vector<uint32_t> tokens(kTokens);
    for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = (1 + i * 7919) % n_vocab;
    std::vector<float> logits;
    for (const Chunking& chunking : std::span(kChunkings).first(n_chunkings)) {
        TRY(std::vector<float> again, all_logits(model, tokens, chunking));
        if (logits.empty())
            logits = std::move(again);
        else if (std::memcmp(logits.data(), again.data(), logits.size() * sizeof(float)) != 0)
            return Error{ErrorKind::corrupt, std::string("the logits computed ") + chunking.name +
                                                 " differ from those computed " +
                                                 kChunkings[0].name};
    }
    std::vector<uint32_t> drawn;
    Sampler sampler({.top_k = 100, .min_p = 0.001, .repeat_penalty = 1.1}, n_vocab);
    for (uint32_t i = 0; i < kTokens; ++i) {
        const std::span<const float> row(logits.data() + size_t{i} * n_vocab, n_vocab);
        TRY(const uint32_t token, sampler.sample(row, std::span(tokens).first(i + 1), i));
        drawn.push_back(token);
    }
    total.update(bytes_of(logits));
    total.update(bytes_of(drawn));
    if (verbose)
        std::fprintf(stderr, "%s logits, %s tokens: ", hash128(bytes_of(logits)).hex().c_str(),
                     hash128(bytes_of(drawn)).hex().c_str());
    return {};
}

Status hash_case(const Case& c, size_t n_chunkings, bool verbose, Hasher& total) {
    TRY(const std::vector<uint8_t> bytes, random_model_bytes(c.spec));
    total.update(bytes);
    if (verbose) std::fprintf(stderr, "%s file, ", hash128(bytes).hex().c_str());
    TRY(const GgufFile file, GgufFile::parse(bytes, c.name));
    return hash_model(file, n_chunkings, verbose, total);
}

// A prompt of many pages; only its last logits.
Status hash_long_prompt(Hasher& total) {
    RandomModelSpec spec;
    spec.type = "Q8_0";
    spec.n_embd = 64;
    spec.n_ff = 128;
    spec.n_head = 4;
    spec.n_head_kv = 2;
    spec.n_layer = 1;
    spec.n_ctx = kLong;
    TRY(const std::vector<uint8_t> bytes, random_model_bytes(spec));
    TRY(const GgufFile file, GgufFile::parse(bytes, "long prompt"));
    TRY(const Model model, load_model(file));
    TRY(const Kernels* kernels, select_kernels());
    ThreadPool pool(2);
    TRY(auto forward, Forward::create(model, *kernels, pool, 128));
    KvSequence kv{KvGeometry(model.spec, kv_types)};
    std::vector<uint32_t> tokens(kLong);
    for (uint32_t i = 0; i < kLong; ++i) tokens[i] = (1 + i * 7919) % model.spec.n_vocab;
    std::vector<float> hidden(model.spec.n_embd), logits(model.spec.n_vocab);
    for (uint32_t done = 0; done < kLong; done += 128) {
        const uint32_t n = std::min(128u, kLong - done);
        TRY(forward->run(kv, std::span(tokens).subspan(done, n), 1, hidden.data()));
    }
    TRY(forward->output_head(hidden.data(), 1, logits.data()));
    total.update(bytes_of(logits));
    return {};
}

// Attention over many pages with windows that slide, as of several queries in one pass. Slots that
// no query sees hold what stale memory may hold: NaN.
Status hash_windows(Hasher& total) {
    constexpr uint32_t kHead = 48, kQueries = 6, kPages = (kLong + kPage - 1) / kPage;
    constexpr uint32_t kWindow = 700;
    TRY(const Kernels* kernels, select_kernels());
    uint32_t state = 1;
    const auto next = [&] {
        state = state * 1664525u + 1013904223u;
        return static_cast<float>(state >> 8) * (2.0f / (1 << 24)) - 1.0f;
    };
    std::vector<float> q(kQueries * kHead), o(kQueries * kHead), values(size_t{kHead} * kPage);
    for (float& v : q) v = next();
    std::vector<AttnQuery> queries;
    for (uint32_t i = 0; i < kQueries; ++i)
        queries.push_back({&q[i * kHead], &o[i * kHead], -INFINITY, 0.0f, 0, 0});
    std::vector<uint16_t> k(values.size()), v(values.size());
    for (uint32_t page = 0; page < kPages; ++page) {
        const uint32_t begin = page * kPage;
        for (std::vector<uint16_t>* each : {&k, &v}) {
            for (float& value : values) value = next();
            kernels->to_f16(values.data(), each->data(), static_cast<uint32_t>(values.size()));
        }
        uint32_t low = kPage, high = 0, first_query = kQueries, end_query = 0;
        for (uint32_t i = 0; i < kQueries; ++i) {
            const uint32_t position = kLong - kQueries + i;  // sees itself and what is before
            const uint32_t from = position + 1 - kWindow;
            if (begin > position || begin + kPage <= from) continue;
            queries[i].first = from > begin ? from - begin : 0;
            queries[i].end = std::min<uint32_t>(kPage, position + 1 - begin);
            low = std::min(low, queries[i].first);
            high = std::max(high, queries[i].end);
            first_query = std::min(first_query, i);
            end_query = i + 1;
        }
        if (first_query >= end_query) continue;
        for (uint32_t j = 0; j < kPage; ++j)
            for (uint32_t d = 0; (j < low || j >= high) && d < kHead; ++d)
                k[d * kPage + j] = v[j * kHead + d] = 0x7e00;
        kernels->attn_page({k.data(), v.data()}, kHead, kHead, &queries[first_query],
                           end_query - first_query);
    }
    total.update(bytes_of(o));
    for (const AttnQuery& query : queries) total.update(bytes_of(std::vector{query.m, query.l}));
    return {};
}

Status hash_file(const std::string& path, bool verbose, Hasher& total) {
    TRY(const GgufFile file, GgufFile::open(path));
    return hash_model(file, std::size(kChunkings), verbose, total);
}

}  // namespace

int main(int argc, char** argv) {
    std::string level;
    std::vector<std::string> paths;
    bool verbose = false, list = false;
    CLI::App app("Prints one hash of logits, equal on every machine.");
    app.add_option("MODEL.gguf", paths, "models; none: small random ones of every format");
    app.add_option("--level", level, "instruction-set level, as in PICOLM_ISA; best: the default");
    std::string kv_name = "f16";
    app.add_option("--kv-type", kv_name, "KV types, as the program's option (f16)");
    app.add_flag("--levels", list, "only print the levels usable here, best first");
    app.add_flag("--verbose", verbose, "a line per model on standard error");
    CLI11_PARSE(app, argc, argv);
    if (!level.empty()) setenv("PICOLM_ISA", level.c_str(), 1);

    const std::optional<KvTypes> parsed = parse_kv_types(kv_name);
    if (!parsed) {
        std::fprintf(stderr, "logits_hash: --kv-type: known are %s\n", known_kv_types().c_str());
        return 1;
    }
    kv_types = *parsed;

    if (list)
        for (const std::string_view name : usable_levels())
            std::printf("%.*s\n", static_cast<int>(name.size()), name.data());
    if (list) return 0;

    Hasher total;
    const auto report = [&](const std::string& name, const Status& status) {
        if (!status) {
            std::fprintf(stderr, "logits_hash: %s: %s\n", name.c_str(),
                         status.error().text.c_str());
            std::exit(1);
        }
        if (verbose) std::fprintf(stderr, "%s\n", name.c_str());
    };
    for (const std::string& path : paths) report(path, hash_file(path, verbose, total));
    // Token by token is the slow way: the first model shows that it makes no difference.
    size_t n_chunkings = std::size(kChunkings);
    for (const Case& c : paths.empty() ? cases() : std::vector<Case>()) {
        report(c.name, hash_case(c, n_chunkings, verbose, total));
        n_chunkings = std::size(kChunkings) - 1;
    }
    if (paths.empty()) report("2000 positions", hash_long_prompt(total));
    if (paths.empty()) report("sliding windows", hash_windows(total));
    std::printf("%s\n", total.digest128().hex().c_str());
    return 0;
}
