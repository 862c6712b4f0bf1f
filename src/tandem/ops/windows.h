// Which elements of an axis an output place reads, for pools and interpolation: one definition for the CPU and
// CUDA kernels. Over the places i = 0 … out - 1 of an axis, begin and end never decrease.
#pragma once

#include "tandem/core/half.h"

namespace tandem {

/// Elements begin, begin + step … below end.
struct AxisRange {
  long long begin, end, step;
};

/// The windows of a max pool along one axis. kernel 0: adaptive.
struct PoolAxis {
  long long in, out, kernel, stride, padding, dilation;

  TD_HD AxisRange range(long long i) const {
    if (kernel == 0) return {i * in / out, ((i + 1) * in + out - 1) / out, 1};
    const long long start = i * stride - padding, stop = start + dilation * (kernel - 1) + 1;
    // The first element that is not padding.
    const long long begin = start < 0 ? start + (dilation - 1 - start) / dilation * dilation : start;
    return {begin, stop < in ? stop : in, dilation};
  }
};

enum class Resample : long long {
  average,        // windows of fixed size
  adaptive,       // windows that share the axis out evenly
  nearest,        // the element that holds the place's near end,
  nearest_exact,  // or its middle
  linear,
  cubic,
};

/// A linear map along one axis: place i is a weighted sum of a few adjacent elements.
struct ResampleAxis {
  Resample kind;
  bool corners;      // linear, cubic: the first and last places lie on the first and last elements
  bool include_pad;  // average: padding counts in the length of a window
  long long in, out, kernel, stride, padding;
  double factor;  // average: a further factor, for a divisor that was given: weights are then factor alone
  double scale;   // of the sizes, as the caller gave it; 0: out / in

  /// The place's position among the elements, for linear and cubic.
  TD_HD double position(long long i) const {
    if (corners) return out > 1 ? static_cast<double>(i * (in - 1)) / static_cast<double>(out - 1) : 0.0;
    const double at = static_cast<double>(i) + 0.5;
    return (scale > 0 ? at / scale : at * static_cast<double>(in) / static_cast<double>(out)) - 0.5;
  }
  TD_HD static long long floor_of(double x) {
    const long long whole = static_cast<long long>(x);
    return static_cast<double>(whole) > x ? whole - 1 : whole;
  }
  TD_HD long long inside(long long j) const { return j < 0 ? 0 : j >= in ? in - 1 : j; }

  TD_HD AxisRange range(long long i) const {
    switch (kind) {
      case Resample::average: {
        const long long start = i * stride - padding, stop = start + kernel;
        return {start < 0 ? 0 : start, stop < in ? stop : in, 1};
      }
      case Resample::adaptive:
        return {i * in / out, ((i + 1) * in + out - 1) / out, 1};
      case Resample::nearest: {
        const long long j = inside(scale > 0 ? floor_of(static_cast<double>(i) / scale) : i * in / out);
        return {j, j + 1, 1};
      }
      case Resample::nearest_exact: {
        const long long j = inside(scale > 0 ? floor_of((static_cast<double>(i) + 0.5) / scale)
                                             : (2 * i + 1) * in / (2 * out));
        return {j, j + 1, 1};
      }
      case Resample::linear: {
        const double at = position(i);
        const long long j = inside(at > 0 ? floor_of(at) : 0);
        return {j, inside(j + 1) + 1, 1};
      }
      case Resample::cubic:
        break;
    }
    const long long j = floor_of(position(i));
    return {inside(j - 1), inside(j + 2) + 1, 1};
  }

  /// The weight of element j in place i, for j in range(i).
  TD_HD double weight(long long i, long long j) const {
    switch (kind) {
      case Resample::average: {
        if (factor > 0) return factor;
        const long long start = i * stride - padding, stop = start + kernel;
        const long long last = in + (include_pad ? padding : 0), first = include_pad || start > 0 ? start : 0;
        return 1.0 / static_cast<double>((stop < last ? stop : last) - first);
      }
      case Resample::adaptive: {
        const AxisRange r = range(i);
        return 1.0 / static_cast<double>(r.end - r.begin);
      }
      case Resample::nearest:
      case Resample::nearest_exact:
        return 1.0;
      case Resample::linear: {
        const AxisRange r = range(i);
        if (r.end - r.begin == 1) return 1.0;
        const double at = position(i), t = at > 0 ? at - static_cast<double>(r.begin) : 0.0;
        return j == r.begin ? 1.0 - t : t;
      }
      case Resample::cubic:
        break;
    }
    const double at = position(i);
    const long long first = floor_of(at) - 1;
    double sum = 0;  // elements beyond the ends are those at the ends
    for (int k = 0; k < 4; ++k)
      if (inside(first + k) == j) {
        const double d = at - static_cast<double>(first + k), x = d < 0 ? -d : d;
        constexpr double a = -0.75;
        sum += x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
      }
    return sum;
  }

  /// The places that read element j are first_after(j, false) … first_after(j, true) - 1.
  TD_HD long long first_after(long long j, bool by_begin) const {
    long long low = 0, high = out;
    while (low < high) {
      const long long middle = (low + high) / 2;
      const AxisRange r = range(middle);
      if ((by_begin ? r.begin : r.end) > j)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

}  // namespace tandem
