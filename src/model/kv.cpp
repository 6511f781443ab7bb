#include "model/kv.h"

#include <sys/mman.h>

#include <cassert>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace picolm {

KvGeometry::KvGeometry(const ModelSpec& spec)
    : n_layer(spec.n_layer),
      n_head_kv(spec.n_head_kv),
      n_embd_head_k(spec.n_embd_head_k),
      n_embd_head_v(spec.n_embd_head_v) {}

size_t KvGeometry::position_bytes() const {
    return size_t{n_layer} * n_head_kv * (n_embd_head_k + n_embd_head_v) * sizeof(uint16_t);
}

// Straight from the system, so that what is not touched costs nothing and what is freed goes back.
Result<std::shared_ptr<KvPage>> KvPage::allocate(size_t bytes, bool whole) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (whole ? MAP_POPULATE : 0);
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data == MAP_FAILED)
        return Error{ErrorKind::no_memory,
                     format("no memory for another KV page of %s", format_bytes(bytes).c_str())};
    return std::shared_ptr<KvPage>(new KvPage(static_cast<uint16_t*>(data), bytes, nullptr));
}

std::shared_ptr<KvPage> KvPage::borrow(Bytes bytes, std::shared_ptr<const void> hold) {
    auto* data = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(bytes.data()));
    return std::shared_ptr<KvPage>(new KvPage(data, bytes.size(), std::move(hold)));
}

KvPage::~KvPage() {
    if (!borrowed()) munmap(data_, bytes_);
}

size_t KvSequence::k_offset(uint32_t layer, uint32_t head) const {
    const KvGeometry& g = geometry_;
    const size_t per_layer = size_t{g.n_head_kv} * (g.n_embd_head_k + g.n_embd_head_v);
    return (layer * per_layer + size_t{head} * g.n_embd_head_k) * kPage;
}

size_t KvSequence::v_offset(uint32_t layer, uint32_t head) const {
    const KvGeometry& g = geometry_;
    return k_offset(layer, g.n_head_kv) + size_t{head} * g.n_embd_head_v * kPage;
}

Status KvSequence::reserve(uint32_t end) {
    const size_t n_pages = (size_t{end} + kPage - 1) / kPage;
    const size_t open = n_positions_ / kPage;  // the page that holds the next position
    const bool foreign =
        open < pages_.size() && (pages_[open].use_count() > 1 || pages_[open]->borrowed());
    if (foreign && open < n_pages) {
        TRY(std::shared_ptr<KvPage> own, KvPage::allocate(geometry_.page_bytes(), true));
        std::memcpy(own->data(), std::as_const(*pages_[open]).data(), geometry_.page_bytes());
        pages_[open] = std::move(own);
    }
    while (pages_.size() < n_pages) {
        const bool whole = (pages_.size() + 1) * kPage <= end;
        TRY(std::shared_ptr<KvPage> page, KvPage::allocate(geometry_.page_bytes(), whole));
        pages_.push_back(std::move(page));
    }
    return {};
}

void KvSequence::truncate(uint32_t end) {
    if (end < n_positions_) n_positions_ = end;
    const size_t n_pages = (size_t{n_positions_} + kPage - 1) / kPage;
    if (n_pages < pages_.size()) pages_.resize(n_pages);
}

AttnPage KvSequence::attn_page(uint32_t page, uint32_t layer, uint32_t head) const {
    const uint16_t* data = pages_[page]->data();
    return {data + k_offset(layer, head), data + v_offset(layer, head)};
}

uint16_t* KvSequence::k(uint32_t page, uint32_t layer, uint32_t head) {
    return pages_[page]->data() + k_offset(layer, head);
}

uint16_t* KvSequence::v(uint32_t page, uint32_t layer, uint32_t head) {
    return pages_[page]->data() + v_offset(layer, head);
}

void KvSequence::export_positions(uint32_t first, uint32_t n,
                                  const std::function<void(Bytes)>& sink) const {
    assert(n > 0 && first + n <= n_positions_ && first / kPage == (first + n - 1) / kPage);
    const KvGeometry& g = geometry_;
    const uint32_t page = first / kPage, slot = first % kPage;
    const auto bytes = [](const uint16_t* halves, size_t count) {
        return Bytes(reinterpret_cast<const uint8_t*>(halves), count * sizeof(uint16_t));
    };
    if (n == kPage) return sink(bytes(pages_[page]->data(), g.page_bytes() / sizeof(uint16_t)));
    std::vector<uint16_t> columns(size_t{n} * g.n_embd_head_k);
    for (uint32_t layer = 0; layer < g.n_layer; ++layer) {
        for (uint32_t head = 0; head < g.n_head_kv; ++head) {
            const uint16_t* k = attn_page(page, layer, head).k;
            for (uint32_t d = 0; d < g.n_embd_head_k; ++d)
                std::memcpy(&columns[size_t{d} * n], k + d * kPage + slot, n * sizeof(uint16_t));
            sink(bytes(columns.data(), columns.size()));
        }
        for (uint32_t head = 0; head < g.n_head_kv; ++head)
            sink(bytes(attn_page(page, layer, head).v + size_t{slot} * g.n_embd_head_v,
                       size_t{n} * g.n_embd_head_v));
    }
}

Status KvSequence::append_saved(uint32_t first, uint32_t n, uint32_t from, uint32_t used,
                                Bytes payload, const std::shared_ptr<const void>& hold) {
    assert(from == n_positions_ && payload.size() == n * geometry_.position_bytes());
    if (used == kPage) {
        pages_.push_back(KvPage::borrow(payload, hold));
    } else {
        TRY(reserve(from + used));
        copy_positions(first, n, from, used, payload);
    }
    commit(from + used);
    return {};
}

void KvSequence::copy_positions(uint32_t first, uint32_t n, uint32_t from, uint32_t used,
                                Bytes payload) {
    const KvGeometry& g = geometry_;
    const uint32_t page = from / kPage, slot = from % kPage, skip = from - first;
    const auto* in = reinterpret_cast<const uint16_t*>(payload.data());
    for (uint32_t layer = 0; layer < g.n_layer; ++layer) {
        for (uint32_t head = 0; head < g.n_head_kv; ++head, in += size_t{n} * g.n_embd_head_k)
            for (uint32_t d = 0; d < g.n_embd_head_k; ++d)
                std::memcpy(k(page, layer, head) + d * kPage + slot, in + size_t{d} * n + skip,
                            used * sizeof(uint16_t));
        for (uint32_t head = 0; head < g.n_head_kv; ++head, in += size_t{n} * g.n_embd_head_v)
            std::memcpy(v(page, layer, head) + size_t{slot} * g.n_embd_head_v,
                        in + size_t{skip} * g.n_embd_head_v,
                        size_t{used} * g.n_embd_head_v * sizeof(uint16_t));
    }
}

}  // namespace picolm
