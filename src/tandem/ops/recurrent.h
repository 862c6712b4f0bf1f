// Whole sequences of a recurrent layer as one op: what the layers of nn/recurrent.h are made of.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// What happens at a step, with a = x_t + weight · h, cut into gates of `hidden` rows each in PyTorch's order:
///   lstm       i, f, g, o = a; c = sigmoid(f) · c + sigmoid(i) · tanh(g); h = sigmoid(o) · tanh(c)
///   gru        r, z, n = x_t and q = weight · h + bias, cut likewise; r = sigmoid(r + q_r), z = sigmoid(z + q_z),
///              n = tanh(n + r · q_n); h = (1 - z) · n + z · h
///   rnn_tanh   h = tanh(a)
///   rnn_relu   h = relu(a)
/// With a projection (lstm) h = projection · (sigmoid(o) · tanh(c)) of P elements; otherwise P is `hidden`.
/// With layer norm (Ba et al. 2016) weight · h is normalised over all its rows, and h of an lstm is made of the normalised c.
enum class Recurrence : uint8_t { lstm, gru, rnn_tanh, rnn_relu };

/// T steps of N samples. What a field that may be left out stands for is left undefined.
struct RecurrentInputs {
  Tensor x;          ///< (T, N, gates · hidden): what the input contributes to each step, its bias included
  Tensor weight;     ///< (gates · hidden, P)
  Tensor h;          ///< (N, P), before the first step
  Tensor c = {};     ///< (N, hidden), lstm only
  Tensor bias = {};  ///< gru only: (gates · hidden), or none; of the other kinds it belongs into x
  Tensor lengths = {};  ///< i64 (N): beyond it a sample's states stay as they are
  /// Multiplied with h before the product, at every step the same: (N, P), of the type of x. For dropout.
  Tensor state_mask = {};
  /// bool (T, N, P) and (T, N, hidden): where it is true, h (c) keeps its old value. Zoneout while training.
  Tensor keeps_h = {}, keeps_c = {};
  /// lstm only, bool (T, N, hidden): where it is false, tanh(g) counts as 0. Recurrent dropout.
  Tensor candidates = {};
  Tensor projection = {};  ///< lstm only: (P, hidden)
  /// Layer norm, where it is given: what the normalised weight · h is multiplied with, (gates · hidden). What is to be added
  /// belongs into x, of a gru into the bias. An lstm has two more, (hidden), for the normalised c: factor and what is added.
  Tensor norm = {}, norm_c = {}, norm_c_bias = {};
};
struct RecurrentOptions {
  Recurrence kind = Recurrence::lstm;
  bool from_end = false;  ///< the last step first
  /// The share of its old value that h (c) keeps: the mean of zoneout, for use without keeps_h (keeps_c).
  double keep_h = 0, keep_c = 0;
  double candidate_scale = 1;  ///< of tanh(g), beside `candidates`
  double eps = 1e-5;           ///< added to the variances of layer norm
};
struct RecurrentResult {
  Tensor output;  ///< h after each step, (T, N, P)
  Tensor h, c;    ///< after the last one; c of an lstm
};
/// All steps as one op, on every device. Gradients of first order; those of higher orders are refused.
RecurrentResult recurrent(const RecurrentInputs& inputs, const RecurrentOptions& options = {});

/// What the two ops know. In x, weight, h, then what is there of c (lstm), bias, lengths, state_mask, keeps_h, keeps_c,
/// candidates, projection, norm, norm_c and norm_c_bias, in this order; out output, h, [c, c of each step,] and what the gradient needs of
/// each step, side by side (RecurrentSaved in ops/recurrent_steps.h).
struct RecurrentAttrs {
  Recurrence kind = Recurrence::lstm;
  bool from_end = false;
  bool has_bias = false, has_lengths = false, has_state_mask = false, has_keeps_h = false,
       has_keeps_c = false, has_candidates = false, has_projection = false, has_norm = false;
  int64_t gradients = 0;  // of the gradient: which it is given, 1 of the output + 2 of h + 4 of c
  double keep_h = 0, keep_c = 0, candidate_scale = 1, eps = 1e-5;
  /// Whether a step needs whole rows of its products, not only what belongs to a unit.
  bool needs_rows() const { return has_projection || has_norm; }
  template <class Visit>
  static auto fields(Visit visit) {
    using A = RecurrentAttrs;
    return visit(field("kind", &A::kind), field("from_end", &A::from_end), field("has_bias", &A::has_bias),
                 field("has_lengths", &A::has_lengths), field("has_state_mask", &A::has_state_mask),
                 field("has_keeps_h", &A::has_keeps_h), field("has_keeps_c", &A::has_keeps_c),
                 field("has_candidates", &A::has_candidates), field("has_projection", &A::has_projection),
                 field("has_norm", &A::has_norm), field("gradients", &A::gradients),
                 field("keep_h", &A::keep_h), field("keep_c", &A::keep_c),
                 field("candidate_scale", &A::candidate_scale), field("eps", &A::eps));
  }
};
OpDef& op_recurrent();
/// In what RecurrentOperands (ops/recurrent_steps.h) says; out the gradients of x, [gru: of what stands beside r, bias included,]
/// [layer norm: of weight · h,] h, [lstm: c,] [lstm with layer norm: of the normalised c as it is used, at each step,] [projection: of
/// what it gives, at each step].
OpDef& op_recurrent_gradient();

}  // namespace tandem
