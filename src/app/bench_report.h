// What `picolm bench` found, and its three forms: a table, CSV, JSON. Text only; nothing is
// measured or printed here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/options.h"

namespace picolm::app {

struct BenchRow {
    enum class Test { read, prefill, decode, warm };
    Test test = Test::read;
    uint32_t n_tokens = 0;  // prefill, warm: of the prompt; decode: positions in front; read: 0
    uint32_t n_threads = 0;
    std::vector<double> samples{};  // in the test's unit, one per run; empty: the test was skipped
    double read_fraction = 0;       // decode: of the read rate of the same threads; 0: not known
    double core_speed = 0;          // additions per nanosecond, the smaller one of before and after
};

struct BenchReport {
    std::string model;  // path
    std::string arch, name;
    uint64_t model_bytes = 0;
    uint64_t weight_bytes_per_token = 0;
    std::string isa;
    std::string cpu;
    uint32_t n_cores = 0;
    uint32_t n_decode = 0;
    uint32_t max_chunk = 0;
    std::string kv_types;  // of keys and values
    std::vector<uint32_t> threads;
    std::vector<BenchRow> rows;
    uint64_t peak_resident = 0;   // the whole process, the mapped model included
    uint64_t peak_anonymous = 0;  // the most of its own after any test; 0 when unknown

    // The machine at its best in this run: what the rows' core_speed is compared with.
    double best_core_speed = 0;
};

const char* test_name(BenchRow::Test test);
// "prefill 128", "decode at 512".
std::string row_name(const BenchRow& row);
double median(std::vector<double> values);  // 0 for none

std::string describe_bench(const BenchReport& report, BenchFormat format);

}  // namespace picolm::app
