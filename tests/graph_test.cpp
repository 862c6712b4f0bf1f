// The graph engine: what is captured, what is state, what makes a new signature; the passes and their reports.
// ctest: asan
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "tandem/core/backend.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/layers.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }
Tensor leaf(const Dims& shape, uint32_t salt) { return values(shape, salt).set_requires_grad(); }

int count_nodes(const GraphReport& report, const std::string& op) { return report.graph.count(op); }

const PassReport& pass_report(const GraphReport& report, const std::string& pass) {
  for (const PassReport& row : report.passes)
    if (row.pass == pass) return row;
  throw Error("no report of pass " + pass);
}

CompileOptions only(const std::vector<std::string>& stages) { return with_stages(stages); }

TEST(Capture, ReadsATensorAnewAtEachCall) {
  const Tensor weight = values({4}, 1);
  Compiled f = compile([&](const List& in) { return List{in[0] * weight + 1}; });
  const Tensor x = values({3, 4}, 2);
  for (uint32_t i = 0; i < 4; ++i) {
    assign(weight, values({4}, 10 + i));
    EXPECT_TRUE(same_bits(f({x})[0], x * weight + 1)) << "call " << i;
  }
  EXPECT_EQ(f.reports().size(), 1u);
  EXPECT_EQ(f.reports()[0].captured, 1);
  EXPECT_EQ(f.reports()[0].inputs, 1);
  EXPECT_EQ(f.reports()[0].outputs, 1);
}

TEST(Capture, SeesAViewOfACapturedTensorAnew) {
  const Tensor memory = values({5, 4}, 1), row = select(memory, 0, 2);
  Compiled f = compile([&](const List& in) { return List{in[0] + row}; });
  const Tensor x = values({4}, 2);
  f({x});
  assign(memory, values({5, 4}, 3));
  EXPECT_TRUE(same_bits(f({x})[0], x + row));
}

TEST(State, AssignChangesTheCapturedTensorAtEachCall) {
  const Tensor counter = zeros({}), history = zeros({3, 2});
  Compiled f = compile([&](const List& in) {
    assign(counter, counter + 1);
    assign(select(history, 0, 1), in[0] * counter);
    return List{counter * 10, sum(history)};
  });
  for (int i = 1; i <= 4; ++i) {
    const List out = f({full({2}, i)});
    EXPECT_EQ(counter.item<float>(), static_cast<float>(i));
    EXPECT_EQ(out[0].item<float>(), 10.f * static_cast<float>(i));
    EXPECT_EQ(out[1].item<float>(), static_cast<float>(2 * i * i));
    EXPECT_EQ(to_array(history).values[2], i * i);
    EXPECT_EQ(to_array(history).values[0], 0);
  }
}

TEST(State, ReadsBeforeAnAssignSeeTheOldValueAndReadsAfterItTheNew) {
  const Tensor state = full({3}, 1);
  Compiled f = compile([&](const List&) {
    const Tensor before = state * 2, view = slice(state, 0, 0, 2);
    assign(state, state + 5);
    return List{before, view * 1, state * 2};
  });
  for (int i = 0; i < 3; ++i) {
    const double old = 1 + 5 * i;
    const List out = f({});
    EXPECT_EQ(to_array(out[0]).values, std::vector<double>(3, 2 * old));
    EXPECT_EQ(to_array(out[1]).values, std::vector<double>(2, old + 5));
    EXPECT_EQ(to_array(out[2]).values, std::vector<double>(3, 2 * (old + 5)));
  }
}

TEST(State, BumpsTheVersionSoThatAnOldTapeIsRefused) {
  const Tensor state = full({3}, 2);
  Tensor x = leaf({3}, 1);
  Compiled f = compile([&](const List&) {
    assign(state, state + 1);
    return List{};
  });
  f({});
  const Tensor y = sum(x * state);
  f({});
  EXPECT_NE(error_of([&] { backward(y); }).find("mul: "), std::string::npos);
}

TEST(State, OutputsAreFreshAndSurviveLaterCalls) {
  const Tensor state = full({2}, 1);
  Compiled f = compile([&](const List& in) {
    assign(state, state * 2);
    return List{in[0] + state, state, in[0]};
  });
  const Tensor x = zeros({2});
  const List first = f({x}), second = f({x});
  EXPECT_EQ(to_array(first[0]).values[0], 2);
  EXPECT_EQ(to_array(second[0]).values[0], 4);
  EXPECT_FALSE(second[0].requires_grad());
  assign(second[0], full({2}, 77));
  EXPECT_EQ(to_array(f({x})[0]).values[0], 8);
  EXPECT_EQ(to_array(first[0]).values[0], 2);
}

TEST(State, ALearningRateInATensorChangesBetweenReplays) {
  Tensor weight = leaf({3}, 1);
  const Tensor rate = full({}, 0.5);
  Compiled step = compile([&](const List& in) {
    const Tensor loss = sum(weight * weight * in[0]);
    const Tensor g = grad(loss, List{weight})[0];
    const NoGrad off;
    assign(weight, weight - g * rate);
    return List{loss};
  });
  const Tensor x = full({3}, 0.5);
  for (const double lr : {0.5, 0.25, 0.0, 1.0}) {
    assign(rate, full({}, lr));
    const Array before = to_array(weight);
    step({x});
    for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(to_array(weight)[i], before[i] * (1 - lr), 1e-6);
  }
  EXPECT_EQ(step.reports().size(), 1u);
}

TEST(Signature, ShapesDtypesAndGradModeTraceAnew) {
  int traces = 0;
  Tensor weight = leaf({4}, 1);
  Compiled f = compile(
      [&](const List& in) {
        ++traces;
        const Tensor y = in[0] * weight;
        return List{y, full({}, y.requires_grad() ? 1 : 0)};
      },
      {.verify = false});
  EXPECT_EQ(f({values({2, 4}, 1)})[1].item<float>(), 1.f);
  f({values({2, 4}, 2)});
  EXPECT_EQ(traces, 1);
  f({values({3, 4}, 2)});
  EXPECT_EQ(traces, 2);
  f({cast(values({3, 4}, 2), DType::f64)});
  EXPECT_EQ(traces, 3);
  {
    const NoGrad off;
    EXPECT_EQ(f({values({2, 4}, 1)})[1].item<float>(), 0.f);
    EXPECT_EQ(traces, 4);
  }
  EXPECT_EQ(f({values({2, 4}, 1)})[1].item<float>(), 1.f);
  EXPECT_EQ(traces, 4);
  EXPECT_EQ(f.reports().size(), 4u);
  for (const GraphReport& report : f.reports()) EXPECT_NE(report.signature.find("4)"), std::string::npos);
}

TEST(Signature, StridedInputsGiveTheSameBits) {
  Compiled f = compile([](const List& in) {
    return List{sum(exp(in[0]), {0}), in[0] + 1, reshape(in[0], {-1})};
  });
  const Tensor x = values({4, 6}, 1), turned = transpose(values({6, 4}, 2)),
               stepped = slice(values({4, 12}, 3), 1, 0, 12, 2);
  for (const Tensor& in : {x, turned, stepped, x, expand(values({1, 6}, 4), {4, 6})}) {
    const List out = f({in});
    EXPECT_TRUE(same_bits(out[0], sum(exp(in), {0})));
    EXPECT_TRUE(same_bits(out[1], in + 1));
    EXPECT_TRUE(same_bits(out[2], reshape(in, {-1})));
  }
}

TEST(Signature, TrainAndEvalOfAModuleTraceAnew) {
  struct Net : nn::Module {
    nn::Dropout drop{this, "drop", 0.5};
    Tensor forward(const Tensor& x) override { return drop(x) * 3; }
  } net;
  int traces = 0;
  Compiled f = compile(
      [&](const List& in) {
        ++traces;
        return List{net(in[0])};
      },
      {.verify = false});
  const Tensor x = values({40}, 1);
  for (int round = 0; round < 2; ++round) {
    net.train();
    manual_seed(3);
    const Tensor noisy = f({x})[0];
    manual_seed(3);
    EXPECT_TRUE(same_bits(noisy, net(x)));
    net.eval();
    EXPECT_TRUE(same_bits(f({x})[0], x * 3));
  }
  EXPECT_EQ(traces, 2);
}

TEST(Cache, DropsTheSignatureUnusedLongest) {
  int traces = 0;
  CompileOptions options;
  options.cache_size = 2;
  options.verify = false;
  Compiled f = compile(
      [&](const List& in) {
        ++traces;
        return List{in[0] + 1};
      },
      options);
  const auto call = [&](int64_t n) {
    EXPECT_EQ(to_array(f({full({n}, 2)})[0]).values, std::vector<double>(static_cast<size_t>(n), 3));
  };
  call(1), call(2), call(1);
  EXPECT_EQ(traces, 2);
  call(3);  // drops 2
  call(1);
  EXPECT_EQ(traces, 3);
  call(2);
  EXPECT_EQ(traces, 4);
}

TEST(Leaks, ATracedTensorUsedAfterwardsIsNamedClearly) {
  Tensor leaked;
  Compiled f = compile([&](const List& in) {
    leaked = in[0] * 2;
    return List{leaked + 1};
  });
  f({values({1}, 1)});
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { leaked + 1; }, [&] { leaked.item<float>(); }, [&] { leaked.to_vector<float>(); },
           [&] { leaked.data<float>(); }, [&] { exp(leaked); }, [&] { assign(zeros({1}), leaked); }}) {
    const std::string message = error_of(use);
    EXPECT_NE(message.find("compiled callable"), std::string::npos) << message;
  }
  // Nor may it enter another trace.
  Compiled g = compile([&](const List& in) { return List{in[0] + leaked}; });
  EXPECT_NE(error_of([&] { g({values({1}, 1)}); }).find("compiled callable"), std::string::npos);
}

TEST(Leaks, ValuesCannotBeReadInsideTheCallable) {
  Compiled f = compile([](const List& in) { return List{in[0] * sum(in[0]).item<float>()}; });
  const std::string message = error_of([&] { f({values({3}, 1)}); });
  EXPECT_NE(message.find("compiled callable"), std::string::npos) << message;
}

TEST(Exceptions, InTheCallableLeaveEverythingUsable) {
  bool fail = true;
  const Tensor state = full({2}, 1);
  Compiled f = compile([&](const List& in) {
    const Tensor y = in[0] + 1;
    assign(state, y);
    if (fail) throw Error("stop");
    return List{y};
  });
  const Tensor x = full({2}, 4);
  const GeneratorState before = generator_state();
  EXPECT_EQ(error_of([&] { f({x}); }), "stop");
  EXPECT_EQ(to_array(state).values[0], 1) << "nothing ran";
  EXPECT_EQ(to_array(x + 1).values[0], 5) << "eager again";
  EXPECT_EQ(generator_state().offset, before.offset);
  EXPECT_TRUE(f.reports().empty());
  fail = false;
  EXPECT_EQ(to_array(f({x})[0]).values[0], 5);
  EXPECT_EQ(to_array(state).values[0], 5);
  // A shape error inside is an ordinary Error too.
  Compiled bad = compile([](const List& in) { return List{matmul(in[0], in[0])}; });
  EXPECT_NE(error_of([&] { bad({values({2, 3}, 1)}); }).find("matmul: "), std::string::npos);
}

TEST(Exceptions, ALaterErrorAtReplayIsReported) {
  Compiled f = compile([](const List& in) { return List{in[0] + 1}; });
  f({values({2}, 1)});
  EXPECT_THROW(f({Tensor()}), Error);
  EXPECT_THROW(compile([](const List&) { return List{Tensor()}; })({}), Error);
  EXPECT_TRUE(same_bits(f({values({2}, 1)})[0], values({2}, 1) + 1));
}

TEST(Nesting, ACompiledCallableInsideAnotherGivesTheSameBitsOrIsRefused) {
  Compiled inner = compile([](const List& in) { return List{exp(in[0])}; });
  Compiled outer = compile([&](const List& in) { return List{inner({in[0] * 2})[0] + 1}; });
  const Tensor x = values({5}, 1);
  try {
    EXPECT_TRUE(same_bits(outer({x})[0], exp(x * 2) + 1));
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("compile"), std::string::npos) << error.what();
  }
}

TEST(RandomNumbers, InAGraphAreThoseOfEagerOverManyCalls) {
  const auto body = [](const List& in) {
    const Tensor noise = uniform({5}), mask = bernoulli({3, 5}, 0.5);
    return List{in[0] * noise + mask, normal({7}), dropout(in[0], 0.3)};
  };
  Compiled f = compile(body);
  const Tensor x = values({3, 5}, 1);
  manual_seed(8);
  List want;
  for (int i = 0; i < 4; ++i)
    for (const Tensor& t : body({x})) want.push_back(t);
  const uint64_t end = generator_state().offset;
  manual_seed(8);
  for (size_t i = 0; i < 4; ++i) {
    const List got = f({x});
    for (size_t j = 0; j < 3; ++j) EXPECT_TRUE(same_bits(got[j], want[3 * i + j])) << "call " << i;
  }
  EXPECT_EQ(generator_state().offset, end);
  EXPECT_EQ(generator_state().seed, 8u);
  // A pruned random op still takes its place in the stream.
  Compiled g = compile([](const List&) {
    uniform({100});
    return List{uniform({4})};
  });
  manual_seed(2);
  const Tensor got = g({})[0];
  manual_seed(2);
  uniform({100});
  EXPECT_TRUE(same_bits(got, uniform({4})));
}

TEST(Prune, RemovesWhatNoOutputNeeds) {
  Compiled f = compile([](const List& in) {
    matmul(in[0], in[0]);
    const Tensor unused = exp(in[0]);
    tanh(unused);
    return List{in[0] + 1};
  });
  const Tensor x = values({3, 3}, 1);
  EXPECT_TRUE(same_bits(f({x})[0], x + 1));
  const GraphReport report = f.reports()[0];
  const PassReport& prune = pass_report(report, "prune");
  EXPECT_EQ(prune.removed_expensive, 1);
  EXPECT_EQ(prune.removed_cheap, 2);
  EXPECT_EQ(prune.nodes_before - prune.nodes_after, 3);
  EXPECT_EQ(count_nodes(report, "matmul"), 0);
}

TEST(Prune, KeepsAssignsAndWhatTheyNeed) {
  const Tensor state = zeros({3});
  Compiled f = compile([&](const List& in) {
    assign(state, exp(in[0]));
    return List{};
  });
  const Tensor x = values({3}, 1);
  f({x});
  EXPECT_TRUE(same_bits(state, exp(x)));
}

TEST(CommonSubexpressions, MergeEqualNodes) {
  const auto body = [](const List& in) {
    const Tensor a = matmul(in[0], in[1]), b = matmul(in[0], in[1]);
    return List{a + b, add(in[0], in[1]) * add(in[1], in[0])};
  };
  Compiled f = compile(body, only({"common_subexpressions"}));
  const List in = {values({3, 3}, 1), values({3, 3}, 2)};
  const List got = f(in), want = body(in);
  EXPECT_TRUE(same_bits(got[0], want[0]));
  EXPECT_TRUE(same_bits(got[1], want[1]));
  const GraphReport report = f.reports()[0];
  EXPECT_EQ(count_nodes(report, "matmul"), 1);
  EXPECT_EQ(pass_report(report, "common_subexpressions").removed_expensive, 1);
  EXPECT_EQ(pass_report(report, "common_subexpressions").removed_cheap, 1) << "add is commutative";
}

TEST(CommonSubexpressions, DoNotMergeAcrossAnAssign) {
  const Tensor state = full({2, 2}, 1);
  Compiled f = compile([&](const List& in) {
    const Tensor before = matmul(state, in[0]);
    assign(state, state + 1);
    const Tensor after = matmul(state, in[0]);
    return List{before, after, matmul(in[0], in[0])};
  });
  const Tensor x = full({2, 2}, 1);
  for (int i = 0; i < 2; ++i) {
    const List out = f({x});
    EXPECT_EQ(to_array(out[0]).values[0], 2 * (1 + i));
    EXPECT_EQ(to_array(out[1]).values[0], 2 * (2 + i));
  }
  EXPECT_EQ(count_nodes(f.reports()[0], "matmul"), 3);
}

TEST(CommonSubexpressions, DoNotMergeAcrossAnAssignThroughAView) {
  const Tensor state = full({2, 2}, 1);
  Compiled f = compile([&](const List&) {
    const Tensor before = sum(state);
    assign(select(state, 0, 1), full({2}, 5));
    return List{before, sum(state)};
  });
  const List out = f({});
  EXPECT_EQ(out[0].item<float>(), 4.f);
  EXPECT_EQ(out[1].item<float>(), 12.f);
}

TEST(CommonSubexpressions, NeverMergeRandomOpsOrTheirUsers) {
  Compiled f = compile([](const List&) {
    const Tensor a = uniform({20}), b = uniform({20});
    return List{a, b, a * 2, b * 2};
  });
  const List out = f({});
  EXPECT_FALSE(same_bits(out[0], out[1]));
  EXPECT_FALSE(same_bits(out[2], out[3]));
}

TEST(CommonSubexpressions, DistinguishZeroFromMinusZeroAndCloneFromItsSource) {
  Compiled f = compile([](const List& in) {
    const Tensor plus = full({2}, 0.0), minus = full({2}, -0.0);
    const Tensor a = clone(in[0]), b = clone(in[0]);
    assign(a, full({2}, 9));
    return List{div(in[0], plus), div(in[0], minus), a, b};
  });
  const List out = f({full({2}, 1)});
  EXPECT_EQ(out[0].to_vector<float>()[0], INFINITY);
  EXPECT_EQ(out[1].to_vector<float>()[0], -INFINITY);
  EXPECT_EQ(out[2].to_vector<float>()[0], 9.f);
  EXPECT_EQ(out[3].to_vector<float>()[0], 1.f);
}

/// A training step with convolution, dropout, momentum and a count, over captured state.
struct Step {
  Tensor kernel = leaf({4, 1, 3, 3}, 1), weight = leaf({5, 4 * 4 * 4}, 2), bias = leaf({5}, 3);
  List velocity = {zeros({4, 1, 3, 3}), zeros({5, 64}), zeros({5})};
  Tensor rate = full({}, 0.1), count = zeros({}, DType::i64);

  List parameters() const { return {kernel, weight, bias}; }
  List state() const {
    List all = parameters();
    all.insert(all.end(), velocity.begin(), velocity.end());
    all.push_back(count);
    return all;
  }
  List operator()(const List& in) const {
    const Tensor h = dropout(max_pool2d(relu(conv2d(in[0], kernel, {}, {.padding = 1}))), 0.2);
    const Tensor loss = cross_entropy(linear(flatten(h, 1), weight, bias), in[1]);
    const List gradients = grad(loss, parameters());
    const NoGrad off;
    assign(count, count + 1);
    for (size_t i = 0; i < gradients.size(); ++i) {
      assign(velocity[i], velocity[i] * 0.9 + gradients[i]);
      assign(parameters()[i], parameters()[i] - velocity[i] * rate);
    }
    return {loss.detach()};
  }
};

TEST(Passes, OnOrOffGiveTheSameBits) {
  const auto input = [](uint32_t i) {
    return List{values({6, 1, 8, 8}, 50 + i), to_tensor(hash_array({6}, 60 + i, 0, 5), DType::i64)};
  };
  const Step eager;
  List want;
  manual_seed(6);
  for (uint32_t i = 0; i < 3; ++i) want.push_back(eager(input(i))[0]);
  const std::vector<std::vector<std::string>> choices = {
      {"prune", "common_subexpressions", "fuse_pointwise", "plan_memory"},
      {},
      {"prune"},
      {"common_subexpressions"},
      {"fuse_pointwise"},
      {"plan_memory"},
      {"fuse_pointwise", "plan_memory"},
      {"prune", "common_subexpressions"},
      {"common_subexpressions", "fuse_pointwise", "plan_memory"}};
  for (const std::vector<std::string>& passes : choices) {
    std::string names;
    for (const std::string& pass : passes) names += " " + pass;
    SCOPED_TRACE("passes:" + names);
    const Step state;
    Compiled step = compile([&](const List& in) { return state(in); }, only(passes));
    manual_seed(6);
    for (uint32_t i = 0; i < 3; ++i)
      EXPECT_TRUE(same_bits(step(input(i))[0], want[i])) << "loss of call " << i;
    const List got_state = state.state(), want_state = eager.state();
    for (size_t i = 0; i < got_state.size(); ++i)
      EXPECT_TRUE(same_bits(got_state[i], want_state[i])) << "state " << i;
    const GraphReport report = step.reports().at(0);
    EXPECT_EQ(report.passes.size(), passes.size());
  }
}

TEST(Passes, ReportsAddUp) {
  const Step state;
  Compiled step = compile([&](const List& in) { return state(in); });
  step({values({6, 1, 8, 8}, 1), to_tensor(hash_array({6}, 2, 0, 5), DType::i64)});
  const GraphReport report = step.reports().at(0);
  ASSERT_EQ(report.passes.size(), all_stages().size());
  int nodes = report.passes[0].nodes_before;
  for (const PassReport& pass : report.passes) {
    EXPECT_EQ(pass.nodes_before, nodes) << pass.pass;
    EXPECT_GE(pass.nodes_before, pass.nodes_after) << pass.pass;
    EXPECT_EQ(pass.nodes_before - pass.nodes_after,
              pass.removed_expensive + pass.removed_cheap + pass.removed_no_op)
        << pass.pass;
    EXPECT_GE(pass.milliseconds, 0) << pass.pass;
    nodes = pass.nodes_after;
  }
  EXPECT_EQ(static_cast<int>(report.graph.nodes.size()), nodes);
  EXPECT_EQ(report.captured, 8) << "three parameters, three velocities, the rate, the count";
  EXPECT_EQ(report.inputs, 2);
  EXPECT_EQ(report.outputs, 1);
  EXPECT_GT(report.arena_bytes, 0u);
  EXPECT_LT(report.arena_bytes, report.values_bytes) << "memory is used again";
  EXPECT_GT(pass_report(report, "fuse_pointwise").nodes_before,
            pass_report(report, "fuse_pointwise").nodes_after);
  EXPECT_NE(report.executor.find("cpu"), std::string::npos);
  EXPECT_NE(report.signature.find("(6, 1, 8, 8)"), std::string::npos) << report.signature;
}

TEST(Passes, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const std::string message = error_of([] {
    compile([](const List& in) { return in; }, only({"prune", "polish"}))({zeros({1})});
  });
  EXPECT_NE(message.find("polish"), std::string::npos) << message;
  EXPECT_NE(message.find("prune"), std::string::npos) << message;
}

TEST(Fusion, OfLongMixedChainsKeepsEveryBit) {
  const auto body = [](const List& in) {
    const Tensor a = in[0] * 3.0 + in[1], b = cast(a, DType::bf16) * cast(in[0], DType::bf16);
    const Tensor c = where(greater(a, 0.5), cast(b, DType::f32), neg(a)) / (abs(in[1]) + 0.1);
    const Tensor d = cast(cast(c * 100.0, DType::i32), DType::f64) / 3.0;
    const Tensor e = sum(c, {1}, true);
    return List{
        a, b, c, d, gelu(c - e) * tanh(a), logical_and(less(a, c), greater(c, e)), exp(cast(b, DType::f16))};
  };
  Compiled f = compile(body);
  for (uint32_t i = 0; i < 3; ++i) {
    const List in = {values({37, 129}, i), values({129}, 9 + i)};
    const List got = f(in), want = body(in);
    for (size_t j = 0; j < want.size(); ++j) EXPECT_TRUE(same_bits(got[j], want[j])) << "result " << j;
  }
}

TEST(Outputs, MayBeInputsViewsConstantsAndTheSameTensorTwice) {
  const Tensor captured = values({2, 2}, 5);
  const auto body = [&](const List& in) {
    const Tensor y = in[0] + 1;
    return List{in[0],     y,        y, transpose(in[0]), slice(y, 0, 0, 1), captured, transpose(captured),
                ones({3}), arange(4)};
  };
  Compiled f = compile(body);
  for (uint32_t i = 0; i < 3; ++i) {
    const Tensor x = values({2, 2}, i);
    const List got = f({x}), want = body({x});
    ASSERT_EQ(got.size(), want.size());
    for (size_t j = 0; j < want.size(); ++j) EXPECT_TRUE(same_bits(got[j], want[j])) << "result " << j;
  }
}

TEST(Outputs, ThatAreEqualHaveMemoryOfTheirOwn) {
  Compiled f = compile([](const List& in) { return List{in[0] + 1, in[0] + 1}; });
  const List out = f({zeros({3})});
  assign(out[0], full({3}, 9));
  EXPECT_EQ(to_array(out[1]).values, std::vector<double>(3, 1));
}

TEST(Gradients, WithBackwardInsideTheCallableGoToTheOutputs) {
  Tensor x = leaf({4}, 1);
  Compiled f = compile([&](const List& in) {
    x.zero_grad();
    backward(sum(exp(x * in[0])));
    const Tensor g = x.grad();
    x.zero_grad();
    return List{g};
  });
  const Tensor scale = values({4}, 2);
  const Tensor got = f({scale})[0];
  EXPECT_TRUE(same_bits(got, grad(sum(exp(x * scale)), List{x})[0]));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Gradients, LeftOnLeavesAreSetAnewByEachCall) {
  Tensor w = leaf({4}, 1);
  Compiled f = compile([&](const List& in) {
    w.zero_grad();
    backward(sum(exp(w * in[0])));
    return List{};
  });
  for (uint32_t i = 0; i < 3; ++i) {
    Tensor x = values({4}, i);
    x.set_requires_grad();
    f({x});
    const std::vector<Tensor> want = grad(sum(exp(w * x)), List{w, x});
    EXPECT_TRUE(same_bits(w.grad(), want[0])) << "captured, call " << i;
    EXPECT_TRUE(same_bits(x.grad(), want[1])) << "input, call " << i;
  }
}

TEST(Gradients, ThatEagerlyWouldAddUpAreRefused) {
  Tensor w = leaf({4}, 1);
  Compiled f = compile([&](const List& in) {
    backward(sum(w * in[0]));
    return List{};
  });
  f({values({4}, 2)});
  EXPECT_TRUE(same_bits(w.grad(), values({4}, 2)));
  for (int i = 0; i < 2; ++i) {  // traced and replayed
    const std::string message = error_of([&] { f({values({4}, 2)}); });
    EXPECT_NE(message.find("Call zero_grad() first"), std::string::npos) << message;
  }
  w.zero_grad();
  f({values({4}, 3)});
  EXPECT_TRUE(same_bits(w.grad(), values({4}, 3)));
}

TEST(Gradients, OfSecondOrderCompile) {
  Tensor x = leaf({4}, 1);
  const auto body = [&](const List& in) {
    BackwardOptions keep;
    keep.create_graph = true;
    const Tensor g = grad(sum(tanh(x * in[0])), List{x}, {}, keep)[0];
    return List{g.detach(), grad(sum(g * g), List{x})[0]};
  };
  Compiled f = compile(body);
  const Tensor scale = values({4}, 2);
  const List got = f({scale}), want = body({scale});
  EXPECT_TRUE(same_bits(got[0], want[0]));
  EXPECT_TRUE(same_bits(got[1], want[1]));
}

std::vector<std::string> kernels_of(const std::function<void()>& work) {
  std::vector<std::string> names;
  for (const DeviceActivity& each : backend(DeviceKind::cpu).watch({}, work)) {
    EXPECT_LE(each.begin_ns, each.end_ns);
    EXPECT_FALSE(each.is_copy);
    names.push_back(each.name);
  }
  return names;
}

TEST(Watch, TellsTheKernelsOfBothEngines) {
  const Tensor x = values({8, 8}, 1);
  const auto body = [](const List& in) { return List{matmul(tanh(in[0]) * in[0], in[0])}; };
  Compiled f = compile(body);
  (void)f({x});
  const std::vector<std::string> eager = kernels_of([&] { (void)body({x}); }),
                                 graph = kernels_of([&] { (void)f({x}); });
  EXPECT_EQ(eager, (std::vector<std::string>{"tanh", "mul", "matmul"}));
  EXPECT_EQ(graph, (std::vector<std::string>{"fused chain", "matmul"}));
  EXPECT_TRUE(kernels_of([] {}).empty());
  (void)body({x});
  EXPECT_TRUE(kernels_of([] {}).empty()) << "what ran before is not kept";
}

TEST(Watch, SeesAllThreadsAndEndsWithTheWork) {
  const Tensor x = values({8, 8}, 1);
  const auto four = kernels_of([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { (void)tanh(x); });
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(four, std::vector<std::string>(4, "tanh"));
  EXPECT_THROW(kernels_of([&] {
                 (void)tanh(x);
                 throw Error("mine");
               }),
               Error);
  EXPECT_TRUE(kernels_of([] {}).empty());
}

}  // namespace
}  // namespace tandem::testing
