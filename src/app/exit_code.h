// What the program ends with. The table is part of `picolm --help`: a code never changes meaning.
#pragma once

#include "base/result.h"

namespace picolm::app {

enum class ExitCode : int {
    ok = 0,
    other = 1,
    usage = 2,
    io = 3,
    corrupt = 4,
    unsupported = 5,
    no_memory = 6,
    busy = 7,
    interrupted = 130,  // 128 + SIGINT
    pipe_closed = 141,  // 128 + SIGPIPE
    terminated = 143,   // 128 + SIGTERM
};

constexpr ExitCode exit_code(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::io:
            return ExitCode::io;
        case ErrorKind::corrupt:
            return ExitCode::corrupt;
        case ErrorKind::unsupported:
            return ExitCode::unsupported;
        case ErrorKind::invalid:
            return ExitCode::usage;
        case ErrorKind::no_memory:
            return ExitCode::no_memory;
        case ErrorKind::busy:
            return ExitCode::busy;
        case ErrorKind::cancelled:
            return ExitCode::interrupted;
    }
    return ExitCode::other;
}

inline constexpr const char* kExitCodeHelp =
    "Exit codes:\n"
    "  0    done (a cache that cannot be used or saved is a warning, not a failure)\n"
    "  2    wrong usage: an option, a value, a prompt that is empty or too long\n"
    "  3    the system refused: open, read or write\n"
    "  4    the model file (or another one to be read) is damaged or contradicts itself\n"
    "  5    the model file is something this program cannot run\n"
    "  6    not enough memory; the numbers are printed\n"
    "  7    something is held by another process\n"
    "  130  interrupted (Ctrl-C); 143 terminated; 141 the reader of the answer went away\n"
    "  1    anything else\n";

}  // namespace picolm::app
