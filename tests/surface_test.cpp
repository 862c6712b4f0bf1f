// C++ as people write it: operators, braces, integers of any type, compile() of functions and modules, printing.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <sstream>

#include "tandem/tandem.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

std::vector<float> floats(const Tensor& x) { return cast(x, DType::f32).to_vector<float>(); }

TEST(Surface, ComparesElementByElement) {
  const Tensor x = from_vector<float>({-1, 0, 2}, {3});
  EXPECT_EQ(floats(x > 0), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(floats(x >= 0), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(floats(x < 0.5), (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(floats(x <= x), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(floats(1 > x), (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(floats(0 <= x), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(floats(0u < x), (std::vector<float>{0, 0, 1}));
  EXPECT_EQ(floats(0L >= x), (std::vector<float>{1, 1, 0}));
  EXPECT_EQ((x > 0).dtype(), DType::boolean);
}

TEST(Surface, CatJoinsTensorsUnderPyTorchsName) {
  const Tensor a = reshape(arange(4), {2, 2}), b = a + 10;
  EXPECT_TRUE(same_bits(cat({a, b}), concat({a, b}, 0)));
  EXPECT_TRUE(same_bits(cat({a, b}, -1), concat({a, b}, 1)));
  EXPECT_EQ(cat({a, b}, 1).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 10, 11, 2, 3, 12, 13}));
}

TEST(Surface, AGradientRuleThatReadsWhatItsRecordDoesNotSaveIsToldWhatToWrite) {
  OpDef record{.name = "surface_product",
               .inputs = 2,
               .infer = [](InferArgs& a) { a.add(a.in[0].shape(), a.in[0].dtype()); },
               .gradient =
                   [](const GradArgs& a) {
                     return Tensors{a.grad[0] * a.in[1], a.grad[0] * a.in[0]};
                   },
               .saves_inputs = 1};
  record.kernels[static_cast<int>(DeviceKind::cpu)] = [](const KernelArgs& args) {
    args.out[0].as<float>()[0] = args.in[0].as<const float>()[0] * args.in[1].as<const float>()[0];
  };
  const Tensor a = full({1}, 3).set_requires_grad(), b = full({1}, 4).set_requires_grad();
  const auto gradients = [&](const OpDef& op) { return grad(sum(apply1(op, {a, b})), {a, b}); };
  const OpDef& unsound = define(record);
  EXPECT_EQ(
      refusal([&] { gradients(unsound); }),
      "surface_product: the gradient rule may read only what its record saves; it read an undefined tensor, "
      "and the record saves in[0] and no out[]. Set saves_inputs, whose bit i stands for in[i] (0b11: in[0] "
      "and in[1]), or saves_outputs. What the rule met: mul: b must be a tensor; got an undefined handle.");
  record.name = "surface_product_that_saves_both";
  record.saves_inputs = 0b11;
  EXPECT_EQ(gradients(define(record))[0].item<float>(), 4);
}

TEST(Surface, ChangesInPlaceByCompoundOperators) {
  const Tensor x = from_vector<float>({1, 2}, {2}), same = x;
  x += 1;
  x *= x;
  x -= 0.5;
  x /= 2;
  EXPECT_EQ(floats(same), (std::vector<float>{1.75, 4.25}));
  slice(x, 0, 1, 2) += 1;  // a view
  EXPECT_EQ(floats(same), (std::vector<float>{1.75, 5.25}));
  Tensor count = zeros({2}, DType::i64);
  (count += 2) *= 3;
  EXPECT_EQ(count.to_vector<int64_t>(), (std::vector<int64_t>{6, 6}));

  const Tensor w = ones({2}).set_requires_grad();
  EXPECT_NE(refusal([&] { w += 1; }).find("+=: a change in place cannot be differentiated"),
            std::string::npos);
  const Tensor total = zeros({});
  EXPECT_NE(refusal([&] { total += sum(w); }).find("+=: a change in place cannot be differentiated"),
            std::string::npos);
  {
    const NoGrad off;
    w -= 0.25;
  }
  EXPECT_EQ(floats(w), (std::vector<float>{0.75, 0.75}));
  EXPECT_NE(refusal([&] { count += 0.5; }).find("must be of the target's kind of type; got f32 for i64"),
            std::string::npos);
  EXPECT_NE(refusal([&] { count /= 2; }).find("must be of the target's kind of type"), std::string::npos);
  EXPECT_NE(refusal([&] {
              x += ones({3, 2});
            }).find("must have the target's shape; got (3, 2) for f32 (2,)"),
            std::string::npos);
  EXPECT_NE(refusal([&] { Tensor() += 1; }).find("undefined handle"), std::string::npos);
  refusal([&] { x += Tensor(); });
}

TEST(Surface, CompoundOperatorsHaveTheSameBitsInBothEngines) {
  const auto run = [](bool compiled) {
    const Tensor state = to_tensor(hash_array({3}, 1), DType::f32);
    const auto step = [&](const Tensor& x) {
      const Tensor h = x * 2;
      h += state;
      state *= 0.5;
      slice(state, 0, 0, 1) -= 1;
      return h;
    };
    Compiled graph = compile(step);
    std::vector<std::vector<std::byte>> seen;
    for (int i = 0; i < 3; ++i) {
      const Tensor x = to_tensor(hash_array({3}, 2), DType::f32);
      seen.push_back(host_bytes(compiled ? graph(x) : step(x)));
      seen.push_back(host_bytes(state));
    }
    return seen;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Surface, TakesShapesAndAxesFromIntegersOfAnyKind) {
  const std::vector<float> data(6, 1.f);
  const std::vector<int> of_int = {2, 3};
  const std::array<size_t, 2> of_size = {2, 3};
  const std::deque<unsigned short> of_short = {2, 3};
  EXPECT_EQ(zeros(of_int).shape(), (Dims{2, 3}));
  EXPECT_EQ(zeros(of_size).shape(), (Dims{2, 3}));
  EXPECT_EQ(zeros(of_short).shape(), (Dims{2, 3}));
  EXPECT_EQ(zeros({data.size(), 2u, int8_t{1}}).shape(), (Dims{6, 2, 1}));
  EXPECT_EQ(zeros(4).shape(), (Dims{4}));
  EXPECT_EQ(zeros({}).shape(), Dims());
  EXPECT_EQ(zeros(std::vector<int>()).shape(), Dims());
  const Tensor x = reshape(arange(6), of_int);
  EXPECT_EQ(sum(x, 0).to_vector<int64_t>(), (std::vector<int64_t>{3, 5, 7}));
  EXPECT_EQ(sum(x, -1, true).shape(), (Dims{2, 1}));
  EXPECT_EQ(sum(x, {0, 1}).item<int64_t>(), 15);
  EXPECT_EQ(mean(cast(x, DType::f32), 1).shape(), (Dims{2}));
  EXPECT_EQ(reshape(x, -1).shape(), (Dims{6}));
  EXPECT_EQ((x * data.size()).dtype(), DType::i64);
  EXPECT_EQ((x + uint8_t{3}).to_vector<int64_t>()[0], 3);
  EXPECT_NE(refusal([] { zeros({size_t{1} << 63}); }).find("must fit 63 bits; got 9223372036854775808"),
            std::string::npos);
  EXPECT_NE(refusal([] { zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }).find("at most 8 axes"), std::string::npos);
  EXPECT_NE(refusal([] { zeros(std::vector<int>(9, 1)); }).find("at most 8 axes"), std::string::npos);
}

static_assert(std::is_convertible_v<std::vector<int>, Dims> && std::is_convertible_v<unsigned, Dims>);
static_assert(!std::is_convertible_v<const char (&)[4], Dims> && !std::is_convertible_v<std::string, Dims> &&
              !std::is_convertible_v<char, Dims> && !std::is_convertible_v<bool, Dims> &&
              !std::is_convertible_v<double, Dims> && !std::is_convertible_v<std::vector<float>, Dims>);

TEST(Surface, TakesGradientsOfTensorsInBraces) {
  const Tensor x = full({2}, 3).set_requires_grad(), w = full({2}, 4).set_requires_grad();
  const std::vector<Tensor> g = grad(sum(x * w * x), {x, w});
  EXPECT_EQ(floats(g[0]), (std::vector<float>{24, 24}));
  EXPECT_EQ(floats(g[1]), (std::vector<float>{9, 9}));
  EXPECT_EQ(floats(grad(x * w, {x}, full({2}, 2))[0]), (std::vector<float>{8, 8}));
}

struct Net : nn::Module {
  nn::Linear first{this, "first", 3, 4}, second{this, "second", 4, 2};
  Tensor forward(const Tensor& x) override { return second(relu(first(x))); }
};

TEST(Surface, CompilesFunctionsOfTensorsAndModules) {
  const Tensor x = to_tensor(hash_array({5, 3}, 1), DType::f32),
               y = to_tensor(hash_array({5, 3}, 2), DType::f32);
  Compiled one = compile([](const Tensor& a) { return exp(a) * 2.0; });
  EXPECT_EQ(host_bytes(one(x)), host_bytes(exp(x) * 2.0));
  EXPECT_EQ(one({x}).size(), 1u);
  Compiled two = compile([](const Tensor& a, const Tensor& b) { return a * b; }, {.passes = {}});
  EXPECT_EQ(host_bytes(two(x, y)), host_bytes(x * y));
  EXPECT_EQ(two.reports()[0].passes.size(), 1u);  // plan_memory
  Compiled list = compile([](const Tensor& a, const Tensor& b, const Tensor& c) {
    return std::vector<Tensor>{a + b, c};
  });
  EXPECT_EQ(list({x, y, x}).size(), 2u);
  EXPECT_NE(refusal([&] { list(x, y, x); }).find("must return one; got 2 results"), std::string::npos);
  EXPECT_NE(refusal([&] { one(x, y); }).find("this callable takes 1 tensor; got 2"), std::string::npos);

  Net net;
  Compiled module = compile(net);
  EXPECT_EQ(host_bytes(module(x)), host_bytes(net(x)));
  {
    const NoGrad off;
    net.first.weight += 1;
  }
  EXPECT_EQ(host_bytes(module(x)), host_bytes(net(x)));
  const auto owned = nn::make<nn::Conv2d>(1, 2, 3, {.padding = 1});
  Compiled held = compile(owned);
  const Tensor image = to_tensor(hash_array({1, 1, 4, 4}, 3), DType::f32);
  EXPECT_EQ(host_bytes(held(image)), host_bytes((*owned)(image)));
}

struct Attend : nn::Module {
  nn::Linear query{this, "query", 3, 3};
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    const Tensor weights = softmax(matmul(query(in[0]), transpose(in[1], 0, 1)), 1);
    return {matmul(weights, in[1]), weights};
  }
};
struct Join : nn::Module {
  nn::Linear left{this, "left", 3, 2}, right{this, "right", 3, 2};
  std::vector<Tensor> forward(const std::vector<Tensor>& in) override {
    return {left(in.at(0)) * right(in.size() > 1 ? in[1] : in[0])};
  }
};

TEST(Surface, ModulesHaveSeveralInputsAndOutputs) {
  const Tensor x = to_tensor(hash_array({5, 3}, 1), DType::f32),
               y = to_tensor(hash_array({4, 3}, 2), DType::f32), z = slice(x, 0, 0, 4);
  Attend attend;
  const std::vector<Tensor> out = attend({x, y});
  EXPECT_EQ(out[0].shape(), (Dims{5, 3}));
  EXPECT_EQ(out[1].shape(), (Dims{5, 4}));
  int seen = 0;
  const nn::HookId hook =
      attend.add_forward_hook([&](nn::Module&, const std::vector<Tensor>& in, std::vector<Tensor>& got) {
        seen += static_cast<int>(in.size() + got.size());
      });
  attend({x, y});
  EXPECT_EQ(seen, 4);
  attend.remove_hook(hook);
  EXPECT_NE(refusal([&] { attend(x, y); }).find("must have one output to be called so; it has 2"),
            std::string::npos);
  Compiled compiled = compile(attend);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(host_bytes(compiled({x, y})[i]), host_bytes(out[i]));

  Join join;
  EXPECT_EQ(host_bytes(join(z, y)), host_bytes(join({z, y})[0]));
  EXPECT_EQ(host_bytes(join(x)), host_bytes(join.left(x) * join.right(x)));
  EXPECT_EQ(host_bytes(compile(join)(z, y)), host_bytes(join(z, y)));
  Net net;
  EXPECT_EQ(host_bytes(net({x})), host_bytes(net(x)));
  EXPECT_NE(refusal([&] { net(x, x); }).find("module Net: takes one tensor; got 2"), std::string::npos);
  struct Empty : nn::Module {};
  Empty empty;
  EXPECT_NE(refusal([&] { empty(x); }).find("forward must take one tensor"), std::string::npos);
  EXPECT_NE(refusal([&] { empty(std::vector<Tensor>{x}); }).find("forward must take one tensor"),
            std::string::npos);
}

TEST(Surface, MakesLayersWithOptionsInBraces) {
  const Tensor image = to_tensor(hash_array({1, 1, 4, 4}, 3), DType::f32);
  EXPECT_EQ((*nn::make<nn::Conv2d>(1, 2, 3, {.padding = 1}))(image).shape(), (Dims{1, 2, 4, 4}));
  EXPECT_EQ(nn::make<nn::Linear>(3, 4, {.bias = false})->named_parameters().size(), 1u);
  EXPECT_EQ(nn::make<nn::BatchNorm2d>(3, {.affine = false})->named_parameters().size(), 0u);
  const auto norm = nn::make<nn::LayerNorm>(Dims{4}, {.eps = 0.5});
  EXPECT_EQ(host_bytes((*std::static_pointer_cast<nn::LayerNorm>(norm->clone()))(image)),
            host_bytes((*norm)(image)));
  EXPECT_EQ(nn::make<nn::MaxPool2d>({.kernel = 2})->type_name(), "MaxPool2d");
}

TEST(Surface, PrintsAsAsked) {
  const auto text = [](const Tensor& x) {
    std::ostringstream out;
    out << x;
    return out.str();
  };
  const Tensor x = from_vector<double>({0.123456789, 1e9, 3}, {3});
  EXPECT_EQ(text(x), "[0.123457, 1e+09, 3]");
  const PrintOptions before = print_options();
  set_print_options({.precision = 3});
  EXPECT_EQ(text(x), "[0.123, 1e+09, 3]");
  set_print_options({.whole = 4, .ends = 1});
  EXPECT_EQ(text(arange(3)), "[0, 1, 2]");
  EXPECT_EQ(text(arange(9)), "[0, …, 8]");
  EXPECT_NE(refusal([] { set_print_options({.precision = 0}); }).find("precision must be 1 to 17; got 0"),
            std::string::npos);
  EXPECT_NE(refusal([] { set_print_options({.ends = 0}); }).find("ends must be at least 1; got 0"),
            std::string::npos);
  set_print_options(before);
  EXPECT_EQ(text(x), "[0.123457, 1e+09, 3]");
}

}  // namespace
}  // namespace tandem::testing
