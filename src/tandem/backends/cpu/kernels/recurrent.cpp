// Whole sequences of recurrent layers. The weight is packed once; then each step is one parallel loop over blocks of hidden
// units, in which a block's products, gates and states follow each other while they are in the cache. Forward, a block has
// what it needs of the step before once that has ended. Backward, it takes the product of the step after and goes on with
// its own gates, so that here too a step is one loop. An element is computed by one chain of operations, whatever else is
// in its block: nothing depends on threads.
#include "tandem/backends/cpu/kernels/recurrent.h"

#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

namespace {

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
    p.for_blocks(p.hidden, units, work, [&](int64_t first, int64_t count, int64_t top, int64_t rows) {
      const int64_t row = (gated ? kCount : 1) * wide;
      C* const products = scratch_of<C>(ScratchSlot::gemm_c, rows * row);
      for (int64_t u = 0; u < count; u += per_panel)
        Rows<C, kCount>::run(from + top * p.hidden, p.hidden, rows, p.hidden,
                             weight + (first + u) / per_panel * p.hidden * kCount * kLanes<C>, products + u,
                             row, gated ? wide : kLanes<C>, true);
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
    p.for_blocks(
        p.hidden, units, p.samples * depth, [&](int64_t first, int64_t count, int64_t top, int64_t rows) {
          const TinyAsZero tiny;
          if (i + 1 < p.steps) {
            const C* from = widened + (i + 1) % 2 * wide_state;
            if constexpr (std::is_same_v<S, C>) from = p.row(p.grad_products, p.at(i + 1), 0);
            C* const products = scratch_of<C>(ScratchSlot::gemm_c, rows * units);
            for (int64_t u = 0; u < count; u += per_panel)
              Rows<C, kVectors>::run(from + top * depth, depth, rows, depth,
                                     weight + (first + u) / per_panel * depth * per_panel, products + u,
                                     units, kLanes<C>, true);
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
    const auto& a = args.attributes<RecurrentAttrs>();
    if (a.needs_rows()) return recurrent_by_rows(args);
    const bool three = a.kind == Recurrence::gru;
    visit_floating(args.in[0].dtype, [&](auto zero) {
      three ? forward<decltype(zero), 3>(args) : forward<decltype(zero), kVectors>(args);
    });
  };
  op_recurrent_gradient().kernels[cpu] = [](const KernelArgs& args) {
    if (args.attributes<RecurrentAttrs>().needs_rows()) return recurrent_gradient_by_rows(args);
    visit_floating(args.in[0].dtype, [&](auto zero) { backward<decltype(zero)>(args); });
  };
}

}  // namespace tandem::cpu::TD_ISA
