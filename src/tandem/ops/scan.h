// Running sums, products, largest and smallest elements along an axis. Integers and bool give i64 sums and products.
// A running sum of f32 is carried in f64, one of bf16 or f16 in f32.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// out[k] = x[0] + … + x[k]; with reverse, x[k] + … + x[n-1].
Tensor cumsum(const Tensor& x, int64_t axis, bool reverse = false);
Tensor cumprod(const Tensor& x, int64_t axis, bool reverse = false);
/// out[k] = b[k] + a[k] · out[k-1], starting from 0 (a[0] does not count); with reverse from the other end.
Tensor linear_scan(const Tensor& a, const Tensor& b, int64_t axis, bool reverse = false);

/// The largest (smallest) element so far and where it stands, the later of two equals; NaN wins.
struct RunningExtreme {
  Tensor values, indices;
};
RunningExtreme cummax(const Tensor& x, int64_t axis);
RunningExtreme cummin(const Tensor& x, int64_t axis);

struct ScanAttrs {
  int64_t axis = 0;
  bool reverse = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &ScanAttrs::axis), field("reverse", &ScanAttrs::reverse));
  }
};
// All take contiguous inputs of a floating type or, but for linear_scan, i64.
OpDef& op_cumsum();
OpDef& op_cumprod();
OpDef& op_linear_scan();  // in a, b
OpDef& op_cummax();       // out values, indices (i64)
OpDef& op_cummin();

/// x moved `by` places along the axis, towards the end (or, with back, the beginning); `fill` enters.
Tensor shifted(const Tensor& x, int64_t axis, bool back, double fill, Dim by = 1);

}  // namespace tandem
