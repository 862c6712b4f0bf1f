// Losses, padding and bags of embeddings as layers. golden_test.cpp compares the functions behind the losses with PyTorch,
// layers_golden_test.cpp the layers of one input; here: layers are their functions, in both engines; offsets and weights of
// bags (golden/make_bags.py); refusals.
// ctest: asan
#include "tandem/nn/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tandem/core/backend.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/embedding.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/pad.h"
#include "tandem/ops/create.h"
#include "tandem/ops/linear_cross_entropy.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tests/support/golden.h"
#include "tests/support/refusal.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;

Tensor values(const Dims& shape, uint32_t salt, double low = -1, double high = 1) {
  return to_tensor(hash_array(shape, salt, low, high), DType::f32);
}

/// Two calls that must give the same bits, and what they are given.
struct LossCase {
  std::string name;
  std::function<Tensor(const List&)> layer, function;
  List in;
};

template <class Layer, class Function, class... Options>
LossCase two(const char* name, const Function& function, const List& in, const Options&... options) {
  const auto layer = nn::make<Layer>(options...);
  return {name, [layer](const List& x) { return (*layer)(x[0], x[1]); },
          [=](const List& x) { return function(x[0], x[1], options...); }, in};
}
template <class Layer, class Function, class... Options>
LossCase three(const char* name, const Function& function, const List& in, const Options&... options) {
  const auto layer = nn::make<Layer>(options...);
  return {name, [layer](const List& x) { return (*layer)(x[0], x[1], x[2]); },
          [=](const List& x) { return function(x[0], x[1], x[2], options...); }, in};
}

std::vector<LossCase> loss_cases() {
  const Tensor a = values({4, 3}, 1), b = values({4, 3}, 2), share = values({4, 3}, 3, 0.1, 0.9);
  const Tensor c = values({4, 3}, 8), target = values({4, 3}, 4, 0.1, 0.9), weight = values({3}, 5, 0.5, 2);
  const Tensor classes = to_tensor(hash_array({4}, 6, 0, 3), DType::i64);
  const Tensor signs = where(greater(values({4, 3}, 7), 0), ones({4, 3}), -ones({4, 3}));
  const Tensor sign = where(greater(values({4}, 7), 0), ones({4}), -ones({4}));
  const Reduction sum = Reduction::sum, none = Reduction::none;
  return {
      two<nn::MSELoss>("mse", [](auto&&... x) { return mse_loss(x...); }, {a, b}),
      two<nn::MSELoss>("mse sum", mse_loss, {a, b}, sum),
      two<nn::L1Loss>("l1", l1_loss, {a, b}, none),
      two<nn::SmoothL1Loss>("smooth l1", smooth_l1_loss, {a, b}, 0.3, sum),
      two<nn::HuberLoss>("huber", huber_loss, {a, b}, 0.3, sum),
      two<nn::LogCoshLoss>("log cosh", log_cosh_loss, {a, b}, sum),
      two<nn::HingeLoss>("hinge", hinge_loss, {a, signs}, 0.7, sum),
      two<nn::HingeEmbeddingLoss>("hinge embedding", hinge_embedding_loss, {a, signs}, 0.7, sum),
      two<nn::SoftMarginLoss>("soft margin", soft_margin_loss, {a, signs}, sum),
      two<nn::NLLLoss>("nll", nll_loss, {log_softmax(a, 1), classes},
                       NllLossOptions{.weight = weight, .ignore_index = 1}),
      two<nn::CrossEntropyLoss>("cross entropy", cross_entropy, {a, classes},
                                CrossEntropyOptions{.weight = weight, .label_smoothing = 0.2}),
      two<nn::MultiMarginLoss>("multi margin", multi_margin_loss, {a, classes},
                               MultiMarginOptions{.margin = 0.8, .p = 2, .weight = weight}),
      two<nn::BCELoss>("bce", binary_cross_entropy, {share, target},
                       BinaryCrossEntropyOptions{.weight = weight}),
      two<nn::BCEWithLogitsLoss>(
          "bce with logits", binary_cross_entropy_with_logits, {a, target},
          BinaryCrossEntropyWithLogitsOptions{.weight = weight, .pos_weight = values({3}, 9, 1, 3)}),
      two<nn::KLDivLoss>("kl", kl_div, {log(share), target}, KlDivOptions{.batch_mean = true}),
      two<nn::PoissonNLLLoss>("poisson", poisson_nll_loss, {a, target}, PoissonNllOptions{.full = true}),
      three<nn::CosineEmbeddingLoss>("cosine", cosine_embedding_loss, {a, b, sign}, 0.1, sum),
      three<nn::MarginRankingLoss>("ranking", margin_ranking_loss, {a, b, signs}, 0.1, sum),
      three<nn::TripletMarginLoss>("triplet", triplet_margin_loss, {a, b, c},
                                   TripletMarginOptions{.margin = 0.5, .swap = true}),
  };
}

TEST(LossLayers, AreTheirFunctionsInBothEnginesWithGradients) {
  for (const LossCase& row : loss_cases()) {
    SCOPED_TRACE(row.name);
    const auto step = [&](const std::function<Tensor(const List&)>& f) {
      return [&f](const List& in) {
        Tensor x;
        {
          const NoGrad off;
          x = in[0] * 1.0;
        }
        x.set_requires_grad();
        List all = in;
        all[0] = x;
        const Tensor y = f(all);
        return List{y.detach(), grad(sum(y), List{x})[0]};
      };
    };
    Compiled compiled = compile(step(row.layer));
    const List layer = step(row.layer)(row.in), function = step(row.function)(row.in),
               graph = compiled(row.in);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(same_bits(layer[i], function[i])) << i;
      EXPECT_TRUE(same_bits(layer[i], graph[i])) << i;
    }
  }
}

TEST(LossLayers, WeightsAreCopiedBuffersThatMoveAndAreCloned) {
  const Tensor weight = values({3}, 5, 0.5, 2);
  const auto loss = nn::make<nn::CrossEntropyLoss>(CrossEntropyOptions{.weight = weight});
  EXPECT_EQ(loss->named_buffers().at(0).first, "weight");
  EXPECT_TRUE(loss->named_parameters().empty());
  loss->to(DType::f64);
  EXPECT_EQ(weight.dtype(), DType::f32);
  const Tensor logits = to_tensor(hash_array({4, 3}, 1), DType::f64), classes = zeros({4}, DType::i64);
  EXPECT_EQ((*loss)(logits, classes).dtype(), DType::f64);
  const auto copy = std::static_pointer_cast<nn::CrossEntropyLoss>(loss->clone());
  assign(loss->named_buffers()[0].second, zeros({3}, DType::f64));
  EXPECT_TRUE(std::isfinite((*copy)(logits, classes).item<double>()));
  EXPECT_TRUE(nn::CrossEntropyLoss().named_buffers().empty());
}

TEST(LossLayers, RunHooksAndNameTheirLayerInErrors) {
  struct Net : nn::Module {
    nn::MSELoss loss{this, "loss"};
    Tensor forward(const Tensor& x) override { return loss(x, zeros({2})); }
  } net;
  int calls = 0;
  net.loss.add_forward_hook([&](nn::Module&, const List& in, List& out) {
    ++calls;
    EXPECT_EQ(in.size(), 2u);
    out[0] = out[0] * 10.0;
  });
  EXPECT_EQ(net(ones({2})).item<double>(), 10);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(error_of([&] { net(ones({3})); }).starts_with("loss (MSELoss): mse_loss: "));
  EXPECT_NE(
      error_of([&] { static_cast<nn::Module&>(net.loss)(ones({2})); }).find("forward must take one tensor"),
      std::string::npos);
}

TEST(PadLayers, GiveTheSameBitsInBothEngines) {
  const std::vector<std::pair<nn::ModulePtr, Dims>> layers = {
      {nn::make<nn::ZeroPad2d>(std::vector<int64_t>{1, 2, -1, 0}), {2, 3, 4, 5}},
      {nn::make<nn::ConstantPad3d>(1, 0.5), {2, 3, 3, 3}},
      {nn::make<nn::ReflectionPad1d>(2), {2, 3, 5}},
      {nn::make<nn::ReplicationPad2d>(2), {3, 4, 5}},
      {nn::make<nn::CircularPad3d>(1), {1, 2, 3, 3, 3}}};
  for (const auto& [layer, shape] : layers) {
    Compiled compiled = compile([&](const List& in) { return List{(*layer)(in[0])}; });
    const Tensor x = values(shape, 1);
    EXPECT_TRUE(same_bits((*layer)(x), compiled({x})[0])) << layer->type_name();
    EXPECT_TRUE(same_bits((*layer->clone())(x), (*layer)(x))) << layer->type_name();
  }
}

TEST(PadLayers, RefuseWidthsAndInputsThatDoNotFit) {
  EXPECT_EQ(
      error_of([] {
        nn::ReflectionPad2d(nullptr, "p", {1, 2, 3});
      }),
      "ReflectionPad2d p: there must be one width, or two for each of 2 axes, the last axis first; got 3.");
  EXPECT_EQ(error_of([] { nn::CircularPad1d(nullptr, "", -1); }),
            "CircularPad1d: widths must be at least 0; got -1. A ZeroPad cuts where a width is negative.");
  EXPECT_EQ(error_of([] {
              nn::ReplicationPad2d(nullptr, "", 1)(ones({3, 3}));
            }),
            "ReplicationPad2d: x must have 3 or 4 axes; got f32 (3, 3) on cpu.");
  EXPECT_EQ(error_of([] { nn::ZeroPad2d(nullptr, "", 1)(ones({3})); }),
            "ZeroPad2d: x must have at least 2 axes; got f32 (3,) on cpu.");
  EXPECT_EQ(nn::ConstantPad2d(nullptr, "", 1, 2).type_name(), "ConstantPad2d");
  EXPECT_EQ(nn::ZeroPad3d(nullptr, "", 1).type_name(), "ZeroPad3d");
}

// --- bags

/// The rows of golden/make_bags.py.
struct BagCase {
  nn::EmbeddingBagOptions options;
  std::vector<int64_t> offsets;
  bool weighted = false;
};
const std::map<std::string, BagCase>& bag_cases() {
  using nn::BagMode;
  static const std::map<std::string, BagCase> cases = {
      {"mean", {{}, {0, 3, 3, 7}, false}},
      {"mean_padding", {{.padding_idx = 2}, {0, 3, 4, 7}, false}},
      {"sum", {{.mode = BagMode::sum}, {0, 3, 3, 9}, false}},
      {"sum_weighted", {{.mode = BagMode::sum}, {0, 3, 3, 7}, true}},
      {"sum_weighted_padding", {{.mode = BagMode::sum, .padding_idx = 2}, {0, 3, 5}, true}},
      {"sum_last", {{.mode = BagMode::sum, .include_last_offset = true}, {0, 4, 9}, true}},
      {"max", {{.mode = BagMode::max}, {0, 3, 3, 7}, false}},
      {"max_padding", {{.mode = BagMode::max, .padding_idx = 2}, {0, 3, 4, 7}, false}},
      {"max_last", {{.mode = BagMode::max, .include_last_offset = true}, {0, 4, 4, 9}, false}}};
  return cases;
}

TEST(EmbeddingBag, BagsByOffsetsMatchPyTorchInBothEngines) {
  std::map<std::string, Array> want;
  for (const std::string& line : golden_lines("bags.txt")) {
    std::istringstream in(line);
    std::string name, part;
    in >> name >> part;
    want[name + " " + part] = read_array(in);
  }
  const Tensor index = to_tensor(hash_array({9}, 900, 0, 6), DType::i64);
  for (const auto& [name, row] : bag_cases())
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(str(name, " in ", dtype));
      nn::EmbeddingBag bag(nullptr, "", 6, 4, row.options);
      bag.to(dtype);
      set_weights(bag);
      const Tensor offsets = from_vector<int64_t>(row.offsets, {static_cast<Dim>(row.offsets.size())});
      Tensor weights;
      if (row.weighted) weights = to_tensor(hash_array({9}, 901), dtype).set_requires_grad();
      const auto step = [&](const List& in) {
        const Tensor y = bag(in[0], in[1], weights);
        const Tensor loss = sum(y * y * in[2]);
        List leaves = {bag.weight};
        if (weights.defined()) leaves.push_back(weights);
        List out = grad(loss, leaves);
        out.insert(out.begin(), y.detach());
        return out;
      };
      const Dim bags = offsets.size(0) - (row.options.include_last_offset ? 1 : 0);
      const List in = {index, offsets, to_tensor(hash_array({bags, 4}, 77), dtype)};
      const List eager = step(in);
      const double tolerance = dtype == DType::f64 ? 1e-9 : 5e-6;
      EXPECT_TRUE(near(to_array(eager[0]), want.at(name + " output"), tolerance));
      EXPECT_TRUE(near(to_array(eager[1]), want.at(name + " weight"), tolerance));
      if (row.weighted) {
        EXPECT_TRUE(near(to_array(eager[2]), want.at(name + " samples"), tolerance));
      }
      Compiled compiled = compile(step);
      const List graph = compiled(in);
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
    }
}

TEST(EmbeddingBag, TakesI32AndEmptyBagsAndIsCloned) {
  const auto bag = nn::make<nn::EmbeddingBag>(6, 4, nn::EmbeddingBagOptions{.mode = nn::BagMode::max});
  const Tensor index = from_vector<int64_t>({1, 5, 0}, {3}), offsets = from_vector<int64_t>({0, 3}, {2});
  const Tensor y = (*bag)(index, offsets);
  EXPECT_TRUE(same_bits(y.detach(), (*bag)(cast(index, DType::i32), cast(offsets, DType::i32)).detach()));
  EXPECT_TRUE(same_bits(y[1].detach(), zeros({4})));
  EXPECT_TRUE(same_bits((*bag)(zeros({0}, DType::i64), zeros({2}, DType::i64)).detach(), zeros({2, 4})));
  EXPECT_TRUE(same_bits((*bag)(zeros({2, 0}, DType::i64)).detach(), zeros({2, 4})));
  EXPECT_EQ((*bag)(zeros({0}, DType::i64), zeros({0}, DType::i64)).shape(), (Dims{0, 4}));
  const auto copy = std::static_pointer_cast<nn::EmbeddingBag>(bag->clone());
  EXPECT_TRUE(same_bits((*copy)(index, offsets).detach(), y.detach()));
}

TEST(EmbeddingBag, RefusesWhatDoesNotFit) {
  nn::EmbeddingBag bag(nullptr, "", 6, 4);
  const Tensor index = from_vector<int64_t>({1, 5, 0}, {3});
  const auto offsets = [](std::vector<int64_t> list) {
    const auto n = static_cast<Dim>(list.size());
    return from_vector<int64_t>(std::move(list), {n});
  };
  EXPECT_EQ(error_of([&] { bag(index); }),
            "EmbeddingBag: an index of one axis needs offsets, one of two axes has its bags already; got the "
            "index i64 "
            "(3,) on cpu and offsets an undefined tensor.");
  EXPECT_NE(error_of([&] {
              bag(reshape(index, {1, 3}), offsets({0}));
            }).find("needs offsets"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              bag(ones({2, 2}));
            }),
            "EmbeddingBag: the index must be i64 or i32 and have one or two axes; got f32 (2, 2) on cpu.");
  EXPECT_EQ(error_of([&] {
              bag(index, offsets({1, 2}));
            }),
            "EmbeddingBag: the offsets must begin with 0, rise, and stay within the index's size 3; offset 0 "
            "is 1.");
  EXPECT_NE(error_of([&] { bag(index, offsets({0, 2, 1})); }).find("offset 2 is 1"), std::string::npos);
  EXPECT_NE(error_of([&] { bag(index, offsets({0, 4})); }).find("offset 1 is 4"), std::string::npos);
  nn::EmbeddingBag last(nullptr, "", 6, 4, {.include_last_offset = true});
  EXPECT_NE(error_of([&] {
              last(index, offsets({0, 2}));
            }).find("end with the index's size 3; offset 1 is 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { last(index, offsets({})); }).find("one axis of at least 1"), std::string::npos);
  EXPECT_EQ(error_of([&] { bag(index, offsets({0}), ones({3})); }),
            "EmbeddingBag: weights of samples go with BagMode::sum alone; the layer has another mode.");
  nn::EmbeddingBag sums(nullptr, "", 6, 4, {.mode = nn::BagMode::sum});
  EXPECT_EQ(error_of([&] { sums(index, offsets({0}), ones({2})); }),
            "EmbeddingBag: the weights of samples must have the index's shape (3,) and the type f32 of the "
            "table; got "
            "f32 (2,) on cpu.");
  EXPECT_EQ(error_of([] { nn::EmbeddingBag(nullptr, "", 6, 4, {.padding_idx = 6}); }),
            "EmbeddingBag: padding_idx must name one of 6 rows; got 6.");
}

// --- linear_cross_entropy

/// x, weight and bias, of which all want gradients.
struct LastLayer {
  Tensor x, weight, bias, target;
  LastLayer(Dim rows, Dim features, Dim classes, DType dtype) {
    const auto made = [&](const Dims& shape, uint32_t salt) {
      Tensor t = to_tensor(hash_array(shape, salt), dtype);
      t.set_requires_grad(true);
      return t;
    };
    x = made({rows, features}, 1);
    weight = made({classes, features}, 2);
    bias = made({classes}, 3);
    target = to_tensor(hash_array({rows}, 4, 0, static_cast<double>(classes)), DType::i64);
  }
  List parameters() const { return {x, weight, bias}; }
};

TEST(LinearCrossEntropy, IsCrossEntropyOfLinearInPartsOfAnySize) {
  LastLayer layer(23, 5, 17, DType::f64);
  const Tensor ignored = where(less(arange(23), 4), full_like(layer.target, -100), layer.target);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum})
    for (const Tensor& target : {layer.target, ignored, cast(ignored, DType::i32)})
      for (const bool has_bias : {true, false}) {
        const Tensor bias = has_bias ? layer.bias : Tensor();
        List wanted = {layer.x, layer.weight};
        if (has_bias) wanted.push_back(bias);
        const Tensor want =
            cross_entropy(linear(layer.x, layer.weight, bias), target, {.reduction = reduction});
        const List gradients = grad(want * 3, wanted);
        for (const int64_t rows : {0, 1, 7, 23, 100}) {
          const Tensor got = linear_cross_entropy(layer.x, layer.weight, bias, target,
                                                  {.reduction = reduction, .rows = rows});
          EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-12) << rows;
          const List own = grad(got * 3, wanted);
          for (size_t i = 0; i < own.size(); ++i)
            EXPECT_TRUE(near(to_array(own[i]), to_array(gradients[i]), 1e-12)) << rows << ", gradient " << i;
        }
      }
  const NoGrad off;
  EXPECT_TRUE(std::isnan(
      linear_cross_entropy(zeros({0, 5}), zeros({17, 5}), {}, zeros({0}, DType::i64)).item<double>()))
      << "a mean of nothing, as of cross_entropy";
}

TEST(LinearCrossEntropy, GivesGradientsOfThoseThatWantThemAndOfGradients) {
  LastLayer layer(6, 3, 5, DType::f64);
  layer.weight.set_requires_grad(false);
  const Tensor own = linear_cross_entropy(layer.x, layer.weight, layer.bias, layer.target, {.rows = 4});
  const Tensor plain = cross_entropy(linear(layer.x, layer.weight, layer.bias), layer.target);
  const List wanted = {layer.x, layer.bias};
  const List a = grad(own, wanted, {}, {.create_graph = true}),
             b = grad(plain, wanted, {}, {.create_graph = true});
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(near(to_array(a[i]), to_array(b[i]), 1e-12)) << i;
  const List second_a = grad(sum(a[0] * a[0]), wanted), second_b = grad(sum(b[0] * b[0]), wanted);
  for (size_t i = 0; i < second_a.size(); ++i)
    EXPECT_TRUE(near(to_array(second_a[i]), to_array(second_b[i]), 1e-12)) << i;
}

TEST(LinearCrossEntropy, HasTheSameBitsInBothEnginesAndNeverHoldsAllLogits) {
  const LastLayer layer(3000, 16, 2000, DType::f32);
  const size_t all_logits = 4 * 3000 * 2000;
  const TensorFunction step = [&](const List& in) {
    const Tensor loss = linear_cross_entropy(in[0], layer.weight, layer.bias, in[1], {.rows = 150});
    List out = {loss.detach()};
    for (const Tensor& g : grad(loss, {in[0], layer.weight, layer.bias})) out.push_back(g);
    return out;
  };
  Backend& cpu = backend(Device{});
  const size_t before = cpu.memory(Device{}).in_use;
  cpu.reset_peak(Device{});
  const List eager = step({layer.x, layer.target});
  EXPECT_LT(cpu.memory(Device{}).peak - before, all_logits / 2) << "eager";
  Compiled compiled = compile(step);
  const List graph = compiled({layer.x, layer.target});
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], graph[i])) << i;
  EXPECT_LT(compiled.reports().at(0).arena_bytes, all_logits / 2) << "graph";
  // Of what it stands in for, both are more.
  const TensorFunction plain = [&](const List& in) {
    const Tensor loss = cross_entropy(linear(in[0], layer.weight, layer.bias), in[1]);
    return grad(loss, {in[0], layer.weight, layer.bias});
  };
  Compiled whole = compile(plain);
  whole({layer.x, layer.target});
  EXPECT_GE(whole.reports().at(0).arena_bytes, all_logits);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const LastLayer layer(4, 3, 5, DType::f32);
  const auto why = [](const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& target,
                      const LinearCrossEntropyOptions& options = {}) {
    return refusal([&] { linear_cross_entropy(x, weight, bias, target, options); });
  };
  EXPECT_HAS(why(layer.x, zeros({5, 2}), {}, layer.target), "got f32 (4, 3) on cpu and f32 (5, 2)");
  EXPECT_HAS(why(layer.x, zeros({5, 3}, DType::f64), {}, layer.target), "of one floating type");
  EXPECT_HAS(why(layer.x, layer.weight, zeros({4}), layer.target), "bias must be (5,)");
  EXPECT_HAS(why(layer.x, layer.weight, layer.bias, zeros({3}, DType::i64)),
             "target must be i64 or i32 (4,)");
  EXPECT_HAS(why(layer.x, layer.weight, layer.bias, zeros({4})), "a class per row; got f32");
  EXPECT_HAS(why({}, layer.weight, layer.bias, layer.target), "undefined handle");
  EXPECT_HAS(why(layer.x, layer.weight, layer.bias, full({4}, 5, DType::i64)), "one of the 5 classes");
  EXPECT_HAS(why(layer.x, layer.weight, layer.bias, layer.target, {.reduction = Reduction::none}),
             "gives the mean or the sum");
  EXPECT_HAS(why(layer.x, layer.weight, layer.bias, layer.target, {.rows = -1}), "rows must be at least 0");
}

}  // namespace
}  // namespace tandem::testing
