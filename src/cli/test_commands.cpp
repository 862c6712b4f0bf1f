// tandem eval DIR and tandem predict DIR FILE…: what a saved run does.
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/setting_flags.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/train/task.h"
#include "tandem/train/train.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

/// Of how a saved run is used.
const std::vector<std::string> kSavedRunSettings = {"data", "data-dir",       "engine", "device",
                                                    "conv", "conv-workspace", "matmul", "threads"};
const std::pair<const std::string, std::string> kTrainedOn = {
    "data", "data set (default: the one it was trained on)"};

/// What the configurations of saved runs have in common with those of training.
template <class Config>
void take_settings(const SettingFlags& flags, Config& config) {
  const TrainConfig given = flags.config();
  config.data = given.data;
  config.data_dir = given.data_dir;
  config.engine = given.engine;
  config.device = given.device;
  config.machine = given.machine;
  if (given.limit) config.limit = *given.limit;
}

void warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "tandem: %s\n", with_flags(warning).c_str());
}

std::string class_name(const std::vector<std::string>& names, int64_t cls) {
  return static_cast<size_t>(cls) < names.size() ? names[static_cast<size_t>(cls)] : std::to_string(cls);
}
/// For tables of text: a name with a line break would break them.
std::string shown_class(const std::vector<std::string>& names, int64_t cls) {
  return io::one_line(class_name(names, cls), 60);
}

/// Lines of a text in one: a slash where one ends.
std::string with_slashes(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, " / ");
  return text;
}

/// Four digits behind the point, unless these say nothing.
std::string number(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size >= 0.01 && size < 1e15)) return fixed(value, 4);
  char text[40];
  std::snprintf(text, sizeof text, "%.7g", value);
  return text;
}

ordered_json scores_json(const ClassScores& s) {
  return {{"precision", s.precision}, {"recall", s.recall}, {"f1", s.f1}, {"support", s.support}};
}

void print_json(const EvalReport& r, Device device) {
  const Metrics& m = r.metrics;
  ordered_json line = {{"event", "eval"},
                       {"model", r.model},
                       {"data", r.data},
                       {"task", r.task},
                       {"device", to_string(device)},
                       {"samples", r.samples}};
  if (!r.taken.empty()) line["samples_taken"] = r.taken;
  for (const Metric& metric : m.values) line["test_" + metric.name] = metric.value;
  line["seconds"] = r.seconds;
  line["weights_sha256"] = r.weights_sha256;
  if (!r.pictures.empty()) line["pictures"] = r.pictures;
  if (m.confusion.classes() > 0) {
    line["macro"] = scores_json(m.confusion.macro());
    line["micro"] = scores_json(m.confusion.micro());
    line["classes"] = ordered_json::array();
    line["confusion"] = ordered_json::array();
  }
  for (int64_t c = 0; c < m.confusion.classes(); ++c) {
    ordered_json cls = scores_json(m.confusion.scores(c));
    if (!r.class_names.empty()) cls["name"] = class_name(r.class_names, c);
    line["classes"].push_back(cls);
    ordered_json row = ordered_json::array();
    for (int64_t p = 0; p < m.confusion.classes(); ++p) row.push_back(m.confusion.count(c, p));
    line["confusion"].push_back(row);
  }
  print_line(line);
}

/// Wider tables of classes are for --json.
constexpr int64_t kMostClassesShown = 20;

void print_text(const EvalReport& r) {
  const Metrics& m = r.metrics;
  Table table;
  table.add({"model", r.model + ", weights from " + r.path});
  table.add({"data", r.data + ", " + grouped(r.samples) + " samples"});
  if (!r.taken.empty()) table.add({"limit", r.taken});
  table.add({"test loss", fixed(m["loss"], 4)});
  for (const MetricInfo& info : r.infos)
    if (!std::isnan(m[info.name])) table.add({"test " + title_of(info.name), shown(info, m[info.name])});
  table.add({"sha256", r.weights_sha256});
  for (const std::string& picture : r.pictures) table.add({"drawn", picture});
  table.print();
  const int64_t count = m.confusion.classes();
  if (count == 0) return;

  Table classes({"class", "precision", "recall", "F1", "samples"}, {0, 1, 2, 3, 4});
  const auto add = [&](const std::string& name, const ClassScores& s) {
    classes.add({name, fixed(s.precision, 4), fixed(s.recall, 4), fixed(s.f1, 4), grouped(s.support)});
  };
  for (int64_t c = 0; c < count; ++c) add(shown_class(r.class_names, c), m.confusion.scores(c));
  add("macro", m.confusion.macro());
  add("micro", m.confusion.micro());
  std::printf("\n");
  classes.print();
  if (count > kMostClassesShown) return;

  std::vector<std::string> header = {"is \\ taken for"};
  std::vector<size_t> right = {0};
  for (int64_t c = 0; c < count; ++c) {
    header.push_back(shown_class(r.class_names, c));
    right.push_back(right.size());
  }
  Table confusion(header, right);
  for (int64_t c = 0; c < count; ++c) {
    std::vector<std::string> row = {shown_class(r.class_names, c)};
    for (int64_t p = 0; p < count; ++p) row.push_back(std::to_string(m.confusion.count(c, p)));
    confusion.add(row);
  }
  std::printf("\n");
  confusion.print();
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  struct Flags {
    EvalConfig config;
    SettingFlags settings;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  EvalConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand("eval", "test a trained model");
  cmd->add_option("DIR", c.folder, "folder of a run, the --out of 'tandem train'")->required();
  std::vector<std::string> names = kSavedRunSettings;
  names.push_back("limit");
  flags->settings.add(*cmd, names,
                      {kTrainedOn, {"limit", "test on so many samples, drawn by chance with every class"}});
  cmd->add_flag("--best", c.best, "the weights of the best epoch (of 'train --best')");
  cmd->add_flag("--json", flags->json, "print one JSON object");
  cmd->callback([flags, &action] {
    action = [flags] {
      as_usage([&] {
        take_settings(flags->settings, flags->config);
        check(flags->config);
      });
      const EvalReport r = evaluate(flags->config);
      warn(r.warnings);
      if (flags->json)
        print_json(r, flags->config.device);
      else
        print_text(r);
    };
  });
}

void add_predict(CLI::App& app, Action& action) {
  struct Flags {
    PredictConfig config;
    SettingFlags settings;
    std::string to;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  PredictConfig& c = flags->config;
  CLI::App* cmd =
      app.add_subcommand("predict", "say what a trained model makes of images, tables, arrays or texts");
  cmd->add_option("DIR", c.folder, "folder of a run, the --out of 'tandem train'")->required();
  cmd->add_option(
      "FILE", c.files,
      "images, or a table (.csv, .tsv) or an array (.npy), or texts (in quotes, or files); none: samples "
      "of a data set");
  flags->settings.add(*cmd, kSavedRunSettings, {kTrainedOn});
  cmd->add_option("--index", c.indices, "samples of the data set's test part: 3,17")
      ->delimiter(',')
      ->allow_extra_args(false);  // what follows is a file
  cmd->add_option("--limit", c.limit, "the first so many samples, where no --index is given")
      ->capture_default_str();
  cmd->add_option("--top", c.top, "classes to name")->capture_default_str();
  cmd->add_flag("--invert", c.invert, "files show dark ink on white, and the data bright ink on black");
  cmd->add_option("--words", c.generate.count, "a language model: words to go on with")
      ->capture_default_str();
  cmd->add_option(
         "--temperature", c.generate.temperature,
         "a language model: draw words, 1 as it expects them, more is bolder; 0: the most probable ones")
      ->capture_default_str();
  cmd->add_option(
         "--beams", c.beams,
         "a translation: beginnings that are followed at a time, of which the best is taken; 1: greedy")
      ->capture_default_str();
  cmd->add_option("--seed", c.generate.seed, "of --temperature")->capture_default_str();
  cmd->add_flag("--best", c.best, "the weights of the best epoch (of 'train --best')");
  cmd->add_option("--to", flags->to,
                  "write the predictions to this CSV file, beside the table's own columns; of speech, its "
                  "mel spectrogram to this .npy file");
  cmd->add_flag("--json", flags->json, "print one JSON object per line");
  cmd->callback([flags, cmd, &action] {
    action = [flags, cmd] {
      as_usage([&] {
        take_settings(flags->settings, flags->config);
        check(flags->config);
        const PredictConfig& given = flags->config;
        TD_CHECK(cmd->count("--limit") == 0 || (given.files.empty() && given.indices.empty()),
                 "limit: acts only on samples of a data set without --index; got ",
                 given.files.empty() ? "--index" : "files", ". Leave --limit out.");
      });
      const PredictReport r = predict(flags->config);
      warn(r.warnings);
      if (!flags->to.empty()) {
        write_predictions(r, flags->to);
        const bool is_speech = !r.predictions.empty() && r.predictions[0].mels.defined();
        if (!flags->json)
          std::printf(
              "%s %s in %s\n",
              grouped(is_speech ? r.predictions[0].mels.size(0) : static_cast<int64_t>(r.predictions.size()))
                  .c_str(),
              is_speech ? "frames" : "predictions", flags->to.c_str());
        return;
      }
      Table table;
      const bool is_text = make_task(r.task)->input_kind() == TaskInput::text;
      for (const Prediction& p : r.predictions) {
        ordered_json top = ordered_json::array();
        std::vector<std::string> row = {is_text ? io::one_line(p.source, 60) : p.source,
                                        p.label.empty() ? "" : "is " + io::one_line(p.label, 60)};
        for (const Prediction::Guess& guess : p.top) {
          top.push_back({{"class", guess.cls}, {"name", guess.name}, {"probability", guess.probability}});
          row.push_back(str(io::one_line(guess.name, 60), "  ", percent(guess.probability)));
        }
        for (const double value : p.values) row.push_back(number(value));
        if (p.mels.defined())
          row.push_back(str(grouped(p.mels.size(0)), " frames of ", p.mels.size(1), " mels"));
        if (!p.text.empty()) row.push_back(io::one_line(with_slashes(p.text), 2000));
        table.add(row);
        if (!flags->json) continue;
        ordered_json line = {{"event", "prediction"}, {"source", p.source}};
        if (!p.label.empty()) line["label"] = p.label;
        if (has_classes(r.task))
          line["top"] = top;
        else if (gives_text(r.task))
          line["text"] = p.text;
        else if (p.mels.defined())
          line["frames"] = p.mels.size(0);
        else
          line["values"] = p.values;
        print_line(line);
      }
      if (!flags->json) table.print();
    };
  });
}

}  // namespace tandem::cli
