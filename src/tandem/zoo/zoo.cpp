// The table of models.
#include "tandem/zoo/zoo.h"

#include "tandem/core/file.h"
#include "tandem/core/nearest.h"
#include "tandem/zoo/alexnet.h"
#include "tandem/zoo/cifar_cnn.h"
#include "tandem/zoo/lenet.h"
#include "tandem/zoo/mlp.h"
#include "tandem/zoo/mnist_cnn.h"
#include "tandem/zoo/resnet.h"
#include "tandem/zoo/svhn_cnn.h"
#include "tandem/zoo/vgg.h"
#include "tandem/zoo/zoo_descriptions.h"

namespace tandem::zoo {

// Models that nobody else makes, each in the file of its name.
std::unique_ptr<nn::Module> make_imdb_lstm(const ModelOptions& options, int64_t outputs);
ModelDescription imdb_lstm_description();
std::unique_ptr<nn::Module> make_ptb_lstm(const ModelOptions& options, int64_t outputs);
ModelDescription ptb_lstm_description();
std::unique_ptr<nn::Module> make_deepspeech2(const ModelOptions& options, int64_t labels);
std::unique_ptr<nn::Module> make_seq2seq(const ModelOptions& options, int64_t outputs);
std::unique_ptr<nn::Module> make_gnmt(const ModelOptions& options, int64_t outputs);
std::unique_ptr<nn::Module> make_tacotron2(const ModelOptions& options, int64_t outputs);

namespace {

struct Row {
  ModelInfo info;
  ModelDescription (*describe)();  // null: it is not described
  std::unique_ptr<nn::Module> (*make)(const ModelOptions& options, int64_t classes);
};

TrainingDefaults quick_speech() {
  return {.data = "librispeech",
          .optimizer = "adam",
          .lr = 0.0005,
          .batch = 20,
          .epochs = 10,
          .clip_norm = 10,
          .schedule = "cosine"};
}

const std::vector<Row>& rows() {
  using Made = std::unique_ptr<nn::Module>;
  static const std::vector<Row>& table = *new std::vector<Row>{
      {{"lenet",
        "LeNet-5: two convolutions, three dense layers",
        {1, 28, 28},
        10,
        {.data = "mnist", .lr = 0.01, .batch = 100, .epochs = 1}},
       lenet_description,
       [](const ModelOptions&, int64_t classes) -> Made { return std::make_unique<LeNet>(classes); }},
      {{"mlp", "dense layers of 256, 128 and 10 units", {1, 28, 28}, 10, {.data = "mnist"}},
       mlp_description,
       [](const ModelOptions&, int64_t classes) -> Made { return std::make_unique<Mlp>(classes); }},
      {{"mnist_cnn",
        "two 3×3 convolutions, two dense layers, dropout",
        {1, 28, 28},
        10,
        {.data = "mnist", .epochs = 15}},
       mnist_cnn_description,
       [](const ModelOptions& options, int64_t classes) -> Made {
         return std::make_unique<MnistCnn>(options.dropout.value_or(0.25), options.dropout.value_or(0.5),
                                           classes);
       }},
      {{"cifar10_cnn",
        "four 3×3 convolutions of 32 and 64 channels, two dense layers, dropout",
        {3, 32, 32},
        10,
        {.data = "cifar10", .epochs = 100}},
       cifar10_cnn_description,
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
       cifar100_cnn_description,
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
       svhn_cnn_description,
       [](const ModelOptions& o, int64_t classes) -> Made {
         return std::make_unique<SvhnCnn>(o.dropout.value_or(0.2), o.dropout.value_or(0.5), classes);
       }},
      {{"alexnet",
        "AlexNet in one tower: five convolutions, three dense layers, dropout",
        {3, 224, 224},
        1000,
        {.data = "synthetic-imagenet", .batch = 128, .epochs = 90},
        true},
       alexnet_description,
       [](const ModelOptions& o, int64_t classes) -> Made {
         return std::make_unique<AlexNet>(o.dropout.value_or(0.5), classes);
       }},
      {{"resnet18",
        "ResNet-18: a 7×7 stem, eight residual blocks, batch norm",
        {3, 32, 32},
        10,
        {.data = "cifar10", .lr = 0.001, .batch = 64, .epochs = 200},
        true},
       resnet18_description,
       [](const ModelOptions&, int64_t classes) -> Made { return std::make_unique<ResNet18>(classes); }},
      {{"vgg16",
        "VGG-16: thirteen 3×3 convolutions, three dense layers, dropout",
        {3, 224, 224},
        1000,
        {.data = "synthetic-imagenet", .lr = 0.001, .batch = 32, .epochs = 200},
        true},
       vgg16_description,
       [](const ModelOptions& o, int64_t classes) -> Made {
         const Dims input = o.input.value_or(Dims{3, 224, 224});
         return std::make_unique<Vgg16>(input[1], input[2], o.dropout.value_or(0.5), classes);
       }},
      {{.name = "imdb_lstm",
        .description = "words of a text, an LSTM of 100 units, one class",
        .input = {500},
        .classes = 1,
        .training = {.data = "imdb", .optimizer = "adam", .lr = 0.001, .batch = 64, .epochs = 50},
        .any_size = true,
        .task = "text-classification",
        .vocabulary = 5000,
        .quick = TrainingDefaults{.data = "imdb",
                                  .optimizer = "adam",
                                  .lr = 0.002,
                                  .batch = 64,
                                  .epochs = 5,
                                  .clip_norm = 1,
                                  .schedule = "cosine"}},
       imdb_lstm_description,
       make_imdb_lstm},
      {{.name = "ptb_lstm",
        .description = "words of a text, two LSTMs of 1,024 units, dropout, the word that follows",
        .input = {35},
        .classes = 10000,
        .training = {.data = "ptb", .optimizer = "adadelta", .lr = 1, .batch = 20, .epochs = 50},
        .any_size = true,
        .task = "language-modelling",
        .vocabulary = 10000,
        .quick = TrainingDefaults{.data = "ptb",
                                  .optimizer = "sgd",
                                  .lr = 4,
                                  .batch = 20,
                                  .epochs = 20,
                                  .clip_norm = 0.25,
                                  .schedule = "cosine"}},
       ptb_lstm_description,
       make_ptb_lstm},
      {{.name = "deepspeech2",
        .description = "speech, two convolutions, five GRUs of 800 units in both directions, letters",
        .input = {1600, 161},
        .classes = 29,
        .training = {.data = "librispeech",
                     .optimizer = "sgd",
                     .lr = 0.0003,
                     .batch = 20,
                     .epochs = 70,
                     .clip_norm = 400},
        .any_size = true,
        .task = "speech-recognition",
        .quick = quick_speech(),
        .described = false},
       nullptr,
       make_deepspeech2},
      {{.name = "seq2seq",
        .description = "words of a text, an LSTM of 256 units, another one that writes its translation",
        .input = {24},
        .classes = 10000,
        .training = {.data = "manythings", .optimizer = "adadelta", .lr = 1, .batch = 128, .epochs = 100},
        .any_size = true,
        .task = "translation",
        .vocabulary = 10000,
        .quick = TrainingDefaults{.data = "manythings",
                                  .optimizer = "adam",
                                  .lr = 0.002,
                                  .batch = 128,
                                  .epochs = 10,
                                  .clip_norm = 1,
                                  .schedule = "cosine"},
        .described = false},
       nullptr,
       make_seq2seq},
      {{.name = "gnmt",
        .description = "translation by four and four LSTMs of 1,024 units with attention (GNMT)",
        .input = {50},
        .classes = 32000,
        .training = {.data = "synthetic-wmt16",
                     .optimizer = "adam",
                     .lr = 0.001,
                     .batch = 128,
                     .epochs = 6,
                     .clip_norm = 5},
        .any_size = true,
        .task = "translation",
        .vocabulary = 32000,
        .quick = TrainingDefaults{.data = "synthetic-wmt16",
                                  .optimizer = "adam",
                                  .lr = 0.001,
                                  .batch = 64,
                                  .epochs = 1,
                                  .clip_norm = 5},
        .described = false},
       nullptr,
       make_gnmt},
      {{.name = "tacotron2",
        .description =
            "Tacotron 2: characters of a text, attention step by step, a mel spectrogram of its speech",
        .input = {200},
        .training = {.data = "ljspeech",
                     .optimizer = "adam",
                     .lr = 0.001,
                     .batch = 64,
                     .epochs = 500,
                     .clip_norm = 1},
        .any_size = true,
        .task = "speech-synthesis",
        .vocabulary = 40,
        .quick = TrainingDefaults{.data = "ljspeech",
                                  .optimizer = "adam",
                                  .lr = 0.001,
                                  .batch = 32,
                                  .epochs = 10,
                                  .clip_norm = 1},
        .described = false},
       nullptr,
       make_tacotron2},
  };
  return table;
}

const Row& row_named(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const Row& row : rows()) {
    if (row.info.name == name) return row;
    names.push_back(row.info.name);
    list += (list.empty() ? "" : ", ") + row.info.name;
  }
  const std::string near = did_you_mean(name, names);
  throw Error(str("model: must be one of ", list, "; got '", name, "'.",
                  near.empty() ? " 'tandem models' describes them." : near));
}

/// The number of its classes; throws Error where options do not fit it.
int64_t checked_classes(const Row& row, const ModelOptions& options) {
  const int64_t classes = options.classes.value_or(row.info.classes);
  TD_CHECK(row.info.classes > 0 || !options.classes, "model ", row.info.name, ": gives no classes; got ",
           classes, ". Leave it out.");
  TD_CHECK(!row.describe || options.settings.empty(), "model ", row.info.name,
           ": has no settings by name; got ",
           options.settings.empty() ? "" : one_line(options.settings[0].first, 60), ". 'tandem models ",
           row.info.name, " --toml' prints its layers, to change them.");
  TD_CHECK(classes >= 1 || row.info.classes == 0, "model ", row.info.name,
           ": there must be at least one class; got ", classes, ".");
  if (options.input) {
    const Dims &want = row.info.input, &got = *options.input;
    const bool is_text = row.info.vocabulary > 0, is_sound = row.info.task == "speech-recognition";
    const bool fits_rest = is_text || (is_sound ? got.rank() == 2 && got[1] == want[1] : got[0] == want[0]);
    const bool fits = got == want || (row.info.any_size && got.rank() == want.rank() && fits_rest);
    TD_CHECK(fits, "model ", row.info.name, ": takes samples of ", want,
             row.info.any_size ? " or of another size" : "", "; got ", got, ".");
  }
  return classes;
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
  std::unique_ptr<nn::Module> model = row.make(options, checked_classes(row, options));
  model->set_recipe([name, options]() -> nn::ModulePtr { return make_model(name, options); });
  return model;
}

ModelDescription describe(const std::string& name, const ModelOptions& options) {
  const Row& row = row_named(name);
  TD_CHECK(row.describe, "model ", name,
           ": is no list of layers, so that it has no description. Change it by `model_settings`.");
  checked_classes(row, options);
  return with_options(row.describe(), options);
}

bool is_description_path(const std::string& name_or_path) { return name_or_path.ends_with(".toml"); }

ChosenModel choose_model(const std::string& name_or_path) {
  if (is_description_path(name_or_path)) return choose_model(read_description(name_or_path));
  TD_CHECK(
      name_or_path.find('/') == std::string::npos,
      "model: must be a name from 'tandem models', or the path of a description, which ends in .toml; got '",
      one_line(name_or_path), "'.");
  return {model_info(name_or_path)};
}

namespace {

/// The rows of the embedding that reads tokens, where the model takes them first; else 0.
int64_t vocabulary_of(const ModelDescription& description) {
  const bool takes_tokens = !description.inputs.empty() && description.inputs[0].dtype == DType::i64 &&
                            description.inputs[0].shape.rank() == 1;
  if (!takes_tokens) return 0;
  for (const LayerDescription& layer : description.layers)
    for (const auto& [name, value] : layer.settings)
      if (layer.type == "embedding" && name == "rows") return std::get<int64_t>(value);
  return 0;
}

}  // namespace

ChosenModel choose_model(ModelDescription description) {
  const Dims output = output_shape(description);
  ModelInfo info{.name = description.name,
                 .description = str("a description of ", description.layers.size(), " layers"),
                 .input = description.inputs.empty() ? description.input : description.inputs[0].shape,
                 .classes = output.rank() == 1 ? output[0] : 0,
                 .any_size = false};
  if (const int64_t words = vocabulary_of(description); words > 0) {
    info.vocabulary = words;
    const bool has_places = output.rank() == 2;  // an answer for each word
    info.task = has_places ? "language-modelling" : "text-classification";
    if (has_places) info.classes = output[1];
  }
  return {info, std::move(description)};
}

std::unique_ptr<nn::Module> make_model(const ChosenModel& chosen) {
  return chosen.description ? make_model(*chosen.description) : make_model(chosen.info.name, chosen.options);
}

}  // namespace tandem::zoo
