#include "app/console.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"

namespace picolm::app {
namespace {

constexpr double kProgressSeconds = 0.1;

// How long a reader that stalls may hold up a program that was asked to end.
constexpr int kLastMilliseconds = 300;

// 0, or the errno. EINTR: we were asked to end while the reader did not read.
int write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        if (cancel_signal() != 0) {
            pollfd wait{fd, POLLOUT, 0};
            if (poll(&wait, 1, kLastMilliseconds) == 0) return EINTR;
        }
        const ssize_t n = write(fd, text.data(), text.size());
        if (n >= 0) {
            text.remove_prefix(static_cast<size_t>(n));
        } else if (errno == EAGAIN) {
            pollfd wait{fd, POLLOUT, 0};
            poll(&wait, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

}  // namespace

Console::Console() : stderr_is_terminal_(isatty(STDERR_FILENO) == 1) {}

bool Console::answer(std::string_view text) {
    if (output_ != Output::open) return false;
    const int error = write_all(STDOUT_FILENO, text);
    if (error == 0 || error == EINTR) return error == 0;
    output_ = error == EPIPE ? Output::closed : Output::failed;
    output_errno_ = error;
    return false;
}

void Console::write_lines(std::string_view prefix, std::string_view text) {
    std::string out;
    if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    for (;;) {
        const size_t end = text.find('\n');
        out += prefix;
        out += printable(text.substr(0, end), SIZE_MAX);
        out += '\n';
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 1);
        prefix = "";
    }
    const std::lock_guard lock(mutex_);
    erase_progress();
    write_all(STDERR_FILENO, out);
}

void Console::log(LogLevel level, std::string_view text) {
    if (level == LogLevel::detail && verbosity_ != Verbosity::verbose) return;
    if (level == LogLevel::info && verbosity_ == Verbosity::quiet) return;
    write_lines(level == LogLevel::warning ? "warning: " : "", text);
}

void Console::error(std::string_view text) {
    write_lines("picolm: ", text);
}

void Console::progress(std::string_view what, uint32_t done, uint32_t total) {
    if (!stderr_is_terminal_ || verbosity_ == Verbosity::quiet || total == 0) return;
    const double now = monotonic_seconds();
    if (now - progress_time_ < kProgressSeconds) return;
    progress_time_ = now;
    status(format("%.*s: %u of %u tokens (%u %%)", static_cast<int>(what.size()), what.data(), done,
                  total, static_cast<uint32_t>(done * uint64_t{100} / total)));
}

void Console::status(std::string_view text) {
    if (!stderr_is_terminal_ || verbosity_ == Verbosity::quiet) return;
    const std::lock_guard lock(mutex_);
    progress_shown_ = true;
    write_all(STDERR_FILENO, format("\r%.*s\033[K", static_cast<int>(text.size()), text.data()));
}

void Console::end_progress() {
    const std::lock_guard lock(mutex_);
    erase_progress();
}

void Console::erase_progress() {
    if (progress_shown_) write_all(STDERR_FILENO, "\r\033[K");
    progress_shown_ = false;
}

}  // namespace picolm::app
