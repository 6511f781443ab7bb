// What the machine offers this process: CPUs, memory, the limits of control groups (v1 and v2), and
// what the process itself occupies. Reads /proc and /sys; decides nothing but the default number of
// threads. CPU instruction sets are in src/kernels.
//
// `root` is put in front of every path, so that tests bring a tree of their own; "" is the machine.
// A file that is absent or unreadable means "no such limit", never an error. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace picolm {

struct CpuFacts {
    std::vector<uint32_t> allowed;  // CPU numbers this process may run on, ascending, at least one
    uint32_t n_cores = 1;           // physical cores among them: SMT siblings count once
    uint32_t n_fast_cores = 1;      // of those, the ones with at least 80 % of the best one's speed
    std::optional<double> quota;    // CPU seconds per second that the control groups grant

    // The fast cores inside the quota, at least 1. A slow core or a sibling would make the others
    // wait at every barrier, and so would a core that the quota puts to sleep.
    uint32_t default_threads() const;
};

// The affinity mask of the calling thread.
std::vector<uint32_t> allowed_cpus();

CpuFacts read_cpu_facts(const std::string& root = "");
// What the processor or the board calls itself; "" when the system does not say.
std::string read_cpu_name(const std::string& root = "");
// For a given mask. REQUIRES: !allowed.empty().
CpuFacts read_cpu_facts(const std::string& root, std::span<const uint32_t> allowed);

// All in bytes.
struct MemoryFacts {
    uint64_t total = 0;      // physical; 0 when unknown
    uint64_t available = 0;  // MemAvailable: what can be had without swapping
    // Over this process's control groups and all their ancestors:
    std::optional<uint64_t> limit;  // the smallest one
    std::optional<uint64_t>
        limit_free;  // the least that is left below any; file cache counts as free

    // What a plan may use now.
    uint64_t usable() const {
        return limit_free && *limit_free < available ? *limit_free : available;
    }
};

MemoryFacts read_memory_facts(const std::string& root = "");

struct ProcessMemory {
    uint64_t anonymous = 0;    // RssAnon, bytes
    uint64_t file_backed = 0;  // RssFile, bytes
    uint64_t peak = 0;         // VmHWM: the most that was ever resident, both kinds; 0 when unknown
};

// nullopt before Linux 4.5.
std::optional<ProcessMemory> read_process_memory(const std::string& root = "");

// Seconds since some moment in the past; never goes back.
double monotonic_seconds();

}  // namespace picolm
