// The files that all drivers of a study are given.
#include <gtest/gtest.h>

#include <set>

#include "lab/tests/own/driver_talk.h"
#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

TEST(Material, WeightsAreThoseThatTandemBeginsWith) {
  const TempFolder folder;
  const json lenet = definition_of("lenet");
  write_weights(folder / "a.safetensors", lenet, {1, 28, 28}, 3);
  const io::SafetensorsFile file = io::load_safetensors(folder / "a.safetensors");
  manual_seed(3);
  const auto model = zoo::make_model("lenet");
  ASSERT_EQ(file.tensors.size(), model->state().size());
  for (const auto& [name, tensor] : model->state())
    EXPECT_EQ(file.find(name)->to_vector<float>(), tensor.to_vector<float>()) << name;
  EXPECT_THROW(write_weights(folder / "b", lenet, {1, 28}, 3), Error);
  EXPECT_THROW(write_weights(folder / "b", {{"model", "lenet"}}, {1, 28, 28}, 3), Error);
}

TEST(Material, AFileOfWeightsAndTheirHashGiveDifferentNetworksOfTheSameSize) {
  const SmallCell cell("mnist_cnn", {1, 28, 28}, 8, 0);
  write_weights(cell.folder / "w.safetensors", cell.definition, {1, 28, 28}, 3);
  json request = cell.prepare("graph");
  request["weights"] = {{"file", cell.folder / "w.safetensors"}};
  const json check = {{"call", "check"}, {"steps", 1}};
  const std::vector<json> answers = answers_to({request, check, cell.prepare("graph"), check});
  EXPECT_EQ(succeeded(answers[1])["parameters"], succeeded(answers[3])["parameters"]);
  EXPECT_NE(answers[1]["loss"], answers[3]["loss"]);
  EXPECT_NEAR(answers[1]["loss"].get<double>(), std::log(10.0), 0.3) << "a network that knows nothing yet";
}

TEST(Material, WithoutFilesTheDataIsMadeUpInTheSameShapesAndSaysSo) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "none");
  const auto write = [&](const std::string& to, const std::string& workload, std::vector<int64_t> input,
                         uint64_t seed) {
    return write_data(folder / to, definition_of(workload), input, 60, 20, seed, folder / "none");
  };
  const DataFolder mnist = write("a", "lenet", {1, 28, 28}, 1);
  EXPECT_EQ(mnist.name, "synthetic-mnist");
  EXPECT_FALSE(mnist.is_real);
  EXPECT_EQ(mnist.train, 60);
  EXPECT_EQ(mnist.test, 20);
  EXPECT_EQ(write("b", "resnet18", {3, 32, 32}, 1).name, "synthetic-cifar10");
  const DataFolder odd = write("c", "vgg16", {3, 40, 48}, 1);
  EXPECT_EQ(odd.name, "synthetic-3x40x48");
  const Tensor x = io::load_npy(odd.files["train"]["x"]), y = io::load_npy(odd.files["train"]["y"]);
  EXPECT_EQ(x.shape(), (Dims{60, 3, 40, 48}));
  EXPECT_EQ(y.dtype(), DType::i64);
  const std::vector<int64_t> labels = y.to_vector<int64_t>();
  EXPECT_GT(std::set<int64_t>(labels.begin(), labels.end()).size(), 5u) << "many classes";
  EXPECT_NEAR(mean(x).item<double>(), 0, 0.5);
  EXPECT_NEAR(mean(x * x).item<double>(), 1, 0.5);
  // The same seed gives the same bytes, another one others; and the test is not the training set.
  const auto bytes = [](const DataFolder& data, const char* part) {
    return io::load_npy(data.files[part]["x"]).to_vector<float>();
  };
  EXPECT_EQ(bytes(write("d", "vgg16", {3, 40, 48}, 1), "train"), bytes(odd, "train"));
  EXPECT_NE(bytes(write("e", "vgg16", {3, 40, 48}, 2), "train"), bytes(odd, "train"));
  const std::vector<float> train = bytes(odd, "train"), test = bytes(odd, "test");
  EXPECT_FALSE(std::equal(test.begin(), test.end(), train.begin()));
  EXPECT_THROW(write_data(folder / "f", definition_of("lenet"), {1, 28, 28}, 0, 1, 1), Error);
}

TEST(Material, ADataSetWhoseFilesAreThereIsTaken) {
  // The drawn digits need no files: a workload that names them has real data everywhere.
  const TempFolder folder;
  json workload = definition_of("lenet");
  workload["data"] = "digits";
  const DataFolder digits = write_data(folder / "a", workload, {1, 28, 28}, 30, 0, 1);
  EXPECT_EQ(digits.name, "digits");
  EXPECT_TRUE(digits.is_real);
  EXPECT_EQ(digits.test, 0);
  EXPECT_FALSE(digits.files.contains("test"));
  // For samples of another size there is nothing but made-up ones.
  EXPECT_EQ(write_data(folder / "b", workload, {1, 32, 32}, 4, 0, 1).name, "synthetic-1x32x32");
}

TEST(Material, AChoiceOfMadeUpSamplesSaysWhatIsMissingAndHowToGetIt) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "none");
  const auto choose = [&](const char* data, std::vector<int64_t> input) {
    json workload = definition_of("lenet");
    workload["data"] = data;
    return choose_data(workload, input, folder / "none");
  };
  const DataChoice absent = choose("mnist", {1, 28, 28});
  EXPECT_EQ(absent.name, "synthetic-mnist");
  EXPECT_FALSE(absent.is_real);
  EXPECT_NE(absent.why.find("the files of mnist are not here"), std::string::npos) << absent.why;
  EXPECT_NE(absent.why.find(data::dataset_info("mnist").how_to_get), std::string::npos) << absent.why;
  EXPECT_EQ(absent.why.find('\n'), std::string::npos);
  const DataChoice larger = choose("mnist", {3, 40, 48});
  EXPECT_EQ(larger.name, "synthetic-3x40x48");
  EXPECT_NE(larger.why.find("the samples of mnist are (1, 28, 28) of 10 classes, and these are (3, 40, 48)"),
            std::string::npos)
      << larger.why;
  EXPECT_NE(choose("imagenet", {3, 40, 48}).why.find("no data set 'imagenet'"), std::string::npos);
  EXPECT_EQ(choose("synthetic", {3, 40, 48}).why, "") << "it is what the workload asks for";
  EXPECT_EQ(choose("synthetic-mnist", {1, 28, 28}).why, "");
  const DataChoice digits = choose_data({{"data", "digits"}, {"classes", 10}}, {1, 28, 28});
  EXPECT_TRUE(digits.is_real);
  EXPECT_EQ(digits.why, "");
  // What is chosen is what is written.
  for (const auto& [data, input] : {std::pair<const char*, std::vector<int64_t>>{"mnist", {1, 28, 28}},
                                    {"mnist", {3, 40, 48}},
                                    {"synthetic", {1, 28, 28}}}) {
    json workload = definition_of("lenet");
    workload["data"] = data;
    const DataFolder written = write_data(folder / "w", workload, input, 4, 0, 1, folder / "none");
    EXPECT_EQ(written.name, choose(data, input).name);
    EXPECT_EQ(written.is_real, choose(data, input).is_real);
  }
}

TEST(Material, TheGatesReferenceIsTheCheckInF64) {
  const SmallCell cell("lenet", {1, 28, 28}, 24, 0);
  json request = cell.prepare("graph");
  const json reference = gate_reference(request, 3);
  EXPECT_EQ(reference["losses"].size(), 3u);
  request["precision"] = "f64";
  const std::vector<json> answers = answers_to({request, {{"call", "check"}, {"steps", 3}}});
  for (const auto& [name, value] : reference.items()) EXPECT_EQ(answers[1][name], value) << name;
  request["workload"]["model"] = "gnmt";
  EXPECT_THROW(gate_reference(request, 3), Error);
}

}  // namespace
}  // namespace tandem::lab
