// A training step fed by the loader over the same step on batches that lie on the device already: what loading costs.
//   loading MODEL DATA [--dir FOLDER] [--batch N] [--device cuda] [--rounds 9] [--steps 200]
// DATA: a data set of Tandem, or jpeg: the files FOLDER/CLASS/*.jpg, of one size, as they are.
// Blocks of both kinds take turns; prints the medians and the ratio of medians as one JSON line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/tandem.h"

using namespace tandem;

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Run>
double seconds(Device device, const Run& run) {
  backend(device).synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  run();
  backend(device).synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

data::DatasetPtr jpeg_files(const std::string& folder) {
  std::vector<data::ImageFolder::File> files;
  std::vector<std::string> classes;
  for (const auto& place : std::filesystem::directory_iterator(folder))
    classes.push_back(place.path().filename().string());
  std::sort(classes.begin(), classes.end());
  for (size_t label = 0; label < classes.size(); ++label)
    for (const auto& file : std::filesystem::directory_iterator(folder + "/" + classes[label]))
      files.push_back({file.path().string(), static_cast<int64_t>(label)});
  return transform(std::make_shared<data::ImageFolder>(std::move(files), classes),
                   data::transforms::normalise(data::kPhotoMean, data::kPhotoDeviation));
}

void measure(const std::string& model_name, const std::string& data_name,
             std::map<std::string, std::string> flags) {
  const auto number = [&](const char* flag, int64_t usual) {
    return flags.contains(flag) ? std::stoll(flags[flag]) : usual;
  };
  const Device device = parse_device(flags.contains("--device") ? flags["--device"] : "cuda");
  const int64_t steps = number("--steps", 200), rounds = number("--rounds", 9);
  manual_seed(0);
  const data::DatasetPtr set = data_name == "jpeg"
                                   ? jpeg_files(flags["--dir"])
                                   : data::open_dataset(data_name, {.data_dir = flags["--dir"]}).train;
  const std::unique_ptr<nn::Module> model = zoo::make_model(model_name);
  model->to(device);
  optim::Sgd optimizer(model->named_parameters(), {.lr = 0.001, .momentum = 0.9});
  TrainingStep step(*model, optimizer, Engine::graph);

  data::Loader loader(
      *set, {.batch = number("--batch", 100), .last_batch = data::LastBatch::drop, .device = device});
  int64_t epoch = 0;
  loader.start_epoch(epoch);
  const auto next = [&] {
    std::optional<data::Batch> batch = loader.next();
    if (!batch) {
      loader.start_epoch(++epoch);
      batch = loader.next();
    }
    return std::move(*batch);
  };
  std::vector<data::Batch> resident;
  for (int i = 0; i < 8; ++i) resident.push_back(next());
  const auto loaded = [&] {
    for (int64_t i = 0; i < steps; ++i) {
      const data::Batch batch = next();
      step(batch.tensors[0], batch.tensors[1]);
    }
  };
  const auto on_device = [&] {
    for (int64_t i = 0; i < steps; ++i) {
      const data::Batch& batch = resident[static_cast<size_t>(i) % resident.size()];
      step(batch.tensors[0], batch.tensors[1]);
    }
  };
  std::vector<double> a, b;
  loaded();
  on_device();
  for (int64_t round = 0; round < rounds; ++round) {
    a.push_back(seconds(device, loaded) / static_cast<double>(steps));
    b.push_back(seconds(device, on_device) / static_cast<double>(steps));
  }
  std::cout << nlohmann::json{{"model", model_name},
                              {"data", data_name},
                              {"batch", number("--batch", 100)},
                              {"workers", *loader.options().workers},
                              {"loaded_ms", median(a) * 1e3},
                              {"resident_ms", median(b) * 1e3},
                              {"ratio", median(a) / median(b)}}
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    TD_CHECK(argc >= 3,
             "loading: must be called as loading MODEL DATA [flags]; the head of its source tells them.");
    std::map<std::string, std::string> flags;
    for (int i = 3; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
    measure(argv[1], argv[2], flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loading: %s\n", error.what());
    return 1;
  }
}
