// Connectionist temporal classification (Graves et al. 2006): the loss of a sequence of labels whose places in time are unknown.
#pragma once

#include "tandem/ops/loss.h"

namespace tandem {

struct CtcLossOptions {
  int64_t blank = 0;  ///< the class that stands for no label
  Reduction reduction = Reduction::mean;
  bool zero_infinity =
      false;  ///< losses of labels that do not fit into their steps are 0 in place of infinity
};
/// -log of the probability of the labels, over all ways to place them. log_probabilities (T, N, C), of log_softmax; targets i64 (N, S),
/// without blanks, of which the first target_lengths[n] count; both lengths i64 (N), up to T and S. As in PyTorch a mean divides
/// each loss by the length of its target (at least 1) first. The gradient is that of log_probabilities themselves, where
/// PyTorch's is right only with log_softmax before it; there both agree.
Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options = {});

struct CtcAttrs {
  int64_t blank = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("blank", &CtcAttrs::blank));
  }
};
/// In log_probabilities f32 or f64, targets, input_lengths, target_lengths; out the losses (N), and for the gradient (N, T, 2 S + 1): the log of
/// the probability of having come to a place of the labels with blanks between them. Numbers out of range give NaN.
OpDef& op_ctc();
/// In the gradients of the losses (N), the inputs and both outputs of op_ctc; out that of log_probabilities.
OpDef& op_ctc_gradient();

}  // namespace tandem
