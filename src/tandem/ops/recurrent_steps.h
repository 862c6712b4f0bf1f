// What is inside of the ops of recurrent layers: their operands, and one unit of one sample at one step, forward and backward, for
// CPU and CUDA kernels (ops/recurrent.h has the formulas). A gradient is that with respect to what stands before the sigmoid or tanh of a gate.
#pragma once

#include "tandem/ops/elementary_functions.h"
#include "tandem/ops/recurrent.h"

namespace tandem {

/// Gates of a step: rows of the weight over `hidden`.
constexpr int64_t gates_of(Recurrence kind) {
  return kind == Recurrence::lstm ? 4 : kind == Recurrence::gru ? 3 : 1;
}
/// Columns of what the gradient needs of a unit, over `hidden`: the gates (lstm: i, f, g, o; gru: r, z, n and q_n; rnn: h before zoneout).
constexpr int64_t saved_of(Recurrence kind) { return kind >= Recurrence::rnn_tanh ? 1 : 4; }

/// Where the columns of what the gradient needs begin, in a row of one step of one sample: after the gates, those of layer norm and of
/// the projection where there are any.
struct RecurrentSaved {
  int64_t norm = 0, norm_root = 0;      // the normalised weight · h (gates · hidden), and 1 / deviation
  int64_t norm_c = 0, norm_c_root = 0;  // the normalised c (hidden), and the same
  int64_t unprojected = 0;              // what the projection is multiplied with (hidden)
  int64_t columns = 0;

  RecurrentSaved() = default;
  RecurrentSaved(const RecurrentAttrs& a, int64_t hidden) : columns(times_capped(saved_of(a.kind), hidden)) {
    const auto next = [&](int64_t& at, int64_t count) {
      at = columns;
      columns = plus_capped(columns, count);
    };
    if (a.has_norm) {
      next(norm, times_capped(gates_of(a.kind), hidden));
      next(norm_root, 1);
      if (a.kind == Recurrence::lstm) {
        next(norm_c, hidden);
        next(norm_c_root, 1);
      }
    }
    if (a.has_projection) next(unprojected, hidden);
  }
};

/// The inputs and outputs of both ops by name, for inference and kernels: A is Tensor or Buffer. Null: not there.
template <class A>
struct RecurrentOperands {
  const A *x = nullptr, *weight = nullptr, *h = nullptr, *c = nullptr, *bias = nullptr, *lengths = nullptr,
          *state_mask = nullptr, *keeps_h = nullptr, *keeps_c = nullptr, *candidates = nullptr,
          *projection = nullptr, *norm = nullptr, *norm_c = nullptr, *norm_c_bias = nullptr;
  // of the gradient: what the forward op gave, and the gradients of that
  const A *output = nullptr, *cells = nullptr, *saved = nullptr, *grad_output = nullptr, *grad_h = nullptr,
          *grad_c = nullptr;
  int count = 0;

  RecurrentOperands(const RecurrentAttrs& a, bool gradient, const A* in) {
    const auto next = [&](bool is_there) { return is_there ? in + count++ : nullptr; };
    const bool lstm = a.kind == Recurrence::lstm;
    x = next(!gradient);
    weight = next(true);
    h = next(true);
    c = next(lstm);
    bias = next(a.has_bias && !gradient);
    lengths = next(a.has_lengths);
    state_mask = next(a.has_state_mask);
    keeps_h = next(a.has_keeps_h);
    keeps_c = next(a.has_keeps_c);
    candidates = next(a.has_candidates);
    projection = next(a.has_projection);
    norm = next(a.has_norm);
    norm_c = next(a.has_norm && lstm);
    norm_c_bias = next(a.has_norm && lstm);
    output = next(gradient);
    cells = next(gradient && lstm);
    saved = next(gradient);
    grad_output = next(gradient && (a.gradients & 1));
    grad_h = next(gradient && (a.gradients & 2));
    grad_c = next(gradient && (a.gradients & 4));
  }
};

/// The functions of gates. A backend may have others, that give the same within rounding.
template <class C>
struct GateFunctions {
  static TD_FN C sigmoid(C x) { return sigmoid_(x); }
  static TD_FN C tanh(C x) { return tanh_(x); }
};

template <class C>
struct LstmForward {
  C i, f, g, o, c, h;
};
/// i, f, g, o: the sums; share: what tanh(g) is multiplied with, 0 where it is dropped.
template <class C, class F = GateFunctions<C>>
TD_FN LstmForward<C> lstm_forward(C i, C f, C g, C o, C c_before, C share) {
  LstmForward<C> now;
  now.i = F::sigmoid(i);
  now.f = F::sigmoid(f);
  now.g = F::tanh(g);
  now.o = F::sigmoid(o);
  now.c = now.f * c_before + now.i * (now.g * share);
  now.h = now.o * F::tanh(now.c);
  return now;
}

template <class C>
struct LstmBackward {
  C i, f, g, o, c;
};
/// i, f, g, o: the gates; of_o, of_c: gradients of the gate o and of the new c.
template <class C>
TD_FN LstmBackward<C> lstm_gates_backward(C i, C f, C g, C o, C c_before, C share, C of_o, C of_c) {
  const C candidate = g * share;
  LstmBackward<C> back;
  back.i = of_c * candidate * i * (C(1) - i);
  back.f = of_c * c_before * f * (C(1) - f);
  back.g = of_c * i * share * (C(1) - g * g);
  back.o = of_o * o * (C(1) - o);
  back.c = of_c * f;
  return back;
}
/// The same from dh and dc, gradients of the new h and c.
template <class C, class F = GateFunctions<C>>
TD_FN LstmBackward<C> lstm_backward(C i, C f, C g, C o, C c_before, C share, C dh, C dc) {
  const C bent = F::tanh(f * c_before + i * (g * share));
  return lstm_gates_backward<C>(i, f, g, o, c_before, share, dh * bent, dc + dh * o * (C(1) - bent * bent));
}

template <class C>
struct GruForward {
  C r, z, n, h;
};
/// x_…: what the input contributes; q_…: what the state does.
template <class C, class F = GateFunctions<C>>
TD_FN GruForward<C> gru_forward(C x_r, C x_z, C x_n, C q_r, C q_z, C q_n, C h_before) {
  GruForward<C> now;
  now.r = F::sigmoid(x_r + q_r);
  now.z = F::sigmoid(x_z + q_z);
  now.n = F::tanh(x_n + now.r * q_n);
  now.h = now.n + now.z * (h_before - now.n);
  return now;
}

template <class C>
struct GruBackward {
  C r, z, n, q_n, h;
};
template <class C>
TD_FN GruBackward<C> gru_backward(C r, C z, C n, C q_n, C h_before, C dh) {
  GruBackward<C> back;
  back.n = dh * (C(1) - z) * (C(1) - n * n);
  back.r = back.n * q_n * r * (C(1) - r);
  back.z = dh * (h_before - n) * z * (C(1) - z);
  back.q_n = back.n * r;
  back.h = dh * z;
  return back;
}

/// h of a plain layer, and the gradient of its sum.
template <class C, class F = GateFunctions<C>>
TD_FN C rnn_forward(bool is_tanh, C sum) {
  return is_tanh ? F::tanh(sum) : sum > C(0) ? sum : sum != sum ? sum : C(0);
}
template <class C>
TD_FN C rnn_backward(bool is_tanh, C h, C dh) {
  return is_tanh ? dh * (C(1) - h * h) : h > C(0) ? dh : C(0);
}

}  // namespace tandem
