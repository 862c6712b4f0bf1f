// Where a compiled callable could differ from the plain one without a word: each case gives the bits of eager, is traced
// again, or is refused.
// ctest: asan
#include <gtest/gtest.h>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/attention.h"
#include "tandem/ops/create.h"
#include "tandem/ops/ctc.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }
Tensor leaf(const Dims& shape, uint32_t salt) { return values(shape, salt).set_requires_grad(); }

void expect_same(const List& got, const List& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << "result " << i;
}

/// The message of a refusal, which must be the same eagerly and compiled.
std::string refusal_of_both(const TensorFunction& body, const List& in) {
  const std::string eager = error_of([&] { body(in); });
  EXPECT_EQ(error_of([&] { compile(body)(in); }), eager);
  return eager;
}

TEST(Refusals, OfLengthsAndLabelsNameThemWhereNobodyCouldLookAtThem) {
  const auto i64 = [](const std::vector<int64_t>& values, const Dims& shape) {
    return from_vector(values, shape);
  };
  const auto refused = [](const TensorFunction& body, const List& in) {
    return error_of([&] { compile(body)(in)[0].to_vector<float>(); });
  };
  const Tensor logits = values({4, 2, 3}, 1), steps = i64({4, 4}, {2}), labels = i64({1, 2, 2, 0}, {2, 2}),
               counts = i64({2, 1}, {2});
  const TensorFunction ctc = [](const List& in) {
    return List{ctc_loss(log_softmax(in[0], 2), in[1], in[2], in[3])};
  };
  expect_same(compile(ctc)({logits, labels, steps, counts}), ctc({logits, labels, steps, counts}));
  const std::string label = "ctc_loss: every label must be one of the 3 classes other than the blank; got ";
  EXPECT_HAS(refused(ctc, {logits, i64({1, 7, 2, 0}, {2, 2}), steps, counts}), label + "7 at element 1.");
  EXPECT_HAS(refused(ctc, {logits, i64({1, 0, 2, 0}, {2, 2}), steps, counts}),
             label + "the blank or 3 at element 1. Leave blanks out of targets.");
  EXPECT_HAS(
      refused(ctc, {logits, labels, i64({4, 5}, {2}), counts}),
      "lengths: every length must be from 0 to 4, the size of the padded axis; got 5 at element 1. Pad to");
  EXPECT_HAS(refused(ctc, {logits, labels, steps, i64({-1, 1}, {2})}),
             "lengths: every length must be from 0 to 2, the size of the padded axis; got -1 at element 0.");
  const TensorFunction attend = [](const List& in) {
    return List{scaled_dot_product_attention(in[0], in[0], in[0], {.lengths = in[1]})};
  };
  EXPECT_HAS(refused(attend, {values({2, 1, 4, 3}, 2), i64({0, 4}, {2})}),
             "lengths: every length must be from 1 to 4, the size of the padded axis; got 0 at element 0. "
             "Leave such");
  EXPECT_HAS(refused(attend, {values({2, 1, 4, 3}, 2), i64({4, 5}, {2})}), "from 1 to 4, the size");
}

TEST(ChangesInPlace, AnUpdateThatReadsItsTargetKeepsItsPlaceAmongPointwiseOps) {
  const auto body = [](const Tensor& state) {
    return [=](const List& in) {
      const Tensor before = state * 2 + 1;
      const Tensor source = in[0] * 3;
      index_add_into(state, in[1], source);
      const Tensor between = state + before;
      index_add_into(state, in[1], source + 1);
      assign(state, state * 0.5);
      return List{before, between * 1, source - 1, state + 0};
    };
  };
  const Tensor eager = values({4, 3}, 1), graph = values({4, 3}, 1);
  Compiled f = compile(body(graph));
  const Tensor rows = from_vector<int64_t>({2, 0, 2}, {3});
  for (uint32_t call = 0; call < 3; ++call) {
    const List in = {values({3, 3}, 10 + call), rows};
    expect_same(f(in), body(eager)(in));
    EXPECT_TRUE(same_bits(graph, eager)) << "state after call " << call;
  }
}

TEST(ChangesInPlace, AnUpdateOfAComputedTensorIsReadByWhatComesLaterAndNotByWhatCameBefore) {
  const auto body = [](const List& in) {
    const Tensor table = in[0] + 1, early = table * 2;
    index_add_into(table, in[1], in[0] * 0.5);
    const Tensor late = exp(table);
    index_add_into(table, in[1], early);
    return List{early, late, table};
  };
  const List in = {values({3, 2}, 1), from_vector<int64_t>({1, 1, 0}, {3})};
  Compiled f = compile(body);
  for (int i = 0; i < 2; ++i) expect_same(f(in), body(in));
}

TEST(SavedValues, ThatAreChangedBeforeBackwardAreRefusedInBothEngines) {
  const auto captured = [](const List& in) {
    const Tensor state = in[0] + 0, y = in[1] * state;
    {
      const NoGrad off;
      assign(state, state + 1);
    }
    return grad(sum(y * y), List{in[1]});
  };
  const List in = {values({3}, 1), leaf({3}, 2)};
  EXPECT_NE(refusal_of_both(captured, in).find("mul: input 1 is needed for the gradient"), std::string::npos);

  Tensor w = leaf({3}, 3);
  const auto update_too_early = [&](const List& in) {
    const Tensor loss = sum(square(w) * in[0]);
    {
      const NoGrad off;
      assign(w, w * 0.9);
    }
    return grad(loss, List{w});
  };
  EXPECT_NE(refusal_of_both(update_too_early, {values({3}, 1)}).find("changed in place"), std::string::npos);

  const auto through_a_view = [&](const List& in) {
    const Tensor table = in[0] * 1, loss = sum(square(w) * table);
    assign(select(table, 0, 0), zeros({}));
    return grad(loss, List{w});
  };
  EXPECT_NE(refusal_of_both(through_a_view, {values({3}, 1)}).find("changed in place"), std::string::npos);
  const auto by_an_update = [&](const List& in) {
    const Tensor table = in[0] * 1, loss = sum(square(w) * table);
    index_add_into(table, from_vector<int64_t>({1}, {1}), ones({1}));
    return grad(loss, List{w});
  };
  EXPECT_NE(refusal_of_both(by_an_update, {values({3}, 1)}).find("changed in place"), std::string::npos);
}

TEST(SavedValues, ThatAreChangedAfterBackwardAreFine) {
  const auto body = [](const Tensor& w) {
    return [=](const List& in) {
      const Tensor g = grad(sum(square(w) * in[0]), List{w})[0];
      const NoGrad off;
      assign(w, w - g * 0.1);
      const Tensor h = g * w;
      return List{g, h};
    };
  };
  const Tensor eager = leaf({3}, 3), graph = leaf({3}, 3);
  Compiled f = compile(body(graph));
  for (uint32_t i = 0; i < 3; ++i) expect_same(f({values({3}, i)}), body(eager)({values({3}, i)}));
}

TEST(Signature, AFrozenWeightStopsTrainingAndGoesOnWhenItIsUnfrozen) {
  nn::Linear eager_layer(nullptr, "", 3, 2), graph_layer(nullptr, "", 3, 2);
  graph_layer.copy_state_from(eager_layer);
  const auto step = [](nn::Linear& layer) {
    return [&layer](const List& in) {
      const Tensor loss = mean(square(layer(in[0])));
      layer.zero_grad();
      if (loss.requires_grad()) backward(loss);
      const NoGrad off;
      for (Tensor p : layer.parameters())
        if (p.requires_grad()) assign(p, p - p.grad() * 0.1);
      layer.zero_grad();
      return List{loss.detach()};
    };
  };
  Compiled compiled = compile(step(graph_layer));
  const auto both = [&](uint32_t salt) {
    const List in = {values({4, 3}, salt)};
    expect_same(compiled(in), step(eager_layer)(in));
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(same_bits(graph_layer.parameters()[i], eager_layer.parameters()[i])) << "parameter " << i;
  };
  both(1);
  eager_layer.freeze(), graph_layer.freeze();
  const Array held = to_array(graph_layer.parameters()[0]);
  both(2);
  EXPECT_EQ(to_array(graph_layer.parameters()[0]).values, held.values) << "frozen";
  eager_layer.unfreeze(), graph_layer.unfreeze();
  both(3);
  graph_layer.parameters()[1].set_requires_grad(false), eager_layer.parameters()[1].set_requires_grad(false);
  both(4);
  EXPECT_EQ(compiled.reports().size(), 3u) << "the unfrozen one is found again";
}

TEST(Signature, HooksThatComeAndGoTraceAnew) {
  nn::Linear layer(nullptr, "", 2, 2);
  Compiled f = compile([&](const List& in) { return List{layer(in[0])}; });
  const Tensor x = values({3, 2}, 1), plain = layer(x);
  EXPECT_TRUE(same_bits(f({x})[0], plain));
  const nn::HookId hook =
      layer.add_forward_hook([](nn::Module&, const List&, List& out) { out[0] = out[0] * 2; });
  EXPECT_TRUE(same_bits(f({x})[0], plain * 2));
  const nn::HookId second = layer.add_forward_pre_hook([](nn::Module&, List& in) { in[0] = in[0] * 0; });
  EXPECT_TRUE(same_bits(f({x})[0], layer(x)));
  layer.remove_hook(second);
  layer.remove_hook(hook);
  EXPECT_TRUE(same_bits(f({x})[0], plain));
}

TEST(Signature, ATensorReboundBehindADetachOrToAnotherPartOfItsMemoryIsReadAnew) {
  Tensor w = values({2}, 1);
  Compiled f = compile([&](const List& in) { return List{in[0] * w.detach()}; });
  const Tensor x = values({2}, 2);
  EXPECT_TRUE(same_bits(f({x})[0], x * w));
  w.rebind(values({2}, 3));
  EXPECT_TRUE(same_bits(f({x})[0], x * w));
  const Tensor flat = values({4, 2}, 4);
  w.rebind(select(flat, 0, 1));
  EXPECT_TRUE(same_bits(f({x})[0], x * w));
  w.rebind(select(flat, 0, 3));
  EXPECT_TRUE(same_bits(f({x})[0], x * w)) << "the same memory, another place";
}

TEST(Signature, AGradientReadFromOutsideIsTheOneOfTheCall) {
  Tensor w = leaf({3}, 1);
  Compiled update = compile([&](const List&) {
    const NoGrad off;
    assign(w, w - w.grad() * 0.5);
    return List{};
  });
  Tensor eager = leaf({3}, 1);
  for (uint32_t i = 0; i < 3; ++i) {
    for (Tensor* each : {&w, &eager}) {
      each->zero_grad();
      backward(sum(*each * values({3}, 10 + i)));
    }
    update({});
    const NoGrad off;
    assign(eager, eager - eager.grad() * 0.5);
    EXPECT_TRUE(same_bits(w, eager)) << "call " << i;
  }
}

TEST(Gradients, SetByHandInsideTheCallableAreSetByEachCall) {
  Tensor w = leaf({2}, 1);
  const Tensor constant = values({2}, 9);
  Compiled f = compile([&](const List& in) {
    w.set_grad(in[0] * 2);
    return List{w.grad() + 1};
  });
  Compiled g = compile([&](const List&) {
    w.set_grad(constant);
    return List{};
  });
  for (uint32_t i = 0; i < 3; ++i) {
    const Tensor x = values({2}, i);
    EXPECT_TRUE(same_bits(f({x})[0], x * 2 + 1));
    EXPECT_TRUE(same_bits(w.grad(), x * 2));
    assign(constant, values({2}, 20 + i));
    g({});
    EXPECT_TRUE(same_bits(w.grad(), constant));
  }
}

TEST(Gradients, OfATapeFromOutsideAreRefused) {
  Tensor w = leaf({2}, 1);
  const Tensor outside = square(w);
  Compiled f = compile([&](const List& in) { return grad(sum(outside * in[0]), List{w}); });
  EXPECT_NE(error_of([&] { f({values({2}, 1)}); }).find("inside the compiled callable"), std::string::npos);
}

TEST(Refused, WhatWouldActOnlyWhileTracing) {
  Tensor w = leaf({1}, 1), plain = values({1}, 2);
  nn::Linear layer(nullptr, "", 1, 1);
  const std::vector<std::pair<std::string, std::function<void()>>> acts = {
      {"data", [&] { plain.item<float>(); }},
      {"data", [&] { plain.to_vector<float>(); }},
      {"data", [&] { plain.data<float>(); }},
      {"data", [&] { plain.raw(); }},
      {"manual_seed", [&] { manual_seed(1); }},
      {"set_generator_state", [&] { set_generator_state({}); }},
      {"generator_state", [&] { generator_state(); }},
      {"rebind", [&] { plain.rebind(zeros({1})); }},
      {"set_requires_grad", [&] { w.set_requires_grad(false); }},
      {"set_requires_grad", [&] { layer.freeze(); }},
      {"train", [&] { layer.eval(); }},
      {"set_anomaly_mode", [&] { set_anomaly_mode(true); }},
  };
  for (const auto& [name, act] : acts) {
    Compiled f = compile([&](const List& in) {
      act();
      return List{in[0] + w};
    });
    const std::string message = error_of([&] { f({values({1}, 1)}); });
    EXPECT_TRUE(message.starts_with(name + ":")) << message;
    EXPECT_NE(message.find("compiled callable"), std::string::npos) << message;
  }
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(layer.training());
  EXPECT_FALSE(anomaly_mode());
}

TEST(Refused, TheGradientOfAnInputFromOutside) {
  Compiled f = compile([](const List& in) { return List{in[0].grad().defined() ? in[0] : in[0] + 1}; });
  EXPECT_NE(error_of([&] { f({leaf({2}, 1)}); }).find("grad: "), std::string::npos);
}

TEST(Refused, ALeafThatComesInUnderTwoNames) {
  Tensor w = leaf({3}, 1);
  const auto both = [&](const List& in) { return grad(sum(square(in[0])), List{in[0], w}, {}, {}, true); };
  Compiled f = compile(both);
  f({leaf({3}, 2)});
  EXPECT_NE(error_of([&] { f({w}); }).find("captured by the callable, too"), std::string::npos);
  Compiled g = compile([](const List& in) { return grad(sum(in[0] * in[1]), in); });
  EXPECT_NE(error_of([&] { g({w, w}); }).find("must be one input"), std::string::npos);
}

TEST(Refused, ValuesThatEagerlyAreRefusedEvenWhereNobodyUsesTheResult) {
  const Tensor state = zeros({2});
  const auto body = [&](const List& in) {
    assign(state, in[0] * 2);
    gather(in[0], 0, in[1]);
    assign(state, in[0] * 3);
    return List{};
  };
  const List in = {ones({2}), from_vector<int64_t>({0, 5}, {2})};
  EXPECT_NE(refusal_of_both(body, in).find("gather: every index must lie in 0..1; got 5"), std::string::npos);
  EXPECT_EQ(to_array(state).values, (std::vector<double>{2, 2})) << "what came before it was done";
}

TEST(Gradients, ThatAreAddedBeforeTheyAreDroppedNeedALeafWithoutOne) {
  Tensor w = leaf({3}, 1);
  Compiled f = compile([&](const List& in) {
    backward(sum(w * in[0]));
    const Tensor first = w.grad();
    w.zero_grad();
    backward(sum(w * 2));
    return List{first};
  });
  EXPECT_TRUE(same_bits(f({ones({3})})[0], ones({3})));
  EXPECT_NE(error_of([&] { f({ones({3})}); }).find("must not hold a gradient from outside"),
            std::string::npos);
}

TEST(Refused, ATensorOfHostValuesMadeInsideIsNotChangedInPlaceAndEachCallReturnsItsOwn) {
  Compiled adds = compile([](const List& in) {
    const NoGrad off;
    const Tensor sum = from_vector<float>({0, 0, 0}, {3});
    assign(sum, sum + in[0]);
    return List{sum * 1};
  });
  EXPECT_NE(error_of([&] { adds({values({3}, 1)}); }).find("is made once, while tracing"), std::string::npos);
  Compiled gives = compile([](const List&) { return List{from_vector<float>({1, 2, 3}, {3})}; });
  const Tensor first = gives({})[0];
  assign(first, zeros({3}));
  EXPECT_TRUE(same_bits(gives({})[0], from_vector<float>({1, 2, 3}, {3})));
}

TEST(ChangesInPlace, ATableThatTheLibraryMakesIsTheCallersOwn) {
  const auto body = [](const List& in) {
    const Tensor bank = mel_filter_bank(5, {.bands = 3, .sample_rate = 8000}, DType::f64);
    assign(bank, bank + in[0]);
    return List{bank};
  };
  Compiled compiled = compile(body);
  for (const double x : {1., 2.}) {
    const List in{full({5, 3}, x, DType::f64)};
    expect_same(compiled(in), body(in));
  }
}

TEST(Refused, SetRequiresGradOfAnInput) {
  EXPECT_NE(error_of([] {
              compile([](const List& in) {
                Tensor t = in[0];
                t.set_requires_grad();
                return List{t * 2};
              })({values({3}, 1)});
            }).find("set_requires_grad"),
            std::string::npos);
}

TEST(Refused, ACompiledThatIsUsedFromWithinItsOwnCall) {
  Compiled* self = nullptr;
  Compiled f = compile([&](const List& in) {
    self->reports();
    return List{in[0] * 1};
  });
  self = &f;
  EXPECT_NE(error_of([&] { f({values({3}, 1)}); }).find("from within its own call"), std::string::npos);
}

TEST(Refused, HooksAndGradientsThatWereCarriedOut) {
  Tensor inner, x = leaf({3}, 1);
  Compiled f = compile([&](const List& in) {
    inner = in[0] * 2;
    return List{inner * 3};
  });
  f({x});
  EXPECT_NE(error_of([&] { on_gradient(inner, [](const Tensor& g) { return g; }); }).find("outside of it"),
            std::string::npos);
  EXPECT_NE(error_of([&] { x.set_grad(inner.detach()); }).find("outside of it"), std::string::npos);
}

TEST(Signature, AnInputThatIsACopyIsAnotherSignature) {
  Compiled f = compile([](const List& in) { return List{reshape(in[0], {3, 2})}; });
  const Tensor plain = values({6}, 1), copy = reshape(transpose(values({2, 3}, 2), 0, 1), {6});
  assign(f({plain})[0], zeros({3, 2}));
  EXPECT_NE(error_of([&] { assign(f({copy})[0], zeros({3, 2})); }), "");
  assign(f({plain})[0], zeros({3, 2}));
}

TEST(Signature, AContainerThatGrowsIsTracedAgain) {
  nn::Sequential net{nn::make<nn::Linear>(3, 3)};
  Compiled f = compile([&](const List& in) { return List{net(in[0])}; });
  const Tensor x = values({2, 3}, 1);
  expect_same(f({x}), {net(x)});
  net.add(nn::make<nn::Linear>(3, 4));
  expect_same(f({x}), {net(x)});
}

TEST(Effects, OfMemoryThatIsNotThereAndInferencesWithoutOutputsAreRefused) {
  RuntimeOp view{.name = "view_of_nothing", .infer = [](InferArgs& a) { a.add({2}, DType::f32); }};
  view.effects = Effects::view();
  view.takes_strided = true;
  const OpDef& op = define(view);
  EXPECT_NE(error_of([&] { tandem::apply(op, List{}, {}); }).find("whose memory it shares"),
            std::string::npos);
  const OpDef& none = define(RuntimeOp{.name = "gives_nothing", .infer = [](InferArgs&) {}});
  EXPECT_NE(error_of([&] { tandem::apply(none, List{ones({2})}, {}); }).find("at least one output"),
            std::string::npos);
}

TEST(Moved, ACompiledThatWasMovedFromSaysSo) {
  Compiled f = compile([](const List& in) { return in; });
  Compiled g = std::move(f);
  const std::string message = error_of([&] { f({zeros({1})}); });
  EXPECT_NE(message.find("moved from"), std::string::npos) << message;
  EXPECT_NE(error_of([&] { f.reports(); }).find("moved from"), std::string::npos);
  EXPECT_EQ(g({zeros({1})}).size(), 1u);
}

/// What the test op below was called with, in order.
std::vector<double>& told() {
  static std::vector<double> list;
  return list;
}

/// tell(x): notes x on the host and returns nothing that anybody needs. An op of this test's own.
Tensor tell(const Tensor& x) {
  static const OpDef& op = []() -> OpDef& {
    OpDef d;
    d.name = "test_tell";
    d.infer = [](InferArgs& a) { a.add(a.in[0].shape(), a.in[0].dtype()); };
    d.not_differentiable = "it only tells";
    d.effects.resources = static_cast<uint8_t>(Resource::host);
    d.kernels[static_cast<size_t>(DeviceKind::cpu)] = [](const KernelArgs& args) {
      told().push_back(*args.in[0].as<const float>());
      *args.out[0].as<float>() = 0;
    };
    return define(d);
  }();
  return apply1(op, {x});
}

TEST(OrderedEffects, AreNeitherDroppedNorMergedNorMoved) {
  const auto body = [](const List& in) {
    const Tensor a = in[0] + 1;
    tell(a);
    tell(a);
    const Tensor b = a * 2;
    tell(full({}, 7));
    tell(b);
    return List{in[0] * 3};
  };
  Compiled f = compile(body);
  for (int i = 0; i < 2; ++i) {
    told().clear();
    f({full({}, i)});
    EXPECT_EQ(told(), (std::vector<double>{1. + i, 1. + i, 7, 2. + 2 * i})) << "call " << i;
  }
}

TEST(Effects, ThatContradictThemselvesAreRefusedWhenAnOpIsDefined) {
  const auto refused = [](Effects effects, bool strided = true) {
    OpDef d;
    d.name = "test_contradiction";
    d.infer = [](InferArgs&) {};
    d.not_differentiable = "a test";
    d.effects = effects;
    d.takes_strided = strided;
    return error_of([&] { define(d); });
  };
  Effects silent = Effects::update();
  silent.aliases[0] = -1;
  EXPECT_NE(refused(silent).find("must return every input that it changes"), std::string::npos);
  EXPECT_NE(refused(Effects::update(), false).find("takes_strided"), std::string::npos);
  Effects busy = Effects::view();
  busy.resources = static_cast<uint8_t>(Resource::host);
  EXPECT_NE(refused(busy).find("is a view"), std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
