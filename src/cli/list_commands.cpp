// tandem models, tandem datasets, tandem info, and the two commands that belong to the ./tandem script.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "tandem/core/threads.h"
#include "tandem/data/download.h"
#include "tandem/data/registry.h"
#include "tandem/nn/summary.h"
#include "tandem/ops/create.h"
#include "tandem/train/environment.h"
#include "tandem/train/settings_json.h"
#include "tandem/train/task.h"
#include "tandem/zoo/layer_types.h"
#include "tandem/zoo/zoo.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;

std::vector<Dim> sizes(const Dims& dims) { return {dims.begin(), dims.end()}; }

}  // namespace

namespace {

constexpr int64_t kMostDescribed = 1'000'000;  // samples per batch: the counts of operations stay below 2^63

std::unique_ptr<nn::Module> shapes_of_model(const zoo::ChosenModel& chosen) {
  return nn::shapes_of([&] { return zoo::make_model(chosen); });
}

/// Of a batch of samples; of what a description takes, where that is more than one tensor of numbers.
nn::Summary summary_of(const zoo::ChosenModel& chosen, const Dims& batch) {
  const std::unique_ptr<nn::Module> model = shapes_of_model(chosen);
  if (!chosen.info.described) {
    const TaskPtr task = make_task(chosen.info.task);
    const Named made_up = task->made_up_batch(chosen.info.input, batch[0]);
    return nn::summary(*model, made_up.values(), [&](const std::vector<Tensor>& each) {
      Named no_state;
      task->forward(*model, Named(made_up.names(), each), no_state);
    });
  }
  if (!chosen.description && chosen.info.vocabulary == 0) return nn::summary(*model, batch);
  const zoo::StraightLine line =
      zoo::straight_line(chosen.description ? *chosen.description : zoo::describe(chosen.info.name));
  if (line.inputs.size() == 1 && line.states.empty() && line.inputs[0].dtype == DType::f32)
    return nn::summary(*model, batch);
  std::vector<Tensor> in;
  for (const zoo::InputDescription& input : line.inputs) {
    Dims shape = input.shape;
    shape.insert(0, batch[0]);
    in.push_back(zeros(shape, input.dtype));
  }
  for (const zoo::InputDescription& state : line.states)
    in.push_back(zeros({state.shape[0], batch[0], state.shape[1]}));
  return nn::summary(*model, in, [&](const std::vector<Tensor>& each) { (*model)(each); });
}

/// A number that there may be none of, or that is known only once files are read.
std::string known(int64_t number) { return number == 0 ? "" : grouped(number); }

void list_models(bool json) {
  Table table({"model", "parameters", "task", "input", "classes", ""}, {1, 4});
  for (const zoo::ModelInfo& info : zoo::models()) {
    const int64_t parameters = nn::count_parameters(*shapes_of_model({info}));
    if (json)
      print_line({{"model", info.name},
                  {"parameters", parameters},
                  {"task", info.task},
                  {"input", sizes(info.input)},
                  {"classes", info.classes},
                  {"description", info.description}});
    else
      table.add({info.name, grouped(parameters), info.task, str(info.input), known(info.classes),
                 info.description});
  }
  if (!json) table.print();
}

/// A model of the user's own has no paper.
std::vector<const char*> recipes_of(const zoo::ChosenModel& chosen) {
  std::vector<const char*> names(std::begin(kRecipes), std::end(kRecipes));
  if (chosen.description) names.pop_back();
  return names;
}
std::string recipe_model(const zoo::ChosenModel& chosen) {
  return chosen.description ? chosen.info.name + ".toml" : chosen.info.name;
}

void describe_model(const zoo::ChosenModel& chosen, int64_t batch, bool json) {
  const zoo::ModelInfo& info = chosen.info;
  Dims input = info.input;
  input.insert(0, batch);
  const nn::Summary summary = summary_of(chosen, input);
  if (!json) {
    std::printf("%s\n", nn::to_string(summary).c_str());
    Table table;
    table.add({"model", info.name + ": " + info.description});
    if (info.classes > 0) table.add({"classes", std::to_string(info.classes)});
    for (const char* name : recipes_of(chosen)) {
      std::string line;
      const SettingValues values = recipe(recipe_model(chosen), name);
      for (const Setting& s : settings())
        if (const auto at = values.find(s.name); at != values.end())
          line += (line.empty() ? "" : ", ") + s.name + " " + text_of(at->second);
      table.add({str("recipe ", name),
                 line + (name == std::string(kRecipes[0]) ? "" : str("  (--recipe ", name, ")"))});
    }
    table.print();
    return;
  }
  ordered_json layers = ordered_json::array();
  for (const nn::LayerSummary& layer : summary.layers) {
    ordered_json outputs = ordered_json::array();
    for (const Dims& shape : layer.outputs) outputs.push_back(sizes(shape));
    layers.push_back({{"name", layer.name},
                      {"type", layer.type},
                      {"outputs", outputs},
                      {"calls", layer.calls},
                      {"parameters", layer.parameters},
                      {"flops", layer.flops},
                      {"activation_bytes", layer.activation_bytes}});
  }
  ordered_json line = {{"model", info.name},
                       {"description", info.description},
                       {"input", sizes(input)},
                       {"classes", info.classes},
                       {"parameters", summary.parameters},
                       {"trainable_parameters", summary.trainable_parameters},
                       {"state_bytes", summary.state_bytes},
                       {"flops", summary.flops},
                       {"activation_bytes", summary.activation_bytes}};
  for (const char* name : recipes_of(chosen)) {
    const SettingValues values = recipe(recipe_model(chosen), name);
    for (const Setting& s : settings())
      if (const auto at = values.find(s.name); at != values.end())
        line["recipes"][name][s.name] = json_of(at->second);
  }
  line["layers"] = layers;
  print_line(line);
}

/// Fetches a data set; on a terminal, with a line of progress.
void fetch(const std::string& name, const std::string& data_dir, bool json) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const std::string folder =
      data::download_dataset(name, data_dir, [&](const std::string& file, int64_t bytes) {
        if (terminal) std::fprintf(stderr, "\r\033[K%s: %s bytes", file.c_str(), grouped(bytes).c_str());
      });
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (json)
    print_line({{"data", name}, {"where", folder}});
  else
    std::printf("%s is in %s\n", name.c_str(), folder.c_str());
}

}  // namespace

void add_models(CLI::App& app, Action& action) {
  struct Flags {
    std::string name;
    int64_t batch = 1;
    bool json = false, toml = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd = app.add_subcommand("models", "list the models, or describe one layer by layer");
  cmd->add_option("name", flags->name, "a model to describe: a name, or the file of a description");
  cmd->add_option("--batch", flags->batch, "batch that the description is for (1)");
  CLI::Option* json = cmd->add_flag("--json", flags->json, "print one JSON object per line");
  cmd->add_flag("--toml", flags->toml, "print the model as a description, to change and train it")
      ->excludes(json);
  cmd->callback([flags, cmd, &action] {
    action = [flags, cmd] {
      if (flags->name.empty() && cmd->count("--batch") > 0)
        throw UsageError("models: --batch belongs to the description of one model. Name the model.");
      if (flags->name.empty() && flags->toml)
        throw UsageError("models: --toml prints one model. Name the model.");
      if (flags->batch < 1 || flags->batch > kMostDescribed)
        throw UsageError(str("models: the batch must be at ", flags->batch < 1 ? "least " : "most ",
                             flags->batch < 1 ? 1 : kMostDescribed, "; got ", flags->batch, "."));
      if (flags->name.empty()) return list_models(flags->json);
      zoo::ChosenModel chosen;
      as_usage(
          [&] { chosen = zoo::choose_model(flags->name); });  // an unknown name, a description with a fault
      if (!flags->toml) return describe_model(chosen, flags->batch, flags->json);
      const auto& own = chosen.description;
      std::fputs(zoo::to_toml(own ? *own : zoo::describe(chosen.info.name)).c_str(), stdout);
    };
  });
}

void add_datasets(CLI::App& app, Action& action) {
  struct Flags {
    std::string data_dir, download;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* cmd =
      app.add_subcommand("datasets", "list the data sets and where they were found, or fetch one");
  cmd->add_option("--data-dir", flags->data_dir, "folder to look in, or to fetch to");
  cmd->add_option("--download", flags->download, "fetch this data set from its official source");
  cmd->add_flag("--json", flags->json, "print one JSON object per line");
  cmd->callback([flags, &action] {
    action = [flags] {
      if (!flags->download.empty()) return fetch(flags->download, flags->data_dir, flags->json);
      Table table({"data", "train", "test", "sample", "classes", "found", ""}, {1, 2, 4});
      for (const data::DatasetStatus& row : data::list_datasets(flags->data_dir)) {
        const data::DatasetInfo& info = row.info;
        if (flags->json)
          print_line({{"data", info.name},
                      {"title", info.title},
                      {"train_samples", info.train_size},
                      {"test_samples", info.test_size},
                      {"sample", sizes(info.sample_shape)},
                      {"classes", info.classes},
                      {"found", row.found},
                      {"where", row.where},
                      {"description", with_flags(info.description)}});
        else
          table.add({info.name, known(info.train_size), known(info.test_size),
                     info.sample_shape.rank() == 0 ? "" : str(info.sample_shape), known(info.classes),
                     row.found ? row.where : "no",
                     with_flags(row.found ? info.description : info.how_to_get)});
      }
      if (!flags->json) table.print();
    };
  });
}

void add_info(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* cmd = app.add_subcommand("info", "say what this build and this machine can do");
  cmd->add_flag("--json", *json, "print one JSON object");
  cmd->callback([json, &action] {
    action = [json] {
#ifdef NDEBUG
      const std::string kind = "optimised";
#else
      const std::string kind = "with assertions";
#endif
      const std::string compiler =
#ifdef __clang__
          "clang " __VERSION__;
#else
          "g++ " __VERSION__;
#endif
      const std::vector<DeviceRow> rows = device_rows();
      if (*json) {
        ordered_json devices = ordered_json::array(), absent = ordered_json::array();
        for (const DeviceRow& row : rows) {
          if (row.available)
            devices.push_back({{"device", row.device}, {"description", row.text}});
          else
            absent.push_back({{"kind", row.device}, {"reason", with_flags(row.text)}});
        }
        print_line({{"version", TANDEM_VERSION},
                    {"compiler", compiler},
                    {"build", kind},
                    {"processor", processor()},
                    {"threads", threads()},
                    {"devices", devices},
                    {"absent", absent}});
        return;
      }
      Table table;
      table.add({"tandem", std::string(TANDEM_VERSION) + ", " + compiler + ", " + kind});
      table.add({"processor", processor()});
      table.add({"threads", std::to_string(threads())});
      for (const DeviceRow& row : rows) table.add({row.device, with_flags(row.text)});
      table.print();
    };
  });
}

void add_script_commands(CLI::App& app, Action& action) {
  CLI::App* cmd = app.add_subcommand("test", "run the tests (from the repository: ./tandem test)");
  cmd->allow_extras();
  cmd->callback([&action] {
    action = [] {
      throw UsageError(
          "test: this belongs to the script ./tandem at the root of the repository, which builds what it "
          "needs. "
          "Run ./tandem test there.");
    };
  });
}

}  // namespace tandem::cli
