// Speed of the kernels on one thread, for every level that this CPU has and every format: batch 1
// in GB/s of weights (decode is limited by it), batch 128 in GMAC/s (prefill is). For example
//   kernels_bench --benchmark_filter='avx2/Q4_K/'
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/quantize.h"
#include "model/activations.h"

namespace picolm {
namespace {

// TinyLlama's feed-forward matrix.
constexpr uint32_t kRows = 5632;
constexpr uint32_t kWidth = 2048;
constexpr uint32_t kUnitRows = 32;  // as the forward pass calls the kernels

uint32_t next_random(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return state;
}

std::vector<float> random_floats(size_t n, uint32_t seed) {
    std::vector<float> values(n);
    for (float& value : values)
        value = static_cast<float>(next_random(seed) >> 8) * (2.0f / (1 << 24)) - 1.0f;
    return values;
}

// A buffer aligned as the kernels' scratch memory is.
template <typename T>
class Aligned {
  public:
    explicit Aligned(size_t n)
        : data_(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64))) {}
    ~Aligned() { std::free(data_); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    T* get() const { return data_; }

  private:
    T* data_;
};

// A few rows are made, the rest repeats them: quantising takes long and the kernels cannot tell.
std::vector<uint8_t> random_matrix(TensorType type) {
    constexpr size_t kMade = 16;
    const size_t row = row_bytes(type, kWidth);
    std::vector<uint8_t> made(kMade * row);
    const std::vector<float> values = random_floats(kMade * kWidth, 1);
    for (size_t r = 0; r < kMade; ++r)
        quantize_row(type, values.data() + r * kWidth, made.data() + r * row, kWidth);
    std::vector<uint8_t> matrix(kRows * row);
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = made[i % made.size()];
    return matrix;
}

void matrix_times_tokens(benchmark::State& state, const Kernels& kernels, TensorType type,
                         uint32_t n_tok) {
    const std::vector<uint8_t> weights = random_matrix(type);
    const Matrix matrix{weights.data(), type, kWidth, kRows, row_bytes(type, kWidth)};
    const std::vector<float> rows = random_floats(size_t{n_tok} * kWidth, 2);
    const size_t blocks = act_blocks(kWidth);
    Aligned<ActBlock> quantised(n_tok * blocks);
    const LargeBatch& large = kernels.large;
    const bool tiled = large.tile_tokens > 0 && n_tok >= large.from_tokens;
    Aligned<uint8_t> tiles(tiled ? (n_tok / large.tile_tokens + 1) * blocks * large.tile_bytes : 0);
    const bool q256 = act_kind(type) == ActKind::q256;
    for (uint32_t t = 0; t < n_tok; ++t) {
        ActBlock* to = quantised.get() + t * blocks;
        if (q256)
            kernels.quantize_q256(rows.data() + size_t{t} * kWidth, kWidth, to);
        else
            kernels.quantize_q32(rows.data() + size_t{t} * kWidth, kWidth, to);
    }
    for (uint32_t t = 0; tiled && t < n_tok; t += large.tile_tokens)
        large.pack(quantised.get() + t * blocks, blocks, static_cast<uint32_t>(blocks),
                   std::min(large.tile_tokens, n_tok - t),
                   tiles.get() + t / large.tile_tokens * blocks * large.tile_bytes);
    auto* acts = tiled ? tiles.get() : reinterpret_cast<uint8_t*>(quantised.get());
    const Activations x{n_tok, kWidth, rows.data(), kWidth, tiled, acts, acts};
    Aligned<uint8_t> panel(kPanelBytes);
    std::vector<float> y(size_t{n_tok} * kRows);
    for (auto _ : state) {
        for (uint32_t r = 0; r < kRows; r += kUnitRows)
            mat_rows(kernels, matrix, r, kUnitRows, x, y.data() + r, kRows, panel.get());
        benchmark::DoNotOptimize(y.data());
    }
    const auto per_second = [&](double n) {
        return benchmark::Counter(n * static_cast<double>(state.iterations()),
                                  benchmark::Counter::kIsRate);
    };
    if (n_tok == 1)
        state.counters["weight_bytes"] = per_second(static_cast<double>(weights.size()));
    else
        state.counters["MAC"] = per_second(double{kRows} * kWidth * n_tok);
}

// Eight query heads that share a KV head, over a full page.
void attention_page(benchmark::State& state, const Kernels& kernels) {
    constexpr uint32_t kHead = 64, kQueries = 8;
    std::vector<uint16_t> k(kHead * kPage, 0x3800), v(kHead * kPage, 0x3400);
    const std::vector<float> q = random_floats(kQueries * kHead, 3);
    std::vector<float> o(kQueries * kHead);
    const AttnPage page{k.data(), v.data()};
    for (auto _ : state) {
        AttnQuery queries[kQueries];
        for (uint32_t i = 0; i < kQueries; ++i)
            queries[i] = {q.data() + i * kHead, o.data() + i * kHead, 0.0f, 1.0f, 0, kPage};
        kernels.attn_page(page, kHead, kHead, queries, kQueries);
        benchmark::DoNotOptimize(o.data());
    }
    state.SetItemsProcessed(state.iterations() * kQueries * kPage);
}

void quantise(benchmark::State& state, const Kernels& kernels) {
    const std::vector<float> x = random_floats(kWidth, 4);
    Aligned<ActBlock> y(act_blocks(kWidth));
    for (auto _ : state) {
        kernels.quantize_q256(x.data(), kWidth, y.get());
        benchmark::DoNotOptimize(y.get());
    }
    state.SetItemsProcessed(state.iterations() * kWidth);
}

void register_all() {
    const TensorType types[] = {TensorType::f32,  TensorType::f16,    TensorType::bf16,
                                TensorType::q8_0, TensorType::q4_0,   TensorType::q4_1,
                                TensorType::q5_0, TensorType::q5_1,   TensorType::q2_k,
                                TensorType::q3_k, TensorType::q4_k,   TensorType::q5_k,
                                TensorType::q6_k, TensorType::iq4_nl, TensorType::iq4_xs};
    for (const std::string_view level : usable_levels()) {
        const Kernels& kernels = *find_kernels(level);
        const std::string prefix = std::string(level) + "/";
        for (const TensorType type : types)
            for (const uint32_t n_tok : {1u, 2u, 4u, 8u, 128u})
                benchmark::RegisterBenchmark(
                    (prefix + info(type).name + "/batch" + std::to_string(n_tok)).c_str(),
                    [&kernels, type, n_tok](benchmark::State& state) {
                        matrix_times_tokens(state, kernels, type, n_tok);
                    })
                    ->Unit(benchmark::kMillisecond);
        benchmark::RegisterBenchmark((prefix + "attn_page").c_str(), [&](benchmark::State& state) {
            attention_page(state, kernels);
        });
        benchmark::RegisterBenchmark((prefix + "quantize_q256").c_str(),
                                     [&](benchmark::State& state) { quantise(state, kernels); });
    }
}

}  // namespace
}  // namespace picolm

int main(int argc, char** argv) {
    picolm::register_all();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
