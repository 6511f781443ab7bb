#include "decode/exp_weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace picolm {
namespace {

TEST(ExpWeightTest, FollowsExp) {
    double largest = 0;
    for (int i = 0; i <= 2'850'000; ++i) {
        const double t = i / 100'000.0;
        const ExpWeightParts parts = exp_weight_parts(t);
        const double weight = exp_weight_table()[static_cast<size_t>(parts.step)] * parts.rest;
        largest = std::max(largest, std::fabs(weight - kFullWeight * std::exp(-t)));
    }
    EXPECT_LT(largest, 0.05);
    RecordProperty("largest_error", std::to_string(largest));
}

TEST(ExpWeightTest, Ends) {
    EXPECT_EQ(exp_weight(0), uint64_t{1} << 40);
    EXPECT_EQ(exp_weight(28.4), 1u);
    EXPECT_EQ(exp_weight(28.43), 0u);
    EXPECT_EQ(exp_weight(kWeightReach), 0u);
}

TEST(ExpWeightTest, NeverGrows) {
    uint64_t previous = exp_weight(0);
    for (int i = 1; i <= 285'000; ++i) {
        const uint64_t weight = exp_weight(i / 10'000.0);
        ASSERT_LE(weight, previous) << i;
        previous = weight;
    }
}

}  // namespace
}  // namespace picolm
