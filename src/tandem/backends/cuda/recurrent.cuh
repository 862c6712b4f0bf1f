// What the implementations of recurrent sequences share: the operands of a call on the device, and one unit at one step.
#pragma once

#include <compare>

#include "tandem/core/implementations.h"
#include "tandem/core/kernel.h"
#include "tandem/ops/recurrent_steps.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {

/// A call as kernels see it. Null: not there.
template <class S>
struct RecurrentCall {
  using C = typename ComputeType<S>::type;
  const S *x, *weight, *h, *c, *bias, *state_mask;
  const S *projection, *norm, *norm_c, *norm_c_bias;
  const int64_t* lengths;
  const bool *keeps_h, *keeps_c, *candidates;
  S *output, *cells, *saved;  // written forward, read backward
  S *last_h, *last_c;
  const S *grad_output, *grad_h, *grad_c;
  /// grad_beside: of what stands beside x, or beside r; grad_products: of weight · h. Without layer norm these two are the same,
  /// and that of x as well but for a gru.
  S *grad_x, *grad_beside, *grad_products, *grad_first_h, *grad_first_c, *grad_norm_c, *grad_projected;
  C *to_h, *to_c;  // (samples, state), (samples, hidden): gradients on their way to the step before
  int64_t steps, samples, hidden, state;  // state: elements of h
  RecurrentSaved saved_columns;
  int gates, kept;  // kept: gates in a row of `saved`
  Recurrence kind;
  bool from_end;
  C keep_h, keep_c, candidate_scale;
  double eps;

  void fill(const KernelArgs& args, bool backward) {
    const auto& a = args.attributes<RecurrentAttrs>();
    const RecurrentOperands<Buffer> in(a, backward, args.in);
    const bool lstm = a.kind == Recurrence::lstm, gru = a.kind == Recurrence::gru;
    const auto of = [](const Buffer* b) { return b ? b->as<S>() : nullptr; };
    const auto truth = [](const Buffer* b) { return b ? b->as<bool>() : nullptr; };
    x = of(in.x), weight = of(in.weight), h = of(in.h), c = of(in.c), bias = of(in.bias);
    state_mask = of(in.state_mask);
    projection = of(in.projection), norm = of(in.norm), norm_c = of(in.norm_c),
    norm_c_bias = of(in.norm_c_bias);
    lengths = in.lengths ? in.lengths->as<int64_t>() : nullptr;
    keeps_h = truth(in.keeps_h), keeps_c = truth(in.keeps_c), candidates = truth(in.candidates);
    const Buffer& all = backward ? *in.saved : *in.x;
    steps = all.shape[0], samples = all.shape[1];
    state = in.weight->shape[1], hidden = in.projection ? in.projection->shape[1] : state;
    saved_columns = RecurrentSaved(a, hidden);
    gates = static_cast<int>(gates_of(a.kind)), kept = static_cast<int>(saved_of(a.kind));
    kind = a.kind, from_end = a.from_end, eps = a.eps;
    keep_h = static_cast<C>(a.keep_h), keep_c = static_cast<C>(a.keep_c);
    candidate_scale = static_cast<C>(a.candidate_scale);
    const Buffer* out = args.out;
    const auto next = [&](bool is_there) { return is_there ? (out++)->as<S>() : nullptr; };
    if (backward) {
      output = of(in.output), cells = of(in.cells), saved = of(in.saved);
      grad_output = of(in.grad_output), grad_h = of(in.grad_h), grad_c = of(in.grad_c);
      grad_x = next(true);
      grad_beside = gru ? next(true) : grad_x;
      grad_products = a.has_norm ? next(true) : grad_beside;
      grad_first_h = next(true), grad_first_c = next(lstm);
      grad_norm_c = next(lstm && a.has_norm), grad_projected = next(a.has_projection);
    } else {
      output = next(true), last_h = next(true), last_c = next(lstm), cells = next(lstm), saved = next(true);
    }
  }

  /// The i-th step that is computed is step at(i) of the sequence.
  __device__ int64_t at(int64_t i) const { return from_end ? steps - 1 - i : i; }
  __device__ int64_t state_place(int64_t i, int64_t n) const { return (at(i) * samples + n) * hidden; }
  __device__ int64_t length_of(int64_t n) const { return lengths ? lengths[n] : steps; }
  __device__ bool is_beyond(int64_t i, int64_t n) const { return at(i) >= length_of(n); }
  /// Where h, or c, of a sample stands before the i-th computed step; h without a projection.
  __device__ const S* before(const S* initial, const S* sequence, int64_t i, int64_t n) const {
    return i == 0 ? initial + n * hidden : sequence + state_place(i - 1, n);
  }
  /// One of them that this thread has written itself.
  __device__ C own_before(const S* initial, const S* sequence, int64_t i, int64_t n, int64_t u) const {
    return static_cast<C>(before(initial, sequence, i, n)[u]);
  }
  __device__ C candidate_share(int64_t place) const {
    return !candidates || candidates[place] ? candidate_scale : C(0);
  }
};

/// An element of a mask as the byte that it is: a truth would be looked at, and so waited for, where it is read.
__device__ inline unsigned byte_of(const bool* mask, int64_t place) {
  return reinterpret_cast<const unsigned char*>(mask)[place];
}

/// Zoneout of one element: whether its mask, if there is one, keeps the value before; without a mask the mean of both.
template <class C>
struct Zone {
  bool has_mask = false;
  unsigned keeps = 0;
  C share = 0;

  Zone() = default;
  __device__ Zone(const bool* mask, int64_t place, C share)
      : has_mask(mask), keeps(mask ? byte_of(mask, place) : 0), share(share) {}
  __device__ C mix(C now, C before) const {
    if (has_mask) return keeps ? before : now;
    return share == C(0) ? now : share * before + (C(1) - share) * now;
  }
  /// The same for its gradient: takes what goes to the value before out of `all`.
  __device__ C take_old(C& all) const {
    const C old = has_mask ? keeps ? all : C(0) : share * all;
    all = has_mask ? keeps ? C(0) : all : share == C(0) ? all : (C(1) - share) * all;
    return old;
  }
};

/// The functions of gates where nothing else is done meanwhile: by the GPU's own exp2 and reciprocal, within 4e-7 of the value, and without
/// a branch. f64 as everywhere.
template <class C>
struct QuickGates : GateFunctions<C> {};
template <>
struct QuickGates<float> {
  static __device__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ float sigmoid(float x) {
    const float within = fminf(fmaxf(x, -87.f), 87.f);
    const float power = within * -1.44269504f,
                rest = fmaf(within, -1.44269504f, -power);  // what its rounding lost
    const float e = exp2(power);
    const float y = reciprocal(1.f + fmaf(e, rest * 0.693147181f, e));
    return x != x ? x : y;
  }
  static __device__ float tanh(float x) {
    const float a = fabsf(x), near_zero = tanh_near_zero(a);
    const float far = fmaf(reciprocal(exp2(fminf(a, 10.f) * 2.88539008f) + 1.f), -2.f, 1.f);
    return copysignf(a < 0.625f || x != x ? near_zero : far, x);
  }
};

/// One unit of one sample at the i-th step, without layer norm and projection. What it reads of tensors does not depend on the
/// step before, so that it can be on its way while that is computed.
/// kLstm: it is an lstm. Else the kind is asked for.
template <class S, bool kLstm = false>
struct ForwardUnit {
  using C = typename RecurrentCall<S>::C;
  using Gates = QuickGates<C>;
  static __device__ bool is_lstm(const RecurrentCall<S>& s) { return kLstm || s.kind == Recurrence::lstm; }
  static __device__ int gates_of(const RecurrentCall<S>& s) { return kLstm ? 4 : s.gates; }
  static __device__ int kept_of(const RecurrentCall<S>& s) { return kLstm ? 4 : s.kept; }
  int64_t i, n, u, place;
  C given[4] = {};
  C kept[4] = {};  // for the gradient
  Zone<C> zone_h, zone_c;
  unsigned has_candidate = 1;
  int64_t length;

  __device__ ForwardUnit(const RecurrentCall<S>& s, int64_t i, int64_t n, int64_t u)
      : i(i),
        n(n),
        u(u),
        place(s.state_place(i, n) + u),
        zone_h(s.keeps_h, place, s.keep_h),
        length(s.length_of(n)) {
    const S* const x = s.x + (s.at(i) * s.samples + n) * gates_of(s) * s.hidden + u;
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < gates_of(s)) given[g] = static_cast<C>(x[g * s.hidden]);
    if (!is_lstm(s)) return;
    zone_c = Zone<C>(s.keeps_c, place, s.keep_c);
    if (s.candidates) has_candidate = byte_of(s.candidates, place);
  }
  /// h and c: before the step, then after it. product(g): of gate g with the state.
  template <class F>
  __device__ void step(const RecurrentCall<S>& s, F product, C& h, C& c) {
    const bool lstm = is_lstm(s);
    if (s.at(i) < length) {
      const C before = h;
      if (lstm) {
        const LstmForward<C> now =
            lstm_forward<C, Gates>(given[0] + product(0), given[1] + product(1), given[2] + product(2),
                                   given[3] + product(3), c, has_candidate ? s.candidate_scale : C(0));
        kept[0] = now.i, kept[1] = now.f, kept[2] = now.g, kept[3] = now.o;
        c = zone_c.mix(now.c, c);
        h = now.h;
      } else if (s.kind == Recurrence::gru) {
        const auto with_bias = [&](int g) {
          return s.bias ? product(g) + static_cast<C>(s.bias[g * s.hidden + u]) : product(g);
        };
        kept[3] = with_bias(2);
        const GruForward<C> now =
            gru_forward<C, Gates>(given[0], given[1], given[2], with_bias(0), with_bias(1), kept[3], before);
        kept[0] = now.r, kept[1] = now.z, kept[2] = now.n;
        h = now.h;
      } else {
        h = kept[0] = rnn_forward<C, Gates>(s.kind == Recurrence::rnn_tanh, given[0] + product(0));
      }
      h = zone_h.mix(h, before);
    }
  }
  /// Gives to device memory what came of it.
  __device__ void store(const RecurrentCall<S>& s, C h, C c) const {
    const bool lstm = is_lstm(s);
    S* const saved = s.saved + (s.at(i) * s.samples + n) * s.saved_columns.columns + u;
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < kept_of(s)) saved[g * s.hidden] = static_cast<S>(kept[g]);
    s.output[place] = static_cast<S>(h);
    if (lstm) s.cells[place] = static_cast<S>(c);
    if (i + 1 < s.steps) return;
    s.last_h[n * s.hidden + u] = static_cast<S>(h);
    if (lstm) s.last_c[n * s.hidden + u] = static_cast<S>(c);
  }
};

/// The same backward, and after the first step with i = -1.
template <class S, bool kLstm = false>
struct BackwardUnit {
  using C = typename RecurrentCall<S>::C;
  using Forward = ForwardUnit<S, kLstm>;
  int64_t i, n, u, place = 0;
  C gates[4] = {}, before = 0, of_output = 0;  // before: c of an lstm, h of a gru
  Zone<C> zone_h, zone_c;
  unsigned has_candidate = 1;
  int64_t length = 0;
  C of_given[4] = {},
    of_products[4] = {};  // gradients of what the input and what the products contribute to the gates

  __device__ BackwardUnit(const RecurrentCall<S>& s, int64_t i, int64_t n, int64_t u) : i(i), n(n), u(u) {
    if (i < 0) return;
    place = s.state_place(i, n) + u;
    length = s.length_of(n);
    const S* const kept = s.saved + (s.at(i) * s.samples + n) * s.saved_columns.columns + u;
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < Forward::kept_of(s)) gates[g] = static_cast<C>(kept[g * s.hidden]);
    if (s.grad_output) of_output = static_cast<C>(s.grad_output[place]);
    zone_h = Zone<C>(s.keeps_h, place, s.keep_h);
    if (Forward::is_lstm(s)) {
      before = s.own_before(s.c, s.cells, i, n, u);
      zone_c = Zone<C>(s.keeps_c, place, s.keep_c);
      if (s.candidates) has_candidate = byte_of(s.candidates, place);
    } else if (s.kind == Recurrence::gru) {
      before = s.own_before(s.h, s.output, i, n, u);
    }
  }
  /// to_h and to_c: what the step after sends, then what this one sends, but for what goes by way of the products. product: that,
  /// where there is a step after.
  __device__ void step(const RecurrentCall<S>& s, bool has_product, C product, C& to_h, C& to_c) {
    const bool lstm = Forward::is_lstm(s);
    const int64_t state = n * s.hidden + u;
    C h = has_product ? to_h : s.grad_h ? static_cast<C>(s.grad_h[state]) : C(0);
    C c = !lstm ? C(0) : has_product ? to_c : s.grad_c ? static_cast<C>(s.grad_c[state]) : C(0);
    if (has_product) h += s.state_mask ? product * static_cast<C>(s.state_mask[state]) : product;
    if (i < 0) {
      s.grad_first_h[state] = static_cast<S>(h);
      if (lstm) s.grad_first_c[state] = static_cast<S>(c);
      return;
    }
    if (s.grad_output) h += of_output;
    C(&d)[4] = of_given;
    if (s.at(i) < length) {
      const C old_h = zone_h.take_old(h);
      if (lstm) {
        const C old_c = zone_c.take_old(c);
        const LstmBackward<C> back = lstm_backward<C, QuickGates<C>>(
            gates[0], gates[1], gates[2], gates[3], before, has_candidate ? s.candidate_scale : C(0), h, c);
        d[0] = back.i, d[1] = back.f, d[2] = back.g, d[3] = back.o;
        c = old_c + back.c;
        h = old_h;
      } else if (s.kind == Recurrence::gru) {
        const GruBackward<C> back = gru_backward<C>(gates[0], gates[1], gates[2], gates[3], before, h);
        d[0] = back.r, d[1] = back.z, d[2] = back.n, d[3] = back.q_n;
        h = old_h + back.h;
      } else {
        d[0] = rnn_backward(s.kind == Recurrence::rnn_tanh, gates[0], h);
        h = old_h;
      }
    }
    of_products[0] = d[0], of_products[1] = d[1], of_products[3] = d[3];
    of_products[2] = !lstm && s.kind == Recurrence::gru ? d[3] : d[2];
    to_h = h;
    to_c = c;
  }
  /// Gives to device memory what came of it.
  __device__ void store(const RecurrentCall<S>& s) const {
    if (i < 0) return;
    const int64_t row = (s.at(i) * s.samples + n) * Forward::gates_of(s) * s.hidden + u;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= Forward::gates_of(s)) break;
      s.grad_x[row + g * s.hidden] = static_cast<S>(of_given[g]);
      if (!kLstm && s.grad_products != s.grad_x)
        s.grad_products[row + g * s.hidden] = static_cast<S>(of_products[g]);
    }
  }
};

/// Both with states that lie in device memory, each read and written by one thread.
template <class S, class F>
__device__ void step_forward(const RecurrentCall<S>& s, int64_t i, int64_t n, int64_t u, F product) {
  using C = typename RecurrentCall<S>::C;
  ForwardUnit<S> unit(s, i, n, u);
  C h = s.own_before(s.h, s.output, i, n, u);
  C c = s.kind == Recurrence::lstm ? s.own_before(s.c, s.cells, i, n, u) : C(0);
  unit.step(s, product, h, c);
  unit.store(s, h, c);
}
template <class S>
__device__ void step_backward(const RecurrentCall<S>& s, int64_t i, int64_t n, int64_t u, bool has_product,
                              typename RecurrentCall<S>::C product) {
  using C = typename RecurrentCall<S>::C;
  const bool lstm = s.kind == Recurrence::lstm;
  const int64_t state = n * s.hidden + u;
  BackwardUnit<S> unit(s, i, n, u);
  C h = has_product ? s.to_h[state] : C(0), c = lstm && has_product ? s.to_c[state] : C(0);
  unit.step(s, has_product, product, h, c);
  unit.store(s);
  if (i < 0) return;
  s.to_h[state] = h;
  if (lstm) s.to_c[state] = c;
}

/// A call as the choice of an implementation sees it.
struct RecurrentProblem {
  int device, capability, multiprocessors;  // capability: its major number
  size_t shared_bytes;                      // of a block, at most
  int clusters;  // of eight blocks that fill a multiprocessor each: how many run at once
  DType dtype;
  bool backward, needs_rows, tf32;
  int gates;
  int64_t steps, samples, hidden;
  friend auto operator<=>(const RecurrentProblem&, const RecurrentProblem&) = default;
};
struct RecurrentCallArgs {
  const KernelArgs& args;
  RecurrentProblem problem;
};
struct DeviceState;
int clusters_at_once(const DeviceState& state);
/// recurrent.cu has the list of these.
using RecurrentImplementation = Implementation<RecurrentProblem, RecurrentCallArgs>;

}  // namespace tandem::cuda
