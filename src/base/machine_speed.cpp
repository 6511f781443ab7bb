#include "base/machine_speed.h"

#include <algorithm>
#include <atomic>

#include "base/machine.h"

namespace picolm {
namespace {

constexpr double kProbeSeconds = 0.02;
constexpr double kPassSeconds = 0.005;  // a shorter pass measures the clock and the wake-up
constexpr size_t kUnit = size_t{1} << 20;
constexpr size_t kBlock = 256;  // bytes of one step
constexpr size_t kLine = 64;
constexpr size_t kDistances[] = {0, 512, 1024, 2048, 4096};  // bytes ahead; 0: no prefetch

// The compiler must neither shorten the chains nor join them.
inline void add_one(unsigned long& value) {
    __asm__ volatile("" : "+r"(value));
    ++value;
}

// Additions in four chains until `end`, at least one round of them.
uint64_t count_additions(double end) {
    constexpr int kRounds = 4096;
    unsigned long a = 0, b = 0, c = 0, d = 0;
    uint64_t n = 0;
    do {
        for (int i = 0; i < kRounds; ++i) {
            add_one(a);
            add_one(b);
            add_one(c);
            add_one(d);
        }
        n += 4 * kRounds;
    } while (monotonic_seconds() < end);
    return n;
}

template <bool prefetch>
uint64_t sum_words(const uint8_t* data, size_t n_blocks, size_t distance) {
    uint64_t sums[8] = {};
    for (size_t block = 0; block < n_blocks; ++block, data += kBlock) {
        // Past the end of the bytes too: a prefetch never faults.
        if constexpr (prefetch) {
            const uintptr_t ahead = reinterpret_cast<uintptr_t>(data) + distance;
            for (size_t line = 0; line < kBlock; line += kLine)
                __builtin_prefetch(reinterpret_cast<const void*>(ahead + line), 0, 3);
        }
        const auto* words = reinterpret_cast<const uint64_t*>(data);
        for (size_t i = 0; i < kBlock / sizeof(uint64_t); i += 8)
            for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
    }
    uint64_t sum = 0;
    for (const uint64_t s : sums) sum += s;
    return sum;
}

// Seconds of `n_rounds` passes.
double read_all(ThreadPool& pool, Bytes bytes, uint32_t n_rounds, size_t distance) {
    const uint32_t n_units = static_cast<uint32_t>((bytes.size() + kUnit - 1) / kUnit);
    std::atomic<uint64_t> total{0};  // makes the sums needed
    const double start = monotonic_seconds();
    pool.run(n_units * n_rounds, [&](uint32_t unit, unsigned) {
        const size_t first = size_t{unit % n_units} * kUnit;
        const size_t n_blocks = std::min(kUnit, bytes.size() - first) / kBlock;
        const uint8_t* data = bytes.data() + first;
        const uint64_t sum = distance == 0 ? sum_words<false>(data, n_blocks, 0)
                                           : sum_words<true>(data, n_blocks, distance);
        total.fetch_add(sum, std::memory_order_relaxed);
    });
    return monotonic_seconds() - start;
}

}  // namespace

double measure_core_speed(ThreadPool& pool) {
    const unsigned n = pool.n_threads();
    std::vector<double> speeds(n);
    const double start = monotonic_seconds(), end = start + kProbeSeconds;
    // A thread that comes late, or not at all, has few additions to show for the same time.
    pool.run(n, [&](uint32_t unit, unsigned) {
        const uint64_t additions = count_additions(end);
        const double seconds = std::max(monotonic_seconds(), end) - start;
        speeds[unit] = static_cast<double>(additions) / (seconds * 1e9);
    });
    return *std::min_element(speeds.begin(), speeds.end());
}

std::vector<double> measure_read_rates(ThreadPool& pool, Bytes bytes, uint32_t n_samples,
                                       double seconds) {
    const size_t skip = (kLine - reinterpret_cast<uintptr_t>(bytes.data()) % kLine) % kLine;
    bytes = bytes.subspan(skip, (bytes.size() - skip) / kBlock * kBlock);
    const double start = monotonic_seconds();
    read_all(pool, bytes, 1, 0);  // pages in
    const double once = std::max(read_all(pool, bytes, 1, 0), 1e-9);
    const auto n_rounds = static_cast<uint32_t>(std::clamp(kPassSeconds / once, 1.0, 1000.0));
    const auto rate = [&](size_t distance) {
        return static_cast<double>(bytes.size()) * n_rounds /
               std::max(read_all(pool, bytes, n_rounds, distance), 1e-9);
    };
    const auto out_of_time = [&] { return monotonic_seconds() - start > seconds; };

    size_t best_distance = 0;
    std::vector<double> rates = {rate(0)};
    for (const size_t distance : kDistances) {
        if (out_of_time()) break;
        const double found = rate(distance);
        if (found <= rates.front()) continue;
        rates.front() = found;
        best_distance = distance;
    }
    while (rates.size() < n_samples && !out_of_time()) rates.push_back(rate(best_distance));
    std::sort(rates.rbegin(), rates.rend());
    return rates;
}

}  // namespace picolm
