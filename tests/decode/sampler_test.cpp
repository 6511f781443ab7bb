#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

#include "base/hash.h"
#include "base/math.h"
#include "decode/random.h"

namespace picolm {
namespace {

using Logits = std::vector<float>;
using Tokens = std::vector<TokenId>;

// The definition in sampler.h written down plainly: penalise, sort everything, cut, draw.
TokenId reference(const SamplerOptions& o, const Logits& logits, const Tokens& history,
                  uint64_t position, uint32_t attempt) {
    Logits x = logits;
    const size_t n_window = std::min<size_t>(history.size(), o.penalty_window);
    const Tokens window(history.end() - static_cast<std::ptrdiff_t>(n_window), history.end());
    for (TokenId id = 0; id < x.size(); ++id) {
        const auto count = std::count(window.begin(), window.end(), id);
        if (count == 0) continue;
        double v = x[id];
        v = v > 0 ? v / o.repeat_penalty : v * o.repeat_penalty;
        v = v - o.presence_penalty - o.frequency_penalty * static_cast<double>(count);
        const double largest = std::numeric_limits<float>::max();
        x[id] = static_cast<float>(std::max(-largest, std::min(largest, v)));
    }
    Tokens order(x.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return x[a] > x[b]; });
    if (o.temperature == 0) return order[0];

    std::vector<uint64_t> weights;
    for (const TokenId id : order) {
        const double t = (double{x[order[0]]} - x[id]) / o.temperature;
        weights.push_back(t > 28.5 ? 0 : static_cast<uint64_t>(exp_f64(-t) * 0x1p40 + 0.5));
    }
    size_t n = order.size();
    if (o.top_k) n = std::min<size_t>(n, o.top_k);
    const auto sum_of = [&](size_t count) {
        return std::accumulate(weights.begin(),
                               weights.begin() + static_cast<std::ptrdiff_t>(count), uint64_t{0});
    };
    if (o.top_p < 1) {
        const double share = o.top_p * static_cast<double>(sum_of(n));
        size_t keep = 1;
        while (keep < n && static_cast<double>(sum_of(keep)) < share) ++keep;
        n = keep;
    }
    if (o.min_p > 0)
        while (static_cast<double>(weights[n - 1]) < o.min_p * 0x1p40) --n;
    const uint64_t r = scale_to(random_bits(o.seed, position, attempt), sum_of(n));
    size_t i = 0;
    while (sum_of(i + 1) <= r) ++i;
    return order[i];
}

// Roughly normal from integers alone, so that the numbers are the same everywhere.
float bell(std::mt19937& random) {
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>(random() >> 20) - 2048;
    return static_cast<float>(sum) / 1024.0f;
}

SamplerOptions plain() {
    SamplerOptions o;
    o.temperature = 1;
    o.top_p = 1;
    return o;
}

TokenId draw(const SamplerOptions& o, const Logits& logits, uint64_t position = 0,
             const Tokens& history = {}) {
    Sampler sampler(o, static_cast<uint32_t>(logits.size()));
    const auto token = sampler.sample(logits, history, position);
    EXPECT_TRUE(token) << token.error().text;
    return token ? *token : UINT32_MAX;
}

std::vector<int> histogram(const SamplerOptions& o, const Logits& logits, int n_draws) {
    Sampler sampler(o, static_cast<uint32_t>(logits.size()));
    std::vector<int> counts(logits.size());
    for (int i = 0; i < n_draws; ++i)
        ++counts[*sampler.sample(logits, {}, static_cast<uint64_t>(i))];
    return counts;
}

TEST(SamplerTest, EqualsTheFullSort) {
    std::mt19937 random(7);
    const double temperatures[] = {0, 1e-310, 1e-3, 0.3, 0.8, 1, 2, 100, 1e15, 1e308};
    const double shares[] = {0, 1e-9, 0.1, 0.5, 0.9, 0.95, 1 - 1e-12, 1};
    const double min_ps[] = {0, 0, 0, 1e-9, 0.01, 0.1, 0.5, 1};
    for (int trial = 0; trial < 20'000; ++trial) {
        const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
        const auto below = [&](uint32_t n_values) {
            return static_cast<uint32_t>(random() % n_values);
        };
        const size_t n = 1 + random() % (trial % 16 == 0 ? 700 : 60);
        SamplerOptions o;
        o.temperature = pick(temperatures);
        o.top_k = random() % 2 ? static_cast<uint32_t>(random() % (n + 10)) : 0;
        o.top_p = pick(shares);
        o.min_p = pick(min_ps);
        o.seed = random();
        o.penalty_window = below(40);
        if (random() % 2) {
            o.repeat_penalty = 0.8 + 0.1 * below(8);
            o.presence_penalty = 0.5 * below(5) - 1;
            o.frequency_penalty = 0.25 * below(5) - 0.5;
        }
        Logits logits(n);
        const uint32_t kind = below(4);  // many ties, some, none, huge
        for (float& x : logits) {
            x = bell(random) * 3;
            if (kind == 0) x = static_cast<float>(static_cast<int>(x) / 4);
            if (kind == 1) x = static_cast<float>(static_cast<int>(x * 4)) * 0.25f;
            if (kind == 3) x *= 1e37f;
        }
        Tokens history(random() % 60);
        for (TokenId& id : history) id = static_cast<TokenId>(random() % n);
        Sampler sampler(o, static_cast<uint32_t>(n));
        for (uint32_t attempt = 0; attempt < 2; ++attempt) {
            const uint64_t position = random();
            const auto token = sampler.sample(logits, history, position, attempt);
            ASSERT_TRUE(token) << token.error().text;
            ASSERT_EQ(*token, reference(o, logits, history, position, attempt))
                << "trial " << trial << " n " << n << " T " << o.temperature << " k " << o.top_k
                << " p " << o.top_p << " min_p " << o.min_p << " kind " << kind;
        }
    }
}

TEST(SamplerTest, EqualsTheFullSortOnALargeVocabulary) {
    std::mt19937 random(8);
    for (const double temperature : {0.1, 0.8, 3.0, 1e15}) {
        for (const uint32_t top_k : {0u, 1u, 40u, 5000u}) {
            SamplerOptions o;
            o.temperature = temperature;
            o.top_k = top_k;
            o.top_p = 0.999;
            Logits logits(3000);
            for (float& x : logits) x = bell(random) * 3;
            for (uint64_t i = 0; i < 4; ++i)
                EXPECT_EQ(draw(o, logits, i), reference(o, logits, {}, i, 0));
        }
    }
}

// The same hash on every CPU, level and compiler.
TEST(SamplerTest, PinnedSequence) {
    std::mt19937 random(99);
    SamplerOptions o;
    o.repeat_penalty = 1.1;
    o.frequency_penalty = 0.05;
    o.min_p = 0.001;
    Sampler sampler(o, 2000);
    Tokens history;
    Logits logits(2000);
    for (uint64_t i = 0; i < 500; ++i) {
        for (float& x : logits) x = bell(random) * 2;
        history.push_back(*sampler.sample(logits, history, i));
    }
    std::string text;
    for (const TokenId id : history) text += std::to_string(id) + " ";
    const Bytes bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    EXPECT_EQ(hash128(bytes).hex(), "c1ad34b1aecba484f8039971ab160c84") << text;
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongEquals) {
    SamplerOptions o;
    o.temperature = 0;
    EXPECT_EQ(draw(o, {1, 5, 2, 5, 5}), 1u);
    EXPECT_EQ(draw(o, {-0.0f, 0.0f}), 0u);
    EXPECT_EQ(draw(o, {-3e38f, -3.1e38f}), 0u);
    o.repeat_penalty = 2;
    EXPECT_EQ(draw(o, {1, 5, 2, 5, 5}, 0, {1, 3}), 4u);
}

TEST(SamplerTest, FrequenciesFollowTheSoftmax) {
    const Logits logits = {1.5f, -1, 0.25f, 3, 0, 2.5f, -3, 3};
    for (const double temperature : {0.5, 1.0, 1.7}) {
        SamplerOptions o = plain();
        o.temperature = temperature;
        constexpr int kDraws = 100'000;
        const auto counts = histogram(o, logits, kDraws);
        double sum = 0, chi = 0;
        for (const float x : logits) sum += std::exp(x / temperature);
        for (size_t i = 0; i < logits.size(); ++i) {
            const double expected = kDraws * std::exp(logits[i] / temperature) / sum;
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        EXPECT_LT(chi, 24.3) << temperature;  // 7 degrees of freedom, p = 0.001
    }
}

TEST(SamplerTest, FiltersKeepWhatTheyShould) {
    // Probabilities 0.4 0.3 0.2 0.1 in scrambled places.
    const double p[] = {0.2, 0.4, 0.1, 0.3};
    Logits logits;
    for (const double v : p) logits.push_back(static_cast<float>(std::log(v)));
    const auto kept = [&](const SamplerOptions& o) {
        std::string ids;
        const auto counts = histogram(o, logits, 2000);
        for (size_t i = 0; i < counts.size(); ++i)
            if (counts[i]) ids += std::to_string(i);
        return ids;
    };
    SamplerOptions o = plain();
    EXPECT_EQ(kept(o), "0123");
    o.top_p = 0.65;
    EXPECT_EQ(kept(o), "13");
    o.top_p = 0.75;
    EXPECT_EQ(kept(o), "013");
    o.top_p = 0;
    EXPECT_EQ(kept(o), "1");
    o = plain();
    o.top_k = 3;
    EXPECT_EQ(kept(o), "013");
    o.top_p = 0.7;  // of the 0.9 that top-k left, 0.7 / 0.9 is reached by two
    EXPECT_EQ(kept(o), "13");
    o = plain();
    o.min_p = 0.3;
    EXPECT_EQ(kept(o), "013");
    o.min_p = 1;
    EXPECT_EQ(kept(o), "1");
    // Temperature comes before top-p: at 0.25 the best one alone holds more than 0.7.
    o = plain();
    o.top_p = 0.7;
    o.temperature = 0.25;
    EXPECT_EQ(kept(o), "1");
}

TEST(SamplerTest, CutsAmongEqualsKeepLowerIds) {
    const Logits logits(100, 1.0f);
    SamplerOptions o = plain();
    const auto highest = [&] {
        const auto counts = histogram(o, logits, 3000);
        size_t last = 0;
        for (size_t i = 0; i < counts.size(); ++i)
            if (counts[i]) last = i;
        return last;
    };
    o.top_k = 10;
    EXPECT_EQ(highest(), 9u);
    o.top_k = 0;
    o.top_p = 0.25;
    EXPECT_EQ(highest(), 24u);
}

TEST(SamplerTest, ExtremeTemperatures) {
    Logits logits(50);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) - 25;
    SamplerOptions o = plain();
    o.temperature = 1e15;
    double chi = 0;
    for (const int n : histogram(o, logits, 50'000)) chi += (n - 1000.0) * (n - 1000.0) / 1000.0;
    EXPECT_LT(chi, 85.4);  // 49 degrees of freedom, p = 0.001
    for (const double tiny : {1e-3, 1e-300, 5e-324}) {
        o.temperature = tiny;
        EXPECT_EQ(histogram(o, logits, 100)[49], 100);
    }
    o.temperature = 1e-300;
    logits[3] = logits[49];
    const auto counts = histogram(o, logits, 1000);  // two equal ones share
    EXPECT_EQ(counts[3] + counts[49], 1000);
    EXPECT_GT(counts[3], 400);
    EXPECT_GT(counts[49], 400);
}

TEST(SamplerTest, PenaltiesComeFromTheWindowOfTheHistory) {
    SamplerOptions o;
    o.temperature = 0;
    const Logits logits = {4, 3, 2, -1};
    o.repeat_penalty = 4;
    EXPECT_EQ(draw(o, logits, 0, {0}), 1u);
    EXPECT_EQ(draw(o, logits, 0, {0, 1}), 2u);
    EXPECT_EQ(draw(o, logits, 0, {0, 0, 0, 1, 2}), 0u);  // 4/4 and 3/4 and 2/4: once per token
    o.penalty_window = 1;
    EXPECT_EQ(draw(o, logits, 0, {1, 0, 1}), 0u);  // token 0 has left the window
    o.penalty_window = 0;
    EXPECT_EQ(draw(o, logits, 0, {0}), 0u);

    SamplerOptions f;
    f.temperature = 0;
    f.frequency_penalty = 0.75;
    EXPECT_EQ(draw(f, logits, 0, {0}), 0u);
    EXPECT_EQ(draw(f, logits, 0, {0, 3, 0}), 1u);
    SamplerOptions p;
    p.temperature = 0;
    p.presence_penalty = 0.75;
    EXPECT_EQ(draw(p, logits, 0, {0, 0, 0}), 0u);
    p.presence_penalty = 1.5;
    EXPECT_EQ(draw(p, logits, 0, {0}), 1u);
    p.presence_penalty = -1e6;
    EXPECT_EQ(draw(p, logits, 0, {3}), 3u);
    p.frequency_penalty = 1e6;
    p.repeat_penalty = 1e6;
    EXPECT_EQ(draw(p, {3e38f, -3e38f, 1}, 0, {0, 1, 1, 1}), 0u);  // no overflow
    p.temperature = 1;
    p.repeat_penalty = 1e-6;
    EXPECT_EQ(draw(p, {1, 3e38f, -3e38f}, 0, {1, 2}), 1u);
}

// What was drawn before leaves no trace: a sampler that starts late goes on like one that did not.
TEST(SamplerTest, ResultsDependOnInputsAlone) {
    std::mt19937 random(3);
    SamplerOptions o;
    o.repeat_penalty = 1.3;
    Logits logits(300);
    for (float& x : logits) x = bell(random) / 2;
    Sampler whole(o, 300);
    Tokens history = {1, 2, 3};
    for (uint64_t i = 3; i < 60; ++i) {
        const TokenId next = *whole.sample(logits, history, i);
        EXPECT_EQ(next, draw(o, logits, i, history));
        history.push_back(next);
    }
    SamplerOptions other = o;
    other.seed = 43;
    int n_different = 0, n_retried = 0;
    Sampler twin(other, 300);
    for (uint64_t i = 0; i < 60; ++i) {
        n_different += *whole.sample(logits, {}, i) != *twin.sample(logits, {}, i);
        n_retried += *whole.sample(logits, {}, i, 0) != *whole.sample(logits, {}, i, 1);
    }
    EXPECT_GT(n_different, 30);
    EXPECT_GT(n_retried, 30);
}

TEST(SamplerTest, BadInputsAreErrors) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const double temperature : {0.0, 0.8}) {
        SamplerOptions o;
        o.temperature = temperature;
        o.repeat_penalty = 1.1;
        Sampler sampler(o, 20);
        for (const float bad : {kNan, kInf, -kInf}) {
            Logits logits(20, 1.0f);
            logits[17] = bad;
            const auto result = sampler.sample(logits, {}, 0);
            ASSERT_FALSE(result);
            EXPECT_EQ(result.error().kind, ErrorKind::invalid);
            EXPECT_NE(result.error().text.find("token 17 is not finite"), std::string::npos);
        }
        EXPECT_FALSE(sampler.sample(Logits(19), {}, 0));
        EXPECT_FALSE(sampler.sample(Logits(20), Tokens{3, 20}, 0));
        EXPECT_TRUE(sampler.sample(Logits(20), Tokens{3, 19}, 0));
        EXPECT_FALSE(Sampler(o, 0).sample({}, {}, 0));
    }
}

TEST(SamplerTest, ValidateNamesTheField) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInf = std::numeric_limits<double>::infinity();
    struct Field {
        const char* name;
        double SamplerOptions::*member;
        std::vector<double> good, bad;
    };
    const Field fields[] = {
        {"temperature",
         &SamplerOptions::temperature,
         {0, 1e-310, 1, 1e15},
         {kNan, -1, -1e-9, kInf}},
        {"top_p", &SamplerOptions::top_p, {0, 0.5, 1}, {kNan, -0.1, 2, kInf, -kInf}},
        {"min_p", &SamplerOptions::min_p, {0, 0.5, 1}, {kNan, -0.1, 2, kInf}},
        {"repeat_penalty", &SamplerOptions::repeat_penalty, {0.5, 1, 2}, {kNan, 0, -1, 1e7, kInf}},
        {"presence_penalty", &SamplerOptions::presence_penalty, {-2, 2}, {kNan, -1e7, 1e7, kInf}},
        {"frequency_penalty", &SamplerOptions::frequency_penalty, {-2, 2}, {kNan, -1e7, 1e7, kInf}},
    };
    EXPECT_TRUE(validate(SamplerOptions{}));
    for (const Field& field : fields) {
        for (const double value : field.good) {
            SamplerOptions o;
            o.*field.member = value;
            EXPECT_TRUE(validate(o)) << field.name << " " << value;
        }
        for (const double value : field.bad) {
            SamplerOptions o;
            o.*field.member = value;
            const Status status = validate(o);
            ASSERT_FALSE(status) << field.name << " " << value;
            EXPECT_EQ(status.error().kind, ErrorKind::invalid);
            EXPECT_EQ(status.error().text.find(field.name), 0u) << status.error().text;
        }
    }
}

// A bar far above what is measured, for slow and busy machines and sanitizers; the figures are
// recorded as properties of the test.
TEST(SamplerTest, CostPerToken) {
    std::mt19937 random(5);
    Logits logits(32'000);
    for (float& x : logits) x = bell(random) * 3;
    logits[777] = 16;
    const auto microseconds = [&](const char* name, const SamplerOptions& o) {
        Sampler sampler(o, 32'000);
        double best = 1e9;
        for (uint64_t i = 0; i < 60; ++i) {
            const auto start = std::chrono::steady_clock::now();
            EXPECT_TRUE(sampler.sample(logits, {}, i));
            const std::chrono::duration<double, std::micro> t =
                std::chrono::steady_clock::now() - start;
            best = std::min(best, t.count());
        }
        RecordProperty(name, std::to_string(best));
        if (std::getenv("PICOLM_TEST_TIMES")) std::printf("%s: %.0f us\n", name, best);
        return best;
    };
    constexpr double kBar = 20'000;
    SamplerOptions o;
    EXPECT_LT(microseconds("default", o), kBar);
    o.temperature = 0;
    EXPECT_LT(microseconds("greedy", o), kBar);
    o.temperature = 2;
    EXPECT_LT(microseconds("hot", o), kBar);
    o.temperature = 1e15;
    EXPECT_LT(microseconds("uniform", o), kBar);
    o.temperature = 0.8;
    o.top_k = 40;
    EXPECT_LT(microseconds("top_k_40", o), kBar);
    o.top_k = 2000;
    EXPECT_LT(microseconds("top_k_2000", o), kBar);
    logits.assign(logits.size(), 1.0f);
    EXPECT_LT(microseconds("all_equal", SamplerOptions{}), kBar);
}

}  // namespace
}  // namespace picolm
