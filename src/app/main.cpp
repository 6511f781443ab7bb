// The program: command line -> command -> exit code.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string_view>

#include "app/commands.h"
#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"

namespace picolm::app {

ExitCode fail(Console& console, const Error& error) {
    console.error(error.text);
    return exit_code(error.kind);
}

ExitCode output_status(Console& console) {
    switch (console.output()) {
        case Console::Output::open:
            return ExitCode::ok;
        case Console::Output::closed:
            return ExitCode::pipe_closed;
        case Console::Output::failed:
            break;
    }
    console.error(
        format("cannot write to standard output: %s", std::strerror(console.output_errno())));
    return ExitCode::io;
}

namespace {

// A standard stream that the caller has closed must not become the number of a file that we open.
// Opened the wrong way round, it still fails as a closed one does.
void occupy_standard_streams() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(fd, F_GETFD) == -1) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

ExitCode run_program(int argc, char** argv) {
    const double start = monotonic_seconds();
    occupy_standard_streams();
    Console console;
    if (argc < 2) {
        console.log(LogLevel::info, kShortUsage);
        return ExitCode::usage;
    }
    const Result<Command> command = parse_command_line(argc, argv);
    if (!command) {
        const ExitCode code = fail(console, command.error());
        console.info("picolm --help lists the options");
        return code;
    }
    if (const auto* run = std::get_if<RunOptions>(&*command))
        return command_run(*run, console, start);
    if (const auto* inspect = std::get_if<InspectOptions>(&*command))
        return command_inspect(*inspect, console);
    if (const auto* bench = std::get_if<BenchOptions>(&*command))
        return command_bench(*bench, console);
    if (const auto* cache = std::get_if<CacheCommandOptions>(&*command))
        return command_cache(*cache, console);
    if (const auto* perplexity = std::get_if<PerplexityOptions>(&*command))
        return command_perplexity(*perplexity, console);
    console.answer(std::get<ShowText>(*command).text);
    return output_status(console);
}

}  // namespace
}  // namespace picolm::app

int main(int argc, char** argv) {
    using picolm::app::ExitCode;
    try {
        return static_cast<int>(picolm::app::run_program(argc, argv));
    } catch (const std::bad_alloc&) {
        // Small allocations of the standard library; the large ones are planned.
        constexpr std::string_view kLine = "picolm: out of memory\n";
        [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kLine.data(), kLine.size());
        return static_cast<int>(ExitCode::no_memory);
    }
}
