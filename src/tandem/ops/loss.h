// Losses, written with the other ops; names, defaults and meaning as in PyTorch. `reduction` says what becomes of the
// losses of the elements: their mean, their sum, or each on its own. Losses of bf16 and f16 are computed in f32. What a loss
// compares element by element must have equal shapes: nothing broadcasts, but weights to the losses.
#pragma once

#include <optional>

#include "tandem/core/op.h"

namespace tandem {

enum class Reduction : uint8_t { mean, sum, none };

// ---- classes

struct NllLossOptions {
  Tensor weight = {};  ///< (C): of each class; a mean divides by the weights
  /// Targets of this value count for nothing: a mean goes over the others, and is NaN where there are none. {}: none is
  /// ignored, which saves two small passes.
  std::optional<int64_t> ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
/// -log_probabilities[target]: (N, C, …) and target (N, …), or (C) and (), of i64 or i32.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NllLossOptions& options = {});

struct CrossEntropyOptions {
  Tensor weight = {};
  std::optional<int64_t> ignore_index = -100;  ///< as for nll_loss; targets that are probabilities have none
  double label_smoothing = 0;                  ///< share of the target that is spread evenly over the classes
  Reduction reduction = Reduction::mean;
};
/// nll_loss(log_softmax(logits), target), the classes on axis 1 (axis 0 of rank 1). The target may also hold
/// probabilities of the classes: floating, of the logits' shape.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

struct MultiMarginOptions {
  double margin = 1;
  int p = 1;           ///< 1 or 2
  Tensor weight = {};  ///< (C)
  Reduction reduction = Reduction::mean;
};
/// x (N, C), target (N): Σ over the other classes j of max(0, margin - x[target] + x[j])^p, over C.
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginOptions& options = {});

// ---- two classes

struct BinaryCrossEntropyOptions {
  Tensor weight = {};  ///< of each element, broadcast to the losses
  Reduction reduction = Reduction::mean;
};
/// -(t log p + (1 - t) log(1 - p)); the logarithms are kept at -100 or above. Probabilities and targets outside 0..1 are
/// refused.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target,
                            const BinaryCrossEntropyOptions& options = {});
struct BinaryCrossEntropyWithLogitsOptions {
  Tensor weight = {};      ///< of each element, broadcast to the losses
  Tensor pos_weight = {};  ///< of the positive part, broadcast to the losses
  Reduction reduction = Reduction::mean;
};
/// The same of sigmoid(logits), without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BinaryCrossEntropyWithLogitsOptions& options = {});

/// max(0, margin - t x), t in {-1, 1}.
Tensor hinge_loss(const Tensor& x, const Tensor& target, double margin = 1,
                  Reduction reduction = Reduction::mean);
/// x where t = 1, max(0, margin - x) where t = -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin = 1,
                            Reduction reduction = Reduction::mean);
/// log(1 + exp(-t x)).
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

// ---- distances between numbers

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
/// d² / (2 beta) below beta, |d| - beta / 2 beyond.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta = 1,
                      Reduction reduction = Reduction::mean);
/// d² / 2 up to delta, delta (|d| - delta / 2) beyond.
Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta = 1,
                  Reduction reduction = Reduction::mean);
/// log(cosh(d)).
Tensor log_cosh_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);

// ---- distributions

struct KlDivOptions {
  bool log_target = false;
  bool batch_mean = false;  ///< the sum over the size of the first axis, whatever reduction says
  Reduction reduction = Reduction::mean;
};
/// t (log t - input): the input holds logarithms of probabilities, the target probabilities (or their logarithms).
Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options = {});

struct PoissonNllOptions {
  bool log_input = true;
  bool full = false;  ///< with Stirling's approximation of log(t!)
  double eps = 1e-8;
  Reduction reduction = Reduction::mean;
};
/// exp(x) - t x; without log_input x - t log(x + eps).
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options = {});

// ---- distances between vectors

/// a·b / (max(|a|, eps) max(|b|, eps)) along an axis.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t axis = 1, double eps = 1e-8);
/// The p-norm of a - b + eps along the last axis.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keep_axis = false);
/// The p-norm (p >= 0) of every difference of a row of a and one of b: (…, M, D) and (…, N, D) -> (…, M, N); leading axes
/// broadcast. All differences stand in memory, which makes it exact: a distance of 0 is 0, and so is its gradient.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);
/// a and b (N, D) or (D), target (N) or () in {-1, 1}: 1 - cosine, or max(0, cosine - margin).
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin = 0,
                             Reduction reduction = Reduction::mean);
/// max(0, -t (a - b) + margin), t in {-1, 1}.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin = 0,
                           Reduction reduction = Reduction::mean);
struct TripletMarginOptions {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;  ///< the negative's distance from the positive counts where it is smaller
  Reduction reduction = Reduction::mean;
};
/// max(0, |anchor - positive| - |anchor - negative| + margin) along the last axis.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {});

}  // namespace tandem
