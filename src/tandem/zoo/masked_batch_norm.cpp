// Batch norm over the true steps of sequences.
#include "tandem/zoo/masked_batch_norm.h"

#include "tandem/core/tape.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::zoo {
namespace {

constexpr double kEps = 1e-5, kMomentum = 0.1;  // PyTorch's

/// Sums of many values want f32 at least.
Tensor widened(const Tensor& x) { return bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x; }

}  // namespace

MaskedBatchNorm::MaskedBatchNorm(nn::Module* parent, const std::string& name, int64_t channels)
    : Module(parent, name) {
  weight = parameter("weight", ones({channels}));
  bias = parameter("bias", zeros({channels}));
  running_mean = buffer("running_mean", zeros({channels}));
  running_var = buffer("running_var", ones({channels}));
  ignore("num_batches_tracked");
}

Tensor MaskedBatchNorm::forward(const Tensor& x, const Tensor& mask, int64_t axis) {
  Dims others, beside;  // all axes but that of the channels; and the shape of a number for each channel
  for (int64_t i = 0; i < x.rank(); ++i) {
    beside.push_back(i == axis ? x.size(i) : 1);
    if (i != axis) others.push_back(i);
  }
  const Tensor wide = widened(x), of_true = cast(mask, wide.dtype());
  const auto per_channel = [&](const Tensor& values) { return reshape(widened(values), beside); };
  Tensor centred, variance;
  if (training()) {
    double each = 1;  // places of a channel for each element of the mask
    for (const int64_t i : others) each *= static_cast<double>(x.size(i)) / static_cast<double>(mask.size(i));
    const Tensor count = sum(of_true) * each;
    const Tensor mean = sum(wide * of_true, others, true) / count;
    centred = (wide - mean) * of_true;
    variance = sum(centred * centred, others, true) / count;
    const NoGrad off;
    const auto move = [&](const Tensor& running, const Tensor& batch) {
      assign(running,
             widened(running) * (1 - kMomentum) + reshape(batch.detach(), running.shape()) * kMomentum);
    };
    move(running_mean, mean);
    move(running_var, variance * (count / maximum(count - 1, 1)));
  } else {
    centred = wide - per_channel(running_mean);
    variance = per_channel(running_var);
  }
  return cast(centred * (rsqrt(variance + kEps) * per_channel(weight)) + per_channel(bias), x.dtype());
}

Tensor step_mask(const Tensor& lengths, int64_t steps, DType dtype) {
  return cast(reshape(arange(steps, DType::i64, lengths.device()), {1, steps}) < reshape(lengths, {-1, 1}),
              dtype);
}

}  // namespace tandem::zoo
