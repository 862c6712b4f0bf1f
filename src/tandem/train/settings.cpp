// The table of settings: one row each, in the order of the help and of setting them.
#include "tandem/train/settings.h"

#include <cmath>

#include "tandem/core/backend.h"
#include "tandem/core/error.h"
#include "tandem/optim/optimizer.h"

namespace tandem {
namespace {

// --- Members of TrainConfig as values

/// The member at a path, of a configuration that may be changed or not.
#define TD_FIELD(path) [](auto& c) -> auto& { return c.path; }

template <class T>
struct Kind;
template <> struct Kind<bool> { static constexpr auto value = SettingKind::toggle; };
template <> struct Kind<int64_t> { static constexpr auto value = SettingKind::whole; };
template <> struct Kind<uint64_t> { static constexpr auto value = SettingKind::natural; };
template <> struct Kind<double> { static constexpr auto value = SettingKind::number; };
template <> struct Kind<std::string> { static constexpr auto value = SettingKind::text; };
template <> struct Kind<std::vector<std::string>> { static constexpr auto value = SettingKind::list; };
template <class T> struct Kind<std::optional<T>> : Kind<T> {};

template <class T>
SettingValue value_of(const T& member) {
  if constexpr (requires { member.empty(); }) {  // a text or a list: empty is not set
    if (member.empty()) return {};
  }
  return member;
}
template <class T>
SettingValue value_of(const std::optional<T>& member) { return member ? SettingValue(*member) : SettingValue(); }

template <class T>
void assign(T& member, const SettingValue& value) { member = std::get<T>(value); }
template <class T>
void assign(std::optional<T>& member, const SettingValue& value) { member = std::get<T>(value); }

/// A row whose value is a plain member.
template <class Field>
Setting row(Setting s, Field field) {
  using T = std::remove_cvref_t<decltype(field(std::declval<TrainConfig&>()))>;
  s.kind = Kind<T>::value;
  s.get = [field](const TrainConfig& c) { return value_of(field(c)); };
  s.set = [field](TrainConfig& c, const SettingValue& v) { assign(field(c), v); };
  return s;
}

/// A row whose value is written as text: `print` gives it (empty: not set), `parse` takes it.
template <class Print, class Parse>
Setting text_row(Setting s, Print print, Parse parse) {
  s.get = [print](const TrainConfig& c) {
    const std::string text = print(c);
    return text.empty() ? SettingValue() : SettingValue(text);
  };
  s.set = [parse](TrainConfig& c, const SettingValue& v) { parse(c, std::get<std::string>(v)); };
  return s;
}

// --- Values with a form of their own

/// "90", "90s", "10m", "1.5h" in seconds.
double parse_duration(const std::string& text) {
  size_t used = 0;
  double value = std::nan("");
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(used);
  const double seconds = unit.empty() || unit == "s" ? 1
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                                                     : std::nan("");
  TD_CHECK(std::isfinite(value * seconds) && value > 0,
           "time-budget: must be a time like 90s, 10m or 1.5h; got '", text, "'.");
  return value * seconds;
}

/// "96x128": height and width; "96": both.
std::array<int64_t, 2> parse_size(const std::string& text) {
  const size_t cross = text.find('x');
  const auto number = [](const std::string& digits) {
    const bool is_plain = !digits.empty() && digits.size() <= 6 &&
                          digits.find_first_not_of("0123456789") == std::string::npos;
    return is_plain ? std::stoll(digits) : 0;
  };
  const int64_t height = number(text.substr(0, cross));
  const int64_t width = cross == std::string::npos ? height : number(text.substr(cross + 1));
  TD_CHECK(height >= 1 && width >= 1, "input: must be a height and a width like 96x96; got '", text, "'.");
  return {height, width};
}

/// What --dtype says of a configuration; empty: nothing.
std::string dtype_text(const TrainConfig& c) {
  if (c.autocast) return name(*c.autocast);
  if (c.dtype != DType::f32) return name(c.dtype);
  return c.machine.tf32 ? *c.machine.tf32 ? "tf32" : "f32" : "";
}

/// bf16 and f16 are those of products; --half-model comes after and makes them the model's.
void set_dtype(TrainConfig& c, const std::string& text) {
  TD_CHECK(text == "f32" || text == "tf32" || text == "bf16" || text == "f16" || text == "f64",
           "dtype: must be f32, tf32, bf16, f16 or f64; got '", text, "'.");
  c.dtype = text == "f64" ? DType::f64 : DType::f32;
  c.autocast.reset();
  c.machine.tf32.reset();
  if (text == "bf16" || text == "f16") c.autocast = parse_dtype(text);
  if (text == "f32" || text == "tf32") c.machine.tf32 = text == "tf32";
}

bool is_half_model(const TrainConfig& c) { return c.dtype == DType::bf16 || c.dtype == DType::f16; }

void set_half_model(TrainConfig& c, bool is_on) {
  const std::string dtype = dtype_text(c);
  TD_CHECK(!is_on || dtype == "bf16" || dtype == "f16", "half-model: goes with --dtype bf16 or f16; got ",
           dtype.empty() ? "none" : dtype, ".");
  if (!is_on || !c.autocast) return;
  c.dtype = *c.autocast;
  c.autocast.reset();
}

/// Sets what a recipe says. It is not kept: what comes of it is.
Setting recipe_row(Setting s) {
  s.choices = {kRecipes[0], kRecipes[1]};
  s.unset = kRecipes[0];
  return text_row(
      std::move(s), [](const TrainConfig&) { return ""; },
      [](TrainConfig& c, const std::string& text) {
        const SettingValues values = recipe(c.model, text);
        if (text != kRecipes[0])
          for (const auto& [name, value] : values) setting(name).set(c, value);
      });
}

/// How an op chooses: a member of Machine, compared as the process has it while the run goes.
template <class Field, class Now>
Setting choice_row(Setting s, Field field, Now now) {
  s.choices = {"fixed", "heuristic", "profile"};
  s.unset = "heuristic";
  s.recorded = [now](const TrainConfig&) { return SettingValue(name(now().mode)); };
  const std::string setting = s.name;
  return text_row(
      std::move(s), [field](const TrainConfig& c) { return field(c) ? std::string(name(*field(c))) : ""; },
      [field, setting](TrainConfig& c, const std::string& text) {
        field(c) = parse_choice_mode(text, setting.c_str());
      });
}

constexpr auto kNone = SettingBits::none, kRecorded = SettingBits::recorded, kIndirect = SettingBits::indirect;
const double kCount = static_cast<double>(kMostCount), kBatch = static_cast<double>(kMostBatch);

// --- The rows

void add_model_and_data(std::vector<Setting>& t) {
  const std::string g = "Model and data";
  t.push_back(row({.name = "model", .group = g,
                   .help = "a name from 'tandem models', or the file of a description: ./mynet.toml", .bits = kIndirect},
                  TD_FIELD(model)));
  t.push_back(recipe_row({.name = "recipe", .group = g,
                          .help = "data, epochs, batch, optimizer and lr: quick, or paper, those of the study that the "
                                  "model comes from ('tandem models NAME' prints both)",
                          .bits = kIndirect}));
  t.push_back(row({.name = "weights", .group = g,
                   .help = "begin with what fits of a file of weights or of a run's folder", .bits = kIndirect},
                  TD_FIELD(weights)));
  t.push_back(row({.name = "freeze", .group = g,
                   .help = "parameters with one of these in their name are not trained: conv1", .bits = kRecorded},
                  TD_FIELD(freeze)));
  t.push_back(row({.name = "data", .group = g, .help = "data set",
                   .unset = "the model's; mnist may be fashion-mnist or digits where it is not found",
                   .bits = kIndirect},
                  TD_FIELD(data)));
  t.push_back(row({.name = "data-dir", .group = g, .help = "folder of the data set's files; of csv, or the file",
                   .unset = "the usual places"},
                  TD_FIELD(data_dir)));
  t.push_back(row({.name = "target", .group = g, .help = "csv: the column to predict",
                   .unset = "label or target", .bits = kIndirect},
                  TD_FIELD(target)));
  t.push_back(row({.name = "task", .group = g, .help = "classification, regression …",
                   .unset = "what the data asks for", .bits = kIndirect},
                  TD_FIELD(task_name)));
  t.push_back(text_row(
      {.name = "input", .group = g, .help = "image-folder: size of the inputs, 96x96",
       .unset = "the model's, or 224x224", .bits = kIndirect},
      [](const TrainConfig& c) { return c.input ? cat((*c.input)[0], "x", (*c.input)[1]) : ""; },
      [](TrainConfig& c, const std::string& text) { c.input = parse_size(text); }));
  t.push_back(row({.name = "test-share", .group = g, .help = "of data without a test part, split off for testing",
                   .unset = "0.2", .bits = kIndirect, .range = SettingRange{0, 1, false, false}},
                  TD_FIELD(test_share)));
  t.push_back(row({.name = "valid", .group = g, .help = "share of the training part held out to judge epochs by: 0.1",
                   .bits = kIndirect, .range = SettingRange{0, 1, true, false}},
                  TD_FIELD(valid)));
  t.push_back(row({.name = "split-seed", .group = g, .help = "of --test-share and --valid", .bits = kIndirect},
                  TD_FIELD(split_seed)));
  t.push_back(row({.name = "limit", .group = g, .help = "use the first so many samples to train, and to test",
                   .unset = "all", .bits = kIndirect, .range = SettingRange{1, kCount}},
                  TD_FIELD(limit)));
  t.push_back(row({.name = "augment", .group = g,
                   .help = "crop, flip … the training images as is usual for the data, anew each epoch",
                   .bits = kRecorded},
                  TD_FIELD(augment)));
  t.push_back(row({.name = "class-weights", .group = g,
                   .help = "rare classes count more in the loss, so that all count alike", .bits = kIndirect},
                  TD_FIELD(class_weights)));
  t.push_back(row({.name = "skip-bad", .group = g,
                   .help = "image-folder: leave files out that cannot be read, and name them", .bits = kIndirect},
                  TD_FIELD(skip_bad)));
}

void add_training(std::vector<Setting>& t) {
  const std::string g = "Training";
  t.push_back(row({.name = "epochs", .group = g, .help = "passes over the data",
                   .unset = "1, or as many as --steps needs", .range = SettingRange{1, kCount}},
                  TD_FIELD(epochs)));
  t.push_back(row({.name = "steps", .group = g, .help = "end after so many steps in all",
                   .unset = "those of --epochs", .range = SettingRange{1, kCount}},
                  TD_FIELD(steps)));
  t.push_back(row({.name = "batch", .group = g, .help = "samples per step", .bits = kRecorded,
                   .range = SettingRange{1, kBatch}},
                  TD_FIELD(batch)));
  t.push_back(row({.name = "accumulate", .group = g, .help = "batches per step: their gradients make one mean",
                   .bits = kRecorded, .range = SettingRange{1, kBatch}},
                  TD_FIELD(accumulate)));
  Setting optimizer = row({.name = "optimizer", .group = g, .help = optim::optimizer_names(), .bits = kRecorded},
                          TD_FIELD(optimizer));
  optimizer.recorded = [](const TrainConfig& c) { return SettingValue(c.own_optimizer ? "own" : c.optimizer); };
  t.push_back(optimizer);
  Setting lr = row({.name = "lr", .group = g, .help = "learning rate",
                    .unset = "the optimizer's: sgd 0.01, adam 0.001 …", .bits = kRecorded},
                   TD_FIELD(lr));
  lr.recorded = [](const TrainConfig& c) { return SettingValue(starting_lr(c)); };
  t.push_back(lr);
  Setting momentum = row({.name = "momentum", .group = g, .help = "of sgd, nesterov and rmsprop",
                          .unset = "0.9; rmsprop 0", .bits = kRecorded, .range = SettingRange{0, 1, true, false}},
                         TD_FIELD(momentum));
  momentum.recorded = [](const TrainConfig& c) {
    return c.own_optimizer ? SettingValue() : value_of(starting_momentum(c));
  };
  t.push_back(momentum);
  t.push_back(row({.name = "weight-decay", .group = g, .help = "of the optimizer",
                   .unset = "0.01 for adamw and lamb, else 0", .bits = kRecorded,
                   .range = SettingRange{0, kMostNumber}},
                  TD_FIELD(weight_decay)));
  t.push_back(row({.name = "decoupled", .group = g,
                   .help = "decay shrinks weights, else it is added to gradients",
                   .unset = "decoupled for adamw and lamb", .bits = kRecorded, .opposite = "coupled"},
                  TD_FIELD(decoupled)));
  t.push_back(row({.name = "no-decay", .group = g,
                   .help = "parameters with one of these in their name are not decayed: bias", .bits = kRecorded},
                  TD_FIELD(no_decay)));
  t.push_back(row({.name = "clip-value", .group = g, .help = "cut the elements of gradients to this size",
                   .unset = "not", .bits = kRecorded, .range = SettingRange{0, kMostNumber, false}},
                  TD_FIELD(clip_value)));
  t.push_back(row({.name = "clip-norm", .group = g, .help = "scale gradients down to this norm", .unset = "not",
                   .bits = kRecorded, .range = SettingRange{0, kMostNumber, false}},
                  TD_FIELD(clip_norm)));
  t.push_back(row({.name = "ema", .group = g,
                   .help = "test and keep a moving average of the weights, of this decay: 0.999", .unset = "not",
                   .bits = kRecorded, .range = SettingRange{0, 1, true, false, "", " Try 0.999."}},
                  TD_FIELD(ema)));
  t.push_back(row({.name = "ema-warmup", .group = g, .help = "its decay begins small", .bits = kRecorded},
                  TD_FIELD(ema_warm_up)));
  t.push_back(row({.name = "seed", .group = g, .help = "of weights, shuffle and dropout", .bits = kRecorded},
                  TD_FIELD(seed)));
}

void add_schedule(std::vector<Setting>& t) {
  const std::string g = "Schedule and stopping";
  t.push_back(row({.name = "schedule", .group = g, .help = "of the learning rate", .bits = kIndirect,
                   .choices = {"constant", "step", "exponential", "cosine", "one-cycle", "plateau"}},
                  TD_FIELD(schedule.kind)));
  t.push_back(text_row(
      {.name = "schedule-by", .group = g, .help = "what it counts", .unset = "epoch for step and exponential, else step",
       .bits = kIndirect, .choices = {"step", "epoch"}},
      [](const TrainConfig& c) {
        return !c.schedule.by_epoch ? "" : *c.schedule.by_epoch ? "epoch" : "step";
      },
      [](TrainConfig& c, const std::string& text) {
        TD_CHECK(text == "step" || text == "epoch", "schedule-by: must be step or epoch; got '", text, "'.");
        c.schedule.by_epoch = text == "epoch";
      }));
  t.push_back(row({.name = "schedule-length", .group = g, .help = "of cosine and one-cycle",
                   .unset = "the run, by --epochs or else --steps", .bits = kIndirect,
                   .range = SettingRange{1, kCount}},
                  TD_FIELD(schedule.total)));
  t.push_back(row({.name = "warmup", .group = g, .help = "steps in which the rate rises to its beginning",
                   .bits = kIndirect, .range = SettingRange{0, kCount, true, true, " steps"}},
                  TD_FIELD(schedule.warm_up)));
  t.push_back(row({.name = "decay-every", .group = g, .help = "schedule step: epochs (or steps) between cuts",
                   .bits = kIndirect, .range = SettingRange{1, kCount}},
                  TD_FIELD(schedule.every)));
  t.push_back(row({.name = "decay-factor", .group = g, .help = "of step, plateau and exponential",
                   .unset = "0.1; exponential 0.95", .bits = kIndirect},
                  TD_FIELD(schedule.factor)));
  t.push_back(row({.name = "least-lr", .group = g, .help = "that cosine and plateau go down to", .bits = kIndirect,
                   .range = SettingRange{0, kMostNumber}},
                  TD_FIELD(schedule.least)));
  t.push_back(row({.name = "patience", .group = g, .help = "plateau: epochs without progress that are let pass",
                   .bits = kIndirect, .range = SettingRange{0, kCount, true, true, " epochs"}},
                  TD_FIELD(schedule.patience)));
  Setting monitor = row({.name = "monitor", .group = g,
                         .help = "of plateau, --early-stop, --best: a metric of the task, loss, accuracy, r2 …",
                         .bits = kIndirect},
                        TD_FIELD(monitor));
  monitor.set = [](TrainConfig& c, const SettingValue& v) {
    c.monitor = c.schedule.monitor = std::get<std::string>(v);
  };
  t.push_back(monitor);
  t.push_back(row({.name = "early-stop", .group = g, .help = "stop after more than so many epochs without progress",
                   .unset = "not", .bits = kIndirect, .range = SettingRange{0, kCount, true, true, " epochs"}},
                  TD_FIELD(early_stop)));
  t.push_back(row({.name = "min-delta", .group = g, .help = "early stop: progress is more than this",
                   .bits = kIndirect, .range = SettingRange{0, kMostNumber}},
                  TD_FIELD(min_delta)));
  t.push_back(row({.name = "restore-best", .group = g, .help = "early stop: end with the weights of the best epoch",
                   .bits = kIndirect},
                  TD_FIELD(restore_best)));
  t.push_back(text_row(
      {.name = "time-budget", .group = g, .help = "stop after 90s, 10m, 1.5h …", .unset = "not"},
      [](const TrainConfig& c) { return c.time_budget ? text_of(*c.time_budget) + "s" : ""; },
      [](TrainConfig& c, const std::string& text) { c.time_budget = parse_duration(text); }));
}

void add_machine(std::vector<Setting>& t) {
  const std::string g = "Machine";
  t.push_back(text_row(
      {.name = "engine", .group = g, .help = "eager or graph: the same bits", .choices = {"eager", "graph"}},
      [](const TrainConfig& c) { return name(c.engine); },
      [](TrainConfig& c, const std::string& text) { c.engine = parse_engine(text); }));
  t.push_back(text_row(
      {.name = "device", .group = g, .help = "cpu, cuda, cuda:N or cpu:N", .bits = kIndirect},
      [](const TrainConfig& c) { return to_string(c.device); },
      [](TrainConfig& c, const std::string& text) { c.device = parse_device(text); }));
  t.push_back(text_row(
      {.name = "dtype", .group = g,
       .help = "f32, tf32 (products on CUDA), bf16 or f16 (products; weights stay f32), f64",
       .unset = "f32; on CUDA tf32, unless TANDEM_TF32=0", .bits = kIndirect,
       .choices = {"f32", "tf32", "bf16", "f16", "f64"}},
      [](const TrainConfig& c) { return dtype_text(c); }, set_dtype));
  Setting half{.name = "half-model", .group = g,
               .help = "with bf16 or f16: the whole model in that type, weights too", .bits = kIndirect};
  half.kind = SettingKind::toggle;
  half.get = [](const TrainConfig& c) { return SettingValue(is_half_model(c)); };
  half.set = [](TrainConfig& c, const SettingValue& v) { set_half_model(c, std::get<bool>(v)); };
  t.push_back(half);
  t.push_back(choice_row({.name = "conv", .group = g,
                          .help = "how convolutions choose their algorithm: fixed, heuristic (by shape) or profile (by time)",
                          .bits = kRecorded},
                         TD_FIELD(machine.conv), convolution_choice));
  Setting workspace = row({.name = "conv-workspace", .group = g,
                           .help = "bytes that a GPU's algorithm of a convolution may take", .unset = "268435456",
                           .bits = kRecorded, .range = SettingRange{0, kCount, true, true, " bytes"}},
                          TD_FIELD(machine.conv_workspace));
  workspace.recorded = [](const TrainConfig&) {
    return SettingValue(static_cast<int64_t>(convolution_choice().workspace));
  };
  t.push_back(workspace);
  t.push_back(choice_row({.name = "matmul", .group = g, .help = "how matrix products choose theirs: fixed, heuristic or profile",
                          .bits = kRecorded},
                         TD_FIELD(machine.matmul), matmul_choice));
  t.push_back(row({.name = "threads", .group = g, .help = "CPU threads: the same bits", .unset = "all cores",
                   .range = SettingRange{1, kMostThreads}},
                  TD_FIELD(machine.threads)));
}

void add_output(std::vector<Setting>& t) {
  const std::string g = "Output";
  t.push_back(row({.name = "out", .group = g, .help = "folder of the run",
                   .unset = "runs/MODEL, or the next free runs/MODEL-N"},
                  TD_FIELD(out)));
  t.push_back(row({.name = "resume", .group = g, .help = "go on from the newest checkpoint in --out"},
                  TD_FIELD(resume)));
  t.push_back(row({.name = "checkpoint-every", .group = g, .help = "steps between checkpoints (0: only at epochs' ends)",
                   .range = SettingRange{0, kCount}},
                  TD_FIELD(checkpoint_every)));
  t.push_back(row({.name = "best", .group = g, .help = "keep the weights of the best epoch in best.safetensors"},
                  TD_FIELD(best)));
  t.push_back(row({.name = "tensorboard", .group = g, .help = "write event files for TensorBoard"},
                  TD_FIELD(tensorboard)));
  t.push_back(row({.name = "anomaly", .group = g,
                   .help = "stop at the operation that first makes a NaN or infinity (slow)"},
                  TD_FIELD(anomaly)));
}

#undef TD_FIELD

}  // namespace

const std::vector<Setting>& settings() {
  static const auto& table = *[] {
    auto* rows = new std::vector<Setting>;  // threads may ask until the process has ended
    add_model_and_data(*rows);
    add_training(*rows);
    add_schedule(*rows);
    add_machine(*rows);
    add_output(*rows);
    return rows;
  }();
  return table;
}

}  // namespace tandem
