// cond(): a branch by a value that is known only when it runs. One node with two graphs in a compiled callable, plain code
// elsewhere, with the bits of a plain `if` in both.
// ctest: asan
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/graph/cond.h"
#include "tandem/graph/tracer.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }
Tensor truth(bool value) { return full({}, value, DType::boolean); }

/// What code leaves behind: results, gradients of leaves, state and the place in the random stream.
struct World {
  Tensor x = values({2, 3}, 1).set_requires_grad(), w = values({3, 3}, 2).set_requires_grad();
  Tensor unused = values({3}, 3).set_requires_grad(), state = values({3}, 4);
};
using Choose = std::function<List(const Tensor&, const TensorFunction&, const TensorFunction&)>;
List by_cond(const Tensor& condition, const TensorFunction& yes, const TensorFunction& no) {
  return cond(condition, yes, no);
}
/// Only where the code is not traced.
List by_plain_if(const Tensor& condition, const TensorFunction& yes, const TensorFunction& no) {
  return condition.item<bool>() ? yes({}) : no({});
}
using Code = std::function<List(World&, const Tensor& condition, const Choose&)>;

enum class Way { plain, eager, compiled, compiled_step };

/// Runs it four times, choosing each way twice, with a backward pass after each.
std::vector<List> run(const Code& code, Way way) {
  World world;
  manual_seed(11);
  const Choose choose = way == Way::plain ? Choose(by_plain_if) : Choose(by_cond);
  const List leaves = {world.x, world.w, world.unused};
  const TensorFunction forward = [&](const List& in) { return code(world, in[0], choose); };
  const auto with_gradients = [&](const TensorFunction& f) {
    return [&leaves, f](const List& in) {
      for (Tensor leaf : leaves) leaf.zero_grad();
      List out = f(in);
      Tensor total = sum(leaves[1] * 0.25);  // a gradient from elsewhere is there already
      for (const Tensor& y : out) total = total + sum(y * y);
      backward(total);
      for (Tensor& y : out) y = y.detach();
      for (const Tensor& leaf : leaves) out.push_back(leaf.grad().defined() ? leaf.grad() : zeros_like(leaf));
      return out;
    };
  };
  Compiled inner = compile(forward), whole = compile(with_gradients(forward));
  std::vector<List> seen;
  for (bool condition : {true, false, false, true}) {
    const List in = {truth(condition)};
    List out = way == Way::compiled        ? with_gradients([&](const List& i) { return inner(i); })(in)
               : way == Way::compiled_step ? whole(in)
                                           : with_gradients(forward)(in);
    for (Tensor& t : out) t = clone(t);
    out.push_back(clone(world.state));
    out.push_back(full({}, static_cast<double>(generator_state().offset), DType::f64));
    seen.push_back(std::move(out));
  }
  return seen;
}

void expect_same(const std::vector<List>& a, const std::vector<List>& b, const char* what) {
  for (size_t call = 0; call < a.size(); ++call) {
    ASSERT_EQ(a[call].size(), b[call].size()) << what;
    for (size_t i = 0; i < a[call].size(); ++i)
      EXPECT_EQ(host_bytes(a[call][i]), host_bytes(b[call][i]))
          << what << ", call " << call << ", tensor " << i;
  }
}
/// -0 and 0 are the same gradient: what only the branch that did not run uses has one or the other, or none.
void expect_equal_values(const std::vector<List>& a, const std::vector<List>& b) {
  for (size_t call = 0; call < a.size(); ++call)
    for (size_t i = 0; i < a[call].size(); ++i)
      EXPECT_EQ(to_array(a[call][i]).values, to_array(b[call][i]).values)
          << "call " << call << ", tensor " << i;
}

/// The weight is used twice in one branch, and once in the other; so is what was computed before.
List two_branches(World& world, const Tensor& condition, const Choose& choose) {
  const Tensor h = matmul(world.x, world.w);
  return choose(
      condition,
      [&](const List&) {
        return List{tanh(matmul(h, world.w)) + matmul(sigmoid(h), world.w) * h, sum(h)};
      },
      [&](const List&) {
        return List{transpose(relu(transpose(h))) * world.unused, sum(h * world.x)};
      });
}

TEST(Cond, HasTheBitsOfAPlainIfInBothEnginesWithItsGradients) {
  const auto eager = run(two_branches, Way::eager);
  expect_equal_values(eager, run(two_branches, Way::plain));
  expect_same(run(two_branches, Way::compiled), eager, "results of a compiled callable");
  expect_same(run(two_branches, Way::compiled_step), eager, "gradients inside it");
}

TEST(Cond, ChangesStateAndDrawsRandomNumbersAlikeInBothEngines) {
  const Code code = [](World& world, const Tensor& condition, const Choose& choose) {
    const Tensor h = world.x * 2;
    List out = choose(
        condition,
        [&](const List&) {
          {
            const NoGrad off;
            assign(world.state, world.state * 0.5 + 1);
          }
          return List{dropout(h * world.state, 0.5)};
        },
        [&](const List&) {
          return List{h * uniform({2, 3}) * uniform({2, 3})};
        });
    out[0] = out[0] * uniform({2, 3});  // what comes after stands at the same place in the stream
    return out;
  };
  const auto eager = run(code, Way::eager);
  expect_same(run(code, Way::compiled), eager, "results of a compiled callable");
  expect_same(run(code, Way::compiled_step), eager, "gradients inside it");
  EXPECT_EQ(eager[0].back().item<double>(),
            6);  // 2 blocks for the branch that draws less, 4 reserved, 2 after it
}

TEST(Cond, NestsAndWorksWithCheckpointsAroundAndInside) {
  const Code code = [](World& world, const Tensor& condition, const Choose& choose) {
    const Tensor h = matmul(world.x, world.w);
    // Checkpoints run this again after everything here has returned.
    const auto inner = [&world, choose](const Tensor& t) {
      return choose(
          greater(sum(t), 0), [&](const List&) { return List{dropout(t, 0.25) * world.w}; },
          [&](const List&) { return List{t - world.w}; })[0];
    };
    return choose(
        condition,
        [&](const List&) {
          return List{checkpoint([&world, inner](const Tensor& t) { return inner(tanh(matmul(t, world.w))); },
                                 matmul(transpose(h), h))};
        },
        [&](const List&) { return List{inner(world.w * 0.5)}; });
  };
  const auto eager = run(code, Way::eager);
  expect_same(run(code, Way::compiled), eager, "results of a compiled callable");
  expect_same(run(code, Way::compiled_step), eager, "gradients inside it");
  const Code around = [&](World& world, const Tensor& condition, const Choose& choose) {
    return checkpoint([&world, code, choose](const List& in) { return code(world, in[0], choose); },
                      List{condition});
  };
  expect_same(run(around, Way::eager), eager, "in a checkpoint");
  expect_same(run(around, Way::compiled_step), eager, "in a checkpoint of a compiled step");
}

TEST(Cond, IsDifferentiatedTwiceWithTheSameBitsInBothEngines) {
  const Tensor w = values({4}, 5).set_requires_grad();
  const TensorFunction twice = [&](const List& in) {
    const Tensor x = in[1];
    const Tensor y = cond(
        in[0], [&] { return sum(x * x * x * w + dropout(x * w, 0.5)); }, [&] { return sum(exp(x) * w); });
    const Tensor wanted[] = {x, w};
    const List g = grad(y, wanted, {}, {.create_graph = true});
    List out = grad(sum(g[0] * g[0]) + sum(g[1]) + y, wanted);
    out.push_back(g[0].detach());
    return out;
  };
  Compiled compiled = compile(twice);
  for (bool condition : {true, false, true}) {
    const Tensor x = values({4}, condition ? 6 : 7).set_requires_grad();
    manual_seed(3);
    const List want = twice({truth(condition), x});
    manual_seed(3);
    const List got = compiled({truth(condition), x});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(host_bytes(want[i]), host_bytes(got[i])) << i;
    if (condition) continue;
    // d/dx of sum((w e^x)^2) + sum(e^x) + sum(w e^x)
    const auto xs = to_array(x).values, ws = to_array(w).values, gs = to_array(want[0]).values;
    for (size_t i = 0; i < xs.size(); ++i) {
      const double e = std::exp(xs[i]);
      EXPECT_NEAR(gs[i], 2 * ws[i] * ws[i] * e * e + e + ws[i] * e, 1e-5);
    }
  }
}

TEST(Cond, IsOneNodeWhoseGraphsAreOptimisedAndShareTheArena) {
  World world;
  Compiled compiled = compile([&](const List& in) {
    const List once = two_branches(world, in[0], by_cond);
    return List{cond(
        in[0], [&] { return tanh(matmul(once[0], world.w)) * 2.0; }, [&] { return once[0]; })};
  });
  const NoGrad off;
  compiled({truth(true)});
  const GraphView graph = compiled.reports()[0].graph;
  ASSERT_EQ(graph.count("cond"), 2);
  for (const GraphView::Node& node : graph.nodes) {
    if (node.op != "cond") continue;
    ASSERT_EQ(node.bodies.size(), 2u);
    EXPECT_GE(node.bodies[0].count("matmul"), 1);
    EXPECT_EQ(node.bodies[1].count("matmul"), 0);
    const bool is_fused = std::any_of(node.bodies[0].nodes.begin(), node.bodies[0].nodes.end(),
                                      [](const GraphView::Node& inner) { return !inner.fused.empty(); });
    EXPECT_TRUE(is_fused) << graph.describe(node);
    EXPECT_NE(graph.describe(node).find(") {"), std::string::npos) << graph.describe(node);
  }
  EXPECT_LT(compiled.reports()[0].arena_bytes, compiled.reports()[0].values_bytes);
}

TEST(Cond, RefusesInBothEnginesWhatItCannotDo) {
  const Tensor x = values({2, 3}, 1).set_requires_grad(), y = values({3}, 2);
  const auto both = [&](const std::function<Tensor()>& yes, const std::function<Tensor()>& no,
                        const std::string& words) {
    for (bool condition : {true, false}) {
      const auto call = [&](const List& in) { return List{cond(in[0], yes, no)}; };
      const std::string eager = refusal([&] { call({truth(condition)}); });
      EXPECT_NE(eager.find(words), std::string::npos) << eager;
      EXPECT_EQ(refusal([&] { compile(call)({truth(condition)}); }), eager);
    }
  };
  const auto same = [&] { return x * 2; };
  both([&] { return y * 2; }, same,
       "cond: result 0 must have one shape and type in both functions; got f32 (3,) on cpu from if_true and "
       "f32 "
       "(2, 3)");
  both(
      same, [&] { return cast(x, DType::f64); }, "cond: result 0 must have one shape and type");
  both(
      same, [&] { return matmul(x, x); }, "cond: in if_false: matmul:");
  both([] { return Tensor(); }, same, "cond: in if_true: cond: every result must be a tensor");
  both(
      same, [&] { return x * x.item<float>(); }, "cond: in if_false: ");
  both(
      [&] {
        backward(sum(x));
        return same();
      },
      same, "backward: must not be called inside a function that is given to cond()");
  both(
      [&] {
        Tensor leaf = x;
        leaf.zero_grad();
        return same();
      },
      same, "zero_grad: must not be called inside");
  both(
      [&] {
        Tensor leaf = x;
        leaf.set_grad(x.detach());
        return same();
      },
      same, "set_grad: must not be called inside");
  both(
      [&] {
        on_gradient(x, [](const Tensor& g) { return g; });
        return same();
      },
      same, "on_gradient: must not be called inside");
  const auto outside = [&](const List& in) {
    const Tensor h = x * 2;
    return List{cond(
        in[0],
        [&] {
          return grad(sum(h), {&x, 1})[0];
        },
        same)};
  };
  const std::string eager = refusal([&] { outside({truth(true)}); });
  EXPECT_NE(eager.find("cond: in if_true: backward: what is differentiated must be computed inside"),
            std::string::npos)
      << eager;
  EXPECT_EQ(refusal([&] { compile(outside)({truth(true)}); }), eager);
  EXPECT_NE(refusal([&] { cond(x, same, same); }).find("the condition must be one bool; got f32 (2, 3)"),
            std::string::npos);
  EXPECT_NE(refusal([&] { cond(full({2}, 1, DType::boolean), same, same); }).find("must be one bool"),
            std::string::npos);
  EXPECT_NE(refusal([&] { cond(Tensor(), same, same); }).find("must be one bool"), std::string::npos);
  EXPECT_NE(refusal([&] { cond(truth(true), std::function<Tensor()>(), same); }).find("must not be empty"),
            std::string::npos);
  const auto one = [&](const List&) { return List{x}; };
  const auto two = [&](const List&) { return List{x, x}; };
  EXPECT_NE(refusal([&] {
              cond(truth(true), one, two);
            }).find("must return equally many tensors; got 1 from if_true and 2 from if_false"),
            std::string::npos);
}

/// Refusals that depend on values, and on what is changed afterwards.
TEST(Cond, RefusesAlikeInBothEnginesByValuesAndByChangesAfterwards) {
  const Tensor table = values({4, 2}, 1), w = values({3}, 2).set_requires_grad();
  const TensorFunction by_index = [&](const List& in) {
    return List{cond(
        in[0], [&] { return gather(table, 0, in[1]); },
        [&] {
          return zeros({1, 2});
        })};
  };
  Compiled compiled = compile(by_index);
  const Tensor bad = full({1, 2}, 9, DType::i64);
  for (bool condition : {true, false})
    EXPECT_EQ(message_of<Error>([&] {
                compiled({truth(condition), bad});
              }),
              message_of<Error>([&] {
                by_index({truth(condition), bad});
              }));
  refusal([&] { compiled({truth(true), bad}); });
  compiled({truth(false), bad});

  for (bool changes_inside : {true, false})
    for (bool condition : {true, false}) {
      const TensorFunction step = [&](const List& in) {
        const Tensor h = w * 2, state = exp(h.detach());
        const Tensor y = cond(
            in[0], [&] { return h * state; },
            [&] {
              if (changes_inside) {
                const NoGrad off;
                assign(state, state * 2);
              }
              return h * 3.0;
            });
        const Tensor z = h * state;
        if (!changes_inside) assign(state, zeros({3}));
        return grad(sum(y) + (changes_inside ? sum(z) : sum(y)), {&w, 1});
      };
      const std::string eager = message_of<Error>([&] { step({truth(condition)}); });
      EXPECT_EQ(message_of<Error>([&] { compile(step)({truth(condition)}); }), eager);
      EXPECT_EQ(eager.empty(), changes_inside) << eager;
    }
}

TEST(Cond, IsPrunedOnlyWhereNothingItDoesIsSeen) {
  const Tensor x = values({3}, 1), state = zeros({3});
  Compiled useless = compile([&](const List& in) {
    cond(
        in[0], [&] { return x * 2; }, [&] { return x; });
    return List{x + 1};
  });
  useless({truth(true)});
  EXPECT_EQ(useless.reports()[0].graph.count("cond"), 0);
  Compiled acts = compile([&](const List& in) {
    cond(
        in[0],
        [&] {
          assign(state, state + 1);
          return x;
        },
        [&] { return x; });
    return List{x + 1};
  });
  for (bool condition : {true, false, true}) acts({truth(condition)});
  EXPECT_EQ(acts.reports()[0].graph.count("cond"), 1);
  EXPECT_EQ(to_array(state).values, (std::vector<double>{2, 2, 2}));
}

struct Net : nn::Module {
  nn::BatchNorm1d norm{this, "norm", 3};
  Tensor forward(const Tensor& x) override { return norm(x); }
};

TEST(Cond, FollowsTheModeOfAModuleAndMovesItsBuffersOnlyInTheBranchThatRuns) {
  const Tensor x = values({4, 3}, 1);
  const auto outcome = [&](bool compiled) {
    Net net;
    const TensorFunction plain = [&](const List& in) {
      return List{cond(
          in[0], [&] { return net(x); }, [&] { return x * 2; })};
    };
    Compiled graph = compile(plain);
    List seen;
    const NoGrad off;
    for (bool training : {true, false, true})
      for (bool condition : {false, true}) {
        net.train(training);
        seen.push_back((compiled ? graph({truth(condition)}) : plain({truth(condition)}))[0]);
        for (const auto& [name, buffer] : net.named_buffers()) seen.push_back(clone(buffer));
      }
    return seen;
  };
  const List eager = outcome(false), graph = outcome(true);
  ASSERT_EQ(eager.size(), graph.size());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_EQ(host_bytes(eager[i]), host_bytes(graph[i])) << i;
}

TEST(Cond, IsDifferentiatedByManyThreadsAtOnce) {
  const Tensor u = values({3}, 1).set_requires_grad();
  const Tensor y = sum(cond(
      truth(true), [&] { return exp(u); }, [&] { return u * 2.0; }));
  const auto want = host_bytes(grad(y, {u})[0]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) wrong += host_bytes(grad(y, {u})[0]) != want;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Cond, RefusesAFunctionThatDoesSomethingElseWhenItComputes) {
  const Tensor u = values({3}, 1).set_requires_grad(), w = values({3}, 2).set_requires_grad();
  const auto other_results = [&](const std::function<List(bool)>& yes) {
    int calls = 0;
    return message_of<Error>([&] {
      const List y = cond(
          truth(true), [&](const List&) { return yes(++calls == 2); },
          [&](const List&) { return List{u * 1}; });
      backward(sum(y[0]));
    });
  };
  const std::string words = "cond: if_true must do the same each time it is called";
  EXPECT_NE(other_results([&](bool again) { return again ? List{} : List{u * 2}; }).find(words),
            std::string::npos);
  EXPECT_NE(other_results([&](bool again) { return List{again ? zeros({7}) : u * 2}; }).find(words),
            std::string::npos);
  EXPECT_NE(other_results([&](bool again) { return List{again ? cast(u, DType::f64) : u * 2}; }).find(words),
            std::string::npos);
  EXPECT_NE(other_results([&](bool again) { return List{again ? u.detach() * 2 : u * 2}; }).find(words),
            std::string::npos);
  EXPECT_NE(other_results([&](bool again) { return List{again ? u * 2 : w * 2}; }).find(words),
            std::string::npos);
  EXPECT_EQ(other_results([&](bool) { return List{u * 2}; }), "");
}

TEST(Cond, TakesCompiledCallablesInsideToTheSecondOrder) {
  const Tensor u = values({3}, 1).set_requires_grad(), x = values({3}, 2);
  Compiled part = compile([&](const List& in) { return List{in[0] * u * u}; });
  const TensorFunction f = [&](const List& in) {
    const Tensor y = cond(
        in[0],
        [&] {
          const Tensor t = part({x * u})[0];
          return grad(sum(t * t), {u}, {}, {.create_graph = true})[0];
        },
        [&] { return part({u})[0]; });
    const Tensor g = grad(sum(y * y), {u}, {}, {.create_graph = true})[0];
    return List{g.detach(), grad(sum(g * g), {u})[0]};
  };
  Compiled compiled = compile(f);
  for (bool condition : {true, false, true}) {
    const List want = f({truth(condition)}), got = compiled({truth(condition)});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(host_bytes(want[i]), host_bytes(got[i])) << i;
  }
}

TEST(Cond, InACheckpointNeedsWhatBothBranchesUse) {
  const Tensor u = values({3}, 1).set_requires_grad();
  for (bool condition : {true, false}) {
    const TensorFunction f = [&](const List& in) {
      const Tensor state = exp(u.detach());
      const auto chosen = [=](const List& i) {
        return List{cond(
            i[0], [&] { return u * state; }, [&] { return u * 2; })};
      };
      const Tensor y = checkpoint(chosen, in)[0];
      assign(state, state + 1);
      return grad(sum(y), {u});
    };
    const std::string eager = refusal([&] { f({truth(condition)}); });
    EXPECT_NE(eager.find("checkpoint: a tensor that the function uses must not be changed"),
              std::string::npos);
    EXPECT_EQ(refusal([&] { compile(f)({truth(condition)}); }), eager);
  }
}

/// The list of values grows where the node is appended, for some of these lengths.
TEST(Cond, IsTracedBehindAnyNumberOfNodes) {
  for (int length = 0; length < 40; ++length) {
    const Tensor state = ones({2, 3});
    Compiled f = compile(
        [&](const List& in) {
          Tensor x = in[1];
          for (int i = 0; i < length; ++i) x = x * 1.5;
          return List{cond(
              in[0],
              [&] {
                assign(state, state * 2.0);
                return x;
              },
              [&] { return x; })};
        },
        {.passes = {}});
    f({truth(true), zeros({3})});
    const GraphView graph = f.reports()[0].graph;
    const GraphView::Value& changed = graph.values[static_cast<size_t>(graph.nodes.back().out.back())];
    EXPECT_EQ(changed.shape, (Dims{24})) << length;
    EXPECT_EQ(changed.dtype, DType::u8) << length;
  }
}

TEST(Bodies, GiveTheirEffectsToTheNodeTheyHangOn) {
  const Tensor state = zeros({3}), index = full({3}, 0, DType::i64);
  const auto trace = graph::trace(
      [&](const List& in) {
        return List{cond(
            in[0],
            [&] {
              assign(state, state + 1);
              return dropout(in[1], 0.5);
            },
            [&] { return gather(in[1], 0, index); })};
      },
      {truth(true), values({3}, 1)});
  graph::Graph& g = trace->graph;
  const int n = g.last();
  const graph::Node& node = g.node(n);
  ASSERT_TRUE(node.bodies);
  EXPECT_TRUE(node.effects().touches(Resource::generator));
  EXPECT_TRUE(node.effects().refuses);
  EXPECT_FALSE(node.effects().is_ordered());
  EXPECT_TRUE(g.changes_memory(node));
  ASSERT_EQ(node.bodies->changed.size(), 1u);
  EXPECT_EQ(g.value(node.in[static_cast<size_t>(node.bodies->changed[0])]).storage, state.impl()->storage);
  for (size_t i = 0; i < node.in.size(); ++i) EXPECT_TRUE(node.reads_input(i)) << i;
  EXPECT_NO_THROW(g.verify("a test"));

  graph::Node wrong = g.erase(n);
  graph::Bodies bodies = *wrong.bodies;
  bodies.changed.clear();
  wrong.bodies = std::make_shared<const graph::Bodies>(bodies);
  wrong.out.resize(wrong.out.size() - 1);
  g.append(std::move(wrong));
  std::string said;
  try {
    g.verify("a test");
  } catch (const InternalError& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("a body changes memory that the node does not say it changes"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace tandem::testing
