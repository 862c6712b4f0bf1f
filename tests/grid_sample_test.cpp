// grid_sample beyond its op cases: points that are no numbers, the identity, threads.
// ctest: asan
#include "tandem/ops/grid_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr GridMode kModes[] = {GridMode::bilinear, GridMode::nearest, GridMode::bicubic};
constexpr GridPadding kPaddings[] = {GridPadding::zeros, GridPadding::border, GridPadding::reflection};

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<float> kHard = {kInf, -kInf, std::nanf(""), 3e38f, -3e38f, 1e9f, -1e9f, 0.f};

TEST(GridSample, OfPointsThatAreFarOrNoNumbersReadsNothingOutsideOfTheImage) {
  std::vector<float> points;
  for (const float x : kHard)
    for (const float y : kHard) points.insert(points.end(), {x, y});
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
          const bool is_number = i / 8 > 2 && i % 8 > 2;
          const bool is_inside = padding != GridPadding::zeros || i == 63;
          if (!is_number && padding == GridPadding::zeros && mode == GridMode::bilinear)
            EXPECT_TRUE(std::isnan(at_origin)) << "point " << i;
          else
            EXPECT_NEAR(at_origin, is_inside ? 1 : 0, 1e-6) << "point " << i;
        }
      }
}

// What PyTorch's CPU gives (aten/src/ATen/native/cpu/GridSamplerKernel.cpp).
TEST(GridSample, OfCoordinatesThatAreNoNumbersGivesWhatPyTorchGives) {
  const float nan = std::nanf("");
  struct Case {
    GridMode mode;
    GridPadding padding;
    float plus_inf, minus_inf, not_a_number;
  };
  const Case cases[] = {{GridMode::bilinear, GridPadding::zeros, nan, nan, nan},
                        {GridMode::bilinear, GridPadding::border, 4, 1, 1},
                        {GridMode::bilinear, GridPadding::reflection, 1, 1, 1},
                        {GridMode::nearest, GridPadding::zeros, 0, 0, 0},
                        {GridMode::nearest, GridPadding::border, 4, 1, 1},
                        {GridMode::nearest, GridPadding::reflection, 1, 1, 1},
                        {GridMode::bicubic, GridPadding::zeros, nan, nan, nan},
                        {GridMode::bicubic, GridPadding::border, nan, nan, nan},
                        {GridMode::bicubic, GridPadding::reflection, nan, nan, nan}};
  const Tensor points = from_vector<float>({kInf, 0, -kInf, 0, nan, 0}, {1, 1, 3, 2});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const bool corners : {false, true})
      for (const Case& c : cases) {
        const Tensor x = cast(reshape(arange(1, 5, 1, DType::f32), {1, 1, 1, 4}), dtype);
        const Tensor want = from_vector<float>({c.plus_inf, c.minus_inf, c.not_a_number}, {1, 1, 1, 3});
        EXPECT_TRUE(same_bits(
            cast(grid_sample(x, cast(points, dtype), {c.mode, c.padding, corners}), DType::f32), want))
            << name(dtype) << " mode " << static_cast<int>(c.mode) << " padding "
            << static_cast<int>(c.padding);
      }
}

TEST(GridSample, AtAPointThatIsNoNumberGivesTheGridANaNGradientAndTheImageNone) {
  for (const float hard : {kInf, -kInf, std::nanf("")})
    for (const bool across : {false, true}) {
      Tensor x = ones({1, 2, 3, 4}).set_requires_grad();
      Tensor grid =
          from_vector<float>({across ? hard : 0, across ? 0 : hard, 0, 0}, {1, 1, 2, 2}).set_requires_grad();
      Tensor alone = ones({1, 2, 3, 4}).set_requires_grad();
      backward(sum(grid_sample(x, grid)));
      backward(sum(grid_sample(alone, zeros({1, 1, 1, 2}))));
      EXPECT_TRUE(same_bits(x.grad(), alone.grad()));
      const std::vector<float> by_point = grid.grad().to_vector<float>();
      EXPECT_TRUE(std::isnan(by_point[0]) && std::isnan(by_point[1]));
      EXPECT_TRUE(std::isfinite(by_point[2]) && std::isfinite(by_point[3]));
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
