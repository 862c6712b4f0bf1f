// Ops with a composed form: where there is no kernel it runs, in both engines with the same bits; it gives the gradient where
// there is no rule; and what it may not do is refused.
// ctest: asan
#include <gtest/gtest.h>

#include "tandem/core/autocast.h"
#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/profile/profile.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;

void infer_like(InferArgs& args) { args.add(args.in[0].shape(), args.in[0].dtype()); }

/// An op without kernels, of a name that is new in this process.
OpDef& op_of(const std::string& what, ComposedForm form, OpInputs inputs = {"x"}) {
  return define(OpDef{.name = what.c_str(), .inputs = inputs, .infer = infer_like, .composed = form});
}
Tensor run(const OpDef& op, const Tensor& x) { return apply1(op, {x}); }

/// x tanh(x)
const OpDef& op_mild() {
  static const OpDef& op =
      op_of("composed_mild", [](const ComposedArgs& a) { return Tensors{a.in[0] * tanh(a.in[0])}; });
  return op;
}

TEST(Composed, RunsWhereThereIsNoKernelWithTheSameBitsInBothEngines) {
  const Tensor x = to_tensor(hash_array({5}, 1), DType::f32);
  const Tensor want = x * tanh(x);
  EXPECT_TRUE(same_bits(run(op_mild(), x), want));
  Compiled compiled = compile([](const List& in) { return List{run(op_mild(), in[0])}; });
  for (int call = 0; call < 2; ++call) EXPECT_TRUE(same_bits(compiled({x})[0], want));
}

TEST(Composed, GivesTheGradientsOfBothOrders) {
  const Tensor x = to_tensor(hash_array({4}, 2), DType::f64).set_requires_grad();
  const auto both = [&](const Tensor& y) {
    const Tensor first = grad(sum(y * y), List{x}, {}, {.create_graph = true})[0];
    return List{first, grad(sum(first * first), List{x})[0]};
  };
  const List want = both(x * tanh(x)), got = both(run(op_mild(), x));
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(near(to_array(got[i]), to_array(want[i]), 1e-13)) << "order " << i + 1;
  Compiled step = compile([&](const List&) { return List{grad(sum(run(op_mild(), x)), List{x})[0]}; });
  EXPECT_TRUE(same_bits(step({})[0], grad(sum(run(op_mild(), x)), List{x})[0]));
}

TEST(Composed, AddsUpTheGradientsOfAnInputThatIsThereTwice) {
  static const OpDef& op =
      op_of("composed_product", [](const ComposedArgs& a) { return Tensors{a.in[0] * a.in[1]}; }, {"a", "b"});
  const Tensor x = full({3}, 4).set_requires_grad();
  EXPECT_EQ(grad(sum(apply1(op, {x, x})), List{x})[0].to_vector<float>(), (std::vector<float>{8, 8, 8}));
  const Tensor y = full({3}, 5);
  EXPECT_EQ(grad(sum(apply1(op, {x, y})), List{x})[0].to_vector<float>(), (std::vector<float>{5, 5, 5}));
}

TEST(Composed, StandsInForAKernelWhereAskedTo) {
  OpDef record{.name = "composed_and_kernel",
               .inputs = {"x"},
               .infer = infer_like,
               .composed = [](const ComposedArgs& a) { return Tensors{a.in[0] + 1}; }};
  record.kernels[static_cast<int>(DeviceKind::cpu)] = [](const KernelArgs& args) {
    for (int64_t i = 0; i < args.out[0].size(); ++i) args.out[0].as<float>()[i] = 7;
  };
  const OpDef& op = define(record);
  EXPECT_EQ(run(op, ones({1})).item<float>(), 7);
  {
    const ComposedForms forms;
    EXPECT_EQ(run(op, ones({1})).item<float>(), 2);
  }
  EXPECT_EQ(run(op, ones({1})).item<float>(), 7);
}

TEST(Composed, ResultsAreNewTensors) {
  static const OpDef& same = op_of("composed_same", [](const ComposedArgs& a) { return Tensors{a.in[0]}; });
  const Tensor x = ones({2}), y = run(same, x);
  y += 1;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1}));
  const Tensor w = ones({2}).set_requires_grad();
  EXPECT_EQ(grad(sum(run(same, w) * 3), List{w})[0].to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(Composed, DrawsTheRandomNumbersOfItsOp) {
  const auto define_noise = [](const char* name, ComposedForm form) -> const OpDef& {
    return define(OpDef{.name = name,
                        .inputs = {"x"},
                        .infer = infer_like,
                        .composed = form,
                        .not_differentiable = "it is noise",
                        .effects = Effects::random()});
  };
  const OpDef& noise = define_noise(
      "composed_noise", [](const ComposedArgs& a) { return Tensors{a.in[0] + rand(a.in[0].shape())}; });
  manual_seed(3);
  const Tensor want = ones({6}) + rand({6}), after = rand({2});
  manual_seed(3);
  EXPECT_TRUE(same_bits(run(noise, ones({6})), want));
  EXPECT_TRUE(same_bits(rand({2}), after));
  Compiled compiled = compile([&](const List& in) { return List{run(noise, in[0]), rand({2})}; });
  manual_seed(3);
  const List got = compiled({ones({6})});
  EXPECT_TRUE(same_bits(got[0], want));
  EXPECT_TRUE(same_bits(got[1], after));

  const OpDef& greedy = define_noise("composed_greedy", [](const ComposedArgs& a) {
    return Tensors{a.in[0] + rand(a.in[0].shape()) + rand(a.in[0].shape())};
  });
  EXPECT_HAS(refusal([&] { run(greedy, ones({6})); }),
             "must draw as many random numbers as a kernel would, 2 blocks of four; got 4");
  const OpDef& sly =
      op_of("composed_sly", [](const ComposedArgs& a) { return Tensors{a.in[0] + rand(a.in[0].shape())}; });
  EXPECT_HAS(refusal([&] { run(sly, ones({6})); }), "0 blocks of four; got 2");
}

TEST(Composed, MayNotChangeItsInputsNorAskForSizesByValue) {
  const OpDef& rough = op_of("composed_rough", [](const ComposedArgs& a) {
    a.in[0] += 1;
    return Tensors{a.in[0] * 1};
  });
  EXPECT_HAS(refusal([&] { run(rough, ones({2})); }),
             "composed_rough: its composed form must not change its inputs; "
             "it changed x");
  const OpDef& sized = op_of(
      "composed_sized", [](const ComposedArgs& a) { return Tensors{cast(nonzero(a.in[0]), DType::f32)}; });
  EXPECT_HAS(refusal([&] { run(sized, ones({2})); }), "sizes that depend on values; got nonzero");
  const OpDef& other = op_of("composed_other", [](const ComposedArgs& a) { return Tensors{sum(a.in[0])}; });
  EXPECT_HAS(refusal([&] { run(other, ones({2})); }),
             "result 0 of its composed form must be f32 (2,) on cpu, as inference says; got");
}

TEST(Composed, IsNamedInErrorsAndProfiles) {
  const OpDef& picky = op_of("composed_picky", [](const ComposedArgs& a) {
    return Tensors{a.in[0] * index_select(ones({1}), 0, cast(a.in[0], DType::i64))};
  });
  EXPECT_EQ(refusal([&] { run(picky, full({1}, 5)); }).rfind("composed_picky: index_select: ", 0), 0u);
  Compiled compiled = compile([&](const List& in) { return List{run(picky, in[0])}; });
  compiled({zeros({1})});
  EXPECT_EQ(refusal([&] { compiled({full({1}, 5)}); }).rfind("composed_picky: index_select: ", 0), 0u);
  const Profile profile = tandem::profile([&] { run(op_mild(), ones({4})); });
  bool found = false;
  for (const HostEvent& event : profile.host)
    found = found || (event.kind == HostEvent::Kind::scope && event.name == "composed_mild");
  EXPECT_TRUE(found);
}

TEST(Composed, TakesWhatItsRecordTakesUnderAutocast) {
  const OpDef& op =
      define(OpDef{.name = "composed_exact",
                   .inputs = {"x"},
                   .infer = infer_like,
                   .composed = [](const ComposedArgs& a) { return Tensors{matmul(a.in[0], a.in[0])}; },
                   .precision = Precision::full});
  const Tensor x = to_tensor(hash_array({3, 3}, 4), DType::f32);
  const Tensor want = matmul(x, x);
  const Autocast autocast(DType::bf16);
  EXPECT_TRUE(same_bits(run(op, x), want)) << "products in it stay f32";
  EXPECT_EQ(run(op, cast(x, DType::bf16)).dtype(), DType::f32);
}

TEST(Composed, OfAnOpMadeAtRunTimeGivesItsGradient) {
  const OpDef& op = define(RuntimeOp{
      .name = "composed_at_run_time",
      .inputs = {"x"},
      .infer = infer_like,
      .composed = [factor = 3.0](const ComposedArgs& a) { return Tensors{a.in[0] * a.in[0] * factor}; }});
  const Tensor x = full({1}, 2).set_requires_grad();
  EXPECT_EQ(run(op, x).item<float>(), 12);
  EXPECT_EQ(grad(run(op, x), List{x})[0].item<float>(), 12);
}

TEST(Composed, IsRefusedWhereItsOpTouchesMoreThanItsResults) {
  const auto why = [](OpDef record) {
    record.name = "composed_refused";
    record.inputs = {"x"};
    record.infer = infer_like;
    record.composed = [](const ComposedArgs& a) { return Tensors{a.in[0]}; };
    return refusal([&] { define(record); });
  };
  EXPECT_HAS(why({.not_differentiable = "no", .effects = Effects::update(), .takes_strided = true}),
             "so it must make new tensors");
  EXPECT_HAS(why({.effects = Effects::random()}), "must have a gradient rule of its own");
}

TEST(OpNames, AreInMessages) {
  static const OpDef& op = op_of("composed_named", [](const ComposedArgs& a) { return Tensors{a.in[0]}; },
                                 {"x", "weight", "bias?"});
  EXPECT_HAS(refusal([&] { apply1(op, {ones({1})}); }),
             "composed_named: there must be 2 to 3 inputs (x, weight, bias?); got 1.");
  EXPECT_HAS(refusal([&] { apply1(op, {ones({1}), Tensor()}); }), "weight must be a tensor");
  EXPECT_HAS(refusal([&] { apply1(op, {ones({1}), ones({1}), Tensor()}); }), "bias must be a tensor");
  EXPECT_EQ(OpInputs({"a", "parts..."}).name(3), "parts[2]");
  EXPECT_EQ(OpInputs({"a", "parts..."}).least, 2);
  EXPECT_EQ(OpInputs(2).name(1), "input 1");
}

}  // namespace
}  // namespace tandem::testing
