// The commands of the program. Each prints through the console and gives the exit code.
#pragma once

#include "app/console.h"
#include "app/exit_code.h"
#include "app/options.h"

namespace picolm::app {

// picolm MODEL.gguf. `start`: monotonic_seconds() at the start of the program.
ExitCode command_run(const RunOptions& options, Console& console, double start);

// picolm inspect MODEL.gguf. A model that cannot be run is shown as far as its file can be read;
// the exit code is then that of the reason.
ExitCode command_inspect(const InspectOptions& options, Console& console);

// picolm bench MODEL.gguf: measures, then prints one report on standard output; also what there is
// when it is interrupted.
ExitCode command_bench(const BenchOptions& options, Console& console);

// picolm cache VERB PLACE: lists, checks, shrinks and copies prompt caches.
ExitCode command_cache(const CacheCommandOptions& options, Console& console);

// picolm perplexity MODEL.gguf: one report on standard output, also of what was scored until it was
// interrupted.
ExitCode command_perplexity(const PerplexityOptions& options, Console& console);

// Prints an error; its exit code.
ExitCode fail(Console& console, const Error& error);

// ok while standard output takes what is written; else why not, and a line if that is a failure.
ExitCode output_status(Console& console);

}  // namespace picolm::app
