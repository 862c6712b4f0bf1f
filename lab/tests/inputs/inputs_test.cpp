// The files that all drivers of a study are given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "lab/src/files/toml.h"
#include "lab/src/inputs/made_up.h"
#include "lab/src/protocol/trim.h"
#include "lab/tests/tandem_driver/driver_talk.h"
#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

TEST(WriteInputs, WeightsAreThoseThatTandemBeginsWith) {
  const TempFolder folder;
  write_weights(folder / "a.safetensors", load_network(load_workload("lenet")), 3);
  const io::SafetensorsFile file = io::load_safetensors(folder / "a.safetensors");
  manual_seed(3);
  const auto model = zoo::make_model("lenet");
  ASSERT_EQ(file.tensors.size(), model->state().size());
  for (const auto& [name, tensor] : model->state())
    EXPECT_EQ(file.find(name)->to_vector<float>(), tensor.to_vector<float>()) << name;
}

TEST(WriteInputs, AFileOfWeightsAndTheirHashGiveDifferentNetworksOfTheSameSize) {
  const SmallCell cell("mnist_cnn", {1, 28, 28}, 8, 0);
  write_weights(cell.folder / "w.safetensors", cell.network, 3);
  json request = cell.prepare("graph");
  request["weights"] = {{"file", cell.folder / "w.safetensors"}};
  const json check = {{"call", "check"}, {"steps", 1}};
  const std::vector<json> answers = answers_to({request, check, cell.prepare("graph"), check});
  EXPECT_EQ(succeeded(answers[1])["parameters"], succeeded(answers[3])["parameters"]);
  EXPECT_NE(answers[1]["loss"], answers[3]["loss"]);
  EXPECT_NEAR(answers[1]["loss"].get<double>(), std::log(10.0), 0.3) << "a network that knows nothing yet";
}

TEST(WriteInputs, WithoutFilesTheDataIsMadeUpInTheSameShapesAndSaysSo) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "none");
  const auto write = [&](const std::string& to, const std::string& workload, std::vector<int64_t> input,
                         uint64_t seed) {
    const Workload made = load_workload(workload);
    return write_data(folder / to, made, load_network(made, input), 60, 20, seed, folder / "none");
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
  const Workload lenet = load_workload("lenet");
  EXPECT_THROW(write_data(folder / "f", lenet, load_network(lenet), 0, 1, 1), Error);
}

TEST(WriteInputs, ADataSetWhoseFilesAreThereIsTaken) {
  // The drawn digits need no files: a workload that names them has real data everywhere.
  const TempFolder folder;
  Workload workload = load_workload("lenet");
  workload.data = "digits";
  const DataFolder digits = write_data(folder / "a", workload, load_network(workload), 30, 0, 1);
  EXPECT_EQ(digits.name, "digits");
  EXPECT_TRUE(digits.is_real);
  EXPECT_EQ(digits.test, 0);
  EXPECT_FALSE(digits.files.contains("test"));
  // For samples of another size there are only made-up ones.
  EXPECT_EQ(write_data(folder / "b", workload, load_network(workload, {1, 32, 32}), 4, 0, 1).name,
            "synthetic-1x32x32");
}

TEST(WriteInputs, AChoiceOfMadeUpSamplesSaysWhatIsMissingAndHowToGetIt) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "none");
  const auto choose = [&](const char* data, std::vector<int64_t> input) {
    Workload workload = load_workload(input[0] == 1 ? "lenet" : "resnet18");
    workload.data = data;
    return choose_data(workload, load_network(workload, input), folder / "none");
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
  Workload drawn = load_workload("lenet");
  drawn.data = "digits";
  const DataChoice digits = choose_data(drawn, load_network(drawn));
  EXPECT_TRUE(digits.is_real);
  EXPECT_EQ(digits.why, "");
  // What is chosen is what is written.
  for (const auto& [data, input] : {std::pair<const char*, std::vector<int64_t>>{"mnist", {1, 28, 28}},
                                    {"mnist", {3, 40, 48}},
                                    {"synthetic", {1, 28, 28}}}) {
    Workload workload = load_workload(input[0] == 1 ? "lenet" : "resnet18");
    workload.data = data;
    const DataFolder written =
        write_data(folder / "w", workload, load_network(workload, input), 4, 0, 1, folder / "none");
    EXPECT_EQ(written.name, choose(data, input).name);
    EXPECT_EQ(written.is_real, choose(data, input).is_real);
  }
}

/// Networks of the lab that have the name of a class of the zoo describe that class again. Both must be the same line by line.
TEST(Networks, ThoseOfTheZooAreTheZoosOwn) {
  int compared = 0;
  for (const std::string& name : workload_names()) {
    const Workload workload = load_workload(name);
    const auto& all = zoo::models();
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& info) { return info.name == workload.network && info.described; }))
      continue;
    ++compared;
    const Network network = load_network(workload);
    Network of_zoo;
    of_zoo.description = zoo::describe(
        workload.network, {.classes = workload.classes(), .input = network.line.inputs[0].shape});
    of_zoo.line = zoo::straight_line(of_zoo.description);
    EXPECT_EQ(network.json(), of_zoo.json()) << name;
    for (const json& call : network.json()["calls"]) EXPECT_FALSE(call["settings"].contains("init")) << call;
  }
  EXPECT_GE(compared, 7);
}

/// What the lab's file says about a whole model must be true of its class: names, inputs, and the shapes of outputs.
TEST(Networks, AWholeModelGivesTheOutputsThatItsFileNames) {
  for (const char* name : {"deepspeech2_small", "gnmt_small", "seq2seq_small", "tacotron2_small"}) {
    SCOPED_TRACE(name);
    const Workload workload = load_workload(name);
    const Network network = load_network(workload);
    EXPECT_TRUE(network.is_whole);
    const json said = network.json();
    ASSERT_EQ(said["calls"].size(), 1u);
    EXPECT_EQ(said["calls"][0]["kind"], std::string(name).substr(0, std::string(name).find('_')));
    EXPECT_EQ(said["calls"][0]["outs"].size(), said["outputs"].size());
    const TempFolder folder;
    const DataFolder data = write_data(folder / "a", workload, network, 4, 0, 1);
    std::vector<Tensor> in;
    for (const auto& input : network.line.inputs) in.push_back(io::load_npy(data.files["train"][input.name]));
    const NoGrad off;
    const auto model = network.make();
    model->eval();
    const std::vector<Tensor> out = (*model)(in);
    ASSERT_GE(out.size(), network.line.outputs.size());
    for (size_t i = 0; i < network.line.outputs.size(); ++i) {
      Dims shape = network.line.outputs[i].shape;
      shape.insert(0, 4);
      EXPECT_EQ(out[i].shape(), shape) << network.line.outputs[i].name;
    }
    std::map<std::string, Dims> own;
    for (const auto& [parameter, tensor] : model->named_parameters()) own[parameter] = tensor.shape();
    const auto& listed_ones = network.line.calls[0].parameters;
    EXPECT_EQ((std::map<std::string, Dims>(listed_ones.begin(), listed_ones.end())), own);
  }
}

TEST(Networks, AWholeModelThatBreaksARuleIsRefusedByIt) {
  const Workload good = load_workload("gnmt_small");
  const auto refused = [&](const std::function<void(Workload&)>& change, const std::string& rule) {
    Workload bad = good;
    change(bad);
    try {
      load_network(bad);
      ADD_FAILURE() << "taken, without: " << rule;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(rule), std::string::npos) << error.what();
    }
  };
  refused([](Workload& w) { w.description["model"] = "lenet"; },
          "model must be a class of the zoo that is no list of layers: deepspeech2");
  refused([](Workload& w) { w.description["settings"]["hidden"] = "many"; },
          "hidden must be a size, or a probability from 0 to 1");
  refused([](Workload& w) { w.description["settings"]["hiden"] = 8; }, "hidden");
  refused([](Workload& w) { w.description["inputs"][0].erase("range"); },
          "range must be the least and the most of an input of type i64");
  refused([](Workload& w) { w.description["inputs"] = json::array(); }, "inputs must");
  refused([](Workload& w) { w.description["layers"] = 3; }, "layers");
  refused([](Workload& w) { w.input = {12}; }, "input must be left out");
  refused([](Workload& w) { w.loss["lengths"] = "y"; }, "loss.lengths must name an input or a target");
}

TEST(Networks, ThoseThatStudiesBringAlongCanBeBuilt) {
  int seen = 0;
  for (const std::string& study : study_names()) {
    const Workloads workloads = workloads_of(study);
    for (const Workload& own : workloads.own()) {
      SCOPED_TRACE(study + ": " + own.name);
      EXPECT_NO_THROW({
        const Network network = load_network(own);
        EXPECT_EQ(network.line.name, own.name);
        seen += !network.json()["calls"].empty();
      });
    }
  }
  EXPECT_GE(seen, 60);
}

TEST(Networks, ADescriptionInAWorkloadIsReadAsOneInAFile) {
  Workload workload = load_workload("lenet");
  const json of_file = load_network(workload).json();
  workload.file = "here.toml";
  workload.description = parse_toml(zoo::to_toml(zoo::describe("lenet")), "lenet");
  EXPECT_EQ(load_network(workload).json(), of_file);

  const auto said = [&](const json& description) -> std::string {
    workload.description = description;
    try {
      load_network(workload);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const json relu = {{"type", "relu"}};
  EXPECT_EQ(
      said({{"input", {4}}, {"layers", {relu}}}),
      "model 'here.toml: workload lenet: network': the keys of a model must be name, input, inputs, outputs "
      "and layer; got 'layers'. Did you mean layer?");
  EXPECT_EQ(
      said({{"input", {4}}, {"layer", {{{"type", "conv"}, {"channels", 2}, {"kernel", 3}}}}}).find(", line "),
      std::string::npos)
      << "there are no lines to name";
  EXPECT_NE(said({{"input", {4}}, {"layer", {{{"type", "rellu"}}}}}).find("Did you mean relu?"),
            std::string::npos);
}

TEST(MadeUp, ALargeTargetIsMadeOfAFewNumbersOfItsSample) {
  Workload workload = load_workload("lenet");
  workload.description = {{"input", {200, 300}}, {"layer", {{{"type", "identity"}}}}};
  workload.targets = {{"y", {{"type", "f32"}, {"shape", {200, 300}}}}};
  workload.loss = {{"kind", "mse"}, {"output", "out"}, {"target", "y"}};
  workload.input.clear();
  const auto samples = make_up(workload, load_network(workload), 1, false);
  const std::vector<Tensor> a = samples->get(0), b = samples->get(1);
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(load_network(workload).sample_bytes(), 2 * 200 * 300 * 4) << "the target's, too";
  EXPECT_EQ(a[1].shape(), (Dims{200, 300}));
  const std::vector<float> of_a = a[1].to_vector<float>(), of_b = b[1].to_vector<float>();
  EXPECT_NE(of_a, of_b) << "it follows from the sample";
  const auto [least, most] = std::minmax_element(of_a.begin(), of_a.end());
  EXPECT_LT(*least, -0.5f);
  EXPECT_GT(*most, 0.5f);
}

TEST(Networks, PaddingIsGivenBeforeAndAfter) {
  const json svhn = load_network(load_workload("svhn_cnn")).json();
  int uneven = 0;
  for (const json& call : svhn["calls"])
    if (call["kind"] == "max_pool" && call["settings"]["stride"] == json{1, 1}) {
      EXPECT_EQ(call["settings"]["padding"], (json{{0, 1}, {0, 1}}));
      ++uneven;
    }
  EXPECT_EQ(uneven, 4);
}

TEST(MadeUp, RaggedSamplesHaveLengthsAndNothingBehindThem) {
  const Workload workload = load_workload("sensor_lstm");
  const TempFolder folder;
  const DataFolder data = write_data(folder / "a", workload, load_network(workload), 64, 16, 1);
  EXPECT_EQ(data.name, "synthetic");
  const Tensor x = io::load_npy(data.files["train"]["x"]), n = io::load_npy(data.files["train"]["n"]),
               y = io::load_npy(data.files["train"]["y"]);
  ASSERT_EQ(x.size(0), 64);
  const std::vector<int64_t> lengths = n.to_vector<int64_t>();
  EXPECT_GT(std::set<int64_t>(lengths.begin(), lengths.end()).size(), 8u);
  const int64_t steps = x.size(1);
  for (int64_t i = 0; i < 64; ++i) {
    ASSERT_GE(lengths[static_cast<size_t>(i)], 1);
    ASSERT_LE(lengths[static_cast<size_t>(i)], steps);
    for (int64_t t = 0; t < steps; ++t) {
      const bool is_true = t < lengths[static_cast<size_t>(i)];
      EXPECT_EQ(x.data<float>()[(i * steps + t) * x.size(2)] != 0, is_true);
      EXPECT_EQ(y.data<float>()[i * steps + t] != 0, is_true);
    }
  }
}

TEST(MadeUp, LengthsOfSeveralAxesKeepTheirRangesAndLabelsOfCtcFitTheirSteps) {
  const TempFolder folder;
  const auto made = [&](const char* name) {
    const Workload workload = load_workload(name);
    return write_data(folder / name, workload, load_network(workload), 64, 0, 1).files["train"];
  };
  const auto whole = [](const json& files, const char* name) {
    return io::load_npy(files[name]).to_vector<int64_t>();
  };
  const json speech = made("tacotron2_small");
  const std::vector<int64_t> characters = whole(speech, "length"), frames = whole(speech, "frames");
  const Tensor last = io::load_npy(speech["last"]), mels = io::load_npy(speech["mels"]);
  for (size_t i = 0; i < frames.size(); ++i) {
    EXPECT_GE(characters[i], 1);
    EXPECT_LE(characters[i], 10);
    EXPECT_GE(frames[i], 1);
    EXPECT_LE(frames[i], 24);
    for (int64_t t = 0; t < 24; ++t) {
      const float gate = last.data<float>()[static_cast<int64_t>(i) * 24 + t];
      EXPECT_TRUE(gate == 0 || gate == 1) << gate;
      EXPECT_EQ(mels.data<float>()[(static_cast<int64_t>(i) * 24 + t) * 20] != 0, t < frames[i]);
    }
  }
  EXPECT_GT(*std::max_element(frames.begin(), frames.end()), 20);

  const json sentences = made("gnmt_small");
  EXPECT_EQ(whole(sentences, "words"), whole(sentences, "length"));

  const json heard = made("deepspeech2_small");
  const std::vector<int64_t> lengths = whole(heard, "length"), labels = whole(heard, "labels");
  for (size_t i = 0; i < lengths.size(); ++i) {
    int64_t count = 0;
    for (size_t k = 0; k < 8; ++k) {
      const int64_t label = labels[i * 8 + k];
      EXPECT_TRUE(label >= 0 && label < 29);
      if (label > 0) {
        EXPECT_EQ(count, static_cast<int64_t>(k)) << "a label behind a blank";
        ++count;
      }
    }
    EXPECT_EQ(count, std::clamp<int64_t>((lengths[i] + 1) / 2 / 4, 1, 8));
  }
}

/// For each batch of a file of samples, the sizes to which the lengths trim it.
std::vector<std::vector<int64_t>> trimmed_sizes(const Workload& workload, const json& files, int64_t batch) {
  std::vector<std::vector<int64_t>> sizes;
  for (const auto& [length, rule] : workload.trim.items()) {
    const auto lengths = io::load_npy(files[length]).to_vector<int64_t>();
    const int64_t places = io::load_npy(files[rule["of"][0].get<std::string>()]).size(1);
    sizes.resize(lengths.size() / static_cast<size_t>(batch));
    for (size_t b = 0; b < sizes.size(); ++b) {
      const auto begin = lengths.begin() + static_cast<std::ptrdiff_t>(b) * batch;
      sizes[b].push_back(trimmed_size(*std::max_element(begin, begin + batch), rule["multiple"], places));
    }
  }
  return sizes;
}

TEST(MadeUp, WhereBatchesAreTrimmedTheLongestDiffersFromBatchToBatch) {
  for (const char* name : {"deepspeech2_small", "tacotron2_small"}) {
    SCOPED_TRACE(name);
    const Workload workload = load_workload(name);
    const TempFolder folder;
    const json files =
        write_data(folder / "a", workload, load_network(workload), 64 * workload.batch, 0, 1).files["train"];
    std::map<std::vector<int64_t>, int> seen;
    for (const auto& size : trimmed_sizes(workload, files, workload.batch)) ++seen[size];
    EXPECT_GE(seen.size(), 3u);
    EXPECT_LE(seen.size(), 16u) << "as many as an engine keeps";
    for (const auto& [size, count] : seen) EXPECT_LT(count, 44) << json(size);
    const auto lengths = io::load_npy(files["length"]).to_vector<int64_t>();
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    EXPECT_GT(std::count_if(lengths.begin(), lengths.end(), [&](int64_t l) { return 2 * l <= longest; }),
              6 * static_cast<int64_t>(lengths.size()) / 10)
        << "most samples are short";
  }
}

TEST(MadeUp, TheGateOfATrimmedWorkloadSeesBatchesOfTwoSizes) {
  int seen = 0;
  for (const std::string& name : workload_names()) {
    const Workload workload = load_workload(name);
    if (workload.trim.empty()) continue;
    ++seen;
    const json gate = workload.definition["gate"];
    const int64_t batch = gate["batch"], steps = gate["steps"];
    const TempFolder folder;
    const json files =
        write_data(folder / "a", workload, load_network(workload), batch * steps, 0, 1).files["train"];
    const auto sizes = trimmed_sizes(workload, files, batch);
    EXPECT_GE(std::set<std::vector<int64_t>>(sizes.begin(), sizes.end()).size(), 2u)
        << name << ": " << json(sizes);
  }
  EXPECT_GE(seen, 4);
}

TEST(Networks, WhatLengthsTrimMustFitThem) {
  const Workload good = load_workload("tacotron2_small");
  EXPECT_NO_THROW(load_network(good));
  const auto refused = [&](const std::function<void(json&)>& change, const std::string& rule) {
    Workload bad = good;
    change(bad.trim);
    try {
      load_network(bad);
      ADD_FAILURE() << "taken, without: " << rule;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(rule), std::string::npos) << error.what();
    }
  };
  const json rule = {{"of", {"characters"}}, {"multiple", 2}};
  refused([&](json& t) { t = {{"mels", rule}}; }, "trim.mels must be an input or a target of whole numbers");
  refused([&](json& t) { t = {{"n", rule}}; }, "trim.n must be an input or a target of whole numbers");
  refused([](json& t) { t["length"]["of"] = {"nobody"}; },
          "trim inputs and targets that have places; got 'nobody'");
  refused([](json& t) { t["length"]["of"] = {"frames"}; }, "trim inputs and targets that have places");
  refused(
      [](json& t) {
        t["length"]["of"] = {"characters", "mels"};
      },
      "trim what has as many places each; got mels of 24 beside others of 10");
  refused([](json& t) { t["frames"]["of"] = {"mels", "mels"}; }, "trim what nothing else trims; got mels");
  refused(
      [](json& t) {
        t = {{"frames", {{"of", {"characters"}}, {"multiple", 1}}}};
      },
      "count the places that it trims, 10; got a length of up to 24");
  refused(
      [](json& t) {
        t = {{"length", {{"of", {"y"}}, {"multiple", 1}}}};
      },
      "trim a target of the loss only where its lengths are the term's");
  Workload speech = load_workload("deepspeech2_small");
  speech.targets["count"] = {{"type", "i64"}, {"below", 9}, {"shape", json::array()}};
  speech.trim["count"] = {{"of", {"labels"}}, {"multiple", 1}};
  EXPECT_THROW(load_network(speech), Error) << "the labels of ctc end by themselves";
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(Texts, ALongTextIsReadOnFromBatchToBatchAtEachPlace) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += str("w", i % 97, i % 13 == 12 ? "\n" : " ");
  for (const char* part : {"train", "valid", "test"}) write_file(str(folder / "t/ptb.", part, ".txt"), text);
  const Workload workload = load_workload("ptb_lstm");
  const Network network = load_network(workload);
  const DataChoice absent = choose_data(workload, network, folder / "none");
  EXPECT_EQ(absent.name, "synthetic");
  EXPECT_NE(absent.why.find("the files of ptb are not here"), std::string::npos) << absent.why;
  const DataFolder data = write_data(folder / "out", workload, network, 1 << 20, 1 << 20, 1, folder / "t");
  EXPECT_EQ(data.name, "ptb");
  EXPECT_TRUE(data.is_real);
  EXPECT_EQ(data.train % workload.batch, 0);
  ASSERT_GE(data.train, 2 * workload.batch);
  const Tensor x = io::load_npy(data.files["train"]["tokens"]), y = io::load_npy(data.files["train"]["y"]);
  const int64_t* in = x.data<int64_t>();
  const int64_t* follow = y.data<int64_t>();
  const int64_t length = x.size(1);
  for (int64_t i = 0; i < data.train; ++i) {
    for (int64_t t = 0; t + 1 < length; ++t) EXPECT_EQ(follow[i * length + t], in[i * length + t + 1]);
    if (i + workload.batch < data.train) {
      EXPECT_EQ(follow[i * length + length - 1], in[(i + workload.batch) * length]) << i;
    }
  }
}

TEST(Texts, ReviewsHaveTheirTrueLengthsAndClasses) {
  const TempFolder folder;
  for (const char* part : {"train", "test"})
    for (const char* cls : {"neg", "pos"})
      for (int i = 0; i < 3; ++i) {
        std::string text = std::string(cls) == "pos" ? "good" : "bad";
        for (int word = 0; word < 4 * i; ++word) text += " film";
        write_file(str(folder / "t/", part, "/", cls, "/", i, ".txt"), text);
      }
  const Workload workload = load_workload("imdb_lstm");
  const DataFolder data =
      write_data(folder / "out", workload, load_network(workload), 100, 100, 1, folder / "t");
  EXPECT_EQ(data.name, "imdb");
  EXPECT_EQ(data.train, 6);
  const Tensor x = io::load_npy(data.files["train"]["tokens"]);
  EXPECT_EQ(x.shape(), (Dims{6, 500}));
  const auto lengths = io::load_npy(data.files["train"]["length"]).to_vector<int64_t>(),
             classes = io::load_npy(data.files["train"]["y"]).to_vector<int64_t>();
  std::map<int64_t, std::set<int64_t>> first;  // words, by class
  std::multiset<int64_t> seen(lengths.begin(), lengths.end());
  EXPECT_EQ(seen, (std::multiset<int64_t>{1, 1, 5, 5, 9, 9}));
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    first[classes[static_cast<size_t>(i)]].insert(x.data<int64_t>()[i * 500]);
    for (int64_t t = length; t < 500; ++t) EXPECT_EQ(x.data<int64_t>()[i * 500 + t], 0);
  }
  EXPECT_EQ(first[0].size(), 1u);
  EXPECT_EQ(first[1].size(), 1u);
  EXPECT_NE(first[0], first[1]);
}

TEST(Texts, PairsOfSentencesAreASourceAndATargetThatIsReadAWordAhead) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) {
    const std::string words = str("w", i, i % 3 > 0 ? " and more" : "");
    text += str(words, "\tel ", words, "\tsomebody\n");
  }
  text += "one two three four five six seven eight nine ten eleven twelve\ttoo long\n";
  write_file(folder / "t/spa.txt", text);
  Workload workload = load_workload("seq2seq_small");
  const Network network = load_network(workload);
  workload.data = "manythings";
  const DataChoice absent = choose_data(workload, network, folder / "none");
  EXPECT_EQ(absent.name, "synthetic");
  EXPECT_NE(absent.why.find("the files of manythings are not here"), std::string::npos) << absent.why;
  const DataFolder data = write_data(folder / "out", workload, network, 1 << 20, 1 << 20, 1, folder / "t");
  EXPECT_EQ(data.name, "manythings");
  EXPECT_TRUE(data.is_real);
  EXPECT_EQ(data.train + data.test, 40) << "twelve words and their end have no room";
  for (const auto& [part, count] : {std::pair{"train", data.train}, std::pair{"test", data.test}}) {
    const json& files = data.files[part];
    const auto whole = [&](const char* name) { return io::load_npy(files[name]).to_vector<int64_t>(); };
    const std::vector<int64_t> source = whole("source"), length = whole("length"), before = whole("before"),
                               y = whole("y"), words = whole("words");
    ASSERT_EQ(source.size(), static_cast<size_t>(count) * 12);
    ASSERT_EQ(words.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < words.size(); ++i) {
      EXPECT_TRUE(length[i] == 2 || length[i] == 4) << "a word or three, and the end";
      EXPECT_EQ(words[i], length[i] + 1) << "the target has one word more";
      const auto row = [&](const std::vector<int64_t>& all, size_t t) { return all[i * 12 + t]; };
      EXPECT_EQ(row(before, 0), before[0]) << "every target begins alike";
      EXPECT_EQ(row(source, static_cast<size_t>(length[i]) - 1), source[static_cast<size_t>(length[0]) - 1])
          << "and ends alike";
      for (size_t t = 0; t < 12; ++t) {
        EXPECT_EQ(row(source, t) != 0, static_cast<int64_t>(t) < length[i]);
        EXPECT_EQ(row(y, t) != 0, static_cast<int64_t>(t) < words[i]);
        EXPECT_EQ(row(before, t) != 0, static_cast<int64_t>(t) < words[i]);
        if (static_cast<int64_t>(t) + 1 < words[i]) {
          EXPECT_EQ(row(before, t + 1), row(y, t));
        }
        EXPECT_LT(row(y, t), 500);
      }
    }
  }
  workload.data = "imdb";
  for (const char* part : {"train", "test"})
    for (const char* cls : {"neg", "pos"})
      write_file(str(folder / "i/", part, "/", cls, "/0.txt"), "good film");
  EXPECT_THROW(write_data(folder / "reviews", workload, network, 4, 0, 1, folder / "i"), Error);
}

TEST(Networks, ThoseWithDropoutSayIt) {
  for (const char* with : {"mnist_cnn", "ptb_lstm", "vgg16"})
    EXPECT_TRUE(has_dropout(load_network(load_workload(with)))) << with;
  for (const char* without : {"lenet", "imdb_lstm", "resnet18"})
    EXPECT_FALSE(has_dropout(load_network(load_workload(without)))) << without;
}

}  // namespace
}  // namespace tandem::lab
