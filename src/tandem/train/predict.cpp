// What models make of samples, and saved runs of images, tables, arrays and texts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <span>
#include <sstream>

#include "tandem/core/rng.h"
#include "tandem/core/shortest.h"
#include "tandem/core/tape.h"
#include "tandem/data/arrays.h"
#include "tandem/data/compose.h"
#include "tandem/data/image_set.h"
#include "tandem/data/pairs.h"
#include "tandem/data/speech_set.h"
#include "tandem/data/text_splits.h"
#include "tandem/data/transcript.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/decode.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/step.h"
#include "tandem/train/train.h"

namespace tandem {
namespace {

std::string class_name(const DataRecord& data, int64_t cls) {
  return static_cast<size_t>(cls) < data.class_names.size() ? data.class_names[static_cast<size_t>(cls)]
                                                            : std::to_string(cls);
}

/// The shortest text that gives the number back: as f32, where it is one.
std::string text_of(double value) {
  const auto narrow = static_cast<float>(value);
  return narrow == value || std::isnan(value) ? shortest(narrow) : shortest(value);
}

std::string share_text(double share) {
  std::ostringstream out;
  out.precision(7);
  out << share;
  return out.str();
}

/// A target of a table in its own unit: of the numbers that training takes for it, the one with the fewest digits, which
/// is what the table says.
double in_own_unit(const data::TableEncoder& encoder, double standardised) {
  const double mean = encoder.decode_target(0), exact = encoder.decode_target(standardised);
  const auto wanted = static_cast<float>(standardised);
  for (int digits = 1; digits < 17; ++digits) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*e", digits - 1, exact);
    const double rounded = std::strtod(text, nullptr);
    if (static_cast<float>((rounded - mean) / encoder.target_deviation()) == wanted) return rounded;
  }
  return exact;
}

/// The target of a sample in words; numbers of tables in their own unit; speech has none.
std::string label_of(const DataRecord& data, TaskAnswer kind, const Tensor& target) {
  if (kind == TaskAnswer::speech) return "";
  if (kind == TaskAnswer::one_class) return class_name(data, target.item<int64_t>());
  if (kind == TaskAnswer::transcript) return data::transcript_text(target.to_vector<int64_t>());
  std::string text;
  for (const double value : cast(target, DType::f64).to_vector<double>())
    text += (text.empty() ? "" : " ") + text_of(data.encoder ? in_own_unit(*data.encoder, value) : value);
  return text;
}

/// In capitals or not.
bool ends_with(const std::string& path, const std::string& ending) {
  if (path.size() <= ending.size()) return false;
  return std::equal(ending.rbegin(), ending.rend(), path.rbegin(), [](char wanted, char c) {
    return wanted == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  });
}
bool is_table(const std::string& path) {
  for (const char* ending : {".csv", ".tsv", ".csv.gz", ".tsv.gz"})
    if (ends_with(path, ending)) return true;
  return false;
}

/// The same of an argument that may be a text: "see prices.csv" names no table, unless there is a file of that name.
bool is_text_table(const std::string& argument) {
  return is_table(argument) && (argument.find(' ') == std::string::npos || data::is_file(argument));
}

/// What an argument of a run on text stands for: the content of the file of that name, or itself.
std::string text_from(const std::string& argument) {
  TD_CHECK(!is_text_table(argument), "predict '", io::one_line(argument),
           "': the run was trained on texts, not on a table. Give texts, or .txt files.");
  if (data::is_file(argument)) return data::read_text(argument);
  std::error_code ignored;
  TD_CHECK(!std::filesystem::is_directory(argument, ignored), "predict '", io::one_line(argument),
           "': must be a regular file or a text; got a folder. Name the files in it.");
  const bool begins_as_path =
      argument.starts_with("/") || argument.starts_with("./") || argument.starts_with("../");
  const bool is_path =
      (ends_with(argument, ".txt") || begins_as_path) && argument.find(' ') == std::string::npos;
  TD_CHECK(!is_path, "predict '", io::one_line(argument),
           "': there must be a file of that name; there is none. Give one that is there, or a text.");
  io::check_utf8("predict: ", argument);
  return argument;
}

/// A file as a sample of the data that a run was trained on.
Tensor sample_from(const std::string& path, const data::ImageFormat& format, bool invert) {
  const Tensor image =
      io::read_image(path, {.channels = format.channels == 1 ? io::Channels::gray : io::Channels::rgb});
  try {
    return data::image_to_input(invert ? sub(255, image) : image, format);  // stays u8
  } catch (Error& error) {
    error.prepend(str("predict '", io::one_line(path), "': "));
    throw;
  }
}

/// The most probable classes of each row of logits.
void guess(const Tensor& logits, const DataRecord& data, int64_t top, std::vector<Prediction>& predictions) {
  const NoGrad off;
  const int64_t classes = logits.size(1);
  const std::vector<double> shares = softmax(cast(logits, DType::f64), 1).to_vector<double>();
  for (size_t i = 0; i < predictions.size(); ++i) {
    const double* row = shares.data() + static_cast<int64_t>(i) * classes;
    std::vector<int64_t> order(static_cast<size_t>(classes));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    for (int64_t k = 0; k < std::min(top, classes); ++k) {
      const int64_t cls = order[static_cast<size_t>(k)];
      predictions[i].top.push_back({cls, class_name(data, cls), row[cls]});
    }
  }
}

/// The samples that a run is asked about, and what they are called.
class Asked {
 public:
  Asked(const PredictConfig& config, const SavedRun& run, PredictReport& report)
      : config_(config), run_(run), report_(report), task_(make_task(run.data.task)) {}

  data::DatasetPtr samples() {
    if (config_.files.empty()) return of_data_set();
    const std::string& first = config_.files.front();
    if (task_->input_kind() == TaskInput::sound) return of_sounds();
    if (run_.data.text) {
      const auto table = std::find_if(config_.files.begin(), config_.files.end(), is_text_table);
      return table != config_.files.end() ? of_text_table(*table) : of_texts();
    }
    if (is_table(first)) return of_table(first);
    if (ends_with(first, ".npy")) return of_array(first);
    return of_images();
  }

 private:
  void check_alone(const char* kind) const {
    TD_CHECK(config_.files.size() == 1, "predict: takes one ", kind, " at a time, alone; got ",
             config_.files.size(), " arguments. Give them one by one.");
  }
  data::DatasetPtr of_table(const std::string& path) {
    check_alone("table");
    TD_CHECK(run_.data.encoder, "predict '", io::one_line(path), "': the run was trained on ", run_.data.name,
             ", not on a table. Give what it was trained on.");
    report_.table = data::read_table(path, run_.data.encoder->reading());
    report_.target = run_.data.encoder->target();
    const data::EncodedTable encoded = run_.data.encoder->encode(*report_.table);
    for (int64_t i = 0; i < report_.table->rows(); ++i)
      report_.predictions.push_back(
          {str("line ", report_.table->lines[static_cast<size_t>(i)], " of ", report_.table->source),
           encoded.target.defined() ? label_of(run_.data, task_->answer_kind(), encoded.target[i]) : "",
           {},
           {}});
    return std::make_shared<data::TensorSet>(std::vector<Tensor>{encoded.features}, "rows");
  }
  data::DatasetPtr of_array(const std::string& path) {
    check_alone("array");
    TD_CHECK(!run_.data.encoder, "predict '", io::one_line(path),
             "': the run was trained on a table. Give a .csv file with its columns.");
    const Tensor array = io::load_npy(path);
    const Dims want = choose_model(run_).info.input;
    Dims got = array.shape();
    if (got.rank() > 0) got.erase(0);
    TD_CHECK(array.rank() >= 1 && array.size(0) >= 1 && got == want, "predict '", io::one_line(path),
             "': must hold samples of ", want, " as (n, …); got ", array.shape(), ".");
    const std::string where = str("predict '", io::one_line(path), "': ");
    const auto inputs =
        std::make_shared<data::TensorSet>(std::vector<Tensor>{data::array_inputs(array, where)}, "rows");
    for (int64_t i = 0; i < array.size(0); ++i)
      report_.predictions.push_back({str("row ", i, " of '", io::one_line(path), "'"), "", {}, {}});
    return alike_inputs(run_.data, inputs, array.dtype() == DType::u8, where);
  }
  data::DatasetPtr of_text_table(const std::string& path) {
    const data::TextEncoder& encoder = *run_.data.text;
    TD_CHECK(!encoder.column.empty(), "predict '", io::one_line(path),
             "': the run was trained on texts, not on a table. Give texts, or .txt files.");
    check_alone("table");
    report_.table = data::read_table(path, encoder.reading);
    report_.target = encoder.target;
    const data::Table& table = *report_.table;
    const data::TextColumn& texts = table.column(encoder.column);
    const std::optional<size_t> known = table.find(encoder.target);
    auto set = std::make_shared<data::TextSet>("rows");
    for (int64_t i = 0; i < table.rows(); ++i) {
      const std::string name = str("line ", table.lines[static_cast<size_t>(i)], " of ", table.source);
      TD_CHECK(!texts.is_missing(i), "predict: ", name, ", column '", io::one_line(encoder.column, 50),
               "': must hold text; it is empty. Fill it, or remove the row.");
      set->add(encoder.encode(texts[i]), 0, name);
      report_.predictions.push_back({name, known ? std::string(table.columns[*known][i]) : "", {}, {}});
    }
    return set;
  }
  data::DatasetPtr of_texts() {
    auto set = std::make_shared<data::TextSet>("texts");
    for (const std::string& argument : config_.files) {
      const std::string text = text_from(argument);
      TD_CHECK(text.find_first_not_of(" \t\r\n") != std::string::npos, "predict: a text must have a word; '",
               io::one_line(argument, 60), "' has none. Give a text, or a file of one.");
      set->add(run_.data.text->encode(text), 0, argument);
      report_.predictions.push_back({argument, "", {}, {}});
    }
    return set;
  }
  data::DatasetPtr of_sounds() {
    for (const std::string& file : config_.files) report_.predictions.push_back({file, "", {}, {}});
    return std::make_shared<data::SoundFiles>(config_.files, *run_.data.sound);
  }
  data::DatasetPtr of_images() {
    TD_CHECK(run_.data.format, "predict '", io::one_line(config_.folder), "': the run was trained on ",
             run_.data.name, ", which are no images that files could be made like.",
             run_.data.encoder ? " Give a .csv file with its columns." : "");
    std::vector<Tensor> samples;
    for (const std::string& file : config_.files) {
      samples.push_back(sample_from(file, *run_.data.format, config_.invert));
      report_.predictions.push_back({file, "", {}, {}});
    }
    return std::make_shared<data::TensorSet>(std::vector<Tensor>{stack(samples)}, "files");
  }
  data::DatasetPtr of_data_set() {
    const data::Splits data =
        open_test_data(run_.data, choose_model(run_).info, config_.data, config_.data_dir, {});
    report_.warnings.insert(report_.warnings.end(), data.notices.begin(), data.notices.end());
    std::vector<int64_t> indices = config_.indices;
    if (indices.empty()) {
      indices.resize(static_cast<size_t>(std::min(config_.limit, data.test->size())));
      std::iota(indices.begin(), indices.end(), int64_t{0});
    }
    for (const int64_t index : indices)
      TD_CHECK(index < data.test->size(), "index: must be at least 0 and below ", data.test->size(),
               ", the number of test samples of ", data.name, "; got ", index, ".");
    const auto chosen = std::make_shared<data::Subset>(data.test, indices);
    if (run_.data.encoder) report_.target = run_.data.encoder->target();
    const TaskAnswer kind = task_->answer_kind();
    const bool is_listed = kind != TaskAnswer::continuation && kind != TaskAnswer::translation;
    for (size_t i = 0; i < indices.size() && is_listed; ++i)
      report_.predictions.push_back({str(data.name, " ", indices[i]),
                                     label_of(run_.data, kind, chosen->get(static_cast<int64_t>(i)).at(1)),
                                     {},
                                     {}});
    return chosen;
  }

  const PredictConfig& config_;
  const SavedRun& run_;
  PredictReport& report_;
  TaskPtr task_;
};

/// How a language model goes on with texts, or with windows of the test part.
void go_on(nn::Module& model, const PredictConfig& config, const SavedRun& run, PredictReport& report) {
  const data::Vocabulary& words = run.data.text->vocabulary;
  GenerateOptions options = config.generate;
  for (const std::optional<int64_t>& number : {words.padding(), words.unknown(), words.begin()})
    if (number) options.never.push_back(*number);
  const auto add = [&](const std::string& source, const std::vector<int64_t>& begin) {
    TD_CHECK(!begin.empty(), "predict: a text to go on with must have a word; got '",
             io::one_line(source, 60), "'.");
    const std::vector<int64_t> next = generate(model, begin, options, config.engine);
    report.predictions.push_back({source, "", {}, {}, words.decode(next)});
  };
  for (const std::string& argument : config.files) add(argument, words.encode(text_from(argument)));
  if (!config.files.empty()) return;
  const data::DatasetPtr windows = Asked(config, run, report).samples();
  for (int64_t i = 0; i < windows->size(); ++i) {
    const std::vector<Tensor> sample = windows->get(i);
    std::vector<int64_t> begin = sample.at(0).to_vector<int64_t>();
    const std::vector<int64_t> next = sample.at(1).to_vector<int64_t>();
    begin.resize(
        static_cast<size_t>(std::count_if(next.begin(), next.end(), [](int64_t t) { return t >= 0; })));
    add(words.decode(begin), begin);
  }
}

/// Samples of sources alone.
class Sources final : public data::Dataset {
 public:
  void add(std::vector<int64_t> tokens) { tokens_.push_back(std::move(tokens)); }
  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::vector<Tensor> get(int64_t i) const override {
    const std::vector<int64_t>& row = tokens_.at(static_cast<size_t>(i));
    return {from_vector(row, {static_cast<Dim>(row.size())})};
  }
  std::string describe() const override { return "texts"; }

 private:
  std::vector<std::vector<int64_t>> tokens_;
};

/// Translations of texts and of the lines of files, or of samples of the test part.
void translate(nn::Module& model, const PredictConfig& config, const SavedRun& run, PredictReport& report) {
  const data::Vocabulary &from = run.data.text->vocabulary, &into = *run.data.text->into;
  Sources sources;
  for (const std::string& argument : config.files) {
    const std::string text = text_from(argument);
    for (const std::string& line : data::is_file(argument) ? data::lines_of(text) : std::vector{text}) {
      sources.add(data::encode_source(from, line));
      report.predictions.push_back({line, "", {}, {}});
    }
  }
  if (config.files.empty()) {
    const data::DatasetPtr pairs = Asked(config, run, report).samples();
    for (int64_t i = 0; i < pairs->size(); ++i) {
      const std::vector<Tensor> sample = pairs->get(i);
      const auto text_of_tokens = [](const data::Vocabulary& words, const Tensor& tokens) {
        std::vector<int64_t> numbers = tokens.to_vector<int64_t>();
        std::erase(numbers, words.end().value());
        return words.decode(numbers);
      };
      sources.add(sample.at(0).to_vector<int64_t>());
      report.predictions.push_back(
          {text_of_tokens(from, sample[0]), text_of_tokens(into, sample.at(1)), {}, {}});
    }
  }
  const Tensor written =
      predict(model, sources,
              {.task = task_of(run.data, {.beams = config.beams}), .engine = config.engine, .batch = 32});
  for (size_t i = 0; i < report.predictions.size(); ++i)
    report.predictions[i].text = into.decode(written[static_cast<int64_t>(i)].to_vector<int64_t>());
}

/// What a run that speaks makes of texts, or of those of test samples.
void speak(nn::Module& model, const PredictConfig& config, const SavedRun& run, PredictReport& report) {
  const data::DatasetPtr asked = Asked(config, run, report).samples();
  for (size_t i = 0; i < config.files.size(); ++i)
    TD_CHECK(asked->get(static_cast<int64_t>(i)).at(0).size() > 0,
             "predict: a text to speak must have a character; got '", io::one_line(config.files[i], 60),
             "'.");
  // Each by itself and with the same random numbers, so that what is made of a text does not depend on the others.
  const GeneratorState before = generator_state();
  for (size_t i = 0; i < report.predictions.size(); ++i) {
    manual_seed(0);
    const std::vector<Tensor> made =
        predict_all(model, data::Subset(asked, {static_cast<int64_t>(i)}), 1, config.engine,
                    {.task = task_of(run.data), .autocast = run.autocast});
    Prediction& prediction = report.predictions[i];
    prediction.mels = cast(made.at(0)[0], DType::f32);
    if (made.at(2).item<int64_t>() == 0)
      report.warnings.push_back(str("'", io::one_line(prediction.source, 60),
                                    "': did not come to an end, and was cut after ", prediction.mels.size(0),
                                    " frames. Train for longer, or give a shorter text."));
  }
  set_generator_state(before);
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

Tensor predict(nn::Module& model, const data::Dataset& dataset, const PredictOptions& options) {
  check_between("batch", options.batch, 1, kMostBatch);
  return predict_all(model, dataset, options.batch, options.engine,
                     {.task = options.task, .autocast = options.autocast, .workers = options.workers})
      .at(0);
}

void check(const PredictConfig& config) {
  check_data_name(config.data, config.data_dir);
  check_between("limit", config.limit, 1);
  check_between("top", config.top, 1);
  check_between("beams", config.beams, 1, 1000);
  check(config.generate);
  TD_CHECK(config.generate.seed == 0 || config.generate.temperature > 0,
           "seed: acts only with a temperature above 0, where words are drawn; got ", config.generate.seed,
           " without. Give `temperature` 1, or leave `seed` out.");
  check(config.machine);
  for (const int64_t index : config.indices) check_between("index", index, 0);
  TD_CHECK(config.files.empty() || (config.data.empty() && config.indices.empty()),
           "predict: takes files, or a data set and an index; got both. Leave one out.");
  TD_CHECK(!config.invert || !config.files.empty(), "invert: is for files; got none.");
}

PredictReport predict(const PredictConfig& config) {
  check(config);
  const MachineScope machine(config.machine);
  check_device(config.device);
  const SavedRun run = load_run("predict", config.folder, config.best);
  const std::unique_ptr<nn::Module> model = make_model(run, config.device);
  PredictReport report;
  report.model = run.model;
  report.path = run.path;
  report.task = run.data.task;
  report.warnings = run.warnings;
  const TaskAnswer kind = make_task(run.data.task)->answer_kind();
  TD_CHECK(config.beams == PredictConfig{}.beams || kind == TaskAnswer::translation,
           "beams: are of translations; the run is of ", run.data.task, ". Leave `beams` out.");
  if (kind == TaskAnswer::continuation) {
    go_on(*model, config, run, report);
    return report;
  }
  TD_CHECK(config.generate.temperature == 0 && config.generate.count == GenerateOptions{}.count,
           "words and temperature: are of language models; the run is of ", run.data.task,
           ". Leave them out.");
  if (kind == TaskAnswer::translation) {
    translate(*model, config, run, report);
    return report;
  }
  if (kind == TaskAnswer::speech) {
    speak(*model, config, run, report);
    return report;
  }
  const data::DatasetPtr samples = Asked(config, run, report).samples();
  const Tensor answers = predict(
      *model, *samples, {.task = task_of(run.data), .engine = config.engine, .autocast = run.autocast});
  if (kind == TaskAnswer::one_class) {
    guess(answers, run.data, config.top, report.predictions);
    return report;
  }
  if (kind == TaskAnswer::transcript) {
    const auto steps = static_cast<size_t>(answers.size(1));
    const std::vector<int64_t> paths = answers.to_vector<int64_t>();
    for (size_t i = 0; i < report.predictions.size(); ++i)
      report.predictions[i].text =
          data::transcript_text(ctc_collapse(std::span(paths).subspan(i * steps, steps)));
    return report;
  }
  const std::vector<double> values = cast(answers, DType::f64).to_vector<double>();
  const size_t each = values.size() / report.predictions.size();
  for (size_t i = 0; i < values.size(); ++i) report.predictions[i / each].values.push_back(values[i]);
  return report;
}

void write_predictions(const PredictReport& report, const std::string& path) {
  const bool is_speech = !report.predictions.empty() && report.predictions[0].mels.defined();
  TD_CHECK(is_speech || ends_with(path, ".csv") || !std::filesystem::path(path).has_extension(),
           "to: predictions are written as CSV, into a file whose name ends in .csv; got '",
           io::one_line(path), "'. 'tandem predict --json' prints them as JSON.");
  if (!is_speech)
    return io::write_atomically(path, [&](io::OutputFile& file) { file.write(predictions_csv(report)); });
  TD_CHECK(ends_with(path, ".npy"),
           "to: speech is written as an array, (frames, mels), whose name ends in .npy; got '",
           io::one_line(path), "'.");
  TD_CHECK(report.predictions.size() == 1, "to: an array holds one text; got ", report.predictions.size(),
           ". Give them one by one.");
  io::save_npy(path, report.predictions[0].mels);
}

std::string predictions_csv(const PredictReport& report) {
  const bool with_classes = has_classes(report.task), with_text = gives_text(report.task);
  std::string out;
  const auto add = [&out, begins = true](const std::string& cell) mutable {
    out += (begins ? "" : ",") + csv_cell(cell);
    begins = false;
  };
  const auto line = [&](const std::vector<std::string>& cells) {
    auto cell = add;
    for (const std::string& text : cells) cell(text);
    out += "\n";
  };
  const size_t numbers =
      report.predictions.empty() ? 1 : std::max<size_t>(report.predictions[0].values.size(), 1);
  std::vector<std::string> header =
      report.table ? report.table->names : std::vector<std::string>{"source", "label"};
  const std::string predicted = report.target.empty() ? "predicted" : "predicted " + report.target;
  for (size_t k = 0; k < numbers; ++k) header.push_back(numbers == 1 ? predicted : str(predicted, " ", k));
  if (with_classes) header.push_back("probability");
  line(header);
  for (size_t i = 0; i < report.predictions.size(); ++i) {
    const Prediction& p = report.predictions[i];
    std::vector<std::string> cells;
    if (report.table)
      for (const data::TextColumn& column : report.table->columns)
        cells.emplace_back(column[static_cast<int64_t>(i)]);
    else
      cells = {p.source, p.label};
    for (const double value : p.values) cells.push_back(text_of(value));
    if (with_text) cells.push_back(p.text);
    if (with_classes) {
      cells.push_back(p.top.at(0).name);
      cells.push_back(share_text(p.top[0].probability));
    }
    line(cells);
  }
  return out;
}

}  // namespace tandem
