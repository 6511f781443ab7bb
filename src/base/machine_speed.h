// How fast the machine is at this moment: what other programs leave of its cores, and how many
// bytes its threads can read in a second. For benchmarks; nothing here reaches a result.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"

namespace picolm {

// Integer additions per nanosecond of the slowest thread, over about 20 ms. All threads add at the
// same time, so the value drops when another program takes a core or shares one as an SMT sibling.
double measure_core_speed(ThreadPool& pool);

// Bytes per second that all threads together read from `bytes`: at most n_samples passes of the
// quickest of several loops (sums of 64-bit words, with software prefetch at several distances),
// best first. Ends early when `seconds` are over, but has at least one value.
// REQUIRES: bytes.size() >= 4096. Pages that are not in memory are read in first.
std::vector<double> measure_read_rates(ThreadPool& pool, Bytes bytes, uint32_t n_samples,
                                       double seconds);

}  // namespace picolm
