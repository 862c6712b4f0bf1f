// Whole sequences of recurrent layers. The weight is packed once; then each step is one parallel loop over blocks of hidden
// units, in which a block's products, gates and states follow each other while they are in the cache. Forward, a block has
// what it needs of the step before once that has ended. Backward, it takes the product of the step after and goes on with
// its own gates, so that here too a step is one loop. An element is computed by one chain of operations, whatever else is
// in its block: nothing depends on threads.
#include "tandem/ops/recurrent.h"

#include <cstring>
#include <utility>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/recurrent_steps.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

constexpr int64_t kWide = 64;       // units of a block at most
constexpr int64_t kEnough = 65536;  // multiply-adds that are worth a block of their own
constexpr int64_t kWantedBlocks = 16;
/// Rows of a register tile of four vectors.
constexpr int kTileRows = kVectorRegisters == 32 ? 6 : 2;
constexpr int kVectors = 4;

int64_t blocks_in(int64_t n, int64_t size) { return (n + size - 1) / size; }

// ---- products with a packed weight

/// Rows of A, `stride` apart, times one panel [k][kCount vectors]: row r, vector v goes to out + r · row + v · vector. k is cut as in
/// gemm.h, and the parts are added in order.
template <class C, int kRows, int kCount>
void multiply(const C* a, int64_t stride, int64_t depth, const C* panel, C* out, int64_t row,
              int64_t vector) {
  constexpr int kL = kLanes<C>;
  const int64_t part = depth_of_block(depth);
  for (int64_t k0 = 0; k0 < depth; k0 += part) {
    const int64_t end = k0 + part < depth ? k0 + part : depth;
    Vec<C> sums[kRows][kCount] = {};
    for (int64_t k = k0; k < end; ++k) {
      Vec<C> b[kCount];
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) b[v] = load(panel + (k * kCount + v) * kL);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec<C> x = splat<C>(a[r * stride + k]);
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) sums[r][v] = fma(b[v], x, sums[r][v]);
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kCount; ++v) {
        C* const to = out + r * row + v * vector;
        store(to, k0 == 0 ? sums[r][v] : load(to) + sums[r][v]);
      }
  }
}

template <class C, int kCount>
struct Rows {
  using Function = void (*)(const C*, int64_t, int64_t, const C*, C*, int64_t, int64_t);
  template <int... kIndex>
  static Function at(int64_t rows, std::integer_sequence<int, kIndex...>) {
    static constexpr Function table[] = {multiply<C, kIndex + 1, kCount>...};
    return table[rows - 1];
  }
  /// All of n rows, in tiles that are as even as possible.
  static void run(const C* a, int64_t stride, int64_t n, int64_t depth, const C* panel, C* out, int64_t row,
                  int64_t vector) {
    for (int64_t left = n; left > 0;) {
      const int64_t rows = blocks_in(left, blocks_in(left, kTileRows));
      at(rows, std::make_integer_sequence<int, kTileRows>())(a, stride, depth, panel, out, row, vector);
      a += rows * stride;
      out += rows * row;
      left -= rows;
    }
  }
};

/// The weight in panels of kCount vectors: panel p, row k, vector v, lane l is from[of(p, v, l) · along + k · down], or 0 where of() < 0.
template <int kCount, class C, class S, class F>
void pack(C* to, const S* from, int64_t panels, int64_t depth, int64_t along, int64_t down, F of) {
  constexpr int kL = kLanes<C>;
  parallel_for(panels, [&](int64_t p) {
    C* const panel = to + p * depth * kCount * kL;
    for (int v = 0; v < kCount; ++v)
      for (int l = 0; l < kL; ++l) {
        const int64_t index = of(p, v, l);
        C* const lane = panel + v * kL + l;
        if (index < 0)
          for (int64_t k = 0; k < depth; ++k) lane[k * kCount * kL] = 0;
        else
          for (int64_t k = 0; k < depth; ++k)
            lane[k * kCount * kL] = static_cast<C>(from[index * along + k * down]);
      }
  });
}

// ---- what both directions share

template <class S>
struct Problem {
  using C = Accumulator<S>;
  const RecurrentAttrs& a;
  RecurrentOperands<Buffer> in;
  int64_t steps, samples, hidden, gates;

  Problem(const KernelArgs& args, bool gradient)
      : a(args.attributes<RecurrentAttrs>()), in(a, gradient, args.in) {
    const Buffer& all = gradient ? *in.saved : *in.x;
    steps = all.shape[0];
    samples = all.shape[1];
    hidden = in.weight->shape[1];
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
    return i == 0 ? initial.as<S>() + n * hidden : sequence + (at(i - 1) * samples + n) * hidden;
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
  /// Calls body(first unit, how many, first sample, how many) for blocks of work: of `units` units, and of fewer than all
  /// samples where there would not be enough blocks.
  template <class F>
  void for_blocks(int64_t units, int64_t work_per_unit, F body) const {
    const int64_t across = blocks_in(hidden, units);
    int64_t rows = samples;
    while (across * blocks_in(samples, rows) < kWantedBlocks && rows > kTileRows &&
           units * work_per_unit / samples * rows > kEnough)
      rows = blocks_in(rows, 2);
    const int64_t down = blocks_in(samples, rows);
    parallel_for(across * down, [&](int64_t block) {
      const int64_t unit = block / down * units, row = block % down * rows;
      body(unit, unit + units < hidden ? units : hidden - unit, row,
           row + rows < samples ? rows : samples - row);
    });
  }
};

/// new = keeps ? old : new, by a mask or by the mean of one.
template <class C, class S>
void zone_out(C* __restrict now, const S* __restrict old, const bool* __restrict keeps, double share,
              int64_t n) {
  if (keeps) {
    for (int64_t u = 0; u < n; ++u) now[u] = keeps[u] ? static_cast<C>(old[u]) : now[u];
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
    for (int64_t u = 0; u < n; ++u) {
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

/// A block of units of one row, a step forward.
template <class S>
struct Forward : Problem<S> {
  using C = Accumulator<S>;
  using Problem<S>::a;
  using Problem<S>::in;
  using Problem<S>::hidden;
  S *output, *cells, *last_h, *last_c;
  const Buffer& saved;

  Forward(const KernelArgs& args) : Problem<S>(args, false), saved(args.out[args.n_out - 1]) {
    output = args.out[0].template as<S>();
    last_h = args.out[1].template as<S>();
    last_c = a.kind == Recurrence::lstm ? args.out[2].template as<S>() : nullptr;
    cells = a.kind == Recurrence::lstm ? args.out[3].template as<S>() : nullptr;
  }

  /// products: those of each gate with the state, `wide` apart.
  void compute(int64_t i, int64_t n, int64_t first, int64_t count, const C* products, int64_t wide) const {
    const int64_t t = this->at(i);
    const S* const h_before = this->before(*in.h, output, i, n) + first;
    const S* const c_before = cells ? this->before(*in.c, cells, i, n) + first : nullptr;
    S* const h_out = output + (t * this->samples + n) * hidden + first;
    S* const c_out = cells ? cells + (t * this->samples + n) * hidden + first : nullptr;
    S* const kept = this->row(saved, t, n) + first;
    if (this->is_beyond(t, n)) {
      std::memcpy(h_out, h_before, static_cast<size_t>(count) * sizeof(S));
      if (c_out) std::memcpy(c_out, c_before, static_cast<size_t>(count) * sizeof(S));
      for (int64_t g = 0; g < saved_of(a.kind); ++g)
        for (int64_t u = 0; u < count; ++u) kept[g * hidden + u] = S(0);
      return;
    }
    const S* const x = this->row(*in.x, t, n) + first;
    C h[kWide];
    if (a.kind == Recurrence::lstm) {
      C i_gate[kWide], f_gate[kWide], g_gate[kWide], o_gate[kWide], c[kWide], share[kWide];
      this->candidate_shares(t, n, first, count, share);
      for (int64_t u = 0; u < count; ++u) {
        const auto sum = [&](int64_t g) {
          return static_cast<C>(x[g * hidden + u]) + products[g * wide + u];
        };
        const LstmForward<C> now =
            lstm_forward<C>(sum(0), sum(1), sum(2), sum(3), static_cast<C>(c_before[u]), share[u]);
        i_gate[u] = now.i, f_gate[u] = now.f, g_gate[u] = now.g, o_gate[u] = now.o;
        c[u] = now.c, h[u] = now.h;
      }
      put(kept, i_gate, count);
      put(kept + hidden, f_gate, count);
      put(kept + 2 * hidden, g_gate, count);
      put(kept + 3 * hidden, o_gate, count);
      zone_out(c, c_before, this->mask(in.keeps_c, t, n, first), a.keep_c, count);
      put(c_out, c, count);
    } else if (a.kind == Recurrence::gru) {
      C r[kWide], z[kWide], fresh[kWide], q[3][kWide];
      for (int64_t g = 0; g < 3; ++g)
        for (int64_t u = 0; u < count; ++u) q[g][u] = products[g * wide + u];
      if (in.bias)
        for (int64_t g = 0; g < 3; ++g)
          for (int64_t u = 0; u < count; ++u)
            q[g][u] += static_cast<C>(in.bias->template as<S>()[g * hidden + first + u]);
      for (int64_t u = 0; u < count; ++u) {
        const auto part = [&](int64_t g) { return static_cast<C>(x[g * hidden + u]); };
        const GruForward<C> now =
            gru_forward<C>(part(0), part(1), part(2), q[0][u], q[1][u], q[2][u], static_cast<C>(h_before[u]));
        r[u] = now.r, z[u] = now.z, fresh[u] = now.n, h[u] = now.h;
      }
      put(kept, r, count);
      put(kept + hidden, z, count);
      put(kept + 2 * hidden, fresh, count);
      put(kept + 3 * hidden, q[2], count);
    } else {
      const bool is_tanh = a.kind == Recurrence::rnn_tanh;
      for (int64_t u = 0; u < count; ++u) h[u] = rnn_forward(is_tanh, static_cast<C>(x[u]) + products[u]);
      put(kept, h, count);
    }
    zone_out(h, h_before, this->mask(in.keeps_h, t, n, first), a.keep_h, count);
    put(h_out, h, count);
  }
};

/// A weight column for panel p, vector v, lane l: of gated layers a vector is a gate, of plain ones all vectors are units.
template <int kCount, class C>
int64_t column_of(bool gated, int64_t hidden, int64_t p, int v, int l) {
  constexpr int kL = kLanes<C>;
  const int64_t unit = gated ? p * kL + l : (p * kCount + v) * kL + l;
  return unit >= hidden ? -1 : gated ? v * hidden + unit : unit;
}

template <class S, int kCount>
void forward(const KernelArgs& args) {
  using C = Accumulator<S>;
  const Forward<S> p(args);
  if (p.samples == 0) return;
  const bool gated = p.gates > 1;
  const int64_t per_panel = gated ? kLanes<C> : kLanes<C> * kCount, panels = blocks_in(p.hidden, per_panel);
  const int64_t packed = panels * p.hidden * kCount * kLanes<C>, state = p.samples * p.hidden;
  const bool direct = std::is_same_v<S, C> && !p.in.state_mask;  // the states can be read where they are
  C* const weight =
      static_cast<C*>(args.workspace(static_cast<size_t>(packed + (direct ? 0 : state)) * sizeof(C)));
  C* const states = weight + packed;
  pack<kCount>(weight, p.in.weight->template as<S>(), panels, p.hidden, p.hidden, 1,
               [&](int64_t at, int v, int l) { return column_of<kCount, C>(gated, p.hidden, at, v, l); });

  const int64_t work = p.samples * p.hidden * (gated ? kCount : 1);  // of a unit
  const int64_t units = p.units(per_panel, work);
  const int64_t wide = units;  // columns of one gate in a block's products
  for (int64_t i = 0; i < p.steps; ++i) {
    const C* from = states;
    if constexpr (std::is_same_v<S, C>)
      if (direct) from = p.before(*p.in.h, p.output, i, 0);
    if (!direct)
      for (int64_t n = 0; n < p.samples; ++n) {
        const S* const h = p.before(*p.in.h, p.output, i, n);
        const S* const mask = p.in.state_mask ? p.in.state_mask->template as<S>() + n * p.hidden : nullptr;
        C* const to = states + n * p.hidden;
        for (int64_t u = 0; u < p.hidden; ++u)
          to[u] = mask ? static_cast<C>(h[u]) * static_cast<C>(mask[u]) : static_cast<C>(h[u]);
      }
    p.for_blocks(units, work, [&](int64_t first, int64_t count, int64_t top, int64_t rows) {
      const int64_t row = (gated ? kCount : 1) * wide;
      C* const products = scratch_of<C>(ScratchSlot::gemm_c, rows * row);
      for (int64_t u = 0; u < count; u += per_panel)
        Rows<C, kCount>::run(from + top * p.hidden, p.hidden, rows, p.hidden,
                             weight + (first + u) / per_panel * p.hidden * kCount * kLanes<C>, products + u,
                             row, gated ? wide : kLanes<C>);
      for (int64_t n = 0; n < rows; ++n) p.compute(i, top + n, first, count, products + n * row, wide);
    });
  }
  const size_t bytes = static_cast<size_t>(state) * sizeof(S);
  const int64_t end = p.at(p.steps - 1) * state;
  std::memcpy(p.last_h, p.output + end, bytes);
  if (p.last_c) std::memcpy(p.last_c, p.cells + end, bytes);
}

/// A block of units of one row, a step backward.
template <class S>
struct Backward : Problem<S> {
  using C = Accumulator<S>;
  using Problem<S>::a;
  using Problem<S>::in;
  using Problem<S>::hidden;
  const Buffer &grad_x, &grad_products;  // the same but of a gru
  C *to_h, *to_c;                        // (N, hidden): gradients on their way to the step before

  Backward(const KernelArgs& args)
      : Problem<S>(args, true),
        grad_x(args.out[0]),
        grad_products(args.out[a.kind == Recurrence::gru ? 1 : 0]) {}

  /// widened: where the gradients of the products go besides, in C; null: nowhere.
  void compute(int64_t i, int64_t n, int64_t first, int64_t count, C* widened) const {
    const int64_t t = this->at(i);
    C *const h_next = to_h + n * hidden + first, *const c_next = to_c ? to_c + n * hidden + first : nullptr;
    S *const dx = this->row(grad_x, t, n) + first, *const dp = this->row(grad_products, t, n) + first;
    C h[kWide];
    std::memcpy(h, h_next, static_cast<size_t>(count) * sizeof(C));
    if (in.grad_output) {
      const S* __restrict g = this->row(*in.grad_output, t, n) + first;
      for (int64_t u = 0; u < count; ++u) h[u] += static_cast<C>(g[u]);
    }
    const auto give = [&](S* to, int64_t g, const C* from) { put(to + g * hidden, from, count); };
    const auto give_product = [&](int64_t g, const C* from) {
      if (widened) std::memcpy(widened + g * hidden + first, from, static_cast<size_t>(count) * sizeof(C));
    };
    if (this->is_beyond(t, n)) {  // the states were handed through
      std::memcpy(h_next, h, static_cast<size_t>(count) * sizeof(C));
      const C none[kWide] = {};
      for (int64_t g = 0; g < this->gates; ++g) {
        give(dx, g, none);
        if (dp != dx) give(dp, g, none);
        give_product(g, none);
      }
      return;
    }
    C old_h[kWide];
    zone_out_gradient(h, old_h, this->mask(in.keeps_h, t, n, first), a.keep_h, count);
    const S* const kept = this->row(*in.saved, t, n) + first;
    const auto gate = [&](int64_t g, int64_t u) { return static_cast<C>(kept[g * hidden + u]); };
    C d[4][kWide];
    if (a.kind == Recurrence::lstm) {
      const S* const c_before = this->before(*in.c, in.cells->template as<S>(), i, n) + first;
      C c[kWide], old_c[kWide], share[kWide];
      std::memcpy(c, c_next, static_cast<size_t>(count) * sizeof(C));
      zone_out_gradient(c, old_c, this->mask(in.keeps_c, t, n, first), a.keep_c, count);
      this->candidate_shares(t, n, first, count, share);
      for (int64_t u = 0; u < count; ++u) {
        const LstmBackward<C> back = lstm_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u),
                                                      static_cast<C>(c_before[u]), share[u], h[u], c[u]);
        d[0][u] = back.i, d[1][u] = back.f, d[2][u] = back.g, d[3][u] = back.o;
        c_next[u] = old_c[u] + back.c;
        h_next[u] = old_h[u];
      }
    } else if (a.kind == Recurrence::gru) {
      const S* const h_before = this->before(*in.h, in.output->template as<S>(), i, n) + first;
      for (int64_t u = 0; u < count; ++u) {
        const GruBackward<C> back = gru_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u),
                                                    static_cast<C>(h_before[u]), h[u]);
        d[0][u] = back.r, d[1][u] = back.z, d[2][u] = back.n, d[3][u] = back.q_n;
        h_next[u] = old_h[u] + back.h;
      }
    } else {
      const bool is_tanh = a.kind == Recurrence::rnn_tanh;
      for (int64_t u = 0; u < count; ++u) {
        d[0][u] = rnn_backward(is_tanh, gate(0, u), h[u]);
        h_next[u] = old_h[u];
      }
    }
    for (int64_t g = 0; g < this->gates; ++g) {
      const C* const of_product = a.kind == Recurrence::gru && g == 2 ? d[3] : d[g];
      give(dx, g, d[g]);
      if (dp != dx) give(dp, g, of_product);
      give_product(g, of_product);
    }
  }
};

template <class S>
void backward(const KernelArgs& args) {
  using C = Accumulator<S>;
  Backward<S> p(args);
  if (p.samples == 0) return;
  const int64_t depth = p.gates * p.hidden, per_panel = kVectors * kLanes<C>,
                panels = blocks_in(p.hidden, per_panel);
  const int64_t packed = panels * depth * per_panel, state = p.samples * p.hidden,
                wide_state = p.samples * depth;
  const bool direct = std::is_same_v<S, C>;  // the gradients of the products can be read where they are
  const bool lstm = p.a.kind == Recurrence::lstm;
  C* const weight = static_cast<C*>(args.workspace(
      static_cast<size_t>(packed + state * (lstm ? 2 : 1) + (direct ? 0 : 2 * wide_state)) * sizeof(C)));
  p.to_h = weight + packed;
  p.to_c = lstm ? p.to_h + state : nullptr;
  C* const widened = p.to_h + state * (lstm ? 2 : 1);  // two steps in turn
  pack<kVectors>(weight, p.in.weight->template as<S>(), panels, depth, 1, p.hidden,
                 [&](int64_t at, int v, int l) { return column_of<kVectors, C>(false, p.hidden, at, v, l); });
  const auto begin = [&](C* to, const Buffer* from) {
    for (int64_t u = 0; u < state; ++u) to[u] = from ? static_cast<C>(from->as<S>()[u]) : C(0);
  };
  begin(p.to_h, p.in.grad_h);
  if (lstm) begin(p.to_c, p.in.grad_c);

  const int64_t units = p.units(per_panel, p.samples * depth);
  for (int64_t i = p.steps - 1; i >= -1;
       --i)  // -1: the product of the first step alone, which goes to the initial state
    p.for_blocks(units, p.samples * depth, [&](int64_t first, int64_t count, int64_t top, int64_t rows) {
      if (i + 1 < p.steps) {
        const C* from = widened + (i + 1) % 2 * wide_state;
        if constexpr (std::is_same_v<S, C>) from = p.row(p.grad_products, p.at(i + 1), 0);
        C* const products = scratch_of<C>(ScratchSlot::gemm_c, rows * units);
        for (int64_t u = 0; u < count; u += per_panel)
          Rows<C, kVectors>::run(from + top * depth, depth, rows, depth,
                                 weight + (first + u) / per_panel * depth * per_panel, products + u, units,
                                 kLanes<C>);
        for (int64_t n = top; n < top + rows; ++n) {
          C* __restrict to = p.to_h + n * p.hidden + first;
          const C* __restrict product = products + (n - top) * units;
          const S* const mask =
              p.in.state_mask ? p.in.state_mask->template as<S>() + n * p.hidden + first : nullptr;
          if (mask)
            for (int64_t u = 0; u < count; ++u) to[u] += product[u] * static_cast<C>(mask[u]);
          else
            for (int64_t u = 0; u < count; ++u) to[u] += product[u];
        }
      }
      if (i < 0) return;
      for (int64_t n = top; n < top + rows; ++n)
        p.compute(i, n, first, count, direct ? nullptr : widened + i % 2 * wide_state + n * depth);
    });
  const int to_h = p.a.kind == Recurrence::gru ? 2 : 1;
  put(args.out[to_h].as<S>(), p.to_h, state);
  if (lstm) put(args.out[2].as<S>(), p.to_c, state);
}

}  // namespace

void register_recurrent_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_recurrent().kernels[cpu] = [](const KernelArgs& args) {
    const bool three = args.attributes<RecurrentAttrs>().kind == Recurrence::gru;
    visit_floating(args.in[0].dtype, [&](auto zero) {
      three ? forward<decltype(zero), 3>(args) : forward<decltype(zero), kVectors>(args);
    });
  };
  op_recurrent_gradient().kernels[cpu] = [](const KernelArgs& args) {
    visit_floating(args.in[0].dtype, [&](auto zero) { backward<decltype(zero)>(args); });
  };
}

}  // namespace tandem::cpu::TD_ISA
