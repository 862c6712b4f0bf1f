// Ops with a composed form: where there is no kernel it runs, in both engines with the same bits; it gives the gradient where
// there is no rule; and what it may not do is refused.
// ctest: asan
#include <gtest/gtest.h>

#include "tandem/core/autocast.h"
#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/graph/compile.h"
#include "tandem/graph/scan.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/profile/profile.h"
#include "tests/support/recording_tracer.h"
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

  RecordingTracer shapes;  // as in nn::summary(): nothing is drawn
  {
    const TraceScope scope(&shapes);
    EXPECT_EQ(run(noise, ones({6})).shape(), Dims({6}));
  }

  const OpDef& greedy = define_noise("composed_greedy", [](const ComposedArgs& a) {
    return Tensors{a.in[0] + rand(a.in[0].shape()) + rand(a.in[0].shape())};
  });
  EXPECT_HAS(
      refusal([&] { run(greedy, ones({6})); }),
      "must draw as many random numbers as a kernel would, 2 blocks of four, and seed nothing; got 4 blocks");
  const OpDef& sly =
      op_of("composed_sly", [](const ComposedArgs& a) { return Tensors{a.in[0] + rand(a.in[0].shape())}; });
  EXPECT_HAS(refusal([&] { run(sly, ones({6})); }), "0 blocks of four, and seed nothing; got 2 blocks");
}

TEST(Composed, DrawsInLoopsAndBranchesAndOtherFormsWhatItsOpDraws) {
  const auto define_noise = [](const std::string& name, ComposedForm form) -> const OpDef& {
    return define(OpDef{.name = name.c_str(),
                        .inputs = {"x"},
                        .infer = infer_like,
                        .composed = form,
                        .not_differentiable = "it is noise",
                        .effects = Effects::random()});
  };
  const auto same_in_both = [](const OpDef& op, const Tensor& x) {
    manual_seed(5);
    const Tensor want = run(op, x), after = rand({3});
    Compiled compiled = compile([&](const List& in) { return List{run(op, in[0]), rand({3})}; });
    for (int call = 0; call < 2; ++call) {
      manual_seed(5);
      const List got = compiled({x});
      EXPECT_TRUE(same_bits(got[0], want)) << op.name;
      EXPECT_TRUE(same_bits(got[1], after)) << op.name;
    }
  };
  // Four steps of a block each for four elements, which is a block: refused in both engines.
  const OpDef& looped = define_noise("composed_looped", [](const ComposedArgs& a) {
    const auto step = [](const List& state, const List&) { return ScanStep{{state[0] + rand({1})}, {}}; };
    const List last = scan(step, {zeros({1})}, {zeros({4, 1})}).state;
    return Tensors{expand(last[0], a.in[0].shape())};
  });
  const auto refused = [&](const auto& call) {
    EXPECT_HAS(refusal(call), "1 blocks of four, and seed nothing; got 4 blocks");
  };
  refused([&] { run(looped, ones({4})); });
  refused([&] { compile([&](const List& in) { return List{run(looped, in[0])}; })({ones({4})}); });
  // As many steps as blocks are right.
  same_in_both(looped, ones({16}));
  static const OpDef& inner = define_noise(
      "composed_inner", [](const ComposedArgs& a) { return Tensors{a.in[0] + rand(a.in[0].shape())}; });
  same_in_both(
      define_noise("composed_outer", [](const ComposedArgs& a) { return Tensors{run(inner, a.in[0]) * 2}; }),
      ones({6}));
  static Compiled drawing = compile([](const List& in) { return List{in[0] + rand(in[0].shape())}; });
  const OpDef& calling =
      define_noise("composed_calling", [](const ComposedArgs& a) { return Tensors{drawing({a.in[0]})[0]}; });
  for (int call = 0; call < 3; ++call) same_in_both(calling, ones({5}));
  const OpDef& seeding = op_of("composed_seeding", [](const ComposedArgs& a) {
    manual_seed(7);
    return Tensors{a.in[0] * 1};
  });
  manual_seed(6);
  EXPECT_HAS(refusal([&] { run(seeding, ones({2})); }), "got another seed");
}

TEST(Composed, GivesNothingOfWhatItKeeps) {
  static const Tensor table = reshape(arange(6, DType::f32), {3, 2}), before = clone(table);
  static const OpDef& whole =
      op_of("composed_whole_table", [](const ComposedArgs&) { return Tensors{table}; });
  static const OpDef& row = op_of("composed_row", [](const ComposedArgs&) { return Tensors{table[1]}; });
  static Tensor memo;
  static const OpDef& kept = op_of("composed_memo", [](const ComposedArgs& a) {
    if (!memo.defined()) memo = ones(a.in[0].shape());
    return Tensors{memo};
  });
  const Tensor x = ones({3, 2}).set_requires_grad(), y = ones({2});
  EXPECT_TRUE(same_bits(grad(sum(run(whole, x)), List{x}, {}, {}, true)[0], zeros({3, 2})));
  EXPECT_TRUE(table.is_leaf());
  EXPECT_FALSE(table.requires_grad());
  for (const OpDef* op : {&whole, &row, &kept}) {
    const NoGrad off;
    const Tensor in = op == &whole ? ones({3, 2}) : y;
    run(*op, in) += 5;
    compile([&](const List& list) {
      const Tensor made = run(*op, list[0]);
      made += 1;
      return List{made};
    })({in});
  }
  EXPECT_TRUE(same_bits(table, before));
  EXPECT_EQ(memo.to_vector<float>(), (std::vector<float>{1, 1}));
}

/// An op with a kernel, whose form is for the gradient alone. Each has a name of its own.
const OpDef& with_kernel(const std::string& name, ComposedForm form, OpInputs inputs = {"x"}) {
  OpDef record{.name = name.c_str(), .inputs = inputs, .infer = infer_like, .composed = form};
  record.kernels[static_cast<int>(DeviceKind::cpu)] = [](const KernelArgs& args) {
    for (int64_t i = 0; i < args.out[0].size(); ++i) args.out[0].as<float>()[i] = 7;
  };
  return define(record);
}

TEST(Composed, IsHeldToItsRecordWhereItGivesTheGradient) {
  const Tensor x = ones({2}).set_requires_grad();
  const auto why = [&](const OpDef& op) { return refusal([&] { grad(sum(run(op, x)), List{x}); }); };
  EXPECT_HAS(why(with_kernel("composed_many",
                             [](const ComposedArgs& a) {
                               Tensors all;
                               for (int i = 0; i < 200; ++i) all.push_back(a.in[0] * 2);
                               return all;
                             })),
             "composed_many: its composed form must give 1 tensors, as inference says; got 200");
  EXPECT_HAS(why(with_kernel("composed_none", [](const ComposedArgs&) { return Tensors{Tensor()}; })),
             "composed_none: result 0 of its composed form must be a tensor");
  EXPECT_HAS(why(with_kernel("composed_shape", [](const ComposedArgs& a) { return Tensors{sum(a.in[0])}; })),
             "composed_shape: result 0 of its composed form must be f32 (2,), as inference says; got f32 ()");
  EXPECT_HAS(
      why(with_kernel("composed_drawing",
                      [](const ComposedArgs& a) { return Tensors{a.in[0] * rand({2})}; })),
      "composed_drawing: its composed form must draw as many random numbers as a kernel would, 0 blocks");
  EXPECT_HAS(why(with_kernel("composed_index",
                             [](const ComposedArgs& a) {
                               return Tensors{a.in[0] * index_select(ones({1}), 0, arange(2) + 3)};
                             })),
             "composed_index: index_select: ");
  const OpDef& rough = with_kernel("composed_rough_gradient",
                                   [](const ComposedArgs& a) {
                                     const NoGrad off;
                                     a.in[1] += 1;
                                     return Tensors{a.in[0] * 2};
                                   },
                                   {"x", "table"});
  const Tensor table = ones({2});
  EXPECT_HAS(refusal([&] {
               grad(sum(apply1(rough, {x, table})), List{x});
             }),
             "composed_rough_gradient: its composed form must change nothing that it has not made");
  EXPECT_EQ(table.to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Composed, DependsOnItsInputsAlone) {
  static Tensor weight = full({2}, 3).set_requires_grad(), count = zeros({2});
  const OpDef& scaled =
      op_of("composed_scaled", [](const ComposedArgs& a) { return Tensors{a.in[0] * weight}; });
  const Tensor x = ones({2}).set_requires_grad();
  EXPECT_HAS(refusal([&] { sum(run(scaled, x)).backward(); }),
             "composed_scaled: its composed form must depend on its inputs alone");
  const OpDef& given = op_of("composed_given", [](const ComposedArgs&) { return Tensors{weight}; });
  EXPECT_HAS(refusal([&] { sum(run(given, x)).backward(); }), "must depend on its inputs alone");
  EXPECT_FALSE(weight.grad().defined());
  const OpDef& counting = op_of("composed_counting", [](const ComposedArgs& a) {
    const NoGrad off;
    count += 1;
    return Tensors{a.in[0] * 2};
  });
  EXPECT_HAS(refusal([&] { run(counting, x); }), "must change nothing that it has not made");
  EXPECT_EQ(count.to_vector<float>(), (std::vector<float>{0, 0}));
  static const OpDef* self = nullptr;
  self = &with_kernel("composed_self", [](const ComposedArgs& a) { return Tensors{run(*self, a.in[0])}; });
  EXPECT_HAS(refusal([&] { grad(sum(run(*self, x)), List{x}); }), "it calls the op itself");
  const ComposedForms forms;
  EXPECT_HAS(refusal([&] { run(*self, x); }), "it calls the op itself");
}

TEST(Composed, FindsItsInputsAsTheyWereInTheForwardPass) {
  static const OpDef& op =
      op_of("composed_of_two", [](const ComposedArgs& a) { return Tensors{a.in[0] * a.in[1]}; }, {"a", "b"});
  Tensor a = full({1}, 2).set_requires_grad(), b = full({1}, 3);
  const Tensor y = apply1(op, {a, b});
  b.set_requires_grad();
  int called = 0;
  on_gradient(b, [&](const Tensor& g) {
    ++called;
    return g;
  });
  sum(y).backward();
  EXPECT_EQ(a.grad().item<float>(), 3);
  EXPECT_EQ(called, 0);
  EXPECT_FALSE(b.grad().defined());
  const Tensor z = apply1(op, {a, b});
  b.set_requires_grad(false);
  EXPECT_HAS(refusal([&] { sum(z).backward(); }), "composed_of_two: b must still require a gradient");
}

TEST(Composed, FormsStayInForceInCheckpointsAndEndInAnyOrder) {
  const OpDef& op =
      with_kernel("composed_for_checkpoint", [](const ComposedArgs& a) { return Tensors{a.in[0] + 1}; });
  const Tensor x = ones({1}).set_requires_grad();
  Tensor y;
  {
    const ComposedForms forms;
    y = checkpoint([&](const Tensor& t) { return run(op, t * 1) * t; }, x);
  }
  EXPECT_EQ(y.item<float>(), 2);
  EXPECT_EQ(grad(sum(y), List{x})[0].item<float>(), 3);
  auto first = std::make_unique<ComposedForms>(), second = std::make_unique<ComposedForms>();
  first.reset();
  EXPECT_EQ(run(op, x).item<float>(), 2);
  second.reset();
  EXPECT_EQ(run(op, x).item<float>(), 7);
}

TEST(Composed, AnomalyModeLooksAtTheResultsAlone) {
  const OpDef& op = op_of("composed_safe_log",
                          [](const ComposedArgs& a) { return Tensors{where(a.in[0] > 0, log(a.in[0]), 0)}; });
  const OpDef& bad = op_of("composed_log", [](const ComposedArgs& a) { return Tensors{log(a.in[0])}; });
  set_anomaly_mode(true);
  EXPECT_EQ(run(op, zeros({1})).item<float>(), 0);
  EXPECT_HAS(refusal([&] { run(bad, zeros({1})); }), "composed_log");
  EXPECT_TRUE(anomaly_mode());
  set_anomaly_mode(false);
}

TEST(Composed, MayNotChangeItsInputsNorAskForSizesByValue) {
  const OpDef& rough = op_of("composed_rough", [](const ComposedArgs& a) {
    a.in[0] += 1;
    return Tensors{a.in[0] * 1};
  });
  EXPECT_HAS(
      refusal([&] { run(rough, ones({2})); }),
      "composed_rough: its composed form must change nothing that it has not made; assign changes f32 (2,)");
  const OpDef& own = op_of("composed_own", [](const ComposedArgs& a) {
    const Tensor total = zeros_like(a.in[0]);
    total += a.in[0];
    return Tensors{total};
  });
  EXPECT_EQ(run(own, ones({2})).to_vector<float>(), (std::vector<float>{1, 1}))
      << "what it has made it may change";
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
  const auto why = [](const OpInputs& inputs) {
    return refusal([&] {
      define(OpDef{
          .name = "composed_misnamed", .inputs = inputs, .infer = infer_like, .not_differentiable = "no"});
    });
  };
  for (const OpInputs& inputs : {OpInputs("a?", "b"), OpInputs("parts...", "x"), OpInputs("a", "b?", "c..."),
                                 OpInputs("a."), OpInputs("parts...?"), OpInputs("a", "a"), OpInputs("?")})
    EXPECT_HAS(why(inputs), "define: op 'composed_misnamed' must have inputs");
  EXPECT_HAS(why(OpInputs(2, 1)), "must take from 0 inputs on");
  EXPECT_HAS(why(OpInputs(-1)), "must take from 0 inputs on");
}

}  // namespace
}  // namespace tandem::testing
