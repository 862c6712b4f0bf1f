// Normalising layers: values and running statistics of PyTorch, the same bits in both engines, buffers as state.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tests/support/paths.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

/// A module that is one layer.
struct Holder : nn::Module {
  std::unique_ptr<nn::Module> layer;
  Tensor forward(const Tensor& x) override { return (*layer)(x); }
};

template <class Layer, class... Args>
std::unique_ptr<Holder> holding(Args... args) {
  auto holder = std::make_unique<Holder>();
  holder->layer = std::make_unique<Layer>(holder.get(), "layer", args...);
  return holder;
}

std::unique_ptr<Holder> make_layer(const std::string& name) {
  using namespace nn;
  if (name == "batch_norm_1d") return holding<BatchNorm1d>(4);
  if (name == "batch_norm_1d_long")
    return holding<BatchNorm1d>(4, BatchNormLayerOptions{.eps = 0.01, .momentum = 0.3});
  if (name == "batch_norm_2d") return holding<BatchNorm2d>(3);
  if (name == "batch_norm_2d_plain") return holding<BatchNorm2d>(3, BatchNormLayerOptions{.affine = false});
  if (name == "batch_norm_2d_untracked")
    return holding<BatchNorm2d>(3, BatchNormLayerOptions{.track_running_stats = false});
  if (name == "batch_norm_3d") return holding<BatchNorm3d>(2);
  if (name == "layer_norm") return holding<LayerNorm>(Dims{4, 5});
  if (name == "layer_norm_no_bias") return holding<LayerNorm>(Dims{5}, LayerNormOptions{.bias = false});
  if (name == "group_norm") return holding<GroupNorm>(2, 6);
  if (name == "instance_norm_1d") return holding<InstanceNorm1d>(3, InstanceNormOptions{.affine = true});
  if (name == "instance_norm_2d") return holding<InstanceNorm2d>(3);
  if (name == "instance_norm_3d") return holding<InstanceNorm3d>(3);
  if (name == "rms_norm") return holding<RMSNorm>(Dims{5});
  throw Error("no layer " + name);
}

void set_weights(nn::Module& module) {
  const NoGrad off;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const std::string own = name.substr(name.find('.') + 1);
    assign(parameter, to_tensor(hash_array(parameter.shape(), name_salt(own), 0.5, 2), DType::f64));
  }
}

TEST(NormLayers, GivePyTorchsValuesAndRunningStatistics) {
  std::map<std::string, std::map<std::string, Array>> golden;
  std::ifstream file(source_dir() / "tests" / "golden" / "norm_layers.txt");
  ASSERT_TRUE(file.good());
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string layer, key, shape;
    in >> layer >> key >> shape;
    Dims dims;
    std::istringstream sizes(shape == "-" ? "" : shape);
    for (std::string size; std::getline(sizes, size, ',');) dims.push_back(std::stoll(size));
    Array& values = golden[layer][key] = Array(dims);
    for (double& v : values.values) in >> v;
    ASSERT_FALSE(in.fail());
  }
  ASSERT_EQ(golden.size(), 13u);
  for (const auto& [name, values] : golden)
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(str(name, " in ", dtype));
      const double tolerance = dtype == DType::f64 ? 1e-8 : 5e-5;  // RMSNorm's eps is that of f32 there
      const auto module = make_layer(name);
      module->to(dtype);
      set_weights(*module);
      for (uint32_t i = 0; i < 3; ++i) {
        module->train(i < 2);
        const Array& want = values.at(str("y", i));
        const Tensor y = (*module)(to_tensor(hash_array(want.shape, 700 + i, -1, 2), dtype));
        EXPECT_TRUE(near(to_array(y), want, tolerance)) << "batch " << i;
      }
      size_t found = 0;
      for (const auto& [full, tensor] : module->state()) {
        const auto row = values.find(full.substr(full.find('.') + 1));
        ASSERT_NE(row, values.end()) << full;
        EXPECT_TRUE(near(to_array(tensor), row->second, tolerance)) << full;
        ++found;
      }
      EXPECT_EQ(found + 3, values.size());
    }
}

TEST(BatchNorm, RunningStatisticsOfACompiledStepHaveTheBitsOfEagerOnes) {
  const auto eager = make_layer("batch_norm_2d"), traced = make_layer("batch_norm_2d");
  set_weights(*eager);
  set_weights(*traced);
  Compiled step =
      compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{(*traced)(in[0])}; });
  for (uint32_t i = 0; i < 6; ++i) {
    if (i == 4) eager->eval(), traced->eval();  // by the statistics so far
    const Tensor x = to_tensor(hash_array({4, 3, 5, 6}, 40 + i), DType::f32);
    EXPECT_TRUE(same_bits(step({x})[0], (*eager)(x))) << "call " << i;
    const auto want = eager->named_buffers(), got = traced->named_buffers();
    ASSERT_EQ(want.size(), 2u);
    for (size_t b = 0; b < 2; ++b) {
      EXPECT_TRUE(same_bits(got[b].second, want[b].second)) << want[b].first << ", call " << i;
      EXPECT_FALSE(got[b].second.requires_grad());
    }
  }
}

TEST(BatchNorm, BuffersAreStateButNotParameters) {
  const auto module = make_layer("batch_norm_1d"), other = make_layer("batch_norm_1d");
  EXPECT_EQ(module->named_parameters().size(), 2u);
  EXPECT_EQ(module->named_buffers().size(), 2u);
  EXPECT_EQ(module->state().size(), 4u);
  (*module)(to_tensor(hash_array({5, 4}, 3), DType::f32));
  other->load_state(module->state(), "test");
  for (size_t b = 0; b < 2; ++b)
    EXPECT_TRUE(same_bits(other->named_buffers()[b].second, module->named_buffers()[b].second));
  other->to(DType::bf16);
  EXPECT_EQ(other->named_buffers()[0].second.dtype(), DType::bf16);
  const std::string message = error_of([&] { (*module)(ones({2, 3})); });
  EXPECT_NE(message.find("BatchNorm1d layer: "), std::string::npos) << message;
  EXPECT_NE(message.find("(2, 3)"), std::string::npos) << message;
}

/// Of 6 steps 6, 2 and 5 are true, (3, 1, 6).
Tensor true_steps() {
  return less(reshape(arange(6), {1, 1, 6}), reshape(from_vector<int64_t>({6, 2, 5}, {3}), {3, 1, 1}));
}
/// x (3, 4, 6) with `padding` behind the true steps.
Tensor padded_steps(double padding) {
  return where(true_steps(), to_tensor(hash_array({3, 4, 6}, 60), DType::f64), padding);
}

TEST(BatchNorm, WhatItsMaskLeavesOutIsAsIfItWasNotThere) {
  const Tensor mask = true_steps(), x = padded_steps(0);
  // The true steps alone, as rows.
  const Tensor rows = concat(
      {transpose(x[0], 0, 1), transpose(slice(x[1], 1, 0, 2), 0, 1), transpose(slice(x[2], 1, 0, 5), 0, 1)},
      0);
  for (const double padding : {0., 1e6, std::nan("")}) {
    nn::BatchNorm1d masked(nullptr, "norm", 4), plain(nullptr, "norm", 4);
    masked.to(DType::f64), plain.to(DType::f64);
    set_weights(masked), set_weights(plain);
    for (const bool training : {true, false}) {
      masked.train(training), plain.train(training);
      const Array out = to_array(masked(padded_steps(padding), mask)), want = to_array(plain(rows));
      for (Dim sample = 0, row = 0; sample < 3; ++sample)
        for (Dim step = 0; step < 6; ++step) {
          const bool counts = step < (sample == 0 ? 6 : sample == 1 ? 2 : 5);
          for (Dim c = 0; c < 4; ++c)
            EXPECT_NEAR(out.at({sample, c, step}), counts ? want.at({row, c}) : 0, 1e-12)
                << sample << step << c;
          row += counts;
        }
    }
    for (size_t b = 0; b < 2; ++b)
      EXPECT_TRUE(
          near(to_array(masked.named_buffers()[b].second), to_array(plain.named_buffers()[b].second), 1e-12));
  }
  nn::BatchNorm1d norm(nullptr, "norm", 4);
  const nn::NamedTensors before = norm.state();
  norm(ones({3, 4, 6}), zeros({3, 1, 6}, DType::boolean));  // of no value there are no statistics
  for (size_t b = 0; b < before.size(); ++b)
    EXPECT_TRUE(same_bits(norm.state()[b].second, before[b].second)) << before[b].first;
  EXPECT_NE(error_of([&] { norm(x, mask, mask); }).find("takes x, or x and a mask; got 3 tensors"),
            std::string::npos);
}

TEST(BatchNorm, ACompiledStepWithAMaskHasTheBitsOfAnEagerOne) {
  nn::BatchNorm1d eager(nullptr, "norm", 4), traced(nullptr, "norm", 4);
  set_weights(eager), set_weights(traced);
  const auto step = [](nn::BatchNorm1d& norm, const Tensor& x, const Tensor& mask) {
    Tensor in = x.detach().set_requires_grad(true);
    const Tensor out = norm(in, mask);
    return std::vector<Tensor>{out.detach(), grad(sum(out * out * x), {in})[0]};
  };
  Compiled compiled = compile([&](const std::vector<Tensor>& in) { return step(traced, in[0], in[1]); });
  for (uint32_t i = 0; i < 4; ++i) {
    if (i == 3) eager.eval(), traced.eval();
    const Tensor x = to_tensor(hash_array({5, 4, 7}, 70 + i), DType::f32),
                 mask = less(to_tensor(hash_array({5, 1, 7}, 80 + i), DType::f32), 0.3);
    const std::vector<Tensor> want = step(eager, x, mask), got = compiled({x, mask});
    for (size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(same_bits(got[k], want[k])) << i << " " << k;
    for (size_t b = 0; b < 2; ++b)
      EXPECT_TRUE(same_bits(traced.named_buffers()[b].second, eager.named_buffers()[b].second)) << i;
  }
}

/// Forward and gradients at 1, 2 and 5 threads.
void expect_same_at_any_count(const Dims& shape, const std::function<Tensor(const Tensor&)>& call) {
  const int before = threads();
  std::vector<Tensor> first;
  for (const int count : {1, 2, 5}) {
    set_threads(count);
    Tensor x = to_tensor(hash_array(shape, 8), DType::f32).set_requires_grad();
    const Tensor y = call(x);
    const std::vector<Tensor> results = {y.detach(), grad(y, std::vector<Tensor>{x}, y.detach() + 1.0)[0]};
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(same_bits(results[i], first[i])) << i << " at " << count << " threads";
  }
  set_threads(before);
}

TEST(RowOps, GiveTheSameBitsAtAnyNumberOfThreads) {
  const Tensor weight = to_tensor(hash_array({700}, 1), DType::f32),
               few = to_tensor(hash_array({6}, 2), DType::f32);
  expect_same_at_any_count({90, 700}, [&](const Tensor& x) { return layer_norm(x, {700}, weight, weight); });
  expect_same_at_any_count({40, 6, 300}, [&](const Tensor& x) { return group_norm(x, 2, few, few); });
  expect_same_at_any_count(
      {40, 6, 300}, [&](const Tensor& x) { return batch_norm(x, {}, {}, few, few, {.training = true}); });
  expect_same_at_any_count(
      {9000, 6}, [&](const Tensor& x) { return batch_norm(x, {}, {}, few, few, {.training = true}); });
  expect_same_at_any_count({90, 700}, [](const Tensor& x) { return softmax(x); });
  expect_same_at_any_count({90, 700}, [](const Tensor& x) { return softmax(x, 0); });
  expect_same_at_any_count({9000, 70}, [](const Tensor& x) { return sum(x, {0}); });
  expect_same_at_any_count({3, 900, 70}, [](const Tensor& x) { return sum(x, {1}); });
  expect_same_at_any_count({300, 700}, [](const Tensor& x) { return cumprod(x, 1); });
  expect_same_at_any_count({300, 700}, [](const Tensor& x) { return cumsum(x, 0); });
}

TEST(Variance, IsSoundFarFromZero) {
  // Numbers around 10000 with a deviation of 1/8: squares in f32 would lose all of it.
  Array x = hash_array({1000}, 5, -0.25, 0.25);
  double mean = 0, squares = 0;
  for (double& v : x.values) v = static_cast<double>(static_cast<float>(v + 10000)), mean += v / 1000;
  for (const double v : x.values) squares += (v - mean) * (v - mean);
  const Tensor t = to_tensor(x, DType::f32);
  EXPECT_NEAR(var(t).item<double>(), squares / 999, 1e-4 * squares / 999);
  const Tensor y = layer_norm(t, {1000}, {}, {}, 0);
  EXPECT_NEAR(var(y, {}, false, 0).item<double>(), 1, 1e-3);
}

TEST(Softmax, OfNanOrInfinityIsNanAndNothingElse) {
  for (const int64_t n : {5, 40, 5000})
    for (const double odd : {std::nan(""), HUGE_VAL}) {
      Array x = hash_array({2, n}, 3);
      x[n / 2] = odd;
      const Array y = to_array(softmax(to_tensor(x, DType::f32)));
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_TRUE(std::isnan(y[i])) << n;
        EXPECT_FALSE(std::isnan(y[n + i])) << n;
      }
    }
  Array masked = hash_array({1, 40}, 3);
  masked[7] = -HUGE_VAL;
  EXPECT_EQ(to_array(softmax(to_tensor(masked, DType::f32)))[7], 0);
}

TEST(Reductions, TreatNanInfinityAndNothingAsPyTorchDoes) {
  const Tensor odd = from_vector<float>({1, NAN, 0, -2, NAN, 3}, {2, 3});
  EXPECT_EQ(argmin(odd, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(all(odd, {1}).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ(count_nonzero(odd).item<int64_t>(), 5);
  EXPECT_EQ(norm(from_vector<float>({0, INFINITY}, {2}), 0).item<float>(), 1);
  EXPECT_EQ(logsumexp(from_vector<float>({-INFINITY, -INFINITY}, {2})).item<float>(), -INFINITY);
  EXPECT_EQ(logsumexp(from_vector<float>({INFINITY, 1}, {2})).item<float>(), INFINITY);
  EXPECT_EQ(logsumexp(zeros({0})).item<float>(), -INFINITY);
  EXPECT_EQ(logsumexp(from_vector<float>({1000, 1000}, {2})).item<float>(), 1000 + std::log(2.f));
  EXPECT_TRUE(all(zeros({0})).item<bool>());
  EXPECT_FALSE(any(zeros({0})).item<bool>());
  EXPECT_EQ(prod(zeros({0})).item<float>(), 1);
  EXPECT_TRUE(std::isnan(var(ones({1})).item<float>()));
  // Norms and deviations of 0 have a gradient of 0.
  Tensor x = zeros({3}).set_requires_grad();
  for (const double p : {0., 0.5, 1., 2., 3.})
    EXPECT_EQ(grad(norm(x, p), std::vector<Tensor>{x})[0].to_vector<float>(), (std::vector<float>{0, 0, 0}))
        << p;
  EXPECT_EQ(grad(stddev(x), std::vector<Tensor>{x})[0].to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace tandem::testing
