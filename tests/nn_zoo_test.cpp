// The zoo's models as wholes: the same bits at any number of threads and with either engine, and weights that go to
// PyTorch and back.
// ctest: timeout=600
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/core/threads.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/step.h"
#include "tandem/zoo/zoo.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"
#include "tests/support/values.h"
#include "tests/support/zoo_models.h"

namespace tandem::testing {
namespace {

class ZooModel : public ::testing::TestWithParam<std::string> {};

TEST_P(ZooModel, TrainsToTheSameBitsAtAnyThreadCountAndWithEitherEngine) {
  const zoo::ModelInfo& info = zoo::model_info(GetParam());
  const int before = threads();
  set_threads(1);
  const nn::NamedTensors want = train_once(info, Engine::eager).after;
  const std::vector<int> counts = nn::count_parameters(*zoo::make_model(info.name, small(info))) > 10'000'000
                                      ? std::vector{3, 8}
                                      : std::vector{1, 2, 3, 8};
  for (const int count : counts) {
    set_threads(count);
    // The engines take turns, each at few and at many threads.
    const nn::NamedTensors got = train_once(info, count % 2 == 1 ? Engine::graph : Engine::eager).after;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(got[i].second, want[i].second)) << want[i].first << ", " << count << " threads";
  }
  set_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooModel, ::testing::ValuesIn(model_names()),
                         [](const auto& info) { return info.param; });

TEST(Zoo, EveryModelMapsABatchOfItsInputToLogitsAndLearnsWithAllItsParameters) {
  for (const zoo::ModelInfo& info : zoo::models()) {
    if (info.task != "classification") continue;  // of text and of speech: tests of their own
    const auto model = zoo::make_model(info.name, {.classes = 3, .input = small(info).input});
    const Tensor logits = (*model)(uniform(batch_of(info)));
    EXPECT_EQ(logits.shape(), (Dims{2, 3})) << info.name;
    EXPECT_EQ(grad(sum(logits), model->parameters()).size(), model->parameters().size());
  }
  EXPECT_EQ(error_of([] { zoo::make_model("mlp", {.classes = 0}); }),
            "model mlp: there must be at least one class; got 0.");
}

TEST(Zoo, EveryModelGivesItsClassesForItsInput) {  // on shapes alone
  for (const zoo::ModelInfo& info : zoo::models()) {
    if (info.task != "classification") continue;  // of text and of speech: tests of their own
    Dims shape = info.input;
    shape.insert(0, 5);
    const nn::Summary summary = nn::summary(*zoo::make_model(info.name), shape);
    EXPECT_EQ(summary.layers[0].outputs, std::vector<Dims>{(Dims{5, info.classes})}) << info.name;
    EXPECT_FALSE(info.training.data.empty());
    EXPECT_NO_THROW(optim::optimizer_info(info.training.optimizer));
  }
  EXPECT_EQ(nn::count_parameters(*zoo::make_model("alexnet")), 61100840);  // torchvision's
}

TEST(Zoo, ModelsOfTextTakeAnyLengthAndReadNothingBehindATextsEnd) {
  const NoGrad off;
  manual_seed(3);
  const auto imdb = zoo::make_model("imdb_lstm", {.vocabulary = 20});
  imdb->eval();
  const Tensor text = from_vector<int64_t>({3, 4, 5, 0, 0, 6, 7, 8, 9, 1}, {2, 5});
  const Tensor both = (*imdb)(text, from_vector<int64_t>({3, 5}, {2}));
  EXPECT_EQ(both.shape(), (Dims{2, 1}));
  const Tensor alone = (*imdb)(from_vector<int64_t>({3, 4, 5}, {1, 3}), from_vector<int64_t>({3}, {1}));
  EXPECT_NEAR(alone.item<double>(), both[0].item<double>(), 1e-6);
  EXPECT_EQ((*zoo::make_model("imdb_lstm", {.classes = 4}))(text, from_vector<int64_t>({3, 5}, {2})).shape(),
            (Dims{2, 4}));
  // 5,000 · 32 + 4 · 100 · (32 + 100 + 2) + 101; and of words 128, twice 1,024 units, 10,000 outputs.
  EXPECT_EQ(nn::count_parameters(*zoo::make_model("imdb_lstm")), 213701);
  EXPECT_EQ(nn::count_parameters(*nn::shapes_of([] { return zoo::make_model("ptb_lstm"); })),
            1280000 + 4096 * (128 + 1024 + 2) + 4096 * (1024 + 1024 + 2) + 10000 * 1025);
  EXPECT_EQ(error_of([&] { (*imdb)(std::vector<Tensor>{text}); }),
            "ImdbLstm: takes tokens, length; got 1 tensors without 'length'.");
}

TEST(Zoo, AlexNetTakesAnySizeFrom63OnAndRefusesLess) {
  const auto model = zoo::make_model("alexnet", {.classes = 4});
  model->eval();
  const NoGrad off;
  for (const Dims& shape : {Dims{1, 3, 63, 63}, Dims{1, 3, 224, 224}, Dims{1, 3, 63, 130}})
    EXPECT_EQ((*model)(zeros(shape)).shape(), (Dims{1, 4})) << shape;
  EXPECT_EQ(error_of([&] {
              (*model)(zeros({1, 3, 62, 224}));
            }),
            "alexnet: the input must be (N, 3, H, W) with H and W at least 63; got (1, 3, 62, 224).");
  EXPECT_EQ(error_of([&] {
              (*model)(zeros({3, 224, 224}));
            }),
            "alexnet: the input must be (N, 3, H, W) with H and W at least 63; got (3, 224, 224).");
}

TEST(Zoo, ModelsOfAnySizeAreMadeForTheSizeAskedForAndOthersRefuseIt) {
  const NoGrad off;
  for (const Dims& sample : {Dims{3, 1, 1}, Dims{3, 33, 50}}) {
    const auto model = zoo::make_model("resnet18", {.classes = 4, .input = sample});
    model->eval();
    EXPECT_EQ((*model)(zeros({2, 3, sample[1], sample[2]})).shape(), (Dims{2, 4})) << sample;
  }
  const auto vgg = zoo::make_model("vgg16", {.classes = 4, .input = Dims{3, 40, 64}});
  for (const auto& [name, parameter] : vgg->named_parameters())
    if (name == "classifier.0.weight") {
      EXPECT_EQ(parameter.shape(), (Dims{4096, 512 * 1 * 2}));
    }
  const auto copy = vgg->clone();
  EXPECT_EQ((*copy)(zeros({1, 3, 40, 64})).shape(), (Dims{1, 4}));
  EXPECT_EQ(error_of([&] {
              (*vgg)(zeros({1, 3, 64, 40}));
            }),
            "vgg16: the input must be (N, 3, 40, 64); got (1, 3, 64, 40). Make the model for the size of its "
            "images.");
  EXPECT_EQ(error_of([] {
              zoo::make_model("vgg16", {.input = Dims{3, 31, 64}});
            }),
            "vgg16: height and width must be at least 32; got 31 and 64.");
  EXPECT_EQ(error_of([] {
              zoo::make_model("vgg16", {.input = Dims{1, 64, 64}});
            }),
            "model vgg16: takes samples of (3, 224, 224) or of another size; got (1, 64, 64).");
  EXPECT_EQ(error_of([] {
              zoo::make_model("lenet", {.input = Dims{1, 32, 32}});
            }),
            "model lenet: takes samples of (1, 28, 28); got (1, 32, 32).");
}

/// The deviation of a parameter's values about 0.
double deviation_of(const nn::Module& model, const std::string& parameter) {
  for (const auto& [name, tensor] : model.named_parameters()) {
    if (name != parameter) continue;
    double squares = 0;
    for (const double v : to_array(tensor).values) squares += v * v;
    return std::sqrt(squares / static_cast<double>(tensor.size()));
  }
  ADD_FAILURE() << "no parameter " << parameter;
  return 0;
}

TEST(Zoo, ResNetAndVggBeginAsTorchvisionLetsThem) {
  manual_seed(3);
  const auto resnet = zoo::make_model("resnet18", {.classes = 1000});
  EXPECT_EQ(nn::count_parameters(*resnet), 11689512);  // torchvision's
  EXPECT_NEAR(deviation_of(*resnet, "conv1.weight"), std::sqrt(2.0 / (64 * 49)), 1e-3);
  EXPECT_NEAR(deviation_of(*resnet, "layer3.0.conv1.weight"), std::sqrt(2.0 / (256 * 9)), 1e-3);
  EXPECT_NEAR(deviation_of(*resnet, "layer2.0.downsample.0.weight"), std::sqrt(2.0 / 128), 3e-3);
  EXPECT_EQ(deviation_of(*resnet, "layer4.1.bn2.weight"), 1);
  EXPECT_EQ(deviation_of(*resnet, "layer4.1.bn2.bias"), 0);
  EXPECT_NEAR(deviation_of(*resnet, "fc.weight"), 1 / std::sqrt(3.0 * 512), 1e-3);  // uniform
  const auto vgg = zoo::make_model("vgg16", {.classes = 10, .input = Dims{3, 32, 32}});
  EXPECT_EQ(nn::count_parameters(*vgg), 138357544 - 4096 * (25088 - 512) - 4097 * 990);  // of torchvision's
  EXPECT_NEAR(deviation_of(*vgg, "features.28.weight"), std::sqrt(2.0 / (512 * 9)), 1e-3);
  EXPECT_EQ(deviation_of(*vgg, "features.0.bias"), 0);
  EXPECT_NEAR(deviation_of(*vgg, "classifier.3.weight"), 0.01, 1e-4);
  EXPECT_EQ(deviation_of(*vgg, "classifier.6.bias"), 0);
}

TEST(Zoo, TheCommandDescribesAModelLayerByLayer) {
  const ProcessResult json = run_command({"models", "cifar10_cnn", "--batch", "4", "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  const auto line = nlohmann::ordered_json::parse(json.out);
  EXPECT_EQ(line["parameters"], 2168362);
  EXPECT_EQ(line["layers"][1]["name"], "conv1");
  EXPECT_EQ(line["layers"][1]["outputs"][0], (std::vector<int>{4, 32, 32, 32}));
  EXPECT_EQ(line["layers"][1]["flops"], 4 * 32 * 32 * 32 * (2 * 27 + 1));
  EXPECT_EQ(line["recipes"]["paper"]["data"], "cifar10");
  const ProcessResult text = run_command({"models", "svhn_cnn"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("conv8    Conv2d"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("data svhn, epochs 100"), std::string::npos) << text.out;
  EXPECT_NE(run_command({"models", "svhn_cnm"}).err.find("Did you mean svhn_cnn?"), std::string::npos);
  EXPECT_EQ(run_command({"models", "lenet", "--batch", "0"}).err,
            "tandem: models: the batch must be at least 1; got 0.\n");
  EXPECT_EQ(run_command({"models", "--batch", "2"}).err,
            "tandem: models: --batch belongs to the description of one model. Name the model.\n");
}

/// A Python that may have PyTorch, or nothing.
std::string peer_python() {
  if (const char* named = std::getenv("TANDEM_PEER_PYTHON")) return named;
  const std::filesystem::path own = source_dir() / "lab" / ".venv-peers" / "pytorch" / "bin" / "python";
  return std::filesystem::exists(own) ? own.string() : "";
}

TEST(Zoo, WeightsGoToPyTorchAndBackAndGiveTheSameLogits) {
  const std::string python = peer_python();
  if (python.empty())
    GTEST_SKIP() << "no Python with PyTorch: set TANDEM_PEER_PYTHON, or make lab/.venv-peers/pytorch";
  const TempFolder folder;
  const NoGrad off;
  std::string names;
  for (const zoo::ModelInfo& info : zoo::models()) {
    if (info.task != "classification") continue;  // of text and of speech: tests of their own
    manual_seed(9);
    const auto model = zoo::make_model(info.name, small(info));
    model->eval();
    const Tensor x = uniform(batch_of(info), -1, 1);
    io::save_safetensors(folder / (info.name + ".safetensors"), model->state());
    io::save_safetensors(folder / (info.name + ".io.safetensors"), {{"input", x}, {"logits", (*model)(x)}});
    names += " " + info.name;
  }
  const std::string script = (source_dir() / "tests" / "golden" / "interchange.py").string();
  const int status =
      std::system(("'" + python + "' '" + script + "' '" + folder.path() + "'" + names).c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << python << " has no PyTorch, or no safetensors";
  ASSERT_EQ(WEXITSTATUS(status), 0);
  for (const zoo::ModelInfo& info : zoo::models()) {
    if (info.task != "classification") continue;  // of text and of speech: tests of their own
    const auto model = zoo::make_model(info.name, small(info));
    model->eval();
    model->load_state(io::load_safetensors(folder / (info.name + ".back.safetensors")).tensors);
    const Tensor x = *io::load_safetensors(folder / (info.name + ".io.safetensors")).find("input");
    const Tensor want = *io::load_safetensors(folder / (info.name + ".back.io.safetensors")).find("logits");
    EXPECT_TRUE(near(to_array((*model)(x)), to_array(want), 1e-5)) << info.name;
  }
}

}  // namespace
}  // namespace tandem::testing
