// NumPy files and CSV tables as data sets.
#include "tandem/data/tables.h"

#include <algorithm>
#include <filesystem>

#include "tandem/data/compose.h"
#include "tandem/data/places.h"
#include "tandem/io/csv.h"
#include "tandem/io/file.h"
#include "tandem/io/npy.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr const char* kParts[4][2] = {
    {"train_x", "x_train"}, {"train_y", "y_train"}, {"test_x", "x_test"}, {"test_y", "y_test"}};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The first .npz file of a folder by name, or "".
std::string npz_in(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".npz" && is_file(at->path()) &&
        (found.empty() || at->path().string() < found))
      found = at->path().string();
  return found;
}

std::string npy_in(const std::string& folder, int part) {
  for (const char* name : kParts[part])
    if (const fs::path path = fs::path(folder) / (std::string(name) + ".npy"); is_file(path))
      return path.string();
  return "";
}

std::string missing_array(const std::string& folder) {
  if (!npz_in(folder).empty()) return "";
  for (int part = 0; part < 4; ++part)
    if (npy_in(folder, part).empty()) return std::string(kParts[part][0]) + ".npy (or an .npz file)";
  return "";
}

std::string missing_table(const std::string& folder) {
  for (const char* name : {"train.csv", "test.csv"})
    if (!is_file(fs::path(folder) / name)) return name;
  return "";
}

/// The array in f32; bytes scaled to 0…1.
Tensor as_inputs(const std::string& where, const Tensor& x) {
  TD_CHECK(x.rank() >= 2 && x.size() > 0, where, "the inputs must be (n, …) with at least one value; got ",
           x.shape(), ".");
  if (x.dtype() == DType::f32) return x;
  Tensor out = empty(x.shape(), DType::f32);
  const float scale = x.dtype() == DType::u8 ? 255.0f : 1.0f;
  visit_dtype(x.dtype(), [&](auto zero) {
    const auto* from = x.data<decltype(zero)>();
    for (int64_t i = 0; i < x.size(); ++i) out.data<float>()[i] = static_cast<float>(from[i]) / scale;
  });
  return out;
}

Tensor as_labels(const std::string& where, const Tensor& y, int64_t rows) {
  TD_CHECK(y.size() == rows && (y.rank() == 1 || (y.rank() == 2 && y.size(1) == 1)), where,
           "the labels must be (n,) for the ", rows, " inputs; got ", y.shape(), ".");
  Tensor out = empty({rows}, DType::i64);
  visit_dtype(y.dtype(), [&](auto zero) {
    const auto* from = y.data<decltype(zero)>();
    for (int64_t i = 0; i < rows; ++i) {
      const auto value = static_cast<double>(from[i]);
      TD_CHECK(value >= 0 && value < 1e9 && value == static_cast<double>(static_cast<int64_t>(value)), where,
               "labels must be whole numbers from 0; label ", i, " is ", value, ".");
      out.data<int64_t>()[i] = static_cast<int64_t>(value);
    }
  });
  return out;
}

int64_t classes_of(const Tensor& train, const Tensor& test) {
  int64_t most = 0;
  for (const Tensor& labels : {train, test})
    for (int64_t label : labels.to_vector<int64_t>()) most = std::max(most, label);
  return most + 1;
}

Splits splits_of(const DatasetInfo& info, const std::string& folder, const Tensor (&arrays)[4]) {
  const std::string where = cat("data ", info.name, ": '", io::one_line(folder), "': ");
  Dims train_shape = arrays[0].shape(), test_shape = arrays[2].shape();
  train_shape.erase(0);
  test_shape.erase(0);
  TD_CHECK(train_shape == test_shape, where, "samples for training and testing must have one shape; got ",
           train_shape, " and ", test_shape, ".");
  DatasetInfo found = info;
  found.sample_shape = train_shape;
  found.classes = classes_of(arrays[1], arrays[3]);
  found.train_size = arrays[0].size(0);
  found.test_size = arrays[2].size(0);
  return {std::make_shared<TensorSet>(std::vector{arrays[0], arrays[1]}, info.title + ", train"),
          std::make_shared<TensorSet>(std::vector{arrays[2], arrays[3]}, info.title + ", test"), found,
          info.name, folder};
}

}  // namespace

std::optional<std::string> locate_arrays(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_array);
}

Splits open_arrays(const DatasetInfo& info, const OpenOptions& options) {
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_array,
                                        "its four arrays must be in one folder");
  Tensor arrays[4];
  const std::string npz = npz_in(folder);
  io::NamedTensors packed;
  if (!npz.empty()) packed = io::load_npz(npz);
  for (int part = 0; part < 4; ++part) {
    const std::string path = npz.empty() ? npy_in(folder, part) : npz;
    const std::string where = cat("data ", info.name, ": '", io::one_line(path), "': ");
    if (npz.empty()) {
      arrays[part] = io::load_npy(path);
    } else {
      for (const auto& [name, tensor] : packed)
        if (name == kParts[part][0] || name == kParts[part][1]) arrays[part] = tensor;
      TD_CHECK(arrays[part].defined(), where, "must hold an array ", kParts[part][0], " (or ",
               kParts[part][1], "); it does not.");
    }
    arrays[part] = part % 2 == 0 ? as_inputs(where, arrays[part])
                                 : as_labels(where, arrays[part], arrays[part - 1].size(0));
  }
  return splits_of(info, folder, arrays);
}

std::optional<std::string> locate_csv(const DatasetInfo& info, const std::string& data_dir) {
  return locate_in(search_folders(info.name, data_dir), missing_table);
}

Splits open_csv(const DatasetInfo& info, const OpenOptions& options) {
  const std::string folder = require_in(info, search_folders(info.name, options.data_dir), missing_table,
                                        "train.csv and test.csv must be in one folder");
  io::CsvTable tables[2];
  for (int part = 0; part < 2; ++part) {
    const std::string path = (fs::path(folder) / (part == 0 ? "train.csv" : "test.csv")).string();
    tables[part] = io::load_csv(path, {.label = "label", .label_or_last = true});
  }
  const std::string where = cat("data ", info.name, ": '", io::one_line(folder), "': ");
  TD_CHECK(tables[0].columns == tables[1].columns, where,
           "train.csv and test.csv must have the same columns.");
  // Classes by text are numbered over both tables: a test table may lack some.
  if (tables[0].classes != tables[1].classes) {
    for (const io::CsvTable& table : tables)
      TD_CHECK(!table.classes.empty(), where, "the labels must be numbers in both tables or text in both.");
    for (const std::string& name : tables[1].classes)
      TD_CHECK(std::binary_search(tables[0].classes.begin(), tables[0].classes.end(), name), where,
               "every class of test.csv must be in train.csv; '", io::one_line(name, 50), "' is not.");
    int64_t* labels = tables[1].labels.data<int64_t>();
    for (int64_t i = 0; i < tables[1].labels.size(); ++i)
      labels[i] = std::lower_bound(tables[0].classes.begin(), tables[0].classes.end(),
                                   tables[1].classes[static_cast<size_t>(labels[i])]) -
                  tables[0].classes.begin();
  }
  return splits_of(info, folder,
                   {tables[0].features, tables[0].labels, tables[1].features, tables[1].labels});
}

}  // namespace tandem::data
