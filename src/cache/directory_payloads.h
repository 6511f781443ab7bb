// The payloads of a directory's records: read whole, verified and mapped, several at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cache/directory_index.h"
#include "cache/store.h"

namespace picolm::cache {

class DirectoryPayloads {
  public:
    // All must outlive this. What is read and what is wrong is added to `match`.
    DirectoryPayloads(const Directory& directory, const DirectoryIndex& index, uint32_t n_threads,
                      Match& match)
        : directory_(directory), index_(index), n_threads_(n_threads), match_(match) {}

    // Whether all of these can be used; what was looked at before is not looked at again.
    bool verify(std::span<const uint32_t> ids);
    bool failed(uint32_t id) const;
    // REQUIRES: verified.
    Bytes payload(uint32_t id) const { return read_.at(id).payload; }
    // Keeps all payloads alive.
    std::shared_ptr<const void> hold() const;

  private:
    struct Read {
        int error = 0;
        uint64_t bytes_read = 0;
        Bytes payload;
        std::shared_ptr<const uint8_t> mapping;
    };
    Read read(uint32_t id) const;
    void report(uint32_t id, const Read& read);

    const Directory& directory_;
    const DirectoryIndex& index_;
    uint32_t n_threads_;
    Match& match_;
    std::map<uint32_t, Read> read_;
};

}  // namespace picolm::cache
