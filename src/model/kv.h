// KV memory: pages of 64 consecutive positions, all layers together, allocated when a sequence
// reaches them. A page may be shared by several sequences; whoever writes to a shared page first
// gets a copy of its own. Keys and values are f16, rounded before they are used.
//
// Inside a page: for each layer K, then V.
//   K  f16 [n_head_kv, n_embd_head_k, n]   transposed: positions are the lanes of q.k
//   V  f16 [n_head_kv, n, n_embd_head_v]
// with n = 64. The payload of a saved record is the same with n = its number of positions, so that
// the record of a full page is a page. docs/KVC.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/kernels.h"
#include "model/spec.h"

namespace picolm {

struct KvGeometry {
    uint32_t n_layer = 0;
    uint32_t n_head_kv = 0;
    uint32_t n_embd_head_k = 0;
    uint32_t n_embd_head_v = 0;

    explicit KvGeometry(const ModelSpec& spec);
    size_t position_bytes() const;  // of all layers
    size_t page_bytes() const { return position_bytes() * kPage; }
};

class KvPage {
  public:
    // whole: all of it is about to be written, so it is made resident at once, which is several
    // times cheaper than page by page. no_memory when the system refuses.
    static Result<std::shared_ptr<KvPage>> allocate(size_t bytes, bool whole);
    // A page that is somebody else's memory, never written; `hold` keeps it there.
    static std::shared_ptr<KvPage> borrow(Bytes bytes, std::shared_ptr<const void> hold);
    ~KvPage();
    KvPage(const KvPage&) = delete;
    KvPage& operator=(const KvPage&) = delete;

    bool borrowed() const { return hold_ != nullptr; }
    uint16_t* data() { return data_; }  // REQUIRES: !borrowed()
    const uint16_t* data() const { return data_; }

  private:
    KvPage(uint16_t* data, size_t bytes, std::shared_ptr<const void> hold)
        : data_(data), bytes_(bytes), hold_(std::move(hold)) {}
    uint16_t* data_;
    size_t bytes_;
    std::shared_ptr<const void> hold_;
};

class KvSequence {
  public:
    explicit KvSequence(const KvGeometry& geometry) : geometry_(geometry) {}

    const KvGeometry& geometry() const { return geometry_; }
    uint32_t n_positions() const { return n_positions_; }
    size_t bytes() const { return pages_.size() * geometry_.page_bytes(); }  // borrowed ones too

    // Makes room for positions [n_positions(), end), in pages of our own that nobody else holds.
    Status reserve(uint32_t end);
    // Positions up to `end` are written. REQUIRES: reserved.
    void commit(uint32_t end) { n_positions_ = end; }
    // Forgets positions from `end` on, and the pages that only they used.
    void truncate(uint32_t end);
    // A second sequence that shares every page.
    KvSequence share() const { return *this; }

    // One KV head of one layer of a page.
    AttnPage attn_page(uint32_t page, uint32_t layer, uint32_t head) const;
    uint16_t* k(uint32_t page, uint32_t layer, uint32_t head);  // [n_embd_head_k, kPage]
    uint16_t* v(uint32_t page, uint32_t layer, uint32_t head);  // [kPage, n_embd_head_v]

    // The payload of positions [first, first + n), piece by piece. REQUIRES: they are committed and
    // lie inside one page.
    void export_positions(uint32_t first, uint32_t n, const std::function<void(Bytes)>& sink) const;
    // Appends positions [from, from + used) out of a payload of [first, first + n). A full page is
    // used where it lies, kept there by `hold`; anything else is copied.
    // REQUIRES: from == n_positions(), one page, payload is n * position_bytes() long and 2-byte
    // aligned, hold is not null.
    Status append_saved(uint32_t first, uint32_t n, uint32_t from, uint32_t used, Bytes payload,
                        const std::shared_ptr<const void>& hold);

  private:
    void copy_positions(uint32_t first, uint32_t n, uint32_t from, uint32_t used, Bytes payload);
    size_t k_offset(uint32_t layer, uint32_t head) const;  // in halves
    size_t v_offset(uint32_t layer, uint32_t head) const;

    KvGeometry geometry_;
    uint32_t n_positions_ = 0;
    std::vector<std::shared_ptr<KvPage>> pages_;
};

}  // namespace picolm
