// Models as data: what a description may hold, the zoo's models as descriptions (the same bits), TOML read strictly, and
// the command with a model of the user's own.
// ctest: timeout=900 shards=2
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/data/compose.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/attention.h"
#include "tandem/nn/recurrent.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/step.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/process.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using zoo::LayerDescription;
using zoo::ModelDescription;
using zoo::parse_description;

/// Why a text is refused, by the reader or when the model is built.
std::string why_not(const std::string& text) {
  return refusal([&] { zoo::make_model(parse_description(text, "mynet.toml")); });
}
/// The same for one layer on samples of (3, 8, 8), which is in line 2.
std::string why_not_layer(const std::string& layer) {
  return why_not("input = [3, 8, 8]\nlayer = [ " + layer + " ]\n");
}
/// What one layer makes of a sample.
Dims after(const Dims& input, const std::string& layer) {
  std::string sizes;
  for (const Dim size : input) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return zoo::output_shape(parse_description("input = [" + sizes + "]\nlayer = [ " + layer + " ]", "m.toml"));
}

const char* const kSmall = R"(# a comment
name = "small"
input = [1, 28, 28]
layer = [
  { type = "conv", channels = 4, kernel = 3, stride = 2 },
  { type = "relu" },
  { type = "flatten" },
  { type = "dropout", p = 0.5 },
  { type = "linear", name = "fc", outputs = 10 },
]
)";

// --- the zoo

/// Small enough to be quick; otherwise as published.
zoo::ModelOptions quick(const zoo::ModelInfo& info) {
  if (info.name == "alexnet") return {.classes = 10, .input = Dims{3, 67, 80}};
  if (info.name == "vgg16") return {.classes = 10, .input = Dims{3, 32, 32}};
  if (info.vocabulary > 0) return {.classes = info.task == "language-modelling" ? 60 : 1, .vocabulary = 60};
  return {.classes = info.classes, .input = info.input};
}

class ZooDescription : public ::testing::TestWithParam<std::string> {};

/// All values after making a model from a seed, one training step with dropout, and a prediction.
nn::NamedTensors train_once(const std::function<std::unique_ptr<nn::Module>()>& make, const Dims& batch,
                            Engine engine, const std::string& task) {
  manual_seed(4);
  const auto model = make();
  nn::NamedTensors all;
  for (const auto& [name, tensor] : model->state()) all.emplace_back("first " + name, tandem::clone(tensor));
  const auto optimizer = optim::make_optimizer("sgd", model->named_parameters(), {.lr = 0.05});
  TrainingStep step(*model, *optimizer, engine, {.task = make_task(task)});
  if (task != "classification") {
    all.emplace_back("loss", step(make_task(task)->made_up_batch({9}, 2)).value);
    for (const auto& row : model->state()) all.push_back(row);
    return all;
  }
  const Tensor x = uniform(batch, -1, 1);
  all.emplace_back("loss", step(x, from_vector<int64_t>({1, 7}, {2})));
  for (const auto& row : model->state()) all.push_back(row);
  model->eval();
  const NoGrad off;
  all.emplace_back("output", predict_all(*model, data::TensorSet({x, zeros({2}, DType::i64)}), 2, engine)[0]);
  return all;
}

TEST_P(ZooDescription, WrittenAsTomlAndReadAgainItTrainsToTheSameBitsUnderTheSameNames) {
  const zoo::ModelInfo& info = zoo::model_info(GetParam());
  const zoo::ModelOptions options = quick(info);
  const std::string text = zoo::to_toml(zoo::describe(info.name, options));
  const ModelDescription again = parse_description(text, "again.toml");
  EXPECT_EQ(zoo::to_toml(again), text);
  EXPECT_EQ(again.name, info.name);
  Dims batch = options.input.value_or(Dims{});
  batch.insert(0, 2);
  for (const Engine engine : {Engine::eager, Engine::graph}) {
    const nn::NamedTensors want =
        train_once([&] { return zoo::make_model(info.name, options); }, batch, engine, info.task);
    const nn::NamedTensors got = train_once([&] { return zoo::make_model(again); }, batch, engine, info.task);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].first, want[i].first);
      EXPECT_TRUE(same_bits(got[i].second, want[i].second)) << want[i].first << ", " << name(engine);
    }
  }
}

TEST_P(ZooDescription, HasTheSizesOfTheModelAsPublished) {
  const zoo::ModelInfo& info = zoo::model_info(GetParam());
  const ModelDescription description = zoo::describe(info.name);
  const zoo::ModelInfo read = zoo::choose_model(description).info;
  EXPECT_EQ(read.input, info.input);
  EXPECT_EQ(read.classes, info.classes);
  EXPECT_EQ(read.vocabulary, info.vocabulary);
  EXPECT_EQ(read.task, info.task);
  const auto own = nn::shapes_of([&] { return zoo::make_model(description); });
  const auto want = nn::shapes_of([&] { return zoo::make_model(info.name); });
  const nn::NamedTensors a = own->named_parameters(), b = want->named_parameters();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_EQ(a[i].second.shape(), b[i].second.shape()) << a[i].first;
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const zoo::ModelInfo& info : zoo::models())
    if (info.described) names.push_back(info.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Zoo, ZooDescription, ::testing::ValuesIn(model_names()),
                         [](const auto& info) { return info.param; });

TEST(Description, OptionsChangeItAsTheyChangeAModelOfTheZoo) {
  const ModelDescription changed = zoo::with_options(parse_description(kSmall, "x"),
                                                     {.dropout = 0.25, .classes = 3, .input = Dims{2, 9, 9}});
  EXPECT_EQ(zoo::output_shape(changed), Dims{3});
  EXPECT_HAS(zoo::to_toml(changed), "input = [2, 9, 9]");
  EXPECT_HAS(zoo::to_toml(changed), "p = 0.25");
  EXPECT_EQ(refusal([] {
              zoo::describe("lenet", {.input = Dims{1, 32, 32}});
            }),
            "model lenet: takes samples of (1, 28, 28); got (1, 32, 32).");
  EXPECT_EQ(refusal([] { zoo::make_model(parse_description(kSmall, "x"), {.classes = 0}); }),
            "model small: there must be at least one class; got 0.");
  EXPECT_HAS(refusal([] {
               zoo::make_model(parse_description("input = [4]\nlayer = [ { type = \"relu\" } ]", "x.toml"),
                               {.classes = 3});
             }),
             "must have a linear layer");
}

// --- several inputs, names for values, repetition, states

const char* const kSensors = R"(name = "sensors"
inputs = [
  { name = "x", shape = [5, 3] },
  { name = "z", shape = [5], type = "i64" },
  { name = "n", shape = [], type = "i64" },
]
outputs = ["level", "kind"]
layer = [
  { type = "embedding", name = "words", rows = 7, width = 2, from = "z", to = "a" },
  { type = "concat", axis = 1, from = ["x", "a"] },
  { type = "lstm", name = "rnn", hidden = 4, carry = true, from = ["both", "n"], to = "h" },
  { type = "linear", name = "level", outputs = 1, to = "level" },
  { type = "mean", from = ["h", "n"] },
  { type = "linear", name = "kind", outputs = 6, to = "kind" },
]
)";

std::string sensors(const std::string& from = "", const std::string& to = "") {
  std::string text = kSensors;
  text.replace(text.find("from = [\"x\", \"a\"]"), 17, "from = [\"x\", \"a\"], to = \"both\"");
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Description, SeveralInputsOutputsAndStatesGoThroughByName) {
  const ModelDescription d = parse_description(sensors());
  const zoo::StraightLine line = zoo::straight_line(d);
  ASSERT_EQ(line.calls.size(), 6u);
  EXPECT_EQ(line.calls[1].in, (std::vector<std::string>{"x", "v1"}));
  EXPECT_EQ(line.calls[1].shape, (Dims{5, 5}));
  EXPECT_EQ(line.calls[2].in, (std::vector<std::string>{"v2", "n"}));
  EXPECT_EQ(line.calls[2].states, (std::vector<std::string>{"rnn.h", "rnn.c"}));
  EXPECT_EQ(line.calls[2].parameters[0].first, "rnn.weight_ih_l0");
  EXPECT_EQ(line.calls[2].parameters[0].second, (Dims{16, 5}));
  ASSERT_EQ(line.states.size(), 2u);
  EXPECT_EQ(line.states[0].shape, (Dims{1, 4}));
  ASSERT_EQ(line.outputs.size(), 2u);
  EXPECT_EQ(line.outputs[1].name, "kind");
  EXPECT_EQ(line.outputs[1].shape, (Dims{6}));
  // The same text again, and the same straight line.
  EXPECT_EQ(zoo::to_toml(parse_description(zoo::to_toml(d))), zoo::to_toml(d));

  // What the model computes is what its parts compute.
  manual_seed(3);
  const auto model = zoo::make_model(d);
  const Tensor x = normal({2, 5, 3}, 0, 1), z = from_vector<int64_t>({1, 2, 3, 4, 5, 6, 0, 1, 0, 0}, {2, 5}),
               n = from_vector<int64_t>({5, 2}, {2});
  const std::vector<Tensor> first = (*model)({x, z, n, zeros({1, 2, 4}), zeros({1, 2, 4})});
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[0].shape(), (Dims{2, 5, 1}));
  EXPECT_EQ(first[1].shape(), (Dims{2, 6}));
  std::map<std::string, nn::Module*> parts;
  for (const auto& [name, part] : model->named_modules()) parts[name] = part;
  const Tensor both = concat({x, (*parts.at("words"))(z)}, 2);
  auto& rnn = dynamic_cast<nn::LSTM&>(*parts.at("rnn"));
  const nn::LSTMResult h = rnn.forward(both, {.h = zeros({1, 2, 4}), .c = zeros({1, 2, 4}), .lengths = n});
  EXPECT_EQ(first[0].to_vector<float>(), (*parts.at("level"))(h.output).to_vector<float>());
  EXPECT_EQ(first[2].to_vector<float>(), h.h.to_vector<float>());
  const Tensor last = sum(h.output, {1}) / from_vector<float>({5, 2}, {2, 1});
  EXPECT_LT(relative_distance(to_array(first[1]), to_array((*parts.at("kind"))(last))), 1e-6);
  // States go on: another call from the ones that were left is not the first again.
  const std::vector<Tensor> second = (*model)({x, z, n, first[2], first[3]});
  EXPECT_NE(first[0].to_vector<float>(), second[0].to_vector<float>());
  EXPECT_HAS(refusal([&] { (*model)({x, z, n}); }), "takes 3 tensors and 2 states behind them; got 3");
  EXPECT_HAS(refusal([&] { (*model)({z, x, n, first[2], first[3]}); }), "samples of (5, 3) as x; got (2, 5)");
  EXPECT_EQ(model->clone()->named_parameters().size(), model->named_parameters().size());
}

TEST(Description, WhatValuesAndBlocksCannotBeIsRefusedByName) {
  EXPECT_HAS(why_not(sensors("from = [\"x\", \"a\"]", "from = [\"x\", \"b\"]")),
             "must name an input or what an earlier layer gave");
  EXPECT_HAS(why_not(sensors("to = \"h\"", "to = \"both\"")),
             "the name of a value must be its own; got 'both' twice");
  EXPECT_HAS(why_not(sensors("to = \"h\"", "to = \"v7\"")), "must not be v and a number");
  EXPECT_HAS(why_not(sensors("to = \"h\"", "to = \"a.b\"")), "letters, digits and _");
  EXPECT_HAS(why_not(sensors("outputs = [\"level\", ", "outputs = [\"x\", ")),
             "outputs must be made by layers");
  EXPECT_HAS(why_not(sensors("from = \"z\"", "from = \"x\"")), "takes whole numbers; got x");
  EXPECT_HAS(why_not(sensors("[\"both\", \"n\"]", "[\"both\", \"n\", \"x\"]")),
             "lstm: takes 1 to 2 values; got 3");
  EXPECT_HAS(why_not(sensors("[\"both\", \"n\"]", "[\"both\", \"x\"]")), "lengths");
  EXPECT_HAS(why_not(sensors("carry = true", "carry = true, bidirectional = true")),
             "carried forwards alone");
  EXPECT_HAS(why_not(sensors("{ name = \"n\", shape = [], type = \"i64\" }",
                             "{ name = \"n\", shape = [], type = \"i32\" }")),
             "must be f32 or i64");
  EXPECT_HAS(why_not(sensors("{ name = \"x\", shape", "{ name = \"z\", shape")),
             "the name of an input must be its own");
  EXPECT_HAS(
      why_not("input = [2]\ninputs = [ { name = \"x\", shape = [2] } ]\nlayer = [ { type = \"relu\" } ]"),
      "either input or inputs");
  EXPECT_HAS(why_not_layer("{ type = \"add\" }"), "add: takes 2 or more values; got 1");
  EXPECT_HAS(why_not_layer("{ type = \"relu\", to = \"a\" }, { type = \"flatten\" }, { type = \"add\", from "
                           "= [\"a\", \"x\"] }, "
                           "{ type = \"concat\", axis = 3, from = [\"a\", \"x\"] }"),
             "axis must be one of the sample's; got 3");
  EXPECT_HAS(why_not_layer("{ type = \"repeat\", times = 2 }"), "repeat: must have layers of its own");
  EXPECT_HAS(why_not_layer("{ type = \"repeat\", times = 0, layer = [ { type = \"relu\" } ] }"),
             "times must be a whole number from 1");
  EXPECT_HAS(why_not_layer("{ type = \"repeat\", times = 2, layer = [ { type = \"relu\" } ], shortcut = [ { "
                           "type = \"relu\" } ] }"),
             "must have no shortcut");
  EXPECT_HAS(refusal([] { zoo::output_shape(parse_description(sensors())); }),
             "must have one output here; it has 2");
  EXPECT_HAS(refusal([] { zoo::with_options(parse_description(sensors()), {.input = Dims{4}}); }),
             "has 3 inputs");
}

TEST(Description, ARepeatIsItsLayersWrittenOut) {
  const std::string block =
      "{ type = \"linear\", name = \"fc\", outputs = 3 }, { type = \"tanh\", name = \"t\" }";
  const auto model = [](const std::string& layers) {
    manual_seed(5);
    return zoo::make_model(parse_description("name = \"m\"\ninput = [3]\nlayer = [ " + layers + " ]"));
  };
  const auto short_form =
      model("{ type = \"repeat\", name = \"blocks\", times = 3, layer = [ " + block + " ] }");
  std::string written;
  for (int i = 0; i < 3; ++i) {
    std::string one = block;
    for (const std::string name : {"fc", "t"})
      one.replace(one.find("name = \"" + name), 8, str("name = \"blocks.", i, "."));
    written += (i ? ", " : "") + one;
  }
  const auto long_form = model(written);
  ASSERT_EQ(short_form->named_parameters().size(), 6u);
  EXPECT_EQ(short_form->named_parameters()[2].first, "blocks.1.fc.weight");
  const Tensor x = normal({4, 3}, 0, 1);
  EXPECT_EQ((*short_form)(x).to_vector<float>(), (*long_form)(x).to_vector<float>());
  EXPECT_EQ(short_form->named_parameters()[5].first, long_form->named_parameters()[5].first);
}

TEST(Description, BeforeIsWhatTheLayerBeforeGave) {
  const ModelDescription d = parse_description(
      "name = \"m\"\ninput = [2]\nlayer = [ { type = \"repeat\", name = \"chain\", times = 3, layer = [ "
      "{ type = \"add\", from = [\"before\", \"x\"] } ] } ]");
  const zoo::StraightLine line = zoo::straight_line(d);
  ASSERT_EQ(line.calls.size(), 3u);
  EXPECT_EQ(line.calls[0].in, (std::vector<std::string>{"x", "x"}));
  EXPECT_EQ(line.calls[2].in, (std::vector<std::string>{"v2", "x"}));
  EXPECT_EQ((*zoo::make_model(d))(from_vector<float>({1, -2}, {1, 2})).to_vector<float>(),
            (std::vector<float>{4, -8}));
  EXPECT_EQ(zoo::to_toml(parse_description(zoo::to_toml(d))), zoo::to_toml(d));
  EXPECT_HAS(why_not_layer("{ type = \"relu\", to = \"before\" }"), "nor before; got 'before'");
}

TEST(Description, FunctionsSumsAndProductsAreThoseOfTheLibrary) {
  const auto made = [](const std::string& layer, const Tensor& x) {
    std::string sizes;
    for (int axis = 1; axis < x.rank(); ++axis) sizes += str(axis > 1 ? ", " : "", x.size(axis));
    return (*zoo::make_model(
        parse_description(str("name = \"m\"\ninput = [", sizes, "]\nlayer = [ ", layer, " ]"))))(x);
  };
  manual_seed(7);
  const Tensor x = normal({2, 3, 5}, 0, 1);
  EXPECT_TRUE(same_bits(made("{ type = \"exp\" }", x), exp(x)));
  EXPECT_TRUE(same_bits(made("{ type = \"erf\" }", x), erf(x)));
  EXPECT_TRUE(same_bits(made("{ type = \"log_softmax\" }", x), log_softmax(x, -1)));
  EXPECT_TRUE(same_bits(made("{ type = \"sum\" }", x), sum(x, {1})));
  EXPECT_TRUE(same_bits(made("{ type = \"sum\", axis = 1 }", x), sum(x, {2})));
  EXPECT_HAS(refusal([&] { made("{ type = \"sum\", axis = 2 }", x); }),
             "sum: axis must be one of the sample's; got 2 of (3, 5)");

  const auto product = zoo::make_model(
      parse_description("name = \"m\"\ninput = [5]\nlayer = [ { type = \"matmul\", outputs = 4 } ]"));
  ASSERT_EQ(product->named_parameters().size(), 1u);
  const auto [name, weight] = product->named_parameters()[0];
  EXPECT_EQ(name, "0.weight");
  EXPECT_EQ(weight.shape(), (Dims{5, 4}));
  const Tensor rows = normal({3, 5}, 0, 1);
  EXPECT_TRUE(same_bits((*product)(rows), matmul(rows, weight)));
  // As many outputs as there are classes, like a linear layer.
  EXPECT_EQ(zoo::make_model(parse_description("name = \"m\"\ninput = [5]\nlayer = [ { type = \"matmul\", "
                                              "outputs = 4 } ]"),
                            {.classes = 7})
                ->named_parameters()[0]
                .second.shape(),
            (Dims{5, 7}));
  // The fan of its inputs is the first size: 10,000 of them, and the deviation is sqrt(2 / 10,000).
  const auto drawn = zoo::make_model(parse_description(
      "name = \"m\"\ninput = [10000]\nlayer = [ { type = \"matmul\", outputs = 4, init = \"kaiming_normal\" "
      "} ]"));
  EXPECT_NEAR(std::sqrt(mean(square(drawn->named_parameters()[0].second)).item<double>()), std::sqrt(2e-4),
              5e-4);
}

TEST(Description, AttentionTakesOneSequenceOrThreeAndLengths) {
  const auto make = [](const std::string& from) {
    return zoo::make_model(parse_description(
        "name = \"m\"\ninputs = [ { name = \"q\", shape = [4, 6] }, { name = \"k\", shape = [5, 6] }, "
        "{ name = \"n\", shape = [], type = \"i64\" } ]\nlayer = [ { type = \"attention\", name = \"a\", "
        "heads = 2, from = " +
        from + " } ]"));
  };
  manual_seed(6);
  const Tensor q = normal({2, 4, 6}, 0, 1), k = normal({2, 5, 6}, 0, 1),
               n = from_vector<int64_t>({5, 3}, {2});
  const auto model = make("[\"q\", \"k\", \"k\", \"n\"]");
  std::map<std::string, nn::Module*> parts;
  for (const auto& [name, part] : model->named_modules()) parts[name] = part;
  auto& attention = dynamic_cast<nn::MultiheadAttention&>(*parts.at("a"));
  EXPECT_EQ((*model)({q, k, n})[0].to_vector<float>(),
            attention.forward(q, k, k, {.lengths = n}).to_vector<float>());
  EXPECT_EQ((*make("\"q\""))({q, k, n})[0].shape(), (Dims{2, 4, 6}));
  EXPECT_HAS(refusal([&] { make("[\"q\", \"k\"]"); }), "one sequence or three");
}

// --- building

TEST(Description, ParametersAreNamedByPlaceOrAsTheyAreGiven) {
  const auto model = zoo::make_model(parse_description(R"(
input = [3, 8, 8]
layer = [
  { type = "conv", channels = 4, kernel = 3, padding = 1 },
  { type = "residual", layer = [
      { type = "batch_norm" }, { type = "conv", name = "body.last", channels = 6, kernel = 1 },
    ], shortcut = [ { type = "conv", channels = 6, kernel = 1, bias = false } ] },
  { type = "flatten" },
  { type = "linear", name = "head", outputs = 2 },
])",
                                                       "n.toml"));
  std::string names;
  for (const auto& [name, tensor] : model->named_parameters()) names += name + " ";
  EXPECT_EQ(names,
            "0.weight 0.bias 1.0.weight 1.0.bias 1.body.last.weight 1.body.last.bias 1.shortcut.0.weight "
            "head.weight head.bias ");
  EXPECT_EQ(model->type_name(), "n");
  EXPECT_EQ((*model)(zeros({5, 3, 8, 8})).shape(), (Dims{5, 2}));
  EXPECT_EQ(
      refusal([&] {
        (*model)(zeros({3, 8, 8}));
      }),
      "model n: takes a batch of samples of (3, 8, 8); got (3, 8, 8). Add the batch as the first axis.");
  EXPECT_EQ(
      refusal([&] {
        (*model)(zeros({1, 3, 4, 16}));
      }),
      "model n: takes a batch of samples of (3, 8, 8); got (1, 3, 4, 16). Make the model for that input.");
  const auto copy = model->clone();
  EXPECT_TRUE(same_bits((*copy)(ones({1, 3, 8, 8})), (*model)(ones({1, 3, 8, 8}))));
}

TEST(Description, BothFormsOfTomlMeanTheSame) {
  const std::string tables = R"(
input = [1, 28, 28]
name = "small"
[[layer]]
type = "conv"
channels = 4
kernel = 3
stride = 2
[[layer]]
type = "relu"
[[layer]]
type = "flatten"
[[layer]]
type = "dropout"
p = 0.5
[[layer]]
type = "linear"
name = "fc"
outputs = 10
)";
  EXPECT_EQ(zoo::to_toml(parse_description(tables, "a.toml")),
            zoo::to_toml(parse_description(kSmall, "b.toml")));
  const std::string block = R"(
input = [4]
[[layer]]
type = "residual"
[[layer.layer]]
type = "linear"
outputs = 4
[[layer.layer]]
type = "relu"
[[layer.shortcut]]
type = "linear"
outputs = 4
bias = false
)";
  const auto model = zoo::make_model(parse_description(block, "block.toml"));
  EXPECT_EQ(model->named_parameters().size(), 3u);
  EXPECT_EQ(model->named_parameters()[2].first, "0.shortcut.0.weight");
}

TEST(Description, EveryTypeOfLayerTakesTheRanksThatItShould) {
  const auto conv = "{ type = \"conv\", channels = 5, kernel = 3 }";
  EXPECT_EQ(after({2, 9}, conv), (Dims{5, 7}));
  EXPECT_EQ(after({2, 9, 8}, conv), (Dims{5, 7, 6}));
  EXPECT_EQ(after({2, 9, 8, 7}, conv), (Dims{5, 7, 6, 5}));
  EXPECT_EQ(
      after({2, 9, 8}, "{ type = \"conv\", channels = 4, kernel = [3, 1], padding = [1, 0], groups = 2 }"),
      (Dims{4, 9, 8}));
  EXPECT_EQ(
      after({2, 9, 8}, "{ type = \"conv\", channels = 4, kernel = 3, dilation = 2, padding = \"same\" }"),
      (Dims{4, 9, 8}));
  EXPECT_EQ(after({2, 4, 4}, "{ type = \"conv_transpose\", channels = 3, kernel = 2, stride = 2 }"),
            (Dims{3, 8, 8}));
  EXPECT_EQ(after({7}, "{ type = \"linear\", outputs = 3, bias = false }"), Dims{3});
  EXPECT_EQ(after({5, 7}, "{ type = \"linear\", outputs = 3 }"), (Dims{5, 3}));
  EXPECT_EQ(after({6}, "{ type = \"embedding\", rows = 100, width = 4 }"), (Dims{6, 4}));
  for (const Dims& input : {Dims{4, 6}, Dims{4, 6, 6}, Dims{4, 6, 6, 6}}) {
    Dims half = input, three = input;
    for (int i = 1; i < input.rank(); ++i) half[i] = three[i] = 3;
    for (const char* pool :
         {"{ type = \"max_pool\" }", "{ type = \"avg_pool\" }", "{ type = \"adaptive_avg_pool\", size = 3 }",
          "{ type = \"adaptive_max_pool\", size = 3 }"})
      EXPECT_EQ(after(input, pool), half) << pool;
    EXPECT_EQ(after(input, "{ type = \"max_pool\", kernel = 2, stride = 1, padding = \"same\" }"), input);
    EXPECT_EQ(after(input, "{ type = \"max_pool\", kernel = 3, stride = 1, padding = \"same\" }"), input);
    EXPECT_EQ(after(input, "{ type = \"global_avg_pool\" }"), Dims{4});
    EXPECT_EQ(after(input, "{ type = \"instance_norm\", affine = true }"), input);
    EXPECT_EQ(after(input, "{ type = \"channel_dropout\", p = 0.1 }"), input);
  }
  for (const Dims& input : {Dims{4}, Dims{4, 6}, Dims{4, 6, 6}, Dims{4, 6, 6, 6}}) {
    for (const char* same :
         {"relu", "gelu", "silu", "selu", "mish", "hardswish", "tanh", "sigmoid", "leaky_relu", "elu",
          "softplus", "batch_norm", "layer_norm", "rms_norm", "identity"})
      EXPECT_EQ(after(input, "{ type = \"" + std::string(same) + "\" }"), input) << same;
    EXPECT_EQ(after(input, "{ type = \"group_norm\", groups = 2 }"), input);
    EXPECT_EQ(after(input, "{ type = \"dropout\", p = 0 }"), input);
    EXPECT_EQ(after(input, "{ type = \"flatten\" }"), Dims{size_of(input)});
  }
}

TEST(Description, SettingsReachTheLayers) {
  const NoGrad off;
  const auto run = [](const std::string& layer, const Tensor& x) {
    const auto model = zoo::make_model(parse_description("input = [2]\nlayer = [ " + layer + " ]", "x.toml"));
    return to_array((*model)(x)).values;
  };
  const Tensor x = from_vector<float>({-2, 3}, {1, 2});
  EXPECT_EQ(run("{ type = \"leaky_relu\", slope = 0.5 }", x), (std::vector<double>{-1, 3}));
  EXPECT_NEAR(run("{ type = \"elu\", alpha = 2 }", x)[0], 2 * std::expm1(-2.), 1e-6);
  EXPECT_NEAR(run("{ type = \"softplus\", beta = 2, threshold = 1 }", x)[0], std::log1p(std::exp(-4.)) / 2,
              1e-6);
  const std::string linear = "{ type = \"linear\", outputs = 400, init = \"normal\", init_std = 3 }";
  manual_seed(1);
  const auto model =
      zoo::make_model(parse_description("input = [100]\nlayer = [ " + linear + " ]", "x.toml"));
  double squares = 0;
  for (const double v : to_array(model->named_parameters()[0].second).values) squares += v * v;
  EXPECT_NEAR(std::sqrt(squares / 40000), 3, 0.05);
  for (const double v : to_array(model->named_parameters()[1].second).values) EXPECT_EQ(v, 0);
}

TEST(Description, ALayerThatCannotTakeWhatArrivesIsNamedWithThatShape) {
  const std::string kernel = why_not(
      "name = \"net\"\ninput = [3, 8, 8]\nlayer = [\n { type = \"max_pool\" },\n { type = \"conv\", channels "
      "= "
      "2, kernel = 7 },\n]");
  EXPECT_HAS(kernel, "model net: layer 1 (conv, line 5): cannot take samples of (3, 4, 4): ");
  EXPECT_EQ(
      why_not_layer("{ type = \"linear\", outputs = 3 }"),
      "model mynet: layer 0 (linear, line 2): linear: takes samples of rank 1 to 2; got (3, 8, 8). Put a "
      "flatten layer before it.");
  EXPECT_HAS(why_not("input = [3]\nlayer = [ { type = \"conv\", channels = 2, kernel = 1 } ]"),
             "conv: takes samples of rank 2 to 4; got (3,). The first axis is the channels.");
  EXPECT_HAS(
      why_not_layer("{ type = \"residual\", layer = [ { type = \"max_pool\" } ] }"),
      "layer 0 (residual, line 2): residual: layers and shortcut must give the same shape; got (3, 4, 4) and "
      "(3, 8, 8) (the input as it is).");
  EXPECT_HAS(
      why_not_layer("{ type = \"residual\", layer = [ { type = \"conv\", channels = 2, kernel = 9 } ] }"),
      "layer 0.0 (conv, line 2): cannot take samples of (3, 8, 8): ");
  EXPECT_HAS(why_not_layer("{ type = \"conv\", channels = 4, kernel = 1, groups = 2 }"),
             "multiple of groups");
  EXPECT_HAS(why_not_layer("{ type = \"max_pool\", padding = \"same\" }"), "Add stride = 1.");
  EXPECT_HAS(
      why_not("input = [8]\nlayer = [ { type = \"relu\" }, { type = \"embedding\", rows = 3, width = 3 } ]"),
      "takes whole numbers");
}

// --- reading

TEST(Description, UnknownWordsAndWrongValuesAreRefusedByLineAndRule) {
  EXPECT_EQ(why_not("inptu = [3]\nlayer = [ { type = \"relu\" } ]"),
            "model 'mynet.toml', line 1: the keys of a model must be name, input, inputs, outputs and layer; "
            "got 'inptu'. Did "
            "you mean "
            "input?");
  EXPECT_HAS(why_not("layer = [ { type = \"relu\" } ]"),
             "got no input. Add a line like input = [1, 28, 28].");
  EXPECT_HAS(why_not("input = [3]"), "must have layers; got none");
  EXPECT_HAS(why_not("input = [3]\nlayer = 3"), "line 2: layer must be a list of layers");
  EXPECT_HAS(why_not("input = [3]\nlayer = []"), "layer must be a list of layers; got an empty one.");
  EXPECT_HAS(why_not("input = [3]\nlayer = [ 7 ]"), "line 2: a layer must be a table");
  for (const char* input : {"3", "[]", "[0]", "[-1, 3]", "[1.5]", "[1, 2, 3, 4, 5]", "\"3\""})
    EXPECT_HAS(why_not("layer = [ { type = \"relu\" } ]\ninput = " + std::string(input)),
               "line 2: input must be a list of the sizes of one sample");
  EXPECT_HAS(why_not_layer("{ kernel = 3 }"), "line 2: a layer must have a type");
  EXPECT_HAS(why_not_layer("{ type = \"convv\" }"), "line 2: the type of a layer must be one of conv, ");
  EXPECT_HAS(why_not_layer("{ type = \"convv\" }"), "got 'convv'. Did you mean conv?");
  EXPECT_EQ(why_not_layer("{ type = \"linear\", outputs = 3, unit = 3 }"),
            "model 'mynet.toml', line 2: linear: the settings must be among type, name, from, to, outputs, "
            "bias, init, "
            "init_std; "
            "got 'unit'. Did you mean init?");
  EXPECT_HAS(why_not("input = [3, 8, 8]\n[[layer]]\ntype = \"conv\"\nkernel = 3\nchanels = 2"),
             "line 5: conv: the settings must be among");
  EXPECT_HAS(why_not_layer("{ type = \"conv\", channels = 3 }"),
             "conv: must have the setting kernel, a whole number from 1 to 65536, or a list of one for each "
             "axis; got "
             "none. Add it.");
  EXPECT_HAS(why_not_layer("{ type = \"relu\", layer = [ { type = \"relu\" } ] }"), "got 'layer'");
  EXPECT_HAS(why_not_layer("{ type = \"residual\", stride = 2 }"),
             "among type, name, from, to, layer, shortcut; got 'stride'");
  EXPECT_HAS(why_not_layer("{ type = \"residual\" }"), "residual: must have layers of its own");
  EXPECT_HAS(why_not_layer("{ type = \"relu\", name = \"a b\" }"),
             "the name of a layer must have at most 64 letters");
  EXPECT_HAS(why_not_layer("{ type = \"relu\", name = 3 }"), "name must be a text");
  EXPECT_HAS(why_not_layer("{ type = \"linear\", outputs = 1, init_std = 1 }"),
             "belongs to init = \"normal\"");
  struct Case {
    const char *setting, *text;
  };
  for (const Case& c :
       {Case{"channels = 0", "channels must be a whole number from 1 to 16777216; got 0."},
        Case{"channels = 1.5", "got 1.5."}, Case{"channels = \"3\"", "got \"3\"."},
        Case{"channels = 4.0",
             "channels must be a whole number from 1 to 16777216; got 4.0. Write 4, without the point."},
        Case{"channels = 0.0", "got 0.0."}, Case{"kernel = 3.0", "got 3.0. Write 3, without the point."},
        Case{"kernel = [3.0, 3]",
             "got a list that holds something else. Write whole numbers without a point."},
        Case{"kernel = []", "got an empty list."}, Case{"channels = [3]", "got [3]."},
        Case{"channels = 1979-05-27", "channels must be a number, true, false"},
        Case{"kernel = [1, 2, 3, 4]", "got [1, 2, 3, 4]."}, Case{"kernel = -1", "got -1."},
        Case{"padding = \"valid\"", "or \"same\"; got \"valid\"."},
        Case{"bias = 1", "bias must be true or false; got 1."},
        Case{"init = \"he\"", "init must be one of kaiming_normal, "}})
    EXPECT_HAS(why_not_layer("{ type = \"conv\", " + std::string(c.setting) + " }"), c.text);
  for (const char* type : {"dropout", "channel_dropout"})
    for (const auto& [p, got] :
         {std::pair{"nan", "nan"}, {"1.5", "1.5"}, {"1", "1"}, {"1.0", "1.0"}, {"-0.5", "-0.5"}})
      EXPECT_HAS(why_not_layer(str("{ type = \"", type, "\", p = ", p, " }")),
                 str(type, ": p must be a number of at least 0 and below 1; got ", got, "."));
  EXPECT_HAS(why_not("input = [3\n"), "must be TOML; got: ");
  EXPECT_HAS(why_not("name = \"../x\"\ninput = [3]\nlayer = [ { type = \"relu\" } ]"),
             "line 1: the name of a model must have at most 64 letters");
  EXPECT_HAS(
      refusal([] { parse_description("input = [3]\nlayer = [ { type = \"relu\" } ]", "my net.toml"); }),
      "Give the model a name: name = \"mynet\".");
  EXPECT_HAS(refusal([] { zoo::read_description("there/is/none.toml"); }), "model 'there/is/none.toml'");
}

TEST(Description, NamesThatCollideAreRefusedWithBothNamesInEitherOrder) {
  const auto why = [](const std::string& first, const std::string& second) {
    const std::string layer = "{ type = \"relu\", name = \"";
    return why_not("input = [3]\nlayer = [ " + layer + first + "\" }, " + layer + second + "\" } ]\n");
  };
  EXPECT_EQ(why("a", "a.weight"),
            "model mynet: layer a.weight (relu, line 2): the name of a layer must not be the beginning of "
            "another's, up to a dot; got 'a.weight' beside 'a'. Rename one, for example 'a' to 'a_0'.");
  EXPECT_EQ(
      why("a.weight", "a"),
      "model mynet: layer a (relu, line 2): the name of a layer must not be the beginning of another's, "
      "up to a dot; got 'a' beside 'a.weight'. Rename one, for example 'a' to 'a_0'.");
  EXPECT_HAS(why("a.b.c", "a.b"), "got 'a.b' beside 'a.b.c'. Rename one, for example 'a.b' to 'a.b_0'.");
  EXPECT_HAS(why("a.b", "a.b.c"), "got 'a.b.c' beside 'a.b'. Rename one, for example 'a.b' to 'a.b_0'.");
  EXPECT_HAS(why("a-b.c", "a-b"), "got 'a-b' beside 'a-b.c'.");  // '-' comes before '.'
  EXPECT_HAS(why("a", "a"), "the name of a layer must be its own; got 'a' twice. Rename one.");
  EXPECT_HAS(why("1", ""), "got '1' twice");
}

TEST(Description, WhatIsBuiltInCppIsCheckedToo) {
  const auto why = [](const LayerDescription& layer) {
    return refusal([&] { zoo::make_model(ModelDescription{"m", {3}, {layer}}); });
  };
  EXPECT_HAS(why({.type = "linear"}), "model m: layer 0 (linear): linear: must have the setting outputs");
  EXPECT_HAS(why({.type = "linear", .settings = {{"outputs", 3.0}}}), "must be a whole number");
  EXPECT_HAS(why({.type = "linear", .settings = {{"outputs", 3}, {"outputs", 3}}}), "twice");
  EXPECT_HAS(why({.type = "dropout", .settings = {{"p", 0}}}), "as a double");
  EXPECT_HAS(why({.type = "relu", .layers = {{.type = "relu"}}}), "must have no layers of its own");
  EXPECT_HAS(refusal([] {
               zoo::make_model(ModelDescription{"", {3}, {{.type = "relu"}}});
             }),
             "must have a name");
  EXPECT_HAS(refusal([] { zoo::make_model(ModelDescription{"m", {3}, {}}); }), "at least one layer");
  EXPECT_HAS(refusal([] { zoo::make_model(ModelDescription{"m", {}, {{.type = "relu"}}}); }), "one to four");
}

// --- files from anybody

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;  // KiB
}

TEST(Description, HostileTextIsRefusedInOneLineAndCostsNothing) {
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  const int64_t before = peak_memory();
  EXPECT_HAS(why_not("input = [3]\nlayer = " + repeated("[", 100'000)), "line 2: keys must have at most");
  EXPECT_HAS(why_not("input = [3]\nlayer = " + repeated("{a=", 80'000)), "nested at most 32 deep");
  EXPECT_HAS(why_not(repeated("a.", 100'000) + "b = 1"), "keys must have at most 16 parts");
  EXPECT_HAS(why_not("[" + repeated("a.", 100'000) + "b]"), "keys must have at most 16 parts");
  EXPECT_HAS(why_not("[[" + repeated("layer.", 30'000) + "layer]]"), "keys must have at most 16 parts");
  EXPECT_HAS(why_not("x = \"\\"), "must be TOML");
  EXPECT_HAS(why_not("x = '''"), "must be TOML");
  EXPECT_HAS(why_not("x = \"" + repeated(".", 1000) + "\"  # " + repeated("[", 1000)), "got 'x'");
  std::string nested = "{ type = \"relu\" }";
  for (int i = 0; i < 9; ++i) nested = "{ type = \"residual\", layer = [ " + nested + " ] }";
  EXPECT_HAS(why_not_layer(nested), "blocks must be nested at most 8 deep");
  EXPECT_HAS(why_not("input = [3]\nlayer = [\n" + repeated("{type=\"relu\"},\n", 10'001) + "]"),
             "at most 10000 layers");
  EXPECT_HAS(why_not(std::string(300'000, '#')), "at most 262144 bytes; got 300000.");

  for (const char* channels : {"1099511627776", "16777217", "9223372036854775807"})
    EXPECT_HAS(why_not_layer("{ type = \"conv\", kernel = 3, channels = " + std::string(channels) + " }"),
               "channels must be a whole number from 1 to 16777216");
  EXPECT_HAS(why_not_layer("{ type = \"conv\", kernel = 1, channels = 99999999999999999999 }"),
             "must be TOML");
  EXPECT_HAS(why_not_layer("{ type = \"flatten\" }, { type = \"linear\", outputs = 16777216 }"),
             "layer 1 (linear, line 2): linear: the model must have at most 2147483648 parameters; got 3");
  EXPECT_HAS(why_not("input = [4294967296, 4294967296]\nlayer = [ { type = \"relu\" } ]"),
             "at most 2147483648 elements");
  EXPECT_HAS(why_not_layer("{ type = \"conv_transpose\", channels = 1, kernel = 1, stride = 65536 }"),
             "a sample must have at most 2147483648 elements");
  EXPECT_LT(peak_memory() - before, 200'000) << "KiB";
}

TEST(Description, AHundredMegabytesAreNotRead) {
  const TempFolder folder;
  const std::string path = folder / "large.toml";
  write_text(path, "input = [3]\n");
  fs::resize_file(path, 100'000'000);  // a hole, which takes no disk
  const int64_t before = peak_memory();
  EXPECT_HAS(refusal([&] { zoo::read_description(path); }), "at most 262144 bytes; got 100000000.");
  EXPECT_LT(peak_memory() - before, 20'000) << "KiB";
  EXPECT_HAS(refusal([] { zoo::read_description("/dev/zero"); }), "/dev/zero");
  write_text(path, "");
  EXPECT_HAS(refusal([&] { zoo::read_description(path); }), "got no input");
}

// --- the command

TEST(DescriptionCommand, EveryModelPrintsItselfAndCanBeTrainedFromThat) {
  const TempFolder folder;
  for (const std::string& name : model_names()) {
    const ProcessResult printed = run_command({"models", name, "--toml"});
    ASSERT_EQ(printed.status, 0) << printed.err;
    EXPECT_EQ(printed.out, zoo::to_toml(zoo::describe(name)));
  }
  write_text(folder / "small.toml", kSmall);
  const ProcessResult own = run_command({"models", folder / "small.toml", "--toml"});
  EXPECT_EQ(own.out, zoo::to_toml(parse_description(kSmall, "small.toml"))) << own.err;
  const ProcessResult table = run_command({"models", folder / "small.toml"});
  EXPECT_HAS(table.out, "Conv2d") << table.err;
  EXPECT_HAS(table.out, "small: a description of 5 layers");
  const ProcessResult json = run_command({"models", folder / "small.toml", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["classes"], 10) << json.err;
  std::ofstream(folder / "sensors.toml") << sensors("[\"level\", \"kind\"]", "[\"level\"]");
  const ProcessResult several = run_command({"models", folder / "sensors.toml"});
  EXPECT_EQ(several.status, 0) << several.err;
  EXPECT_HAS(several.out, "LSTM");
  EXPECT_HAS(run_command({"train", folder / "sensors.toml", "--data", "digits", "--out", folder / "run"}).err,
             "has 3 inputs");
  EXPECT_EQ(run_command({"models", "--toml"}).err,
            "tandem: models: --toml prints one model. Name the model.\n");
}

TEST(DescriptionCommand, AModelOfTheZooTrainsToTheSameWeightsFromItsDescription) {
  const TempFolder folder;
  const std::vector<std::string> settings = {"--data", "digits",   "--limit", "120",   "--batch",
                                             "20",     "--epochs", "1",       "--json"};
  const auto train = [&](const std::string& model, const std::string& out) {
    std::vector<std::string> arguments = {"train", model, "--out", folder / out};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const ProcessResult result = run_command(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return read_text(folder / (out + "/model.safetensors"));
  };
  write_text(folder / "mnist_cnn.toml", zoo::to_toml(zoo::describe("mnist_cnn")));
  const std::string weights = train("mnist_cnn", "a");
  EXPECT_FALSE(weights.empty());
  EXPECT_EQ(train(folder / "mnist_cnn.toml", "b"), weights);
}

TEST(DescriptionCommand, ARunNeedsItsFileOnlyToBegin) {
  const TempFolder folder;
  const std::string file = folder / "small.toml", out = folder / "run";
  write_text(file, kSmall);
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train",   file,  "--data",  "digits",
                                          "--limit", "100", "--batch", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments, {.folder = folder.path()});
  };
  ASSERT_EQ(train({"--out", out, "--epochs", "1"}).status, 0);
  const auto config = nlohmann::json::parse(read_text(out + "/config.json"));
  EXPECT_EQ(config["model"], "small");
  EXPECT_EQ(config["description"], zoo::to_toml(parse_description(kSmall, "small.toml")));

  std::string changed = kSmall;
  changed.replace(changed.find("channels = 4"), 12, "channels = 5");
  write_text(file, changed);
  const ProcessResult refused = train({"--out", out, "--epochs", "2", "--resume"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_HAS(refused.err,
             "the run was begun with another description of its model, where it has '{ type = \"conv\", "
             "channels = 4, kernel = 3, stride = 2 },'; got '{ type = \"conv\", channels = 5");
  write_text(file, "# only a comment is new\n" + std::string(kSmall));
  EXPECT_EQ(train({"--out", out, "--epochs", "2", "--resume"}).status, 0);

  fs::remove(file);
  EXPECT_EQ(run_command({"eval", out}).status, 0) << run_command({"eval", out}).err;
  EXPECT_EQ(run_command({"predict", out, "--limit", "2"}).status, 0);
  const ProcessResult resumed = train({"--out", out, "--epochs", "3", "--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  const ProcessResult begun = train({"--epochs", "1"});
  EXPECT_EQ(begun.status, 2);
  EXPECT_HAS(begun.err, "small.toml");

  write_text(file, kSmall);  // without --out: by the name of the model
  EXPECT_EQ(train({"--epochs", "1"}).status, 0);
  EXPECT_TRUE(fs::exists(folder / "runs/small/model.safetensors"));
}

TEST(DescriptionCommand, FaultsAreWrongUsageInOneLine) {
  const TempFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    const ProcessResult result = run_command(arguments, {.folder = folder.path()});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  };
  write_text(folder / "bad.toml", "input = [3, 8, 8]\nlayer = [ { type = \"linear\", outputs = 3 } ]");
  for (const char* command : {"train", "models", "explain", "profile"})
    EXPECT_HAS(run({command, "bad.toml"}),
               "model bad: layer 0 (linear, line 2): linear: takes samples of rank 1 to 2");
  EXPECT_HAS(run({"train", "none.toml"}), "none.toml");
  EXPECT_HAS(run({"train", "./lenet"}), "must be a name from 'tandem models', or the path of a description");
  write_text(folder / "small.toml", kSmall);
  const ProcessResult no_data = run_command({"train", "small.toml"}, {.folder = folder.path()});
  EXPECT_NE(no_data.status, 0);
  EXPECT_HAS(no_data.err,
             "a model of your own must be told what to train on; got no --data. Those with samples of (1, "
             "28, 28) are mnist, ");
  write_text(folder / "grid.toml", "input = [1, 28, 28]\nlayer = [ { type = \"relu\" } ]");
  EXPECT_HAS(run_command({"train", "grid.toml", "--data", "digits"}, {.folder = folder.path()}).err,
             "must have a linear layer that gives the classes");
}

TEST(DescriptionCommand, ExplainAndProfileTakeADescription) {
  const TempFolder folder;
  write_text(folder / "small.toml", kSmall);
  const ProcessResult explained =
      run_command({"explain", "small.toml", "--batch", "4"}, {.folder = folder.path()});
  EXPECT_EQ(explained.status, 0) << explained.err;
  const ProcessResult profiled = run_command(
      {"profile", folder / "small.toml", "--batch", "4", "--steps", "2"}, {.folder = folder.path()});
  EXPECT_EQ(profiled.status, 0) << profiled.err;
  EXPECT_TRUE(fs::exists(folder / "small.trace.json"));
}

}  // namespace
}  // namespace tandem::testing
