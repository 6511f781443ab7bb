#include "model/activations.h"

#include <algorithm>

namespace picolm {

void mat_rows(const Kernels& kernels, const Matrix& m, uint32_t row0, uint32_t n_rows,
              const Activations& x, float* y, size_t y_stride, uint8_t* panel) {
    const size_t slot = static_cast<size_t>(m.type);
    MatArgs args{m.data + row0 * m.row_bytes, m.row_bytes, n_rows, m.n_in, x.n_tok, y, y_stride};
    const ActKind kind = act_kind(m.type);
    if (kind == ActKind::f32) return kernels.mat_float[slot](args, x.rows, x.row_stride);
    const uint8_t* acts = kind == ActKind::q256 ? x.q256 : x.q32;
    if (x.tiled) return kernels.large.mat[slot](args, acts, panel);
    const auto* blocks = reinterpret_cast<const ActBlock*>(acts);
    for (uint32_t t = 0; t < x.n_tok; t += kMaxSmallBatch) {
        args.n_tok = std::min<uint32_t>(kMaxSmallBatch, x.n_tok - t);
        args.y = y + t * y_stride;
        kernels.mat_small[slot](args, blocks + t * act_blocks(m.n_in));
    }
}

}  // namespace picolm
