// ResNet-18.
#include "tandem/zoo/resnet.h"

#include "tandem/nn/init.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/reduce.h"

namespace tandem::zoo {
namespace {

using nn::make;

const Pool2dOptions kPool = {.kernel = 3, .stride = 2, .padding = 1};

}  // namespace

BasicBlock::BasicBlock(int64_t in, int64_t out, int64_t stride)
    : conv1_(this, "conv1", in, out, 3, {.stride = stride, .padding = 1, .bias = false}),
      bn1_(this, "bn1", out),
      conv2_(this, "conv2", out, out, 3, {.padding = 1, .bias = false}),
      bn2_(this, "bn2", out) {
  if (stride == 1 && in == out) return;
  downsample_ = std::make_shared<nn::Sequential>();
  downsample_->add(make<nn::Conv2d>(in, out, 1, nn::Conv2dLayerOptions{.stride = stride, .bias = false}));
  downsample_->add(make<nn::BatchNorm2d>(out));
  adopt("downsample", downsample_);
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor h = bn2_(conv2_(relu(bn1_(conv1_(x)))));
  return relu(h + (downsample_ ? (*downsample_)(x) : x));
}

ResNet18::ResNet18(int64_t classes)
    : layer1_(this, "layer1", {make<BasicBlock>(64, 64, 1), make<BasicBlock>(64, 64, 1)}),
      layer2_(this, "layer2", {make<BasicBlock>(64, 128, 2), make<BasicBlock>(128, 128, 1)}),
      layer3_(this, "layer3", {make<BasicBlock>(128, 256, 2), make<BasicBlock>(256, 256, 1)}),
      layer4_(this, "layer4", {make<BasicBlock>(256, 512, 2), make<BasicBlock>(512, 512, 1)}),
      fc_(this, "fc", 512, classes) {
  // As torchvision begins: by the fan of the outputs, which keeps the size of gradients on their way back.
  apply([](Module& module) {
    if (const auto* conv = dynamic_cast<const nn::Conv2d*>(&module))
      nn::init::kaiming_normal_(
          conv->weight, {.mode = nn::init::FanMode::fan_out, .nonlinearity = nn::init::Nonlinearity::relu});
  });
}

Tensor ResNet18::forward(const Tensor& x) {
  Tensor h = max_pool2d(relu(bn1_(conv1_(x))), kPool);
  h = layer4_(layer3_(layer2_(layer1_(h))));
  return fc_(mean(h, {2, 3}));
}

}  // namespace tandem::zoo
