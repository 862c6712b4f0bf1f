// The losses of the protocol: means over the places that count.
#pragma once

#include <torch/types.h>

#include "cell.h"

namespace libtorch_driver {

using torch::Tensor;

/// True for the first n places of an axis of this size: (batch, size).
inline Tensor places_below(const Tensor& lengths, int64_t size) {
  return torch::arange(size, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1);
}

/// The same with further axes of size 1, as many as `like` has beyond the first two.
inline Tensor counted(const Tensor& lengths, const Tensor& like) {
  Tensor mask = places_below(lengths, like.size(1));
  for (int64_t i = 2; i < like.dim(); ++i) mask = mask.unsqueeze(-1);
  return mask;
}

inline const std::vector<std::string>& loss_kinds() {
  static const std::vector<std::string> kinds = {"cross_entropy", "mse", "mae", "bce"};
  return kinds;
}

/// The loss of a batch, or the sum of the losses of its places. lengths: undefined where every place counts.
using LossFunction = Tensor (*)(const Tensor& output, const Tensor& target, const Tensor& lengths, bool sum);

inline Tensor cross_entropy(const Tensor& output, const Tensor& target, const Tensor& lengths, bool sum) {
  const int64_t reduction = sum ? at::Reduction::Sum : at::Reduction::Mean;
  if (output.dim() == 2) return torch::cross_entropy_loss(output, target, {}, reduction);
  // The target -100 is left out of the mean.
  const Tensor kept =
      lengths.defined() ? target.masked_fill(counted(lengths, target).logical_not(), -100) : target;
  return torch::cross_entropy_loss(output.flatten(0, -2), kept.flatten(), {}, reduction);
}

template <Tensor (*each)(const Tensor&, const Tensor&, int64_t)>
Tensor mean_of(const Tensor& output, const Tensor& target, const Tensor& lengths, bool sum) {
  if (!lengths.defined()) return each(output, target, sum ? at::Reduction::Sum : at::Reduction::Mean);
  // What is left out is replaced before the loss, so that no gradient of it can be other than 0.
  const Tensor beyond = counted(lengths, output).logical_not();
  const Tensor losses =
      each(output.masked_fill(beyond, 0), target.masked_fill(beyond, 0), at::Reduction::None);
  const Tensor all = losses.masked_fill(beyond, 0).sum();
  return sum ? all : all / (lengths.sum() * (output.numel() / (output.size(0) * output.size(1))));
}

inline Tensor squares(const Tensor& a, const Tensor& b, int64_t how) { return torch::mse_loss(a, b, how); }
inline Tensor distances(const Tensor& a, const Tensor& b, int64_t how) { return torch::l1_loss(a, b, how); }
inline Tensor binary(const Tensor& a, const Tensor& b, int64_t how) {
  return torch::binary_cross_entropy_with_logits(a, b, {}, {}, how);
}

/// Of a kind among loss_kinds().
inline LossFunction loss_function(const std::string& kind) {
  if (kind == "cross_entropy") return cross_entropy;
  if (kind == "mse") return mean_of<squares>;
  if (kind == "mae") return mean_of<distances>;
  return mean_of<binary>;
}

}  // namespace libtorch_driver
