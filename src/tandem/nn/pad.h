// Padding as layers, with PyTorch's names. The last one, two or three axes are padded by a width on all sides, or by widths
// of their own in PyTorch's order: {left, right, top, bottom, front, back}, the last axis first. ops/arrange.h says what pad()
// computes.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/ops/arrange.h"

namespace tandem::nn {

/// x (…, spatial axes) -> the same, wider. A constant padding takes any axes before these, and negative widths, which cut;
/// the others take (C, …) or (N, C, …).
template <int kAxes, PadMode kMode>
class PadLayer : public Module {
 public:
  PadLayer(Module* parent, const std::string& name, int64_t width)
      : PadLayer(parent, name, std::vector<int64_t>(2 * kAxes, width)) {}
  PadLayer(Module* parent, const std::string& name, const std::vector<int64_t>& widths)
      : PadLayer(parent, name, widths, 0) {}
  Tensor forward(const Tensor& x) override;
  std::string type_name() const override;

 protected:
  PadLayer(Module* parent, const std::string& name, const std::vector<int64_t>& widths, double value);

 private:
  std::vector<int64_t> widths_;
  PadOptions options_;
};

using ZeroPad1d = PadLayer<1, PadMode::constant>;
using ZeroPad2d = PadLayer<2, PadMode::constant>;
using ZeroPad3d = PadLayer<3, PadMode::constant>;
using ReflectionPad1d = PadLayer<1, PadMode::reflect>;
using ReflectionPad2d = PadLayer<2, PadMode::reflect>;
using ReflectionPad3d = PadLayer<3, PadMode::reflect>;
using ReplicationPad1d = PadLayer<1, PadMode::replicate>;
using ReplicationPad2d = PadLayer<2, PadMode::replicate>;
using ReplicationPad3d = PadLayer<3, PadMode::replicate>;
using CircularPad1d = PadLayer<1, PadMode::circular>;
using CircularPad2d = PadLayer<2, PadMode::circular>;
using CircularPad3d = PadLayer<3, PadMode::circular>;

/// With a value of your own.
template <int kAxes>
class ConstantPad : public PadLayer<kAxes, PadMode::constant> {
 public:
  ConstantPad(Module* parent, const std::string& name, int64_t width, double value)
      : ConstantPad(parent, name, std::vector<int64_t>(2 * kAxes, width), value) {}
  ConstantPad(Module* parent, const std::string& name, const std::vector<int64_t>& widths, double value)
      : PadLayer<kAxes, PadMode::constant>(parent, name, widths, value) {}
  std::string type_name() const override { return str("ConstantPad", kAxes, "d"); }
};

using ConstantPad1d = ConstantPad<1>;
using ConstantPad2d = ConstantPad<2>;
using ConstantPad3d = ConstantPad<3>;

}  // namespace tandem::nn
