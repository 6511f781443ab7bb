#include "model/forward.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/format.h"
#include "kernels/quantize.h"
#include "model/activations.h"
#include "model/hadamard.h"

namespace picolm {
namespace {

constexpr uint32_t kUnitRows = 32;  // rows of a matrix that one unit of work computes
constexpr uint32_t kUnitQueries = 32;

bool all_finite(const float* x, size_t n) {
    return std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
}

uint32_t units(uint32_t n, uint32_t per_unit) {
    return (n + per_unit - 1) / per_unit;
}

// Carves aligned buffers out of one region; the same code first measures, then hands out.
class Arena {
  public:
    explicit Arena(uint8_t* base) : base_(base) {}
    template <typename T>
    T* take(size_t n) {
        uint8_t* at = base_ ? base_ + used_ : nullptr;
        used_ += (n * sizeof(T) + 63) / 64 * 64;
        return reinterpret_cast<T*>(at);
    }
    size_t used() const { return used_; }

  private:
    uint8_t* base_;
    size_t used_ = 0;
};

// What one thread needs for itself.
struct ThreadScratch {
    uint8_t* panel;      // kPanelBytes
    float* row;          // [n_embd] a normalised row
    ActBlock* rows256;   // [kMaxTileTokens, blocks] rows on their way into a tile
    ActBlock* rows32;    // the same
    float* out;          // [max_chunk, kUnitRows]
    AttnQuery* queries;  // [max_queries]
};

struct Buffers {
    float* x;       // [max_chunk, n_embd] the residual stream
    float* q;       // [max_chunk, n_head * n_embd_head_k]
    float* k;       // [max_chunk, n_head_kv * n_embd_head_k]
    float* v;       // [max_chunk, n_head_kv * n_embd_head_v]
    float* att;     // [max_chunk, n_head * n_embd_head_v]
    float* ff;      // [max_chunk, n_ff]; in the place of q to att, which are done by then
    float* rows;    // [max_chunk, n_embd], only for float weights
    uint8_t* q256;  // activations, see Activations
    uint8_t* q32;
    float* cos;  // [max_chunk, n_rot / 2]
    float* sin;
    ThreadScratch* threads;  // [n_threads]
};

uint32_t max_queries(const ModelSpec& spec) {
    return std::max(kUnitQueries, spec.n_group());
}

ActKinds all_kinds(const Weights& w) {
    ActKinds kinds;
    kinds.include(w.output);
    for (const LayerWeights& l : w.layers)
        for (const Matrix* m :
             {&l.attn_q, &l.attn_k, &l.attn_v, &l.attn_output, &l.ffn_gate, &l.ffn_up, &l.ffn_down})
            kinds.include(*m);
    return kinds;
}

size_t carve(const Model& model, uint32_t n_threads, uint32_t max_chunk, uint8_t* base,
             Buffers& b) {
    const ModelSpec& s = model.spec;
    const ActKinds kinds = all_kinds(model.weights);
    const uint32_t widest = std::max({s.n_embd, s.n_ff, s.n_head * s.n_embd_head_v});
    const size_t blocks = act_blocks(widest);
    // Rows, or tiles with a last one that is not full.
    const size_t act_rows = size_t{units(max_chunk, kMaxTileTokens)} * kMaxTileTokens;
    const size_t act_bytes = act_rows * blocks * sizeof(ActBlock);
    Arena arena(base);
    b.x = arena.take<float>(size_t{max_chunk} * s.n_embd);
    const size_t before = arena.used();
    b.q = arena.take<float>(size_t{max_chunk} * s.n_head * s.n_embd_head_k);
    b.k = arena.take<float>(size_t{max_chunk} * s.n_head_kv * s.n_embd_head_k);
    b.v = arena.take<float>(size_t{max_chunk} * s.n_head_kv * s.n_embd_head_v);
    b.att = arena.take<float>(size_t{max_chunk} * s.n_head * s.n_embd_head_v);
    const size_t attention_bytes = arena.used() - before;
    const size_t ff_bytes = size_t{max_chunk} * s.n_ff * sizeof(float);
    if (ff_bytes > attention_bytes) arena.take<uint8_t>(ff_bytes - attention_bytes);
    b.ff = b.q;
    b.rows = arena.take<float>(kinds.f32 ? size_t{max_chunk} * s.n_embd : 0);
    b.q256 = arena.take<uint8_t>(kinds.q256 ? act_bytes : 0);
    b.q32 = arena.take<uint8_t>(kinds.q32 ? act_bytes : 0);
    b.cos = arena.take<float>(size_t{max_chunk} * s.n_rot / 2);
    b.sin = arena.take<float>(size_t{max_chunk} * s.n_rot / 2);
    b.threads = arena.take<ThreadScratch>(n_threads);
    for (uint32_t i = 0; i < n_threads; ++i) {
        ThreadScratch t;
        t.panel = arena.take<uint8_t>(kPanelBytes);
        t.row = arena.take<float>(s.n_embd);
        t.rows256 = arena.take<ActBlock>(kinds.q256 ? kMaxTileTokens * blocks : 0);
        t.rows32 = arena.take<ActBlock>(kinds.q32 ? kMaxTileTokens * blocks : 0);
        t.out = arena.take<float>(size_t{max_chunk} * kUnitRows);
        t.queries = arena.take<AttnQuery>(max_queries(s));
        if (base) b.threads[i] = t;
    }
    return arena.used();
}

}  // namespace

Result<Model> load_model(const GgufFile& file) {
    TRY(ModelSpec spec, read_spec(file));
    TRY(Weights weights, bind_weights(file, spec));
    RopeTable rope(spec, weights.rope_freqs);
    return Model{std::move(spec), std::move(weights), std::move(rope)};
}

struct Forward::State {
    const Model& model;
    const ModelSpec& spec;
    const Kernels& kernels;
    ThreadPool& pool;
    uint32_t max_chunk;
    void* region = nullptr;
    size_t region_bytes = 0;
    Buffers b{};

    // Of the pass that runs.
    KvSequence* kv = nullptr;
    uint32_t first = 0;  // position of token 0
    uint32_t n_tok = 0;
    Activations acts;
    std::atomic<bool> failed{false};     // a value was not finite
    std::atomic<bool> kv_failed{false};  // the KV type cannot hold a key or value
    static constexpr int32_t kOutputNorm = INT32_MAX;
    int32_t suspect = -1;  // the layer that computes right now; -1: the embedding
    uint64_t layers_run = 0;

    State(const Model& m, const Kernels& k, ThreadPool& p, uint32_t chunk)
        : model(m), spec(m.spec), kernels(k), pool(p), max_chunk(chunk) {}
    ~State() {
        if (region) munmap(region, region_bytes);
    }

    template <typename Source>
    void prepare(ActKinds kinds, uint32_t n_in, const float* rows, size_t row_stride,
                 Source source);
    void prepare_norm(ActKinds kinds, const float* norm);
    void prepare_rows(ActKinds kinds, uint32_t n_in, const float* rows);

    void embed(std::span<const uint32_t> tokens);
    void layer(uint32_t index);
    void project_qkv(const LayerWeights& w);
    void rope_and_store(uint32_t index);
    void attention(uint32_t index);
    void attend(uint32_t index, uint32_t head_kv, uint32_t token, uint32_t n, AttnQuery* queries);
    void project_residual(const Matrix& m, const float* bias);
    void gate_and_up(const LayerWeights& w);
    void final_norm(uint32_t n_hidden, float* hidden);
    bool residual_finite() const;
    void add_bias(const float* bias, uint32_t row0, uint32_t n_rows, float* y, size_t y_stride);
    Status check_finite() const;
};

// Brings n_tok rows into the forms `kinds`. source(t, thread) computes row t and gives its place;
// nullptr: a value was not finite.
template <typename Source>
void Forward::State::prepare(ActKinds kinds, uint32_t n_in, const float* rows, size_t row_stride,
                             Source source) {
    acts = {n_tok, n_in, rows, row_stride, false, b.q256, b.q32};
    const LargeBatch& large = kernels.large;
    acts.tiled = large.tile_tokens > 0 && n_tok >= large.from_tokens;
    const bool tiled = acts.tiled;
    const uint32_t per_unit = tiled ? large.tile_tokens : 1;
    const size_t blocks = act_blocks(n_in);
    const auto n_blocks = static_cast<uint32_t>(blocks);
    pool.run(units(n_tok, per_unit), [&](uint32_t unit, unsigned thread) {
        const ThreadScratch& mine = b.threads[thread];
        const uint32_t t0 = unit * per_unit, n = std::min(per_unit, n_tok - t0);
        ActBlock* to256 = tiled ? mine.rows256 : reinterpret_cast<ActBlock*>(b.q256) + t0 * blocks;
        ActBlock* to32 = tiled ? mine.rows32 : reinterpret_cast<ActBlock*>(b.q32) + t0 * blocks;
        bool finite = true;
        for (uint32_t i = 0; i < n; ++i) {
            const float* row = source(t0 + i, thread);
            if (!row) {
                finite = false;
                break;
            }
            if (kinds.q256) finite &= kernels.quantize_q256(row, n_in, to256 + i * blocks);
            if (kinds.q32) finite &= kernels.quantize_q32(row, n_in, to32 + i * blocks);
        }
        if (!finite) failed.store(true, std::memory_order_relaxed);
        if (!tiled || !finite) return;
        const size_t at = unit * blocks * large.tile_bytes;
        if (kinds.q256) large.pack(to256, blocks, n_blocks, n, b.q256 + at);
        if (kinds.q32) large.pack(to32, blocks, n_blocks, n, b.q32 + at);
    });
}

void Forward::State::prepare_norm(ActKinds kinds, const float* norm) {
    const uint32_t n = spec.n_embd;
    prepare(kinds, n, b.rows, n, [&](uint32_t t, unsigned thread) -> const float* {
        float* row = kinds.f32 ? b.rows + size_t{t} * n : b.threads[thread].row;
        const bool finite = kernels.rms_norm(b.x + size_t{t} * n, norm, n, spec.norm_rms_eps, row);
        return finite ? row : nullptr;
    });
}

void Forward::State::prepare_rows(ActKinds kinds, uint32_t n_in, const float* rows) {
    prepare(kinds, n_in, rows, n_in, [&](uint32_t t, unsigned) { return rows + size_t{t} * n_in; });
}

void Forward::State::embed(std::span<const uint32_t> tokens) {
    const Matrix& m = model.weights.token_embd;
    pool.run(n_tok, [&](uint32_t t, unsigned) {
        dequantize_row(m.type, m.data + size_t{tokens[t]} * m.row_bytes,
                       b.x + size_t{t} * spec.n_embd, spec.n_embd);
    });
}

void Forward::State::add_bias(const float* bias, uint32_t row0, uint32_t n_rows, float* y,
                              size_t y_stride) {
    if (!bias) return;
    for (uint32_t t = 0; t < n_tok; ++t) kernels.add(y + t * y_stride, bias + row0, n_rows);
}

void Forward::State::project_qkv(const LayerWeights& w) {
    struct Part {
        const Matrix& m;
        const float* bias;
        float* y;
    };
    const Part parts[] = {{w.attn_q, w.attn_q_bias, b.q},
                          {w.attn_k, w.attn_k_bias, b.k},
                          {w.attn_v, w.attn_v_bias, b.v}};
    uint32_t n_units = 0;
    for (const Part& part : parts) n_units += units(part.m.n_out, kUnitRows);
    pool.run(n_units, [&](uint32_t unit, unsigned thread) {
        const Part* part = parts;
        for (; unit >= units(part->m.n_out, kUnitRows); ++part)
            unit -= units(part->m.n_out, kUnitRows);
        const uint32_t row = unit * kUnitRows, n = std::min(kUnitRows, part->m.n_out - row);
        float* y = part->y + row;
        mat_rows(kernels, part->m, row, n, acts, y, part->m.n_out, b.threads[thread].panel);
        add_bias(part->bias, row, n, y, part->m.n_out);
    });
}

// Turns q and k by their positions, scales q, and writes K and V into the pages. A unit of work is
// a KV head in a page, or in a part of it where the keys do not depend on each other.
void Forward::State::rope_and_store(uint32_t index) {
    const uint32_t n_k = spec.n_embd_head_k, n_v = spec.n_embd_head_v, group = spec.n_group();
    const bool rotated = kv->geometry().types.k != KvType::f16;
    float q_scale = 1.0f / std::sqrt(static_cast<float>(n_k));
    if (rotated) q_scale = q_scale / static_cast<float>(hadamard_size(n_k));
    const uint32_t per_unit = rotated ? kPage : 16;
    const uint32_t first_part = first / per_unit, end_part = (first + n_tok - 1) / per_unit + 1;
    pool.run((end_part - first_part) * spec.n_head_kv, [&](uint32_t unit, unsigned) {
        const uint32_t head = unit % spec.n_head_kv;
        const uint32_t part = (first_part + unit / spec.n_head_kv) * per_unit;
        const uint32_t t0 = std::max(part, first) - first;
        const uint32_t end = std::min(part + per_unit - first, n_tok);
        for (uint32_t t = t0; t < end; ++t) {
            const float* cos = b.cos + size_t{t} * spec.n_rot / 2;
            const float* sin = b.sin + size_t{t} * spec.n_rot / 2;
            for (uint32_t g = 0; g < group; ++g) {
                float* q = b.q + (size_t{t} * spec.n_head + head * group + g) * n_k;
                kernels.rope_norm(q, cos, sin, spec.n_rot);
                if (rotated) hadamard(q, n_k);
                kernels.scale(q, q_scale, n_k);
            }
            float* k = b.k + (size_t{t} * spec.n_head_kv + head) * n_k;
            kernels.rope_norm(k, cos, sin, spec.n_rot);
        }
        const size_t k_stride = size_t{spec.n_head_kv} * n_k,
                     v_stride = size_t{spec.n_head_kv} * n_v;
        if (!kv->write(kernels, index, head, first + t0, end - t0, b.k + t0 * k_stride + head * n_k,
                       k_stride, b.v + t0 * v_stride + head * n_v, v_stride))
            kv_failed.store(true, std::memory_order_relaxed);
    });
}

// Query heads that share a KV head, of a few tokens, walk the pages together.
void Forward::State::attention(uint32_t index) {
    const uint32_t tokens = std::max(1u, kUnitQueries / spec.n_group());
    pool.run(units(n_tok, tokens) * spec.n_head_kv, [&](uint32_t unit, unsigned thread) {
        // The last tokens see the most pages: they go first, so that no thread ends late.
        const uint32_t part = units(n_tok, tokens) - 1 - unit / spec.n_head_kv;
        const uint32_t t = part * tokens;
        attend(index, unit % spec.n_head_kv, t, std::min(tokens, n_tok - t),
               b.threads[thread].queries);
    });
}

void Forward::State::attend(uint32_t index, uint32_t head_kv, uint32_t token, uint32_t n,
                            AttnQuery* queries) {
    const uint32_t n_k = spec.n_embd_head_k, n_v = spec.n_embd_head_v, group = spec.n_group();
    const uint32_t n_q = n * group;
    for (uint32_t i = 0; i < n_q; ++i) {
        const size_t head = size_t{token + i / group} * spec.n_head + head_kv * group + i % group;
        queries[i] = {b.q + head * n_k, b.att + head * n_v, -INFINITY, 0.0f, 0, 0};
        std::fill_n(queries[i].o, n_v, 0.0f);
    }
    const uint32_t first_position = first + token, last_position = first_position + n - 1;
    for (uint32_t page = 0; page <= last_position / kPage; ++page) {
        const uint32_t begin = page * kPage;
        // Tokens before the page see none of it.
        const uint32_t skip = begin > first_position ? (begin - first_position) * group : 0;
        for (uint32_t i = skip; i < n_q; ++i)
            queries[i].end = std::min<uint32_t>(kPage, first_position + i / group + 1 - begin);
        AttnPage slots = kv->attn_page(page, index, head_kv);
        if (begin + kPage <= last_position)
            slots.next_k = kv->attn_page(page + 1, index, head_kv).k;
        kernels.attn_page(slots, n_k, n_v, queries + skip, n_q - skip);
    }
    for (uint32_t i = 0; i < n_q; ++i) kernels.scale(queries[i].o, 1.0f / queries[i].l, n_v);
}

// x += m acts + bias
void Forward::State::project_residual(const Matrix& m, const float* bias) {
    pool.run(units(m.n_out, kUnitRows), [&](uint32_t unit, unsigned thread) {
        const ThreadScratch& mine = b.threads[thread];
        const uint32_t row = unit * kUnitRows, n = std::min(kUnitRows, m.n_out - row);
        mat_rows(kernels, m, row, n, acts, mine.out, kUnitRows, mine.panel);
        add_bias(bias, row, n, mine.out, kUnitRows);
        for (uint32_t t = 0; t < n_tok; ++t)
            kernels.add(b.x + size_t{t} * m.n_out + row, mine.out + t * kUnitRows, n);
    });
}

// ff = silu(gate) * up, a few rows of both at a time, so that up is never stored whole.
void Forward::State::gate_and_up(const LayerWeights& w) {
    const uint32_t n_ff = spec.n_ff;
    pool.run(units(n_ff, kUnitRows), [&](uint32_t unit, unsigned thread) {
        const ThreadScratch& mine = b.threads[thread];
        const uint32_t row = unit * kUnitRows, n = std::min(kUnitRows, n_ff - row);
        float* gate = b.ff + row;
        mat_rows(kernels, w.ffn_gate, row, n, acts, gate, n_ff, mine.panel);
        add_bias(w.ffn_gate_bias, row, n, gate, n_ff);
        mat_rows(kernels, w.ffn_up, row, n, acts, mine.out, kUnitRows, mine.panel);
        add_bias(w.ffn_up_bias, row, n, mine.out, kUnitRows);
        for (uint32_t t = 0; t < n_tok; ++t)
            kernels.swiglu(gate + size_t{t} * n_ff, mine.out + t * kUnitRows, n);
    });
}

void Forward::State::layer(uint32_t index) {
    const LayerWeights& w = model.weights.layers[index];
    ActKinds qkv, output, gate_up, down;
    for (const Matrix* m : {&w.attn_q, &w.attn_k, &w.attn_v}) qkv.include(*m);
    output.include(w.attn_output);
    for (const Matrix* m : {&w.ffn_gate, &w.ffn_up}) gate_up.include(*m);
    down.include(w.ffn_down);

    // The first norm looks at what the layer before has left. If that was right it is our own.
    prepare_norm(qkv, w.attn_norm);
    if (!failed || residual_finite()) suspect = static_cast<int32_t>(index);
    if (failed) return;
    project_qkv(w);
    rope_and_store(index);
    if (kv_failed) return;
    attention(index);
    prepare_rows(output, w.attn_output.n_in, b.att);
    project_residual(w.attn_output, w.attn_output_bias);
    prepare_norm(gate_up, w.ffn_norm);
    gate_and_up(w);
    prepare_rows(down, spec.n_ff, b.ff);
    project_residual(w.ffn_down, w.ffn_down_bias);
    ++layers_run;
}

void Forward::State::final_norm(uint32_t n_hidden, float* hidden) {
    const uint32_t n = spec.n_embd;
    pool.run(n_hidden, [&](uint32_t i, unsigned) {
        const float* x = b.x + size_t{n_tok - n_hidden + i} * n;
        if (!kernels.rms_norm(x, model.weights.output_norm, n, spec.norm_rms_eps,
                              hidden + size_t{i} * n) ||
            !all_finite(hidden + size_t{i} * n, n))
            failed.store(true, std::memory_order_relaxed);
    });
    if (failed && residual_finite()) suspect = kOutputNorm;
}

bool Forward::State::residual_finite() const {
    return all_finite(b.x, size_t{n_tok} * spec.n_embd);
}

Status Forward::State::check_finite() const {
    if (!failed && !kv_failed) return {};
    const std::string who = suspect == kOutputNorm ? "the output norm"
                            : suspect < 0          ? "the token embedding"
                                                   : format("layer %d", suspect);
    if (kv_failed)
        return Error{ErrorKind::corrupt,
                     format("%s gave a key or value that is not finite or too large for the KV "
                            "types %s; the model's weights are damaged or not meant for this "
                            "architecture",
                            who.c_str(), kv_types_name(kv->geometry().types).c_str())};
    return Error{ErrorKind::corrupt,
                 who +
                     " gave a value that is not finite; the model's weights are damaged or not "
                     "meant for this architecture"};
}

Forward::Forward(std::unique_ptr<State> state) : state_(std::move(state)) {}
Forward::~Forward() = default;

size_t Forward::scratch_bytes(const Model& model, uint32_t n_threads, uint32_t max_chunk) {
    Buffers measured{};
    return carve(model, n_threads, max_chunk, nullptr, measured);
}

Result<std::unique_ptr<Forward>> Forward::create(const Model& model, const Kernels& kernels,
                                                 ThreadPool& pool, uint32_t max_chunk) {
    auto state = std::make_unique<State>(model, kernels, pool, max_chunk);
    const size_t bytes = scratch_bytes(model, pool.n_threads(), max_chunk);
    void* region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return Error{ErrorKind::no_memory,
                     format("no memory for %s of scratch buffers", format_bytes(bytes).c_str())};
    state->region = region;
    state->region_bytes = bytes;
    carve(model, pool.n_threads(), max_chunk, static_cast<uint8_t*>(region), state->b);
    return std::unique_ptr<Forward>(new Forward(std::move(state)));
}

uint32_t Forward::max_chunk() const {
    return state_->max_chunk;
}

uint64_t Forward::layers_run() const {
    return state_->layers_run;
}

Status Forward::run(KvSequence& sequence, std::span<const uint32_t> tokens, uint32_t n_hidden,
                    float* hidden, const std::atomic<bool>* cancel) {
    State& s = *state_;
    s.kv = &sequence;
    s.first = sequence.n_positions();
    s.n_tok = static_cast<uint32_t>(tokens.size());
    s.failed = s.kv_failed = false;
    s.suspect = -1;
    TRY(sequence.reserve(s.first + s.n_tok));
    {
        const FloatEnvironment environment;
        s.model.rope.compute(s.first, s.n_tok, s.b.cos, s.b.sin);
    }
    s.embed(tokens);
    for (uint32_t i = 0; i < s.spec.n_layer; ++i) {
        if (cancel && cancel->load(std::memory_order_relaxed))
            return Error{ErrorKind::cancelled, "cancelled"};
        s.layer(i);
        TRY(s.check_finite());
    }
    if (n_hidden > 0) s.final_norm(n_hidden, hidden);
    TRY(s.check_finite());
    sequence.commit(s.first + s.n_tok);
    return {};
}

Status Forward::output_head(const float* hidden, uint32_t n, float* logits) {
    State& s = *state_;
    const Matrix& m = s.model.weights.output;
    s.n_tok = n;
    s.failed = false;
    ActKinds kinds;
    kinds.include(m);
    s.prepare_rows(kinds, m.n_in, hidden);
    s.pool.run(units(m.n_out, kUnitRows), [&](uint32_t unit, unsigned thread) {
        const uint32_t row = unit * kUnitRows, rows = std::min(kUnitRows, m.n_out - row);
        mat_rows(s.kernels, m, row, rows, s.acts, logits + row, m.n_out, s.b.threads[thread].panel);
    });
    bool finite = !s.failed;
    for (size_t i = 0; finite && i < size_t{n} * m.n_out; ++i) finite = std::isfinite(logits[i]);
    if (!finite)
        return Error{ErrorKind::corrupt,
                     "the output head computed a logit that is not finite; the model's weights are "
                     "damaged"};
    return {};
}

}  // namespace picolm
