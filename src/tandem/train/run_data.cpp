// The data of a run, and the model that fits it.
#include "tandem/train/run_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "tandem/data/compose.h"
#include "tandem/data/drawn_digits.h"
#include "tandem/data/image_ops.h"
#include "tandem/data/labels.h"
#include "tandem/data/split.h"
#include "tandem/data/table_set.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/file.h"
#include "tandem/io/sha256.h"
#include "tandem/io/torch_file.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/train/limit.h"
#include "tandem/train/parameter_names.h"
#include "tandem/train/run_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// Refuses a run of a model that has no usual data, with the names of those that it could take.
[[noreturn]] void refuse_no_data(const zoo::ModelInfo& info, const std::string& data_dir) {
  std::string fitting;
  for (const data::DatasetStatus& row : data::list_datasets(data_dir))
    if (row.info.sample_shape == info.input) fitting += (fitting.empty() ? "" : ", ") + row.info.name;
  throw Error(str("data: a model of your own must be told what to train on; got no `data`. ",
                  fitting.empty() ? str("No data set here is known to have samples of ", info.input,
                                        "; 'tandem datasets' describes them.")
                                  : str("Those with samples of ", info.input, " are ", fitting, ".")));
}

/// Images of a folder get the size that the model was made for, or, where it takes any, that of photographs.
std::optional<std::array<int64_t, 2>> image_size_for(const TrainConfig& config, const std::string& name,
                                                     const zoo::ModelInfo& model) {
  if (config.input) return config.input;
  if (name != "image-folder" || model.any_size || model.input.rank() != 3) return {};
  return std::array<int64_t, 2>{model.input[1], model.input[2]};
}

/// The folder of the user's own data, so that it is found again from elsewhere.
std::string absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  return error ? path : whole.string();
}

/// Of a text, whose windows follow each other: its end is held out.
data::SplitIndices last_part(int64_t size, double share) {
  const auto held = std::clamp<int64_t>(std::llround(share * static_cast<double>(size)), 1, size - 1);
  data::SplitIndices parts;
  for (int64_t i = 0; i < size; ++i) (i < size - held ? parts.train : parts.test).push_back(i);
  return parts;
}

/// n / (classes · count): rare classes weigh more, and a sample weighs 1 in the mean.
std::vector<double> balanced_weights(const std::vector<int64_t>& labels, int64_t classes) {
  std::vector<double> counts(static_cast<size_t>(classes));
  for (const int64_t label : labels) ++counts.at(static_cast<size_t>(label));
  std::vector<double> weights;
  for (const double count : counts)
    weights.push_back(
        count == 0 ? 0 : static_cast<double>(labels.size()) / (static_cast<double>(classes) * count));
  return weights;
}

/// What is known of the classes of two sets must agree: a number must mean the same in both.
void check_same_classes(const DataRecord& record, const data::Splits& other) {
  if (record.class_names.empty() || other.class_names.empty() || record.class_names == other.class_names)
    return;
  throw Error(str("data ", other.name, ": the classes must be those of training, ",
                  listed(record.class_names), "; got ", listed(other.class_names),
                  ". Give data with the same classes."));
}

/// The file that a folder of csv or npy stands for, where it holds one alone; else the folder.
fs::path file_of(const std::string& name, const fs::path& place) {
  const std::string ending = name == "csv" ? ".csv" : name == "npy" ? ".npz" : "";
  std::vector<fs::path> files;
  std::error_code error;
  if (!ending.empty())
    for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ending) files.push_back(at->path());
  return files.size() == 1 ? files[0] : place;
}

/// Whether the data set is found there where the run found it, whatever the path is called.
bool is_same_place(const DataRecord& record, const std::string& data_dir) {
  std::string found = data_dir;
  for (const data::DatasetStatus& row : data::list_datasets(data_dir))
    if (row.info.name == record.name && row.found) found = row.where;
  if (absolute(data_dir) == record.opening.data_dir || absolute(found) == record.opening.data_dir)
    return true;
  std::error_code error;
  return fs::equivalent(file_of(record.name, found), file_of(record.name, record.opening.data_dir), error) &&
         !error;
}

/// Pixels p that become (p / 255 - mean) / deviation; none where the inputs are other numbers.
struct Pixels {
  std::vector<float> mean = {0}, deviation = {1};
  bool operator==(const Pixels&) const = default;
};
std::optional<Pixels> pixels_of(const std::optional<data::ImageFormat>& format,
                                std::optional<bool> byte_inputs) {
  if (format) return Pixels{format->mean, format->deviation};
  return byte_inputs.value_or(false) ? std::optional(Pixels()) : std::nullopt;
}

/// (x - mean) / deviation of each channel (the first axis), or of all where there is one of each alone.
Tensor scaled(const Tensor& x, const std::vector<float>& mean, const std::vector<float>& deviation) {
  if (mean.size() == 1) return (x - mean[0]) / deviation[0];
  return data::image::normalise(x, mean, deviation);
}

/// Samples whose inputs are pixels in one scale, in another.
data::DatasetPtr rescaled(data::DatasetPtr set, const Pixels& from, const Pixels& to) {
  if (from == to) return set;
  Pixels back;  // x · deviation + mean
  for (size_t i = 0; i < from.mean.size(); ++i) {
    back.mean.resize(i + 1);
    back.deviation.resize(i + 1);
    back.mean[i] = -from.mean[i] / from.deviation[i];
    back.deviation[i] = 1 / from.deviation[i];
  }
  const bool is_plain =
      from == Pixels{std::vector<float>(from.mean.size(), 0.0f), std::vector<float>(from.mean.size(), 1.0f)};
  return data::map(std::move(set), [to, back, is_plain](data::Sample sample) {
    const Tensor plain = is_plain ? sample[0] : scaled(sample[0], back.mean, back.deviation);
    sample[0] = scaled(plain, to.mean, to.deviation);
    return sample;
  });
}

/// What inputs are, for messages.
std::string kind_of(const std::string& name, const std::optional<Pixels>& pixels, bool is_table,
                    bool is_known) {
  return is_table    ? "the columns of a table"
         : pixels    ? name == "npy" ? "bytes (u8), which are divided by 255" : "pixels, as bytes (u8)"
         : !is_known ? "arrays of a kind that its folder does not tell"
                     : "numbers that are taken as they are";
}

/// The inputs of `set`, which are of this kind, made as those of the run were.
data::DatasetPtr made_alike(const DataRecord& record, data::DatasetPtr set,
                            const std::optional<Pixels>& pixels, const std::string& name, bool is_table,
                            const std::string& where) {
  const std::optional<Pixels> own = pixels_of(record.format, record.byte_inputs);
  const bool is_own_table = record.encoder != nullptr,
             is_known = own || record.byte_inputs || record.name != "npy";
  TD_CHECK(is_known && is_table == is_own_table && pixels.has_value() == own.has_value(), where,
           "inputs must be of the kind of training, ", kind_of(record.name, own, is_own_table, is_known),
           "; got ", kind_of(name, pixels, is_table, true),
           is_known ? ". Give data of that kind." : ". Train again, so that the run tells.");
  return own ? rescaled(std::move(set), *pixels, *own) : set;
}

}  // namespace

data::DatasetPtr alike_inputs(const DataRecord& record, data::DatasetPtr set, bool are_bytes,
                              const std::string& where) {
  return made_alike(record, std::move(set), pixels_of({}, are_bytes), "npy", false, where);
}

TaskPtr task_of(const DataRecord& record, TaskOptions options) {
  if (record.encoder && record.encoder->task() == data::TableTask::regression) {
    options.target_mean = record.encoder->decode_target(0);
    options.target_deviation = record.encoder->target_deviation();
  }
  if (record.text && record.text->into) {
    const data::Vocabulary& words = *record.text->into;
    options.begin_token = words.begin().value();
    options.end_token = words.end().value();
    options.never = {words.padding().value(), options.begin_token};
    if (words.unknown()) options.never.push_back(*words.unknown());
  }
  return make_task(record.task, options);
}

std::vector<std::pair<std::string, std::string>> fingerprints_of_names(const DataRecord& record) {
  const auto add = [](std::string& all, const std::string& name) { all += str(name.size(), ":", name); };
  std::vector<std::pair<std::string, std::string>> out;
  const auto put = [&](const char* key, const std::string& all) {
    if (!all.empty()) out.emplace_back(key, io::sha256(all));
  };
  std::string classes, columns, words;
  for (const std::string& name : record.class_names) add(classes, name);
  if (record.encoder) {
    add(columns, record.encoder->target());
    for (const std::string& name : record.encoder->feature_names()) add(columns, name);
  }
  const auto add_words = [&](const data::Vocabulary& vocabulary) {
    add(words, str(data::name(vocabulary.tokens()), " ", vocabulary.size()));
    for (int64_t i = 0; i < vocabulary.size(); ++i) add(words, vocabulary.entry(i));
  };
  if (record.text) {
    if (!record.text->column.empty()) {
      add(columns, record.text->target);
      add(columns, record.text->column);
    }
    add_words(record.text->vocabulary);
    if (record.text->into) add_words(*record.text->into);
  }
  put("class_names", classes);
  put("columns", columns);
  put("words", words);
  return out;
}

int64_t outputs_for(const data::Splits& splits) {
  const std::vector<int64_t> counts = make_task(splits.task)->outputs(splits);
  return counts.empty() ? 0 : counts[0];
}

TrainingData open_training_data(const TrainConfig& config, const zoo::ModelInfo& model) {
  const std::string& usual = model.training.data;  // MNIST has stand-ins; the others are asked for by name
  const std::string& name = config.data.empty() && usual != "mnist" ? usual : config.data;
  if (name.empty() && usual.empty()) refuse_no_data(model, config.data_dir);
  data::OpenOptions opening{.data_dir = config.data_dir,
                            .image_size = image_size_for(config, name, model),
                            .test_share = config.test_share.value_or(data::OpenOptions{}.test_share),
                            .split_seed = config.split_seed,
                            .skip_bad = config.skip_bad,
                            .target = config.target,
                            .csv = config.csv,
                            .text = config.text,
                            .usual_vocabulary = model.vocabulary,
                            .usual_length = model.vocabulary > 0 ? model.input[0] : 0,
                            .usual_task = model.task};
  // A task that is not the reader's own.
  const std::string read_as = config.task_name.empty() ? "" : make_task(config.task_name)->reads_as();
  const bool is_renamed = read_as != config.task_name;
  TD_CHECK(!is_renamed || name == "npy", "task: ", config.task_name,
           " is for npy, whose targets are (n, labels); got data ", name.empty() ? usual : name, ".");
  opening.task = read_as;
  TrainingData out{.splits = name.empty() ? data::open_default(opening) : data::open_dataset(name, opening),
                   .record = {},
                   .task = {},
                   .taken = {}};
  data::Splits& splits = out.splits;
  if (is_renamed) splits.task = config.task_name;
  // Files of the user's own are found again where they were found now, not by the usual places.
  const bool is_own = splits.info.files.empty() && splits.where != data::kBuiltIn;
  opening.data_dir = absolute(is_own ? splits.where : config.data_dir);
  TD_CHECK(io::is_utf8(opening.data_dir), "data-dir: its path is kept with the run, and must be UTF-8; '",
           io::one_line(opening.data_dir), "' is not. Rename the folder.");
  out.record = {splits.name,        opening,       splits.task,
                splits.class_names, splits.format, splits.encoder,
                splits.byte_inputs, splits.text,   splits.sound};
  const auto limited = [&](const data::DatasetPtr& set) {
    return set ? limited_to(set, config.limit, splits.task, config.split_seed) : Limited{};
  };
  const Limited train = limited(splits.train), test = limited(splits.test), valid = limited(splits.valid);
  std::vector<std::pair<const char*, const Limited*>> parts = {{"train", &train}, {"test", &test}};
  if (splits.valid) parts.insert(parts.begin() + 1, {"validate", &valid});
  out.taken = taken_text(parts, config.split_seed, splits.notices);
  TD_CHECK(config.split_seed == 0 || config.valid > 0 || splits.split_off || train.is_drawn || test.is_drawn,
           "split-seed: acts only with `valid`, `limit`, or data that is split for testing; ", splits.name,
           " has a test part here. Give `valid` as well, or leave `split_seed` out.");
  splits.train = train.taken(splits.train);
  splits.test = test.taken(splits.test);
  data::DatasetPtr plain = splits.train;
  if (config.augment) {
    TD_CHECK(splits.augmented, "augment: ", splits.name,
             " has no usual augmentation; cifar10, cifar100 and image-folder have one. Leave `augment` out.");
    splits.train = train.taken(splits.augmented(config.seed));
  }
  const bool with_classes = has_classes(splits.task);
  std::vector<int64_t> labels;
  if (with_classes && (config.valid > 0 || config.class_weights)) labels = data::class_labels(*plain);
  TD_CHECK(config.valid == 0 || !splits.valid, "valid: ", splits.name,
           " has a part for validation of its own. Leave `valid` out.");
  if (splits.valid) out.valid = valid.taken(splits.valid);
  if (config.valid > 0) {
    const std::vector<int64_t> groups =
        with_classes ? labels : std::vector<int64_t>(static_cast<size_t>(plain->size()));
    TD_CHECK(plain->size() >= 2, "valid: there must be two samples or more to hold some out; got ",
             plain->size(), ".");
    data::SplitIndices parts = make_task(splits.task)->shuffles()
                                   ? data::split_indices(groups, config.valid, config.split_seed)
                                   : last_part(plain->size(), config.valid);
    TD_CHECK(!parts.test.empty(), "valid: no sample can be held out of ", plain->size(),
             ", each of a class of its own. Leave `valid` out.");
    out.valid = data::subset(plain, parts.test);
    std::vector<int64_t> kept;
    for (const int64_t i : parts.train)
      if (!labels.empty()) kept.push_back(labels[static_cast<size_t>(i)]);
    labels = std::move(kept);
    splits.train = data::subset(splits.train, std::move(parts.train));
  }
  TD_CHECK(!config.class_weights || with_classes, "class-weights: belong to classes; the task here is ",
           splits.task, ". Leave `class_weights` out.");
  TD_CHECK(config.guided_attention == 0 || make_task(splits.task)->answer_kind() == TaskAnswer::speech,
           "guided-attention: is of speech-synthesis; the task here is ", splits.task,
           ". Leave `guided_attention` out.");
  TaskOptions options{.guided_attention = config.guided_attention};
  if (config.class_weights) options.class_weights = balanced_weights(labels, splits.info.classes);
  out.task = task_of(out.record, options);
  return out;
}

namespace {

/// Whether a model takes numbers of one shape, as images and rows are; else text or sound.
bool takes_numbers(const zoo::ModelInfo& info) {
  return make_task(info.task)->input_kind() == TaskInput::numbers;
}

/// Refuses a model of text or sound for other data, and the other way round.
void check_kind(const zoo::ChosenModel& chosen, const data::Splits& splits) {
  const bool is_other = splits.text || splits.sound;  // than numbers of one shape
  if (!is_other && takes_numbers(chosen.info)) return;
  std::string fitting;
  for (const zoo::ModelInfo& row : zoo::models())
    if (is_other ? row.task == splits.task : takes_numbers(row))
      fitting += (fitting.empty() ? "" : ", ") + row.name;
  TD_CHECK(is_other && chosen.info.task == splits.task, "train: ", chosen.info.name, " on ", splits.name,
           ": the model must be for ", splits.task, "; it is for ", chosen.info.task,
           !takes_numbers(chosen.info) || !is_other ? "" : " of numbers", ". Those of the zoo are ", fitting,
           ".");
  if (!chosen.description || !splits.text) return;
  const std::vector<data::Field> fields = make_task(splits.task)->fields();
  const bool takes_lengths = std::any_of(fields.begin(), fields.end(),
                                         [](const data::Field& field) { return field.name == "length"; });
  const size_t inputs = chosen.description->inputs.size(), wanted = takes_lengths ? 2 : 1;
  TD_CHECK(inputs == wanted, "train: ", chosen.info.name, " on ", splits.name, ": a model for ", splits.task,
           wanted == 2 ? " must take tokens (length) and their number (), both i64"
                       : " must take tokens (length), i64",
           "; it takes ", inputs, " inputs. 'tandem models ", wanted == 2 ? "imdb_lstm" : "ptb_lstm",
           " --toml' prints one to begin from.");
}

/// Any length is taken; the vocabulary and the outputs must be the data's.
zoo::ChosenModel adapted_to_text(zoo::ChosenModel chosen, const data::Splits& splits,
                                 std::vector<std::string>& notices) {
  const int64_t words = splits.text->vocabulary.size(), outputs = outputs_for(splits);
  const std::vector<int64_t> allowed = make_task(splits.task)->outputs(splits);
  const auto fits = [&](const zoo::ModelInfo& model) {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), model.classes) != allowed.end();
  };
  const bool fits_words = chosen.info.vocabulary == words, fits_outputs = fits(chosen.info);
  if (!chosen.info.described) {
    chosen.options.vocabulary = words;
    if (allowed.empty()) return chosen;
    chosen.options.classes = outputs;
    if (!fits_words || !fits_outputs)
      notices.push_back(str(chosen.info.name, ": made for ", words, " words to read and ", outputs,
                            " to write in place of ", chosen.info.vocabulary, " and ", chosen.info.classes,
                            "."));
    return chosen;
  }
  if (fits_words && fits_outputs) return chosen;
  zoo::ModelOptions options{.vocabulary = words};
  if (!fits_outputs) options.classes = outputs;
  zoo::ChosenModel fitting = zoo::choose_model(
      zoo::with_options(chosen.description ? *chosen.description : zoo::describe(chosen.info.name), options));
  TD_CHECK(fits(fitting.info), "train: ", chosen.info.name, " on ", splits.name,
           ": the model must end with a linear layer of ", outputs, " numbers; it gives another shape.");
  fitting.info.training = chosen.info.training;
  if (!fits_words)
    notices.push_back(
        str(chosen.info.name, ": made for ", words, " words in place of ", chosen.info.vocabulary, "."));
  if (!fits_outputs && outputs != words)  // else the words say it
    notices.push_back(str(chosen.info.name, ": gives ", outputs, outputs == 1 ? " number" : " numbers",
                          " in place of ", chosen.info.classes, "."));
  return fitting;
}

}  // namespace

zoo::ChosenModel adapted(zoo::ChosenModel chosen, const TrainingData& data,
                         std::vector<std::string>& notices) {
  const data::DatasetInfo& info = data.splits.info;
  check_kind(chosen, data.splits);
  if (data.splits.text) return adapted_to_text(std::move(chosen), data.splits, notices);
  if (data.splits.sound) return chosen;  // any length, and the labels are the same for all
  const int64_t outputs = outputs_for(data.splits);
  const bool fits_input = chosen.info.input == info.sample_shape,
             fits_outputs = chosen.info.classes == outputs;
  if (fits_input && fits_outputs) return chosen;
  const std::string what = str("train: ", chosen.info.name, " on ", data.splits.name, ": ");
  zoo::ModelDescription description =
      chosen.description ? *chosen.description : zoo::describe(chosen.info.name);
  try {
    zoo::ChosenModel fitting = zoo::choose_model(
        zoo::with_options(std::move(description), {.classes = outputs, .input = info.sample_shape}));
    TD_CHECK(fitting.info.classes == outputs,
             "the model must end with a linear layer; it gives another shape than the ", outputs,
             " numbers needed. End it with flatten and linear.");
    fitting.info.training = chosen.info.training;
    if (!fits_input)
      notices.push_back(str(chosen.info.name, ": made for inputs of ", info.sample_shape, " in place of ",
                            chosen.info.input, "."));
    if (!fits_outputs)
      notices.push_back(str(chosen.info.name, ": gives ", outputs, outputs == 1 ? " number" : " numbers",
                            " in place of ", chosen.info.classes, "."));
    return fitting;
  } catch (Error& error) {
    error.prepend(what);
    throw;
  }
}

data::Splits open_test_data(const DataRecord& record, const zoo::ModelInfo& model, const std::string& name,
                            const std::string& data_dir, std::optional<int64_t> limit, std::string* taken) {
  const bool is_own = name.empty() || name == record.name;
  data::OpenOptions opening;
  if (is_own) opening = record.opening;
  const bool is_elsewhere = !is_own || (!data_dir.empty() && !is_same_place(record, data_dir));
  if (is_elsewhere && !data_dir.empty()) opening.data_dir = data_dir;
  TD_CHECK(is_own || name != "csv", "data csv: the run was trained on ", record.name,
           ", not on a table. Choose another `data`.");
  opening.text_encoder = record.text;  // the words mean what they meant in training
  opening.usual_task = record.task;
  data::Splits splits;
  data::DatasetPtr part;           // what is split off for testing, where there is no test part
  if (is_own && record.encoder) {  // the columns mean what they meant in training
    splits.info = data::dataset_info(record.name);
    splits.name = record.name;
    splits.where = opening.data_dir;
    const data::TestTable table = data::open_test_table(opening.data_dir, *record.encoder, is_elsewhere,
                                                        opening.test_share, opening.split_seed);
    splits.test = table.test;
    splits.split_off = table.part != nullptr || (is_elsewhere && !fs::is_directory(opening.data_dir));
    part = table.part;
    splits.class_names = record.class_names;
    splits.encoder = record.encoder;
  } else {
    splits = data::open_dataset(is_own ? record.name : name, opening);
    check_same_classes(record, splits);
    if (splits.split_off) part = splits.test;
    if (is_elsewhere && splits.split_off) splits.test = data::concat({splits.train, splits.test});
  }
  TD_CHECK((splits.text != nullptr) == (record.text != nullptr) && splits.sound == record.sound &&
               ((!record.text && !record.sound) || splits.task == record.task),
           "data ", splits.name, ": the run was trained for ", record.task, " on ", record.name,
           "; this data is for ", splits.task, ". Choose another `data`.");
  const auto words_of = [](const data::TextEncoderPtr& text) {  // of both languages
    return text ? text->vocabulary.size() + (text->into ? text->into->size() : 0) : 0;
  };
  TD_CHECK(!record.text || words_of(splits.text) == words_of(record.text), "data ", splits.name,
           ": its words must be those of training, ", words_of(record.text), "; got ", words_of(splits.text),
           ". Choose another `data`.");
  const Dims sample = splits.test->get(0).at(0).shape();
  TD_CHECK(record.text || record.sound || (sample == model.input && splits.info.classes <= model.classes),
           "data ", splits.name, ": ", model.name, " takes samples of ", model.input, " in at most ",
           model.classes, " classes; got ", sample, " in ", splits.info.classes, ". Choose another `data`.");
  splits.task = record.task;
  splits.notices.clear();  // what opening says was said in training
  const uint64_t seed = record.opening.split_seed;
  // Whether training saw these samples; older versions took the first ones of a limit.
  const auto is_set = [&](const data::DatasetPtr& set, const std::string& fingerprint) {
    return data::fingerprint(*limited_to(set, record.limit, record.task, seed).taken(set)) == fingerprint ||
           (record.limit && data::fingerprint(*data::first(set, *record.limit)) == fingerprint);
  };
  const std::string place = str("'", io::one_line(splits.where), "'");
  if (is_own && !is_elsewhere && !record.test_data.empty() && !is_set(splits.test, record.test_data)) {
    TD_CHECK(
        !splits.split_off, "data ", splits.name, ": ", place,
        " has changed since the run was trained: what is split off for testing now would hold samples that "
        "it was trained on. Measure another file or folder by `data_dir`, or train again.");
    splits.notices.push_back(str("the test part of ", place, " has changed since the run was trained."));
  }
  if (is_elsewhere && splits.split_off) {
    const bool is_copy = is_own && !record.test_data.empty() &&
                         ((part && is_set(part, record.test_data)) || is_set(splits.test, record.train_data));
    splits.notices.push_back(
        str("measured on all ", splits.test->size(), record.encoder ? " rows" : " samples", " of ", place,
            is_copy ? ", among which are those that the run was trained on: this is no test." : "."));
  }
  // Of the run's own place they are alike; a run of an older version may not tell what they are.
  if ((is_elsewhere || record.byte_inputs) && !record.text && !record.sound)
    splits.test = made_alike(record, splits.test, pixels_of(splits.format, splits.byte_inputs), splits.name,
                             splits.encoder != nullptr, str("data ", splits.name, ": "));
  const Limited measured = limited_to(splits.test, limit, splits.task, seed);
  const std::string text = taken_text({{"test", &measured}}, seed, splits.notices);
  if (taken) *taken = text;
  splits.test = measured.taken(splits.test);
  return splits;
}

nn::NamedTensors weights_of(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? load_run("weights", path).weights : io::load_weights(path);
}

std::vector<std::string> load_fitting_weights(nn::Module& model, const std::string& path,
                                              std::vector<std::string>& notices) {
  const nn::NamedTensors given = weights_of(path);
  const std::string what = str("weights '", io::one_line(path), "': ");
  nn::LoadOptions loading{.strict = false, .source = "load '" + io::one_line(path) + "'"};
  nn::LoadReport report = model.load_state(given, loading);
  const size_t all = model.state().size();
  if (report.missing.size() == all && !report.prefix.empty()) {
    loading.prefix = report.prefix;
    report = model.load_state(given, loading);
    notices.push_back(str(what, "the names in it begin with '", loading.prefix, "', which is left out."));
  }
  const size_t left = report.missing.size() + report.mismatched.size();
  TD_CHECK(left < all, what, "nothing in it fits the model: it has ", given.size(), " tensors, the model ",
           all, ", and none is the same by name and shape. Give weights of this kind of model.");
  notices.push_back(str(what, "took ", all - left, " of the model's ", all, " tensors."));
  if (!report.mismatched.empty())
    notices.push_back(str(what, "of another shape, and drawn anew: ", listed(report.mismatched), "."));
  if (!report.missing.empty())
    notices.push_back(str(what, "not in the file, and drawn anew: ", listed(report.missing), "."));
  if (!report.unexpected.empty())
    notices.push_back(str(what, "in the file alone, and not used: ", listed(report.unexpected), "."));
  std::vector<std::string> drawn = report.mismatched;
  drawn.insert(drawn.end(), report.missing.begin(), report.missing.end());
  return drawn;
}

std::vector<nn::Module*> freeze_named(nn::Module& model, const std::vector<std::string>& patterns,
                                      const std::vector<std::string>& drawn,
                                      std::vector<std::string>& notices) {
  if (patterns.empty()) return {};
  for (const std::string& name : drawn)
    TD_CHECK(!is_named_by_any(patterns, name), "freeze: what is frozen must have come from `weights`; ", name,
             " did not fit, and was drawn anew. Leave it out of `freeze`, or give weights that fit.");
  std::vector<std::string> names;
  int64_t tensors = 0, numbers = 0, all = 0;
  for (auto& [name, parameter] : model.named_parameters()) {
    names.push_back(name);
    all += parameter.size();
    if (!is_named_by_any(patterns, name)) continue;
    parameter.set_requires_grad(false);
    ++tensors;
    numbers += parameter.size();
  }
  check_patterns("freeze", patterns, names);
  std::vector<nn::Module*> still;
  for (const auto& [name, module] : model.named_modules())
    if (dynamic_cast<nn::BatchNorm*>(module) && is_named_by_any(patterns, name + ".running_mean"))
      still.push_back(module);
  notices.push_back(str("freeze: ", tensors, " of ", names.size(), " parameters stay as they are, ", numbers,
                        " of ", all, " numbers",
                        still.empty() ? std::string()
                                      : str("; so do the statistics of ", still.size(),
                                            still.size() == 1 ? " batch norm" : " batch norms"),
                        "."));
  return still;
}

}  // namespace tandem
