// Weights, data and the gate's reference.
#include "lab/src/own/material.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lab/src/own/prepared_cell.h"

namespace tandem::lab {
namespace {

using nlohmann::json;

constexpr int64_t kGrid = 4;  // a pattern is this many by this many values, and smooth between

Dims sizes_of(const std::vector<int64_t>& input) {
  TD_CHECK(input.size() == 3 && std::all_of(input.begin(), input.end(), [](int64_t n) { return n >= 1; }),
           "input: must be three sizes, channels, height and width; got ", json(input).dump(), ".");
  return {input[0], input[1], input[2]};
}

std::string text_of(const json& workload, const char* name) {
  TD_CHECK(workload.is_object() && workload.contains(name) && workload[name].is_string(), "workload.", name,
           ": must be a text.");
  return workload[name];
}

/// Uniform in ±1.
float unit(uint32_t i, uint32_t stream) {
  return static_cast<float>(own::hashed(i, stream) >> 8) * 0x1p-23f - 1.0f;
}

/// Images of any size: every class has a smooth pattern of its own, and a sample is its pattern, dimmed, under noise; about
/// mean 0 and deviation 1. Training and test samples differ by their stream.
class Patterns final : public data::Dataset {
 public:
  Patterns(const Dims& shape, int64_t classes, uint64_t seed, bool is_test, int64_t size)
      : shape_(shape),
        classes_(classes),
        size_(size),
        seed_(static_cast<uint32_t>(seed)),
        salt_(is_test ? 1 : 0) {}
  int64_t size() const override { return size_; }
  std::string describe() const override { return cat("patterns of ", shape_); }

  std::vector<Tensor> get(int64_t i) const override {
    const uint32_t stream = own::hashed(static_cast<uint32_t>(i), seed_ * 2 + salt_);
    const int64_t label = own::hashed(stream, 1) % static_cast<uint32_t>(classes_);
    const float strength = 1.25f + 0.5f * unit(2, stream);
    const Tensor image = empty(shape_);
    float* out = image.data<float>();
    uint32_t at = 0;
    for (int64_t c = 0; c < shape_[0]; ++c)
      for (int64_t y = 0; y < shape_[1]; ++y)
        for (int64_t x = 0; x < shape_[2]; ++x, ++at)
          out[at] = strength * pattern(label, c, y, x) + 0.9f * unit(at + 16, stream);
    return {image, from_vector<int64_t>({label}, {})};
  }

 private:
  float corner(int64_t label, int64_t c, int64_t row, int64_t column) const {
    const int64_t place = ((label * shape_[0] + c) * (kGrid + 1) + row) * (kGrid + 1) + column;
    return 1.9f * unit(static_cast<uint32_t>(place), seed_ ^ 0x5A17u);
  }
  /// Between the four corners of its cell of the grid.
  float pattern(int64_t label, int64_t c, int64_t y, int64_t x) const {
    const auto place = [](int64_t at, int64_t size) {
      return static_cast<float>(at * kGrid) / static_cast<float>(size);
    };
    const float fy = place(y, shape_[1]), fx = place(x, shape_[2]);
    const auto row = static_cast<int64_t>(fy), column = static_cast<int64_t>(fx);
    const float v = fy - static_cast<float>(row), u = fx - static_cast<float>(column);
    const float upper = corner(label, c, row, column) * (1 - u) + corner(label, c, row, column + 1) * u;
    const float lower =
        corner(label, c, row + 1, column) * (1 - u) + corner(label, c, row + 1, column + 1) * u;
    return upper * (1 - v) + lower * v;
  }

  Dims shape_;
  int64_t classes_, size_;
  uint32_t seed_, salt_;
};

struct Source {
  data::DatasetPtr train, test;
  std::string name, where = "built in";
  bool is_real = false;
};

Source open_source(const DataChoice& choice, const Dims& input, int64_t classes, uint64_t seed, int64_t train,
                   int64_t test, const std::string& data_dir) {
  const std::vector<std::string> names = data::dataset_names();
  if (std::find(names.begin(), names.end(), choice.name) != names.end()) {
    const data::Splits splits = data::open_dataset(choice.name, {.data_dir = choice.is_real ? data_dir : ""});
    return {splits.train, splits.test, choice.name, splits.where, choice.is_real};
  }
  return {std::make_shared<Patterns>(input, classes, seed, false, train),
          std::make_shared<Patterns>(input, classes, seed, true, std::max<int64_t>(test, 1)), choice.name};
}

/// Writes so many samples and returns how many that were. Samples are converted a piece at a time into one tensor.
int64_t write_part(const data::Dataset& set, const Dims& input, int64_t samples, uint64_t seed,
                   const std::string& x_path, const std::string& y_path) {
  const int64_t count = std::min(samples, set.size());
  const std::vector<int64_t> order = data::shuffled_order(set.size(), seed, 0);
  Dims shape = input;
  shape.insert(0, count);
  const Tensor x = empty(shape), y = empty({count}, DType::i64);
  constexpr int64_t kPiece = 256;
  const NoGrad off;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, count);
    const std::vector<Tensor> batch =
        set.batch(std::span(order).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    assign(slice(x, 0, begin, end), batch.at(0));
    assign(slice(y, 0, begin, end), batch.at(1));
  }
  io::save_npy(x_path, x);
  io::save_npy(y_path, y);
  return count;
}

}  // namespace

void write_weights(const std::string& path, const json& workload, const std::vector<int64_t>& input,
                   uint64_t seed) {
  const std::string model = text_of(workload, "model");
  manual_seed(seed);
  const auto made = zoo::make_model(
      model, {.classes = own::integer_field(workload, "classes", 1, 1 << 24, {}, "workload.classes"),
              .input = sizes_of(input)});
  io::save_safetensors(path, made->state(), {{"model", model}, {"seed", std::to_string(seed)}});
}

DataChoice choose_data(const json& workload, const std::vector<int64_t>& input, const std::string& data_dir) {
  const std::string wanted = text_of(workload, "data");
  const int64_t classes = own::integer_field(workload, "classes", 1, 1 << 24, {}, "workload.classes");
  const Dims sizes = sizes_of(input);
  std::string why =
      cat("Tandem has no data set '", io::one_line(wanted, 80), "'. 'tandem datasets' lists those it has.");
  std::string name = cat("synthetic-", sizes[0], "x", sizes[1], "x", sizes[2]);
  for (const data::DatasetStatus& row : data::list_datasets(data_dir)) {
    const bool fits = row.info.sample_shape == sizes && row.info.classes <= classes;
    if (row.info.name == wanted && fits && row.found) return {wanted, !wanted.starts_with("synthetic")};
    if (row.info.name == wanted && !fits)
      why = cat("the samples of ", wanted, " are ", row.info.sample_shape, " of ", row.info.classes,
                " classes, and these are ", sizes, " of ", classes, ".");
    else if (row.info.name == wanted)
      why = cat("the files of ", wanted, " are not here. ", row.info.how_to_get);
    if (row.info.name == "synthetic-" + wanted && fits && row.found) name = row.info.name;
  }
  // A workload that asks for made-up samples gets what it asks for.
  return {name, false, wanted.starts_with("synthetic") ? "" : why};
}

DataFolder write_data(const std::string& folder, const json& workload, const std::vector<int64_t>& input,
                      int64_t train_samples, int64_t test_samples, uint64_t seed,
                      const std::string& data_dir) {
  TD_CHECK(train_samples >= 1 && test_samples >= 0, "data: must have at least one sample to train on; got ",
           train_samples, " and ", test_samples, " to test on.");
  const int64_t classes = own::integer_field(workload, "classes", 1, 1 << 24, {}, "workload.classes");
  const Dims sizes = sizes_of(input);
  const Source source = open_source(choose_data(workload, input, data_dir), sizes, classes, seed,
                                    train_samples, test_samples, data_dir);
  std::filesystem::create_directories(folder);
  DataFolder out{source.name, source.where, source.is_real, 0, 0, json::object()};
  const auto write = [&](const char* part, const data::Dataset& set, int64_t samples) {
    const std::string x = folder + "/" + part + "_x.npy", y = folder + "/" + part + "_y.npy";
    out.files[part] = {{"x", x}, {"y", y}};
    return write_part(set, sizes, samples, seed, x, y);
  };
  out.train = write("train", *source.train, train_samples);
  if (test_samples > 0) out.test = write("test", *source.test, test_samples);
  return out;
}

json gate_reference(json prepare, int64_t steps) {
  prepare["variant"] = "eager";
  prepare["device"] = "cpu";
  prepare["precision"] = "f64";
  prepare["switches"] = json::object();
  try {
    own::PreparedCell cell(own::read_prepare(prepare));
    return cell.check({{"steps", steps}});
  } catch (const own::Declined& declined) {
    throw Error(declined.what());
  }
}

}  // namespace tandem::lab
