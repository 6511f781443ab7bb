// What can be said of speeds without asking for any: they exist, in the right number and order.
#include "base/machine_speed.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/machine.h"

namespace picolm {
namespace {

TEST(MachineSpeedTest, CoreSpeedIsFoundInAShortTime) {
    for (const unsigned n_threads : {1u, 3u}) {
        ThreadPool pool(n_threads);
        const double start = monotonic_seconds();
        EXPECT_GT(measure_core_speed(pool), 0);
        EXPECT_GE(monotonic_seconds() - start, 0.02);
    }
}

TEST(MachineSpeedTest, ReadRatesComeBestFirst) {
    ThreadPool pool(2);
    const std::vector<uint8_t> data((size_t{1} << 20) + 12345, 1);
    // Any size and address from 4 KiB up, less than a unit of work and more.
    for (const size_t skip : {size_t{0}, size_t{1}, data.size() - 4096}) {
        const Bytes bytes = Bytes(data).subspan(skip);
        const std::vector<double> rates = measure_read_rates(pool, bytes, 4, 60);
        EXPECT_EQ(rates.size(), 4u) << skip;
        EXPECT_TRUE(std::is_sorted(rates.rbegin(), rates.rend()));
        EXPECT_GT(rates.back(), 0);
    }
}

TEST(MachineSpeedTest, WithoutTimeThereIsOneReadRate) {
    ThreadPool pool(1);
    const std::vector<uint8_t> data(size_t{1} << 16, 1);
    EXPECT_EQ(measure_read_rates(pool, data, 100, 0).size(), 1u);
}

}  // namespace
}  // namespace picolm
