// Normalising layers.
#include "tandem/nn/norm.h"

#include "tandem/ops/norm.h"
#include "tandem/ops/random.h"

namespace tandem::nn {

namespace {

void check_channels(const std::string& label, int64_t channels, double eps) {
  TD_CHECK(channels >= 1 && eps >= 0, label, ": channels must be at least 1 and eps at least 0; got ",
           channels, " channels and eps ", eps, ".");
}

void check_input(const std::string& label, const Tensor& x, int least_rank, int most_rank, int64_t channels) {
  TD_CHECK(x.defined() && x.rank() >= least_rank && x.rank() <= most_rank && x.shape()[1] == channels, label,
           ": x must have ", least_rank == most_rank ? str(least_rank) : str(least_rank, " to ", most_rank),
           " axes, the second of size ", channels, "; got ",
           x.defined() ? describe(x) : "an undefined handle", ".");
}

void check_shape(const std::string& label, const Dims& shape) {
  TD_CHECK(shape.rank() >= 1 && size_of(shape) >= 1, label,
           ": the normalised shape must have an axis and sizes of at least 1; got ", shape, ".");
}

}  // namespace

LayerNorm::LayerNorm(Module* parent, const std::string& name, const Dims& shape, LayerNormOptions options)
    : Module(parent, name),
      weight([&] {
        check_shape("LayerNorm " + name, shape);
        return options.affine ? parameter("weight", ones(shape)) : Tensor();
      }()),
      bias(options.affine && options.bias ? parameter("bias", zeros(shape)) : Tensor()),
      shape_(shape),
      eps_(options.eps) {}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight, bias, eps_); }

RMSNorm::RMSNorm(Module* parent, const std::string& name, const Dims& shape, RmsNormOptions options)
    : Module(parent, name),
      weight([&] {
        check_shape("RMSNorm " + name, shape);
        return options.affine ? parameter("weight", ones(shape)) : Tensor();
      }()),
      shape_(shape),
      eps_(options.eps) {}
Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, shape_, weight, eps_); }

GroupNorm::GroupNorm(Module* parent, const std::string& name, int64_t groups, int64_t channels,
                     GroupNormOptions options)
    : Module(parent, name),
      weight([&] {
        check_channels("GroupNorm " + name, channels, options.eps);
        TD_CHECK(groups >= 1 && channels % groups == 0, "GroupNorm ", name,
                 ": channels must be a multiple of groups; got ", channels, " channels and ", groups,
                 " groups.");
        return options.affine ? parameter("weight", ones({channels})) : Tensor();
      }()),
      bias(options.affine ? parameter("bias", zeros({channels})) : Tensor()),
      groups_(groups),
      eps_(options.eps) {}
Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, groups_, weight, bias, eps_); }

BatchNorm::BatchNorm(Module* parent, const std::string& name, const char* kind, int least_rank, int most_rank,
                     int64_t channels, BatchNormLayerOptions options)
    : Module(parent, name),
      weight([&] {
        const std::string layer = str(kind, " ", name);
        check_channels(layer, channels, options.eps);
        TD_CHECK(options.momentum >= 0 && options.momentum <= 1, layer, ": momentum must lie in 0..1; got ",
                 options.momentum, ".");
        return options.affine ? parameter("weight", ones({channels})) : Tensor();
      }()),
      bias(options.affine ? parameter("bias", zeros({channels})) : Tensor()),
      running_mean(options.track_running_stats ? buffer("running_mean", zeros({channels})) : Tensor()),
      running_var(options.track_running_stats ? buffer("running_var", ones({channels})) : Tensor()),
      label_(str(kind, " ", name)),
      least_rank_(least_rank),
      most_rank_(most_rank),
      channels_(channels),
      options_(options) {
  // PyTorch's count of batches: its mean over all of them is not offered here.
  if (options.track_running_stats) ignore("num_batches_tracked");
}

std::vector<Tensor> BatchNorm::forward(const std::vector<Tensor>& in) {
  TD_CHECK(in.size() == 1 || in.size() == 2, label_, ": takes x, or x and a mask; got ", in.size(),
           " tensors.");
  return {normalised(in[0], in.size() == 2 ? in[1] : Tensor())};
}

Tensor BatchNorm::normalised(const Tensor& x, const Tensor& mask) {
  check_input(label_, x, least_rank_, most_rank_, channels_);
  return batch_norm(x, running_mean, running_var, weight, bias,
                    {.training = training() || !options_.track_running_stats,
                     .eps = options_.eps,
                     .momentum = options_.momentum,
                     .mask = mask});
}

InstanceNorm::InstanceNorm(Module* parent, const std::string& name, const char* kind, int rank,
                           int64_t channels, InstanceNormOptions options)
    : Module(parent, name),
      weight([&] {
        check_channels(str(kind, " ", name), channels, options.eps);
        return options.affine ? parameter("weight", ones({channels})) : Tensor();
      }()),
      bias(options.affine ? parameter("bias", zeros({channels})) : Tensor()),
      label_(str(kind, " ", name)),
      rank_(rank),
      channels_(channels),
      eps_(options.eps) {}

Tensor InstanceNorm::forward(const Tensor& x) {
  check_input(label_, x, rank_, rank_, channels_);
  return instance_norm(x, weight, bias, eps_);
}

}  // namespace tandem::nn
