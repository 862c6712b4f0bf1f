// The table of models.
#include "tandem/zoo/zoo.h"

#include <algorithm>
#include <numeric>

#include "tandem/zoo/lenet.h"
#include "tandem/zoo/mlp.h"
#include "tandem/zoo/mnist_cnn.h"

namespace tandem::zoo {
namespace {

struct Row {
  ModelInfo info;
  std::unique_ptr<nn::Module> (*make)(const ModelOptions&);
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"lenet", "LeNet-5: two convolutions, three dense layers", {1, 28, 28}, 10},
       [](const ModelOptions&) -> std::unique_ptr<nn::Module> { return std::make_unique<LeNet>(); }},
      {{"mlp", "dense layers of 256, 128 and 10 units", {1, 28, 28}, 10},
       [](const ModelOptions&) -> std::unique_ptr<nn::Module> { return std::make_unique<Mlp>(); }},
      {{"mnist_cnn", "two 3×3 convolutions, two dense layers, dropout", {1, 28, 28}, 10},
       [](const ModelOptions& options) -> std::unique_ptr<nn::Module> {
         return std::make_unique<MnistCnn>(options.dropout.value_or(0.25), options.dropout.value_or(0.5));
       }},
  };
  return table;
}

/// How many letters must be added, dropped or changed to turn a into b.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({changed, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

const Row& row_named(const std::string& name) {
  std::string names, nearest;
  size_t distance = 3;  // anything further away is no slip of the hand
  for (const Row& row : rows()) {
    if (row.info.name == name) return row;
    names += (names.empty() ? "" : ", ") + row.info.name;
    const size_t d = edit_distance(name.substr(0, 64), row.info.name);
    if (d < distance) {
      distance = d;
      nearest = row.info.name;
    }
  }
  throw Error(cat("model: must be one of ", names, "; got '", name, "'. ",
                  nearest.empty() ? "'tandem models' describes them." : "Did you mean " + nearest + "?"));
}

}  // namespace

const std::vector<ModelInfo>& models() {
  static const std::vector<ModelInfo> list = [] {
    std::vector<ModelInfo> infos;
    for (const Row& row : rows()) infos.push_back(row.info);
    return infos;
  }();
  return list;
}

const ModelInfo& model_info(const std::string& name) { return row_named(name).info; }

std::unique_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options) {
  return row_named(name).make(options);
}

}  // namespace tandem::zoo
