// Normalising layers, with PyTorch's names: weight and bias are parameters, running_mean and running_var buffers.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< weight and bias
  bool bias = true;
};

/// Over the last axes, whose sizes are `shape`.
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  LayerNorm(Module* parent, const std::string& name, const Dims& shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& x) override;

  const Tensor weight, bias;

 private:
  Dims shape_;
  double eps_;
};

struct RmsNormOptions {
  double eps = 0;  ///< 0: the spacing of numbers at 1 in x's type
  bool affine = true;
};

/// Over the last axes, whose sizes are `shape`.
class RMSNorm : public Module {
 public:
  using Options = RmsNormOptions;
  RMSNorm(Module* parent, const std::string& name, const Dims& shape, RmsNormOptions options = {});
  Tensor forward(const Tensor& x) override;

  const Tensor weight;

 private:
  Dims shape_;
  double eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
};

/// x (N, channels, …), over each of `groups` groups of channels.
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;
  GroupNorm(Module* parent, const std::string& name, int64_t groups, int64_t channels,
            GroupNormOptions options = {});
  Tensor forward(const Tensor& x) override;

  const Tensor weight, bias;

 private:
  int64_t groups_;
  double eps_;
};

struct BatchNormLayerOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< share of the batch in the running statistics
  bool affine = true;
  bool track_running_stats = true;  ///< else the batch's own statistics are used in evaluation too
};

/// x (N, channels, …) over the batch; in evaluation by the running statistics. The numbered classes below say which ranks
/// they take. Called as norm(x, mask), with a bool mask as batch_norm takes it (ops/norm.h): what that leaves out takes no part in the
/// statistics and comes out as zeros.
class BatchNorm : public Module {
 public:
  using Options = BatchNormLayerOptions;
  Tensor forward(const Tensor& x) override { return normalised(x, {}); }
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override;

  const Tensor weight, bias, running_mean, running_var;

 protected:
  BatchNorm(Module* parent, const std::string& name, const char* kind, int least_rank, int most_rank,
            int64_t channels, BatchNormLayerOptions options);

 private:
  Tensor normalised(const Tensor& x, const Tensor& mask);

  std::string label_;
  int least_rank_, most_rank_;
  int64_t channels_;
  BatchNormLayerOptions options_;
};

class BatchNorm1d : public BatchNorm {  ///< x (N, C) or (N, C, L)
 public:
  BatchNorm1d(Module* parent, const std::string& name, int64_t channels, BatchNormLayerOptions options = {})
      : BatchNorm(parent, name, "BatchNorm1d", 2, 3, channels, options) {}
};
class BatchNorm2d : public BatchNorm {  ///< x (N, C, H, W)
 public:
  BatchNorm2d(Module* parent, const std::string& name, int64_t channels, BatchNormLayerOptions options = {})
      : BatchNorm(parent, name, "BatchNorm2d", 4, 4, channels, options) {}
};
class BatchNorm3d : public BatchNorm {  ///< x (N, C, D, H, W)
 public:
  BatchNorm3d(Module* parent, const std::string& name, int64_t channels, BatchNormLayerOptions options = {})
      : BatchNorm(parent, name, "BatchNorm3d", 5, 5, channels, options) {}
};

struct InstanceNormOptions {
  double eps = 1e-5;
  bool affine = false;
};

/// x (N, channels, …) over each channel of each sample.
class InstanceNorm : public Module {
 public:
  using Options = InstanceNormOptions;
  Tensor forward(const Tensor& x) override;

  const Tensor weight, bias;

 protected:
  InstanceNorm(Module* parent, const std::string& name, const char* kind, int rank, int64_t channels,
               InstanceNormOptions options);

 private:
  std::string label_;
  int rank_;
  int64_t channels_;
  double eps_;
};

class InstanceNorm1d : public InstanceNorm {  ///< x (N, C, L)
 public:
  InstanceNorm1d(Module* parent, const std::string& name, int64_t channels, InstanceNormOptions options = {})
      : InstanceNorm(parent, name, "InstanceNorm1d", 3, channels, options) {}
};
class InstanceNorm2d : public InstanceNorm {  ///< x (N, C, H, W)
 public:
  InstanceNorm2d(Module* parent, const std::string& name, int64_t channels, InstanceNormOptions options = {})
      : InstanceNorm(parent, name, "InstanceNorm2d", 4, channels, options) {}
};
class InstanceNorm3d : public InstanceNorm {  ///< x (N, C, D, H, W)
 public:
  InstanceNorm3d(Module* parent, const std::string& name, int64_t channels, InstanceNormOptions options = {})
      : InstanceNorm(parent, name, "InstanceNorm3d", 5, channels, options) {}
};

}  // namespace tandem::nn
