#include "decode/exp_weight.h"

#include "base/math.h"

namespace picolm {

const ExpWeightTable& exp_weight_table() {
    static const ExpWeightTable table = [] {
        ExpWeightTable t;
        for (size_t i = 0; i < t.size(); ++i)
            t[i] = exp_f64(-static_cast<double>(i) / kWeightSteps) * kFullWeight;
        return t;
    }();
    return table;
}

}  // namespace picolm
