// Initial values of parameters.
#include "tandem/nn/init.h"

#include <cmath>

#include "tandem/ops/random.h"

namespace tandem::nn {

Tensor uniform_by_fan_in(const Dims& shape, int64_t fan_in) {
  TD_CHECK(fan_in >= 1, "init: the number of inputs of a unit must be at least 1; got ", fan_in, ".");
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return uniform(shape, -bound, bound);
}

}  // namespace tandem::nn
