// vjp, jvp, jacobian, hessian: values of torch.autograd.functional (golden/make_derivatives.py), the same bits in both
// engines, gradients through them, and refusals.
// ctest: asan
#include "tandem/nn/functional_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/paths.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;

Tensor values(const Dims& shape, uint32_t salt, DType dtype) {
  return to_tensor(hash_array(shape, salt), dtype);
}

/// The functions of the script, and what it differentiates them with.
struct Functions {
  explicit Functions(DType dtype)
      : weight(values({3, 4}, 7, dtype)),
        x(values({2, 3}, 1, dtype)),
        a(values({2}, 2, dtype)),
        b(values({3}, 3, dtype)),
        type(dtype) {}

  OneToOne net() const {
    return [w = weight](const Tensor& x) { return tanh(matmul(x, w)) * exp(sum(x, {-1}, true) * 0.1); };
  }
  static List two(const List& in) { return {sin(in[0]) * sum(in[1]), pow(unsqueeze(in[0], 1) * in[1], 3.0)}; }
  static Tensor scalar(const List& in) {
    return sum(exp(in[0] * 0.5)) * sum(in[1] * in[1]) + sum(pow(in[0][0] * in[1], 3.0));
  }
  OneToOne energy() const {
    return [w = weight](const Tensor& x) { return sum(square(tanh(matmul(x, w)))) + x[0][0] * x[1][2]; };
  }

  /// Every derivative by the name that the script gives it. `in` is {x, a, b}.
  std::map<std::string, Tensor> all(const List& in) const {
    std::map<std::string, Tensor> out;
    const auto add = [&](const std::string& name, const List& list) {
      for (size_t i = 0; i < list.size(); ++i) out[str(name, ".", i)] = list[i];
    };
    const auto seed = [&](const Dims& shape, uint32_t salt) { return values(shape, salt, type); };
    const List pair = {in[1], in[2]};
    out["net.vjp"] = vjp(net(), in[0], seed({2, 4}, 4)).product;
    out["net.jvp"] = jvp(net(), in[0], seed({2, 3}, 5)).product;
    out["net.jacobian"] = jacobian(net(), in[0]);
    add("two.vjp", vjp(two, pair, {seed({2}, 4), seed({2, 3}, 5)}).products);
    add("two.jvp", jvp(two, pair, {seed({2}, 4), seed({3}, 5)}).products);
    const std::vector<List> table = jacobian(two, pair), second = hessian(scalar, pair);
    for (size_t i = 0; i < 2; ++i) {
      add(str("two.jacobian.", i), table[i]);
      add(str("scalar.hessian.", i), second[i]);
    }
    out["energy.hessian"] = hessian(energy(), in[0]);
    return out;
  }

  Tensor weight, x, a, b;
  DType type;
};

TEST(FunctionalGradients, MatchPyTorchInBothTypes) {
  std::map<std::string, Array> want;
  std::ifstream in(source_dir() / "tests/golden/derivatives.txt");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, sizes;
    words >> name >> sizes;
    std::replace(sizes.begin(), sizes.end(), ',', ' ');
    std::istringstream numbers(sizes);
    Dims shape;
    for (int64_t size; numbers >> size;) shape.push_back(size);
    want[name] = Array(shape);
    for (double& v : want[name].values) words >> v;
    ASSERT_FALSE(words.fail()) << name;
  }
  ASSERT_EQ(want.size(), 16u);
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Functions f(dtype);
    const std::map<std::string, Tensor> got = f.all({f.x, f.a, f.b});
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, array] : want) {
      EXPECT_TRUE(near(to_array(got.at(name)), array, dtype == DType::f64 ? 1e-9 : 1e-5)) << name << dtype;
      EXPECT_FALSE(got.at(name).requires_grad()) << name;
    }
  }
}

TEST(FunctionalGradients, GiveTheSameBitsInsideCompile) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Functions f(dtype);
    const auto list = [&](const List& in) {
      List out;
      for (const auto& [name, tensor] : f.all(in)) out.push_back(tensor);
      return out;
    };
    Compiled compiled = compile(list);
    const List in = {f.x, f.a, f.b}, other = {f.x * 0.5, f.a + 1.0, f.b * -2.0};
    for (const List& inputs : {in, in, other}) {
      const List eager = list(inputs), graph = compiled(inputs);
      ASSERT_EQ(eager.size(), graph.size());
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
    }
    EXPECT_EQ(compiled.reports().size(), 1u);
  }
}

TEST(FunctionalGradients, OfLayersGoByTheInputAndLeaveGradientsOfParametersAlone) {
  manual_seed(3);
  nn::Linear layer(nullptr, "", 3, 2);
  const Tensor x = values({3}, 1, DType::f32);
  const auto f = [&](const Tensor& v) { return layer(v); };
  EXPECT_TRUE(same_bits(jacobian(f, x), layer.weight.detach()));
  EXPECT_TRUE(same_bits(jvp(f, x, x).output, layer(x).detach()));
  EXPECT_FALSE(layer.weight.grad().defined());
  EXPECT_FALSE(x.requires_grad());
}

TEST(FunctionalGradients, HaveGradientsThemselvesWhereAskedFor) {
  Tensor x = values({3}, 1, DType::f64).set_requires_grad(),
         w = values({3}, 2, DType::f64).set_requires_grad();
  const auto f = [&](const Tensor& v) { return v * v * v * w; };
  // J = diag(3 x² w): its sum has the gradients 6 x w and 3 x².
  const Tensor j = jacobian(f, x, {.create_graph = true});
  const List gradients = grad(sum(j), List{x, w});
  EXPECT_TRUE(near(to_array(gradients[0]), to_array((x * w * 6.0).detach()), 1e-12));
  EXPECT_TRUE(near(to_array(gradients[1]), to_array((x * x * 3.0).detach()), 1e-12));
  const Tensor t = values({3}, 4, DType::f64);
  const Tensor along = jvp(f, x, t, {.create_graph = true}).product;
  EXPECT_TRUE(near(to_array(grad(sum(along), List{w})[0]), to_array((x * x * t * 3.0).detach()), 1e-12));
  const Tensor h = hessian([&](const Tensor& v) { return sum(f(v)); }, x, {.create_graph = true});
  EXPECT_TRUE(near(to_array(grad(sum(h), List{x})[0]), to_array((w * 6.0).detach()), 1e-12));
  const Tensor back = vjp(f, x, t, {.create_graph = true}).product;
  EXPECT_TRUE(near(to_array(grad(sum(back), List{x})[0]), to_array((x * w * t * 6.0).detach()), 1e-12));
  // What the function uses besides its argument stays out, though it is the same tensor.
  EXPECT_TRUE(
      near(to_array(jacobian([&](const Tensor& v) { return v * x; }, x)), to_array(diag(x.detach())), 1e-12));
}

TEST(FunctionalGradients, AreZeroWhereNothingDependsOnTheInput) {
  const Tensor x = ones({2}), c = full({3}, 5);
  EXPECT_TRUE(same_bits(jacobian([&](const Tensor&) { return c; }, x), zeros({3, 2})));
  EXPECT_TRUE(same_bits(jvp([&](const Tensor&) { return c; }, x, x).product, zeros({3})));
  EXPECT_TRUE(same_bits(vjp([&](const Tensor&) { return c; }, x, c).product, zeros({2})));
  EXPECT_TRUE(same_bits(hessian([](const Tensor& v) { return sum(v * 3.0); }, x), zeros({2, 2})));
  const std::vector<List> parts = jacobian(
      [](const List& in) {
        return List{in[0] * 2.0, in[1]};
      },
      {x, ones({1})});
  EXPECT_TRUE(same_bits(parts[0][1], zeros({2, 1})));
  EXPECT_TRUE(same_bits(parts[1][0], zeros({1, 2})));
  EXPECT_TRUE(same_bits(jacobian([](const Tensor& v) { return v * 2.0; }, zeros({0})), zeros({0, 0})));
}

TEST(FunctionalGradients, WorkUnderNoGradAndThroughConvolutions) {
  const NoGrad off;
  const Tensor x = values({1, 1, 4, 4}, 1, DType::f64), w = values({2, 1, 3, 3}, 2, DType::f64);
  const auto f = [&](const Tensor& v) { return square(conv2d(v, w, {})); };
  const Tensor t = values({1, 1, 4, 4}, 3, DType::f64);
  const JacobianProduct forward = jvp(f, x, t);
  const double step = 1e-6;
  const Tensor difference = (f(x + t * step) - f(x - t * step)) / (2 * step);
  EXPECT_TRUE(near(to_array(forward.product), to_array(difference), 1e-8));
  // <s, J t> is <s J, t>.
  const Tensor s = values({1, 2, 2, 2}, 4, DType::f64);
  EXPECT_NEAR(sum(s * forward.product).item<double>(), sum(vjp(f, x, s).product * t).item<double>(), 1e-12);
}

TEST(FunctionalGradients, WrongUseIsRefusedByName) {
  const Tensor x = ones({2, 3});
  const auto twice = [](const Tensor& v) { return v * 2.0; };
  EXPECT_EQ(
      error_of([&] { vjp(twice, x, ones({3})); }),
      "vjp: seed 0 must have the shape and type of its output, f32 (2, 3) on cpu; got f32 (3,) on cpu.");
  EXPECT_EQ(error_of([&] { vjp(twice, x); }), "vjp: there must be one seed for each output; got 0 for 1.");
  EXPECT_EQ(
      error_of([&] {
        jvp(twice, x, ones({2, 3}, DType::f64));
      }),
      "jvp: tangent 0 must have the shape and type of its input, f32 (2, 3) on cpu; got f64 (2, 3) on cpu.");
  EXPECT_EQ(error_of([&] { jvp(twice, x, Tensor()); }),
            "jvp: tangent 0 must have the shape and type of its input, f32 (2, 3) on cpu; got an undefined "
            "tensor.");
  EXPECT_EQ(error_of([&] { jacobian(twice, ones({2}, DType::i64)); }),
            "jacobian: every input must be a floating tensor; input 0 is i64 (2,) on cpu. Let the function "
            "capture what "
            "it is not differentiated by.");
  EXPECT_EQ(error_of([&] { jacobian([](const List& in) { return in; }, List{}); }),
            "jacobian: there must be at least one input; got none.");
  EXPECT_EQ(error_of([&] { jacobian(OneToOne(), x); }),
            "jacobian: the function must be callable; got an empty one.");
  EXPECT_EQ(error_of([&] { hessian(OneToOne(), x); }),
            "hessian: the function must be callable; got an empty one.");
  EXPECT_EQ(error_of([&] { hessian(twice, x); }),
            "hessian: the function must give a 0-d tensor; got f32 (2, 3) on cpu. Use jacobian(), or sum() "
            "its result.");
  EXPECT_EQ(
      error_of([&] { jacobian([](const Tensor&) { return Tensor(); }, x); }),
      "jacobian: every output of the function must be a floating tensor; output 0 is an undefined tensor.");
  EXPECT_EQ(error_of([&] {
              jacobian(twice, ones({1, 1, 1, 1, 1}));
            }),
            "jacobian: the axes of both shapes together must be at most 8; got (1, 1, 1, 1, 1) and (1, 1, 1, "
            "1, 1). "
            "Flatten one of them first.");
}

}  // namespace
}  // namespace tandem::testing
