// The folder of a run.
#include "tandem/train/run_folder.h"

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tandem/io/file.h"
#include "tandem/io/json.h"
#include "tandem/io/safetensors.h"
#include "tandem/nn/summary.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/settings.h"
#include "tandem/zoo/zoo.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string quoted(const std::string& path) { return "'" + io::one_line(path) + "'"; }
std::string config_path(const std::string& folder) { return (fs::path(folder) / "config.json").string(); }

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// runs/lenet for 1, runs/lenet-2 for 2 …
std::string numbered(const std::string& model, int n) {
  return (fs::path("runs") / (n == 1 ? model : str(model, "-", n))).string();
}

/// Makes the folder and those above it; true where it is new.
bool make_folder(const std::string& folder) {
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  TD_CHECK(!error && fs::is_directory(folder, error), "train: cannot make the folder ", quoted(folder), ": ",
           error ? error.message() : "a file of that name is in the way", ". Choose another with `out`.");
  return is_new;
}

std::string folder_to_resume(const FitOptions& options, const std::string& model) {
  if (!options.out.empty()) return options.out;
  int last = 0;
  while (exists(numbered(model, last + 1))) ++last;
  TD_CHECK(last > 0, "resume: there is no run of ", model, " in ", quoted(numbered(model, 1)),
           ". Name its folder with `out`, or begin one without `resume`.");
  return numbered(model, last);
}

/// What the folder must hold for a run to begin there, or to go on.
void check_content(const FitOptions& options, const std::string& folder) {
  if (!options.resume) {
    TD_CHECK(list_checkpoints(folder).empty() && !exists(weights_path(folder)), "train: the folder ",
             quoted(folder), " holds a run already. Go on with it by `resume`, or choose another `out`.");
    return;
  }
  TD_CHECK(exists(config_path(folder)), "resume ", quoted(folder),
           ": the folder holds no run. Name the right one with `out`, or begin one without `resume`.");
  TD_CHECK(
      !exists(weights_path(folder)) || !list_checkpoints(folder).empty(), "resume ", quoted(folder),
      ": the run must have a checkpoint to go on from; it has its final weights alone. Begin a new run in "
      "another `out`.");
}

}  // namespace

std::string weights_path(const std::string& folder) {
  return (fs::path(folder) / "model.safetensors").string();
}
std::string best_path(const std::string& folder) { return (fs::path(folder) / "best.safetensors").string(); }

RunFolder open_run_folder(const FitOptions& options, const std::string& model) {
  std::string folder = options.out;
  bool is_new = false;
  if (options.resume) {
    folder = folder_to_resume(options, model);
  } else if (folder.empty()) {
    int n = 1;
    while (exists(numbered(model, n)) || !make_folder(numbered(model, n))) ++n;
    folder = numbered(model, n);
    is_new = true;
  } else {
    is_new = make_folder(folder);
  }
  check_content(options,
                folder);  // before the lock, too: a refused run leaves no lock file in another's folder
  RunFolder open{folder, io::FolderLock(options.resume ? "resume" : "train", folder, "run"), is_new};
  check_content(options, folder);  // a run may have begun or ended there since
  return open;
}

void remove_unused(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().filename() != ".lock") return;
  if (error) return;
  fs::remove(fs::path(folder) / ".lock", error);
  fs::remove(folder, error);  // of an empty folder
}

void clear_run_folder(const std::string& folder) {
  if (!exists(config_path(folder))) return;  // no run has been here: whatever is there is somebody's
  std::error_code ignored;
  for (const char* file : {"best.safetensors", "metrics.csv", "metrics.jsonl", "table.json", "text.json"})
    fs::remove(fs::path(folder) / file, ignored);
  std::vector<fs::path> plots;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".svg") plots.push_back(at->path());
  for (const fs::path& plot : plots) fs::remove(plot, ignored);
}

namespace {

/// How the data was opened: what is not as usual.
ordered_json opening_json(const data::OpenOptions& o) {
  ordered_json out = ordered_json::object();
  if (!o.data_dir.empty()) out["dir"] = o.data_dir;
  if (o.image_size) out["input"] = *o.image_size;
  if (o.test_share != data::OpenOptions{}.test_share) out["test_share"] = o.test_share;
  if (o.split_seed != 0) out["split_seed"] = o.split_seed;
  if (o.skip_bad) out["skip_bad"] = true;
  if (!o.target.empty()) out["target"] = o.target;
  if (!o.task.empty()) out["task"] = o.task;
  if (!o.text.source.empty()) out["source"] = o.text.source;
  return out;
}

data::OpenOptions opening_from(const ordered_json& in) {
  data::OpenOptions o;
  o.data_dir = in.value("dir", o.data_dir);
  if (in.contains("input")) o.image_size = in["input"].get<std::array<int64_t, 2>>();
  o.test_share = in.value("test_share", o.test_share);
  o.split_seed = in.value("split_seed", o.split_seed);
  o.skip_bad = in.value("skip_bad", o.skip_bad);
  o.target = in.value("target", o.target);
  o.task = in.value("task", o.task);
  o.text.source = in.value("source", o.text.source);
  return o;
}

std::string table_path(const std::string& folder) { return (fs::path(folder) / "table.json").string(); }
std::string text_path(const std::string& folder) { return (fs::path(folder) / "text.json").string(); }

void write_text(const std::string& path, const std::string& text) {
  io::write_atomically(path, [&](io::OutputFile& file) { file.write(text); });
}

}  // namespace

void save_config(const std::string& folder, const TrainConfig& config, const std::string& settings,
                 const DataRecord* record) {
  auto out = io::parse_json<ordered_json>("settings: ", settings);
  out["engine"] = name(config.engine);
  out["device"] = to_string(config.device);
  if (config.epochs) out["epochs"] = *config.epochs;
  if (config.steps) out["steps"] = *config.steps;
  out["settings"] = io::parse_json<ordered_json>("settings: ", settings_object(config));
  if (record) {
    out["for"] = record->task;
    if (const ordered_json opening = opening_json(record->opening); !opening.empty()) out["opened"] = opening;
    if (!record->class_names.empty()) out["classes"] = record->class_names;
    if (const auto& format = record->format)
      out["image"] = {{"shape", {format->channels, format->height, format->width}},
                      {"mean", format->mean},
                      {"deviation", format->deviation},
                      {"short_side", format->short_side}};
    if (const auto& sound = record->sound)
      out["sound"] = {{"sample_rate", sound->sample_rate},
                      {"n_fft", sound->n_fft},
                      {"window", sound->window},
                      {"hop", sound->hop},
                      {"hamming", sound->hamming},
                      {"power", sound->power},
                      {"mels", sound->mels},
                      {"low", sound->low},
                      {"high", sound->high},
                      {"slaney_scale", sound->slaney_scale},
                      {"slaney_norm", sound->slaney_norm},
                      {"floor", sound->floor},
                      {"standardise", sound->standardise}};
    if (record->byte_inputs) out["inputs"] = *record->byte_inputs ? "bytes" : "numbers";
    if (record->encoder) write_text(table_path(folder), record->encoder->to_json());
    if (record->text) write_text(text_path(folder), record->text->to_json());
  }
  write_text(config_path(folder), out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

void save_weights(const std::string& path, const nn::NamedTensors& weights, const std::string& settings) {
  const auto in = io::parse_json<ordered_json>("settings: ", settings);
  io::Metadata metadata = {{"format", "pt"}};
  for (const char* key : {"model", "data"})
    if (in.contains(key)) metadata[key] = in[key].get<std::string>();
  io::save_safetensors(path, weights, metadata);
}

namespace {

/// What config.json says; without the weights.
SavedRun load_config(const char* what, const std::string& folder) {
  const std::string path = config_path(folder);
  TD_CHECK(
      exists(path), what, " ", quoted(folder),
      ": the folder holds no run (no config.json). Name the folder that 'tandem train' wrote, its `out`.");
  const std::vector<uint8_t> text = io::read_file("load", path, int64_t{1} << 20);
  SavedRun run;
  try {
    const auto config = io::parse_json<ordered_json>(
        str("load ", quoted(path), ": "), {reinterpret_cast<const char*>(text.data()), text.size()},
        "Train again, or fix the file.");
    run.model = config.at("model").get<std::string>();
    run.data.name = config.at("data").get<std::string>();
    run.data.task = config.value("for", run.data.task);
    if (config.contains("opened")) run.data.opening = opening_from(config["opened"]);
    if (config.contains("classes")) run.data.class_names = config["classes"].get<std::vector<std::string>>();
    if (config.contains("inputs")) run.data.byte_inputs = config["inputs"].get<std::string>() == "bytes";
    run.data.train_data = config.value("train_data", "");
    run.data.test_data = config.value("test_data", "");
    if (config.contains("settings") && config["settings"].contains("limit"))
      run.data.limit = config["settings"]["limit"].get<int64_t>();
    if (config.contains("model-settings"))
      run.model_settings = config["model-settings"].get<std::vector<std::string>>();
    run.dtype = config.at("dtype").get<std::string>();
    run.description = config.value("description", "");
    if (config.contains("autocast")) run.autocast = parse_dtype(config["autocast"].get<std::string>());
    if (config.contains("image")) {
      const ordered_json& image = config["image"];
      const auto shape = image.at("shape").get<std::array<int64_t, 3>>();
      run.data.format = data::ImageFormat{shape[0],
                                          shape[1],
                                          shape[2],
                                          image.at("mean").get<std::vector<float>>(),
                                          image.at("deviation").get<std::vector<float>>(),
                                          image.value("short_side", int64_t{0})};
    }
    if (config.contains("sound")) {
      const ordered_json& sound = config["sound"];
      data::LogMelOptions o;
      for (const auto& [name, to] : {std::pair("sample_rate", &o.sample_rate),
                                     {"n_fft", &o.n_fft},
                                     {"window", &o.window},
                                     {"hop", &o.hop},
                                     {"mels", &o.mels}})
        *to = sound.at(name).get<int64_t>();
      for (const auto& [name, to] :
           {std::pair("power", &o.power), {"low", &o.low}, {"high", &o.high}, {"floor", &o.floor}})
        *to = sound.at(name).get<double>();
      for (const auto& [name, to] : {std::pair("hamming", &o.hamming),
                                     {"slaney_scale", &o.slaney_scale},
                                     {"slaney_norm", &o.slaney_norm},
                                     {"standardise", &o.standardise}})
        *to = sound.at(name).get<bool>();
      run.data.sound = o;
    }
  } catch (const nlohmann::json::exception&) {
    throw Error(str("load ", quoted(path),
                    ": must be JSON with model, data and dtype, as 'tandem train' writes it."
                    " Train again, or fix the file."));
  }
  if (const std::string table = table_path(folder); exists(table)) {
    const std::vector<uint8_t> json = io::read_file("load", table, int64_t{1} << 28);
    run.data.encoder = std::make_shared<data::TableEncoder>(data::TableEncoder::from_json(
        {reinterpret_cast<const char*>(json.data()), json.size()}, str("load ", quoted(table), ": ")));
  }
  if (const std::string text = text_path(folder); exists(text)) {
    const std::vector<uint8_t> json = io::read_file("load", text, int64_t{1} << 30);
    run.data.text = std::make_shared<data::TextEncoder>(data::TextEncoder::from_json(
        {reinterpret_cast<const char*>(json.data()), json.size()}, str("load ", quoted(text), ": ")));
  }
  return run;
}

}  // namespace

SavedRun load_run(const char* what, const std::string& folder, bool best) {
  SavedRun run = load_config(what, folder);
  const TaskInput input = make_task(run.data.task)->input_kind();
  const bool is_translation = input == TaskInput::pairs_of_texts,
             is_text = input == TaskInput::text || is_translation;
  TD_CHECK(!is_text || run.data.text, what, " ", quoted(folder),
           ": the run was trained on text, and its text.json, which holds its words, is missing. Put the "
           "file back, or "
           "train again.");
  TD_CHECK(input != TaskInput::sound || run.data.sound, what, " ", quoted(folder),
           ": the run was trained on sound, and its config.json does not say how sound becomes inputs. Put "
           "the file back, or "
           "train again.");
  TD_CHECK(!is_translation || run.data.text->into, what, " ", quoted(folder),
           ": the run translates, and its text.json must hold two vocabularies; it holds one. Put the file "
           "back, or train again.");
  TD_CHECK(run.data.name != "csv" || run.data.encoder || run.data.text, what, " ", quoted(folder),
           ": the run was trained on a table, and its table.json, which says how columns become inputs, is "
           "missing. Put the file back, or train again.");
  TD_CHECK(!best || exists(best_path(folder)), what, " ", quoted(folder),
           ": the run has no best.safetensors. Train with `best`, or leave `best` out.");
  if (best || exists(weights_path(folder))) {
    run.path = best ? best_path(folder) : weights_path(folder);
    run.weights = io::load_safetensors(run.path).tensors;
    return run;
  }
  std::optional<FoundCheckpoint> found = newest_checkpoint(folder, run.warnings);
  TD_CHECK(found, what, " ", quoted(folder),
           ": the run has neither weights nor a checkpoint yet. Let it train, or go on with it by `resume`.");
  run.path = found->path;
  run.weights = std::move(found->checkpoint.model);
  const std::string prefix = "average.";
  for (const auto& row : found->checkpoint.ema)
    for (auto& [name, tensor] : run.weights)
      if (row.first == prefix + name) tensor = row.second;
  return run;
}

namespace {

/// "embedding=64" as a name and a number. Whether the model knows the name is its own to say.
std::vector<std::pair<std::string, double>> parsed_settings(const std::vector<std::string>& given) {
  std::vector<std::pair<std::string, double>> out;
  for (const std::string& each : given) {
    const size_t sign = each.find('=');
    double value = 0;
    const char *end = each.data() + each.size(),
               *begin = sign == std::string::npos ? end : each.data() + sign + 1;
    const auto read = std::from_chars(begin, end, value);
    TD_CHECK(sign != std::string::npos && sign > 0 && read.ec == std::errc() && read.ptr == end &&
                 std::isfinite(value),
             "model-settings: must be names with numbers, embedding=64; got '", io::one_line(each, 60), "'.");
    out.emplace_back(each.substr(0, sign), value);
  }
  return out;
}

/// A model of the zoo, with settings; refuses those that it cannot be made with.
zoo::ChosenModel with_settings(zoo::ChosenModel chosen, const std::vector<std::string>& given) {
  if (given.empty()) return chosen;
  TD_CHECK(!chosen.description,
           "model-settings: are for models of the zoo; a description has its sizes in its file. Change them "
           "there.");
  chosen.options.settings = parsed_settings(given);
  nn::shapes_of([&] { return zoo::make_model(chosen); });
  return chosen;
}

}  // namespace

zoo::ChosenModel choose_model(const SavedRun& run) {
  if (run.description.empty()) {
    zoo::ChosenModel chosen = with_settings(zoo::choose_model(run.model), run.model_settings);
    if (!chosen.info.described && run.data.text) {
      chosen.options.vocabulary = run.data.text->vocabulary.size();
      if (run.data.text->into) chosen.options.classes = run.data.text->into->size();
    }
    return chosen;
  }
  return zoo::choose_model(zoo::parse_description(run.description, run.model + " in config.json"));
}

zoo::ChosenModel choose_model(const TrainConfig& config) {
  std::set<std::string> names;
  for (const std::string& each : config.model_settings)
    TD_CHECK(names.insert(each.substr(0, each.find('='))).second,
             "model-settings: each must be given once; got '", io::one_line(each, 60),
             "' beside another value of it. Leave one out.");
  if (!config.resume || !zoo::is_description_path(config.model) || exists(config.model))
    return with_settings(zoo::choose_model(config.model), config.model_settings);
  const std::string folder = folder_to_resume(config, fs::path(config.model).stem().string());
  const SavedRun run = load_config("resume", folder);
  TD_CHECK(!run.description.empty(), "resume ", quoted(folder), ": the run is of ", run.model,
           ", a model of the zoo; got ", quoted(config.model), ", which is not there. Give ", run.model,
           " as the model.");
  return choose_model(run);
}

Dims made_up_sample(const TrainConfig& config, const zoo::ModelInfo& model) {
  Dims sample = model.input;
  TD_CHECK(!config.text.length || model.vocabulary > 0, "length: is of text; ", model.name,
           " takes samples of ", sample, ". Leave `length` out.");
  if (config.text.length) sample[0] = *config.text.length;
  return sample;
}

std::unique_ptr<nn::Module> make_model(const SavedRun& run, Device device) {
  std::unique_ptr<nn::Module> model = zoo::make_model(choose_model(run));
  model->to(parse_dtype(run.dtype));
  model->to(device);
  model->load_state(run.weights, "load " + quoted(run.path),
                    str("config.json says that the model is ", run.model, "."));
  return model;
}

}  // namespace tandem
