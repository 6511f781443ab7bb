// Rotary position embedding (Su et al., arXiv:2104.09864): angles for a run of positions, computed
// in double when they are needed, so that opening a model computes none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/spec.h"

namespace picolm {

class RopeTable {
  public:
    // freq_divisors: [n_rot / 2] from rope_freqs.weight, or nullptr.
    RopeTable(const ModelSpec& spec, const float* freq_divisors);

    // cos and sin of positions [first, first + n): [n, n_rot / 2] each.
    void compute(uint32_t first, uint32_t n, float* cos, float* sin) const;

    // The effective frequencies, for the identity of saved state.
    const std::vector<double>& frequencies() const { return frequencies_; }

  private:
    std::vector<double> frequencies_;  // [n_rot / 2] radians per position
};

}  // namespace picolm
