#include "lab/src/inputs/pictures.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "lab/src/inputs/made_up.h"
#include "lab/src/protocol/cut.h"
#include "tandem/data/places.h"
#include "tandem/tandem.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;
namespace image = data::image;

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kMadeUpPictures = 32,
                  kMadeUpBytes = 160 << 10;  // how many different ones there are, and what one takes at most

std::vector<std::string> photographs_below(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string ending = at->path().extension().string();
    if ((ending == ".jpg" || ending == ".jpeg" || ending == ".JPG") && at->is_regular_file(error))
      paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// A label for each photograph: the number of its folder. Nothing if there is one folder, or more folders than classes.
std::vector<int64_t> labels_by_folder(const std::vector<std::string>& paths, int64_t classes) {
  std::map<std::string, int64_t> numbers;
  for (const std::string& path : paths) numbers[fs::path(path).parent_path().string()] = 0;
  if (numbers.size() < 2 || static_cast<int64_t>(numbers.size()) > classes) return {};
  int64_t next = 0;
  for (auto& [folder, number] : numbers) number = next++;
  std::vector<int64_t> labels;
  for (const std::string& path : paths) labels.push_back(numbers.at(fs::path(path).parent_path().string()));
  return labels;
}

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void add(BatchSums::Sum& to, const std::vector<double>& values) {
  for (const double value : values) to.sum += value, to.size += std::abs(value);
}

Tensor resized(const Workload& workload, const std::string& path) {
  return image::resize_short_side(io::read_image(path, {.channels = io::Channels::rgb}),
                                  workload.images->resize);
}

Tensor cut_out(const Workload& workload, const Dims& shape, const Tensor& picture, const Cut& cut) {
  Tensor part = image::crop(picture, cut.top, cut.left, shape[1], shape[2]);
  if (cut.is_mirrored) part = image::flip_horizontal(part);
  const ImageRule& rule = *workload.images;
  return image::normalise(part, {rule.mean.begin(), rule.mean.end()}, {rule.std.begin(), rule.std.end()});
}

}  // namespace

std::vector<std::string> find_photographs(const Workload& workload, const std::string& data_dir) {
  for (const std::string& folder : data::search_folders(workload.data, data_dir))
    if (std::vector<std::string> paths = photographs_below(folder); !paths.empty()) return paths;
  return {};
}

DataChoice choose_pictures(const Workload& workload, const std::string& data_dir) {
  if (workload.data.starts_with("synthetic")) return {"synthetic-photographs", false};
  if (!find_photographs(workload, data_dir).empty()) return {workload.data, true};
  return {"synthetic-photographs", false,
          str("no JPEG files of ", workload.data, " are here. Put photographs below $TANDEM_DATA/",
              workload.data, ", in any folders.")};
}

int64_t picture_bytes(const Workload& workload, int64_t count, const std::string& data_dir) {
  const std::vector<std::string> paths = find_photographs(workload, data_dir);
  if (paths.empty()) return std::min(kMostBytes, count * kMadeUpBytes);
  uintmax_t largest = 0;
  std::error_code ignored;
  for (const std::string& path : paths) largest = std::max(largest, fs::file_size(path, ignored));
  return std::min(kMostBytes, count * static_cast<int64_t>(std::min<uintmax_t>(largest, kMostBytes)));
}

std::string write_pictures(const std::string& folder, const Workload& workload, int64_t count, uint64_t seed,
                           const std::string& data_dir) {
  TD_CHECK(io::has_jpeg(),
           "images: this build of Tandem must read JPEG files; it does not. Build it with "
           "libjpeg (libjpeg-dev).");
  std::vector<std::string> paths;
  if (!workload.data.starts_with("synthetic")) paths = find_photographs(workload, data_dir);
  const std::vector<int64_t> known = labels_by_folder(paths, workload.classes());
  const int64_t different = paths.empty() ? kMadeUpPictures : static_cast<int64_t>(paths.size());
  const std::vector<int64_t> order = data::shuffled_order(different, seed, 0);
  fs::create_directories(folder);
  std::string list;
  int64_t bytes = 0, written = 0;
  std::map<int64_t, std::vector<uint8_t>> kept;  // the files of made-up pictures
  for (int64_t i = 0; written < count && i < count + different; ++i) {
    const int64_t source = order[static_cast<size_t>(i % different)];
    if (paths.empty() && !kept.contains(source))
      kept[source] = io::encode_jpeg(make_up_photograph(source, seed), 90);
    const std::vector<uint8_t> file =
        paths.empty() ? kept[source] : io::read_file("images", paths[static_cast<size_t>(source)]);
    // Files that are to be turned are left out: some decoders turn them and some do not, so that drivers would see different
    // pictures.
    if (io::detail::jpeg_orientation(file) != 1) continue;
    bytes += static_cast<int64_t>(file.size());
    if (bytes > kMostBytes && written > 0) break;
    char name[32];
    std::snprintf(name, sizeof name, "%06lld.jpg", static_cast<long long>(written++));
    const std::string path = str(folder, "/", name);
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
    out.close();
    if (!out) throw resource_error("images: '", path, "' could not be written. Is the disk full?");
    const int64_t label =
        known.empty() ? hashed(static_cast<uint32_t>(source), 20) % static_cast<uint32_t>(workload.classes())
                      : known[static_cast<size_t>(source)];
    list += str(label, "\t", path, "\n");
  }
  TD_CHECK(written > 0, "images: must be photographs that lie upright; all ", different, " files of ",
           workload.data, " are to be turned by what their Exif part says. Turn some of them.");
  const std::string to = folder + "/list.txt";
  io::write_atomically(to, [&](io::OutputFile& file) { file.write(list); });
  return to;
}

std::vector<PictureFile> read_picture_list(const std::string& list) {
  std::ifstream in(list);
  std::vector<PictureFile> files;
  for (std::string line; std::getline(in, line);)
    if (const size_t tab = line.find('\t'); tab != std::string::npos)
      files.push_back({std::strtoll(line.c_str(), nullptr, 10), line.substr(tab + 1)});
  TD_CHECK(!files.empty(), "images: '", list,
           "' must list files; got none. Delete its folder: it will be made anew.");
  return files;
}

Json images_request(const Workload& workload, const std::string& list) {
  const ImageRule& rule = *workload.images;
  return {{"list", list}, {"resize", rule.resize}, {"mean", rule.mean}, {"std", rule.std}};
}

Tensor picture_sample(const Workload& workload, const Dims& shape, const std::string& path) {
  const Tensor picture = resized(workload, path);
  return cut_out(workload, shape, picture, middle_cut(picture.size(1), picture.size(2), shape[1], shape[2]));
}

Tensor picture_sample(const Workload& workload, const Dims& shape, const std::string& path, int64_t position,
                      uint64_t seed) {
  const Tensor picture = resized(workload, path);
  return cut_out(workload, shape, picture,
                 drawn_cut(position, seed, picture.size(1), picture.size(2), shape[1], shape[2]));
}

BatchSums picture_sums(const Workload& workload, const Network& network, const std::string& list,
                       int64_t index, int64_t batch, uint64_t seed) {
  const std::vector<PictureFile> files = read_picture_list(list);
  const zoo::InputDescription& input = network.line.inputs[0];
  BatchSums out;
  const NoGrad off;
  for (int64_t j = 0; j < batch; ++j) {
    const int64_t position = index * batch + j;
    const PictureFile& file = files[static_cast<size_t>(position) % files.size()];
    const double begun = thread_seconds();
    const Tensor x = picture_sample(workload, input.shape, file.path, position, seed);
    out.cpu_s += thread_seconds() - begun;
    add(out.of[input.name], cast(x, DType::f64).to_vector<double>());
    add(out.of[workload.targets.items().begin().key()], {static_cast<double>(file.label)});
  }
  return out;
}

BatchSums array_sums(const Json& files, int64_t index, int64_t batch) {
  BatchSums out;
  const NoGrad off;
  for (const auto& [name, path] : files.items()) {
    const Tensor whole = io::load_npy(path.get<std::string>());
    for (int64_t j = 0; j < batch; ++j) {
      const int64_t row = (index * batch + j) % whole.size(0);
      add(out.of[name], cast(slice(whole, 0, row, row + 1), DType::f64).to_vector<double>());
    }
  }
  return out;
}

}  // namespace tandem::lab
