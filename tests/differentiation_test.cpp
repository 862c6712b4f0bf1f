// Gradients of pieces of code: through compiled callables, checkpoints and functions with rules of their own; hooks on
// gradients. Whatever stands between, the bits are those of the plain computation.
// ctest: asan
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/function.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/containers.h"
#include "tandem/nn/dropout.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/growth.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
Tensor values(const Dims& shape, uint32_t salt) { return to_tensor(hash_array(shape, salt), DType::f32); }
Tensor leaf(const Dims& shape, uint32_t salt) { return values(shape, salt).set_requires_grad(); }

/// What stands between a function and its caller.
using Wrap = std::function<TensorFunction(const TensorFunction&)>;
TensorFunction plain(const TensorFunction& f) { return f; }
TensorFunction compiled(const TensorFunction& f) {
  auto c = std::make_shared<Compiled>(compile(f));
  return [c](const List& in) { return (*c)(in); };
}
TensorFunction checkpointed(const TensorFunction& f) {
  return [f](const List& in) { return checkpoint(f, in); };
}

/// A piece of code within a larger computation, with all that it may touch.
struct World {
  Tensor x = leaf({4, 6}, 1), w = leaf({6, 6}, 2), b = leaf({6}, 3), state = values({6}, 4);
  Tensor mean = zeros({6}), variance = ones({6});
  List leaves() const { return {x, w, b}; }
};
using Piece = std::function<TensorFunction(World&)>;
/// The computation around it: gives a scalar.
using Around = std::function<Tensor(World&, const TensorFunction&)>;

Tensor around_once(World& world, const TensorFunction& f) {
  const Tensor before = world.x * 1.5 + world.b;
  Tensor total = sum(before * 0.25);
  for (const Tensor& y : f({before, world.x})) total = total + mean(y * y);
  return total + sum(world.w * 0.125) + sum(before);
}

struct Seen {
  List tensors;
  uint64_t random;
};
/// Runs it three times, so that graphs are replayed, and gives losses, gradients and state after each.
Seen run(const Piece& piece, const Wrap& wrap, const Around& around, const Wrap& wrap_all = plain) {
  World world;
  manual_seed(5);
  Seen seen{};
  const TensorFunction f = wrap(piece(world));
  const TensorFunction all = wrap_all([&](const List&) {
    for (Tensor leaf : world.leaves()) leaf.zero_grad();
    const Tensor loss = around(world, f);
    backward(loss);
    List out = {loss.detach()};
    return out;
  });
  for (int call = 0; call < 3; ++call) {
    seen.tensors.push_back(clone(all({})[0]));
    for (const Tensor& leaf : world.leaves())
      seen.tensors.push_back(leaf.grad().defined() ? clone(leaf.grad()) : zeros({}));
    for (const Tensor& t : {world.state, world.mean, world.variance}) seen.tensors.push_back(clone(t));
  }
  seen.random = generator_state().offset;
  return seen;
}

void expect_same(const Seen& got, const Seen& want, const std::string& what) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << what;
  for (size_t i = 0; i < want.tensors.size(); ++i)
    EXPECT_TRUE(same_bits(got.tensors[i], want.tensors[i])) << what << ": tensor " << i;
  EXPECT_EQ(got.random, want.random) << what << ": the random stream";
}

Tensor hidden(World& world, const Tensor& x) { return tanh(matmul(x, world.w) + world.b); }

const std::vector<std::pair<const char*, Piece>>& pieces() {
  static const std::vector<std::pair<const char*, Piece>> all = {
      {"layers",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) { return List{hidden(w, hidden(w, in[0]))}; };
       }},
      {"several uses of everything",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           const Tensor h = hidden(w, in[0]) * in[0] + in[1] * w.b;
           return List{h, h * in[0], exp(h * 0.1) + in[1]};
         };
       }},
      {"one result twice, an input, a captured leaf, and one without a gradient",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           const Tensor h = hidden(w, in[0]);
           return List{h, in[1], h, w.b, h.detach(), h * in[1]};
         };
       }},
      {"views",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           const Tensor t = transpose(in[0], 0, 1);
           return List{t, t * transpose(in[1], 0, 1), slice(hidden(w, in[0]), 1, 1, 4), expand(w.b, {3, 6})};
         };
       }},
      {"dropout",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           const Tensor h = dropout(hidden(w, in[0]), 0.4);
           return List{dropout(h * in[1], 0.3), h + uniform({4, 6})};
         };
       }},
      {"batch norm, which changes its running mean",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           return List{batch_norm(hidden(w, in[0]), w.mean, w.variance, {}, w.b, {.training = true})};
         };
       }},
      {"state that is read and changed, twice",
       [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           const Tensor h = hidden(w, in[0] + w.state);
           const auto step = [&](double by) {
             const NoGrad off;
             assign(w.state, w.state * by + mean(h, {0}));
           };
           step(0.5);
           const Tensor g = h + w.state;
           step(0.25);
           return List{g * 2, exp(h + w.state)};
         };
       }},
      {"views of parts, of which the backward pass makes others", [](World& w) -> TensorFunction {
         return [&w](const List& in) {
           const Tensor h = tanh(in[0]), part = slice(h, 1, 2, 5), row = select(h, 0, 3);
           return List{matmul(part, transpose(part)), row * slice(h, 0, 1, 3),
                       matmul(slice(in[1], 0, 1, 3), w.w),
                       matmul(unsqueeze(slice(row, 0, 1, 4), 1), unsqueeze(slice(row, 0, 2, 5), 0))};
         };
       }}};
  return all;
}

TEST(GradientsThrough, ACompiledCallableACheckpointAndBothHaveTheBitsOfThePlainCall) {
  for (const auto& [name, piece] : pieces()) {
    const Seen want = run(piece, plain, around_once);
    expect_same(run(piece, compiled, around_once), want, str(name, ", compiled"));
    expect_same(run(piece, checkpointed, around_once), want, str(name, ", checkpointed"));
    const Wrap both = [](const TensorFunction& f) { return compiled(checkpointed(f)); };
    expect_same(run(piece, both, around_once), want, str(name, ", a checkpoint in a compiled callable"));
    const Wrap other = [](const TensorFunction& f) { return checkpointed(checkpointed(f)); };
    expect_same(run(piece, other, around_once), want, str(name, ", a checkpoint in a checkpoint"));
    const Wrap third = [](const TensorFunction& f) { return checkpointed(compiled(f)); };
    expect_same(run(piece, third, around_once), want, str(name, ", a compiled callable in a checkpoint"));
    expect_same(run(piece, checkpointed, around_once, compiled), want,
                str(name, ", a checkpoint in a compiled step"));
    expect_same(run(piece, compiled, around_once, compiled), want, str(name, ", compiled within compiled"));
  }
}

TEST(GradientsThrough, ResultsOfWhichSomeAreUsed) {
  const Piece piece = pieces()[1].second;
  for (size_t used = 0; used < 3; ++used) {
    const Around around = [used](World& world, const TensorFunction& f) {
      return mean(exp(f({world.x, world.x * 2})[used]));
    };
    const Seen want = run(piece, plain, around);
    expect_same(run(piece, compiled, around), want, str("result ", used, ", compiled"));
    expect_same(run(piece, checkpointed, around), want, str("result ", used, ", checkpointed"));
  }
}

TEST(GradientsThrough, TheSameCallableTwiceInOneComputation) {
  const Around around = [](World& world, const TensorFunction& f) {
    const Tensor once = f({world.x, world.x * 2})[0];
    return sum(f({once, world.x * once})[0] * 0.5);
  };
  for (const auto& [name, piece] : {pieces()[0], pieces()[4]}) {
    const Seen want = run(piece, plain, around);
    expect_same(run(piece, compiled, around), want, str(name, ", compiled"));
    expect_same(run(piece, checkpointed, around), want, str(name, ", checkpointed"));
  }
}

TEST(GradientsThrough, ATensorThatWasComputedOutsideAndIsCaptured) {
  for (const Wrap& wrap : {Wrap(plain), Wrap(compiled), Wrap(checkpointed)}) {
    Tensor a = leaf({3}, 1);
    const Tensor captured = exp(a);
    const TensorFunction f = wrap([&](const List& in) { return List{captured * in[0] * captured}; });
    static Tensor want;
    for (int call = 0; call < 2; ++call) {
      const Tensor got = grad(sum(f({values({3}, 7)})[0]), List{a})[0];
      if (!want.defined()) want = got;
      EXPECT_TRUE(same_bits(got, want));
    }
  }
}

TEST(GradientsThrough, GradientsOfGradientsAgreeButForRounding) {
  List want;
  for (const Wrap& wrap : {Wrap(plain), Wrap(compiled), Wrap(checkpointed)}) {
    manual_seed(3);
    Tensor x = to_tensor(hash_array({5}, 1), DType::f64).set_requires_grad();
    Tensor w = to_tensor(hash_array({5}, 2), DType::f64).set_requires_grad();
    const TensorFunction f = wrap([&](const List& in) {
      return List{dropout(exp(in[0] * w) * in[0], 0.2), tanh(in[0]) * w};
    });
    const List out = f({x});
    const Tensor first = grad(sum(out[0] * out[1]), List{x}, {}, {.create_graph = true})[0];
    List got = grad(sum(first * first), List{x, w});
    got.push_back(first.detach());
    if (want.empty()) want = got;
    EXPECT_TRUE(same_bits(got[2], want[2]));
    for (size_t i = 0; i < got.size(); ++i) {
      const std::vector<double> a = to_array(got[i]).values, b = to_array(want[i]).values;
      for (size_t k = 0; k < a.size(); ++k)
        EXPECT_NEAR(a[k], b[k], 1e-13 * (1 + std::abs(b[k]))) << i << " " << k;
    }
  }
}

TEST(GradientsThrough, ALeafThatTheCallableMakesAndReturns) {
  const Tensor x = values({3}, 1);
  const TensorFunction body = [](const List& in) {
    const Tensor own = (in[0] * 2).detach().set_requires_grad();
    return List{own, exp(own) * own};
  };
  for (const Wrap& wrap : {Wrap(plain), Wrap(compiled), Wrap(checkpointed)}) {
    const List out = wrap(body)({x});
    EXPECT_TRUE(out[0].requires_grad() && out[0].is_leaf());
    EXPECT_TRUE(
        same_bits(grad(sum(out[1]), List{out[0]})[0], grad(sum(exp(out[0]) * out[0]), List{out[0]})[0]));
  }
}

TEST(GradientsThrough, ACompiledCallableThatIsGone) {
  Tensor x = leaf({3}, 1);
  Tensor y;
  {
    Compiled f = compile([](const List& in) { return List{exp(in[0])}; });
    y = f({x})[0];
  }
  EXPECT_TRUE(same_bits(grad(sum(y), List{x})[0], exp(x.detach())));
  EXPECT_NE(error_of([&] {
              grad(sum(y), List{x}, {}, {.create_graph = true});
            }).find("its Compiled must still be there"),
            std::string::npos);
}

TEST(GradientsThrough, ManyLayoutsOfTheGradientThatArrives) {
  Tensor x = leaf({3, 4}, 1);
  Compiled f = compile([](const List& in) { return List{exp(in[0]) * in[0]}; });
  const auto check = [&](const std::function<Tensor(const Tensor&)>& g) {
    const Tensor want = grad(g(exp(x) * x), List{x})[0];
    EXPECT_TRUE(same_bits(grad(g(f({x})[0]), List{x})[0], want));
  };
  for (int twice = 0; twice < 2; ++twice) {
    for (Dim more = 1; more < 20; ++more)  // more layouts than are kept: slices of ever wider matrices
      check([&](const Tensor& y) {
        return sum(concat(List{y, ones({3, more})}, 1) * values({3, 4 + more}, 9));
      });
    check([](const Tensor& y) { return sum(y); });
    check([](const Tensor& y) { return sum(mean(y, {1})); });
    check([](const Tensor& y) { return sum(transpose(y, 0, 1) * values({4, 3}, 5)); });
    check([](const Tensor& y) { return sum(y * values({3, 4}, 6)); });
    check([](const Tensor& y) { return sum(select(y, 0, 1)); });
  }
}

TEST(GradientsThrough, AResultThatAnotherOneIsComputedFromIsRefusedWhereItsGradientIsNotWhole) {
  for (const Wrap& wrap : {Wrap(compiled), Wrap(checkpointed)}) {
    Tensor x = leaf({3}, 1);
    const TensorFunction f = wrap([](const List& in) {
      const Tensor a = exp(in[0]);
      return List{a, a * a};
    });
    const List out = f({x});
    const auto refused = [](const std::string& text) {
      return text.find("where another result is computed from it inside") != std::string::npos;
    };
    EXPECT_TRUE(refused(error_of([&] { grad(sum(out[1]), List{out[0]}, {}, {}, true); })));
    EXPECT_TRUE(same_bits(grad(sum(out[0]), List{out[0]})[0], ones({3})));
    EXPECT_TRUE(grad(sum(out[0] + out[1]), List{x})[0].defined());
    on_gradient(out[0], [](const Tensor& g) { return g * 2; });
    EXPECT_TRUE(refused(error_of([&] { grad(sum(out[0] + out[1]), List{x}); })));
  }
}

TEST(Compile, WithGradientsCostsTimeInProportionToItsNodes) {
  EXPECT_TRUE(in_proportion(250, [](int n) {
    Tensor x = leaf({3}, 1);
    Compiled f = compile([n](const List& in) {
      Tensor y = in[0];
      for (int i = 0; i < n; ++i) y = sin(y * 1.0001);
      return List{y};
    });
    f({x});
    EXPECT_LE(f.reports()[0].kept, 2 * n + 2);
  }));
}

TEST(Kept, ConstantsAreMadeAgain) {
  Tensor x = leaf({3}, 1);
  Compiled f = compile([](const List& in) { return List{exp(in[0] * 2.0 * 3.0 * 4.0)}; });
  f({x});
  EXPECT_EQ(f.reports()[0].kept, 1);  // exp's result
}

TEST(Kept, NothingUnderNoGradNorByATrainingStepNorWhereResultsAreDetached) {
  Tensor w = leaf({4, 4}, 1);
  const Tensor x = values({2, 4}, 2);
  const auto forward = [&](const List& in) { return List{tanh(matmul(tanh(matmul(in[0], w)), w))}; };
  const auto kept = [&](const TensorFunction& f) {
    Compiled c = compile(f);
    c({x});
    return c.reports()[0].kept;
  };
  EXPECT_GT(kept(forward), 0);
  {
    const NoGrad off;
    EXPECT_EQ(kept(forward), 0);
  }
  EXPECT_EQ(kept([&](const List& in) { return List{forward(in)[0].detach()}; }), 0);
  EXPECT_EQ(kept([&](const List& in) {
              const Tensor loss = sum(forward(in)[0]);
              const Tensor g = grad(loss, List{w})[0];
              const NoGrad off;
              assign(w, w - g * 0.1);
              return List{loss};
            }),
            0);
}

TEST(Refused, GradientsThatNeedWhatWasChanged) {
  Tensor w = leaf({3}, 1), x = leaf({3}, 2);
  const auto step = [&](const List& in) {
    const Tensor loss = sum(exp(in[0]) * w);
    const NoGrad off;
    assign(w, w * 0.5);
    return List{loss};
  };
  const std::string eager = error_of([&] { backward(step({x})[0]); });
  Compiled f = compile(step);
  EXPECT_EQ(error_of([&] { backward(f({x})[0]); }), eager);
  EXPECT_NE(eager.find("changed in place"), std::string::npos);

  Compiled g = compile([&](const List& in) { return List{in[0] * w, exp(in[0])}; });
  const auto late = [&](const std::function<void(const List&)>& change, const std::string& what) {
    x.zero_grad();
    const List out = g({x});
    {
      const NoGrad off;
      change(out);
    }
    EXPECT_NE(error_of([&] { backward(sum(out[0] + out[1])); }).find(what), std::string::npos) << what;
  };
  late([&](const List&) { assign(w, w + 1); }, "captured tensor");
  late([&](const List&) { assign(x, x + 1); }, "was changed in place");
  late([&](const List& out) { assign(out[1], out[1] + 1); }, "a value of the callable");
  Tensor z = leaf({3}, 3);
  const Tensor y = z * z;
  z.rebind(values({3}, 4));
  EXPECT_NE(error_of([&] { backward(sum(y)); }).find("changed in place"), std::string::npos);
}

TEST(Refused, ACheckpointWhoseSurroundingsHaveChanged) {
  nn::Sequential net{nn::make<nn::Linear>(3, 3), nn::make<nn::Dropout>(0.5)};
  Tensor x = leaf({2, 3}, 1), scale = values({3}, 2);
  const auto call = [&] { return sum(checkpoint([&](const Tensor& t) { return net(t * scale); }, x)); };
  const Tensor first = call();
  assign(scale, scale * 2);
  EXPECT_NE(error_of([&] { backward(first); }).find("checkpoint: a tensor that the function uses"),
            std::string::npos);
  const Tensor second = call();
  net.eval();
  EXPECT_NE(error_of([&] { backward(second); }).find("same mode"), std::string::npos);
  net.train();
  backward(call());
  EXPECT_TRUE(x.grad().defined());
}

TEST(Refused, ACheckpointWhoseTensorsAreReboundFrozenOrHaveTheirGradientsChangedInside) {
  Tensor x = leaf({3}, 1), w = leaf({3}, 2);
  const auto call = [&] { return sum(checkpoint([&](const Tensor& t) { return exp(t * w); }, x)); };
  const auto refuses = [&](const Tensor& y) {
    return error_of([&] { backward(y); }).find("checkpoint: a tensor that the function uses") !=
           std::string::npos;
  };
  Tensor y = call();
  w.set_requires_grad(false);
  EXPECT_TRUE(refuses(y));
  w.set_requires_grad(true);
  y = call();
  w.rebind(values({3}, 4));
  EXPECT_TRUE(refuses(y));
  const auto inside = [&](const std::function<void()>& act) {
    return error_of([&] {
      checkpoint(
          [&](const Tensor& t) {
            act();
            return t * w;
          },
          x);
    });
  };
  EXPECT_NE(inside([&] { backward(sum(w * 2)); }).find("inside checkpoint()"), std::string::npos);
  EXPECT_NE(inside([&] { w.zero_grad(); }).find("inside checkpoint()"), std::string::npos);
  EXPECT_NE(inside([&] { w.set_grad(ones({3})); }).find("inside checkpoint()"), std::string::npos);
}

TEST(Checkpoint, RandomNumbersOfAHookInsideMoveTheStreamAsEagerly) {
  std::vector<Seen> seen;
  for (const Wrap& wrap : {Wrap(plain), Wrap(checkpointed)}) {
    manual_seed(5);
    Tensor x = leaf({3}, 1);
    const Tensor y = wrap([](const List& in) {
      const Tensor h = dropout(in[0] * 2, 0.5);
      on_gradient(h, [](const Tensor& g) { return g + uniform({3}); });
      return List{h * 3};
    })({x})[0];
    seen.push_back(
        {{grad(sum(y), List{x})[0], grad(sum(y), List{x})[0], uniform({2})}, generator_state().offset});
  }
  expect_same(seen[1], seen[0], "hook with noise");
}

TEST(Refused, BackwardInsideACompiledCallableThatReachesAResultFromOutside) {
  Tensor x = leaf({3}, 1);
  Compiled f = compile([](const List& in) {
    backward(sum(in[0] * in[0]));
    return List{in[0].detach()};
  });
  EXPECT_NE(error_of([&] { f({x * 2}); }).find("result of an operation outside"), std::string::npos);
  f({x});
  EXPECT_TRUE(x.grad().defined());
}

TEST(Checkpoint, TakesLessMemoryInACompiledStep) {
  constexpr int kLayers = 16;
  Tensor w = leaf({64, 64}, 1);
  const auto arena = [&](bool checkpoints) {
    Compiled step = compile([&](const List& in) {
      const std::function<Tensor(const Tensor&)> block = [&](const Tensor& t) {
        Tensor h = t;
        for (int i = 0; i < 4; ++i) h = tanh(matmul(h, w));
        return h;
      };
      Tensor h = in[0];
      for (int i = 0; i < kLayers / 4; ++i) h = checkpoints ? checkpoint(block, h) : block(h);
      return List{grad(mean(h), List{w})[0]};
    });
    step({values({512, 64}, 2)});
    return step.reports()[0].arena_bytes;
  };
  EXPECT_LT(static_cast<double>(arena(true)), 0.65 * static_cast<double>(arena(false)));
}

TEST(Checkpoint, ThatFailsInItsSecondRunLeavesStateAsItWas) {
  World world;
  bool fail = false;
  const Tensor y = checkpoint(
      [&](const Tensor& t) {
        const Tensor out = batch_norm(t, world.mean, world.variance, {}, world.b, {.training = true});
        TD_CHECK(!fail, "stop");
        return out;
      },
      world.x);
  const Tensor mean = clone(world.mean);
  fail = true;
  EXPECT_EQ(error_of([&] { backward(sum(y)); }), "stop");
  EXPECT_TRUE(same_bits(world.mean, mean));
  fail = false;
  backward(sum(y));
  EXPECT_TRUE(same_bits(world.mean, mean));
}

TEST(Checkpoint, InACompiledCallableTakesTheGradientTwice) {
  World world;
  Compiled f = compile([&](const List& in) {
    return checkpoint(
        [&](const List& t) {
          return List{batch_norm(t[0], world.mean, world.variance, {}, world.b, {.training = true})};
        },
        in);
  });
  const Tensor y = sum(exp(f({world.x})[0]));
  const Tensor mean = clone(world.mean), once = grad(y, List{world.x})[0];
  EXPECT_TRUE(same_bits(grad(y, List{world.x})[0], once));
  EXPECT_TRUE(same_bits(world.mean, mean));
}

/// The square of x, with a rule that counts its calls, in the way that `saves` says.
CustomFunction square_by_hand(int saves, int& calls) {
  return CustomFunction(
      "square_by_hand",
      [saves](FunctionContext& context, const List& in) {
        const Tensor y = in[0] * in[0];
        context.save(saves == 0 ? in[0] : y);
        return List{y};
      },
      [saves, &calls](const FunctionContext& context, const List& grads) {
        ++calls;
        const Tensor s = context.saved(0);
        return List{grads[0] * (saves == 0 ? s : sqrt(s)) * 2};
      });
}

TEST(Custom, AFunctionOfOpsWithItsOwnRuleInBothEnginesAndToTheSecondOrder) {
  for (int saves = 0; saves < 2; ++saves) {
    int calls = 0;
    const CustomFunction square = square_by_hand(saves, calls);
    Tensor x = from_vector<double>({1, 2, 3}, {3}).set_requires_grad();
    const Tensor first = grad(sum(square({x})[0] * x), List{x}, {}, {.create_graph = true})[0];  // 3 x²
    EXPECT_EQ(to_array(first).values, (std::vector<double>{3, 12, 27}));
    EXPECT_EQ(to_array(grad(sum(first), List{x})[0]).values, (std::vector<double>{6, 12, 18}));
    EXPECT_EQ(calls, 2);
    const TensorFunction body = [&](const List& in) {
      return List{grad(sum(square({in[0]})[0]), List{in[0]})[0]};
    };
    EXPECT_TRUE(same_bits(compile(body)({x})[0], body({x})[0]));
    const TensorFunction through = [&](const List& in) { return square({in[0] * 2}); };
    Compiled f = compile(through);
    EXPECT_TRUE(same_bits(grad(sum(f({x})[0]), List{x})[0], grad(sum(through({x})[0]), List{x})[0]));
  }
}

TEST(Custom, ATensorThatOnlyTheRuleReadsIsReadAnew) {
  Tensor x = leaf({3}, 1), factor = values({3}, 2);
  const CustomFunction f(
      "scaled", [](FunctionContext&, const List& in) { return List{in[0] * 1}; },
      [&](const FunctionContext&, const List& grads) { return List{grads[0] * factor}; });
  Compiled c = compile([&](const List& in) { return f({in[0]}); });
  const auto check = [&] { EXPECT_TRUE(same_bits(grad(sum(c({x})[0]), List{x})[0], factor)); };
  check();
  assign(factor, factor * 2);
  check();
  factor.rebind(values({3}, 3));
  check();
}

TEST(Custom, WhatARuleGetsWrongIsNamed) {
  Tensor x = leaf({3}, 1);
  const auto message = [&](const CustomFunction::Gradient& gradient) {
    const CustomFunction f(
        "mine", [](FunctionContext&, const List& in) { return List{in[0] * 1}; }, gradient);
    return error_of([&] { backward(sum(f({x})[0])); });
  };
  EXPECT_EQ(message([](const FunctionContext&, const List&) { return List{}; }),
            "mine: the gradient must give one tensor per input; got 0 for 1 inputs. Give an undefined one "
            "where there is "
            "none.");
  EXPECT_EQ(message([](const FunctionContext&, const List&) { return List{ones({2})}; }),
            "mine: the gradient of input 0 must be like it, f32 (3,) on cpu; got f32 (2,) on cpu.");
  EXPECT_NE(message([](const FunctionContext& c, const List&) { return List{c.saved(3)}; }).find("saved(i)"),
            std::string::npos);
  EXPECT_NE(error_of([] { CustomFunction("mine", {}, {}); }).find("no forward function"), std::string::npos);
  const CustomFunction keeps(
      "keeps",
      [](FunctionContext& c, const List& in) {
        c.save(in[0]);
        return List{in[0] * 1};
      },
      [](const FunctionContext& c, const List& g) { return List{g[0] * c.saved(0)}; });
  const Tensor y = sum(keeps({x})[0]);
  {
    const NoGrad off;
    assign(x, x * 2);
  }
  EXPECT_NE(error_of([&] { backward(y); }).find("keeps: saved tensor 0 is needed"), std::string::npos);
}

TEST(Hooks, SeeAndReplaceTheWholeGradientOfALeafAndOfAResult) {
  Tensor x = from_vector<double>({1, 2}, {2}).set_requires_grad();
  std::vector<std::vector<double>> seen;
  const auto look = [&](const Tensor& g) {
    seen.push_back(to_array(g).values);
    return g * 10;
  };
  GradientHookHandle on_leaf = on_gradient(x, look);
  const Tensor h = x * 3;
  on_gradient(h, look);
  backward(sum(h * h) + sum(h));
  EXPECT_EQ(seen, (std::vector<std::vector<double>>{{7, 13}, {210, 390}}));
  EXPECT_EQ(to_array(x.grad()).values, (std::vector<double>{2100, 3900}));
  on_leaf.remove();
  on_leaf.remove();
  seen.clear();
  EXPECT_EQ(to_array(grad(sum(x * 2), List{x})[0]).values, (std::vector<double>{2, 2}));
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(to_array(grad(sum(h), List{h})[0]).values, (std::vector<double>{10, 10}));
  EXPECT_NE(error_of([&] { on_gradient(x.detach(), look); }).find("on_gradient"), std::string::npos);
  on_gradient(x, [](const Tensor&) { return ones({5}); });
  EXPECT_NE(error_of([&] { backward(sum(x)); }).find("on_gradient: a hook must return"), std::string::npos);
}

TEST(Hooks, OfACapturedLeafAndOfAnInputBelongToTheSignatureOfACompiledStep) {
  for (const bool as_input : {false, true}) {
    Tensor w = leaf({3}, 1);
    const TensorFunction body = [&](const List& in) {
      const Tensor& leaf = as_input ? in[0] : w;
      const Tensor h = leaf * leaf;
      on_gradient(h, [](const Tensor& g) { return g * 0.5; });
      return List{grad(sum(exp(h)), List{leaf})[0]};
    };
    Compiled f = compile(body);
    const List in = as_input ? List{w} : List{};
    const auto check = [&] { EXPECT_TRUE(same_bits(f(in)[0], body(in)[0])) << as_input; };
    check();
    GradientHookHandle one = on_gradient(w, [](const Tensor& g) { return g * 3; });
    check();
    GradientHookHandle two = on_gradient(w, [](const Tensor& g) { return g + 1; });
    check();
    one.remove();
    check();
    two.remove();
    check();
    EXPECT_NE(error_of([&] {
                compile([&](const List&) {
                  on_gradient(w, [](const Tensor& g) { return g; });
                  return List{w * 1};
                })({});
              }).find("on_gradient"),
              std::string::npos);
  }
}

TEST(Hooks, RunOnceForAGradientThatComesThroughACompiledCallable) {
  for (const Wrap& wrap : {Wrap(plain), Wrap(compiled), Wrap(checkpointed)}) {
    Tensor x = leaf({3}, 1);
    int calls = 0;
    on_gradient(x, [&](const Tensor& g) {
      ++calls;
      return g * 2;
    });
    const TensorFunction f = wrap([&](const List& in) { return List{in[0] * x + x}; });
    backward(sum(f({x * 2})[0]));
    EXPECT_EQ(calls, 1);
  }
}

TEST(AtRunTime, AModuleMadeOfAFunctionIsTrainedSavedHookedAndCloned) {
  const auto make = [] {
    auto block = std::make_shared<nn::RuntimeModule>("Block", [](nn::RuntimeModule& self, const List& in) {
      return List{self.at<nn::Linear>("fc")(in[0]) * self.tensor("scale") + self.tensor("shift")};
    });
    block->add_parameter("scale", full({3}, 2));
    block->add_buffer("shift", ones({3}));
    block->add_child("fc", nn::make<nn::Linear>(4, 3));
    return block;
  };
  const auto block = make();
  EXPECT_EQ(block->type_name(), "Block");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : block->named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "fc.weight", "fc.bias"}));
  const Tensor x = values({2, 4}, 1);
  const nn::ModulePtr copy = block->clone();
  EXPECT_TRUE(same_bits((*copy)(x), (*block)(x)));
  {
    const NoGrad off;
    assign(block->tensor("scale"), zeros({3}));
  }
  EXPECT_FALSE(same_bits((*copy)(x), (*block)(x)));
  copy->load_state(block->state());
  EXPECT_TRUE(same_bits((*copy)(x), (*block)(x)));
  EXPECT_EQ((*block)(List{x}).size(), 1u);
  backward(sum((*block)(x)));
  EXPECT_TRUE(block->tensor("scale").grad().defined());
  Compiled f = compile([&](const List& in) { return List{(*block)(in[0])}; });
  EXPECT_TRUE(same_bits(f({x})[0], (*block)(x)));
  EXPECT_NE(error_of([&] { block->tensor("none"); }).find("(scale, shift); got 'none'"), std::string::npos);
  EXPECT_NE(error_of([&] { (*block)(values({2, 5}, 1)); }).find("fc (Linear): "), std::string::npos);
}

TEST(AtRunTime, AnOpMadeOfClosuresRunsInBothEngines) {
  for (const double factor : {2.0, 3.0}) {
    const std::string name = str("times_", factor);  // its text does not outlive this turn
    RuntimeOp op{
        .name = name, .inputs = 1, .infer = [](InferArgs& a) { a.add(a.in[0].shape(), DType::f64); }};
    op.gradient = [factor](const GradArgs& a) { return Tensors{a.grad[0] * factor}; };
    op.kernels[0] = [factor](const KernelArgs& args) {
      for (int64_t i = 0; i < args.out[0].size(); ++i)
        args.out[0].as<double>()[i] = factor * args.in[0].as<double>()[i];
    };
    define(op);
    EXPECT_NE(error_of([&] { define(op); }).find("must be new"), std::string::npos);
  }
  Tensor x = from_vector<double>({1, 2}, {2}).set_requires_grad();
  const auto body = [](const List& in) {
    return List{apply1(*find_op("times_3"), {apply1(*find_op("times_2"), {in[0]})})};
  };
  EXPECT_EQ(to_array(body({x})[0]).values, (std::vector<double>{6, 12}));
  EXPECT_TRUE(same_bits(compile(body)({x})[0], body({x})[0]));
  EXPECT_EQ(to_array(grad(sum(body({x})[0]), List{x})[0]).values, (std::vector<double>{6, 6}));
}

TEST(Layers, AreNamedInErrorsOfAReplay) {
  nn::Sequential net;
  auto lookup = std::make_shared<nn::RuntimeModule>("Lookup", [](nn::RuntimeModule& self, const List& in) {
    return List{index_select(self.tensor("table"), 0, in[0])};
  });
  lookup->add_parameter("table", ones({3, 2}));
  auto inner = std::make_shared<nn::Sequential>();
  inner->add("lookup", lookup);
  net.add("features", inner);
  Compiled f = compile([&](const List& in) { return List{net(in[0])}; });
  f({from_vector<int64_t>({0, 2}, {2})});
  const Tensor bad = from_vector<int64_t>({0, 3}, {2});
  const std::string eager = error_of([&] { net(bad); });
  EXPECT_EQ(eager.find("features.lookup (Lookup): "), 0u) << eager;
  EXPECT_EQ(error_of([&] { f({bad}); }), eager);
}

}  // namespace
}  // namespace tandem::testing
