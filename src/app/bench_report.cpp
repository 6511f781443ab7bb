#include "app/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"

namespace picolm::app {
namespace {

using Test = BenchRow::Test;

constexpr double kQuiet = 0.85;  // of the best core speed of the run

const char* unit_of(Test test) {
    switch (test) {
        case Test::read:
            return "GB/s";
        case Test::warm:
            return "ms";
        case Test::prefill:
        case Test::decode:
            break;
    }
    return "tok/s";
}

const char* state_of(const BenchReport& report, const BenchRow& row) {
    if (row.samples.empty()) return "skipped";
    return row.core_speed >= kQuiet * report.best_core_speed ? "quiet" : "busy";
}

struct Figures {
    double median, least, most;
};

Figures figures_of(const BenchRow& row) {
    if (row.samples.empty()) return {};
    const auto [least, most] = std::minmax_element(row.samples.begin(), row.samples.end());
    return {median(row.samples), *least, *most};
}

std::string table_line(const BenchReport& report, const BenchRow& row) {
    std::string line = format("%-20s %7u ", row_name(row).c_str(), row.n_threads);
    if (row.samples.empty()) return line + "skipped: it would take too long (--seconds)\n";
    const Figures f = figures_of(row);
    line += format("%10.2f %10.2f %10.2f  %-5s ", f.median, f.least, f.most, unit_of(row.test));
    line += row.read_fraction > 0 ? format("%6.0f %%", row.read_fraction * 100) : "       -";
    return line + format("  %-5s %5zu\n", state_of(report, row), row.samples.size());
}

std::string table(const BenchReport& report) {
    std::string text =
        format("Model: %s%s%s, %s, %s of weights per token\n", printable(report.arch).c_str(),
               report.name.empty() ? "" : ", ", printable(report.name).c_str(),
               format_bytes(report.model_bytes).c_str(),
               format_bytes(report.weight_bytes_per_token).c_str());
    text += format("Machine: %s, %u cores; kernels: %s; KV types: %s; picolm %s\n\n",
                   report.cpu.empty() ? "unknown" : report.cpu.c_str(), report.n_cores,
                   report.isa.c_str(), report.kv_types.c_str(), PICOLM_VERSION);
    text += format("%-20s %7s %10s %10s %10s  %-5s %8s  %-5s %5s\n", "test", "threads", "median",
                   "least", "most", "unit", "of read", "state", "runs");
    for (const BenchRow& row : report.rows) text += table_line(report, row);
    text +=
        "\nread: how fast these threads read the model file without computing anything; of read:\n"
        "the share of that rate at which a decode reads the weights. busy: before or after the\n"
        "test something else used the processor (less than 85 % of the best speed of this run).\n";
    text += format("Peak memory: %s resident, the mapped model included",
                   format_bytes(report.peak_resident).c_str());
    if (report.peak_anonymous > 0)
        text += format("; %s of its own", format_bytes(report.peak_anonymous).c_str());
    return text + '\n';
}

std::string csv(const BenchReport& report) {
    std::string text =
        "test,n_tokens,threads,unit,median,min,max,runs,read_fraction,state,core_speed\n";
    for (const BenchRow& row : report.rows) {
        text += format("%s,%u,%u,%s,", test_name(row.test), row.n_tokens, row.n_threads,
                       unit_of(row.test));
        const Figures f = figures_of(row);
        text += row.samples.empty() ? ",,," : format("%.4f,%.4f,%.4f,", f.median, f.least, f.most);
        text += format("%zu,", row.samples.size());
        if (row.read_fraction > 0) text += format("%.4f", row.read_fraction);
        text += format(",%s,%.4f\n", state_of(report, row), row.core_speed);
    }
    return text;
}

using Json = nlohmann::ordered_json;

Json json_row(const BenchReport& report, const BenchRow& row) {
    const Figures f = figures_of(row);
    const bool measured = !row.samples.empty();
    Json out;
    out["test"] = test_name(row.test);
    out["n_tokens"] = row.n_tokens;
    out["threads"] = row.n_threads;
    out["unit"] = unit_of(row.test);
    out["median"] = measured ? Json(f.median) : Json();
    out["min"] = measured ? Json(f.least) : Json();
    out["max"] = measured ? Json(f.most) : Json();
    out["runs"] = row.samples.size();
    out["samples"] = row.samples;
    out["read_fraction"] = row.read_fraction > 0 ? Json(row.read_fraction) : Json();
    out["state"] = state_of(report, row);
    out["core_speed"] = row.core_speed;
    return out;
}

std::string json(const BenchReport& report) {
    Json out;
    out["program"] = "picolm";
    out["version"] = PICOLM_VERSION;
    out["model"] = {{"path", report.model},
                    {"arch", report.arch},
                    {"name", report.name},
                    {"bytes", report.model_bytes},
                    {"weight_bytes_per_token", report.weight_bytes_per_token}};
    out["machine"] = {{"cpu", report.cpu},
                      {"cores", report.n_cores},
                      {"isa", report.isa},
                      {"best_core_speed", report.best_core_speed}};
    out["threads"] = report.threads;
    out["decode_tokens"] = report.n_decode;
    out["chunk"] = report.max_chunk;
    out["kv_types"] = report.kv_types;
    out["rows"] = Json::array();
    for (const BenchRow& row : report.rows) out["rows"].push_back(json_row(report, row));
    out["memory"] = {{"peak_resident", report.peak_resident},
                     {"peak_anonymous", report.peak_anonymous}};
    // A name that is not UTF-8 must not throw.
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

const char* test_name(Test test) {
    switch (test) {
        case Test::read:
            return "read";
        case Test::prefill:
            return "prefill";
        case Test::decode:
            return "decode";
        case Test::warm:
            break;
    }
    return "warm";
}

std::string row_name(const BenchRow& row) {
    switch (row.test) {
        case Test::read:
            return "read";
        case Test::decode:
            return format("decode at %u", row.n_tokens);
        case Test::warm:
            return format("warm start %u", row.n_tokens);
        case Test::prefill:
            break;
    }
    return format("prefill %u", row.n_tokens);
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string describe_bench(const BenchReport& report, BenchFormat format) {
    switch (format) {
        case BenchFormat::csv:
            return csv(report);
        case BenchFormat::json:
            return json(report);
        case BenchFormat::table:
            break;
    }
    return table(report);
}

}  // namespace picolm::app
