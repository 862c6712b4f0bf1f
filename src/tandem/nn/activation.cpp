// Layers without parameters.
#include "tandem/nn/activation.h"

namespace tandem::nn {

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
