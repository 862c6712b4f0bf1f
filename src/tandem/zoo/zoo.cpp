// The table of models.
#include "tandem/zoo/zoo.h"

#include <algorithm>
#include <numeric>

#include "tandem/zoo/alexnet.h"
#include "tandem/zoo/cifar_cnn.h"
#include "tandem/zoo/lenet.h"
#include "tandem/zoo/mlp.h"
#include "tandem/zoo/mnist_cnn.h"
#include "tandem/zoo/resnet.h"
#include "tandem/zoo/svhn_cnn.h"
#include "tandem/zoo/vgg.h"

namespace tandem::zoo {
namespace {

struct Row {
  ModelInfo info;
  std::unique_ptr<nn::Module> (*make)(const ModelOptions& options, int64_t classes);
};

const std::vector<Row>& rows() {
  using Made = std::unique_ptr<nn::Module>;
  static const std::vector<Row>& table = *new std::vector<Row>{
      {{"lenet",
        "LeNet-5: two convolutions, three dense layers",
        {1, 28, 28},
        10,
        {.data = "mnist", .lr = 0.01, .batch = 100, .epochs = 1}},
       [](const ModelOptions&, int64_t classes) -> Made { return std::make_unique<LeNet>(classes); }},
      {{"mlp", "dense layers of 256, 128 and 10 units", {1, 28, 28}, 10, {.data = "mnist"}},
       [](const ModelOptions&, int64_t classes) -> Made { return std::make_unique<Mlp>(classes); }},
      {{"mnist_cnn",
        "two 3×3 convolutions, two dense layers, dropout",
        {1, 28, 28},
        10,
        {.data = "mnist", .epochs = 15}},
       [](const ModelOptions& options, int64_t classes) -> Made {
         return std::make_unique<MnistCnn>(options.dropout.value_or(0.25), options.dropout.value_or(0.5),
                                           classes);
       }},
      {{"cifar10_cnn",
        "four 3×3 convolutions of 32 and 64 channels, two dense layers, dropout",
        {3, 32, 32},
        10,
        {.data = "cifar10", .epochs = 100}},
       [](const ModelOptions& o, int64_t classes) -> Made {
         return std::make_unique<Cifar10Cnn>(
             std::array{o.dropout.value_or(0.25), o.dropout.value_or(0.25), o.dropout.value_or(0.5)},
             classes);
       }},
      {{"cifar100_cnn",
        "six 3×3 convolutions of 128 to 512 channels, two dense layers, dropout",
        {3, 32, 32},
        100,
        {.data = "cifar100", .epochs = 200}},
       [](const ModelOptions& o, int64_t classes) -> Made {
         return std::make_unique<Cifar100Cnn>(std::array{o.dropout.value_or(0.1), o.dropout.value_or(0.25),
                                                         o.dropout.value_or(0.5), o.dropout.value_or(0.5)},
                                              classes);
       }},
      {{"svhn_cnn",
        "eight 3×3 convolutions of 48 to 192 channels, two dense layers, dropout",
        {3, 32, 32},
        10,
        {.data = "svhn", .epochs = 100}},
       [](const ModelOptions& o, int64_t classes) -> Made {
         return std::make_unique<SvhnCnn>(o.dropout.value_or(0.2), o.dropout.value_or(0.5), classes);
       }},
      {{"alexnet",
        "AlexNet in one tower: five convolutions, three dense layers, dropout",
        {3, 224, 224},
        1000,
        {.data = "synthetic-imagenet", .batch = 128, .epochs = 90},
        true},
       [](const ModelOptions& o, int64_t classes) -> Made {
         return std::make_unique<AlexNet>(o.dropout.value_or(0.5), classes);
       }},
      {{"resnet18",
        "ResNet-18: a 7×7 stem, eight residual blocks, batch norm",
        {3, 32, 32},
        10,
        {.data = "cifar10", .lr = 0.001, .batch = 64, .epochs = 200},
        true},
       [](const ModelOptions&, int64_t classes) -> Made { return std::make_unique<ResNet18>(classes); }},
      {{"vgg16",
        "VGG-16: thirteen 3×3 convolutions, three dense layers, dropout",
        {3, 224, 224},
        1000,
        {.data = "synthetic-imagenet", .lr = 0.001, .batch = 32, .epochs = 200},
        true},
       [](const ModelOptions& o, int64_t classes) -> Made {
         const Dims input = o.input.value_or(Dims{3, 224, 224});
         return std::make_unique<Vgg16>(input[1], input[2], o.dropout.value_or(0.5), classes);
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
  static const auto& list = *new std::vector<ModelInfo>([] {
    std::vector<ModelInfo> infos;
    for (const Row& row : rows()) infos.push_back(row.info);
    return infos;
  }());
  return list;
}

const ModelInfo& model_info(const std::string& name) { return row_named(name).info; }

std::unique_ptr<nn::Module> make_model(const std::string& name, const ModelOptions& options) {
  const Row& row = row_named(name);
  const int64_t classes = options.classes.value_or(row.info.classes);
  TD_CHECK(classes >= 1, "model ", name, ": there must be at least one class; got ", classes, ".");
  if (options.input) {
    const Dims &want = row.info.input, &got = *options.input;
    const bool fits = got == want || (row.info.any_size && got.rank() == 3 && got[0] == want[0]);
    TD_CHECK(fits, "model ", name, ": takes samples of ", want,
             row.info.any_size ? " or of another size" : "", "; got ", got, ".");
  }
  std::unique_ptr<nn::Module> model = row.make(options, classes);
  model->set_recipe([name, options]() -> nn::ModulePtr { return make_model(name, options); });
  return model;
}

}  // namespace tandem::zoo
