// What the kernels of recurrent sequences share (recurrent.cpp, recurrent_rows.cpp): products with a packed weight, the sizes and
// operands of a call, zoneout.
#pragma once

#include <cstring>
#include <utility>

#include "tandem/backends/cpu/kernels/packing.h"
#include "tandem/backends/cpu/kernels/row_products.h"
#include "tandem/backends/cpu/kernels/sums.h"
#include "tandem/backends/cpu/kernels/tiny_as_zero.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"
#include "tandem/ops/recurrent_steps.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

inline constexpr int64_t kWide = 64;       // units of a block at most
inline constexpr int64_t kEnough = 65536;  // multiply-adds that are worth a block of their own
inline constexpr int64_t kWantedBlocks = 16;
inline constexpr int kVectors = 4;

// ---- products with a packed weight

/// The weight in panels of kCount vectors: panel p, row k, vector v, lane l is from[of(p, v, l) · along + k · down], or 0 where of() < 0.
template <int kCount, class C, class S, class F>
void pack(C* to, const S* from, int64_t panels, int64_t depth, int64_t along, int64_t down, F of) {
  constexpr int kL = kLanes<C>, kWidth = kCount * kL;
  constexpr int64_t kTogether = 64;  // rows that are written while they are in the cache
  parallel_for(panels, [&](int64_t p) {
    int64_t first[kCount], count[kCount];  // lanes of a vector are neighbours
    for (int v = 0; v < kCount; ++v)
      for (count[v] = 0, first[v] = of(p, v, 0); count[v] < kL && of(p, v, static_cast<int>(count[v])) >= 0;)
        ++count[v];
    for (int64_t k = 0; k < depth; k += kTogether)
      for (int v = 0; v < kCount; ++v)
        pack_strided<kWidth, kL>(to + (p * depth + k) * kWidth + v * kL,
                                 from + (count[v] ? first[v] * along + k * down : 0), along, down, count[v],
                                 depth - k < kTogether ? depth - k : kTogether);
  });
}

// ---- what both directions share

template <class S>
struct Problem {
  using C = Accumulator<S>;
  const RecurrentAttrs& a;
  RecurrentOperands<Buffer> in;
  const bool is_gradient;
  int64_t steps, samples, hidden, gates;
  int64_t state;  // elements of h: those of the projection, or `hidden`

  Problem(const KernelArgs& args, bool gradient)
      : a(args.attributes<RecurrentAttrs>()), in(a, gradient, args.in), is_gradient(gradient) {
    const Buffer& all = gradient ? *in.saved : *in.x;
    steps = all.shape[0];
    samples = all.shape[1];
    state = in.weight->shape[1];
    hidden = in.projection ? in.projection->shape[1] : state;
    gates = gates_of(a.kind);
  }
  /// The i-th step that is computed is step at(i) of the sequence.
  int64_t at(int64_t i) const { return a.from_end ? steps - 1 - i : i; }
  /// Row n of step t of a tensor of all steps.
  template <class T = S>
  T* row(const Buffer& b, int64_t t, int64_t n) const {
    return b.as<T>() + (t * samples + n) * b.shape[2];
  }
  /// Before the i-th computed step: of the sequence so far, or of the initial state.
  const S* before(const Buffer& initial, const S* sequence, int64_t i, int64_t n) const {
    const int64_t size = initial.shape[1];
    return i == 0 ? initial.as<S>() + n * size : sequence + (at(i - 1) * samples + n) * size;
  }
  bool is_beyond(int64_t t, int64_t n) const { return in.lengths && t >= in.lengths->as<int64_t>()[n]; }
  const bool* mask(const Buffer* b, int64_t t, int64_t n, int64_t first) const {
    return b ? row<const bool>(*b, t, n) + first : nullptr;
  }
  /// What tanh(g) of an lstm is multiplied with.
  void candidate_shares(int64_t t, int64_t n, int64_t first, int64_t count, C* __restrict shares) const {
    const C scale = static_cast<C>(a.candidate_scale);
    const bool* __restrict counts = mask(in.candidates, t, n, first);
    for (int64_t u = 0; u < count; ++u) shares[u] = scale;
    if (counts)
      for (int64_t u = 0; u < count; ++u) shares[u] = counts[u] ? scale : C(0);
  }
  /// Units of a block: a multiple of `least`, and of enough work.
  int64_t units(int64_t least, int64_t work_per_unit) const {
    int64_t units = blocks_in(16, least) * least;
    while (units < kWide && units * work_per_unit < kEnough) units += least;
    return units;
  }
  /// Calls body(first unit, how many, first sample, how many) for blocks of work out of `all` units: of `units` units, and of
  /// fewer than all samples where there would not be enough blocks.
  template <class F>
  void for_blocks(int64_t all, int64_t units, int64_t work_per_unit, F body) const {
    const int64_t across = blocks_in(all, units);
    int64_t rows = samples;
    while (across * blocks_in(samples, rows) < kWantedBlocks && rows > kRowsOfTile<4> &&
           units * work_per_unit / samples * rows > kEnough)
      rows = blocks_in(rows, 2);
    const int64_t down = blocks_in(samples, rows);
    parallel_for(across * down, [&](int64_t block) {
      const int64_t unit = block / down * units, row = block % down * rows;
      body(unit, unit + units < all ? units : all - unit, row, row + rows < samples ? rows : samples - row);
    });
  }
};

/// new = keeps ? old : new, by a mask or by the mean of one. Loops over bytes beside numbers would become vectors as long as
/// many bytes, which a block's few units do not fill.
template <class C, class S>
void zone_out(C* __restrict now, const S* __restrict old, const bool* __restrict keeps, double share,
              int64_t n) {
  if (keeps) {
    const int64_t whole = n - n % kLanes<C>;
    for (int64_t u = 0; u < whole; u += kLanes<C>)
      store(now + u, truths<C>(keeps + u) ? load_as<C>(old + u) : load(now + u));
    for (int64_t u = whole; u < n; ++u) now[u] = keeps[u] ? static_cast<C>(old[u]) : now[u];
  } else if (share != 0) {
    const C p = static_cast<C>(share), q = static_cast<C>(1 - share);
    for (int64_t u = 0; u < n; ++u) now[u] = p * static_cast<C>(old[u]) + q * now[u];
  }
}
/// The same for gradients: of `all`, what goes to the old value, the rest stays.
template <class C>
void zone_out_gradient(C* __restrict all, C* __restrict old, const bool* __restrict keeps, double share,
                       int64_t n) {
  if (keeps) {
    const int64_t whole = n - n % kLanes<C>;
    for (int64_t u = 0; u < whole; u += kLanes<C>) {
      const auto is_kept = truths<C>(keeps + u);
      const Vec<C> g = load(all + u);
      store(old + u, is_kept ? g : Vec<C>{});
      store(all + u, is_kept ? Vec<C>{} : g);
    }
    for (int64_t u = whole; u < n; ++u) {
      old[u] = keeps[u] ? all[u] : C(0);
      all[u] = keeps[u] ? C(0) : all[u];
    }
  } else {
    const C p = static_cast<C>(share), q = static_cast<C>(1 - share);
    for (int64_t u = 0; u < n; ++u) {
      old[u] = share == 0 ? C(0) : p * all[u];
      all[u] = share == 0 ? all[u] : q * all[u];
    }
  }
}

template <class S, class C>
void put(S* __restrict to, const C* __restrict from, int64_t n) {
  for (int64_t u = 0; u < n; ++u) to[u] = static_cast<S>(from[u]);
}

/// Where a step needs whole rows of its products: layer norm and projections.
void recurrent_by_rows(const KernelArgs& args);
void recurrent_gradient_by_rows(const KernelArgs& args);

}  // namespace tandem::cpu::TD_ISA
