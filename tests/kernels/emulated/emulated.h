// Levels that this CPU may lack, compiled with emulated instructions: the same source, the same
// checks. Present where PICOLM_EMULATED_LEVELS is defined.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/kernels.h"

namespace picolm {

// "avx512" and "amx" over "generic"; what they inherit from other levels is not in them. "avxvnni"
// over "avx2", where the CPU has that.
std::vector<const Kernels*> emulated_levels();

}  // namespace picolm
