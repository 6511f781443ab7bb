// Files in memory for one thread: no folders, links or contention.
#pragma once

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace picolm::testing {

class MemoryFileSystem : public FileSystem {
  public:
    struct Node {
        std::vector<uint8_t> bytes;
        uint64_t inode = 0;
    };

    void put(const std::string& path, std::vector<uint8_t> bytes) {
        nodes_[path] = std::make_shared<Node>(Node{std::move(bytes), ++last_inode_});
    }
    // nullptr when nothing is there.
    const std::vector<uint8_t>* get(const std::string& path) const {
        const auto found = nodes_.find(path);
        return found == nodes_.end() ? nullptr : &found->second->bytes;
    }

    int open(const std::string& path, Mode mode, std::unique_ptr<File>& out) override {
        const bool there = nodes_.contains(path);
        if (mode == Mode::create && there) return -EEXIST;
        if (mode != Mode::create && !there) return -ENOENT;
        if (!there) put(path, {});
        out = std::make_unique<Handle>(nodes_[path]);
        return 0;
    }
    int info(const std::string& path, FileInfo& out) override {
        const auto found = nodes_.find(path);
        if (found == nodes_.end()) return -ENOENT;
        out = describe(*found->second);
        return 0;
    }
    int rename(const std::string& from, const std::string& to) override {
        const auto found = nodes_.find(from);
        if (found == nodes_.end()) return -ENOENT;
        nodes_[to] = found->second;
        nodes_.erase(from);
        return 0;
    }
    int remove(const std::string& path) override { return nodes_.erase(path) ? 0 : -ENOENT; }
    int sync_folder_of(const std::string&) override { return 0; }
    int make_folder(const std::string&) override { return -ENOSYS; }
    int remove_folder(const std::string&) override { return -ENOSYS; }
    int list_folder(const std::string&, std::vector<std::string>&) override { return -ENOSYS; }
    int free_space(const std::string&, uint64_t&) override { return -ENOSYS; }

  private:
    static FileInfo describe(const Node& node) {
        return {FileKind::regular, node.bytes.size(), 1, node.inode, 0};
    }

    class Handle : public File {
      public:
        explicit Handle(std::shared_ptr<Node> node) : node_(std::move(node)) {}
        int64_t read_at(void* out, size_t n, uint64_t offset) override {
            const std::vector<uint8_t>& bytes = node_->bytes;
            if (offset >= bytes.size()) return 0;
            n = std::min(n, bytes.size() - static_cast<size_t>(offset));
            std::memcpy(out, bytes.data() + offset, n);
            return static_cast<int64_t>(n);
        }
        int64_t write_at(const void* data, size_t n, uint64_t offset) override {
            std::vector<uint8_t>& bytes = node_->bytes;
            const size_t at = static_cast<size_t>(offset);
            if (at + n > bytes.size()) bytes.resize(at + n);
            std::memcpy(bytes.data() + at, data, n);
            return static_cast<int64_t>(n);
        }
        int truncate(uint64_t size) override {
            node_->bytes.resize(static_cast<size_t>(size));
            return 0;
        }
        int sync() override { return 0; }
        int try_lock() override { return 0; }
        int info(FileInfo& out) override {
            out = describe(*node_);
            return 0;
        }
        // A copy of exact size, so that a sanitizer sees what reaches past it.
        int map(size_t size, std::shared_ptr<const uint8_t>& out) override {
            if (size == 0 || size > node_->bytes.size()) return -EINVAL;
            std::shared_ptr<uint8_t> copy(new uint8_t[size], std::default_delete<uint8_t[]>());
            std::memcpy(copy.get(), node_->bytes.data(), size);
            out = std::move(copy);
            return 0;
        }

      private:
        std::shared_ptr<Node> node_;
    };

    std::map<std::string, std::shared_ptr<Node>> nodes_;
    uint64_t last_inode_ = 0;
};

}  // namespace picolm::testing
