#include "app/signals.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app/exit_code.h"
#include "base/format.h"

namespace picolm::app {
namespace {

// Handlers read these; everything is set before the handler is installed, or atomic.
std::atomic<bool> g_cancel{false};
std::atomic<int> g_signal{0};
std::atomic<uint32_t> g_interrupt_time{0};  // milliseconds
std::atomic<uintptr_t> g_model_begin{0};
std::atomic<uintptr_t> g_model_end{UINTPTR_MAX};
char g_model_line[512];
char g_other_line[512];

// A bool is only loaded and stored, which is a plain access also where gcc 12 has no exchange of
// bytes (RISC-V) and calls the type not lock-free.
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free);

// `timeout -s INT` and the like send one signal twice, to the process and to its group.
constexpr uint32_t kSameInterrupt = 50;

uint32_t now_milliseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint32_t>(now.tv_sec) * 1000u + static_cast<uint32_t>(now.tv_nsec / 1000000);
}

void on_cancel(int signal) {
    const uint32_t now = now_milliseconds();
    int none = 0;
    if (g_signal.compare_exchange_strong(none, signal)) {
        g_interrupt_time = now;
    } else if (signal == SIGINT && now - g_interrupt_time >= kSameInterrupt) {
        _exit(static_cast<int>(ExitCode::interrupted));
    }
    g_cancel = true;
}

void on_bus_error(int, siginfo_t* info, void*) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    const bool model = address >= g_model_begin && address < g_model_end;
    const char* line = model ? g_model_line : g_other_line;
    // Nothing could be done about a failure.
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line, strlen(line));
    _exit(static_cast<int>(ExitCode::io));
}

void set_line(char (&line)[512], const std::string& what) {
    const std::string text = "\npicolm: " + printable(what, 300) +
                             " cannot be read any more: it was cut short while in use, or its "
                             "storage failed\n";
    text.copy(line, sizeof line - 1);
}

}  // namespace

void handle_faults(const std::string& model, const std::string& cache) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // a file size limit is then a failed write
    set_line(g_model_line, model);
    set_line(g_other_line, cache.empty() ? "a mapped file" : cache);
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, nullptr);
}

void set_model_bytes(Bytes bytes) {
    g_model_begin = reinterpret_cast<uintptr_t>(bytes.data());
    g_model_end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
}

void handle_cancel() {
    for (const int signal : {SIGINT, SIGTERM}) {
        struct sigaction old = {};
        sigaction(signal, nullptr, &old);
        if (old.sa_handler == SIG_IGN) continue;
        // No SA_RESTART: a write that waits for a slow reader has to come back.
        struct sigaction action = {};
        action.sa_handler = on_cancel;
        sigaction(signal, &action, nullptr);
    }
}

const std::atomic<bool>& cancel_flag() {
    return g_cancel;
}

int cancel_signal() {
    return g_signal;
}

}  // namespace picolm::app
