#include "tandem/optim/sgd_rows.h"

#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/ops/index.h"

namespace tandem::optim {

void sgd_rows(const Tensor& weight, const nn::SparseGradient& gradient, double lr) {
  TD_CHECK(std::isfinite(lr) && lr >= 0, "sgd_rows: the learning rate must be at least 0; got ", lr, ".");
  const NoGrad off;
  index_add_into(weight, gradient.indices, mul(gradient.values, -lr));
}

}  // namespace tandem::optim
