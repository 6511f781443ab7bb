// A batch of activation rows in every form that the next matrices need: plain floats, int8 rows
// for small batches, int8 tiles for large ones. Owned by the forward pass, sized once.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/weights.h"

namespace picolm {

// A set of ActKinds.
struct ActKinds {
    bool f32 = false;
    bool q256 = false;
    bool q32 = false;

    void include(const Matrix& m) { include(act_kind(m.type)); }
    void include(ActKind kind) {
        f32 |= kind == ActKind::f32;
        q256 |= kind == ActKind::q256;
        q32 |= kind == ActKind::q32;
    }
    void include(const ActKinds& other) {
        f32 |= other.f32;
        q256 |= other.q256;
        q32 |= other.q32;
    }
};

// The buffers; which of them are filled depends on the last prepare.
struct Activations {
    uint32_t n_tok = 0;
    uint32_t n_in = 0;
    const float* rows = nullptr;  // [n_tok, n_in], where f32 was asked for
    size_t row_stride = 0;
    bool tiled = false;       // for the large-batch kernels
    uint8_t* q256 = nullptr;  // ActBlock [n_tok, blocks]; tiled: [tiles, blocks] of the level
    uint8_t* q32 = nullptr;
};

// y[t * y_stride + r] = row (row0 + r) of m times activations t, for n_rows rows.
// panel: kPanelBytes of this thread.
void mat_rows(const Kernels& kernels, const Matrix& m, uint32_t row0, uint32_t n_rows,
              const Activations& x, float* y, size_t y_stride, uint8_t* panel);

}  // namespace picolm
