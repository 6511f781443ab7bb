#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace picolm {
namespace {

TEST(ThreadPoolTest, EveryUnitExactlyOnce) {
    for (unsigned n : {1u, 2u, 3u, 8u}) {
        ThreadPool pool(n);
        std::vector<std::atomic<int>> hits(97);
        for (int round = 0; round < 3000; ++round) {
            const uint32_t units = static_cast<uint32_t>(round % 97);
            pool.run(units, [&](uint32_t unit, unsigned thread) {
                ASSERT_LT(thread, n);
                hits[unit].fetch_add(1, std::memory_order_relaxed);
            });
            for (uint32_t i = 0; i < 97; ++i) ASSERT_EQ(hits[i].exchange(0), i < units ? 1 : 0);
        }
    }
}

// More units than a run of a thread can count.
TEST(ThreadPoolTest, MillionsOfUnits) {
    for (const uint32_t n : {(1u << 20) - 1, 1u << 20, (1u << 21) + 12345}) {
        ThreadPool pool(3);
        std::vector<std::atomic<uint8_t>> hits(n);
        pool.run(n, [&](uint32_t unit, unsigned) { ++hits[unit]; });
        EXPECT_TRUE(std::all_of(hits.begin(), hits.end(), [](const auto& h) { return h == 1; }));
    }
}

TEST(ThreadPoolTest, SleepersWakeUp) {
    ThreadPool pool(2);
    std::atomic<int> total{0};
    for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        pool.run(4, [&](uint32_t, unsigned) { total++; });
    }
    EXPECT_EQ(total, 80);
}

#if defined(__x86_64__)
TEST(ThreadPoolTest, FloatEnvironmentIsDefaultInsideAndRestoredOutside) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);  // flush subnormals to zero
    ThreadPool pool(2);
    std::atomic<int> flushed{0};
    pool.run(64, [&](uint32_t, unsigned) {
        if (_mm_getcsr() & 0x8040) flushed++;
    });
    EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040u);
    _mm_setcsr(before);
    EXPECT_EQ(flushed, 0);
}
#endif

}  // namespace
}  // namespace picolm
