// Ops that multiply bf16 matrices, convolutions among them, by the processor's bf16 instructions, or an emulation of one
// where it has none. Results and gradients are compared with the same op in f64, whose own tests are elsewhere: a sum
// of products is linear in each factor, so the op of the magnitudes says how much rounding is allowed
// (bf16_products_test.cpp derives it).
// ctest: asan tsan
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tests/support/bf16_emulation.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;

struct Call {
  const char* name;
  std::vector<Dims> shapes;
  std::function<Tensor(const List&)> run;
  int64_t terms;  // of the longest sum
};

std::vector<Call> matrix_calls() {
  const auto product = [](const List& in) { return matmul(in[0], in[1]); };
  return {
      {"matmul", {{19, 40}, {40, 21}}, product, 40},
      {"matmul of batches", {{3, 9, 40}, {3, 40, 21}}, product, 40},
      {"matmul of a vector", {{70, 40}, {40}}, product, 70},
      {"matmul of transposed views",
       {{40, 19}, {21, 40}},
       [](const List& in) { return matmul(transpose(in[0], 0, 1), transpose(in[1], 0, 1)); },
       40},
      {"linear", {{20, 33}, {17, 33}, {17}}, [](const List& in) { return linear(in[0], in[1], in[2]); }, 33},
  };
}

/// Of so many channels that forward and both gradients are products.
std::vector<Call> convolution_calls() {
  const auto conv = [](ConvOptions options) {
    return
        [options](const List& in) { return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), options); };
  };
  return {
      {"plain", {{3, 24, 9, 7}, {25, 24, 3, 3}, {25}}, conv({.padding = 1}), 225},
      {"stride 2", {{2, 24, 11, 9}, {26, 24, 3, 3}, {26}}, conv({.stride = 2, .padding = 1}), 234},
      {"stride and dilation",
       {{2, 24, 16, 13}, {24, 24, 3, 2}},
       conv({.stride = 3, .padding = 2, .dilation = 2}),
       144},
      {"stride beyond the kernel", {{2, 24, 7, 8}, {24, 24, 2, 2}}, conv({.stride = 3}), 96},
      {"padding beyond the kernel", {{2, 24, 4, 4}, {24, 24, 2, 2}}, conv({.padding = 3}), 162},
      {"groups", {{2, 48, 6, 5}, {52, 24, 3, 3}}, conv({.padding = 1, .groups = 2}), 234},
      {"many small images", {{70, 24, 3, 2}, {24, 24, 2, 2}}, conv({.padding = 1}), 840},
      {"1x1 with stride", {{3, 24, 6, 5}, {30, 24, 1, 1}}, conv({.stride = 2}), 30},
      {"1x1", {{3, 24, 6, 5}, {30, 24, 1, 1}, {30}}, conv({}), 90},
      {"rows longer than a stripe",
       {{1, 24, 2100}, {24, 24, 3}},
       [](const List& in) { return conv1d(in[0], in[1], {}, {.padding = 1}); },
       2100},
  };
}

/// The result and the gradients with respect to all inputs.
List results(const Call& call, const List& in, const Tensor& seed) {
  List leaves;
  for (const Tensor& x : in) leaves.push_back(x.detach().set_requires_grad());
  const Tensor y = call.run(leaves);
  List all = {y.detach()};
  for (const Tensor& g : grad(y, leaves, seed)) all.push_back(g);
  return all;
}

List converted(const List& in, DType dtype, bool magnitudes = false) {
  List all;
  for (const Tensor& x : in) all.push_back(cast(magnitudes ? abs(x) : x, dtype));
  return all;
}

List bf16_inputs(const Call& call) {
  List in;
  for (size_t i = 0; i < call.shapes.size(); ++i)
    in.push_back(to_tensor(hash_array(call.shapes[i], static_cast<uint32_t>(i + 1)), DType::bf16));
  return in;
}

void expect_right(const Call& call) {
  const List in = bf16_inputs(call);
  const Tensor seed = to_tensor(hash_array(call.run(in).shape(), 9), DType::bf16);
  const List got = results(call, in, seed);
  const List exact = results(call, converted(in, DType::f64), cast(seed, DType::f64));
  const List sizes = results(call, converted(in, DType::f64, true), cast(abs(seed), DType::f64));
  // Blocks of k and of images are added after the products: no more than 32 of them here.
  const double steps = static_cast<double>(call.terms + 32) * 0x1p-23;
  for (size_t i = 0; i < got.size(); ++i) {
    const Array g = to_array(got[i]), e = to_array(exact[i]), s = to_array(sizes[i]);
    ASSERT_EQ(g.shape, e.shape);
    for (size_t j = 0; j < g.values.size(); ++j) {
      const double allowed = steps / (1 - steps) * s.values[j];
      ASSERT_NEAR(g.values[j], e.values[j], allowed + 0x1p-8 * (std::abs(e.values[j]) + allowed))
          << call.name << ": element " << j << " of " << (i == 0 ? "the result" : "gradient ") << i;
    }
  }
}

void expect_same_bits_everywhere(const Call& call) {
  const List in = bf16_inputs(call);
  const Tensor seed = to_tensor(hash_array(call.run(in).shape(), 9), DType::bf16);
  const List first = results(call, in, seed);
  const auto expect_same = [&](const List& other, const std::string& what) {
    ASSERT_EQ(other.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(same_bits(other[i], first[i])) << call.name << ", " << what << ", " << i;
  };
  const int before = threads();
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    expect_same(results(call, in, seed), std::to_string(count) + " threads");
  }
  set_threads(before);
  Compiled compiled =
      compile([&](const List& all) { return results(call, List(all.begin(), all.end() - 1), all.back()); });
  List all = in;
  all.push_back(seed);
  expect_same(compiled(all), "graph");
}

std::atomic<int64_t> tiles = 0;
const cpu::Bf16Kernel* counted = nullptr;
/// The kernel, counting its tiles.
cpu::Bf16Kernel counting(const cpu::Bf16Kernel& kernel) {
  cpu::Bf16Kernel result = kernel;
  counted = &kernel;
  result.multiply = [](const BFloat16* a, const BFloat16* b, int64_t k, float* sums) {
    ++tiles;
    counted->multiply(a, b, k, sums);
  };
  return result;
}

/// The last one is the processor's, where it has one.
const cpu::Bf16Kernel& own_kernel() { return *bf16_kernels().back(); }

TEST(Bf16Ops, MatrixProductsAreRight) {
  for (const cpu::Bf16Kernel* kernel : bf16_kernels()) {
    SCOPED_TRACE(kernel->name);
    const WithBf16Kernel with(kernel);
    for (const Call& call : matrix_calls()) expect_right(call);
  }
}

TEST(Bf16Ops, ConvolutionsAreRight) {
  const WithBf16Kernel with(&own_kernel());
  for (const Call& call : convolution_calls()) expect_right(call);
}

TEST(Bf16Ops, AreRightInF32OnWidenedElements) {
  const WithBf16Kernel with(nullptr);
  for (const Call& call : matrix_calls()) expect_right(call);
  for (const Call& call : convolution_calls()) expect_right(call);
}

TEST(Bf16Ops, HaveTheSameBitsInBothEnginesAndForAnyNumberOfThreads) {
  const WithBf16Kernel with(&own_kernel());
  for (const Call& call : matrix_calls()) expect_same_bits_everywhere(call);
  for (const Call& call : convolution_calls()) expect_same_bits_everywhere(call);
}

TEST(Bf16Ops, UseTheKernelForwardAndForEveryGradient) {
  const cpu::Bf16Kernel kernel = counting(own_kernel());
  const WithBf16Kernel with(&kernel);
  const auto expect_use = [](const Call& call) {
    const List in = bf16_inputs(call);
    int64_t before = tiles;
    const Tensor x = in[0].detach().set_requires_grad(), w = in[1].detach().set_requires_grad();
    const Tensor y = call.run({x, w});
    EXPECT_GT(tiles, before) << call.name;
    const Tensor seed = to_tensor(hash_array(y.shape(), 9), DType::bf16);
    for (const Tensor& leaf : {x, w}) {
      before = tiles;
      (void)grad(y, {leaf}, seed);
      EXPECT_GT(tiles, before) << call.name;
    }
  };
  expect_use(matrix_calls()[0]);
  for (const Call& call : convolution_calls()) expect_use(call);
}

}  // namespace
}  // namespace tandem::testing
