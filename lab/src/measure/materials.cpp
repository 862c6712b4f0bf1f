#include "lab/src/measure/materials.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <random>

#include "lab/src/files/json.h"
#include "lab/src/inputs/pictures.h"
#include "lab/src/protocol/hash.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/npy.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeed = 1;  // of weights and samples; the study's seed orders runs and is the drivers' own
constexpr int64_t kAll = int64_t{1} << 31;
// As many as MNIST has, as far as they fit into this.
constexpr int64_t kSyntheticTrain = 60'000, kSyntheticTest = 10'000;
constexpr int64_t kSyntheticBytes = 192 << 20;
constexpr int64_t kMostPictures = 4096;

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += str(text.empty() ? "" : "x", size);
  return text;
}

}  // namespace

int64_t turns_for(int64_t batch, int64_t sample_bytes) {
  const double bytes = static_cast<double>(sample_bytes) * static_cast<double>(batch);
  return std::clamp<int64_t>(static_cast<int64_t>((256 << 20) / std::max(1.0, bytes)), 1, 8);
}

Materials::Materials(const std::string& folder)
    : folder_(fs::absolute(folder).lexically_normal() / "material") {}

Json Materials::weights(const Workload& workload, const std::vector<int64_t>& input) {
  const Json gate = workload.definition.value("gate", Json::object());
  if (gate.value("weights", "file") == "hash") return {{"hash", kSeed}};
  const std::string path = str(folder_, "/", workload.name, "-", sizes_text(input), ".safetensors");
  if (!fs::exists(path)) {
    fs::create_directories(folder_);
    write_weights(path, load_network(workload, input), kSeed);
  }
  return {{"file", path}};
}

SampleFiles Materials::written(const std::string& name, const Workload& workload,
                               const std::vector<int64_t>& input, int64_t train, int64_t test) {
  const std::string place = str(folder_, "/", workload.name, "-", sizes_text(input), "-", name),
                    list = place + ".json";
  // The list is written last: where it stands, the files are whole.
  if (!fs::exists(list)) {
    fs::remove_all(place);
    fs::create_directories(place);
    const DataFolder data = write_data(place, workload, load_network(workload, input), train, test, kSeed);
    Json names = Json::object();  // of the files, which may move with the folder
    for (const auto& [part, files] : data.files.items())
      for (const auto& [name, path] : files.items())
        names[part][name] = fs::path(path.get<std::string>()).filename().string();
    const Json text = {{"name", data.name},
                       {"is_real", data.is_real},
                       {"train", data.train},
                       {"test", data.test},
                       {"files", names}};
    io::write_atomically(list, [&](io::OutputFile& file) { file.write(text.dump() + "\n"); });
  }
  const auto bytes = io::read_file("run", list, 1 << 20);
  std::string why;
  const Json text = try_parse_json<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, why);
  TD_CHECK(text.is_object() && text.contains("files"), "run: '", list,
           "' must list samples; got something else. Delete the folder '", folder_,
           "': it will be made anew.");
  SampleFiles out{Json::object(), text["name"], text["is_real"], text["train"], text["test"]};
  for (const auto& [part, files] : text["files"].items())
    for (const auto& [name, file] : files.items())
      out.data[part][name] = str(place, "/", file.get<std::string>());
  return out;
}

SampleFiles Materials::samples(const Workload& workload, const std::vector<int64_t>& input, int64_t count) {
  return written(str(count), workload, input, count, 0);
}

Json Materials::moved(const Json& data, const std::vector<std::string>& inputs, double by, uint64_t seed) {
  Json out = data;
  for (const std::string& name : inputs) {
    const std::string from = data.at("train").at(name),
                      to = str(from.substr(0, from.rfind('.')), "-moved-", by, "-", seed, ".npy");
    if (!fs::exists(to)) {
      const Tensor x = io::load_npy(from);
      if (x.dtype() != DType::f32) continue;
      std::vector<float> values = x.to_vector<float>();
      std::mt19937_64 random(seed);
      for (float& value : values)
        value = static_cast<float>(value * (1 + by * (static_cast<double>(random() >> 11) * 0x1p-52 - 1)));
      io::save_npy(to, from_vector(values, x.shape()));
    }
    out["train"][name] = to;
  }
  return out;
}

std::string noise_name(double deviation) {
  char text[32];
  std::snprintf(text, sizeof text, "noise_%.2f", deviation);
  return text;
}

void Materials::add_noise(SampleFiles& files, const Workload& workload, const std::vector<int64_t>& input) {
  if (files.test == 0) return;
  const Network network = load_network(workload, input);
  for (const double deviation : workload.noise) {
    const std::string part = "test_" + noise_name(deviation);
    files.data[part] = files.data["test"];
    uint32_t stream = 0;
    for (const zoo::InputDescription& field : network.line.inputs) {
      ++stream;
      if (field.dtype != DType::f32) continue;
      const std::string from = files.data["test"][field.name],
                        to = str(from.substr(0, from.rfind('.')), "-", noise_name(deviation), ".npy");
      if (!fs::exists(to)) {
        const Tensor x = io::load_npy(from);
        std::vector<float> values = x.to_vector<float>();
        for (size_t i = 0; i < values.size(); ++i) {  // two hashed numbers make a normal one (Box and Muller)
          const auto place = static_cast<uint32_t>(2 * i);
          const double u = (static_cast<double>(hashed(place, stream)) + 1) * 0x1p-32,
                       v = static_cast<double>(hashed(place + 1, stream)) * 0x1p-32;
          values[i] += static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
        }
        io::save_npy(to, from_vector(values, x.shape()));
      }
      files.data[part][field.name] = to;
    }
  }
}

SampleFiles Materials::whole(const Workload& workload, const std::vector<int64_t>& input) {
  SampleFiles files = all(workload, input);
  add_noise(files, workload, input);
  return files;
}

SampleFiles Materials::all(const Workload& workload, const std::vector<int64_t>& input) {
  const bool is_real = written("look", workload, input, 1, 0).is_real;
  if (is_real) return written("all", workload, input, kAll, kAll);
  const int64_t room = std::max<int64_t>(
      100, kSyntheticBytes / std::max<int64_t>(1, load_network(workload, input).sample_bytes()));
  if (workload.samples > 0)
    return written("all", workload, input, workload.samples, std::max<int64_t>(1, workload.samples / 4));
  return written("all", workload, input, std::min(kSyntheticTrain, room), std::min(kSyntheticTest, room / 4));
}

int64_t pictures_for(int64_t batch, int64_t timed_steps) {
  return std::max(batch, std::min(kMostPictures, batch * std::min(timed_steps, kMostPictures)));
}

PictureFiles Materials::pictures(const Workload& workload, int64_t count, const std::string& storage) {
  if (storage == "memory" && !ram_) ram_ = std::make_unique<RamFolder>();
  const std::string place =
      str(storage == "memory" ? ram_->path() : folder_, "/", workload.name, "-pictures-", count);
  // The list is written last: where it stands, the files are whole. It holds their paths, so that a folder that was moved is
  // written anew.
  const std::string list = place + "/list.txt";
  if (!fs::exists(list) || !fs::exists(read_picture_list(list).front().path)) {
    fs::remove_all(place);
    write_pictures(place, workload, count, kSeed);
  }
  PictureFiles out{images_request(workload, list), choose_pictures(workload).name, {}};
  for (const PictureFile& file : read_picture_list(list)) out.paths.push_back(file.path);
  return out;
}

void Materials::remove() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  ram_.reset();
}

}  // namespace tandem::lab
