// scan(): one node with a graph of its own in a compiled callable, plain code elsewhere, with the bits of a plain loop in
// both.
// ctest: asan
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tandem/core/autocast.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/graph/cond.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"
#include "tests/support/loop_runs.h"
#include "tests/support/numeric_gradient.h"
#include "tests/support/recording_tracer.h"

namespace tandem::testing {
namespace {

/// A recurrent cell whose state is used several times, and is an output as well.
List recurrent(World& world, const Scan& loop) {
  return flat(loop(
      [&](const List& state, const List& slices) {
        const Tensor gate = sigmoid(matmul(slices[0], world.w) + matmul(state[0], world.u));
        const Tensor h = gate * state[0] + (1 - gate) * tanh(matmul(state[0] * gate, world.w));
        return ScanStep{{h}, {h, matmul(h, world.u)}};
      },
      {world.h}, {world.x}));
}

TEST(Scan, HasTheBitsOfAPlainLoopInBothEnginesWithItsGradients) {
  expect_equal_values(both_engines(recurrent), run(recurrent, Way::eager, by_plain_loop));
}

/// Two states, of which one has no gradient from outside and one is whole numbers; a state that only goes through; an
/// output that is an input; a sequence that is used twice, and one without gradients.
List several(World& world, const Scan& loop) {
  const Tensor order = arange(5, DType::i64);
  return flat(loop(
      [&](const List& s, const List& in) {
        const Tensor cell = s[1] * sigmoid(in[0]) + tanh(matmul(s[0], world.w)) * in[0];
        const Tensor h = tanh(cell) * world.memory;
        return ScanStep{{h, cell, s[2] + in[1], s[3]}, {transpose(h), in[0], s[3] * h}};
      },
      {zeros({2, 3}), world.h, zeros({}, DType::i64), transpose(world.w * 0.5)[0] * 1.0}, {world.x, order}));
}

TEST(Scan, CarriesSeveralStatesOfAnyType) {
  const auto eager = both_engines(several);
  expect_equal_values(eager, run(several, Way::eager, by_plain_loop));
  EXPECT_EQ(eager[0][2].item<int64_t>(), 10);
}

TEST(Scan, TakesOneStepAndNoState) {
  const Code code = [](World& world, const Scan& loop) {
    List out = flat(loop(
        [&](const List& s, const List& in) {
          return ScanStep{{matmul(in[0], world.w) + s[0]}, {}};
        },
        {world.h}, {slice(world.x, 0, 2, 3)}));
    const List more = flat(loop(
        [&](const List&, const List& in) {
          return ScanStep{{}, {in[0] * in[0]}};
        },
        {}, {transpose(world.x, 0, 1)}));
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  expect_equal_values(both_engines(code), run(code, Way::eager, by_plain_loop));
}

TEST(Scan, GoesFromTheEndToo) {
  const Code forwards = [](World& world, const Scan& loop) {
    const List parts = {select(world.x, 0, 4), select(world.x, 0, 3), select(world.x, 0, 2),
                        select(world.x, 0, 1), select(world.x, 0, 0)};
    World turned = world;
    turned.x = stack(parts);
    List out = recurrent(turned, loop);
    for (size_t i = 1; i < out.size(); ++i) {
      List back;
      for (int64_t t = 4; t >= 0; --t) back.push_back(select(out[i], 0, t));
      out[i] = stack(back);
    }
    return out;
  };
  const Scan from_end = by_scan({.from_end = true});
  const auto eager = run(recurrent, Way::eager, from_end);
  expect_equal_values(eager, run(forwards, Way::eager));
  expect_same(run(recurrent, Way::compiled, from_end), eager, "compiled");
  expect_same(run(recurrent, Way::compiled_step, from_end), eager, "compiled step");
  expect_same(run(recurrent, Way::compiled_step, by_scan({.from_end = true, .recompute = true})), eager,
              "computed again");
}

TEST(Scan, DrawsRandomNumbersAlikeInBothEngines) {
  const Code code = [](World& world, const Scan& loop) {
    const Tensor before = uniform({3});
    List out = flat(loop(
        [&world, before](const List& s, const List& in) {
          const Tensor h = dropout(matmul(in[0], world.w), 0.5) + s[0];
          return ScanStep{{h}, {h * uniform({2, 3}), before}};
        },
        {world.h}, {world.x}));
    out[0] = out[0] * uniform({2, 3});
    return out;
  };
  const auto eager = both_engines(code);
  EXPECT_EQ(eager[0].back().item<double>(), 1 + 5 * (2 + 2) + 2);
  EXPECT_NE(host_bytes(eager[0][1]), host_bytes(eager[1][1]));
  // Where nothing else draws inside, the numbers are those of the plain loop.
  expect_equal_values(eager, run(code, Way::eager, by_plain_loop));
}

TEST(Scan, ChangesTensorsFromAroundInPlace) {
  const Code code = [](World& world, const Scan& loop) {
    return flat(loop(
        [&](const List& s, const List& in) {
          {
            const NoGrad off;
            assign(world.memory, world.memory * 0.5 + sum(in[0], 0));
          }
          return ScanStep{{s[0] + in[0] * clone(world.memory)}, {}};
        },
        {world.h}, {world.x}));
  };
  expect_equal_values(both_engines(code, false), run(code, Way::eager, by_plain_loop));
  for (Way way : {Way::eager, Way::compiled_step})
    EXPECT_HAS(refusal([&] { run(code, way, by_scan({.recompute = true})); }),
               "scan: with recompute, which runs the step twice, it must not change tensors in place");
  const Code reads = [](World& world, const Scan& loop) {
    return flat(loop(
        [&](const List& s, const List& in) {
          {
            const NoGrad off;
            assign(world.memory, world.memory * 0.5);
          }
          return ScanStep{{s[0] + in[0] * world.memory}, {}};
        },
        {world.h}, {world.x}));
  };
  for (Way way : {Way::eager, Way::compiled_step})
    EXPECT_HAS(
        refusal([&] { run(reads, way); }),
        "scan: a tensor that the step changes in place is needed for its gradient as it was in each run");
}

TEST(Scan, NestsInItselfAndInBranchesAndCheckpoints) {
  const Code code = [](World& world, const Scan& loop) {
    const auto inner = [&world, loop](const Tensor& h, const Tensor& rows) {
      return loop(
          [&world](const List& s, const List& in) {
            const Tensor next = cond(
                greater(sum(in[0]), 0), [&] { return tanh(s[0] + in[0]) * world.memory; },
                [&] { return dropout(s[0], 0.25) - matmul(in[0], world.u); });
            return ScanStep{{next}, {next * in[0]}};
          },
          {h}, {rows});
    };
    const auto outer = [&world, loop, inner](const List& in) {
      return flat(loop(
          [&world, inner](const List& s, const List& slices) {
            const ScanResult made = inner(select(s[0], 0, 0), matmul(slices[0], world.w));
            return ScanStep{{s[0] * 0.5 + made.outputs[0]}, {made.state[0]}};
          },
          {in[0]}, {world.x}));
    };
    List out = outer({world.h});
    const List again = checkpoint(outer, List{world.h * 2.0});
    out.insert(out.end(), again.begin(), again.end());
    const Tensor chosen = cond(
        less(sum(world.h), 100),
        [&] {
          return outer({world.h})[1] * uniform({5, 3});
        },
        [&] {
          return zeros({5, 3});
        });
    out.push_back(chosen);
    return out;
  };
  both_engines(code);
}

TEST(Scan, HasTheGradientsThatDifferencesShow) {
  const auto leaf = [](const Dims& shape, uint32_t salt) {
    return to_tensor(hash_array(shape, salt), DType::f64).set_requires_grad();
  };
  const Tensor x = leaf({4, 2}, 1), h = leaf({2}, 2), w = leaf({2, 2}, 3);
  for (bool recompute : {false, true})
    check_gradients_by_differences(
        [&] {
          const ScanResult made = scan(
              [&](const List& s, const List& in) {
                const Tensor next = tanh(matmul(unsqueeze(s[0], 0), w)) * in[0];
                return ScanStep{{squeeze(next, 0)}, {next * w}};
              },
              {h}, {x}, {.recompute = recompute});
          return sum(made.outputs[0] * made.outputs[0]) + sum(made.state[0]);
        },
        {{"x", x}, {"h", h}, {"w", w}});
}

TEST(Scan, IsDifferentiatedTwiceWhereItComputesAgain) {
  const Tensor w = values({3}, 5).set_requires_grad();
  const auto twice = [&](const List& in, const Scan& loop) {
    const Tensor x = in[0];
    const ScanResult made = loop(
        [w](const List& s, const List& slices) {
          const Tensor next = tanh(s[0] * w) * slices[0] + slices[0];
          return ScanStep{{next}, {dropout(next, 0.25) * w}};
        },
        {ones({3})}, {x});
    const Tensor y = sum(made.state[0] * made.state[0]) + sum(made.outputs[0]);
    const List g = grad(y, {x, w}, {}, {.create_graph = true});
    List out = grad(sum(g[0] * g[0]) + sum(g[1]) + y, {x, w});
    out.push_back(g[0].detach());
    out.push_back(g[1].detach());
    return out;
  };
  const Tensor x = values({4, 3}, 6).set_requires_grad();
  const auto seeded = [&](const TensorFunction& f) {
    manual_seed(3);
    return f({x});
  };
  const TensorFunction by_loop = [&](const List& in) { return twice(in, by_plain_loop); };
  const TensorFunction again = [&](const List& in) { return twice(in, by_scan({.recompute = true})); };
  Compiled compiled = compile(again);
  const List eager = seeded(again), plain = seeded(by_loop);
  for (int call = 0; call < 2; ++call) {
    const List graph = seeded([&](const List& in) { return compiled(in); });
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(host_bytes(eager[i]), host_bytes(graph[i])) << i;
  }
  for (size_t i = 0; i < eager.size(); ++i)
    EXPECT_TRUE(near(to_array(eager[i]), to_array(plain[i]), 1e-5)) << i;
}

TEST(Scan, IsOneNodeThatIsTracedOnce) {
  World world;
  int calls = 0;
  Compiled compiled = compile(
      [&](const List& in) {
        return flat(scan(
            [&](const List& s, const List& slices) {
              ++calls;
              const Tensor h = tanh(matmul(slices[0], world.w) + s[0]) * 2.0;
              return ScanStep{{h}, {h}};
            },
            {in[1]}, {in[0]}));
      },
      {.verify = false});
  const NoGrad off;
  compiled({world.x, world.h});
  EXPECT_EQ(calls, 1);
  compiled({world.x, world.h});
  EXPECT_EQ(calls, 1);
  const GraphView graph = compiled.reports()[0].graph;
  ASSERT_EQ(graph.count("scan"), 1);
  ASSERT_EQ(graph.nodes.size(), 1u);
  ASSERT_EQ(graph.nodes[0].bodies.size(), 1u);
  EXPECT_HAS(graph.describe(graph.nodes[0]), "scan[steps=5](");
  EXPECT_EQ(graph.count("matmul"), 1);
  EXPECT_EQ(graph.count("tanh"), 1);
}

TEST(Scan, HasAGraphAsLargeForManyStepsAsForFew) {
  std::vector<size_t> nodes;
  for (int64_t steps : {2, 50}) {
    World world;
    std::vector<size_t> bytes;
    for (bool recompute : {false, true}) {
      Compiled step = compile([&](const List& in) {
        World now = world;
        now.x = in[0];
        const Tensor y = recurrent(now, by_scan({.recompute = recompute}))[1];
        return grad(sum(y * y), {world.w, world.u});
      });
      step({values({steps, 2, 3}, 7)});
      bytes.push_back(step.reports()[0].arena_bytes);
      if (!recompute) nodes.push_back(step.reports()[0].graph.nodes.size());
      EXPECT_EQ(step.reports()[0].graph.count("scan"), 2);
    }
    if (steps == 50) {
      EXPECT_LT(bytes[1], bytes[0]);
    }
  }
  EXPECT_EQ(nodes[0], nodes[1]);
}

TEST(Scan, TakesInputsOfACompiledCallableAndWhatIsUsedElsewhere) {
  const World world;
  const TensorFunction f = [&](const List& in) {
    World now = world;
    now.x = in[0] * 2.0;
    now.h = in[1];
    const Tensor before = matmul(in[1], world.w);
    List out = recurrent(now, by_scan());
    out.push_back(matmul(out[0], world.w) + before);
    return out;
  };
  for (const CompileOptions& options :
       {CompileOptions{}, CompileOptions{.passes = {}, .plan_memory = false}}) {
    Compiled compiled = compile(f, options);
    for (int64_t steps : {5, 3}) {
      const auto outcome = [&](const TensorFunction& function) {
        const Tensor x = values({3, 2, steps}, 8).set_requires_grad(),
                     h = values({2, 3}, 9).set_requires_grad();
        List out = function({transpose(x, 0, 2), h});
        Tensor total = sum(out[1]);
        for (const Tensor& y : out) total = total + sum(y * y);
        const List g = grad(total, {x, h, world.w, world.u});
        for (Tensor& y : out) y = y.detach();
        out.insert(out.end(), g.begin(), g.end());
        return out;
      };
      const List eager = outcome(f), graph = outcome([&](const List&in) { return compiled(in); });
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(host_bytes(eager[i]), host_bytes(graph[i])) << i;
    }
  }
}

TEST(Scan, TakesEmptyTensorsAndAnyFloatingType) {
  for (DType type : {DType::bf16, DType::f16, DType::f64})
    for (int64_t width : {0, 1, 5}) {
      const Tensor x = to_tensor(hash_array({3, width}, 1), type).set_requires_grad();
      const Tensor w = to_tensor(hash_array({width}, 2), type).set_requires_grad();
      const TensorFunction f = [&](const List&) {
        const ScanResult made = scan(
            [&](const List& s, const List& in) {
              const Tensor next = s[0] * w + in[0] * s[0];
              return ScanStep{{next}, {next}};
            },
            {ones({width}, type)}, {x});
        List out = grad(sum(made.state[0]) + sum(made.outputs[0]), {x, w});
        out.push_back(made.outputs[0].detach());
        return out;
      };
      const List eager = f({}), graph = compile(f)({});
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(host_bytes(eager[i]), host_bytes(graph[i])) << i;
    }
}

TEST(Scan, IsDifferentiatedByManyThreadsAtOnce) {
  World world;
  const List made = recurrent(world, by_scan());
  const Tensor y = sum(made[1]) + sum(made[0]);
  const auto want = host_bytes(grad(y, {world.w})[0]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) wrong += host_bytes(grad(y, {world.w})[0]) != want;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

/// Weights from around, one of them twice in a step, with a bias and without; one that is made in the step; one that is smaller than
/// what its product reads and gives; one in a branch.
List with_weights(World& world, const Scan& loop) {
  const Tensor left = values({8, 3}, 20), right = values({3, 8}, 21);
  const Tensor weight = matmul(matmul(left, world.w), right), bias = sum(matmul(left, world.u), 1);
  return flat(loop(
      [&](const List& s, const List& in) {
        const Tensor a = tanh(linear(s[0], weight, bias) + matmul(linear(in[0], world.u), right));
        const Tensor b =
            linear(a, weight) + linear(a, weight * 0.5) + linear(a, transpose(weight), bias.detach());
        const Tensor chosen = cond(
            greater(sum(in[0]), 0.0), [&](const List& c) { return List{linear(c[0], weight)}; },
            [&](const List& c) { return List{c[0] * 2.0}; }, {b})[0];
        return ScanStep{{tanh(chosen) * 0.5}, {a, in[0]}};
      },
      {matmul(world.h, right)}, {world.x}));
}

TEST(Scan, BatchedWeightsHaveTheGradientsOfALoopUpToRoundingAndOneSetOfBits) {
  for (const bool from_end : {false, true}) {
    const Scan batched = by_scan({.from_end = from_end, .batch_weights = true});
    const auto eager = run(with_weights, Way::eager, batched);
    expect_same(run(with_weights, Way::compiled, batched), eager, "compiled");
    expect_same(run(with_weights, Way::compiled_step, batched), eager, "compiled step");
    const auto plain = run(with_weights, Way::eager, by_scan({.from_end = from_end}));
    for (size_t i = 0; i < eager[2].size(); ++i)
      EXPECT_LE(relative_distance(to_array(eager[2][i]), to_array(plain[2][i])), 2e-6) << i;
  }
}

TEST(Scan, BatchedWeightsTakeTheirProductsOutOfTheLoop) {
  const auto products = [](bool batched) {
    const Tensor w = values({16, 16}, 3).set_requires_grad(), x = values({5, 2, 16}, 1);
    Compiled step = compile([&](const List&) {
      const ScanResult made = scan(
          [&](const List& s, const List& in) {
            return ScanStep{{tanh(linear(s[0], w) + in[0])}, {}};
          },
          {zeros({2, 16})}, {x}, {.batch_weights = batched});
      return grad(sum(made.state[0]), {w});
    });
    step({});
    const GraphView graph = step.reports()[0].graph;
    std::pair<int, int> count{0, 0};  // around, inside
    for (const GraphView::Node& node : graph.nodes) {
      count.first += node.op == "matmul";
      for (const GraphView& body : node.bodies) count.second += body.count("matmul");
    }
    return count;
  };
  EXPECT_EQ(products(false), std::pair(0, 2));  // of the state and of the weight
  EXPECT_EQ(products(true), std::pair(1, 1));
  const Tensor w = values({16, 16}, 3).set_requires_grad();
  EXPECT_HAS(refusal([&] {
               scan(
                   [&](const List& s, const List&) {
                     return ScanStep{{linear(s[0], w)}, {}};
                   },
                   {zeros({2, 16})}, {zeros({3, 2})}, {.recompute = true, .batch_weights = true});
             }),
             "scan: batch_weights keeps what recompute would not");
}

TEST(Scan, BatchedWeightsLeaveOutWhatIsFrozen) {
  const Tensor w = values({16, 16}, 3), b = values({16}, 4), x = values({5, 2, 16}, 1);
  const auto gradient = [&](const Tensor& weight, const Tensor& bias, const Tensor& of, bool batched) {
    const ScanResult made = scan(
        [&](const List& s, const List& in) {
          return ScanStep{{tanh(linear(s[0], weight, bias) + in[0])}, {}};
        },
        {zeros({2, 16})}, {x}, {.batch_weights = batched});
    return to_array(grad(sum(made.state[0]), {of})[0]);
  };
  const Tensor trained_w = clone(w).set_requires_grad(), trained_b = clone(b).set_requires_grad();
  EXPECT_LE(
      relative_distance(gradient(w, trained_b, trained_b, true), gradient(w, trained_b, trained_b, false)),
      2e-6);
  EXPECT_LE(
      relative_distance(gradient(trained_w, b, trained_w, true), gradient(trained_w, b, trained_w, false)),
      2e-6);
}

TEST(Scan, BatchedWeightsUnderAutocastHaveOneSetOfBitsAndTheTypesOfTheirWeights) {
  const Tensor w = values({16, 16}, 3).set_requires_grad(), b = values({16}, 4).set_requires_grad(),
               x = values({5, 2, 16}, 1);
  const auto gradients = [&](bool batched) {
    return [&, batched](const List&) {
      const Autocast narrow(DType::bf16);
      const ScanResult made = scan(
          [&](const List& s, const List& in) {
            return ScanStep{{tanh(linear(s[0], w, b) + in[0])}, {}};
          },
          {zeros({2, 16})}, {x}, {.batch_weights = batched});
      return grad(sum(made.state[0]), {w, b});
    };
  };
  const List eager = gradients(true)({}), plain = gradients(false)({});
  const List graph = compile(gradients(true))({});
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_EQ(eager[i].dtype(), DType::f32);
    EXPECT_EQ(host_bytes(graph[i]), host_bytes(eager[i]));
    EXPECT_LE(relative_distance(to_array(eager[i]), to_array(plain[i])), 1e-2);
  }
}

TEST(Scan, NamesTheOperationThatGivesANanInBothEngines) {
  const auto code = [](const List& in) {
    return flat(scan(
        [](const List& s, const List& slices) {
          return ScanStep{{s[0] + log(slices[0])}, {}};
        },
        {zeros({2})}, in));
  };
  set_anomaly_mode(true);
  Compiled compiled = compile(code);
  const Tensor good = ones({3, 2}), bad = full({3, 2}, -1.0);
  compiled({good});
  const std::string eager = refusal([&] { code({bad}); });
  EXPECT_HAS(eager, "log");
  EXPECT_EQ(refusal([&] { compiled({bad}); }), eager);
  set_anomaly_mode(false);
}

TEST(Scan, TellsItsShapesWhereNothingIsComputed) {
  World world;
  RecordingTracer tracer;
  const TraceScope scope(&tracer);
  const List made = recurrent(world, by_scan());
  EXPECT_EQ(made[0].shape(), (Dims{2, 3}));
  EXPECT_EQ(made[2].shape(), (Dims{5, 2, 3}));
}

TEST(Scan, IsPrunedOnlyWhereNothingItDoesIsSeen) {
  const Tensor x = values({4, 3}, 1), memory = zeros({3});
  for (bool acts : {false, true}) {
    Compiled compiled = compile([&](const List&) {
      scan(
          [&](const List&, const List& in) {
            if (acts) assign(memory, memory + 1);
            return ScanStep{{}, {in[0] * 2}};
          },
          {}, {x});
      return List{x + 1};
    });
    compiled({});
    EXPECT_EQ(compiled.reports()[0].graph.count("scan"), acts);
  }
  EXPECT_EQ(to_array(memory).values, (std::vector<double>{4, 4, 4}));
}

struct Net : nn::Module {
  nn::BatchNorm1d norm{this, "norm", 3};
  Tensor forward(const Tensor& x) override { return norm(x); }
};

TEST(Scan, MovesTheBuffersOfAModuleAtEachStep) {
  const Tensor x = values({3, 4, 3}, 1);
  const auto outcome = [&](bool compiled) {
    Net net;
    const TensorFunction plain = [&](const List&) {
      return flat(scan([&](const List&, const List& in) { return ScanStep{{}, {net(in[0])}}; }, {}, {x}));
    };
    Compiled graph = compile(plain);
    List seen;
    for (bool training : {true, false, true}) {
      net.train(training);
      Tensor y = (compiled ? graph({}) : plain({}))[0];
      backward(sum(y * y * y));
      seen.push_back(y.detach());
      for (const auto& [name, buffer] : net.named_buffers()) seen.push_back(clone(buffer));
      for (const auto& [name, parameter] : net.named_parameters()) seen.push_back(clone(parameter.grad()));
    }
    return seen;
  };
  const List eager = outcome(false), graph = outcome(true);
  ASSERT_EQ(eager.size(), graph.size());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(host_bytes(eager[i]), host_bytes(graph[i])) << i;
}

TEST(Scan, RefusesInBothEnginesWhatItCannotDo) {
  const Tensor x = values({4, 3}, 1), h = values({3}, 2), w = values({3}, 3).set_requires_grad();
  const ScanFunction step = [](const List& s, const List& in) { return ScanStep{{s[0] + in[0]}, {}}; };
  const auto with = [&](const ScanFunction& f, const List& state, const List& sequences) {
    return refusal_of_both([&] { return flat(scan(f, state, sequences)); });
  };
  const auto becomes = [&](const std::function<List(const Tensor&)>& state) {
    return with([&](const List& s, const List&) { return ScanStep{state(s[0]), {}}; }, {h}, {x});
  };
  EXPECT_HAS(with({}, {h}, {x}), "scan: the step must not be empty");
  EXPECT_HAS(with(step, {h}, {}), "scan: there must be at least one sequence");
  EXPECT_HAS(with(step, {Tensor()}, {x}), "scan: every state must be a tensor; state 0 is an undefined");
  EXPECT_HAS(with(step, {h}, {x, Tensor()}), "scan: every sequence must be a tensor; sequence 1 is");
  EXPECT_HAS(
      with(step, {h}, {x, zeros({3, 3})}),
      "scan: all sequences must be equally long along their first axis; sequence 0 is f32 (4, 3) on cpu "
      "and sequence 1 is f32 (3, 3) on cpu");
  EXPECT_HAS(with(step, {h}, {zeros({0, 3})}), "a first axis of at least one step; sequence 0 is f32 (0, 3)");
  EXPECT_HAS(with(step, {h}, {zeros({})}), "scan: a sequence must have a first axis");
  EXPECT_HAS(becomes([](const Tensor&) { return List{}; }), "as many states as it takes; got 0 for 1");
  EXPECT_HAS(becomes([](const Tensor& s) { return List{unsqueeze(s, 0)}; }),
             "scan: a state must keep its shape and type; state 0 was f32 (3,) on cpu and became f32 (1, 3)");
  EXPECT_HAS(becomes([](const Tensor& s) { return List{cast(s, DType::f64)}; }),
             "must keep its shape and type");
  EXPECT_HAS(becomes([](const Tensor&) { return List{Tensor()}; }), "state 0 is an undefined handle");
  EXPECT_HAS(becomes([](const Tensor& s) {
               return List{matmul(s, ones({2, 2}))};
             }),
             "scan: in the step: matmul:");
  EXPECT_HAS(becomes([](const Tensor& s) { return List{s * s.item<float>()}; }), "scan: in the step: ");
  EXPECT_HAS(becomes([&](const Tensor& s) {
               backward(sum(w));
               return List{s};
             }),
             "backward: must not be called inside a function that is given to scan()");
  EXPECT_HAS(becomes([](const Tensor& s) {
               assign(s, s * 2);
               return List{s};
             }),
             "scan: the step must not change state 0 in place");
  EXPECT_HAS(becomes([&](const Tensor& s) {
               assign(x, x * 2);
               return List{s};
             }),
             "scan: the step must not change sequence 0 in place");
  EXPECT_HAS(with(
                 [](const List& s, const List&) {
                   return ScanStep{s, {Tensor()}};
                 },
                 {h}, {x}),
             "output 0 is an undefined handle");
  EXPECT_HAS(refusal_of_both([&] {
               const Tensor y = flat(scan(
                   [&](const List& s, const List& in) {
                     return ScanStep{{s[0] * w + in[0]}, {}};
                   },
                   {h}, {x}))[0];
               return grad(sum(y), {w}, {}, {.create_graph = true});
             }),
             "scan: gradients of gradients (create_graph) go through a scan() with recompute alone");
}

TEST(Scan, RefusesAlikeWhatIsChangedBeforeTheBackwardPass) {
  const Tensor w = values({3}, 3).set_requires_grad();
  for (int which = 0; which < 3; ++which) {
    const std::string text = refusal_of_both([&] {
      const Tensor x = exp(values({4, 3}, 1)), h = exp(values({3}, 2)), around = exp(values({3}, 4));
      const Tensor y = scan(
                           [&](const List& s, const List& in) {
                             return ScanStep{{s[0] * w * in[0] * around}, {}};
                           },
                           {h}, {x})
                           .state[0];
      assign(which == 0 ? x : which == 1 ? h : around, zeros(which == 0 ? Dims{4, 3} : Dims{3}));
      return grad(sum(y), {w});
    });
    EXPECT_HAS(text, which == 0   ? "scan: sequence 0 is needed for the gradient but was changed in place"
                     : which == 1 ? "scan: state 0 is needed for the gradient but was changed in place"
                                  : "is needed for the gradient but was changed in place");
  }
  // What it gave may be changed.
  const auto code = [&](const List&) {
    const ScanResult made = scan(
        [&](const List& s, const List& in) {
          const Tensor next = tanh(s[0] * w + in[0]);
          return ScanStep{{next}, {next}};
        },
        {zeros({3})}, {ones({4, 3})});
    const Tensor loss = sum(made.state[0]) + sum(made.outputs[0]);
    {
      const NoGrad off;
      assign(made.state[0].detach(), zeros({3}));
      assign(made.outputs[0].detach(), zeros({4, 3}));
    }
    return grad(loss, {w});
  };
  EXPECT_EQ(host_bytes(code({})[0]), host_bytes(compile(code)({})[0]));
}

TEST(Scan, TakesCompiledCallablesInside) {
  const Tensor u = values({3}, 1).set_requires_grad(), x = values({4, 3}, 2);
  Compiled part = compile([&](const List& in) { return List{tanh(in[0] * u) * u}; });
  for (bool recompute : {false, true}) {
    const TensorFunction f = [&](const List&) {
      const ScanResult made = scan(
          [&](const List& s, const List& in) {
            const Tensor next = part({s[0] + in[0]})[0];
            return ScanStep{{next}, {grad(sum(part({next})[0]), {next})[0]}};
          },
          {zeros({3})}, {x}, {.recompute = recompute});
      return grad(sum(made.state[0]) + sum(made.outputs[0]), {u});
    };
    Compiled whole = compile(f);
    for (int call = 0; call < 2; ++call) EXPECT_EQ(host_bytes(f({})[0]), host_bytes(whole({})[0]));
  }
}

TEST(Scan, RefusesChangesInPlaceInsideACheckpoint) {
  const Tensor u = values({3}, 1).set_requires_grad(), x = values({4, 3}, 2), memory = zeros({3});
  EXPECT_HAS(
      refusal_of_both([&] {
        return checkpoint(
            [&](const List&) {
              return scan(
                         [&](const List&, const List& in) {
                           assign(memory, memory + 1);
                           return ScanStep{{}, {in[0] * u}};
                         },
                         {}, {x})
                  .outputs;
            },
            List{});
      }),
      "scan: inside checkpoint(), which runs its function twice, the functions must not change tensors");
}

TEST(Scan, LeavesNothingBehindWhereTheStepThrows) {
  const Tensor x = values({4, 3}, 1), table = values({4, 3}, 2);
  const auto pick = [&](const List& in) {
    return flat(scan(
        [&](const List&, const List& s) {
          return ScanStep{{}, {index_select(table, 0, s[0])}};
        },
        {}, {in[0]}));
  };
  Compiled compiled = compile(pick);
  const Tensor good = zeros({3, 1}, DType::i64), bad = full({3, 1}, 9, DType::i64);
  const Tensor want = pick({good})[0];
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(refusal([&] { compiled({bad}); }), refusal([&] { pick({bad}); }));
    EXPECT_EQ(host_bytes(compiled({good})[0]), host_bytes(want));
  }
  struct Stop {};
  EXPECT_THROW(scan([](const List&, const List&) -> ScanStep { throw Stop(); }, {}, {x}), Stop);
  Tensor leaf = ones({2}).set_requires_grad();
  backward(sum(leaf));  // not inside of anything
  EXPECT_EQ(to_array(leaf.grad()).values, (std::vector<double>{1, 1}));
}

TEST(Scan, RefusesAStepThatDoesSomethingElseWhenItComputes) {
  const Tensor u = values({3}, 1).set_requires_grad(), x = values({2, 3}, 2);
  for (int kind = 0; kind < 3; ++kind) {
    int calls = 0;
    const std::string said = refusal([&] {
      const ScanResult made = scan(
          [&](const List&, const List& in) {
            const bool again = ++calls == 3;
            if (kind == 0) return ScanStep{{}, again ? List{} : List{in[0] * u}};
            if (kind == 1) return ScanStep{{}, {again ? zeros({7}) : in[0] * u}};
            return ScanStep{{}, {again ? in[0] * 2.0 : in[0] * u}};
          },
          {}, {x});
      backward(sum(made.outputs[0]));
    });
    EXPECT_HAS(said, "scan: the step must do the same each time it is called");
  }
}

}  // namespace
}  // namespace tandem::testing
