// Products and convolutions of full f32 on CUDA (TANDEM_TF32=0): as exact as f32 can be, infinities included. Apart from
// cuda_test.cpp, where TF32 is on.
// ctest: cuda
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tandem/core/backend.h"
#include "tandem/core/choices.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

constexpr Device kCpu{}, kGpu{DeviceKind::cuda, 0};
constexpr double kRounding = 2e-6;  // of the norm; cuDNN has 1.1e-6 here and there, tf32 would be about 5e-4
constexpr double kFastest =
    1e-5;  // of what `profile` may choose: cuDNN's Winograd tiles of 4x4 have 1.5e-6 here

class CudaF32 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("TANDEM_TF32", "0", 1); }
  void SetUp() override {
    if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  }
};

/// Normal numbers of many sizes, all of 24 bits.
Tensor numbers(const Dims& shape) { return normal(shape, 0, 1) * exp(normal(shape, 0, 1)); }

void expect_rounded(const Tensor& got, const Tensor& want, const std::string& what,
                    double rounding = kRounding) {
  EXPECT_LE(relative_distance(to_array(got), to_array(want)), rounding) << what;
}

TEST_F(CudaF32, ProductsKeepAllBits) {
  for (const Dims& size : {Dims{1, 1, 1}, Dims{100, 400, 120}, Dims{100, 120, 84}, Dims{17, 33, 9},
                           Dims{300, 784, 70}, Dims{500, 1000, 40}, Dims{64, 4099, 100}}) {
    manual_seed(1);
    const Tensor a = numbers({size[0], size[1]}), b = numbers({size[1], size[2]});
    const Tensor want = matmul(cast(a, DType::f64), cast(b, DType::f64));
    const Tensor ga = to(a, kGpu), gb = to(b, kGpu);
    expect_rounded(matmul(ga, gb), want, str("product ", size));
    expect_rounded(matmul(transpose(contiguous(transpose(ga))), gb), want, str("laid out otherwise ", size));
  }
}

// Algorithms are kept by shape: one that was chosen under tf32 must not serve full f32, nor the other way round.
TEST_F(CudaF32, TheSwitchOfTf32ActsOnShapesThatWereSeenBefore) {
  manual_seed(3);
  const Tensor a = numbers({512, 300}), b = numbers({300, 256});
  const Tensor want = matmul(cast(a, DType::f64), cast(b, DType::f64));
  const Tensor ga = to(a, kGpu), gb = to(b, kGpu), weight = contiguous(transpose(gb)),
               zero = to(zeros({256}), kGpu);
  for (const bool rounds : {false, true, false, true}) {
    set_tf32(rounds);
    for (const Tensor& got : {matmul(ga, gb), linear(ga, weight, zero)}) {
      const double distance = relative_distance(to_array(got), to_array(want));
      if (rounds)
        EXPECT_GT(distance, 20 * kRounding);
      else
        EXPECT_LE(distance, kRounding);
    }
  }
  set_tf32(false);
}

TEST_F(CudaF32, ConvolutionsKeepAllBits) {
  struct Form {
    Dims x, weight;
    Conv2dOptions options;
  };
  const Form forms[] = {
      {{3, 1, 28, 28}, {6, 1, 5, 5}, {.padding = 2}},
      {{130, 6, 14, 14}, {16, 6, 5, 5}, {}},
      {{2, 1, 26, 26}, {32, 1, 3, 3}, {}},
      {{2, 3, 17, 13}, {7, 3, 3, 2}, {.stride = 2, .padding = 1}},
      {{2, 40, 12, 12}, {64, 40, 3, 3}, {.padding = 1}},
  };
  for (const Form& form : forms) {
    const auto run = [&](Device device, DType type) {
      manual_seed(2);
      const auto make = [&](const Dims& shape) { return to(cast(numbers(shape), type), device); };
      const Tensor x = make(form.x).set_requires_grad(), weight = make(form.weight).set_requires_grad();
      const Tensor y = conv2d(x, weight, make({form.weight[0]}), form.options);
      std::vector<Tensor> all = grad(y, std::vector<Tensor>{x, weight}, make(y.shape()));
      all.push_back(y.detach());
      return all;
    };
    const auto want = run(kCpu, DType::f64), got = run(kGpu, DType::f32);
    set_convolution_choice({.mode = ChoiceMode::profile, .keep = false});
    const auto fastest = run(kGpu, DType::f32);
    set_convolution_choice({});
    for (size_t i = 0; i < want.size(); ++i) {
      const std::string what = str("result ", i, " of x ", form.x, ", weight ", form.weight);
      expect_rounded(got[i], want[i], what);
      expect_rounded(fastest[i], want[i], what + ", by time", kFastest);
    }
  }
}

TEST_F(CudaF32, InfinitiesAndLargeNumbersGoThrough) {
  const float most = std::numeric_limits<float>::max();
  Tensor a = ones({16, 32}), b = ones({32, 16});
  float* left = a.data<float>();
  left[0] = INFINITY;         // row 0
  left[32] = -INFINITY;       // row 1
  left[2 * 32] = NAN;         // row 2
  left[3 * 32] = most;        // row 3: half of it comes out
  b.data<float>()[0] = 0.5f;  // column 0
  const Tensor product = to(matmul(to(a, kGpu), to(b, kGpu)), kCpu);
  const std::vector<float> c = product.to_vector<float>();
  EXPECT_EQ(c[0], INFINITY);
  EXPECT_EQ(c[1], INFINITY);
  EXPECT_EQ(c[16], -INFINITY);
  EXPECT_TRUE(std::isnan(c[32]));
  EXPECT_FLOAT_EQ(c[48], most * 0.5f);
  EXPECT_EQ(c[4 * 16], 31.5f);
  EXPECT_EQ(c[5 * 16 + 1], 32.f);
}

// Groups of taps and of pixels are filled up with zeros, which must not meet what they stand beside: all factors but one
// are positive and finite here, so an infinity is the only thing that may come of it.
TEST_F(CudaF32, AnInfinityInAConvolutionGivesInfinitiesAndNoNan) {
  struct Form {
    Dims x, weight;
    Conv2dOptions options;
  };
  for (const Form& form : {Form{{2, 1, 28, 28}, {6, 1, 5, 5}, {.padding = 2}},
                           Form{{3, 3, 9, 9}, {7, 3, 3, 3}, {}}, Form{{2, 6, 14, 14}, {16, 6, 5, 5}, {}}}) {
    for (const int64_t place : {int64_t{0}, int64_t{5}, form.x[2] * form.x[3] - 1}) {
      const auto run = [&](Device device) {
        Tensor image = full(form.x, 0.5);
        image.data<float>()[place] = INFINITY;
        const Tensor x = to(image, device).set_requires_grad();
        const Tensor weight = to(full(form.weight, 0.25), device).set_requires_grad();
        const Tensor y = conv2d(x, weight, to(zeros({form.weight[0]}), device), form.options);
        Tensor down = full(y.shape(), 0.75);
        down.data<float>()[place % y.size()] = INFINITY;
        return std::vector<Tensor>{
            to(y.detach(), kCpu), to(grad(y, {weight}, to(full(y.shape(), 0.75), device))[0], kCpu),
            to(grad(conv2d(x, weight, to(zeros({form.weight[0]}), device), form.options), {x},
                    to(down, device))[0],
               kCpu)};
      };
      const auto want = run(kCpu), got = run(kGpu);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto a = want[i].to_vector<float>(), b = got[i].to_vector<float>();
        int64_t differ = 0;
        for (size_t k = 0; k < a.size(); ++k)
          differ += std::isinf(a[k]) != std::isinf(b[k]) || std::isnan(b[k]);
        EXPECT_EQ(differ, 0) << "result " << i << " of x " << str(form.x) << ", infinity at " << place;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::testing
