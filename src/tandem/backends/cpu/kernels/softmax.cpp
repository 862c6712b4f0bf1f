// Softmax, log-softmax and their gradients along one axis of row-major tensors, seen as (outer, axis, inner). Where
// inner is 1 a row lies in one piece; elsewhere neighbouring rows are worked on side by side.
// loops: short
#include "tandem/ops/softmax.h"

#include <cmath>

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/backends/cpu/kernels/sums.h"
#include "tandem/backends/cpu/kernels/tiny_as_zero.h"
#include "tandem/core/threads.h"
#include "tandem/ops/shape.h"

namespace tandem::cpu::TD_ISA {

namespace {

constexpr int64_t kShort = 16;  // rows up to here are summed in order

/// exp of numbers that are not positive (nor NaN), after exp_: fewer steps, with fused ones, and 0 where the result would
/// be below the normal numbers.
[[gnu::always_inline]] inline Vec<float> exp_below(Vec<float> x) {
  typedef typename VecOf<int32_t>::type Integers;
  // 12582912 = 1.5 · 2^23: added to it, a number is rounded to the nearest integer, which is then in its low bits. ln
  // 2 is taken off in two parts, of which the first is exact in few bits.
  const Vec<float> shifted = fma(x, splat(1.44269504f), splat(12582912.f));
  const Vec<float> k = shifted - 12582912.f;
  Vec<float> r = fma(k, splat(-0.693359375f), x);
  r = fma(k, splat(2.12194440e-4f), r);
  Vec<float> p = fma(r, splat(1.9875691500e-4f), splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.f;
  // The low bits of `shifted` are the power of two: added to the exponent.
  const Integers y = reinterpret_cast<Integers>(p) + (reinterpret_cast<Integers>(shifted) << 23);
  return reinterpret_cast<Vec<float>>((x >= -87.3f) & y);
}

/// out[i] = exp(x[i] - largest) for one block of at most kSumBlock elements; returns their sum in the order of sums.h.
template <class C, class T>
C exponentials(const T* __restrict x, C largest, C* __restrict out, int64_t n) {
  int64_t done = 0;
  if constexpr (std::is_same_v<C, float>) {
    for (; done + kLanes<C> <= n; done += kLanes<C>)
      store(out + done, exp_below(load_as<C>(x + done) - largest));
  }
  for (; done < n; ++done) out[done] = exp_(static_cast<C>(x[done]) - largest);
  return block_sum<C>(
      0, n, [](auto v) { return v; }, out);
}

/// One row that lies in one piece.
/// Where all of the row fits the buffer the exponentials are computed once, else again for the results.
template <bool is_log, class T>
void softmax_row(const T* __restrict x, T* __restrict out, int64_t n) {
  using C = typename ComputeType<T>::type;
  C buffer[kSumBlock], largest = static_cast<C>(x[0]), total = 0;
  if (n <= kShort) {
    for (int64_t i = 1; i < n; ++i) largest = Maximum{}(largest, static_cast<C>(x[i]));
    for (int64_t i = 0; i < n; ++i) buffer[i] = exp_(static_cast<C>(x[i]) - largest);
    for (int64_t i = 0; i < n; ++i) total += buffer[i];
  } else {
    largest = extreme_of<Maximum, C>(x, n);
    if (!(abs_(largest) < static_cast<C>(HUGE_VAL))) {  // NaN or infinite: so is every difference to be taken
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(largest - largest);
      return;
    }
    double sum = 0;
    for (int64_t at = 0; at < n; at += kSumBlock)
      sum += exponentials(x + at, largest, buffer, n - at < kSumBlock ? n - at : kSumBlock);
    total = static_cast<C>(sum);
  }
  if constexpr (is_log) {
    const C log_total = log_(total);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(static_cast<C>(x[i]) - largest - log_total);
  } else {
    const C scale = 1 / total;
    for (int64_t at = 0; at < n; at += kSumBlock) {
      const int64_t count = n - at < kSumBlock ? n - at : kSumBlock;
      if (n > kSumBlock)
        exponentials(x + at, largest, buffer, count);  // the buffer holds the last block only
      for (int64_t i = 0; i < count; ++i) out[at + i] = static_cast<T>(buffer[i] * scale);
    }
  }
}

constexpr int64_t kSide = 64;   // rows side by side
constexpr int64_t kFlush = 64;  // elements of a row that are summed before they go to the total

/// totals[c] = the sum over k < n of f(k, c), for `count` rows side by side.
/// Each row in order: parts of kFlush elements in C, and the parts in f64. How many rows lie beside it shows in no
/// sum.
template <class C, class F>
void sum_side_by_side(int64_t n, int64_t count, C* totals, F&& f) {
  double sums[kSide] = {};
  for (int64_t k = 0; k < n;) {
    C part[kSide] = {};
    const int64_t end = k + kFlush < n ? k + kFlush : n;
    for (; k < end; ++k)
      for (int64_t c = 0; c < count; ++c) part[c] += f(k, c);
    for (int64_t c = 0; c < count; ++c) sums[c] += part[c];
  }
  for (int64_t c = 0; c < count; ++c) totals[c] = static_cast<C>(sums[c]);
}

/// `count` rows side by side, whose elements lie `step` apart.
template <bool is_log, class T>
void softmax_side_by_side(const T* __restrict x, T* __restrict out, int64_t n, int64_t step, int64_t count) {
  using C = typename ComputeType<T>::type;
  C largest[kSide], total[kSide];
  for (int64_t c = 0; c < count; ++c) largest[c] = static_cast<C>(x[c]);
  for (int64_t k = 1; k < n; ++k)
    for (int64_t c = 0; c < count; ++c) largest[c] = Maximum{}(largest[c], static_cast<C>(x[k * step + c]));
  sum_side_by_side(n, count, total,
                   [&](int64_t k, int64_t c) { return exp_(static_cast<C>(x[k * step + c]) - largest[c]); });
  for (int64_t c = 0; c < count; ++c) total[c] = is_log ? log_(total[c]) : 1 / total[c];
  for (int64_t k = 0; k < n; ++k)
    for (int64_t c = 0; c < count; ++c) {
      const C value = static_cast<C>(x[k * step + c]) - largest[c];
      out[k * step + c] = static_cast<T>(is_log ? value - total[c] : exp_(value) * total[c]);
    }
}

template <bool is_log, class T>
void gradient_row(const T* __restrict g, const T* __restrict y, T* __restrict out, int64_t n) {
  using C = typename ComputeType<T>::type;
  if constexpr (is_log) {
    const C total = static_cast<C>(sum_of<C>(
        n, [](auto v) { return v; }, g));
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<T>(static_cast<C>(g[i]) - exp_(static_cast<C>(y[i])) * total);
  } else {
    const C total = static_cast<C>(sum_of<C>(
        n, [](auto a, auto b) { return a * b; }, g, y));
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<T>(static_cast<C>(y[i]) * (static_cast<C>(g[i]) - total));
  }
}

template <bool is_log, class T>
void gradient_side_by_side(const T* __restrict g, const T* __restrict y, T* __restrict out, int64_t n,
                           int64_t step, int64_t count) {
  using C = typename ComputeType<T>::type;
  C total[kSide];
  sum_side_by_side(n, count, total, [&](int64_t k, int64_t c) {
    const C value = static_cast<C>(g[k * step + c]);
    return is_log ? value : value * static_cast<C>(y[k * step + c]);
  });
  for (int64_t k = 0; k < n; ++k)
    for (int64_t c = 0; c < count; ++c) {
      const C a = static_cast<C>(g[k * step + c]), b = static_cast<C>(y[k * step + c]);
      out[k * step + c] = static_cast<T>(is_log ? a - exp_(b) * total[c] : b * (a - total[c]));
    }
}

/// Calls row(offset, n) for every row, or side(offset, n, step, count) for rows side by side.
template <class Row, class Side>
void for_rows(const Buffer& x, int64_t axis, Row&& row, Side&& side) {
  if (x.size() == 0) return;
  int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < x.rank; ++i) inner *= x.shape[i];
  const int64_t n = x.shape[axis], outer = x.size() / n / inner;
  if (inner == 1) {
    parallel_ranges(outer, kGrain / n + 1, [&](int64_t begin, int64_t end) {
      const TinyAsZero tiny;
      for (int64_t r = begin; r < end; ++r) row(r * n, n);
    });
    return;
  }
  const int64_t strips = (inner + kSide - 1) / kSide;
  parallel_ranges(outer * strips, kGrain / (n * (inner < kSide ? inner : kSide)) + 1,
                  [&](int64_t begin, int64_t end) {
                    const TinyAsZero tiny;
                    for (int64_t t = begin; t < end; ++t) {
                      const int64_t column = t % strips * kSide, left = inner - column;
                      side(t / strips * n * inner + column, n, inner, left < kSide ? left : kSide);
                    }
                  });
}

template <bool is_log>
void softmax(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    for_rows(
        args.in[0], args.attributes<AxisAttrs>().axis,
        [&](int64_t at, int64_t n) { softmax_row<is_log>(x + at, out + at, n); },
        [&](int64_t at, int64_t n, int64_t step, int64_t count) {
          softmax_side_by_side<is_log>(x + at, out + at, n, step, count);
        });
  });
}

template <bool is_log>
void gradient(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *g = args.in[0].as<T>(), *y = args.in[1].as<T>();
    T* out = args.out[0].as<T>();
    for_rows(
        args.in[0], args.attributes<AxisAttrs>().axis,
        [&](int64_t at, int64_t n) { gradient_row<is_log>(g + at, y + at, out + at, n); },
        [&](int64_t at, int64_t n, int64_t step, int64_t count) {
          gradient_side_by_side<is_log>(g + at, y + at, out + at, n, step, count);
        });
  });
}

}  // namespace

void register_softmax_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_softmax().kernels[cpu] = softmax<false>;
  op_log_softmax().kernels[cpu] = softmax<true>;
  op_softmax_gradient().kernels[cpu] = gradient<false>;
  op_log_softmax_gradient().kernels[cpu] = gradient<true>;
}

}  // namespace tandem::cpu::TD_ISA
