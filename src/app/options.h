// The command line and the PICOLM_* variables -> one value per command. Touches no file but to see
// whether one has the name of a command; prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cache/file_store.h"
#include "decode/sampler.h"

namespace picolm::app {

enum class Verbosity { quiet, normal, verbose };

struct RunOptions {
    std::string model;
    std::optional<std::string> prompt;
    std::optional<std::string> prompt_file;  // "-": standard input, as when neither is given
    uint32_t n_predict = 256;
    SamplerOptions sampler;
    bool random_seed = false;
    std::vector<std::string> stop;
    bool no_bos = false;
    uint32_t n_ctx = 0;      // 0: the model's
    uint32_t n_threads = 0;  // 0: the engine's choice
    uint32_t max_chunk = 128;
    std::string cache;  // empty: none
    uint64_t cache_limit = cache::kDefaultFileLimit;
    bool cache_strict = false;
    Verbosity verbosity = Verbosity::normal;
};

struct InspectOptions {
    std::string model;
    uint32_t n_ctx = 0;
};

// --help and --version.
struct ShowText {
    std::string text;
};

using Command = std::variant<RunOptions, InspectOptions, ShowText>;

// invalid: the text names the option (or the variable) and what it allows. argv[0] is the program.
Result<Command> parse_command_line(int argc, const char* const* argv);

// What to say to somebody who typed the program's name alone.
extern const char* const kShortUsage;

}  // namespace picolm::app
