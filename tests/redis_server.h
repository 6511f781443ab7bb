// A real redis-server for a test: on a free port of the loopback, keeping nothing, ended with the
// scope; and something that only pretends to be one.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace picolm::testing {

inline sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// A socket at a free port.
inline int bound_socket(uint16_t& port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    bind(fd, reinterpret_cast<sockaddr*>(&address), size);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    return fd;
}

// Gives everybody who connects the same answer, again and again as far as it is taken.
class FakeServer {
  public:
    explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
        fd_ = bound_socket(port_);
        listen(fd_, 8);
        thread_ = std::thread([this] { serve(); });
    }
    ~FakeServer() {
        ends_ = true;
        shutdown(fd_, SHUT_RDWR);
        thread_.join();
        close(fd_);
    }
    FakeServer(const FakeServer&) = delete;
    FakeServer& operator=(const FakeServer&) = delete;
    uint16_t port() const { return port_; }

  private:
    void serve() {
        while (!ends_) {
            const int client = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
            if (client < 0) continue;
            const timeval second{1, 0};
            setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
            for (int i = 0; i < 1000 && !ends_ && !answer_.empty(); ++i)
                if (send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL) <= 0) break;
            char ignored[4096];  // until the client has gone
            const timeval moment{0, 200000};
            setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
            while (!ends_ && recv(client, ignored, sizeof ignored, 0) > 0) {
            }
            close(client);
        }
    }

    std::string answer_;
    uint16_t port_ = 0;
    int fd_ = -1;
    std::atomic<bool> ends_ = false;
    std::thread thread_;
};

class RedisServer {
  public:
    static bool installed() {
        for (const char* folder : {"/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"})
            if (access((std::string(folder) + "/redis-server").c_str(), X_OK) == 0) return true;
        return false;
    }

    explicit RedisServer(std::vector<std::string> options = {}) : options_(std::move(options)) {
        close(bound_socket(port_));
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
    bool listens() const {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(port_);
        const bool connected =
            connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
        close(fd);
        return connected;
    }

    TempDir folder_;
    uint16_t port_ = 0;
    std::vector<std::string> options_;
    pid_t pid_ = -1;
};

}  // namespace picolm::testing
