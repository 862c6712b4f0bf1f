// The rules that settings must keep.
#include "tandem/train/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/core/backend.h"
#include "tandem/core/error.h"
#include "tandem/data/compose.h"
#include "tandem/data/split.h"
#include "tandem/io/file.h"
#include "tandem/io/json.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/parameter_names.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/settings_json.h"

namespace tandem {

using nlohmann::ordered_json;

const char* name(Engine engine) { return engine == Engine::eager ? "eager" : "graph"; }

Engine parse_engine(const std::string& text) {
  if (text == "eager") return Engine::eager;
  if (text == "graph") return Engine::graph;
  throw Error(str("engine: must be eager or graph; got '", text, "'."));
}

void check_data_name(const std::string& data, const std::string& data_dir) {
  if (data.empty()) return;
  std::string names;
  for (const data::DatasetStatus& row : data::list_datasets(data_dir)) {
    if (row.info.name == data) return;
    names += (names.empty() ? "" : ", ") + row.info.name;
  }
  throw Error(str("data: must be one of ", names, "; got '", data, "'. 'tandem datasets' describes them."));
}

void check_between(const char* setting, std::optional<int64_t> value, int64_t least, int64_t most,
                   const char* unit) {
  if (!value) return;
  TD_CHECK(*value >= least, setting, ": must be at least ", least, unit, "; got ", *value, ".");
  TD_CHECK(*value <= most, setting, ": must be at most ", most, unit, "; got ", *value, ".");
}

void check_number(const char* setting, std::optional<double> value, double least, bool may_be_least,
                  double most) {
  if (!value) return;
  TD_CHECK(*value > least || (may_be_least && *value == least), setting, ": must be a number ",
           may_be_least ? "of at least " : "above ", least, "; got ", *value, ".");
  TD_CHECK(*value <= most, setting, ": must be at most ", most, "; got ", *value, ".");
}

void check(const FitOptions& o) {
  optim::optimizer_info(o.optimizer);
  TrainConfig values;
  static_cast<FitOptions&>(values) = o;
  check_values(values);
  const double lr = starting_lr(o);
  TD_CHECK(lr > 0 && lr <= kMostNumber, "lr: must be a number above 0",
           lr > kMostNumber ? str(" and at most ", kMostNumber) : "", "; got ", lr, ". Try ",
           optim::optimizer_info(o.optimizer).lr, ".");
  TD_CHECK(!o.momentum || optim::optimizer_info(o.optimizer).momentum, "momentum: ", o.optimizer,
           " takes none; got ", o.momentum.value_or(0), ". Leave it out, or choose `optimizer` sgd.");
  TD_CHECK(o.ema || !o.ema_warm_up, "ema-warmup: needs a moving average; got none. Give `ema` as well.");
  TD_CHECK(!o.autocast || *o.autocast == DType::bf16 || *o.autocast == DType::f16,
           "autocast: must be bf16 or f16; got ", *o.autocast, ".");
  TD_CHECK(
      !o.anomaly || o.autocast != DType::f16,
      "anomaly: stops at the first infinity, and the loss scaling of f16 is meant to meet some. Look for "
      "it with bf16 or f32.");
  for (const std::string& part : o.no_decay)
    TD_CHECK(!part.empty(), "no-decay: must name layers or parameters; got ''. Try *.bias.");
}

void check(const TrainConfig& config) {
  choose_model(config);
  check_data_name(config.data, config.data_dir);
  check(static_cast<const FitOptions&>(config));
  check_values(config);
  TD_CHECK(!config.machine.tf32.value_or(false) || config.device.kind == DeviceKind::cuda,
           "dtype: tf32 is how CUDA multiplies f32 matrices; got device ", config.device, ". Give f32.");
  for (const std::string& part : config.freeze)
    TD_CHECK(!part.empty(), "freeze: must name layers or parameters; got ''. Try conv1.");
  TD_CHECK(is_floating(config.dtype), "dtype: must be f32, f64, bf16 or f16; got ", config.dtype, ".");
  TD_CHECK(!config.autocast || config.dtype == DType::f32,
           "dtype: the weights of a model under autocast must be f32; got ", config.dtype, ".");
  TD_CHECK(config.early_stop || (!config.restore_best && config.min_delta == 0),
           "restore-best and min-delta: belong to `early_stop`; got none. Give `early_stop` as well.");
  check(config.schedule);
  check_number("time-budget", config.time_budget, 0, false);
}

void check_device(Device device) {
  const int count = backend(device).device_count();
  TD_CHECK(device.index < count, "device: must be one of ", Device{device.kind, 0}, " to ",
           Device{device.kind, static_cast<uint8_t>(count - 1)}, " here; got ", device, ".");
}

double starting_lr(const FitOptions& o) {
  if (o.own_optimizer) return o.own_optimizer->first_lr();
  return o.lr.value_or(optim::optimizer_info(o.optimizer).lr);
}

std::optional<double> starting_momentum(const FitOptions& o) {
  const std::optional<double> usual = optim::optimizer_info(o.optimizer).momentum;
  return usual ? o.momentum.value_or(*usual) : usual;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const FitOptions& o, const nn::Module& model) {
  const optim::Settings settings{
      .lr = starting_lr(o), .momentum = o.momentum, .weight_decay = o.weight_decay, .decoupled = o.decoupled};
  optim::Groups<optim::Settings> groups;
  if (!o.no_decay.empty()) {
    optim::Settings undecayed = settings;
    undecayed.weight_decay = 0;
    std::vector<std::string> names;
    for (const auto& row : model.named_parameters()) names.push_back(row.first);
    check_patterns("no-decay", o.no_decay, names);
    groups.push_back(
        {[patterns = o.no_decay](const std::string& name) { return is_named_by_any(patterns, name); },
         undecayed});
  }
  return optim::make_optimizer(o.optimizer, model.named_parameters(), settings, groups);
}

namespace {

/// How one description differs from another: the first line that does.
std::string first_difference(const std::string& before, const std::string& now) {
  std::istringstream a(before), b(now);
  for (int line = 1;; ++line) {
    std::string old_line, new_line;
    const bool has_old = static_cast<bool>(std::getline(a, old_line)),
               has_new = static_cast<bool>(std::getline(b, new_line));
    if (!has_old && !has_new) return "none";
    if (has_old == has_new && old_line == new_line) continue;
    const auto shown = [](bool is_there, const std::string& text) {
      const size_t begin = std::min(text.find_first_not_of(' '), text.size());
      return is_there ? "'" + io::one_line(text.substr(begin), 200) + "'" : "nothing";
    };
    return str(shown(has_old, old_line), "; got ", shown(has_new, new_line));
  }
}

}  // namespace

std::string settings_json(const TrainConfig& c, const SettingsParts& parts) {
  ordered_json settings;
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) settings[key] = text;
  };
  put("model", parts.model);
  put("description", parts.description);
  put("data", parts.data);
  put("weights", parts.weights);
  if (c.task && (c.task->name() != "classification" || !c.task->settings().empty()))
    settings["task"] = c.task->name() + (c.task->settings().empty() ? "" : ": " + c.task->settings());
  settings["train_samples"] = parts.train_samples;
  if (parts.valid_samples > 0) settings["valid_samples"] = parts.valid_samples;
  settings["test_samples"] = parts.test_samples;
  for (const Setting& s : tandem::settings()) {
    if (s.bits != SettingBits::recorded) continue;
    const SettingValue value = (s.recorded ? s.recorded : s.get)(c);
    // Switches that are off are left out, as what is not set.
    if (value.index() != 0 && (s.kind != SettingKind::toggle || value != default_of(s)))
      settings[s.name] = json_of(value);
  }
  if (c.own_optimizer)
    for (const auto& [name, value] : c.own_optimizer->settings())
      std::visit([&, key = "optimizer." + name](const auto& v) { settings[key] = v; }, value);
  settings["dtype"] = name(parts.dtype);
  if (c.autocast) settings["autocast"] = name(*c.autocast);
  put("arithmetic", parts.arithmetic);
  put("train_data", parts.train_data);
  put("valid_data", parts.valid_data);
  put("test_data", parts.test_data);
  for (const auto& [key, value] : parts.data_names) settings[key] = value;
  for (const auto& [key, value] : parts.callbacks) settings[key] = value;
  return settings.dump();
}

/// The length of a schedule, "…, over 80", where another differs from it in that alone; else empty.
std::string only_length_differs(const std::string& before, const std::string& now) {
  const auto split = [](const std::string& text) {
    const std::string mark = ", over ";
    const size_t at = text.find(mark), begin = at + mark.size();
    if (at == std::string::npos) return std::array<std::string, 2>{text, ""};
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    return std::array<std::string, 2>{text.substr(0, at) + text.substr(end), text.substr(begin, end - begin)};
  };
  return split(before)[0] == split(now)[0] ? split(before)[1] : "";
}

/// What a setting is where a checkpoint does not hold it, as JSON: it may be older than the setting.
std::string default_text(const std::string& key) {
  for (const Setting& s : tandem::settings())
    if (s.name == key && s.bits == SettingBits::recorded) return json_of(default_of(s)).dump();
  return "";
}

std::string names_of_data(const std::string& key) {
  return key == "class_names" ? "class names" : key == "columns" || key == "words" ? key : "";
}

std::string check_same_settings(const std::string& saved, const std::string& wanted,
                                const std::string& source) {
  const auto before = io::parse_json<ordered_json>("settings: ", saved),
             now = io::parse_json<ordered_json>("settings: ", wanted);
  const auto compare = [&](const std::string& key) {
    const auto value = [&](const ordered_json& in) { return in.contains(key) ? in[key].dump() : "none"; };
    if (value(before) == value(now)) return;
    if (!before.contains(key) && now[key].dump() == default_text(key)) return;
    if (key.starts_with("optimizer.") && !before.contains("optimizer.type")) return;  // the run is older
    // Whether the best weights are kept changes no bits; by which metric must stay.
    if (key == "best" && !(before.contains(key) && now.contains(key))) return;
    if (const std::string names = names_of_data(key); !names.empty()) {
      if (!before.contains(key)) return;  // the run is older than these
      throw Error(str("resume ", source, ": the run was begun with other ", names,
                      " in its data. Give the same data, or begin a new run in another `out`."));
    }
    if (key == "description") {
      const auto text = [&](const ordered_json& in) {
        return in.contains(key) ? in[key].get<std::string>() : std::string("a model of the zoo");
      };
      throw Error(str("resume ", source,
                      ": the run was begun with another description of its model, where it has ",
                      first_difference(text(before), text(now)),
                      ". Give the description as it was, or begin a new run in another `out`."));
    }
    // What is no flag of the command, and what to do about it.
    const std::string length = key == "schedule" ? only_length_differs(value(before), value(now)) : "";
    const std::string fix =
        !length.empty()       ? "Give `schedule.total` " + length + ", its length so far"
        : key == "schedule"   ? "Give `schedule.kind` and what belongs to it as it was"
        : key == "early-stop" ? "Give `early_stop`, `min_delta`, `restore_best` and `monitor` as they were"
        : key == "best"       ? "Give `monitor` as it was"
        : key.starts_with("train_") || key.starts_with("valid_") || key.starts_with("test_")
            ? "Give the same data and `limit`"
        : key == "arithmetic"
            ? "Resume on the same kind of device, with TANDEM_TF32, TANDEM_ISA and TANDEM_BF16 as they were"
        : key == "dtype"    ? "Give the model the type that it had: `dtype`, with `half_model` for 16 bits"
        : key == "autocast" ? "Give `autocast` as it was"
                            : "Give " + named_setting(key) + " as it was";
    throw Error(str("resume ", source, ": the run was begun with ", key, " ", value(before), "; got ", key,
                    " ", value(now), ". ", fix, ", or begin a new run in another `out`."));
  };
  // Fingerprints last: they depend on settings (--augment, --seed), which say more.
  const auto is_data = [](const std::string& key) {
    return key == "train_data" || key == "valid_data" || key == "test_data" || !names_of_data(key).empty();
  };
  for (const bool data : {false, true})
    for (const ordered_json* side : {&now, &before})
      for (const auto& [key, value] : side->items())
        if (is_data(key) == data) compare(key);
  ordered_json kept = now;
  if (before.contains("best")) kept["best"] = before["best"];
  return kept.dump();
}

}  // namespace tandem
