// Gradients by differences, for functions that the op cases do not know: layers and what is made of them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {

/// Compares the gradient of `loss` (a number, from f64 leaves that require gradients) by every element of every leaf with
/// its central difference. The leaves are changed for a moment.
inline void check_gradients_by_differences(const std::function<Tensor()>& loss,
                                           const std::vector<std::pair<std::string, Tensor>>& leaves) {
  constexpr double kStep = 1e-5;
  std::vector<Tensor> tensors;
  for (const auto& [name, leaf] : leaves) tensors.push_back(leaf);
  const std::vector<Tensor> gradients = grad(loss(), tensors);
  const NoGrad off;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Array got = to_array(gradients[i]), before = to_array(tensors[i]);
    Array want(before.shape);
    for (int64_t k = 0; k < before.size(); ++k) {
      double side[2];
      for (const int sign : {-1, 1}) {
        Array moved = before;
        moved[k] += sign * kStep;
        assign(tensors[i], to_tensor(moved, DType::f64));
        side[sign > 0] = loss().item<double>();
      }
      want[k] = (side[1] - side[0]) / (2 * kStep);
    }
    assign(tensors[i], to_tensor(before, DType::f64));
    EXPECT_TRUE(near(got, want, 1e-7)) << leaves[i].first;
  }
}

}  // namespace tandem::testing
