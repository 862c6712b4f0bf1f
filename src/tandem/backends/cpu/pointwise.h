// The loops of the pointwise ops on CPU, by row of TD_POINTWISE_OPS and element type. Every instruction-set level puts
// those that it has into the tables, the baseline all, a higher level after it the ones that it does better.
#pragma once

#include "tandem/core/op.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu {

enum PointwiseRow {
#define TD_ROW(name, Functor, inputs, types, ...) row_##name,
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
      kPointwiseRows
};

struct PointwiseLoops {
  TileFn by_type[kPointwiseRows][kDTypeCount];
  TileFn cast[kDTypeCount][kDTypeCount];  // from, to
};
PointwiseLoops& pointwise_loops();

/// Puts the CPU kernels of the rows and of cast in place; they look their loops up in the tables.
void register_pointwise();

}  // namespace tandem::cpu
