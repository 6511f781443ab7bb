// KV memory: pages of 64 consecutive positions, all layers together, allocated when a sequence
// reaches them. A page may be shared by several sequences; whoever writes to a shared page first
// gets a copy of its own. Keys and values are rounded to their storage type before they are used.
//
// Inside a page: for each layer K of every KV head, then V of every KV head.
//             K                                  V
//   f16       f16 [size, n]                      f16 [n, size]
//   q8_0      f16 [blocks, n], int8 [size, n]    f16 [blocks, n], int8 [n, size]
//   q4_0      f16 [blocks, n], byte [pairs, n]   f16 [blocks, n], byte [n, pairs]
// with n = 64, blocks = ceil(size / 32), pairs = ceil(size / 2). K is transposed: positions are the
// lanes of q.k. The scales of both are too: a kernel reads those of a block in one go. A byte of
// q4_0 holds two elements of one position, so that positions are written and copied one by one. The
// payload of a saved record is the same with n = its number of positions, so that the record of a
// full page is a page. kernels/kv_type.h, docs/KVC.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
    KvTypes types;

    explicit KvGeometry(const ModelSpec& spec, KvTypes kv_types = {});
    size_t k_bytes() const { return kv_row_bytes(types.k, n_embd_head_k); }  // position and head
    size_t v_bytes() const { return kv_row_bytes(types.v, n_embd_head_v); }
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
    uint8_t* data() { return data_; }  // REQUIRES: !borrowed()
    const uint8_t* data() const { return data_; }

  private:
    KvPage(uint8_t* data, size_t bytes, std::shared_ptr<const void> hold)
        : data_(data), bytes_(bytes), hold_(std::move(hold)) {}
    uint8_t* data_;
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
    // Rounds K and V of one KV head to their types and stores them at n positions of one page from
    // `position` on: k [n, n_embd_head_k] and v [n, n_embd_head_v], k_stride and v_stride from one
    // row to the next. The positions are reserved and not committed; of the page of a quantised K
    // the first position has been written before, or is written now. Otherwise positions and heads
    // may be written by different threads at once. False when the type cannot hold a value: it is
    // not finite or too large.
    bool write(const Kernels& kernels, uint32_t layer, uint32_t head, uint32_t position, uint32_t n,
               const float* k, size_t k_stride, const float* v, size_t v_stride);

    // The payload of positions [first, first + n), piece by piece. REQUIRES: they are committed and
    // lie inside one page.
    void export_positions(uint32_t first, uint32_t n, const std::function<void(Bytes)>& sink) const;
    // Appends positions [from, from + used) out of a payload of [first, first + n). A full page is
    // used where it lies, kept there by `hold`; anything else is copied.
    // REQUIRES: from == n_positions(), one page, payload is n * position_bytes() long, that of a
    // full page 2-byte aligned; hold is not null.
    Status append_saved(uint32_t first, uint32_t n, uint32_t from, uint32_t used, Bytes payload,
                        const std::shared_ptr<const void>& hold);

  private:
    bool write_k(const Kernels& kernels, uint8_t* to, uint32_t slot, const float* k,
                 std::span<float> base) const;
    bool write_v(const Kernels& kernels, uint8_t* to, uint32_t slot, const float* v) const;
    void copy_positions(uint32_t first, uint32_t n, uint32_t from, uint32_t used, Bytes payload);
    size_t k_offset(uint32_t layer, uint32_t head) const;  // in bytes, from the start of a page
    size_t v_offset(uint32_t layer, uint32_t head) const;

    KvGeometry geometry_;
    uint32_t n_positions_ = 0;
    std::vector<std::shared_ptr<KvPage>> pages_;
};

}  // namespace picolm
