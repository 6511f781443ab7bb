// Runs the program as a user does: arguments, variables and streams in; exit code and what it wrote
// out. A program that hangs is killed, and the test fails.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace picolm::testing {

struct Outcome {
    int code = -1;   // exit code; -1: ended by a signal
    int signal = 0;  // that signal
    std::string out;
    std::string err;

    bool says(const std::string& text) const { return err.find(text) != std::string::npos; }
};

inline std::ostream& operator<<(std::ostream& to, const Outcome& o) {
    return to << "exit code " << o.code << ", signal " << o.signal << "\n--- out\n"
              << o.out << "\n--- err\n"
              << o.err;
}

struct Setup {
    std::string input{};             // on standard input
    std::vector<std::string> env{};  // "NAME=value"; no other PICOLM_* reaches the program
    std::string folder{};            // to start in
    std::string out{};               // standard output goes there instead of being captured
    bool close_out = false;          // no standard output at all
    int out_fd = -1;                 // or to this
    int err_fd = -1;
};

// A program that is running.
class Child {
  public:
    Child(const std::vector<std::string>& args, const Setup& setup) : capture_out_(false) {
        const std::string program = std::string(PICOLM_BINARY_DIR) + "/picolm";
        write_text(files_.file("in"), setup.input);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, files_.file("in").c_str(), O_RDONLY, 0);
        if (setup.close_out) {
            posix_spawn_file_actions_addclose(&actions, 1);
        } else if (setup.out_fd >= 0) {
            posix_spawn_file_actions_adddup2(&actions, setup.out_fd, 1);
        } else {
            capture_out_ = setup.out.empty();
            const std::string path = capture_out_ ? files_.file("out") : setup.out;
            posix_spawn_file_actions_addopen(&actions, 1, path.c_str(), O_WRONLY | O_CREAT, 0600);
        }
        if (setup.err_fd >= 0) {
            posix_spawn_file_actions_adddup2(&actions, setup.err_fd, 2);
        } else {
            posix_spawn_file_actions_addopen(&actions, 2, files_.file("err").c_str(),
                                             O_WRONLY | O_CREAT, 0600);
        }
        if (!setup.folder.empty())
            posix_spawn_file_actions_addchdir_np(&actions, setup.folder.c_str());
        // A test runner in the background may ignore SIGINT; the program must not inherit that.
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        sigset_t defaults;
        sigemptyset(&defaults);
        for (const int s : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&defaults, s);
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

        std::vector<std::string> words = {program};
        words.insert(words.end(), args.begin(), args.end());
        std::vector<std::string> variables = setup.env;
        for (char** v = environ; *v != nullptr; ++v) {
            if (std::string_view(*v).substr(0, 7) != "PICOLM_") variables.push_back(*v);
        }
        const int error = posix_spawn(&pid_, program.c_str(), &actions, &attributes,
                                      pointers(words).data(), pointers(variables).data());
        EXPECT_EQ(error, 0) << program;
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    ~Child() {
        if (!waited_) wait(0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    void send(int signal) const { kill(pid_, signal); }

    Outcome wait(int seconds = 120) {
        using Clock = std::chrono::steady_clock;
        const auto deadline = Clock::now() + std::chrono::seconds(seconds);
        int status = 0;
        bool killed = false;
        while (waitpid(pid_, &status, killed ? 0 : WNOHANG) == 0) {
            if (Clock::now() >= deadline) {
                killed = true;
                kill(pid_, SIGKILL);
                continue;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        waited_ = true;
        EXPECT_FALSE(killed && seconds > 0) << "the program hangs";
        Outcome outcome;
        if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
        if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
        if (capture_out_) outcome.out = read_text(files_.file("out"));
        outcome.err = read_text(files_.file("err"));
        return outcome;
    }

  private:
    static std::vector<char*> pointers(std::vector<std::string>& words) {
        std::vector<char*> result;
        for (std::string& word : words) result.push_back(word.data());
        result.push_back(nullptr);
        return result;
    }

    TempDir files_;
    pid_t pid_ = -1;
    bool capture_out_;
    bool waited_ = false;
};

inline Outcome run(const std::vector<std::string>& args, const Setup& setup = {}) {
    return Child(args, setup).wait();
}

// A pipe whose ends are closed when the scope ends.
class Pipe {
  public:
    Pipe() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
    ~Pipe() {
        close_end(0);
        close_end(1);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    int read_end() const { return ends_[0]; }
    int write_end() const { return ends_[1]; }
    void close_end(int i) {
        if (ends_[i] >= 0) close(ends_[i]);
        ends_[i] = -1;
    }
    // At least one byte, unless the other end is closed or 60 seconds pass: "".
    std::string read_some() const {
        pollfd wait{ends_[0], POLLIN, 0};
        if (poll(&wait, 1, 60000) <= 0) return "";
        char bytes[4096];
        const ssize_t n = read(ends_[0], bytes, sizeof bytes);
        return {bytes, n > 0 ? static_cast<size_t>(n) : 0};
    }
    // Waits, at most 60 seconds, until nothing more goes in for half a second.
    bool is_full() const {
        int held = 0;
        for (int same = 0, i = 0; i < 600 && same < 5; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            int now = 0;
            ioctl(ends_[0], FIONREAD, &now);
            same = now > 2048 && now == held ? same + 1 : 0;
            held = now;
        }
        return held > 2048;
    }
    std::string read_all() const {
        std::string all;
        for (std::string part = read_some(); !part.empty(); part = read_some()) all += part;
        return all;
    }

  private:
    int ends_[2] = {-1, -1};
};

}  // namespace picolm::testing
