// How sums of a sequence are taken: blocks of kSumBlock elements; within a block kSumLanes running sums (element i
// goes to lane i % kSumLanes) that are then added pairwise; the blocks' sums are added in order in the wider type. The
// result is a function of the elements in their order alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

inline constexpr int64_t kSumBlock = 4096;
inline constexpr int kSumLanes = 16;

template <class C>
[[gnu::always_inline]] inline C fold_lanes(C* lanes) {
  for (int s = kSumLanes / 2; s > 0; s /= 2)
    for (int i = 0; i < s; ++i) lanes[i] += lanes[i + s];
  return lanes[0];
}

/// A vector of elements, converted.
template <class C, class T>
[[gnu::always_inline]] inline Vec<C> load_as(const T* p) {
  if constexpr (std::is_same_v<C, T>) {
    return load(p);
  } else {
    C wide[kLanes<C>];
    for (int i = 0; i < kLanes<C>; ++i) wide[i] = static_cast<C>(p[i]);
    return load(wide);
  }
}

/// The sum of f(a[i], b[i] …) over one block of at most kSumBlock elements from `first` on. f takes Cs, or vectors of
/// them.
template <class C, class F, class... Ts>
[[gnu::always_inline]] inline C block_sum(int64_t first, int64_t n, F&& f, const Ts*... arrays) {
  constexpr int kVectors = kSumLanes / kLanes<C>;
  C lanes[kSumLanes] = {};
  int64_t i = 0;
  if (n >= kSumLanes) {
    Vec<C> sums[kVectors] = {};
    for (; i + kSumLanes <= n; i += kSumLanes)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[v] += f(load_as<C>(arrays + first + i + v * kLanes<C>)...);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) store(lanes + v * kLanes<C>, sums[v]);
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] += f(static_cast<C>(arrays[first + i])...);
  return fold_lanes(lanes);
}

/// The sum of f(a[i], b[i] …) over any number of elements.
template <class C, class F, class... Ts>
[[gnu::always_inline]] inline double sum_of(int64_t n, F&& f, const Ts*... arrays) {
  double total = 0;
  for (int64_t at = 0; at < n; at += kSumBlock)
    total += block_sum<C>(at, n - at < kSumBlock ? n - at : kSumBlock, f, arrays...);
  return total;
}

/// F on vectors; of floats by the one instruction where there is one that lets NaN win.
template <class F, class V>
[[gnu::always_inline]] inline V joined(V a, V b) {
#if defined(__ARM_NEON)
  if constexpr (std::is_same_v<V, Vec<float>> && std::is_same_v<F, Maximum>) return vmaxq_f32(a, b);
  if constexpr (std::is_same_v<V, Vec<float>> && std::is_same_v<F, Minimum>) return vminq_f32(a, b);
#endif
  return F{}(a, b);
}

/// All elements joined by F, Maximum or Minimum (NaN wins); n must be at least 1.
template <class F, class C, class T>
[[gnu::always_inline]] inline C extreme_of(const T* x, int64_t n) {
  constexpr int kVectors = 4, kStep = kVectors * kLanes<C>;
  C best = static_cast<C>(x[0]);
  int64_t i = 0;
  if (n >= kStep) {
    Vec<C> lanes[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) lanes[v] = load_as<C>(x + v * kLanes<C>);
    for (i = kStep; i + kStep <= n; i += kStep)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Vec<C> next = load_as<C>(x + i + v * kLanes<C>);
        lanes[v] = joined<F>(lanes[v], next);
      }
    C all[kLanes<C>];
    store(all, joined<F>(joined<F>(lanes[0], lanes[1]), joined<F>(lanes[2], lanes[3])));
    for (const C& value : all) best = F{}(best, value);
  }
  for (; i < n; ++i) best = F{}(best, static_cast<C>(x[i]));
  return best;
}

}  // namespace tandem::cpu::TD_ISA
