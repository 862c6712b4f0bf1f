// Activations with settings, and changes of shape.
#include "tandem/nn/activation.h"

#include "tandem/ops/random.h"

namespace tandem::nn {

PReLU::PReLU(Module* parent, const std::string& name, int64_t channels, double initial)
    : Module(parent, name), weight([&] {
        TD_CHECK(channels >= 1, label("PReLU", name), ": there must be at least one channel; got ", channels,
                 ".");
        return parameter("weight", full({channels}, initial));
      }()) {}

Tensor PReLU::forward(const Tensor& x) {
  Tensor slope = weight;
  if (weight.size() > 1) {
    TD_CHECK(x.rank() >= 2 && x.size(1) == weight.size(), "PReLU: axis 1 of the input must have the ",
             weight.size(), " channels of the layer; got ", x.shape(), ".");
    Dims shape = Dims::filled(x.rank() - 2, 1);  // of the axes behind the channels
    shape.insert(0, weight.size());
    slope = reshape(weight, shape);
  }
  return where(greater(x, 0), x, x * slope);
}

Tensor Unflatten::forward(const Tensor& x) {
  const int axis = normal_axis("Unflatten", axis_, x.rank());
  Dim known = 1;
  int inferred = 0;
  for (const Dim size : sizes_) {
    TD_CHECK(size >= -1, "Unflatten: sizes must be at least 0, or -1 for one of them; got ", sizes_, ".");
    size == -1 ? void(++inferred) : void(known *= size);
  }
  TD_CHECK(inferred == 0 ? known == x.size(axis) : inferred == 1 && known > 0 && x.size(axis) % known == 0,
           "Unflatten: the sizes must multiply to axis ", axis, " of the input; got ", sizes_, " for ",
           x.shape(), ".");
  Dims shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) {
      shape.push_back(x.size(i));
      continue;
    }
    for (const Dim size : sizes_) shape.push_back(size == -1 ? x.size(axis) / known : size);
  }
  return reshape(x, shape);
}

}  // namespace tandem::nn
