// tandem bench: how long a step of every model takes, beside a result that was kept.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/setting_flags.h"
#include "cli/stopping.h"
#include "tandem/io/file.h"
#include "tandem/io/json.h"
#include "tandem/train/environment.h"
#include "tandem/train/profile_model.h"
#include "tandem/zoo/zoo.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kSlip = 1.05;  // slower than this is marked

struct BenchFlags {
  std::vector<std::string> models, dtypes;
  SettingFlags settings;
  std::string against, save;
  bool infer = false, json = false;
};

struct TimedStep {
  std::string model, dtype;
  int64_t batch = 0;
  double ms = 0;  // 0: it failed
  std::string error;
};
std::string key_of(const std::string& model, const std::string& dtype, int64_t batch,
                   const std::string& mode) {
  return str(model, " ", dtype, " ", batch, " ", mode);
}

/// The milliseconds of a result that was kept, by model, type, batch and mode.
std::map<std::string, double> kept_result(const std::string& path) {
  std::map<std::string, double> ms;
  if (path.empty()) return ms;
  const std::vector<uint8_t> bytes = io::read_file("bench", path);
  const auto file = io::parse_json<ordered_json>(str("bench: '", path, "': "),
                                                 {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                                 "Give a file that --save wrote.");
  const auto refuse = [&] {
    return Error(str("bench: --against must be a file that --save wrote; got '", path, "'."));
  };
  if (!file.is_object() || !file.contains("steps") || !file["steps"].is_array()) throw refuse();
  try {
    for (const ordered_json& row : file["steps"])
      ms[key_of(row.at("model"), row.at("dtype"), row.at("batch"), row.at("mode"))] =
          row.at("ms").get<double>();
  } catch (const ordered_json::exception&) {
    throw refuse();
  }
  return ms;
}

TimedStep time_one(const BenchFlags& flags, const std::string& model, const std::string& dtype,
                   const std::atomic<bool>& stop) {
  SettingValues values = {{"model", model}};
  for (const auto& [name, value] : recipe(model, zoo::is_description_path(model) ? "quick" : "paper"))
    if (name == "batch" || name == "optimizer") values[name] = value;
  if (!dtype.empty()) values["dtype"] = dtype;
  TimedStep row{model, dtype, 0, 0, ""};
  try {
    TrainConfig config = flags.settings.config(values);
    config.stop = &stop;
    row.batch = config.batch;
    row.ms = step_nanoseconds(config, flags.infer) / 1e6;
  } catch (const Error& error) {
    row.error = error.what();
  }
  return row;
}

void save_result(const BenchFlags& flags, const std::vector<TimedStep>& rows, Device device) {
  ordered_json steps = ordered_json::array();
  for (const TimedStep& row : rows)
    if (row.error.empty())
      steps.push_back({{"model", row.model},
                       {"dtype", row.dtype},
                       {"batch", row.batch},
                       {"mode", flags.infer ? "infer" : "train"},
                       {"ms", std::stod(fixed(row.ms, 4))}});
  const ordered_json file = {
      {"environment", io::parse_json<ordered_json>("environment: ", environment_json(device))},
      {"steps", steps}};
  io::write_atomically(flags.save, [&](io::OutputFile& out) { out.write(file.dump(1) + "\n"); });
}

void show(const BenchFlags& flags, const TimedStep& row, double before, Table& table) {
  const double ratio = before > 0 && row.ms > 0 ? row.ms / before : 0;
  if (flags.json) {
    ordered_json line = {{"model", row.model},
                         {"dtype", row.dtype},
                         {"batch", row.batch},
                         {"mode", flags.infer ? "infer" : "train"},
                         {"ms", row.error.empty() ? ordered_json(row.ms) : nullptr},
                         {"before_ms", before > 0 ? ordered_json(before) : nullptr},
                         {"ratio", ratio > 0 ? ordered_json(ratio) : nullptr}};
    if (!row.error.empty()) line["error"] = row.error;
    print_line(line);
    std::fflush(stdout);
    return;
  }
  table.add({row.model, row.dtype, std::to_string(row.batch), row.error.empty() ? fixed(row.ms, 3) : "-",
             before > 0 ? fixed(before, 3) : "", ratio > 0 ? fixed(ratio, 2) : "",
             !row.error.empty()               ? row.error
             : ratio > kSlip                  ? "slower"
             : ratio > 0 && ratio < 1 / kSlip ? "faster"
                                              : ""});
}

void run(BenchFlags& flags) {
  std::map<std::string, double> before;
  std::vector<std::string> models = flags.models, dtypes = flags.dtypes;
  if (models.empty())
    for (const zoo::ModelInfo& info : zoo::models()) models.push_back(info.name);
  if (dtypes.empty()) dtypes = {""};
  TrainConfig first;
  as_usage([&] {
    first = flags.settings.config({{"model", models[0]}});
    before = kept_result(flags.against);
  });
  const std::atomic<bool>& stop = stop_on_signals();
  std::vector<TimedStep> rows;
  Table table({"model", "type", "batch", "ms", "before", "ratio", ""}, {2, 3, 4, 5});
  for (const std::string& model : models)
    for (const std::string& dtype : dtypes) {
      if (!flags.json && isatty(STDERR_FILENO))
        std::fprintf(stderr, "\r\033[K%s %s", model.c_str(), dtype.c_str());
      rows.push_back(time_one(flags, model, dtype, stop));
      if (stop) throw Interrupted("stopped before all models were timed; nothing was saved.");
      TimedStep& row = rows.back();
      if (row.dtype.empty()) row.dtype = first.device.is_cpu() ? "f32" : tf32() ? "tf32" : "f32";
      const auto known = before.find(key_of(model, row.dtype, row.batch, flags.infer ? "infer" : "train"));
      show(flags, row, known == before.end() ? 0 : known->second, table);
    }
  if (!flags.json && isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
  if (!flags.json) table.print();
  if (!flags.save.empty()) save_result(flags, rows, first.device);
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* cmd =
      app.add_subcommand("bench", "time a training step of each model, beside a result that was kept");
  cmd->add_option("MODEL", flags->models, "models to time (default: all)");
  cmd->add_option("--dtypes", flags->dtypes,
                  "types to time each in: tf32,bf16 (default: that of --dtype of train)")
      ->delimiter(',');
  flags->settings.add(*cmd, {"batch", "engine", "device", "conv", "conv-workspace", "matmul", "threads"},
                      {{"batch", "samples per step (default: of the study that the model comes from)"}});
  cmd->add_flag("--infer", flags->infer, "forward passes in evaluation mode, not training steps");
  cmd->add_option("--against", flags->against, "a file that --save wrote: its times stand beside these");
  cmd->add_option("--save", flags->save, "keep the times in this file, as JSON");
  cmd->add_flag("--json", flags->json, "print one JSON object per model and type");
  cmd->callback([flags, &action] { action = [flags] { run(*flags); }; });
}

}  // namespace tandem::cli
