// What the format tests share: names of the golden files and numbers that are the same everywhere.
#pragma once

#include <algorithm>  // support.h uses it
#include <string>
#include <vector>

#include "base/tensor_type.h"
#include "support.h"

namespace picolm::testing {

// "Q4_K" is stored as q4_K, "IQ4_NL" as iq4_nl.
inline std::string golden_name(const TensorTypeInfo& t) {
    std::string name = t.name;
    for (char& c : name)
        if (c != 'K' && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return name;
}

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint32_t next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 32);
    }
    // Nearly normal with deviation 0.58, every operation exact: the sum of four uniform numbers.
    float bell() {
        int sum = 0;
        for (int i = 0; i < 4; ++i) sum += static_cast<int>(next() >> 16) - 32768;
        return static_cast<float>(sum) * 0x1p-16f;
    }

  private:
    uint64_t state_;
};

}  // namespace picolm::testing
