// NumPy files as data sets.
#include "tandem/data/arrays.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tandem/data/compose.h"
#include "tandem/data/places.h"
#include "tandem/data/split.h"
#include "tandem/data/table_columns.h"
#include "tandem/io/file.h"
#include "tandem/io/npy.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

enum Part : uint8_t { kTrainX, kTrainY, kTestX, kTestY, kX, kY, kParts };
constexpr const char* kNames[kParts][2] = {{"train_x", "x_train"},
                                           {"train_y", "y_train"},
                                           {"test_x", "x_test"},
                                           {"test_y", "y_test"},
                                           {"x", "X"},
                                           {"y", "Y"}};
constexpr int64_t kMostClasses = int64_t{1} << 16;
constexpr size_t kFewValues = 20;  // so many different whole numbers may be classes

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The .npz files of a folder, sorted; the file itself where it is one.
std::vector<std::string> npz_files(const std::string& place) {
  if (is_file(place)) return {place};
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".npz" && is_file(at->path())) found.push_back(at->path().string());
  std::sort(found.begin(), found.end());
  return found;
}

std::string npy_in(const std::string& folder, Part part) {
  for (const char* name : kNames[part])
    if (const fs::path path = fs::path(folder) / (std::string(name) + ".npy"); is_file(path))
      return path.string();
  return "";
}

/// The parts that are needed beside those that are there: x and y, or those of training and none or both of testing.
std::optional<Part> lacking(const std::function<bool(Part)>& has) {
  const bool is_whole = !has(kTrainX) && !has(kTrainY) && (has(kX) || has(kY));
  for (Part part : is_whole ? std::vector{kX, kY} : std::vector{kTrainX, kTrainY})
    if (!has(part)) return part;
  if (!is_whole && has(kTestX) != has(kTestY)) return has(kTestX) ? kTestY : kTestX;
  return std::nullopt;
}

std::string missing_array(const std::string& place) {
  if (!npz_files(place).empty()) return "";
  const std::optional<Part> part = lacking([&](Part p) { return !npy_in(place, p).empty(); });
  return part ? std::string(kNames[*part][0]) + ".npy (or an .npz file)" : "";
}

/// An array of a file, and what messages about it begin with.
struct Array {
  Tensor values = {};
  std::string where = {};
};
using Arrays = std::array<Array, kParts>;

Arrays read_arrays(const DatasetInfo& info, const std::string& place) {
  const std::vector<std::string> packs = npz_files(place);
  const auto where = [&](const std::string& path) {
    return str("data ", info.name, ": '", io::one_line(path), "': ");
  };
  Arrays arrays;
  if (packs.empty()) {
    for (int part = 0; part < kParts; ++part)
      if (const std::string path = npy_in(place, static_cast<Part>(part)); !path.empty())
        arrays[static_cast<size_t>(part)] = {io::load_npy(path), where(path)};
    return arrays;
  }
  TD_CHECK(packs.size() == 1, where(place), "must hold one .npz file; it holds ", packs.size(), " (",
           io::one_line(fs::path(packs[0]).filename().string(), 50), ", ",
           io::one_line(fs::path(packs[1]).filename().string(), 50), packs.size() > 2 ? " …" : "",
           "). Name the one that is meant.");
  for (const auto& [name, tensor] : io::load_npz(packs[0]))
    for (int part = 0; part < kParts; ++part)
      if (name == kNames[part][0] || name == kNames[part][1])
        arrays[static_cast<size_t>(part)] = {tensor, str(where(packs[0]), name, ": ")};
  const std::optional<Part> part = lacking([&](Part p) { return arrays[p].values.defined(); });
  TD_CHECK(!part, where(packs[0]),
           "must hold arrays train_x and train_y (and test_x and test_y), or x and y; ", kNames[*part][0],
           " is missing.");
  return arrays;
}

/// Any numbers as f32, refused by row where one is not finite. Bytes are scaled to 0…1 where `scaled`.
Tensor as_floats(const Array& array, bool scaled) {
  const Tensor& in = array.values;
  Tensor out = empty(in.shape(), DType::f32);
  const int64_t row = in.size() / in.size(0);
  const float scale = scaled && in.dtype() == DType::u8 ? 255.0f : 1.0f;
  visit_dtype(in.dtype(), [&](auto zero) {
    const auto* from = in.data<decltype(zero)>();
    for (int64_t i = 0; i < in.size(); ++i) {
      const float value = static_cast<float>(from[i]) / scale;
      TD_CHECK(std::isfinite(value), array.where, "every number must be finite in f32; row ", i / row,
               " holds ", static_cast<double>(from[i]), ". Remove the row, or replace the number.");
      out.data<float>()[i] = value;
    }
  });
  return out;
}

Tensor as_inputs(const Array& array) {
  TD_CHECK(array.values.rank() >= 2 && array.values.size() > 0, array.where,
           "the inputs must be (n, …) with at least one value; got ", array.values.shape(),
           array.values.rank() == 1 ? ". Save them as (n, 1)." : ".");
  return as_floats(array, true);
}

Tensor as_labels(const Array& array, int64_t rows) {
  const Tensor& y = array.values;
  TD_CHECK(y.size() == rows && (y.rank() == 1 || (y.rank() == 2 && y.size(1) == 1)), array.where,
           "the labels must be (n,) for the ", rows, " inputs; got ", y.shape(),
           ". For one column a class, save their argmax; for quantities, choose task regression.");
  Tensor out = empty({rows}, DType::i64);
  visit_dtype(y.dtype(), [&](auto zero) {
    const auto* from = y.data<decltype(zero)>();
    for (int64_t i = 0; i < rows; ++i) {
      const auto value = static_cast<double>(from[i]);
      TD_CHECK(value >= 0 && value < static_cast<double>(kMostClasses) && value == std::floor(value),
               array.where, "labels must be whole numbers from 0 to ", kMostClasses - 1, "; label ", i,
               " is ", value, ". For a quantity, choose task regression.");
      out.data<int64_t>()[i] = static_cast<int64_t>(value);
    }
  });
  return out;
}

Tensor as_quantities(const Array& array, int64_t rows) {
  const Tensor& y = array.values;
  TD_CHECK((y.rank() == 1 || y.rank() == 2) && y.size(0) == rows && y.size() > 0, array.where,
           "the targets must be (n,) or (n, k) for the ", rows, " inputs; got ", y.shape(), ".");
  return as_floats(array, false);
}

/// How often each label occurs.
std::map<int64_t, int64_t> counted(const Tensor& labels) {
  std::map<int64_t, int64_t> counts;
  for (int64_t label : labels.to_vector<int64_t>()) ++counts[label];
  return counts;
}

/// Tells where floating numbers could be classes.
void note_quantities(const Tensor& y, std::vector<std::string>& notices) {
  std::map<float, int64_t> counts;
  for (float value : y.to_vector<float>()) {
    if (value != std::floor(value) || counts.size() > kFewValues) return;
    ++counts[value];
  }
  if (counts.size() <= kFewValues)
    notices.push_back(str("y is taken as a quantity; it has only ", counts.size(),
                          " different whole numbers. Choose classification if they are classes."));
}

struct Samples {
  Tensor x, y;
  DatasetPtr set(const std::string& name) const {
    return std::make_shared<TensorSet>(std::vector{x, y}, name);
  }
};

/// The samples for training and testing where one array holds both.
void split_off(const Samples& all, bool has_classes, const std::string& where, const OpenOptions& options,
               Splits& splits) {
  const int64_t rows = all.x.size(0);
  TD_CHECK(rows >= 2, where, "must hold two samples or more, for training and testing; got ", rows, ".");
  std::vector<int64_t> groups(static_cast<size_t>(rows), 0);
  if (has_classes) {
    std::map<int64_t, int64_t> number;  // of each label that occurs
    for (const auto& [label, count] : counted(all.y))
      number.emplace(label, static_cast<int64_t>(number.size()));
    for (int64_t i = 0; i < rows; ++i) groups[static_cast<size_t>(i)] = number.at(all.y.data<int64_t>()[i]);
  }
  const SplitIndices parts = split_indices(groups, options.test_share, options.split_seed);
  TD_CHECK(!parts.test.empty(), where, "a class must have two samples or more for a test part; each of the ",
           rows, " samples is a class of its own. For a quantity, choose task regression.");
  splits.notices.push_back(str(parts.test.size(), " of ", rows, " samples were split off for testing (seed ",
                               options.split_seed, ")."));
  const DatasetPtr set = all.set(splits.info.title);
  splits.train = subset(set, parts.train);
  splits.test = subset(set, parts.test);
  splits.split_off = true;
}

}  // namespace

std::optional<std::string> locate_arrays(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_array);
}

Tensor array_inputs(const Tensor& values, const std::string& where) { return as_inputs({values, where}); }

Splits open_arrays(const DatasetInfo& info, const OpenOptions& options) {
  const std::string place = require_in(info, search_folders(info.name, options.data_dir), missing_array,
                                       "its arrays must be in one folder");
  const Arrays arrays = read_arrays(info, place);
  const bool is_whole = !arrays[kTrainX].values.defined(), has_test = arrays[kTestX].values.defined();
  const Array &x = arrays[is_whole ? kX : kTrainX], &y = arrays[is_whole ? kY : kTrainY];
  const bool has_classes =
      options.task.empty() ? !is_floating(y.values.dtype()) : options.task == "classification";
  const auto samples = [&](const Array& inputs, const Array& targets) {
    Samples made{as_inputs(inputs), {}};
    const int64_t rows = made.x.size(0);
    made.y = has_classes ? as_labels(targets, rows) : as_quantities(targets, rows);
    return made;
  };

  Splits splits{nullptr, nullptr, info, info.name, place};
  splits.task = has_classes ? "classification" : "regression";
  const Samples train = samples(x, y);
  Tensor sample = train.x[0];
  splits.info.sample_shape = sample.shape();
  int64_t most = 0;  // the largest label
  if (has_classes) {
    const std::map<int64_t, int64_t> counts = counted(train.y);
    TD_CHECK(counts.size() >= 2, y.where, "there must be two classes or more; every label is ",
             counts.begin()->first, ".");
    most = counts.rbegin()->first;
    const int64_t unused = most + 1 - static_cast<int64_t>(counts.size());
    std::vector<double> labels;
    for (const auto& row : counts) labels.push_back(static_cast<double>(row.first));
    TD_CHECK(!look_like_quantities(static_cast<int64_t>(counts.size()), train.y.size(), labels), y.where,
             "labels must be classes, which count from 0; got ", counts.size(), " different numbers up to ",
             most, " for ", train.y.size(),
             " samples, as a quantity has. Choose task regression, or number the classes from 0.");
    if (unused > 0)
      splits.notices.push_back(
          str("of the classes 0 to ", most, " ", unused,
              " have no sample for training. Labels count from 0; for a quantity, choose "
              "task regression."));
  } else if (options.task.empty()) {
    note_quantities(train.y, splits.notices);
  }
  if (has_test && !is_whole) {
    const Samples test = samples(arrays[kTestX], arrays[kTestY]);
    const auto is_bytes = [](const Array& array) { return array.values.dtype() == DType::u8; };
    TD_CHECK(is_bytes(x) == is_bytes(arrays[kTestX]), arrays[kTestX].where,
             "inputs for training and testing must both be u8, which is divided by 255, or neither; got ",
             x.values.dtype(), " and ", arrays[kTestX].values.dtype(), ". Save both in one type.");
    TD_CHECK(test.x[0].shape() == sample.shape() && test.y[0].shape() == train.y[0].shape(),
             arrays[kTestX].where, "samples for training and testing must have one shape; got ",
             sample.shape(), " with targets ", train.y[0].shape(), " and ", test.x[0].shape(),
             " with targets ", test.y[0].shape(), ".");
    if (has_classes) {
      const std::map<int64_t, int64_t> known = counted(train.y);
      for (const auto& [label, count] : counted(test.y))
        TD_CHECK(known.contains(label), arrays[kTestY].where, "its labels must be those of training; ", label,
                 " is not one of them. Remove its samples, or put some into training.");
    }
    splits.train = train.set(info.title + ", train");
    splits.test = test.set(info.title + ", test");
  } else {
    split_off(train, has_classes, x.where, options, splits);
  }
  splits.info.classes = has_classes ? most + 1 : 0;
  splits.byte_inputs = x.values.dtype() == DType::u8;
  splits.info.train_size = splits.train->size();
  splits.info.test_size = splits.test->size();
  if (x.values.dtype() == DType::u8 && sample.rank() == 3 && (sample.size(0) == 1 || sample.size(0) == 3))
    splits.format = ImageFormat{sample.size(0), sample.size(1), sample.size(2),
                                std::vector<float>(static_cast<size_t>(sample.size(0)), 0.0f),
                                std::vector<float>(static_cast<size_t>(sample.size(0)), 1.0f)};
  return splits;
}

}  // namespace tandem::data
