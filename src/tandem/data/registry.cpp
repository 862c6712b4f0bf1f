// The table of data sets.
#include "tandem/data/registry.h"

#include <optional>

#include "tandem/data/drawn_digits.h"
#include "tandem/data/mnist.h"
#include "tandem/io/file.h"

namespace tandem::data {

namespace {

struct Row {
  DatasetInfo info;
  /// Where the files are, or nothing. Must not read them.
  std::optional<std::string> (*locate)(const DatasetInfo& info, const std::string& data_dir);
  Splits (*open)(const DatasetInfo& info, const std::string& data_dir);
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"mnist",
        "MNIST",
        "handwritten digits, grey, 28 by 28",
        {1, 28, 28},
        10,
        60000,
        10000,
        "Put the four .gz files from https://ossci-datasets.s3.amazonaws.com/mnist/ there, or name their "
        "folder "
        "with --data-dir."},
       locate_mnist,
       open_mnist},
      {{"fashion-mnist",
        "Fashion-MNIST",
        "articles of clothing, grey, 28 by 28",
        {1, 28, 28},
        10,
        60000,
        10000,
        "Install the package dataset-fashion-mnist (Debian, Ubuntu), or name the files' folder with "
        "--data-dir."},
       locate_fashion_mnist,
       open_fashion_mnist},
      {{"digits",
        "drawn digits",
        "digits drawn by a formula, grey, 28 by 28; needs no files",
        {1, 28, 28},
        10,
        kDrawnTrainSize,
        kDrawnTestSize,
        "It is built in."},
       locate_drawn_digits,
       open_drawn_digits},
  };
  return table;
}

// What open_default tries, in order. The last one is built in, so that it is always found.
constexpr const char* kDefaults[] = {"mnist", "fashion-mnist", "digits"};

const Row& row_named(const std::string& name) {
  std::string names;
  for (const Row& row : rows()) {
    if (row.info.name == name) return row;
    names += (names.empty() ? "" : ", ") + row.info.name;
  }
  throw Error(
      cat("data: must be one of ", names, "; got '", io::one_line(name), "'. 'tandem datasets' lists them."));
}

}  // namespace

Splits open_dataset(const std::string& name, const std::string& data_dir) {
  const Row& row = row_named(name);
  return row.open(row.info, data_dir);
}

Splits open_default(const std::string& data_dir) {
  for (const std::string name : kDefaults) {
    const Row& row = row_named(name);
    const std::optional<std::string> where = row.locate(row.info, data_dir);
    if (!where) continue;
    TD_CHECK(data_dir.empty() || *where != kBuiltIn, "data-dir '", io::one_line(data_dir),
             "': must hold the files of mnist or fashion-mnist, in itself or in a folder of that name; found "
             "neither. Give their folder, or --data ",
             name, " for the built-in set.");
    return row.open(row.info, data_dir);
  }
  throw InternalError("no default data set is built in");
}

std::vector<DatasetStatus> list_datasets(const std::string& data_dir) {
  std::vector<DatasetStatus> list;
  for (const Row& row : rows()) {
    const std::optional<std::string> where = row.locate(row.info, data_dir);
    list.push_back({row.info, where.has_value(), where.value_or("")});
  }
  return list;
}

}  // namespace tandem::data
