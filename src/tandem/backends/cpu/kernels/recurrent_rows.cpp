// Recurrent sequences with layer norm or a projection: a step needs whole rows of its products, so that it is several parallel
// loops in turn, by blocks of columns where it multiplies and by samples where it normalises and computes the gates. What is
// computed of a row does not depend on how rows and columns are shared out.
// loops: short
#include "tandem/backends/cpu/kernels/recurrent.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// A weight, packed: out = a · weight, row by row.
template <class C>
struct Factor {
  static constexpr int64_t kPanel = kVectors * kLanes<C>;
  int64_t depth, columns;
  C* data = nullptr;

  int64_t padded() const { return blocks_in(columns, kPanel) * kPanel; }
  int64_t size() const { return padded() * depth; }
  /// Element (k, column) is from[column · along + k · down].
  template <class S>
  void fill(const Buffer& from, int64_t along, int64_t down) {
    pack<kVectors>(data, from.as<S>(), padded() / kPanel, depth, along, down, [&](int64_t p, int v, int l) {
      const int64_t column = p * kPanel + v * kLanes<C> + l;
      return column < columns ? column : -1;
    });
  }
  /// a (samples, depth) -> out (samples, padded()).
  template <class S>
  void multiply(const Problem<S>& p, const C* a, C* out) const {
    const int64_t work = p.samples * depth, units = p.units(kPanel, work), wide = padded();
    p.for_blocks(columns, units, work, [&](int64_t first, int64_t count, int64_t top, int64_t rows) {
      const TinyAsZero tiny(p.is_gradient);
      for (int64_t u = first; u < first + count; u += kPanel)
        Rows<C, kVectors>::run(a + top * depth, depth, rows, depth, data + u * depth, out + top * wide + u,
                               wide, kLanes<C>, true);
    });
  }
};

/// The row as it is normalised, in place. Returns 1 / deviation.
template <class C>
C normalise(C* __restrict x, int64_t n, double eps) {
  const auto count = static_cast<double>(n);
  const C mean = static_cast<C>(sum_of<C>(
                                    n, [](auto v) { return v; }, x) /
                                count);
  for (int64_t i = 0; i < n; ++i) x[i] -= mean;
  const double squares = sum_of<C>(
      n, [](auto v) { return v * v; }, x);
  const C root = static_cast<C>(1 / sqrt_(squares / count + eps));
  for (int64_t i = 0; i < n; ++i) x[i] *= root;
  return root;
}

/// The gradient of normalise(): g, the gradient of the normalised row, becomes that of the row itself.
template <class C, class S>
void normalise_gradient(C* __restrict g, const S* __restrict normalised, C root, int64_t n) {
  const auto count = static_cast<double>(n);
  const C mean = static_cast<C>(sum_of<C>(
                                    n, [](auto v) { return v; }, g) /
                                count);
  const C along = static_cast<C>(sum_of<C>(
                                     n, [](auto v, auto w) { return v * w; }, g, normalised) /
                                 count);
  for (int64_t i = 0; i < n; ++i) g[i] = root * (g[i] - mean - static_cast<C>(normalised[i]) * along);
}

/// Parts of one workspace, one after the other.
template <class C>
struct Parts {
  int64_t size = 0;
  C* data = nullptr;
  int64_t take(int64_t count) {
    size += count;
    return size - count;
  }
};

template <class S>
struct ForwardRows : Problem<S> {
  using C = Accumulator<S>;
  using Problem<S>::a;
  using Problem<S>::in;
  using Problem<S>::hidden;
  using Problem<S>::state;
  S *output, *cells;
  const Buffer& saved;
  const RecurrentSaved columns;

  explicit ForwardRows(const KernelArgs& args)
      : Problem<S>(args, false),
        output(args.out[0].template as<S>()),
        cells(a.kind == Recurrence::lstm ? args.out[3].template as<S>() : nullptr),
        saved(args.out[args.n_out - 1]),
        columns(a, hidden) {}

  /// Where a length has ended: the states stay, and the gradient needs nothing.
  bool skip(int64_t i, int64_t n) const {
    const int64_t t = this->at(i);
    if (!this->is_beyond(t, n)) return false;
    std::memcpy(output + (t * this->samples + n) * state, this->before(*in.h, output, i, n),
                static_cast<size_t>(state) * sizeof(S));
    if (cells)
      std::memcpy(cells + (t * this->samples + n) * hidden, this->before(*in.c, cells, i, n),
                  static_cast<size_t>(hidden) * sizeof(S));
    S* const kept = this->row(saved, t, n);
    for (int64_t u = 0; u < saved.shape[2]; ++u) kept[u] = S(0);
    return true;
  }

  /// The last thing of a step: columns first … of h, by zoneout.
  void give_h(int64_t i, int64_t n, int64_t first, int64_t count, C* h) const {
    const int64_t t = this->at(i);
    zone_out(h, this->before(*in.h, output, i, n) + first, this->mask(in.keeps_h, t, n, first), a.keep_h,
             count);
    put(output + (t * this->samples + n) * state + first, h, count);
  }

  /// products: of all gates with the state; h: what comes of them, before a projection and zoneout.
  void compute(int64_t i, int64_t n, C* __restrict products, C* __restrict h, C* __restrict c) const {
    const int64_t t = this->at(i), all = this->gates * hidden;
    S* const __restrict kept = this->row(saved, t, n);
    const S* const __restrict x = this->row(*in.x, t, n);
    if (in.norm) {
      kept[columns.norm_root] = static_cast<S>(normalise(products, all, a.eps));
      put(kept + columns.norm, products, all);
      const S* const __restrict factor = in.norm->template as<S>();
      for (int64_t u = 0; u < all; ++u) products[u] *= static_cast<C>(factor[u]);
    }
    if (a.kind == Recurrence::lstm) {
      const S* const __restrict c_before = this->before(*in.c, cells, i, n);
      this->candidate_shares(t, n, 0, hidden, h);  // h holds them until it is computed
      for (int64_t u = 0; u < hidden; ++u) {
        const auto sum = [&](int64_t g) {
          return static_cast<C>(x[g * hidden + u]) + products[g * hidden + u];
        };
        const LstmForward<C> now =
            lstm_forward<C>(sum(0), sum(1), sum(2), sum(3), static_cast<C>(c_before[u]), h[u]);
        const C gate[] = {now.i, now.f, now.g, now.o};
        for (int64_t g = 0; g < 4; ++g) kept[g * hidden + u] = static_cast<S>(gate[g]);
        c[u] = now.c, h[u] = now.h;
        products[u] = now.c, products[hidden + u] = now.o;
      }
      zone_out(c, c_before, this->mask(in.keeps_c, t, n, 0), a.keep_c, hidden);
      put(cells + (t * this->samples + n) * hidden, c, hidden);
      if (in.norm_c) {
        kept[columns.norm_c_root] = static_cast<S>(normalise(products, hidden, a.eps));
        put(kept + columns.norm_c, products, hidden);
        const S* const __restrict factor = in.norm_c->template as<S>(), * const __restrict bias =
                                                                            in.norm_c_bias->template as<S>();
        for (int64_t u = 0; u < hidden; ++u)
          h[u] =
              products[hidden + u] * tanh_(products[u] * static_cast<C>(factor[u]) + static_cast<C>(bias[u]));
      }
    } else if (a.kind == Recurrence::gru) {
      const S* const __restrict h_before = this->before(*in.h, output, i, n);
      if (in.bias)
        for (int64_t u = 0; u < all; ++u) products[u] += static_cast<C>(in.bias->template as<S>()[u]);
      for (int64_t u = 0; u < hidden; ++u) {
        const auto part = [&](int64_t g) { return static_cast<C>(x[g * hidden + u]); };
        const C q_n = products[2 * hidden + u];
        const GruForward<C> now = gru_forward<C>(part(0), part(1), part(2), products[u], products[hidden + u],
                                                 q_n, static_cast<C>(h_before[u]));
        const C gate[] = {now.r, now.z, now.n, q_n};
        for (int64_t g = 0; g < 4; ++g) kept[g * hidden + u] = static_cast<S>(gate[g]);
        h[u] = now.h;
      }
    } else {
      const bool is_tanh = a.kind == Recurrence::rnn_tanh;
      for (int64_t u = 0; u < hidden; ++u) h[u] = rnn_forward(is_tanh, static_cast<C>(x[u]) + products[u]);
      put(kept, h, hidden);
    }
    if (in.projection) put(kept + columns.unprojected, h, hidden);
  }
};

template <class S>
void forward(const KernelArgs& args) {
  using C = Accumulator<S>;
  const ForwardRows<S> p(args);
  if (p.samples == 0) return;
  const int64_t all = p.gates * p.hidden;
  Factor<C> weight{p.state, all}, projection{p.hidden, p.state};
  Parts<C> parts;
  const int64_t at_weight = parts.take(weight.size()), at_states = parts.take(p.samples * p.state),
                at_products = parts.take(p.samples * weight.padded()),
                at_h = parts.take(p.samples * p.hidden), at_c = parts.take(p.samples * p.hidden),
                at_projection = parts.take(p.in.projection ? projection.size() : 0),
                at_projected = parts.take(p.in.projection ? p.samples * projection.padded() : 0);
  C* const data = static_cast<C*>(args.workspace(static_cast<size_t>(parts.size) * sizeof(C)));
  weight.data = data + at_weight;
  weight.template fill<S>(*p.in.weight, p.state, 1);
  projection.data = data + at_projection;
  if (p.in.projection) projection.template fill<S>(*p.in.projection, p.hidden, 1);
  C *const states = data + at_states, *const products = data + at_products, *const h = data + at_h,
           *const c = data + at_c, *const projected = data + at_projected;
  for (int64_t i = 0; i < p.steps; ++i) {
    parallel_for(p.samples, [&](int64_t n) {
      const S* const from = p.before(*p.in.h, p.output, i, n);
      const S* const mask = p.in.state_mask ? p.in.state_mask->template as<S>() + n * p.state : nullptr;
      C* const to = states + n * p.state;
      for (int64_t u = 0; u < p.state; ++u)
        to[u] = mask ? static_cast<C>(from[u]) * static_cast<C>(mask[u]) : static_cast<C>(from[u]);
    });
    weight.multiply(p, states, products);
    parallel_for(p.samples, [&](int64_t n) {
      C* const row = h + n * p.hidden;
      if (p.skip(i, n)) {
        for (int64_t u = 0; u < p.hidden; ++u) row[u] = 0;
        return;
      }
      p.compute(i, n, products + n * weight.padded(), row, c + n * p.hidden);
      if (!p.in.projection) p.give_h(i, n, 0, p.hidden, row);
    });
    if (!p.in.projection) continue;
    projection.multiply(p, h, projected);
    parallel_for(p.samples, [&](int64_t n) {
      if (!p.is_beyond(p.at(i), n)) p.give_h(i, n, 0, p.state, projected + n * projection.padded());
    });
  }
  const int64_t last = p.at(p.steps - 1) * p.samples;
  std::memcpy(args.out[1].as<S>(), p.output + last * p.state,
              static_cast<size_t>(p.samples * p.state) * sizeof(S));
  if (p.cells)
    std::memcpy(args.out[2].as<S>(), p.cells + last * p.hidden,
                static_cast<size_t>(p.samples * p.hidden) * sizeof(S));
}

template <class S>
struct BackwardRows : Problem<S> {
  using C = Accumulator<S>;
  using Problem<S>::a;
  using Problem<S>::in;
  using Problem<S>::hidden;
  using Problem<S>::state;
  const RecurrentSaved columns;
  const Buffer *grad_x, *grad_beside = nullptr, *grad_products = nullptr, *grad_h, *grad_c = nullptr,
                        *grad_norm_c = nullptr, *grad_projected = nullptr;

  explicit BackwardRows(const KernelArgs& args) : Problem<S>(args, true), columns(a, hidden) {
    const Buffer* next = args.out;
    grad_x = next++;
    if (a.kind == Recurrence::gru) grad_beside = next++;
    if (in.norm) grad_products = next++;
    grad_h = next++;
    if (a.kind == Recurrence::lstm) grad_c = next++;
    if (in.norm_c) grad_norm_c = next++;
    if (in.projection) grad_projected = next;
  }

  void clear(const Buffer* b, int64_t t, int64_t n) const {
    if (!b) return;
    S* const to = this->row(*b, t, n);
    for (int64_t u = 0; u < b->shape[2]; ++u) to[u] = S(0);
  }

  /// What reaches h at a step, of which the part that zoneout sends to the step before goes to to_h. Returns whether the step is
  /// beyond the length, where all of it goes there.
  bool enter(int64_t i, int64_t n, C* __restrict h, C* __restrict to_h) const {
    const int64_t t = this->at(i);
    std::memcpy(h, to_h, static_cast<size_t>(state) * sizeof(C));
    if (in.grad_output) {
      const S* const __restrict g = this->row(*in.grad_output, t, n);
      for (int64_t u = 0; u < state; ++u) h[u] += static_cast<C>(g[u]);
    }
    if (this->is_beyond(t, n)) {
      std::memcpy(to_h, h, static_cast<size_t>(state) * sizeof(C));
      for (int64_t u = 0; u < state; ++u) h[u] = 0;
      for (const Buffer* b : {grad_x, grad_beside, grad_products, grad_norm_c, grad_projected})
        clear(b, t, n);
      return true;
    }
    zone_out_gradient(h, to_h, this->mask(in.keeps_h, t, n, 0), a.keep_h, state);
    if (grad_projected) put(this->row(*grad_projected, t, n), h, state);
    return false;
  }

  /// h: the gradient of h before a projection. products: takes that of weight · h. spare: two rows of `hidden`.
  void compute(int64_t i, int64_t n, const C* __restrict h, C* __restrict to_h, C* __restrict to_c,
               C* __restrict products, C* __restrict spare) const {
    const int64_t t = this->at(i), all = this->gates * hidden;
    const S* const __restrict kept = this->row(*in.saved, t, n);
    S* const __restrict dx = this->row(*grad_x, t, n);
    const auto gate = [&](int64_t g, int64_t u) { return static_cast<C>(kept[g * hidden + u]); };
    if (a.kind == Recurrence::lstm) {
      const S* const __restrict c_before = this->before(*in.c, in.cells->template as<S>(), i, n);
      C* const __restrict of_c = spare, * const __restrict share = spare + hidden;
      this->candidate_shares(t, n, 0, hidden, share);
      if (in.norm_c) {
        const S *const __restrict factor = in.norm_c->template as<S>(),
                       *const __restrict bias = in.norm_c_bias->template as<S>(),
                       *const __restrict normalised = kept + columns.norm_c;
        S* const __restrict of_norm = this->row(*grad_norm_c, t, n);
        for (int64_t u = 0; u < hidden; ++u) {
          const C bent =
              tanh_(static_cast<C>(normalised[u]) * static_cast<C>(factor[u]) + static_cast<C>(bias[u]));
          const C of_bent = h[u] * gate(3, u) * (C(1) - bent * bent);
          of_norm[u] = static_cast<S>(of_bent);
          of_c[u] = of_bent * static_cast<C>(factor[u]);
          products[u] = h[u] * bent;  // of the gate o, until it is used
        }
        normalise_gradient(of_c, normalised, static_cast<C>(kept[columns.norm_c_root]), hidden);
      } else {
        for (int64_t u = 0; u < hidden; ++u) {
          const C bent =
              tanh_(gate(1, u) * static_cast<C>(c_before[u]) + gate(0, u) * (gate(2, u) * share[u]));
          of_c[u] = h[u] * gate(3, u) * (C(1) - bent * bent);
          products[u] = h[u] * bent;
        }
      }
      const bool* const keeps = this->mask(in.keeps_c, t, n, 0);
      const C kept_share = static_cast<C>(a.keep_c), rest = static_cast<C>(1 - a.keep_c);
      for (int64_t u = 0; u < hidden; ++u) {
        const C dc = to_c[u];
        const C old = keeps ? keeps[u] ? dc : C(0) : kept_share * dc,
                now = keeps ? keeps[u] ? C(0) : dc : rest * dc;
        const LstmBackward<C> back =
            lstm_gates_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u),
                                   static_cast<C>(c_before[u]), share[u], products[u], now + of_c[u]);
        products[u] = back.i, products[hidden + u] = back.f, products[2 * hidden + u] = back.g,
        products[3 * hidden + u] = back.o;
        to_c[u] = old + back.c;
      }
      put(dx, products, all);
    } else if (a.kind == Recurrence::gru) {
      const S* const __restrict h_before = this->before(*in.h, in.output->template as<S>(), i, n);
      for (int64_t u = 0; u < hidden; ++u) {
        const GruBackward<C> back = gru_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u),
                                                    static_cast<C>(h_before[u]), h[u]);
        products[u] = back.r, products[hidden + u] = back.z, products[2 * hidden + u] = back.q_n;
        dx[2 * hidden + u] = static_cast<S>(back.n);
        to_h[u] += back.h;
      }
      put(dx, products, 2 * hidden);
      put(this->row(*grad_beside, t, n), products, all);
    } else {
      const bool is_tanh = a.kind == Recurrence::rnn_tanh;
      for (int64_t u = 0; u < hidden; ++u) products[u] = rnn_backward(is_tanh, gate(0, u), h[u]);
      put(dx, products, all);
    }
    if (!in.norm) return;
    const S* const __restrict factor = in.norm->template as<S>();
    for (int64_t u = 0; u < all; ++u) products[u] *= static_cast<C>(factor[u]);
    normalise_gradient(products, kept + columns.norm, static_cast<C>(kept[columns.norm_root]), all);
    put(this->row(*grad_products, t, n), products, all);
  }
};

template <class S>
void backward(const KernelArgs& args) {
  using C = Accumulator<S>;
  const BackwardRows<S> p(args);
  if (p.samples == 0) return;
  const int64_t all = p.gates * p.hidden;
  Factor<C> weight{all, p.state}, projection{p.state, p.hidden};
  Parts<C> parts;
  const int64_t rows = p.samples, at_weight = parts.take(weight.size()),
                at_projection = parts.take(p.in.projection ? projection.size() : 0),
                at_unprojected = parts.take(p.in.projection ? rows * projection.padded() : 0),
                at_h = parts.take(rows * p.state), at_to_h = parts.take(rows * p.state),
                at_to_c = parts.take(rows * p.hidden), at_products = parts.take(rows * all),
                at_back = parts.take(rows * weight.padded()), at_spare = parts.take(rows * 2 * p.hidden);
  C* const data = static_cast<C*>(args.workspace(static_cast<size_t>(parts.size) * sizeof(C)));
  weight.data = data + at_weight;
  weight.template fill<S>(*p.in.weight, 1, p.state);
  projection.data = data + at_projection;
  if (p.in.projection) projection.template fill<S>(*p.in.projection, 1, p.hidden);
  C *const h = data + at_h, *const to_h = data + at_to_h, *const to_c = data + at_to_c,
           *const products = data + at_products, *const back = data + at_back, *const spare = data + at_spare,
           *const unprojected = p.in.projection ? data + at_unprojected : h;
  const int64_t wide = p.in.projection ? projection.padded() : p.state;
  const auto begin = [&](C* to, const Buffer* from, int64_t size) {
    for (int64_t u = 0; u < size; ++u) to[u] = from ? static_cast<C>(from->as<S>()[u]) : C(0);
  };
  begin(to_h, p.in.grad_h, rows * p.state);
  begin(to_c, p.in.grad_c, rows * p.hidden);
  for (int64_t i = p.steps - 1; i >= 0; --i) {
    parallel_for(rows, [&](int64_t n) {
      const TinyAsZero tiny;
      if (p.enter(i, n, h + n * p.state, to_h + n * p.state))
        for (int64_t u = 0; u < all; ++u) products[n * all + u] = 0;
    });
    if (p.in.projection) projection.multiply(p, h, unprojected);
    parallel_for(rows, [&](int64_t n) {
      const TinyAsZero tiny;
      if (!p.is_beyond(p.at(i), n))
        p.compute(i, n, unprojected + n * wide, to_h + n * p.state, to_c + n * p.hidden, products + n * all,
                  spare + n * 2 * p.hidden);
    });
    weight.multiply(p, products, back);
    parallel_for(rows, [&](int64_t n) {
      const TinyAsZero tiny;
      C* const __restrict to = to_h + n * p.state;
      const C* const __restrict from = back + n * weight.padded();
      const S* const mask = p.in.state_mask ? p.in.state_mask->template as<S>() + n * p.state : nullptr;
      for (int64_t u = 0; u < p.state; ++u) to[u] += mask ? from[u] * static_cast<C>(mask[u]) : from[u];
    });
  }
  put(p.grad_h->template as<S>(), to_h, rows * p.state);
  if (p.grad_c) put(p.grad_c->template as<S>(), to_c, rows * p.hidden);
}

}  // namespace

void recurrent_by_rows(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) { forward<decltype(zero)>(args); });
}
void recurrent_gradient_by_rows(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) { backward<decltype(zero)>(args); });
}

}  // namespace tandem::cpu::TD_ISA
