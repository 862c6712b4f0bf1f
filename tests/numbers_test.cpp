// Numbers at the ends of their types: sums of 16-bit floats, numbers that become elements, gradients at corners, and what
// losses refuse. Every case in both engines.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/scatter_reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/optim/clip.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using Function = std::function<Tensor(const Tensor&)>;
using List = std::vector<Tensor>;

/// f(x), computed by both engines, which must agree to the bit.
Tensor in_both(const Function& f, const Tensor& x) {
  const Tensor eager = f(x);
  Compiled compiled = compile([&](const List& in) { return List{f(in[0])}; });
  EXPECT_TRUE(same_bits(compiled({x})[0], eager));
  return eager;
}

/// The gradient of sum(f(x)), likewise.
Tensor gradient_in_both(const Function& f, const Tensor& x) {
  return in_both(
      [&](const Tensor& at) {
        const Tensor leaf = at.detach().set_requires_grad();
        return grad(sum(f(leaf)), List{leaf})[0];
      },
      x);
}

std::vector<double> values(const Tensor& x) { return to_array(x).values; }

// ---- 16-bit floats

TEST(Halves, AMeanOverflowsNeitherInItsSumNorInItsCount) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto all = [](const Tensor& x) { return mean(x); };
    EXPECT_EQ(in_both(all, full({10000}, 10, dtype)).item<float>(), 10) << dtype;
    EXPECT_EQ(in_both(all, full({70000}, -3, dtype)).item<float>(), -3) << dtype;
    const auto rows = [](const Tensor& x) { return mean(x, {0}, true); };
    EXPECT_EQ(values(in_both(rows, full({9000, 5}, 24, dtype))), std::vector<double>(5, 24)) << dtype;
    const Tensor g = gradient_in_both(all, full({70000}, 1, dtype));
    const float want = cast(full({}, 1. / 70000), dtype).item<float>();
    EXPECT_GT(want, 0);
    EXPECT_EQ(g.dtype(), dtype);
    EXPECT_EQ(min(g).item<float>(), want) << dtype;
    EXPECT_EQ(max(g).item<float>(), want) << dtype;
  }
}

TEST(Halves, AnyNumberOfWinnersSharesTheGradientOfAMaximum) {
  for (const auto& extreme :
       {Function([](const Tensor& x) { return max(x); }), Function([](const Tensor& x) { return min(x); })}) {
    const Tensor g = gradient_in_both(extreme, full({70000}, 2, DType::f16));
    const float want = cast(full({}, 1. / 70000), DType::f16).item<float>();
    EXPECT_EQ(min(g).item<float>(), want);
    EXPECT_EQ(max(g).item<float>(), want);
  }
}

TEST(Halves, NoFunctionLosesItsResultToAnIntermediateOfSixteenBits) {
  const Tensor plain =
      normal({4, 6, 40, 40}, 300, 40, DType::f64);  // squares and sums leave the range of f16
  const struct {
    const char* name;
    Function f;
  } rows[] = {
      {"mean",
       [](const Tensor& x) {
         return mean(x, {2, 3});
       }},
      {"var",
       [](const Tensor& x) {
         return var(x, {2, 3});
       }},
      {"stddev", [](const Tensor& x) { return stddev(x); }},
      {"norm", [](const Tensor& x) { return norm(x, 2, {1}); }},
      {"norm of p 3", [](const Tensor& x) { return norm(x, 3, {1}); }},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, {1}); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }},
      {"avg_pool2d", [](const Tensor& x) { return avg_pool2d(x, {.kernel = 20}); }},
      {"adaptive_avg_pool2d", [](const Tensor& x) { return adaptive_avg_pool2d(x, 1); }},
      {"layer_norm",
       [](const Tensor& x) {
         return layer_norm(x, {40, 40});
       }},
      {"group_norm", [](const Tensor& x) { return group_norm(x, 2); }},
      {"rms_norm",
       [](const Tensor& x) {
         return rms_norm(x, {40, 40}, {}, 1e-5);
       }},
      {"batch_norm", [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, {.training = true}); }},
      {"normalize", [](const Tensor& x) { return normalize(x); }},
      {"cosine_similarity", [](const Tensor& x) { return cosine_similarity(x, flip(x, {0})); }},
      {"pairwise_distance", [](const Tensor& x) { return pairwise_distance(x, flip(x, {0})); }},
      {"mse_loss", [](const Tensor& x) { return mse_loss(x, flip(x, {0})); }},
      {"l1_loss", [](const Tensor& x) { return l1_loss(x, zeros_like(x)); }},
      {"cross_entropy",
       [](const Tensor& x) {
         return cross_entropy(x, zeros({4, 40, 40}, DType::i64));
       }},
  };
  for (const auto& row : rows)
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Tensor x = cast(plain, dtype);
      const Array got = to_array(in_both(row.f, x)), want = to_array(row.f(cast(x, DType::f64)));
      ASSERT_EQ(got.size(), want.size());
      const double unit = dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
      for (int64_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2 * unit * (1e-2 + std::abs(want[i]))) << row.name << " of " << dtype;
      for (const double g : values(gradient_in_both(row.f, x))) ASSERT_TRUE(std::isfinite(g)) << row.name;
    }
  EXPECT_NEAR(optim::global_norm(List{full({1000}, 300, DType::f16)}).item<float>(), 300 * std::sqrt(1000.f),
              1);
}

// ---- numbers that become elements

TEST(NumbersAsElements, BecomeElementsAsCastMakesThem) {
  const double inf = HUGE_VAL;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    for (const double value : {0., 0.5, -0.5, 2.9, -2.9, 300., -300., 3e9, -3e9, 1e19, -1e19, 1e300, inf,
                               -inf, static_cast<double>(NAN)}) {
      const Tensor want = cast(full({}, value, DType::f64), dtype);
      EXPECT_TRUE(same_bits(full({}, value, dtype), want)) << value << " as " << dtype;
      EXPECT_TRUE(same_bits(full_like(zeros({}, dtype), value), want)) << value << " as " << dtype;
      EXPECT_TRUE(same_bits(masked_fill(zeros({}, dtype), ones({}, DType::boolean), value), want))
          << value << " as " << dtype;
      const Tensor padded = pad(zeros({1}, dtype), {1, 0}, {.value = value});
      EXPECT_TRUE(same_bits(slice(padded, 0, 0, 1), reshape(want, {1}))) << value << " as " << dtype;
    }
  }
  EXPECT_EQ(in_both([](const Tensor&) { return full({1}, 3e9, DType::i32); }, ones({1})).item<int>(),
            INT32_MAX);
}

/// What takes a number beside integers, and gives a tensor whose first element is that number.
struct TakesANumber {
  const char* name;
  std::function<Tensor(const Operand& n, DType dtype)> call;
};
const TakesANumber kTakeANumber[] = {
    {"full", [](const Operand& n, DType t) { return full({2}, n, t); }},
    {"full_like", [](const Operand& n, DType t) { return full_like(zeros({2}, t), n); }},
    {"pad",
     [](const Operand& n, DType t) {
       return pad(zeros({1}, t), {1, 0}, {.value = n});
     }},
    {"masked_fill",
     [](const Operand& n, DType t) { return masked_fill(zeros({2}, t), ones({2}, DType::boolean), n); }},
    {"where", [](const Operand& n, DType t) { return where(ones({2}, DType::boolean), n, zeros({2}, t)); }},
    {"scatter", [](const Operand& n, DType t) { return scatter(zeros({2}, t), 0, arange(2), n); }},
    {"index_put", [](const Operand& n, DType t) { return index_put(zeros({2}, t), {arange(2)}, n); }},
    {"index_put, added",
     [](const Operand& n, DType t) { return index_put(zeros({2}, t), {arange(2)}, n, true); }},
    {"index_add",
     [](const Operand& n, DType t) { return index_add(zeros({2}, t), 0, arange(2), ones({2}, t), n); }},
    {"add", [](const Operand& n, DType t) { return add(zeros({2}, t), n); }},
    {"maximum", [](const Operand& n, DType t) { return maximum(zeros({2}, t), n); }},
    {"clamp", [](const Operand& n, DType t) { return clamp(zeros({2}, t), n, n); }},
    {"hardtanh", [](const Operand& n, DType t) { return hardtanh(zeros({2}, t), n, n); }},
    {"threshold", [](const Operand& n, DType t) { return threshold(zeros({2}, t), 0, n); }},
    {"mul", [](const Operand& n, DType t) { return mul(ones({2}, t), n); }},
};

TEST(NumbersAsElements, WholeNumbersThatDoubleCannotHoldStayExactWhereverIntegersTakeThem) {
  const int64_t beyond = (int64_t{1} << 53) + 1, least = INT64_MIN + 1;
  const uint64_t largest = (uint64_t{1} << 63) + 1;
  for (const TakesANumber& row : kTakeANumber) {
    const auto first = [&](const Operand& n, DType dtype) {
      return in_both([&](const Tensor&) { return slice(row.call(n, dtype), 0, 0, 1); }, ones({1}));
    };
    EXPECT_EQ(first(beyond, DType::i64).item<int64_t>(), beyond) << row.name;
    EXPECT_EQ(first(beyond, DType::u64).item<uint64_t>(), static_cast<uint64_t>(beyond)) << row.name;
    EXPECT_EQ(first(largest, DType::u64).item<uint64_t>(), largest) << row.name;
    if (std::string(row.name) != "maximum" && std::string(row.name) != "threshold") {
      EXPECT_EQ(first(least, DType::i64).item<int64_t>(), least) << row.name;
    }
  }
  const Tensor one = ones({1, 1}, DType::i64);
  EXPECT_EQ(addmm(one, one, one, {.beta = beyond, .alpha = 1}).item<int64_t>(), beyond + 1);
  EXPECT_EQ(addmm(one, one, one, {.beta = 0, .alpha = beyond}).item<int64_t>(), beyond);
  EXPECT_EQ(addmm(one, one, one, {.beta = 2.0, .alpha = 3.0}).item<int64_t>(), 5);
  EXPECT_EQ(arange(beyond, beyond + 2).to_vector<int64_t>(), (std::vector<int64_t>{beyond, beyond + 1}));
  EXPECT_EQ(arange(largest, largest + 4, 2, DType::u64).to_vector<uint64_t>(),
            (std::vector<uint64_t>{largest, largest + 2}));
  EXPECT_EQ(arange(largest - 3, largest + 1, 2, DType::u64).to_vector<uint64_t>(),
            (std::vector<uint64_t>{largest - 3, largest - 1}));
  EXPECT_EQ(error_of([&] { arange(0, 300, 1, DType::u8); }),
            "arange: every number must fit the element type; got 0 to 299 for u8.");
  EXPECT_EQ(error_of([&] { arange(300, DType::u8); }),
            "arange: every number must fit the element type; got 0 to 299 for u8.");
  EXPECT_NE(error_of([&] { arange(largest, largest + 2); }).find("for i64"), std::string::npos);
  EXPECT_NE(error_of([&] {
              addmm(one, one, one, {.alpha = 0.5});
            }).find("alpha must be whole for a tensor of integers; got 0.5"),
            std::string::npos);
  EXPECT_EQ(full({1}, largest, DType::i64).item<int64_t>(), INT64_MAX);  // the nearest end
  EXPECT_EQ(full({1}, -1, DType::u64).item<uint64_t>(), 0u);
}

TEST(NumbersAsElements, IntegersThatDifferBeyondDoubleAreNotClose) {
  const int64_t n = int64_t{1} << 53;
  const Tensor a = from_vector<int64_t>({n, n, INT64_MIN}, {3}),
               b = from_vector<int64_t>({n + 1, n, INT64_MAX}, {3});
  EXPECT_EQ(isclose(a, b, 0, 0).to_vector<bool>(), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(isclose(a, b, 0, 1).to_vector<bool>(), (std::vector<bool>{true, true, false}));
}

TEST(NumbersAsElements, AFloatingValueLeavesTheOtherElementsOfAMaskedFillAsTheyAre) {
  const Tensor ids = from_vector<int64_t>({9007199254740993, 16777217, 3}, {3});
  const Tensor mask = from_vector<bool>({false, false, true}, {3});
  EXPECT_EQ(masked_fill(ids, mask, -1.5).to_vector<int64_t>(),
            (std::vector<int64_t>{9007199254740993, 16777217, -1}));
  EXPECT_EQ(masked_fill(ids, mask, full({}, -1)).to_vector<int64_t>(),
            (std::vector<int64_t>{9007199254740993, 16777217, -1}));
}

TEST(NumbersAsElements, AWholeNumberThatIntegersCannotHoldIsRefused) {
  const Tensor bytes = full({2}, 255, DType::u8), wide = ones({2}, DType::i64);
  using Binary = Tensor (*)(const Operand&, const Operand&);
  for (const Binary f :
       {Binary(add), Binary(mul), Binary(less), Binary(equal), Binary(maximum), Binary(pow)}) {
    EXPECT_NE(error_of([&] { f(bytes, 300); }).find("must fit the integers that it meets; got 300 for u8"),
              std::string::npos);
    EXPECT_NE(error_of([&] { f(-1, bytes); }).find("got -1 for u8"), std::string::npos);
  }
  EXPECT_EQ(
      error_of([&] { add(bytes, 300); }),
      "add: a number must fit the integers that it meets; got 300 for u8. cast() the tensor to a wider type "
      "first.");
  EXPECT_NE(error_of([&] { clamp(bytes, 0, 256); }).find("clamp: "), std::string::npos);
  EXPECT_NE(error_of([&] { masked_fill(bytes, equal(bytes, 1), 256); }).find("masked_fill: "),
            std::string::npos);
  EXPECT_NE(error_of([&] { where(equal(bytes, 1), bytes, -1); }).find("where: "), std::string::npos);
  EXPECT_NE(error_of([&] { add(wide, uint64_t{1} << 63); }).find("for i64"), std::string::npos);
  EXPECT_EQ(values(add(bytes, 255)), std::vector<double>({254, 254}));
  EXPECT_EQ(add(wide, INT64_MAX - 1).to_vector<int64_t>()[0], INT64_MAX);
  EXPECT_EQ(add(sub(wide, 1), INT64_MIN).to_vector<int64_t>()[0], INT64_MIN);
  EXPECT_EQ(add(zeros({1}, DType::u64), ~uint64_t{0}).item<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(values(add(full({1}, 1, DType::f32), 300)), std::vector<double>({301}));
}

// ---- corners

TEST(Corners, HaveTheGradientsOfPyTorch) {
  const double nan = NAN;
  const struct {
    const char* name;
    Function f;
    std::vector<float> at;
    std::vector<double> slopes;
  } rows[] = {
      {"relu", relu, {-1, 0, 1}, {0, 0, 1}},
      {"relu6", relu6, {-1, 0, 3, 6, 7}, {0, 0, 1, 0, 0}},
      {"hardtanh",
       [](const Tensor& x) { return hardtanh(x, -2, 0.5); },
       {-3, -2, 0, 0.5f, 1},
       {0, 0, 1, 0, 0}},
      {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x) * 6; }, {-4, -3, 0, 3, 4}, {0, 0, 1, 0, 0}},
      {"hardswish", hardswish, {-4, -3, 0, 3, 4}, {0, 0, 0.5, 1, 1}},
      {"clamp", [](const Tensor& x) { return clamp(x, -2, 0.5); }, {-3, -2, 0, 0.5f, 1}, {0, 1, 1, 1, 0}},
      {"clamp from below", [](const Tensor& x) { return clamp(x, -2, {}); }, {-3, -2, 0}, {0, 1, 1}},
      {"clamp from above", [](const Tensor& x) { return clamp(x, {}, 0.5); }, {0, 0.5f, 1}, {1, 1, 0}},
      {"maximum", [](const Tensor& x) { return maximum(x, 1); }, {0, 1, 2}, {0, 0.5, 1}},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.25); }, {-1, 0, 1}, {0.25, 0.25, 1}},
      {"elu", [](const Tensor& x) { return elu(x, 2); }, {0, 1}, {2, 1}},
      {"threshold", [](const Tensor& x) { return threshold(x, 1, 5); }, {0, 1, 2}, {0, 0, 1}},
      {"abs", abs, {-1, 0, 1}, {-1, 0, 1}},
      {"hinge_embedding_loss",
       [](const Tensor& x) { return hinge_embedding_loss(x, full_like(x, -1), 1, Reduction::sum); },
       {0, 1, 2},
       {-1, -1, 0}},
      {"margin_ranking_loss",
       [](const Tensor& x) { return margin_ranking_loss(x, zeros_like(x), ones_like(x), 0, Reduction::sum); },
       {-1, 0, 1},
       {-1, -1, 0}},
  };
  for (const auto& row : rows)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const Tensor x = cast(from_vector(row.at, {static_cast<Dim>(row.at.size())}), dtype);
      EXPECT_EQ(values(gradient_in_both(row.f, x)), row.slopes) << row.name << " of " << dtype;
    }
  const Tensor no_number = full({1}, nan);
  for (const Function& f :
       {Function(relu), Function(relu6), Function([](const Tensor& x) { return hardtanh(x); })})
    EXPECT_EQ(values(gradient_in_both(f, no_number)), std::vector<double>({1}));
  EXPECT_EQ(relu6(full({1}, 9, DType::i32)).dtype(), DType::i32);
}

// ---- losses

// The gradient of each place was once computed by a running product over all places, which 0 · inf made NaN behind the first one.
TEST(Corners, AProductBesideAnInfinityOrANaNOfAnotherPlaceHasItsOwnGradients) {
  const Tensor index = from_vector<int64_t>({1, 0, 0, 1, 0}, {5});
  for (const double huge :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e200}) {
    const Tensor s = from_vector<double>({2, huge, huge, 3, huge}, {5}).set_requires_grad(),
                 x = ones({2}, DType::f64).set_requires_grad();
    const Tensor y = scatter_reduce(x, 0, index, s, ScatterReduction::prod);
    const Tensor first = grad(select(y, 0, 1), std::vector<Tensor>{s}, {}, {.create_graph = true})[0];
    EXPECT_EQ(first[0].item<double>(), 3) << huge;
    EXPECT_EQ(first[3].item<double>(), 2) << huge;
    const Tensor second = grad(first[0], std::vector<Tensor>{s})[0];
    EXPECT_EQ(second[3].item<double>(), 1) << huge;
    EXPECT_EQ(second[0].item<double>(), 0) << huge;
  }
}

TEST(Losses, ACompiledBinaryCrossEntropyRefusesProbabilitiesAndTargetsOutside0To1) {
  Compiled compiled = compile([](const List& in) { return List{binary_cross_entropy(in[0], in[1])}; });
  const Tensor sound = from_vector<float>({0, 0.5, 1}, {3}), above = from_vector<float>({0, 0.5, 1.5}, {3});
  EXPECT_TRUE(same_bits(compiled({sound, sound})[0], binary_cross_entropy(sound, sound)));
  EXPECT_NE(error_of([&] {
              compiled({above, sound});
            }).find("every probability must lie in 0..1; got 1.5."),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              compiled({sound, neg(sound)});
            }).find("every target must lie in 0..1; got -1."),
            std::string::npos);
  EXPECT_TRUE(same_bits(compiled({sound, sound})[0], binary_cross_entropy(sound, sound)));
}

TEST(Losses, RefuseShapesThatAreNotEqual) {
  using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;
  const struct {
    const char* name;
    Loss loss;
  } rows[] = {
      {"mse_loss", [](const Tensor& a, const Tensor& b) { return mse_loss(a, b); }},
      {"l1_loss", [](const Tensor& a, const Tensor& b) { return l1_loss(a, b); }},
      {"smooth_l1_loss", [](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b); }},
      {"huber_loss", [](const Tensor& a, const Tensor& b) { return huber_loss(a, b); }},
      {"log_cosh_loss", [](const Tensor& a, const Tensor& b) { return log_cosh_loss(a, b); }},
      {"binary_cross_entropy", [](const Tensor& a, const Tensor& b) { return binary_cross_entropy(a, b); }},
      {"binary_cross_entropy_with_logits",
       [](const Tensor& a, const Tensor& b) { return binary_cross_entropy_with_logits(a, b); }},
      {"hinge_loss", [](const Tensor& a, const Tensor& b) { return hinge_loss(a, b); }},
      {"hinge_embedding_loss", [](const Tensor& a, const Tensor& b) { return hinge_embedding_loss(a, b); }},
      {"soft_margin_loss", [](const Tensor& a, const Tensor& b) { return soft_margin_loss(a, b); }},
      {"kl_div", [](const Tensor& a, const Tensor& b) { return kl_div(a, b); }},
      {"poisson_nll_loss", [](const Tensor& a, const Tensor& b) { return poisson_nll_loss(a, b); }},
      {"margin_ranking_loss", [](const Tensor& a, const Tensor& b) { return margin_ranking_loss(a, a, b); }},
      {"margin_ranking_loss", [](const Tensor& a, const Tensor& b) { return margin_ranking_loss(a, b, a); }},
      {"triplet_margin_loss", [](const Tensor& a, const Tensor& b) { return triplet_margin_loss(a, b, a); }},
      {"triplet_margin_loss", [](const Tensor& a, const Tensor& b) { return triplet_margin_loss(a, a, b); }},
  };
  const Tensor prediction = full({4, 1}, 0.5), target = full({4}, 0.5);
  for (const auto& row : rows) {
    EXPECT_EQ(
        error_of([&] { row.loss(prediction, target); }),
        std::string(row.name) +
            ": the shapes must be equal, since nothing broadcasts in a loss; got (4, 1) and (4,). reshape() "
            "one of them, or expand() it where that is meant.");
    Compiled compiled = compile([&](const List& in) { return List{row.loss(in[0], in[1])}; });
    EXPECT_NE(error_of([&] { compiled({prediction, target}); }).find(row.name), std::string::npos);
    EXPECT_TRUE(row.loss(prediction, full({4, 1}, 0.5)).defined()) << row.name;
  }
  // Weights go to the losses, never the other way round.
  const Tensor many = ones({3, 4});
  EXPECT_NE(error_of([&] { binary_cross_entropy(target, target, {.weight = many}); }).find("(3, 4) for (4,)"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { binary_cross_entropy_with_logits(target, target, {.weight = many}); }).find("weight"),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              binary_cross_entropy_with_logits(target, target, {.pos_weight = many});
            }).find("pos_weight"),
            std::string::npos);
}

TEST(Losses, IgnoreLabelsOfMinusAHundredUnlessToldOtherwise) {
  const Tensor logits = normal({5, 3}), logs = log_softmax(logits, 1);
  const std::vector<int64_t> labels = {2, -100, 0, -100, 1};
  for (const DType dtype : {DType::i64, DType::i32}) {
    const Tensor target = cast(from_vector(labels, {5}), dtype);
    const auto kept = [&](const Tensor& x) {
      return index_select(x, 0, from_vector<int64_t>({0, 2, 4}, {3}));
    };
    const Tensor want = cross_entropy(kept(logits), kept(target), {.ignore_index = {}});
    EXPECT_FLOAT_EQ(in_both([&](const Tensor& x) { return cross_entropy(x, target); }, logits).item<float>(),
                    want.item<float>());
    EXPECT_FLOAT_EQ(in_both([&](const Tensor& x) { return nll_loss(x, target); }, logs).item<float>(),
                    want.item<float>());
    const Tensor each = cross_entropy(logits, target, {.reduction = Reduction::none});
    EXPECT_EQ(values(each)[1], 0);
    EXPECT_EQ(values(each)[3], 0);
    const Array g =
        to_array(gradient_in_both([&](const Tensor& x) { return cross_entropy(x, target); }, logits));
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(g[3 + i], 0);
      EXPECT_EQ(g[9 + i], 0);
      EXPECT_NE(g[i], 0);
    }
    EXPECT_NE(error_of([&] { cross_entropy(logits, target, {.ignore_index = {}}); }).find("got -100"),
              std::string::npos);
  }
  // None counts: a mean of nothing is NaN, as in PyTorch, and no gradient comes of it.
  const Tensor none = full({5}, -100, DType::i64);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, none).item<float>()));
  EXPECT_EQ(cross_entropy(logits, none, {.reduction = Reduction::sum}).item<float>(), 0);
  for (const double g :
       values(gradient_in_both([&](const Tensor& x) { return cross_entropy(x, none); }, logits)))
    EXPECT_EQ(g, 0);
  // Where all count, looking for ignored ones changes no bit.
  const Tensor target = from_vector<int64_t>({2, 1, 0, 0, 1}, {5});
  EXPECT_TRUE(same_bits(cross_entropy(logits, target), cross_entropy(logits, target, {.ignore_index = {}})));
}

TEST(Losses, ReportABadLabelThemselves) {
  const Tensor logits = zeros({2, 10});
  const auto target = [](int64_t bad) { return from_vector<int64_t>({3, bad}, {2}); };
  const std::string ends = " at element 1. Correct the label, or give the model an output for it";
  EXPECT_EQ(
      error_of([&] { cross_entropy(logits, target(10)); }),
      "cross_entropy: every label must name one of the 10 classes, 0..9, or be the ignore_index; got 10" +
          ends + ", or set ignore_index to it.");
  EXPECT_EQ(error_of([&] { nll_loss(logits, target(-1)); }),
            "nll_loss: every label must name one of the 10 classes, 0..9, or be the ignore_index; got -1" +
                ends + ", or set ignore_index to it.");
  EXPECT_EQ(error_of([&] { multi_margin_loss(logits, target(-100)); }),
            "multi_margin_loss: every label must name one of the 10 classes, 0..9; got -100" + ends + ".");
  EXPECT_NE(
      error_of([&] { cross_entropy(logits, target(11), {.weight = ones({10})}); }).find("cross_entropy: "),
      std::string::npos);
  Compiled compiled = compile([](const List& in) { return List{cross_entropy(in[0], in[1])}; });
  EXPECT_NO_THROW(compiled({logits, target(9)}));
  EXPECT_NE(error_of([&] {
              compiled({logits, target(10)});
            }).find("cross_entropy: every label"),
            std::string::npos);
}

// Half of these probabilities are too small to be normal numbers. x86-64 takes them for zero, other processors have them as they are.
TEST(Softmax, ProbabilitiesTooSmallToBeNormalDoNoHarm) {
  const Tensor logits = reshape(arange(200, DType::f32), {2, 100});
  constexpr float kLeast = std::numeric_limits<float>::min();
  for (const int64_t axis : {1, 0}) {
    Tensor x = mul(axis == 1 ? logits : transpose(logits, 0, 1), -1.02);
    x.set_requires_grad(true);
    const Tensor g = ones(x.shape());
    for (const Tensor& t :
         {softmax(x, axis), grad(softmax(x, axis), {x}, g)[0], grad(log_softmax(x, axis), {x}, g)[0]}) {
      for (const float value : t.to_vector<float>()) {
        EXPECT_TRUE(std::isfinite(value));
#if defined(__x86_64__)
        EXPECT_TRUE(value == 0 || std::abs(value) >= kLeast) << value;
#endif
      }
    }
  }
  volatile float least = kLeast;
  EXPECT_GT(least / 2, 0) << "this thread computes as before";
}

}  // namespace
}  // namespace tandem::testing
