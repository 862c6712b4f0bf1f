// Whole recurrent layers by cuDNN: the CPU's results and gradients, the same bits each time and in both engines, what the lists say, and
// refusals. Without a GPU all of them are skipped.
// ctest: cuda timeout=900
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "tandem/core/backend.h"
#include "tandem/core/implementations.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/recurrent.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/recurrent_layer.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/recording_tracer.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using List = std::vector<Tensor>;
constexpr Device kCpu{}, kGpu{DeviceKind::cuda, 0};
constexpr const char *kStandard = "cuDNN standard", *kSmall = "cuDNN small";

class RecurrentCudnn : public ::testing::Test {
 protected:
  // Read when the CUDA library is opened: without it cuDNN's layers are not deterministic and decline.
  static void SetUpTestSuite() { setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2", 1); }
  void SetUp() override {
    if (!find_backend(DeviceKind::cuda)) GTEST_SKIP() << "this machine has no CUDA backend";
  }
  void TearDown() override { set_matmul_choice({}); }
};

/// An implementation, wherever it can, while it lives.
struct By {
  explicit By(const char* name) : forced(name) {
    set_matmul_choice({.mode = ChoiceMode::profile, .keep = false});
  }
  ~By() { set_matmul_choice({}); }
  ForcedImplementation forced;
};

struct Size {
  Dim samples, steps, features, hidden;
};

std::unique_ptr<nn::RecurrentLayer> make(Recurrence kind, const Size& size,
                                         nn::RecurrentLayerOptions options = {}) {
  manual_seed(6);
  if (kind == Recurrence::lstm)
    return std::make_unique<nn::LSTM>(nullptr, "", size.features, size.hidden, options);
  if (kind == Recurrence::gru)
    return std::make_unique<nn::GRU>(nullptr, "", size.features, size.hidden, options);
  options.relu = kind == Recurrence::rnn_relu;
  return std::make_unique<nn::RNN>(nullptr, "", size.features, size.hidden, options);
}

/// Results of a layer and gradients of its weights, x, h and c; rounded is the type that all are rounded to first.
List outcome(Recurrence kind, const Size& size, const nn::RecurrentLayerOptions& options, Device device,
             DType dtype, DType rounded) {
  const std::unique_ptr<nn::RecurrentLayer> layer = make(kind, size, options);
  layer->to(rounded);
  layer->to(dtype);
  layer->to(device);
  const Dim states = options.layers * (options.bidirectional ? 2 : 1);
  const auto leaf = [&](const Dims& shape) {
    return to(cast(cast(normal(shape), rounded), dtype), device).set_requires_grad();
  };
  List leaves = layer->parameters();
  const Tensor x = leaves.emplace_back(leaf({size.samples, size.steps, size.features}));
  nn::RecurrentLayerInputs inputs{.h = leaves.emplace_back(leaf({states, size.samples, size.hidden}))};
  if (kind == Recurrence::lstm) inputs.c = leaves.emplace_back(leaf({states, size.samples, size.hidden}));
  const nn::RecurrentLayerResult y = (*layer)(x, inputs);
  Tensor loss = sum(y.output * y.output) + sum(y.h);
  if (y.c.defined()) loss = loss + sum(y.c * y.h);
  List all = grad(loss, leaves);
  all.insert(all.end(), {y.output.detach(), y.h.detach()});
  if (y.c.defined()) all.push_back(y.c.detach());
  return all;
}

bool calls_the_library(nn::RecurrentLayer& layer, const Tensor& x) {
  RecordingTracer tracer;
  {
    const TraceScope scope(&tracer);
    layer(x);
  }
  return std::any_of(tracer.applied.begin(), tracer.applied.end(), [](const AppliedOp& applied) {
    return applied.op->name == std::string("recurrent_layer");
  });
}

constexpr Recurrence kKinds[] = {Recurrence::lstm, Recurrence::gru, Recurrence::rnn_tanh,
                                 Recurrence::rnn_relu};
const char* name_of(Recurrence kind) {
  static constexpr const char* kNames[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  return kNames[static_cast<int>(kind)];
}

/// Of f32 with tf32. Where rounding moves a sum over the kink of relu, its gradient comes or goes as a whole.
double tolerance_of(Recurrence kind, DType dtype) {
  if (dtype == DType::f64) return 1e-11;
  if (kind == Recurrence::rnn_relu) return 0.25;
  return dtype == DType::bf16 ? 6e-2 : dtype == DType::f16 ? 1e-2 : 5e-3;
}

void expect_near(const List& got, const List& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(relative_distance(to_array(got[i]), to_array(want[i])), tolerance) << what << ", result " << i;
}

TEST_F(RecurrentCudnn, LayersOfAllSizesAgreeWithTheCpu) {
  // One of each, odd sizes, more than a multiprocessor takes at once, and widths that only one of the algorithms takes.
  const Size sizes[] = {{1, 1, 1, 1},     {3, 4, 5, 7},      {16, 9, 12, 64}, {33, 5, 128, 128},
                        {20, 7, 50, 200}, {64, 6, 256, 256}, {7, 2, 40, 1100}};
  for (const Recurrence kind : kKinds)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const Size& size : sizes) {
        if (dtype != DType::f32 && size.hidden > 700) continue;  // takes the CPU long
        const List want = outcome(kind, size, {}, kCpu, DType::f64, dtype);
        const bool gated = kind == Recurrence::lstm || kind == Recurrence::gru;
        const bool is_small = dtype != DType::f64 && size.hidden <= (gated ? 128 : 256);
        for (const char* way : {kStandard, kSmall}) {
          if (way == kSmall && !is_small) continue;
          const By by(way);
          const std::string what = str(name_of(kind), " of ", size.samples, "x", size.steps, "x",
                                       size.features, "x", size.hidden, ", ", dtype, ", ", way);
          const auto layer = make(kind, size);
          layer->to(dtype);
          layer->to(kGpu);
          EXPECT_TRUE(
              calls_the_library(*layer, zeros({size.samples, size.steps, size.features}, dtype, kGpu)))
              << what;
          expect_near(outcome(kind, size, {}, kGpu, dtype, dtype), want, tolerance_of(kind, dtype), what);
        }
      }
}

TEST_F(RecurrentCudnn, LayersInBothDirectionsAndWithoutBiasesAgreeWithTheCpu) {
  for (const Recurrence kind : kKinds)
    for (const char* way : {kStandard, kSmall})
      for (const nn::RecurrentLayerOptions& options :
           {nn::RecurrentLayerOptions{.layers = 2, .bidirectional = true}, {.bias = false}}) {
        const Size size{5, 6, 9, 23};  // states of the second layer begin at an odd place
        const List want = outcome(kind, size, options, kCpu, DType::f64, DType::f32);
        const By by(way);
        expect_near(outcome(kind, size, options, kGpu, DType::f32, DType::f32), want,
                    tolerance_of(kind, DType::f32),
                    str(name_of(kind), options.bias ? ", both directions, " : ", no bias, ", way));
      }
}

TEST_F(RecurrentCudnn, WithoutTf32TheDigitsAreThoseOfF32) {
  const bool before = tf32();
  set_tf32(false);
  for (const Recurrence kind : kKinds)
    for (const char* way : {kStandard, kSmall}) {
      const Size size{16, 9, 12, 64};
      const List want = outcome(kind, size, {}, kCpu, DType::f64, DType::f32);
      const By by(way);
      expect_near(outcome(kind, size, {}, kGpu, DType::f32, DType::f32), want, 1e-4,
                  str(name_of(kind), ", ", way));
    }
  set_tf32(before);
}

TEST_F(RecurrentCudnn, RecordedStepsHaveTheBitsOfEagerOnes) {
  for (const char* way : {kStandard, kSmall})
    for (const Recurrence kind : kKinds) {
      const By by(way);
      const Size size{8, 9, 16, 96};
      const auto steps = [&](bool compiled) {
        const auto layer = make(kind, size, {.layers = 2, .bidirectional = true});
        layer->to(kGpu);
        const auto step = [&](const List& in) {
          return grad(sum((*layer)(in[0]).output), layer->parameters());
        };
        Compiled graph = compile(step);
        List all;
        for (int i = 0; i < 5; ++i) {
          const List in = {to(normal({size.samples, size.steps, size.features}), kGpu)};
          for (const Tensor& t : compiled ? graph(in) : step(in)) all.push_back(t);
        }
        if (compiled) {
          EXPECT_NE(graph.reports()[0].executor.find("replayed as one"), std::string::npos);
        }
        return all;
      };
      const List eager = steps(false), again = steps(false), graph = steps(true);
      for (size_t i = 0; i < eager.size(); ++i) {
        EXPECT_TRUE(same_bits(eager[i], again[i])) << way << ", twice, " << name_of(kind) << " " << i;
        EXPECT_TRUE(same_bits(eager[i], graph[i])) << way << ", recorded, " << name_of(kind) << " " << i;
      }
    }
}

TEST_F(RecurrentCudnn, AForwardPassMayBeDifferentiatedTwice) {
  for (const char* way : {kStandard, kSmall}) {
    const By by(way);
    const auto layer = make(Recurrence::lstm, {5, 6, 7, 32});
    layer->to(kGpu);
    const Tensor loss = sum((*layer)(to(normal({5, 6, 7}), kGpu)).output);
    const List first = grad(loss, layer->parameters()), second = grad(loss, layer->parameters());
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same_bits(first[i], second[i])) << way << " " << i;
  }
}

/// Candidates of the nodes of an op, name by name.
std::map<std::string, std::string> reasons(const GraphReport& report, const std::string& op) {
  std::map<std::string, std::string> all;
  for (const GraphView::Node& node : report.graph.nodes)
    if (node.op == op)
      for (const Candidate& one : node.candidates) all[one.name] = one.why_not;
  return all;
}

TEST_F(RecurrentCudnn, ListsNameItWithItsReasonsAndTheOneThatWasTaken) {
  const NoGrad off;
  const Tensor x = zeros({4, 5, 6}, DType::f32, kGpu);
  const auto report = [&](const nn::RecurrentLayerOptions& options) {
    const auto layer = make(Recurrence::lstm, {4, 5, 6, 200}, options);
    layer->eval();
    layer->to(kGpu);
    Compiled graph = compile([&](const List& in) { return List{(*layer)(in[0]).output}; });
    graph({x});
    return graph.reports()[0];
  };
  const std::map<std::string, std::string> plain = reasons(report({}), "recurrent"),
                                           zoned = reasons(report({.zoneout_h = 0.1}), "recurrent"),
                                           normed = reasons(report({.layer_norm = true}), "recurrent");
  EXPECT_EQ(plain.at(kStandard), "it takes the inputs themselves: mode profile times it for whole layers.");
  EXPECT_EQ(zoned.at(kSmall), "it takes no regularisers within the steps.");
  EXPECT_EQ(normed.at(kStandard), "it takes neither layer norm nor projections.");
  const By by(kStandard);
  const GraphReport taken = report({});
  const std::map<std::string, std::string> whole = reasons(taken, "recurrent_layer");
  EXPECT_EQ(whole.at(kOwnLayer), "");
  EXPECT_EQ(whole.at(kStandard), "");
  EXPECT_EQ(whole.at(kSmall), "it takes up to 128 units of lstm and gru only.");
  for (const GraphView::Node& node : taken.graph.nodes)
    if (node.op == std::string("recurrent_layer")) {
      EXPECT_EQ(node.algorithm, kStandard);
    }
}

TEST_F(RecurrentCudnn, ModeProfileTakesTheFasterWayAndKeepsIt) {
  set_matmul_choice({.mode = ChoiceMode::profile, .keep = false});
  const auto layer = make(Recurrence::lstm, {16, 20, 64, 96});
  layer->to(kGpu);
  const Tensor x = to(normal({16, 20, 64}), kGpu);
  const bool first = calls_the_library(*layer, x);
  EXPECT_EQ(calls_the_library(*layer, x), first);
  const std::vector<Choice> made = choices_made();
  EXPECT_TRUE(std::any_of(made.begin(), made.end(), [](const Choice& choice) {
    return choice.key.starts_with("recurrent layer f32") &&
           choice.key.find("20x16x64x4x96") != std::string::npos;
  }));
}

TEST_F(RecurrentCudnn, RefusesAnAlgorithmThatThereIsNotAndTooLittleKept) {
  const auto apply_with = [](const RecurrentLayerAttrs& a) {
    const auto on_gpu = [](const Dims& shape) { return ones(shape, DType::f32, kGpu); };
    const Tensor in[] = {on_gpu({3, 2, 4}), on_gpu({5, 4}), on_gpu({5, 5}), on_gpu({2, 5})};
    apply(op_recurrent_layer(), in, a);
  };
  EXPECT_HAS(refusal([&] { apply_with({.kind = Recurrence::rnn_tanh, .algorithm = 2}); }),
             "algorithm must be from 0 to 1 on a GPU; got 2");
  EXPECT_HAS(refusal([&] { apply_with({.kind = Recurrence::rnn_tanh}); }), "kept must be at least");
}

}  // namespace
}  // namespace tandem::testing
