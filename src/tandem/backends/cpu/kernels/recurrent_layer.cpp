// Whole recurrent layers, plainly: each sample by itself, step by step, and the gradients of weights row by row. On this device layers
// are computed by linear() and recurrent(); this says what a library's op is held to. It keeps nothing: its gradient computes the
// gates again.
// levels: one
#include "tandem/ops/recurrent_layer.h"

#include <algorithm>
#include <cstring>

#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"
#include "tandem/ops/recurrent_steps.h"

namespace tandem::cpu::TD_ISA {

namespace {

template <class S>
struct Layer {
  using C = Accumulator<S>;
  Recurrence kind;
  LayerOperands<Buffer> in;
  int64_t steps, samples, features, hidden, rows;  // rows: gates · hidden

  Layer(const KernelArgs& args, bool gradient)
      : kind(args.attributes<RecurrentLayerAttrs>().kind),
        in(args.attributes<RecurrentLayerAttrs>(), gradient, args.in),
        steps(in.x->shape[0]),
        samples(in.x->shape[1]),
        features(in.x->shape[2]),
        hidden(in.weight_hh->shape[1]),
        rows(in.weight_hh->shape[0]) {}
  bool is_lstm() const { return kind == Recurrence::lstm; }
  /// Row n of step t of a tensor whose rows have `size` elements.
  template <class T>
  T* row(T* data, int64_t t, int64_t n, int64_t size) const {
    return data + (t * samples + n) * size;
  }
  const S* h_before(const S* output, int64_t t, int64_t n) const {
    return t == 0 ? in.h->as<S>() + n * hidden : row(output, t - 1, n, hidden);
  }

  /// to (rows) = weight · v + bias.
  void product(const Buffer& weight, const Buffer* bias, const S* v, C* to) const {
    const int64_t size = weight.shape[1];
    for (int64_t r = 0; r < rows; ++r) {
      const S* const w = weight.as<S>() + r * size;
      C sum = bias ? static_cast<C>(bias->as<S>()[r]) : C(0);
      for (int64_t k = 0; k < size; ++k) sum += static_cast<C>(w[k]) * static_cast<C>(v[k]);
      to[r] = sum;
    }
  }
  /// What the input and the state contribute to the gates of a step.
  void products(const S* output, int64_t t, int64_t n, C* of_x, C* of_h) const {
    product(*in.weight_ih, in.bias_ih, row(in.x->as<S>(), t, n, features), of_x);
    product(*in.weight_hh, in.bias_hh, h_before(output, t, n), of_h);
  }
  LstmForward<C> lstm_unit(const C* a, const C* q, int64_t u, C c_before) const {
    const auto sum = [&](int64_t g) { return a[g * hidden + u] + q[g * hidden + u]; };
    return lstm_forward<C>(sum(0), sum(1), sum(2), sum(3), c_before, C(1));
  }
  GruForward<C> gru_unit(const C* a, const C* q, int64_t u, C before) const {
    const int64_t z = hidden + u, n = 2 * hidden + u;
    return gru_forward<C>(a[u], a[z], a[n], q[u], q[z], q[n], before);
  }
};

template <class S>
void forward(const KernelArgs& args) {
  using C = Accumulator<S>;
  const Layer<S> p(args, false);
  S *const output = args.out[0].as<S>(), *const last_h = args.out[1].as<S>();
  S* const cells =
      p.is_lstm() ? args.out[2].as<S>() : nullptr;  // c of the moment; at the end, of the last step
  C* const work = static_cast<C*>(args.workspace(static_cast<size_t>(2 * p.rows * p.samples) * sizeof(C)));
  parallel_for(p.samples, [&](int64_t n) {
    C *const a = work + 2 * n * p.rows, *const q = a + p.rows;
    for (int64_t u = 0; cells && u < p.hidden; ++u)
      cells[n * p.hidden + u] = p.in.c->template as<S>()[n * p.hidden + u];
    for (int64_t t = 0; t < p.steps; ++t) {
      p.products(output, t, n, a, q);
      const S* const before = p.h_before(output, t, n);
      S* const h = p.row(output, t, n, p.hidden);
      for (int64_t u = 0; u < p.hidden; ++u) {
        if (cells) {
          S& c = cells[n * p.hidden + u];
          const LstmForward<C> now = p.lstm_unit(a, q, u, static_cast<C>(c));
          c = static_cast<S>(now.c), h[u] = static_cast<S>(now.h);
        } else if (p.kind == Recurrence::gru) {
          h[u] = static_cast<S>(p.gru_unit(a, q, u, static_cast<C>(before[u])).h);
        } else {
          h[u] = static_cast<S>(rnn_forward(p.kind == Recurrence::rnn_tanh, a[u] + q[u]));
        }
      }
    }
    for (int64_t u = 0; u < p.hidden; ++u)
      last_h[n * p.hidden + u] = p.row(output, p.steps - 1, n, p.hidden)[u];
  });
}

/// of (size) += weightᵀ · by (rows).
template <class S, class C>
void add_transposed_product(const Buffer& weight, const C* by, C* of) {
  const int64_t rows = weight.shape[0], size = weight.shape[1];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < size; ++k) of[k] += static_cast<C>(weight.as<S>()[r * size + k]) * by[r];
}

template <class S>
struct Backward : Layer<S> {
  using C = Accumulator<S>;
  using Layer<S>::in;
  using Layer<S>::hidden;
  using Layer<S>::rows;
  const KernelArgs& args;
  const S* output;
  // Of all steps: c, and the gradients of what the input and the state contribute to the gates (at first these products themselves).
  C *cells, *of_x, *of_h;
  C* sums;  // (samples, features + 2 · hidden), then (rows, features + hidden)

  explicit Backward(const KernelArgs& args)
      : Layer<S>(args, true), args(args), output(in.output->template as<S>()) {
    const int64_t all = this->steps * this->samples;
    const int64_t of_sample = this->features + 2 * hidden, of_row = this->features + hidden;
    const int64_t sizes = all * (hidden + 2 * rows) + std::max(this->samples * of_sample, rows * of_row);
    cells = static_cast<C*>(args.workspace(static_cast<size_t>(sizes) * sizeof(C)));
    of_x = cells + all * hidden, of_h = of_x + all * rows, sums = of_h + all * rows;
  }

  void run_sample(int64_t n) const {
    for (int64_t t = 0; t < this->steps; ++t) {
      C *const a = this->row(of_x, t, n, rows), *const q = this->row(of_h, t, n, rows);
      this->products(output, t, n, a, q);
      for (int64_t u = 0; this->is_lstm() && u < hidden; ++u)  // rounded as forward
        this->row(cells, t, n, hidden)[u] =
            static_cast<C>(static_cast<S>(this->lstm_unit(a, q, u, c_before(t, n, u)).c));
    }
    C *const dx = sums + n * (this->features + 2 * hidden), *const dh = dx + this->features,
             *const dc = dh + hidden;
    for (int64_t u = 0; u < hidden; ++u) {
      dh[u] = static_cast<C>(in.grad_h->template as<S>()[n * hidden + u]);
      dc[u] = this->is_lstm() ? static_cast<C>(in.grad_c->template as<S>()[n * hidden + u]) : C(0);
    }
    for (int64_t t = this->steps - 1; t >= 0; --t) {
      C *const a = this->row(of_x, t, n, rows), *const q = this->row(of_h, t, n, rows);
      for (int64_t u = 0; u < hidden; ++u) run_unit(t, n, u, a, q, dh[u], dc[u]);
      add_transposed_product<S>(*in.weight_hh, q, dh);
      std::fill_n(dx, this->features, C(0));
      add_transposed_product<S>(*in.weight_ih, a, dx);
      put(this->row(args.out[0].template as<S>(), t, n, this->features), dx, this->features);
    }
    put(args.out[3].as<S>() + n * hidden, dh, hidden);
    if (this->is_lstm()) put(args.out[4].as<S>() + n * hidden, dc, hidden);
  }

  /// Row r of both weights, and of the biases.
  void run_row(int64_t r) const {
    C *const of_ih = sums + r * (this->features + hidden), *const of_hh = of_ih + this->features;
    std::fill_n(of_ih, this->features + hidden, C(0));
    C bias_ih = 0, bias_hh = 0;
    for (int64_t t = 0; t < this->steps; ++t)
      for (int64_t n = 0; n < this->samples; ++n) {
        const C a = this->row(of_x, t, n, rows)[r], q = this->row(of_h, t, n, rows)[r];
        const S *const x = this->row(in.x->template as<S>(), t, n, this->features), *const h = this->h_before(
                                                                                        output, t, n);
        for (int64_t k = 0; k < this->features; ++k) of_ih[k] += a * static_cast<C>(x[k]);
        for (int64_t k = 0; k < hidden; ++k) of_hh[k] += q * static_cast<C>(h[k]);
        bias_ih += a, bias_hh += q;
      }
    put(args.out[1].as<S>() + r * this->features, of_ih, this->features);
    put(args.out[2].as<S>() + r * hidden, of_hh, hidden);
    if (!in.bias_ih) return;
    args.out[args.n_out - 2].as<S>()[r] = static_cast<S>(bias_ih);
    args.out[args.n_out - 1].as<S>()[r] = static_cast<S>(bias_hh);
  }

 private:
  C c_before(int64_t t, int64_t n, int64_t u) const {
    return t == 0 ? static_cast<C>(in.c->template as<S>()[n * hidden + u])
                  : this->row(cells, t - 1, n, hidden)[u];
  }
  static void put(S* to, const C* from, int64_t count) {
    for (int64_t k = 0; k < count; ++k) to[k] = static_cast<S>(from[k]);
  }
  /// a and q: products, then their gradients. dh and dc: of the states after the step, then of those before it, but for what goes by
  /// way of the products.
  void run_unit(int64_t t, int64_t n, int64_t u, C* a, C* q, C& dh, C& dc) const {
    dh += static_cast<C>(this->row(in.grad_output->template as<S>(), t, n, hidden)[u]);
    if (this->is_lstm()) {
      const C before = c_before(t, n, u);
      const LstmForward<C> now = this->lstm_unit(a, q, u, before);
      const LstmBackward<C> back = lstm_backward<C>(now.i, now.f, now.g, now.o, before, C(1), dh, dc);
      const C gates[4] = {back.i, back.f, back.g, back.o};
      for (int64_t g = 0; g < 4; ++g) a[g * hidden + u] = q[g * hidden + u] = gates[g];
      dh = 0, dc = back.c;
    } else if (this->kind == Recurrence::gru) {
      const C before = static_cast<C>(this->h_before(output, t, n)[u]), q_n = q[2 * hidden + u];
      const GruForward<C> now = this->gru_unit(a, q, u, before);
      const GruBackward<C> back = gru_backward<C>(now.r, now.z, now.n, q_n, before, dh);
      a[u] = q[u] = back.r, a[hidden + u] = q[hidden + u] = back.z;
      a[2 * hidden + u] = back.n, q[2 * hidden + u] = back.q_n;
      dh = back.h;
    } else {
      const C h = static_cast<C>(this->row(output, t, n, hidden)[u]);
      a[u] = q[u] = rnn_backward(this->kind == Recurrence::rnn_tanh, h, dh);
      dh = 0;
    }
  }
};

}  // namespace

void register_recurrent_layer_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_recurrent_layer().kernels[cpu] = [](const KernelArgs& args) {
    std::memset(args.out[args.n_out - 1].data, 0, static_cast<size_t>(args.out[args.n_out - 1].size()));
    visit_floating(args.in[0].dtype, [&](auto zero) { forward<decltype(zero)>(args); });
  };
  op_recurrent_layer_gradient().kernels[cpu] = [](const KernelArgs& args) {
    visit_floating(args.in[0].dtype, [&](auto zero) {
      const Backward<decltype(zero)> back(args);
      parallel_for(back.samples, [&](int64_t n) { back.run_sample(n); });
      parallel_for(back.rows, [&](int64_t r) { back.run_row(r); });
    });
  };
}

}  // namespace tandem::cpu::TD_ISA
