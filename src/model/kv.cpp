#include "model/kv.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "kernels/half.h"
#include "model/hadamard.h"

namespace picolm {

namespace {

// A piece of a page or of a payload of n positions: [rows, n] units of some bytes each.
struct Piece {
    uint32_t rows;
    uint32_t unit;
};

// The pieces of one KV head, in order.
struct Pieces {
    Piece at[2];
    uint32_t n;
};
Pieces k_pieces(const KvGeometry& g) {
    const uint32_t size = g.n_embd_head_k;
    if (g.types.k == KvType::f16) return {{{size, 2}}, 1};
    return {{{kv_blocks(g.types.k, size), 2}, {kv_data_bytes(g.types.k, size), 1}}, 2};
}
Pieces v_pieces(const KvGeometry& g) {
    const uint32_t row = kv_data_bytes(g.types.v, g.n_embd_head_v);
    if (g.types.v == KvType::f16) return {{{1, row}}, 1};
    return {{{kv_blocks(g.types.v, g.n_embd_head_v), 2}, {1, row}}, 2};
}

// visit(piece) for all of a page in its order.
template <typename Visit>
void for_each_piece(const KvGeometry& g, Visit visit) {
    const Pieces kinds[2] = {k_pieces(g), v_pieces(g)};
    for (uint32_t layer = 0; layer < g.n_layer; ++layer)
        for (const Pieces& kind : kinds)
            for (uint32_t head = 0; head < g.n_head_kv; ++head)
                for (uint32_t i = 0; i < kind.n; ++i) visit(kind.at[i]);
}

// values[i] of one position goes to column `slot` of row i.
template <typename T>
void scatter(const T* values, uint32_t n, T* rows, uint32_t slot) {
    for (uint32_t i = 0; i < n; ++i) rows[size_t{i} * kPage + slot] = values[i];
}

// Half of the key in slot 0 of a page of quantised keys.
void read_base(const KvGeometry& g, const uint8_t* page_k, float* base) {
    const KvType type = g.types.k;
    const KvParts parts = kv_parts(page_k, type, g.n_embd_head_k);
    const uint32_t per_byte = type == KvType::q4_0 ? 2 : 1;
    for (uint32_t i = 0; i < g.n_embd_head_k; ++i) {
        const uint8_t* byte = parts.data + size_t{i / per_byte} * kPage;
        const int q = kv_integer(type, byte, i % per_byte);
        base[i] = 0.5f * (f16_to_f32(parts.scales[i / kKvBlock * kPage]) * static_cast<float>(q));
    }
}

bool all_finite(const uint16_t* halves, uint32_t n) {
    return std::none_of(halves, halves + n, [](uint16_t h) { return (h & 0x7c00) == 0x7c00; });
}

}  // namespace

KvGeometry::KvGeometry(const ModelSpec& spec, KvTypes kv_types)
    : n_layer(spec.n_layer),
      n_head_kv(spec.n_head_kv),
      n_embd_head_k(spec.n_embd_head_k),
      n_embd_head_v(spec.n_embd_head_v),
      types(kv_types) {}

size_t KvGeometry::position_bytes() const {
    return size_t{n_layer} * n_head_kv * (k_bytes() + v_bytes());
}

// Straight from the system, so that what is not touched costs nothing and what is freed goes back.
Result<std::shared_ptr<KvPage>> KvPage::allocate(size_t bytes, bool whole) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (whole ? MAP_POPULATE : 0);
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data == MAP_FAILED)
        return Error{ErrorKind::no_memory,
                     format("no memory for another KV page of %s", format_bytes(bytes).c_str())};
    return std::shared_ptr<KvPage>(new KvPage(static_cast<uint8_t*>(data), bytes, nullptr));
}

std::shared_ptr<KvPage> KvPage::borrow(Bytes bytes, std::shared_ptr<const void> hold) {
    auto* data = const_cast<uint8_t*>(bytes.data());
    return std::shared_ptr<KvPage>(new KvPage(data, bytes.size(), std::move(hold)));
}

KvPage::~KvPage() {
    if (!borrowed()) munmap(data_, bytes_);
}

size_t KvSequence::k_offset(uint32_t layer, uint32_t head) const {
    const KvGeometry& g = geometry_;
    const size_t per_layer = g.n_head_kv * (g.k_bytes() + g.v_bytes());
    return (layer * per_layer + head * g.k_bytes()) * kPage;
}

size_t KvSequence::v_offset(uint32_t layer, uint32_t head) const {
    const KvGeometry& g = geometry_;
    return k_offset(layer, g.n_head_kv) + head * g.v_bytes() * kPage;
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
    const uint8_t* data = std::as_const(*pages_[page]).data();
    return {data + k_offset(layer, head), data + v_offset(layer, head), geometry_.types};
}

bool KvSequence::write(const Kernels& kernels, uint32_t layer, uint32_t head, uint32_t position,
                       uint32_t n, const float* k, size_t k_stride, const float* v,
                       size_t v_stride) {
    const uint32_t slot = position % kPage;
    assert(slot + n <= kPage);
    uint8_t* page = pages_[position / kPage]->data();
    uint8_t *to_k = page + k_offset(layer, head), *to_v = page + v_offset(layer, head);
    float base[kMaxHeadSize];
    if (geometry_.types.k != KvType::f16 && slot > 0) read_base(geometry_, to_k, base);
    for (uint32_t i = 0; i < n; ++i)
        if (!write_k(kernels, to_k, slot + i, k + i * k_stride, base) ||
            !write_v(kernels, to_v, slot + i, v + i * v_stride))
            return false;
    return true;
}

// Of a quantised type: rotated, without half of the key in slot 0. base: that half; written when it
// is known, which is after slot 0.
bool KvSequence::write_k(const Kernels& kernels, uint8_t* to, uint32_t slot, const float* k,
                         std::span<float> base) const {
    const KvType type = geometry_.types.k;
    const uint32_t n = geometry_.n_embd_head_k;
    uint16_t halves[kMaxHeadSize];
    if (type == KvType::f16) {
        kernels.to_f16(k, halves, n);
        if (!all_finite(halves, n)) return false;
        scatter(halves, n, reinterpret_cast<uint16_t*>(to), slot);
        return true;
    }
    float x[kMaxHeadSize];
    uint8_t bytes[kMaxHeadSize];
    std::memcpy(x, k, n * sizeof(float));
    hadamard(x, n);
    for (uint32_t i = 0; i < n && slot > 0; ++i) x[i] = x[i] - base[i];
    if (!kernels.quantize_kv(type, x, n, halves, bytes)) return false;
    const uint32_t n_blocks = kv_blocks(type, n);
    scatter(halves, n_blocks, reinterpret_cast<uint16_t*>(to), slot);
    scatter(bytes, kv_data_bytes(type, n), to + size_t{2} * n_blocks * kPage, slot);
    if (slot == 0) read_base(geometry_, to, base.data());
    return true;
}

bool KvSequence::write_v(const Kernels& kernels, uint8_t* to, uint32_t slot, const float* v) const {
    const KvType type = geometry_.types.v;
    const uint32_t n = geometry_.n_embd_head_v;
    if (type == KvType::f16) {
        uint16_t* row = reinterpret_cast<uint16_t*>(to) + size_t{slot} * n;
        kernels.to_f16(v, row, n);
        return all_finite(row, n);
    }
    uint16_t scales[kMaxHeadSize];
    const uint32_t n_blocks = kv_blocks(type, n), row = kv_data_bytes(type, n);
    uint8_t* rows = to + size_t{2} * n_blocks * kPage;
    if (!kernels.quantize_kv(type, v, n, scales, rows + size_t{slot} * row)) return false;
    scatter(scales, n_blocks, reinterpret_cast<uint16_t*>(to), slot);
    return true;
}

void KvSequence::export_positions(uint32_t first, uint32_t n,
                                  const std::function<void(Bytes)>& sink) const {
    assert(n > 0 && first + n <= n_positions_ && first / kPage == (first + n - 1) / kPage);
    const uint32_t slot = first % kPage;
    const uint8_t* from = std::as_const(*pages_[first / kPage]).data();
    if (n == kPage) return sink(Bytes(from, geometry_.page_bytes()));
    std::vector<uint8_t> columns;
    for_each_piece(geometry_, [&](const Piece& piece) {
        const size_t bytes = size_t{n} * piece.unit, row_bytes = size_t{kPage} * piece.unit;
        columns.resize(piece.rows * bytes);
        for (uint32_t row = 0; row < piece.rows; ++row, from += row_bytes)
            std::memcpy(&columns[row * bytes], from + size_t{slot} * piece.unit, bytes);
        sink(Bytes(columns));
    });
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
    const uint32_t slot = from % kPage, skip = from - first;
    uint8_t* to = pages_[from / kPage]->data();
    const uint8_t* in = payload.data();
    for_each_piece(geometry_, [&](const Piece& piece) {
        const size_t unit = piece.unit;
        for (uint32_t row = 0; row < piece.rows; ++row, to += kPage * unit, in += n * unit)
            std::memcpy(to + slot * unit, in + skip * unit, used * unit);
    });
}

}  // namespace picolm
