// Values from PyTorch (golden/make_golden.py): every op's result and gradients, and ten training steps of the
// zoo's models. Dropout, which the training runs leave out, is tested here with known masks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/create.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/step.h"
#include "tandem/zoo/mnist_cnn.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/as_batch.h"
#include "tests/support/golden.h"
#include "tests/support/op_case.h"
#include "tests/support/paths.h"

namespace tandem::testing {
namespace {

struct GoldenOp {
  std::string name;
  std::vector<CaseInput> inputs;
  Array output;
  std::map<size_t, Array> gradients;
};

std::vector<GoldenOp> golden_ops() {
  std::vector<GoldenOp> ops;
  std::vector<std::string> lines;
  for (const auto& file : std::filesystem::directory_iterator(source_dir() / "tests" / "golden" / "ops"))
    if (file.path().extension() == ".txt")
      for (std::string& line : golden_lines("ops/" + file.path().filename().string()))
        lines.push_back(std::move(line));
  for (const std::string& line : lines) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    if (word == "case") {
      in >> ops.emplace_back().name;
    } else if (word == "input") {
      std::string shape, kind;
      CaseInput input;
      in >> shape >> input.low >> input.high >> kind;
      input.shape = parse_shape(shape);
      input.kind = kind == "real"      ? CaseInput::real
                   : kind == "boolean" ? CaseInput::boolean
                                       : CaseInput::index64;
      ops.back().inputs.push_back(input);
    } else if (word == "output") {
      ops.back().output = read_array(in);
    } else {
      size_t i = 0;
      in >> i;
      ops.back().gradients[i] = read_array(in);
    }
  }
  return ops;
}

TEST(Golden, OpsAndTheirGradientsMatchPyTorch) {
  const std::vector<GoldenOp> ops = golden_ops();
  ASSERT_GT(ops.size(), 40u);
  for (const GoldenOp& golden : ops) {
    SCOPED_TRACE(golden.name);
    const OpCase* op_case = find_case(golden.name);
    ASSERT_NE(op_case, nullptr) << "no such case; make_golden.py names cases of tests/op_cases";
    ASSERT_EQ(op_case->inputs.size(), golden.inputs.size());
    for (size_t i = 0; i < golden.inputs.size(); ++i) {
      ASSERT_EQ(op_case->inputs[i].shape, golden.inputs[i].shape) << "input " << i;
      ASSERT_EQ(op_case->inputs[i].kind, golden.inputs[i].kind) << "input " << i;
      if (golden.inputs[i].kind == CaseInput::boolean) continue;
      ASSERT_EQ(op_case->inputs[i].low, golden.inputs[i].low) << "input " << i;
      ASSERT_EQ(op_case->inputs[i].high, golden.inputs[i].high) << "input " << i;
    }
    for (const DType dtype : {DType::f64, DType::f32}) {
      const double tolerance = dtype == DType::f64 ? 1e-9 : std::max(op_case->tolerance, 1e-6);
      std::vector<Tensor> in = case_tensors(*op_case, dtype, 0, !golden.gradients.empty());
      EXPECT_TRUE(near(to_array(run_case(*op_case, in)), golden.output, tolerance)) << dtype;
      if (golden.gradients.empty()) continue;
      const std::vector<Tensor> gradients = case_gradients(*op_case, in);
      for (const auto& [i, want] : golden.gradients)
        EXPECT_TRUE(near(to_array(gradients[i]), want, 5 * tolerance)) << dtype << ", gradient " << i;
    }
  }
}

struct GoldenRun {
  std::string model, optimizer;
  int64_t classes = 0;
  Dims input;                                                   // with the batch
  double gain = 1;                                              // of the weights
  int64_t words = 0;                                            // of a model of text
  std::vector<std::pair<std::string, double>> settings;         // of the model, by name
  std::vector<double> losses;                                   // one per step
  std::map<std::string, std::pair<double, double>> parameters;  // sum and norm
};

std::vector<GoldenRun> golden_runs() {
  std::vector<GoldenRun> runs;
  std::vector<std::string> lines = golden_lines("training.txt");
  for (const char* file : {"training_text.txt", "training_recognition.txt", "training_speech.txt"})
    for (const std::string& line : golden_lines(file)) lines.push_back(line);
  for (const std::string& line : lines) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    if (word == "run") {
      GoldenRun& run = runs.emplace_back();
      std::string shape;
      in >> run.model >> run.optimizer >> run.classes >> shape;
      run.input = parse_shape(shape);
      in >> run.gain;
      if (in.fail()) run.gain = 1;
      in >> run.words;
      if (in.fail()) run.words = 0;
      for (std::string each; in >> each;)
        run.settings.emplace_back(each.substr(0, each.find('=')), std::stod(each.substr(each.find('=') + 1)));
    } else if (word == "losses") {
      for (double loss; in >> loss;) runs.back().losses.push_back(loss);
    } else {
      std::string name;
      double sum = 0, norm = 0;
      in >> name >> sum >> norm;
      runs.back().parameters[name] = {sum, norm};
    }
  }
  return runs;
}

zoo::ModelOptions options_of(const GoldenRun& golden) {
  Dims sample = golden.input;
  sample.erase(0);
  if (!golden.settings.empty()) {
    zoo::ModelOptions options{.dropout = 0.0, .settings = golden.settings};
    if (golden.words > 0) options.vocabulary = golden.words;
    if (golden.classes > 0) options.classes = golden.classes;
    if (golden.model == "tacotron2") options.settings.emplace_back("zoneout", 0);
    return options;
  }
  if (golden.words > 0) return {.dropout = 0.0, .classes = golden.classes, .vocabulary = golden.words};
  return {.dropout = 0.0, .classes = golden.classes, .input = sample};
}

/// A model in training, in one type.
struct Trained {
  DType dtype;
  double tolerance;
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<TrainingStep> step;

  Trained(const GoldenRun& golden, DType type, double allowed, Engine engine)
      : dtype(type), tolerance(allowed) {
    model = zoo::make_model(golden.model, options_of(golden));
    model->to(dtype);
    set_weights(*model, golden.gain);
    optim::Settings settings;
    settings.lr = golden.optimizer == "sgd" ? 0.02 : 0.001;
    optimizer = optim::make_optimizer(golden.optimizer, model->named_parameters(), settings);
    step = std::make_unique<TrainingStep>(*model, *optimizer, engine,
                                          StepOptions{.task = make_task(zoo::model_info(golden.model).task)});
  }

  static Tensor whole(const Dims& shape, uint32_t salt, int64_t least, int64_t below) {
    return to_tensor(hash_array(shape, salt, static_cast<double>(least), static_cast<double>(below)),
                     DType::i64);
  }
  /// Of a model of speech: features and their number, labels and their number.
  static std::vector<Tensor> speech_batch(const GoldenRun& golden, uint32_t i) {
    const Dims n = {golden.input[0]};
    const int64_t letters = 4;
    return {to_tensor(hash_array(golden.input, 9000 + i), DType::f64),
            whole(n, 9700 + i, 13, golden.input[1] + 1), whole({n[0], letters}, 9500 + i, 1, golden.classes),
            whole(n, 9800 + i, 1, letters + 1)};
  }
  /// Of a model of text: tokens, and their number and a class each, or the tokens that follow; of a translation their number, the tokens
  /// before and the targets, of which some are padding.
  std::vector<Tensor> text_batch(const GoldenRun& golden, uint32_t i) const {
    const Dims n = {golden.input[0]};
    if (golden.input.rank() == 3) {  // samples, characters, frames
      const int64_t length = golden.input[1], frames = golden.input[2];
      return {
          whole({n[0], length}, 9000 + i, 0, golden.words), whole(n, 9700 + i, 1, length + 1),
          to_tensor(hash_array({n[0], frames, static_cast<Dim>(golden.settings[0].second)}, 9500 + i), dtype),
          whole(n, 9800 + i, 1, frames + 1)};
    }
    const Tensor tokens = whole(golden.input, 9000 + i, 0, golden.words);
    if (zoo::model_info(golden.model).task == "translation") {
      const Tensor targets = whole(golden.input, 9500 + i, 0, golden.classes),
                   count = whole(n, 9600 + i, 1, golden.input[1] + 1),
                   places = arange(0, golden.input[1], 1, DType::i64);
      return {tokens, whole(n, 9700 + i, 1, golden.input[1] + 1),
              whole(golden.input, 9300 + i, 0, golden.classes),
              where(less(places, unsqueeze(count, 1)), targets, full_like(targets, -100))};
    }
    if (golden.classes == golden.words) return {tokens, whole(golden.input, 9500 + i, 0, golden.words)};
    return {tokens, whole(n, 9700 + i, 1, golden.input[1] + 1), whole(n, 9500 + i, 0, 2)};
  }

  void check_step(const GoldenRun& golden, uint32_t i) {
    const bool is_speech = zoo::model_info(golden.model).task == "speech-recognition";
    if (golden.words > 0 || is_speech) {
      const double loss = (*step)(as_batch(make_task(zoo::model_info(golden.model).task),
                                           is_speech ? speech_batch(golden, i) : text_batch(golden, i)))
                              .value.item<double>();
      EXPECT_NEAR(loss, golden.losses[i], tolerance * (1 + golden.losses[i])) << dtype << ", step " << i;
      return;
    }
    const Tensor x = to_tensor(hash_array(golden.input, 9000 + i), dtype);
    const Tensor y = to_tensor(
        hash_array({golden.input[0]}, 9500 + i, 0, static_cast<double>(golden.classes)), DType::i64);
    const double loss = (*step)(x, y).item<double>();
    EXPECT_NEAR(loss, golden.losses[i], tolerance * (1 + golden.losses[i])) << dtype << ", step " << i;
  }

  void check_parameters(const GoldenRun& golden) const {
    ASSERT_EQ(model->named_parameters().size(), golden.parameters.size());
    for (const auto& [name, parameter] : model->named_parameters()) {
      const auto found = golden.parameters.find(name);
      ASSERT_NE(found, golden.parameters.end()) << name;
      // A bias before a batch norm has a gradient of 0 but for rounding, which Adam divides by its own size.
      if (dtype == DType::f32 && golden.optimizer == "adam" && name.ends_with(".conv.bias")) continue;
      double sum = 0, squares = 0;
      for (const double v : to_array(parameter).values) sum += v, squares += v * v;
      const double scale = 1 + std::sqrt(static_cast<double>(parameter.size()));
      EXPECT_NEAR(sum, found->second.first, tolerance * scale) << dtype << " " << name;
      EXPECT_NEAR(std::sqrt(squares), found->second.second, tolerance * (1 + found->second.second))
          << dtype << " " << name;
    }
  }
};

/// Trains for as many steps in f64 and compares each loss and each parameter's sum and norm. Beside it runs f32, where each
/// step begins with the weights that f64 has reached: on its own it would, sooner or later, take the other side of a kink
/// (a ReLU at zero, two equal elements of a max pool) and go another way, which says nothing about its arithmetic. VGG-16
/// does so at step 3 with one instruction set and not with another, while the gradients of every single step are within
/// 2e-6 of those of f64.
void check_run(const GoldenRun& golden, Engine engine_64, Engine engine_32) {
  SCOPED_TRACE(str(golden.model, " with ", golden.optimizer,
                   engine_32 == Engine::graph ? ", f32 as a graph" : ", f32 eager"));
  Trained exact(golden, DType::f64, 2e-9, engine_64), single(golden, DType::f32, 2e-5, engine_32);
  ASSERT_GE(golden.losses.size(), 2u);
  for (uint32_t i = 0; i < golden.losses.size(); ++i) {
    single.model->copy_state_from(*exact.model);
    exact.check_step(golden, i);
    single.check_step(golden, i);
  }
  exact.check_parameters(golden);
  single.check_parameters(golden);
}

class GoldenTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTraining, StepsMatchPyTorchInBothEnginesAndTypes) {
  int found = 0;
  for (const GoldenRun& golden : golden_runs()) {
    if (golden.model != GetParam()) continue;
    ++found;
    const int64_t parameters = nn::count_parameters(*zoo::make_model(golden.model, options_of(golden)));
    // The engines have the same bits (nn_zoo_test.cpp): of wide models, one run is enough.
    check_run(golden, Engine::eager, Engine::graph);
    if (parameters <= 1'000'000) check_run(golden, Engine::graph, Engine::eager);
  }
  EXPECT_GE(found, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTraining,
                         ::testing::Values("mlp", "lenet", "mnist_cnn", "cifar10_cnn", "cifar100_cnn",
                                           "svhn_cnn", "alexnet", "resnet18", "vgg16", "imdb_lstm",
                                           "ptb_lstm", "deepspeech2", "seq2seq", "gnmt", "tacotron2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Golden, EveryModelOfTheZooHasARun) {
  for (const zoo::ModelInfo& info : zoo::models()) {
    const std::vector<GoldenRun> runs = golden_runs();
    EXPECT_TRUE(std::any_of(runs.begin(), runs.end(), [&](const GoldenRun& r) {
      return r.model == info.name;
    })) << info.name;
  }
}

TEST(Dropout, WithAKnownMaskTheResultAndTheGradientAreExact) {
  const double p = 0.25;
  Tensor x = to_tensor(hash_array({6, 50}, 1), DType::f32).set_requires_grad();
  manual_seed(5);
  const Tensor mask = bernoulli(x.shape(), 1 - p);
  const double kept = mean(mask).item<double>();
  EXPECT_GT(kept, 0.6);
  EXPECT_LT(kept, 0.9);
  manual_seed(5);
  const Tensor y = dropout(x, p);
  const Tensor scale = mask * (1 / (1 - p));
  EXPECT_TRUE(same_bits(y.detach(), (x * scale).detach()));
  const Tensor seed = to_tensor(hash_array(x.shape(), 2), DType::f32);
  const Tensor gradient = grad(y, std::vector<Tensor>{x}, seed)[0];
  EXPECT_TRUE(same_bits(gradient, seed * scale));
}

TEST(Dropout, InAModelTakesTheMasksFromTheStreamInOrder) {
  // The network with its own dropout equals the same layers with the two masks put in by hand.
  zoo::MnistCnn model(0.25, 0.5);
  set_weights(model);
  const Tensor x = to_tensor(hash_array({4, 1, 28, 28}, 3), DType::f32);
  manual_seed(9);
  const Tensor got = model(x);
  manual_seed(9);
  const Tensor first = bernoulli({4, 64, 12, 12}, 0.75) * (1 / 0.75);
  const Tensor second = bernoulli({4, 128}, 0.5) * 2.0;
  zoo::MnistCnn plain(0, 0);
  set_weights(plain);
  Tensor h = relu(plain.conv2(relu(plain.conv1(x))));
  h = reshape(h, {4, 64, 12, 2, 12, 2});
  h = max(h, {3, 5}) * first;
  h = relu(plain.fc1(flatten(h, 1))) * second;
  EXPECT_TRUE(same_bits(got.detach(), plain.fc2(h).detach()));
}

TEST(Dropout, DoesNothingInEvaluation) {
  zoo::MnistCnn model(0.25, 0.5), plain(0, 0);
  set_weights(model);
  set_weights(plain);
  model.eval();
  const NoGrad off;
  const Tensor x = to_tensor(hash_array({2, 1, 28, 28}, 4), DType::f32);
  EXPECT_TRUE(same_bits(model(x), plain(x)));
}

}  // namespace
}  // namespace tandem::testing
