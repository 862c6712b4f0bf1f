// Reading CIFAR.
#include "tandem/data/cifar.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "tandem/data/places.h"
#include "tandem/data/transforms.h"
#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"
#include "tandem/io/tar.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSide = 32, kImageBytes = 3 * kSide * kSide;
constexpr int64_t kMaxBytes = int64_t{1} << 30;

struct Kind {
  const char* folder;   // in the archive
  const char* archive;  // how its name begins
  std::vector<std::string> train;
  std::string test;
  int label_bytes;
  ImageFormat format;
};

const Kind& kind_of(const DatasetInfo& info) {
  static const Kind& ten = *new Kind{
      "cifar-10-batches-bin",
      "cifar-10-binary",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      "test_batch.bin",
      1,
      {3, kSide, kSide, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}}};
  static const Kind& hundred =
      *new Kind{"cifar-100-binary",
                "cifar-100-binary",
                {"train.bin"},
                "test.bin",
                2,
                {3, kSide, kSide, {0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}}};
  return info.classes == 10 ? ten : hundred;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The folder itself or the one that unpacking makes in it: wherever the .bin files are; else "".
std::string bin_folder(const Kind& kind, const std::string& folder) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / kind.folder})
    if (is_file(place / kind.train[0]) && is_file(place / kind.test)) return place.string();
  return "";
}

/// The archive in a folder (the first by name), or "".
std::string archive_in(const Kind& kind, const std::string& folder) {
  std::string found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kind.archive) && (name.ends_with(".tar.gz") || name.ends_with(".tar")) &&
        is_file(at->path()) && (found.empty() || at->path().string() < found))
      found = at->path().string();
  }
  return found;
}

MissingIn missing_in(const Kind& kind) {
  return [&kind](const std::string& folder) -> std::string {
    if (!bin_folder(kind, folder).empty() || !archive_in(kind, folder).empty()) return "";
    return str(kind.archive, ".tar.gz, or ", kind.train[0], " and ", kind.test, ",");
  };
}

}  // namespace

void read_cifar_records(const std::string& where, std::span<const uint8_t> bytes, int label_bytes,
                        int classes, std::vector<uint8_t>& images, std::vector<uint8_t>& labels) {
  const auto record = static_cast<size_t>(kImageBytes + label_bytes);
  TD_CHECK(!bytes.empty() && bytes.size() % record == 0, where, "must hold records of ", record,
           " bytes; it holds ", bytes.size(), " bytes", io::kDamaged);
  const size_t count = bytes.size() / record;
  images.reserve(images.size() + count * static_cast<size_t>(kImageBytes));
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* at = bytes.data() + i * record + label_bytes;
    TD_CHECK(at[-1] < classes, where, "labels must be 0 to ", classes - 1, "; label ", i, " is ", int{at[-1]},
             io::kDamaged);
    labels.push_back(at[-1]);
    images.insert(images.end(), at, at + kImageBytes);
  }
}

std::optional<std::string> locate_cifar(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_in(kind_of(info)));
}

Splits open_cifar(const DatasetInfo& info, const OpenOptions& options) {
  const Kind& kind = kind_of(info);
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_in(kind),
                                        "its binary files or their archive must be in one folder");
  const std::string bins = bin_folder(kind, folder);
  std::vector<uint8_t> images[2], labels[2];  // train, test
  const auto add = [&](int part, const std::string& where, std::span<const uint8_t> bytes) {
    read_cifar_records(where, bytes, kind.label_bytes, static_cast<int>(info.classes), images[part],
                       labels[part]);
  };
  if (!bins.empty()) {
    // Batches count from 1 without a gap. Fewer than all of them are a smaller data set.
    for (const std::string& name : kind.train) {
      const std::string path = (fs::path(bins) / name).string();
      if (!is_file(path)) break;
      add(0, str("read '", io::one_line(path), "': "), io::read_file("read", path, kMaxBytes));
    }
    const std::string path = (fs::path(bins) / kind.test).string();
    add(1, str("read '", io::one_line(path), "': "), io::read_file("read", path, kMaxBytes));
  } else {
    const std::string path = archive_in(kind, folder), where = str("read '", io::one_line(path), "': ");
    const std::vector<uint8_t> archive = io::read_maybe_gzip("read", path, kMaxBytes);
    const std::vector<io::TarEntry> entries = io::read_tar(where, archive);
    const auto entry = [&](const std::string& name) -> const io::TarEntry* {
      for (const io::TarEntry& file : entries)
        if (fs::path(file.name).filename() == name) return &file;
      return nullptr;
    };
    for (const std::string& name : kind.train) {
      const io::TarEntry* file = entry(name);
      if (!file) break;
      add(0, str(where, name, ": "), file->bytes);
    }
    if (const io::TarEntry* file = entry(kind.test)) add(1, str(where, kind.test, ": "), file->bytes);
    TD_CHECK(!labels[0].empty() && !labels[1].empty(), where, "the archive must hold ", kind.train[0],
             " and ", kind.test, "; it holds ", entries.size(), " other files. Fetch it again.");
  }
  DatasetInfo found = info;
  found.train_size = static_cast<int64_t>(labels[0].size());
  found.test_size = static_cast<int64_t>(labels[1].size());
  const auto train = std::make_shared<ImageSet>(info.title + ", train", kind.format, std::move(images[0]),
                                                std::move(labels[0]));
  const auto test = std::make_shared<ImageSet>(info.title + ", test", kind.format, std::move(images[1]),
                                               std::move(labels[1]));
  const auto augmented = [train](uint64_t seed) {
    const ImageFormat& format = train->format();
    return transform(
        as_bytes(train),
        transforms::compose({transforms::random_crop({.height = kSide, .width = kSide, .padding = 4}),
                             transforms::random_horizontal_flip(),
                             transforms::normalise(format.mean, format.deviation)}),
        seed);
  };
  return {train, test, found, info.name, folder, augmented};
}

}  // namespace tandem::data
