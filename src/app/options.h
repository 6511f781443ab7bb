// The command line and the PICOLM_* variables -> one value per command. Touches no file but to see
// whether one has the name of a command; prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/cache_choice.h"
#include "base/result.h"
#include "decode/sampler.h"
#include "kernels/kv_type.h"

namespace picolm::app {

enum class Verbosity { quiet, normal, verbose };

// What every command that computes something asks about (app/open_model.h).
struct ModelOptions {
    std::string model;
    uint32_t n_ctx = 0;      // 0: the model's
    uint32_t n_threads = 0;  // 0: the engine's choice
    uint32_t max_chunk = 128;
    KvTypes kv_types;
};

struct RunOptions : ModelOptions {
    std::optional<std::string> prompt;
    std::optional<std::string> prompt_file;  // "-": standard input, as when neither is given
    uint32_t n_predict = 256;
    SamplerOptions sampler;
    bool random_seed = false;
    std::vector<std::string> stop;
    bool no_bos = false;
    CacheOptions cache;
    std::string stats_json;  // a file for the statistics; empty: none
    Verbosity verbosity = Verbosity::normal;
};

struct InspectOptions {
    std::string model;
    uint32_t n_ctx = 0;
    KvTypes kv_types;
};

enum class BenchFormat { table, csv, json };

struct BenchOptions {
    std::string model;
    std::vector<uint32_t> threads;  // empty: the default count, and some tests at fewer
    std::vector<uint32_t> prefill = {16, 64, 128, 512};
    std::vector<uint32_t> decode = {0, 512, 2048};  // positions in front of what is measured
    uint32_t warm = 512;                            // tokens of the warm start's prompt; 0: none
    uint32_t n_decode = 32;
    uint32_t runs = 5;
    uint32_t row_seconds = 20;  // 0: no limit
    uint32_t max_chunk = 128;
    KvTypes kv_types;
    BenchFormat format = BenchFormat::table;
};

struct CacheCommandOptions {
    enum class Verb { ls, stat, verify, rm, trim, export_to, import_from };
    Verb verb = Verb::ls;
    std::string place;             // a cache: a file or a folder
    std::string other;             // of export and import
    std::vector<std::string> ids;  // of prompts, or beginnings of them; empty: all
    bool all = false;              // rm: everything
    bool keep = false;             // verify: remove nothing
    bool json = false;
    std::string model;  // ls: to show texts
    uint64_t size = 0;  // trim
};

enum class PerplexityFormat { table, json };

struct PerplexityOptions : ModelOptions {  // n_ctx: tokens of a window; 0: chosen
    std::optional<std::string> text_file;  // "-" or nothing: standard input
    uint32_t stride = 0;                   // 0: windows do not overlap
    uint32_t max_windows = 0;              // 0: all
    std::string save_logits;               // empty: nothing is saved
    std::string saved_logits;              // empty: nothing to compare with
    PerplexityFormat format = PerplexityFormat::table;
    Verbosity verbosity = Verbosity::normal;
};

// --help and --version.
struct ShowText {
    std::string text;
};

using Command = std::variant<RunOptions, InspectOptions, BenchOptions, CacheCommandOptions,
                             PerplexityOptions, ShowText>;

// invalid: the text names the option (or the variable) and what it allows. argv[0] is the program.
Result<Command> parse_command_line(int argc, const char* const* argv);

// What to say to somebody who typed the program's name alone.
extern const char* const kShortUsage;

}  // namespace picolm::app
