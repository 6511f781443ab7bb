// The kernel table: every loop that exists once per instruction-set level, as function pointers.
// The entries of `generic` are the specification (docs/NUMERICS.md); an entry of any other level
// gives the same bits. A level that lacks an entry inherits its ancestor's. Nothing here allocates,
// and all pointers may be unaligned unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tensor_type.h"
#include "kernels/kv_type.h"

namespace picolm {

// Names the arithmetic of docs/NUMERICS.md. Saved attention state is only used under the same id.
inline constexpr const char* kNumericsId = "1";

inline constexpr int kActBlock = 256;  // activations per ActBlock
inline constexpr int kMaxSmallBatch = 8;
inline constexpr uint32_t kMaxTileTokens = 16;

// What the weights of a matrix multiply: the form into which activations are brought first.
enum class ActKind {
    f32,   // float weights: the activations as they are
    q256,  // K-quants and IQ4_XS: int8 with one scale per 256
    q32,   // 32-element blocks: int8 with one scale per 32
};
ActKind act_kind(TensorType type);

// 256 quantised activations of one token. q = round_to_even(x * (127 / amax)), d = amax / 127, for
// the 256 (q256; d[0], the others equal) or for each 32 (q32). A row whose length is no multiple
// of 256 ends with zeros.
struct alignas(32) ActBlock {
    int8_t q[kActBlock];
    int16_t sums16[16];  // of q, 16 at a time
    int16_t sums32[8];   // of q, 32 at a time
    float d[8];
    uint8_t pad[16];
};
static_assert(sizeof(ActBlock) == 352);

inline size_t act_blocks(size_t n) {
    return (n + kActBlock - 1) / kActBlock;
}

// Rows of one matrix against some tokens: y[t * y_stride + r] for the n_rows rows that begin at w.
struct MatArgs {
    const uint8_t* w;  // [n_rows] rows of row_bytes
    size_t row_bytes;
    uint32_t n_rows;
    uint32_t n_in;  // elements per row
    uint32_t n_tok;
    float* y;  // [n_tok, y_stride]
    size_t y_stride;
};

// REQUIRES: 1 <= n_tok <= kMaxSmallBatch. x: [n_tok, act_blocks(n_in)].
using MatSmall = void (*)(const MatArgs&, const ActBlock* x);
// tiles: [ceil(n_tok / tile_tokens), act_blocks(n_in)] tiles of the level, 64-byte aligned.
// panel: kPanelBytes of scratch, 64-byte aligned.
using MatLarge = void (*)(const MatArgs&, const uint8_t* tiles, uint8_t* panel);
// Any n_tok >= 1. x: [n_tok, x_stride].
using MatFloat = void (*)(const MatArgs&, const float* x, size_t x_stride);

inline constexpr size_t kPanelBytes = 64 * 1024;
inline constexpr int kTypeSlots = 31;  // indexed by TensorType

// Many tokens at once: a tile holds the same 256 activations of tile_tokens tokens in the order
// that the matrices of the level want, which nobody else looks into.
struct LargeBatch {
    uint32_t tile_tokens;  // at most kMaxTileTokens; 0: the level has no large-batch kernels
    uint32_t tile_bytes;   // a multiple of 64, at most tile_tokens * sizeof(ActBlock)
    uint32_t from_tokens;  // from this many tokens on faster than the small-batch kernels
    // n_tok <= tile_tokens rows of n_blocks, row t at x + t * stride, to n_blocks tiles; missing
    // tokens become zeros.
    void (*pack)(const ActBlock* x, size_t stride, uint32_t n_blocks, uint32_t n_tok,
                 uint8_t* tiles);
    MatLarge mat[kTypeSlots];  // every quantised type
};

// A KV head of one page, as kv_type.h lays it out: K transposed, so that slots are the lanes of q.k
// whatever the head size; V by position, so that dimensions are the lanes of p.v.
struct AttnPage {
    const void* k;  // head_dim_k elements of kPage positions, 2-byte aligned
    const void* v;  // head_dim_v
    KvTypes types = {};
    const void* next_k = nullptr;  // what may be fetched ahead: the K of the page after this one
};
// One query against the visible slots [first, end) of a page; state of the online softmax.
struct AttnQuery {
    const float* q;  // [head_dim_k], already scaled
    float* o;        // [head_dim_v], unnormalised
    float m;         // running maximum; -inf at the start
    float l;         // running sum
    uint32_t first;
    uint32_t end;  // first < end <= kPage
};

struct Kernels {
    const char* name;  // the level

    // False when x holds a value that is not finite.
    bool (*quantize_q256)(const float* x, uint32_t n, ActBlock* y);
    bool (*quantize_q32)(const float* x, uint32_t n, ActBlock* y);

    MatSmall mat_small[kTypeSlots];  // every quantised type
    LargeBatch large;                // a level replaces it whole, or inherits it whole
    MatFloat mat_float[kTypeSlots];  // F32, F16, BF16

    // y = x / rms(x) * w. False when the sum of squares is not finite.
    bool (*rms_norm)(const float* x, const float* w, uint32_t n, float eps, float* y);
    void (*add)(float* x, const float* y, uint32_t n);         // x += y
    void (*swiglu)(float* gate, const float* up, uint32_t n);  // gate = silu(gate) * up
    // Pairs (x[2i], x[2i + 1]) turn by angle i; cos and sin: [n / 2].
    void (*rope_norm)(float* x, const float* cos, const float* sin, uint32_t n);
    void (*to_f16)(const float* x, uint16_t* y, uint32_t n);
    // A key or value to q8_0 or q4_0: scales [kv_blocks(type, n)], data [kv_data_bytes(type, n)].
    // False when a value is not finite or a scale would not be: what is written is of no use then.
    bool (*quantize_kv)(KvType type, const float* x, uint32_t n, uint16_t* scales, uint8_t* data);
    // queries: [n_q]; all see the same page and KV head.
    void (*attn_page)(const AttnPage& page, uint32_t head_dim_k, uint32_t head_dim_v,
                      AttnQuery* queries, uint32_t n_q);
    void (*scale)(float* x, float factor, uint32_t n);  // x *= factor
};

// A level inherits what it lacks from its parent, and needs what the parent needs.
struct LevelInfo {
    std::string_view name;    // a value of PICOLM_ISA
    std::string_view parent;  // empty for "generic"
    std::string_view needs;   // CPU features, in the words of /proc/cpuinfo
    bool usable;              // on this CPU
};
// The levels that this build holds, best first; "generic" is always last.
std::vector<LevelInfo> all_levels();
// Those of them that this CPU can run, in the same order.
std::vector<std::string_view> usable_levels();
// The best level, or the one that PICOLM_ISA names. invalid: unknown or not usable, with the list.
Result<const Kernels*> select_kernels();
// A level by name; nullptr when it is not usable here.
const Kernels* find_kernels(std::string_view name);

}  // namespace picolm
