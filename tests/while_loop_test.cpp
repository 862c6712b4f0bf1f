// while_loop(): one node with two graphs in a compiled callable, plain code elsewhere, with the bits of a plain loop in both.
// ctest: asan
#include <gtest/gtest.h>

#include "tandem/graph/cond.h"
#include "tandem/graph/while_loop.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"
#include "tests/support/loop_runs.h"
#include "tests/support/recording_tracer.h"

namespace tandem::testing {
namespace {

List count_up(World& world, int64_t until, int64_t at_most, bool recompute = false) {
  return while_loop([=](const List& s) { return less(s[0], until); },
                    [&](const List& s) {
                      const Tensor gate = sigmoid(matmul(s[1], world.w));
                      return List{s[0] + 1, gate * s[1] + matmul(s[1] * gate, world.u)};
                    },
                    {zeros({}, DType::i64), world.h}, {.at_most = at_most, .recompute = recompute});
}
List count_up_plainly(World& world, int64_t runs) {
  List s = {zeros({}, DType::i64), world.h};
  for (int64_t i = 0; i < runs; ++i) {
    const Tensor gate = sigmoid(matmul(s[1], world.w));
    s = {s[0] + 1, gate * s[1] + matmul(s[1] * gate, world.u)};
  }
  return s;
}

TEST(WhileLoop, HasTheBitsOfAPlainLoopInBothEnginesWithItsGradients) {
  for (const auto& [until, most] :
       {std::pair<int64_t, int64_t>{4, 10}, {4, 4}, {7, 3}, {1, 1}, {0, 5}, {1, 8}})
    for (bool recompute : {false, true}) {
      const Code code = [=](World& world, const Scan&) { return count_up(world, until, most, recompute); };
      const auto eager = both_engines(code, false);
      const int64_t runs = std::min(until, most);
      EXPECT_EQ(eager[0][0].item<int64_t>(), runs);
      const Code plain = [=](World& world, const Scan&) { return count_up_plainly(world, runs); };
      expect_equal_values(eager, run(plain, Way::eager));
    }
}

TEST(WhileLoop, SendsNoGradientThroughAStateThatItsBodyDetaches) {
  const Tensor h = ones({2}).set_requires_grad();
  for (int64_t runs : {0, 1, 2}) {
    const TensorFunction f = [&](const List&) {
      const Tensor y = while_loop([=](const List& s) { return less(s[0], runs); },
                                  [](const List& s) {
                                    return List{s[0] + 1, s[1].detach() * 2.0};
                                  },
                                  {zeros({}, DType::i64), h}, {.at_most = 3})[1];
      return grad(sum(y), {h}, {}, {}, true);
    };
    EXPECT_EQ(to_array(f({})[0]).values, std::vector<double>(2, runs == 0 ? 1 : 0));
    EXPECT_EQ(host_bytes(f({})[0]), host_bytes(compile(f)({})[0]));
  }
}

TEST(WhileLoop, RunsWithoutABoundByValuesThatChangeFromCallToCall) {
  Compiled compiled = compile([](const List& in) {
    return while_loop([&](const List& s) { return less(sum(s[0]), 100); },
                      [](const List& s) {
                        return List{s[0] * 2, s[1] + 1};
                      },
                      {in[0], zeros({}, DType::i64)});
  });
  for (double first : {1.0, 60.0, 3.0, 0.01}) {
    const List got = compiled({full({2}, first)});
    double value = first;
    int64_t runs = 0;
    for (; 2 * value < 100; ++runs) value *= 2;
    EXPECT_EQ(got[1].item<int64_t>(), runs);
    EXPECT_EQ(got[0].to_vector<float>()[0], static_cast<float>(value));
  }
  EXPECT_EQ(compiled.reports().size(), 1u);
  EXPECT_EQ(compiled.reports()[0].graph.count("while_loop"), 1);
}

TEST(WhileLoop, TakesAllRandomNumbersOfItsBoundWhicheverRunsThereAre) {
  for (int64_t runs : {0, 2, 4}) {
    const Code code = [=](World& world, const Scan&) {
      List out = while_loop([=](const List& s) { return less(s[0], runs); },
                            [&](const List& s) {
                              return List{s[0] + 1, dropout(matmul(s[1], world.w), 0.5)};
                            },
                            {zeros({}, DType::i64), world.h}, {.at_most = 4});
      out.push_back(uniform({4}));
      return out;
    };
    const auto eager = both_engines(code, false);
    EXPECT_EQ(eager[0].back().item<double>(), 4 * 2 + 1);
  }
}

TEST(WhileLoop, NestsInScansAndBranchesAndTheyInIt) {
  const Code code = [](World& world, const Scan& loop) {
    const auto settle = [&world](const Tensor& h) {
      return while_loop([](const List& s) { return greater(sum(s[0] * s[0]), 0.5); },
                        [&world](const List& s) {
                          return List{cond(
                              less(sum(s[0]), 0), [&] { return s[0] * 0.5 + world.memory * 0.01; },
                              [&] { return matmul(tanh(s[0]), world.w) * 0.25; })};
                        },
                        {h}, {.at_most = 6})[0];
    };
    List out = flat(loop(
        [settle](const List& s, const List& in) {
          const Tensor next = settle(s[0] + in[0]);
          return ScanStep{{next}, {next * in[0]}};
        },
        {world.h}, {world.x}));
    const List more = while_loop([](const List& s) { return less(s[1], 2); },
                                 [&](const List& s) {
                                   return List{loop(
                                                   [&world](const List& t, const List& in) {
                                                     return ScanStep{{t[0] * in[0] + world.h}, {}};
                                                   },
                                                   {s[0]}, {world.x})
                                                   .state[0],
                                               s[1] + 1};
                                 },
                                 {world.h, zeros({}, DType::i64)}, {.at_most = 3});
    out.push_back(more[0]);
    return out;
  };
  both_engines(code);
}

TEST(WhileLoop, ChangesTensorsFromAroundInPlace) {
  const Code code = [](World& world, const Scan&) {
    return while_loop([](const List& s) { return less(s[0], 3); },
                      [&](const List& s) {
                        {
                          const NoGrad off;
                          assign(world.memory, world.memory + 1);
                        }
                        return List{s[0] + 1, s[1] * 0.5};
                      },
                      {zeros({}, DType::i64), world.h}, {.at_most = 5});
  };
  const auto eager = both_engines(code, false);
  const World fresh;
  EXPECT_NEAR(eager[2][eager[2].size() - 2].to_vector<float>()[0], fresh.memory.to_vector<float>()[0] + 9,
              1e-5);
}

TEST(WhileLoop, RefusesInBothEnginesWhatItCannotDo) {
  const Tensor h = values({3}, 1).set_requires_grad(), memory = zeros({3});
  const auto small = [](const List& s) { return less(sum(s[0]), 10); };
  const auto twice = [](const List& s) { return List{s[0] * 2 + 1}; };
  using Condition = std::function<Tensor(const List&)>;
  const auto with = [&](const Condition& condition, const TensorFunction& body, const List& state,
                        const WhileOptions& options = {}) {
    return refusal_of_both([&] { return while_loop(condition, body, state, options); });
  };
  EXPECT_HAS(with({}, twice, {h}), "while_loop: the functions must not be empty");
  EXPECT_HAS(with(small, {}, {h}), "while_loop: the functions must not be empty");
  EXPECT_HAS(with(small, twice, {}), "while_loop: there must be at least one state");
  EXPECT_HAS(with(small, twice, {Tensor()}), "state 0 is an undefined handle");
  EXPECT_HAS(with(small, twice, {h}, {.at_most = 0}),
             "while_loop: at_most must be from 1 to 2147483647; got 0");
  EXPECT_HAS(with([](const List& s) { return s[0]; }, twice, {h}),
             "while_loop: the condition must give one bool; got f32 (3,)");
  EXPECT_HAS(with([](const List&) { return Tensor(); }, twice, {h}), "the condition must give one bool");
  EXPECT_HAS(with([](const List& s) { return less(uniform({}), sum(s[0])); }, twice, {h}),
             "while_loop: the condition must not change tensors in place nor draw random numbers");
  EXPECT_HAS(with(
                 [&](const List& s) {
                   assign(memory, memory + 1);
                   return small(s);
                 },
                 twice, {h}),
             "while_loop: the condition must not change tensors in place");
  EXPECT_HAS(with(small,
                  [](const List& s) {
                    return List{concat({s[0], s[0]})};
                  },
                  {h}),
             "while_loop: a state must keep its shape and type");
  EXPECT_HAS(with(small, [](const List& s) { return List{dropout(s[0] + 5, 0.5)}; }, {h}),
             "while_loop: only a loop with a bound may draw random numbers");
  EXPECT_HAS(refusal_of_both([&] { return grad(sum(while_loop(small, twice, {h})[0]), {h}); }),
             "while_loop: only a loop with a bound has gradients. Set at_most, or call it under NoGrad");
}

TEST(WhileLoop, TellsItsShapesWhereNothingIsComputed) {
  World world;
  RecordingTracer tracer;
  const TraceScope scope(&tracer);
  EXPECT_EQ(count_up(world, 4, 10)[1].shape(), (Dims{2, 3}));
}

}  // namespace
}  // namespace tandem::testing
