// What the kernels of recurrent sequences share (recurrent.cu, recurrent_rows.cu): the operands of a call on the device, and zoneout.
#pragma once

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
  __device__ bool is_beyond(int64_t i, int64_t n) const { return lengths && at(i) >= lengths[n]; }
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

/// now, or what was before where it is kept; or the mean of both.
template <class C>
__device__ C zoned_out(C now, C before, const bool* keeps, int64_t place, C share) {
  if (keeps) return keeps[place] ? before : now;
  return share == C(0) ? now : share * before + (C(1) - share) * now;
}
/// The same for its gradient: takes what goes to the value before out of `all`.
template <class C>
__device__ C take_old(C& all, const bool* keeps, int64_t place, C share) {
  const C old = keeps ? keeps[place] ? all : C(0) : share * all;
  all = keeps ? keeps[place] ? C(0) : all : share == C(0) ? all : (C(1) - share) * all;
  return old;
}

/// Where a step needs whole rows of its products: layer norm and projections.
void recurrent_by_rows(const KernelArgs& args);
void recurrent_gradient_by_rows(const KernelArgs& args);

}  // namespace tandem::cuda
