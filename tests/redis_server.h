// A real redis-server for a test: on a free port of the loopback, keeping nothing, ended with the
// scope.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace picolm::testing {

class RedisServer {
  public:
    static bool installed() {
        for (const char* folder : {"/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"})
            if (access((std::string(folder) + "/redis-server").c_str(), X_OK) == 0) return true;
        return false;
    }

    explicit RedisServer(std::vector<std::string> options = {})
        : port_(free_port()), options_(std::move(options)) {
        start();
    }
    ~RedisServer() { stop(); }
    RedisServer(const RedisServer&) = delete;
    RedisServer& operator=(const RedisServer&) = delete;

    // Also after stop(): empty, at the same port.
    void start() {
        std::vector<std::string> words = {
            "redis-server", "--port", std::to_string(port_), "--bind", "127.0.0.1",
            "--save",       "",       "--appendonly",        "no",     "--dir",
            folder_.path()};
        words.insert(words.end(), options_.begin(), options_.end());
        std::vector<char*> args;
        for (std::string& word : words) args.push_back(word.data());
        args.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 1, folder_.file("log").c_str(),
                                         O_WRONLY | O_CREAT, 0600);
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
        if (posix_spawnp(&pid_, "redis-server", &actions, nullptr, args.data(), environ) != 0)
            pid_ = -1;
        posix_spawn_file_actions_destroy(&actions);
        for (int i = 0; i < 1000 && !listens(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    void stop() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    void pause() { kill(pid_, SIGSTOP); }
    void go_on() { kill(pid_, SIGCONT); }

    uint16_t port() const { return port_; }
    std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

  private:
    static sockaddr_in loopback(uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return address;
    }
    static uint16_t free_port() {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        bind(fd, reinterpret_cast<sockaddr*>(&address), size);
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
        close(fd);
        return ntohs(address.sin_port);
    }
    bool listens() const {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(port_);
        const bool connected =
            connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
        close(fd);
        return connected;
    }

    TempDir folder_;
    uint16_t port_;
    std::vector<std::string> options_;
    pid_t pid_ = -1;
};

}  // namespace picolm::testing
