// Our side of loader.py: images from JPEG files through resize, random crop, flip and normalisation into batches.
//   image_loader FOLDER WORKERS BATCH
// Answers one JSON line to each on stdin: {"do": "hello"}, {"do": "check"} (means of the first images without
// randomness) and {"do": "epoch"} (seconds for all images once).
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tandem/tandem.h"

using namespace tandem;
using namespace tandem::data;
using nlohmann::json;

namespace {

std::vector<ImageFolder::File> jpeg_files(const std::string& folder) {
  std::vector<ImageFolder::File> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".jpg") files.push_back({entry.path().string(), 0});
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

json answer(const std::string& what, const DatasetPtr& images, Loader& loader, int64_t& epoch) {
  if (what == "check") {
    const DatasetPtr plain = transform(
        images, transforms::compose({transforms::resize_short_side(256), transforms::center_crop(224, 224),
                                     transforms::normalise(kPhotoMean, kPhotoDeviation)}));
    json means = json::array();
    for (int64_t i = 0; i < std::min<int64_t>(images->size(), 16); ++i) {
      double sum = 0;
      const std::vector<float> values = plain->get(i)[0].to_vector<float>();
      for (float value : values) sum += value;
      means.push_back(sum / static_cast<double>(values.size()));
    }
    return {{"means", means}};
  }
  if (what == "epoch") {
    const auto begin = std::chrono::steady_clock::now();
    loader.start_epoch(epoch++);
    int64_t count = 0;
    while (auto batch = loader.next()) count += batch->size;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return {{"images", count}, {"seconds", taken.count()}};
  }
  return {{"name", "tandem"}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "image_loader: must be called as image_loader FOLDER WORKERS BATCH\n");
    return 2;
  }
  try {
    const auto images = std::make_shared<ImageFolder>(jpeg_files(argv[1]), std::vector<std::string>{"all"});
    const DatasetPtr set =
        transform(images, transforms::compose({transforms::resize_short_side(256),
                                               transforms::random_crop({.height = 224, .width = 224}),
                                               transforms::random_horizontal_flip(),
                                               transforms::normalise(kPhotoMean, kPhotoDeviation)}));
    Loader loader(*set, {.batch = std::stoll(argv[3]), .workers = std::stoi(argv[2])});
    int64_t epoch = 0;
    for (std::string line; std::getline(std::cin, line);)
      std::cout << answer(json::parse(line).at("do"), images, loader, epoch) << std::endl;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "image_loader: %s\n", error.what());
    return 1;
  }
}
