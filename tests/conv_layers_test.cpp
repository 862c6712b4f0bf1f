// The convolution and pool layers.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/pool.h"
#include "tandem/ops/reduce.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

Tensor values(const Dims& shape, uint32_t salt = 1) { return to_tensor(hash_array(shape, salt), DType::f32); }

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && host_bytes(a) == host_bytes(b);
}

TEST(ConvLayers, HaveTheParametersOfPyTorch) {
  struct Layers : nn::Module {
    nn::Conv1d one{this, "one", 4, 6, 3, {.groups = 2}};
    nn::Conv2d two{this, "two", 3, 8, {3, 5}};
    nn::Conv3d three{this, "three", 2, 4, {1, 2, 3}, {.bias = false}};
    nn::ConvTranspose1d back_one{this, "back_one", 4, 6, 3, {.groups = 2}};
    nn::ConvTranspose2d back_two{this, "back_two", 3, 64, {3, 5}};
    nn::ConvTranspose3d back_three{this, "back_three", 2, 4, 2};
    Tensor forward(const Tensor& x) override { return x; }
  };
  manual_seed(3);
  Layers layers;
  EXPECT_EQ(layers.one.weight.shape(), (Dims{6, 2, 3}));
  EXPECT_EQ(layers.two.weight.shape(), (Dims{8, 3, 3, 5}));
  EXPECT_EQ(layers.three.weight.shape(), (Dims{4, 2, 1, 2, 3}));
  EXPECT_FALSE(layers.three.bias.defined());
  EXPECT_EQ(layers.back_one.weight.shape(), (Dims{4, 3, 3}));
  EXPECT_EQ(layers.back_one.bias.shape(), (Dims{6}));
  EXPECT_EQ(layers.back_three.weight.shape(), (Dims{2, 4, 2, 2, 2}));
  EXPECT_EQ(layers.named_parameters().size(), 11u);
  // PyTorch counts the inputs of a transposed unit from the weight's second size on: 64 · 15.
  double largest = 0;
  for (const float w : layers.back_two.weight.to_vector<float>())
    largest = std::max(largest, std::abs(static_cast<double>(w)));
  EXPECT_LE(largest, 1 / std::sqrt(64.0 * 15));
  EXPECT_GE(largest, 0.98 / std::sqrt(64.0 * 15));
}

TEST(ConvLayers, ComputeWhatTheirFunctionsDo) {
  struct Layers : nn::Module {
    nn::Conv1d one{this, "one", 4, 6, 3, {.stride = 2, .padding = 1, .groups = 2}};
    nn::Conv3d three{this, "three", 2, 4, {1, 2, 3}, {.padding = "same"}};
    nn::ConvTranspose2d back{this, "back", 3,
                             4,    3,      {.stride = {2, 1}, .padding = 1, .output_padding = {1, 0}}};
    Tensor forward(const Tensor& x) override { return x; }
  } layers;
  const Tensor x1 = values({2, 4, 9}), x2 = values({2, 3, 4, 5}), x3 = values({1, 2, 3, 4, 5});
  EXPECT_TRUE(same_bits(layers.one(x1), conv1d(x1, layers.one.weight, layers.one.bias,
                                               {.stride = 2, .padding = 1, .groups = 2})));
  EXPECT_EQ(layers.three(x3).shape(), (Dims{1, 4, 3, 4, 5}));
  EXPECT_EQ(layers.back(x2).shape(), (Dims{2, 4, 8, 5}));
  sum(layers.back(x2)).backward();
  EXPECT_EQ(layers.back.weight.grad().shape(), layers.back.weight.shape());
}

TEST(ConvLayers, RefuseSizesThatDoNotFit) {
  struct Net : nn::Module {
    Tensor forward(const Tensor& x) override { return x; }
  } net;
  EXPECT_THROW(nn::Conv1d(&net, "a", 3, 4, 0), Error);
  EXPECT_THROW(nn::Conv2d(&net, "b", 3, 4, {3, 3, 3}), Error);
  EXPECT_THROW(nn::Conv3d(&net, "c", 3, 4, 3, {.groups = 2}), Error);
  EXPECT_THROW(nn::ConvTranspose2d(&net, "d", 4, 3, 3, {.groups = 2}), Error);
}

TEST(Convolution, ByWinogradTilesIsNearlyAsExactAsBySums) {
  struct Form {
    Dims x, weight;
    Padding padding;
  };
  for (const Form& form :
       {Form{{6, 17, 15, 14}, {31, 17, 3, 3}, 1}, Form{{8, 16, 16, 13}, {32, 16, 3, 3}, {2, 0}},
        Form{{6, 40, 15, 14}, {41, 40, 3, 3}, 1}, Form{{30, 33, 7, 9}, {48, 33, 3, 3}, 0}}) {
    // f64 goes by plain sums; in f32 these shapes go by Winograd's tiles.
    std::vector<std::vector<double>> results[2];
    for (const DType dtype : {DType::f64, DType::f32}) {
      Tensor x = to_tensor(hash_array(form.x, 1), dtype),
             weight = to_tensor(hash_array(form.weight, 2), dtype);
      Tensor bias = to_tensor(hash_array({form.weight[0]}, 3), dtype);
      x.set_requires_grad();
      weight.set_requires_grad();
      const Tensor y = conv2d(x, weight, bias, {.padding = form.padding});
      const std::vector<Tensor> gradients =
          grad(y, std::vector{x, weight}, to_tensor(hash_array(y.shape(), 4), dtype));
      for (const Tensor& t : {y, gradients[0], gradients[1]})
        results[dtype == DType::f32].push_back(to_array(t).values);
    }
    for (size_t i = 0; i < 3; ++i) {
      double square = 0, worst = 0;
      for (size_t k = 0; k < results[0][i].size(); ++k) {
        square += results[0][i][k] * results[0][i][k];
        worst = std::max(worst, std::abs(results[0][i][k] - results[1][i][k]));
      }
      const double typical = std::sqrt(square / static_cast<double>(results[0][i].size()));
      EXPECT_LT(worst, 4e-6 * typical) << form.weight << " result " << i;
      EXPECT_GT(worst, 0);
    }
  }
}

TEST(PoolLayers, ComputeWhatTheirFunctionsDo) {
  struct Layers : nn::Module {
    nn::MaxPool2d max{this, "max", {.kernel = 3, .stride = 2, .padding = 1}};
    nn::AvgPool1d mean{this, "mean", {.kernel = 3}};
    nn::AdaptiveAvgPool2d fixed{this, "fixed", {2, 3}};
    nn::AdaptiveMaxPool3d volume{this, "volume", 2};
    nn::Upsample larger{this, "larger", {.scale = {2}, .mode = "bilinear"}};
    Tensor forward(const Tensor& x) override { return larger(fixed(max(x))); }
  } layers;
  const Tensor x = values({2, 3, 9, 8});
  EXPECT_TRUE(same_bits(layers.max(x), max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1})));
  EXPECT_TRUE(same_bits(layers.mean(values({2, 3, 9})), avg_pool1d(values({2, 3, 9}), {.kernel = 3})));
  EXPECT_EQ(layers(x).shape(), (Dims{2, 3, 4, 6}));
  EXPECT_EQ(layers.volume(values({1, 2, 4, 4, 4})).shape(), (Dims{1, 2, 2, 2, 2}));
  EXPECT_TRUE(layers.named_parameters().empty());
}

}  // namespace
}  // namespace tandem::testing
