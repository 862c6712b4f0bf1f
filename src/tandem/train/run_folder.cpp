// The folder of a run.
#include "tandem/train/run_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tandem/io/file.h"
#include "tandem/io/safetensors.h"
#include "tandem/train/checkpoint.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string quoted(const std::string& path) { return "'" + io::one_line(path) + "'"; }
std::string config_path(const std::string& folder) { return (fs::path(folder) / "config.json").string(); }
std::string weights_path(const std::string& folder) {
  return (fs::path(folder) / "model.safetensors").string();
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// runs/lenet for 1, runs/lenet-2 for 2 …
std::string numbered(const std::string& model, int n) {
  return (fs::path("runs") / (n == 1 ? model : cat(model, "-", n))).string();
}

/// Makes the folder and those above it; true where it is new.
bool make_folder(const std::string& folder) {
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  TD_CHECK(!error && fs::is_directory(folder, error), "train: cannot make the folder ", quoted(folder), ": ",
           error ? error.message() : "a file of that name is in the way", ". Choose another with --out.");
  return is_new;
}

std::string folder_to_resume(const TrainConfig& config) {
  std::string folder = config.out;
  if (folder.empty()) {
    int last = 0;
    while (exists(numbered(config.model, last + 1))) ++last;
    TD_CHECK(last > 0, "resume: there is no run of ", config.model, " in ", quoted(numbered(config.model, 1)),
             ". Name its folder with --out, or begin one without --resume.");
    folder = numbered(config.model, last);
  }
  TD_CHECK(exists(config_path(folder)), "resume ", quoted(folder),
           ": the folder holds no run. Name the right one with --out, or begin one without --resume.");
  return folder;
}

}  // namespace

std::string open_run_folder(const TrainConfig& config) {
  if (config.resume) return folder_to_resume(config);
  if (config.out.empty()) {
    int n = 1;
    while (exists(numbered(config.model, n)) || !make_folder(numbered(config.model, n))) ++n;
    return numbered(config.model, n);
  }
  make_folder(config.out);
  TD_CHECK(list_checkpoints(config.out).empty() && !exists(weights_path(config.out)), "train: the folder ",
           quoted(config.out), " holds a run already. Go on with it by --resume, or choose another --out.");
  return config.out;
}

void save_config(const std::string& folder, const TrainConfig& config, const std::string& settings) {
  ordered_json out = ordered_json::parse(settings);
  out["engine"] = name(config.engine);
  out["device"] = to_string(config.device);
  if (config.epochs) out["epochs"] = *config.epochs;
  if (config.steps) out["steps"] = *config.steps;
  io::write_atomically(config_path(folder), [&](io::OutputFile& file) { file.write(out.dump(2) + "\n"); });
}

void save_weights(const std::string& folder, const nn::Module& model, const std::string& settings) {
  const ordered_json in = ordered_json::parse(settings);
  io::save_safetensors(weights_path(folder), model.state(),
                       {{"format", "pt"},
                        {"model", in.at("model").get<std::string>()},
                        {"data", in.at("data").get<std::string>()}});
}

SavedRun load_run(const std::string& folder) {
  const std::string path = config_path(folder);
  TD_CHECK(
      exists(path), "eval ", quoted(folder),
      ": the folder holds no run (no config.json). Name the folder that 'tandem train' wrote, its --out.");
  const std::vector<uint8_t> text = io::read_file("load", path, int64_t{1} << 20);
  SavedRun run;
  try {
    const ordered_json config = ordered_json::parse(text.begin(), text.end());
    run.model = config.at("model").get<std::string>();
    run.data = config.at("data").get<std::string>();
    run.dtype = config.at("dtype").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    throw Error(cat("load ", quoted(path),
                    ": must be JSON with model, data and dtype, as 'tandem train' writes it."
                    " Train again, or mend the file."));
  }
  if (exists(weights_path(folder))) {
    run.path = weights_path(folder);
    run.weights = io::load_safetensors(run.path).tensors;
    return run;
  }
  std::optional<FoundCheckpoint> found = newest_checkpoint(folder, run.warnings);
  TD_CHECK(found, "eval ", quoted(folder),
           ": the run has neither weights nor a checkpoint yet. Let it train, or go on with it by --resume.");
  run.path = found->path;
  run.weights = std::move(found->checkpoint.model);
  return run;
}

}  // namespace tandem
