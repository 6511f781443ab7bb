#include "model/hadamard.h"

namespace picolm {

void hadamard(float* x, uint32_t n) {
    const uint32_t size = hadamard_size(n);
    for (uint32_t apart = 1; apart < size; apart *= 2)
        for (uint32_t i = 0; i < n; i += 2 * apart)
            for (uint32_t j = i; j < i + apart; ++j) {
                const float a = x[j], b = x[j + apart];
                x[j] = a + b;
                x[j + apart] = a - b;
            }
}

}  // namespace picolm
