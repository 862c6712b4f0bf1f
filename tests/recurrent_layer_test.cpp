// The choice of what computes a recurrent layer: linear() and recurrent(), or a backend's library. The CPU has none; here its kernel of
// the op stands for one.
// ctest: asan
#include "tandem/ops/recurrent_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tandem/core/autocast.h"
#include "tandem/core/implementations.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tests/support/recording_tracer.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
constexpr const char* kPlain = "plain loops";

int g_timed = 0;
double g_library_seconds = 1;  // of our own, timed before it: 2

/// Gives the CPU a library while it lives, with an algorithm that cannot and one that can.
struct Library {
  Library() {
    set_matmul_choice({.mode = ChoiceMode::profile, .keep = false});
    g_timed = 0;
    layer_library(DeviceKind::cpu) = {
        [](const LayerProblem&) {
          return std::vector<LayerAlgorithm>{{"never", "it is not able to.", 0}, {kPlain, "", 3}};
        },
        [](Device, const std::function<void()>& run) {
          run();
          return g_timed++ % 2 == 0 ? 2. : g_library_seconds;
        },
        [](Device) { return std::string("this test"); }};
  }
  ~Library() {
    layer_library(DeviceKind::cpu) = {};
    set_matmul_choice({});
  }
};

std::unique_ptr<nn::RecurrentLayer> make(Recurrence kind, const nn::RecurrentLayerOptions& options,
                                         int64_t hidden = 5) {
  manual_seed(7);
  if (kind == Recurrence::lstm) return std::make_unique<nn::LSTM>(nullptr, "", 3, hidden, options);
  if (kind == Recurrence::gru) return std::make_unique<nn::GRU>(nullptr, "", 3, hidden, options);
  nn::RecurrentLayerOptions plain = options;
  plain.relu = kind == Recurrence::rnn_relu;
  return std::make_unique<nn::RNN>(nullptr, "", 3, hidden, plain);
}

/// Results and all gradients of a layer of each kind.
List outcome(nn::RecurrentLayer& layer, const List& in) {
  const nn::RecurrentLayerResult y = layer(in[0], {.h = in[1], .c = in.size() > 2 ? in[2] : Tensor()});
  Tensor loss = sum(y.output * y.output) + sum(y.h);
  if (y.c.defined()) loss = loss + sum(y.c * y.h);
  List leaves = layer.parameters();
  for (const Tensor& t : in)
    if (t.requires_grad()) leaves.push_back(t);
  List all = grad(loss, leaves);
  all.insert(all.end(), {y.output.detach(), y.h.detach()});
  return all;
}
List inputs_of(Recurrence kind, const nn::RecurrentLayerOptions& options, DType dtype, uint32_t salt) {
  const Dim states = options.layers * (options.bidirectional ? 2 : 1);
  List in = {to_tensor(hash_array({4, 6, 3}, salt), dtype),
             to_tensor(hash_array({states, 4, 5}, salt + 1), dtype)};
  if (kind == Recurrence::lstm) in.push_back(to_tensor(hash_array({states, 4, 5}, salt + 2), dtype));
  for (Tensor& t : in) t.set_requires_grad();
  return in;
}
bool calls_the_library(const std::function<void()>& call) {
  RecordingTracer tracer;
  {
    const TraceScope scope(&tracer);
    call();
  }
  return std::any_of(tracer.applied.begin(), tracer.applied.end(), [](const AppliedOp& applied) {
    return applied.op->name == std::string("recurrent_layer");
  });
}

constexpr Recurrence kKinds[] = {Recurrence::lstm, Recurrence::gru, Recurrence::rnn_tanh,
                                 Recurrence::rnn_relu};

TEST(RecurrentLayer, ALibraryGivesTheResultsAndGradientsOfOurOwnWayInBothEngines) {
  for (const Recurrence kind : kKinds)
    for (const bool bias : {true, false})
      for (const bool bidirectional : {false, true}) {
        SCOPED_TRACE(str("kind ", static_cast<int>(kind), bias ? " with biases" : "",
                         bidirectional ? ", in both directions" : ""));
        const nn::RecurrentLayerOptions options{.layers = 2, .bidirectional = bidirectional, .bias = bias};
        const auto layer = make(kind, options);
        layer->to(DType::f64);
        const List in = inputs_of(kind, options, DType::f64, 3);
        const List want = outcome(*layer, in);
        const Library library;
        const ForcedImplementation forced(kPlain);
        EXPECT_TRUE(calls_the_library([&] { (*layer)(in[0]); }));
        const List got = outcome(*layer, in);
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_TRUE(near(to_array(got[i]), to_array(want[i]), 1e-12)) << i;
        Compiled graph = compile([&](const List& given) { return outcome(*layer, given); });
        for (int call = 0; call < 3; ++call) {
          const List again = graph(in);
          for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(again[i], got[i])) << i;
        }
      }
}

TEST(RecurrentLayer, IsTakenFromTheLibraryWhereThatIsFasterAndInModeProfileAlone) {
  const auto layer = make(Recurrence::lstm, {});
  for (const double seconds : {1., 3.}) {
    const Dim steps = 6 + static_cast<Dim>(seconds);  // a choice of its own
    const Tensor x = to_tensor(hash_array({4, steps, 3}, 1), DType::f32);
    const auto is_library = [&] { return calls_the_library([&] { (*layer)(x); }); };
    const bool is_faster = seconds < 2;
    EXPECT_FALSE(is_library());
    const Library library;
    g_library_seconds = seconds;
    EXPECT_EQ(is_library(), is_faster);
    EXPECT_EQ(g_timed, 6);  // our own way and the one that can, in turn
    EXPECT_EQ(is_library(), is_faster);
    const std::vector<Choice> made = choices_made();
    EXPECT_TRUE(std::any_of(made.begin(), made.end(), [&](const Choice& choice) {
      return choice.key.starts_with(
                 str("recurrent layer f32 as tf32 ", steps, "x4x3x4x5 with biases; this test")) &&
             choice.algorithm == (is_faster ? kPlain : kOwnLayer);
    }));
    take_choices({});  // what was chosen is asked for again, and found in the table
    EXPECT_EQ(is_library(), is_faster);
    EXPECT_EQ(g_timed, 6);
    for (const ChoiceMode mode : {ChoiceMode::heuristic, ChoiceMode::fixed}) {
      set_matmul_choice({.mode = mode});
      EXPECT_FALSE(is_library()) << name(mode);
    }
  }
  g_library_seconds = 1;
}

TEST(RecurrentLayer, TimingLeavesATraceTheTapeAndRandomNumbersAlone) {
  const auto layer = make(Recurrence::gru, {});
  const Library library;
  const Tensor x = to_tensor(hash_array({4, 8, 3}, 1), DType::f32);
  manual_seed(1);
  const NoGrad off;
  Compiled graph = compile([&](const List& in) { return List{(*layer)(in[0]).output}; });
  const Tensor y = graph({x})[0];
  EXPECT_EQ(g_timed, 6);
  EXPECT_EQ(generator_state().offset, 0u);
  EXPECT_TRUE(same_bits(y, (*layer)(x).output));
  for (const Tensor& weight : layer->parameters()) EXPECT_FALSE(weight.grad().defined());
  const GraphReport report = graph.reports()[0];
  EXPECT_EQ(report.graph.count("recurrent_layer"), 1);
  EXPECT_EQ(report.graph.count("recurrent_layer_gradient"), 0);
}

TEST(RecurrentLayer, WhatTheLibraryCannotDoIsDoneOurOwnWay) {
  const Library library;
  const ForcedImplementation forced(kPlain);
  const Tensor x = to_tensor(hash_array({4, 6, 3}, 1), DType::f32);
  const auto is_library = [&](nn::RecurrentLayer& layer, const nn::RecurrentLayerInputs& inputs = {}) {
    return calls_the_library([&] { layer(x, inputs); });
  };
  for (const nn::RecurrentLayerOptions& options : {nn::RecurrentLayerOptions{.projection = 2},
                                                   {.layer_norm = true},
                                                   {.zoneout_h = 0.1},
                                                   {.zoneout_c = 0.1},
                                                   {.state_dropout = 0.1},
                                                   {.recurrent_dropout = 0.1},
                                                   {.implementation = nn::RecurrentImplementation::block},
                                                   {.implementation = nn::RecurrentImplementation::cell}})
    EXPECT_FALSE(is_library(*make(Recurrence::lstm, options)));
  const auto zoned = make(Recurrence::lstm, {.zoneout_h = 0.1}),
             masked = make(Recurrence::lstm, {.state_dropout = 0.1});
  zoned->eval(), masked->eval();
  EXPECT_FALSE(is_library(*zoned));  // it takes the mean
  EXPECT_TRUE(is_library(*masked));
  // What acts outside of the steps is no hindrance.
  EXPECT_TRUE(
      is_library(*make(Recurrence::lstm, {.dropout = 0.1, .input_dropout = 0.1, .weight_drop = 0.1})));
  const auto plain = make(Recurrence::lstm, {});
  EXPECT_FALSE(is_library(*plain, {.lengths = from_vector<int64_t>({6, 5, 4, 3}, {4})}));
  {
    const Autocast autocast(DType::bf16);
    EXPECT_FALSE(is_library(*plain));
  }
  EXPECT_EQ((*plain)(zeros({0, 4, 3})).output.shape(), (Dims{0, 4, 5}));
}

TEST(RecurrentLayer, ALibraryThatFailsWhenItIsTimedIsPassedOver) {
  const auto layer = make(Recurrence::rnn_tanh, {});
  const Library library;
  layer_library(DeviceKind::cpu).seconds = [](Device, const std::function<void()>& run) {
    run();
    if (g_timed++ == 1) throw Error("the library: refused.");
    return 2.;
  };
  EXPECT_FALSE(calls_the_library([&] { (*layer)(to_tensor(hash_array({4, 9, 3}, 1), DType::f32)); }));
  EXPECT_EQ(g_timed, 4);  // it is not tried again
}

TEST(RecurrentLayer, BiasesOfOtherShapesAreRefusedAlikeWhateverComputesTheLayer) {
  const Tensor x = zeros({3, 2, 4}), weight_ih = zeros({20, 4}), weight_hh = zeros({20, 5}),
               h = zeros({2, 5});
  for (const Dim rows : {1, 15})
    EXPECT_HAS(refusal([&] {
                 recurrent_layer({.x = x,
                                  .weight_ih = weight_ih,
                                  .weight_hh = weight_hh,
                                  .h = h,
                                  .c = h,
                                  .bias_ih = zeros({rows}),
                                  .bias_hh = zeros({20})},
                                 Recurrence::lstm);
               }),
               str("both biases must be (gates · hidden), as weight_hh has rows; got f32 (", rows, ",)"));
}

TEST(RecurrentLayer, GradientsOfGradientsAreRefused) {
  const auto layer = make(Recurrence::lstm, {});
  const Library library;
  const ForcedImplementation forced(kPlain);
  const Tensor x = to_tensor(hash_array({4, 6, 3}, 1), DType::f32).set_requires_grad();
  const Tensor first = grad(sum((*layer)(x).output), {x}, {}, {.create_graph = true})[0];
  EXPECT_HAS(refusal([&] { grad(sum(first * first), {x}); }),
             "its gradient must not be differentiated again");
}

}  // namespace
}  // namespace tandem::testing
