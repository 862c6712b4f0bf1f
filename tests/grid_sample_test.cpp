// grid_sample beyond its op cases: points that are no numbers, the identity, threads.
// ctest: asan
#include "tandem/ops/grid_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr GridMode kModes[] = {GridMode::bilinear, GridMode::nearest, GridMode::bicubic};
constexpr GridPadding kPaddings[] = {GridPadding::zeros, GridPadding::border, GridPadding::reflection};

TEST(GridSample, OfPointsThatAreFarOrNoNumbersReadsNothingOutsideOfTheImage) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf(""), most = 3e38f;
  std::vector<float> points;
  for (const float x : {inf, -inf, nan, most, -most, 1e9f, -1e9f, 0.f})
    for (const float y : {inf, -inf, nan, most, -most, 1e9f, -1e9f, 0.f}) points.insert(points.end(), {x, y});
  for (const GridMode mode : kModes)
    for (const GridPadding padding : kPaddings)
      for (const bool corners : {false, true}) {
        Tensor x = ones({1, 2, 3, 4}).set_requires_grad(),
               grid = from_vector<float>(points, {1, 8, 8, 2}).set_requires_grad();
        const Tensor y = grid_sample(x, grid, {mode, padding, corners});
        backward(sum(y));
        EXPECT_EQ(x.grad().shape(), x.shape());
        EXPECT_EQ(grid.grad().shape(), grid.shape());
        if (mode == GridMode::bicubic) continue;  // weights of no number
        for (int64_t i = 0; i < 64; ++i) {
          const float at_origin = y.to_vector<float>()[static_cast<size_t>(i)];
          const bool is_inside = padding != GridPadding::zeros || i == 63;
          EXPECT_NEAR(at_origin, is_inside ? 1 : 0, 1e-6) << "point " << i;
        }
      }
}

TEST(GridSample, OfTheIdentityGivesTheImage) {
  const Tensor theta = from_vector<double>({1, 0, 0, 0, 1, 0}, {1, 2, 3});
  const Tensor x = uniform({1, 3, 7, 5}, -1, 1, DType::f64);
  for (const GridMode mode : kModes)
    for (const bool corners : {false, true}) {
      const Tensor grid = affine_grid(theta, x.shape(), corners);
      EXPECT_TRUE(allclose(grid_sample(x, grid, {.mode = mode, .align_corners = corners}), x, 1e-12, 1e-12));
    }
}

TEST(GridSample, GradientsDoNotDependOnTheNumberOfThreads) {
  const int before = threads();
  std::vector<Tensor> found;
  for (const int count : {1, 2, 5}) {
    set_threads(count);
    manual_seed(3);
    Tensor x = uniform({3, 40, 9, 8}).set_requires_grad(),
           grid = uniform({3, 30, 31, 2}, -1.2, 1.2).set_requires_grad();
    backward(sum(square(grid_sample(x, grid, {.padding = GridPadding::border}))));
    found.push_back(x.grad());
    found.push_back(grid.grad());
  }
  set_threads(before);
  for (size_t i = 2; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], found[i % 2])) << i;
}

}  // namespace
}  // namespace tandem::testing
