// The table of settings: one row each, in the order of the help and of setting them.
#include <algorithm>

#include "tandem/core/choices.h"
#include "tandem/data/loader.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/setting_forms.h"
#include "tandem/train/task.h"

namespace tandem {
namespace {

/// The member at a path, of a configuration that may be changed or not.
template <class Get>
struct Field {
  Get get;
  const char* path;
};
template <class Get>
Field(Get, const char*) -> Field<Get>;
#define TD_FIELD(path) \
  Field { \
    [](auto& c) -> auto& { return c.path; } \
    , #path \
  }

template <class T>
struct Member {
  using Type = T;
};
template <class T>
struct Member<std::optional<T>> {
  using Type = T;
};

template <class T>
constexpr SettingKind kind_of() {
  if constexpr (std::is_same_v<T, bool>) return SettingKind::toggle;
  if constexpr (std::is_same_v<T, int64_t>) return SettingKind::whole;
  if constexpr (std::is_same_v<T, uint64_t>) return SettingKind::natural;
  if constexpr (std::is_same_v<T, double>) return SettingKind::number;
  if constexpr (std::is_same_v<T, std::string>) return SettingKind::text;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return SettingKind::list;
}

template <class T>
SettingValue value_of(const T& member) {
  if constexpr (requires { member.empty(); }) {  // a text or a list: empty is not set
    if (member.empty()) return {};
  }
  return member;
}
template <class T>
SettingValue value_of(const std::optional<T>& member) {
  return member ? SettingValue(*member) : SettingValue();
}

/// Adds rows under one heading.
struct Rows {
  std::vector<Setting>& table;
  std::string group;

  /// A value with a form of its own. `more`: what else the row says.
  void add(const std::string& name, SettingForm form, const std::string& help, Setting more = {}) const {
    more.name = name;
    more.group = group;
    more.help = help;
    more.kind = form.kind;
    if (more.member.empty())
      std::replace_copy(name.begin(), name.end(), std::back_inserter(more.member), '-', '_');
    more.get = std::move(form.get);
    more.set = std::move(form.set);
    table.push_back(std::move(more));
  }
  /// A plain member of TrainConfig.
  template <class Get>
  void add(const std::string& name, Field<Get> member, const std::string& help, Setting more = {}) const {
    const Get field = member.get;
    using T = typename Member<std::remove_cvref_t<decltype(field(std::declval<TrainConfig&>()))>>::Type;
    more.member = member.path;
    add(name,
        SettingForm{[field](const TrainConfig& c) { return value_of(field(c)); },
                    [field](TrainConfig& c, const SettingValue& v) { field(c) = std::get<T>(v); },
                    kind_of<T>()},
        help, std::move(more));
  }
};

constexpr auto kRecorded = SettingBits::recorded, kIndirect = SettingBits::indirect;
constexpr auto kBatch = static_cast<double>(kMostBatch);

SettingRange at_least(double least, const char* unit = "") {
  return {.least = least, .most = static_cast<double>(kMostCount), .unit = unit};
}

// --- What settings need

SettingNeed schedule_of(const char* what, std::vector<std::string> kinds) {
  return {what, [kinds = std::move(kinds)](const TrainConfig& c) {
            return std::find(kinds.begin(), kinds.end(), c.schedule.kind) != kinds.end();
          }};
}
SettingNeed early_stop_need() {
  return {"`early_stop`", [](const TrainConfig& c) { return c.early_stop.has_value(); }};
}
SettingNeed decay_need() {
  return {"`weight_decay` (or adamw or lamb, which have one)", [](const TrainConfig& c) {
            const bool has_one = c.optimizer == "adamw" || c.optimizer == "lamb";
            return c.weight_decay.value_or(has_one ? 0.01 : 0) > 0;
          }};
}
/// Data of the user's own may have a test part or not: open_training_data knows.
SettingNeed split_need() {
  return {
      "`valid`, `limit`, or data that is split for testing (csv, npy, image-folder, text, text-folder, "
      "parallel-text)",
      [](const TrainConfig& c) {
        return c.valid > 0 || c.limit || c.test_share || c.data == "csv" || c.data == "npy" ||
               c.data == "image-folder" || c.data == "text" || c.data == "text-folder" ||
               c.data == "parallel-text";
      }};
}

// --- The rows

/// The tasks that may be asked for by their names.
std::vector<std::string> tasks_to_ask_for() {
  std::vector<std::string> names = task_names();
  std::erase_if(names, [](const std::string& name) { return make_task(name)->reads_as().empty(); });
  return names;
}

void add_model_and_data(std::vector<Setting>& table) {
  const Rows t{table, "Model and data"};
  t.add("model", TD_FIELD(model), "a name from 'tandem models', or the file of a description: ./mynet.toml",
        {.bits = kIndirect});
  t.add("recipe", recipe_form(),
        "data, epochs, batch, optimizer and lr: quick, or paper, those of the study that the model comes "
        "from ('tandem models NAME' prints both)",
        {.unset = kRecipes[0], .bits = kIndirect, .choices = {kRecipes[0], kRecipes[1]}});
  t.add("model-settings", TD_FIELD(model_settings),
        "sizes and probabilities of a model that is no list of layers: embedding=64, zoneout=0",
        {.bits = kRecorded});
  t.add("weights", TD_FIELD(weights), "begin with what fits of a file of weights or of a run's folder",
        {.bits = kIndirect});
  t.add("freeze", TD_FIELD(freeze),
        "names of layers and parameters that are not trained: conv1 (and all in it), layer*.0.conv1, *.bias",
        {.bits = kRecorded});
  t.add("data", TD_FIELD(data), "data set",
        {.unset = "the model's; mnist may be fashion-mnist or digits where it is not found",
         .bits = kIndirect});
  t.add("data-dir", TD_FIELD(data_dir), "folder of the data set's files; of csv and text, or the file",
        {.unset = "the usual places"});
  t.add("target", TD_FIELD(target), "csv: the column to predict",
        {.unset = "label or target", .bits = kIndirect});
  t.add("task", TD_FIELD(task_name), "what the model is trained for; multi-label is for npy",
        {.unset = "what the data asks for", .bits = kIndirect, .choices = tasks_to_ask_for()});
  t.add("input", input_form(), "image-folder: size of the inputs, 96x96",
        {.unset = "the model's, or 224x224", .bits = kIndirect});
  t.add("test-share", TD_FIELD(test_share), "of data without a test part, split off for testing",
        {.unset = "0.2", .bits = kIndirect, .range = SettingRange{0, 1, false, false}});
  t.add("valid", TD_FIELD(valid), "share of the training part held out to judge epochs by: 0.1",
        {.bits = kIndirect, .range = SettingRange{0, 1, true, false}});
  t.add("split-seed", TD_FIELD(split_seed), "of `test_share`, `valid` and `limit`",
        {.bits = kIndirect, .needs = split_need()});
  t.add("limit", TD_FIELD(limit),
        "use so many samples to train, and so many to test, drawn by chance with every class; of a long text "
        "the first ones",
        {.unset = "all", .bits = kIndirect, .range = at_least(1)});
  t.add("augment", TD_FIELD(augment),
        "crop, flip … the training images as is usual for the data, anew each epoch", {.bits = kRecorded});
  t.add("class-weights", TD_FIELD(class_weights),
        "rare classes count more in the loss, so that all count alike", {.bits = kIndirect});
  t.add("guided-attention", TD_FIELD(guided_attention),
        "speech-synthesis: what attention off the diagonal costs while training; 1 where there are few clips",
        {.bits = kIndirect, .range = SettingRange{0, 1000}});
  t.add("skip-bad", TD_FIELD(skip_bad),
        "image-folder, text-folder: leave files out that cannot be read, and name them", {.bits = kIndirect});
}

void add_tables(std::vector<Setting>& table) {
  const Rows t{table, "Tables (csv)"};
  t.add("delimiter", TD_FIELD(csv.delimiter), "between cells: a character, or tab",
        {.unset = "comma, semicolon or tab, by the first line", .bits = kIndirect});
  t.add("no-header", TD_FIELD(csv.no_header), "the first line is a row; the columns are called c0, c1 …",
        {.bits = kIndirect});
  t.add("missing", TD_FIELD(csv.missing),
        "words for a missing value, besides NA, N/A, NaN, nan, null, NULL and ?", {.bits = kIndirect});
  t.add("categories", TD_FIELD(csv.categories), "columns of numbers that are categories",
        {.bits = kIndirect});
  t.add("keep-columns", TD_FIELD(csv.keep),
        "text columns that are kept though nearly every value is different", {.bits = kIndirect});
  t.add("ignore-columns", TD_FIELD(csv.ignore), "columns that are left out", {.bits = kIndirect});
  t.add("day-first", TD_FIELD(csv.day_first), "columns of dates dd/mm/yyyy or dd.mm.yyyy",
        {.bits = kIndirect});
  t.add("month-first", TD_FIELD(csv.month_first), "columns of dates mm/dd/yyyy or mm.dd.yyyy",
        {.bits = kIndirect});
  t.add("max-values", TD_FIELD(csv.max_values), "features of one category; rarer values share one more",
        {.bits = kIndirect, .range = SettingRange{1, 65536}});
}

void add_text(std::vector<Setting>& table) {
  const Rows t{table, "Text"};
  t.add("text", TD_FIELD(text.column), "csv: the column of text that `target` is predicted by",
        {.unset = "none: a table of numbers and categories", .bits = kIndirect});
  t.add("tokens", TD_FIELD(text.tokens),
        "what text is cut into: words (small letters, punctuation apart), spaces (as it is, at white space), "
        "bpe (pieces) or characters",
        {.unset = "words; of ptb spaces",
         .bits = kIndirect,
         .choices = {"words", "spaces", "bpe", "characters"}});
  t.add("vocabulary", TD_FIELD(text.vocabulary), "words or pieces that have a number; rarer ones are unknown",
        {.unset = "the model's", .bits = kIndirect, .range = SettingRange{1, 16777216}});
  t.add("source", TD_FIELD(text.source),
        "parallel-text: the language to translate from, the ending of its files: en",
        {.unset = "the first by the alphabet", .bits = kIndirect});
  t.add("min-count", TD_FIELD(text.min_count),
        "times that a word must be in the training text to have a number",
        {.bits = kIndirect, .range = at_least(1)});
  t.add("length", TD_FIELD(text.length),
        "words of a text that are looked at, its last ones; of a language model, words of a window; of pairs "
        "of "
        "texts, words of the longest that is taken",
        {.unset = "the model's", .bits = kIndirect, .range = SettingRange{1, 1000000}});
}

void add_training(std::vector<Setting>& table) {
  const Rows t{table, "Training"};
  t.add("epochs", TD_FIELD(epochs), "passes over the data",
        {.unset = "1, or as many as `steps` needs", .range = at_least(1)});
  t.add("steps", TD_FIELD(steps), "end after so many steps in all",
        {.unset = "those of `epochs`", .range = at_least(1)});
  t.add("batch", TD_FIELD(batch), "samples per step", {.bits = kRecorded, .range = SettingRange{1, kBatch}});
  t.add("accumulate", TD_FIELD(accumulate), "batches per step: their gradients make one mean",
        {.bits = kRecorded, .range = SettingRange{1, kBatch}});
  t.add("optimizer", TD_FIELD(optimizer), optim::optimizer_names(),
        {.bits = kRecorded, .recorded = [](const TrainConfig& c) {
           return SettingValue(c.own_optimizer ? "own" : c.optimizer);
         }});
  t.add("lr", TD_FIELD(lr), "learning rate",
        {.unset = "the optimizer's: sgd 0.01, adam 0.001 …",
         .bits = kRecorded,
         .recorded = [](const TrainConfig& c) { return SettingValue(starting_lr(c)); }});
  t.add("momentum", TD_FIELD(momentum), "of sgd, nesterov and rmsprop",
        {.unset = "0.9; rmsprop 0",
         .bits = kRecorded,
         .range = SettingRange{0, 1, true, false},
         .recorded = [](const TrainConfig& c) {
           return c.own_optimizer ? SettingValue() : value_of(starting_momentum(c));
         }});
  t.add(
      "weight-decay", TD_FIELD(weight_decay), "of the optimizer",
      {.unset = "0.01 for adamw and lamb, else 0", .bits = kRecorded, .range = SettingRange{0, kMostNumber}});
  t.add("decoupled", TD_FIELD(decoupled), "decay shrinks weights, else it is added to gradients",
        {.unset = "decoupled for adamw and lamb",
         .bits = kRecorded,
         .opposite = "coupled",
         .needs = decay_need()});
  t.add("no-decay", TD_FIELD(no_decay), "names of parameters that are not decayed: *.bias, bn1",
        {.bits = kRecorded, .needs = decay_need()});
  t.add("clip-value", TD_FIELD(clip_value), "cut the elements of gradients to this size",
        {.unset = "not", .bits = kRecorded, .range = SettingRange{0, kMostNumber, false}});
  t.add("clip-norm", TD_FIELD(clip_norm), "scale gradients down to this norm",
        {.unset = "not", .bits = kRecorded, .range = SettingRange{0, kMostNumber, false}});
  t.add("ema", TD_FIELD(ema), "test and keep a moving average of the weights, of this decay: 0.999",
        {.unset = "not", .bits = kRecorded, .range = SettingRange{0, 1, true, false, "", " Try 0.999."}});
  t.add("ema-warmup", TD_FIELD(ema_warm_up), "its decay begins small",
        {.bits = kRecorded, .needs = {"`ema`", [](const TrainConfig& c) { return c.ema.has_value(); }}});
  t.add("allow-unused", TD_FIELD(allow_unused),
        "parameters that the loss does not depend on stay as they are, else they are refused",
        {.bits = kRecorded});
  t.add("seed", TD_FIELD(seed), "of weights, shuffle and dropout", {.bits = kRecorded});
}

void add_schedule(std::vector<Setting>& table) {
  const Rows t{table, "Schedule and stopping"};
  t.add(
      "schedule", TD_FIELD(schedule.kind), "of the learning rate",
      {.bits = kIndirect, .choices = {"constant", "step", "exponential", "cosine", "one-cycle", "plateau"}});
  t.add("schedule-by", schedule_by_form(), "what it counts",
        {.member = "schedule.by_epoch",
         .unset = "epoch for step and exponential, else step",
         .bits = kIndirect,
         .choices = {"step", "epoch"},
         .needs = schedule_of("`schedule.kind` step, exponential, cosine or one-cycle",
                              {"step", "exponential", "cosine", "one-cycle"})});
  t.add("schedule-length", TD_FIELD(schedule.total), "epochs or steps that the schedule takes",
        {.unset = "the run, by `epochs` or else `steps`",
         .bits = kIndirect,
         .range = at_least(1),
         .needs = schedule_of("`schedule.kind` cosine or one-cycle", {"cosine", "one-cycle"})});
  t.add("warmup", TD_FIELD(schedule.warm_up), "steps in which the rate rises to its beginning",
        {.bits = kIndirect, .range = at_least(0, " steps")});
  t.add("decay-every", TD_FIELD(schedule.every), "epochs (or steps) between cuts",
        {.bits = kIndirect, .range = at_least(1), .needs = schedule_of("`schedule.kind` step", {"step"})});
  t.add("decay-factor", TD_FIELD(schedule.factor), "of the rate, at each cut",
        {.unset = "0.1; exponential 0.95",
         .bits = kIndirect,
         .needs = schedule_of("`schedule.kind` step, exponential or plateau",
                              {"step", "exponential", "plateau"})});
  t.add("least-lr", TD_FIELD(schedule.least), "that the rate goes down to",
        {.bits = kIndirect,
         .range = SettingRange{0, kMostNumber},
         .needs = schedule_of("`schedule.kind` cosine or plateau", {"cosine", "plateau"})});
  t.add("patience", TD_FIELD(schedule.patience),
        "epochs without progress that are let pass (early stopping has `early_stop` N)",
        {.bits = kIndirect,
         .range = at_least(0, " epochs"),
         .needs = schedule_of("`schedule.kind` plateau", {"plateau"})});
  t.add("monitor", monitor_form(), "a metric of the task that epochs are judged by, loss, accuracy, r2 …",
        {.bits = kIndirect,
         .needs = {"`schedule.kind` plateau, `early_stop` or `best`", [](const TrainConfig& c) {
                     return c.schedule.kind == "plateau" || c.early_stop || c.best;
                   }}});
  t.add("early-stop", TD_FIELD(early_stop), "stop after more than so many epochs without progress",
        {.unset = "not", .bits = kIndirect, .range = at_least(0, " epochs")});
  t.add("min-delta", TD_FIELD(min_delta), "progress is more than this",
        {.bits = kIndirect, .range = SettingRange{0, kMostNumber}, .needs = early_stop_need()});
  t.add("restore-best", TD_FIELD(restore_best), "end with the weights of the best epoch",
        {.bits = kIndirect, .needs = early_stop_need()});
  t.add("time-budget", time_budget_form(),
        "end within 90s, 10m, 1.5h …, with the tests and the checkpoint that are due then", {.unset = "not"});
}

void add_machine(std::vector<Setting>& table) {
  const Rows t{table, "Machine"};
  t.add("engine", engine_form(), "eager or graph: the same bits", {.choices = {"eager", "graph"}});
  t.add("device", device_form(), "cpu, cuda, cuda:N or cpu:N", {.bits = kIndirect});
  t.add("dtype", dtype_form(), "f32, tf32 (products on CUDA), bf16 or f16 (products; weights stay f32), f64",
        {.unset = "f32; on CUDA tf32, unless TANDEM_TF32=0",
         .bits = kIndirect,
         .choices = {"f32", "tf32", "bf16", "f16", "f64"}});
  t.add("half-model", half_model_form(), "with bf16 or f16: the whole model in that type, weights too",
        {.bits = kIndirect});
  t.add("conv", conv_form(),
        "how convolutions choose their algorithm: fixed, heuristic (by shape) or profile (by time)",
        {.member = "machine.conv",
         .unset = "heuristic",
         .bits = kRecorded,
         .choices = {"fixed", "heuristic", "profile"},
         .recorded = [](const TrainConfig&) { return SettingValue(name(convolution_choice().mode)); }});
  t.add("conv-workspace", TD_FIELD(machine.conv_workspace),
        "bytes that a GPU's algorithm of a convolution may take",
        {.unset = std::to_string(ConvolutionChoice().workspace),
         .bits = kRecorded,
         .range = at_least(0, " bytes"),
         .recorded = [](const TrainConfig&) {
           return SettingValue(static_cast<int64_t>(convolution_choice().workspace));
         }});
  t.add("matmul", matmul_form(), "how matrix products choose theirs: fixed, heuristic or profile",
        {.member = "machine.matmul",
         .unset = "heuristic",
         .bits = kRecorded,
         .choices = {"fixed", "heuristic", "profile"},
         .recorded = [](const TrainConfig&) { return SettingValue(name(matmul_choice().mode)); }});
  t.add("workers", TD_FIELD(workers), "threads that make batches: the same bits",
        {.unset = "1; for a GPU all cores but one, 12 at most",
         .range = SettingRange{0, static_cast<double>(data::kMostWorkers)}});
  t.add("threads", TD_FIELD(machine.threads), "CPU threads: the same bits",
        {.unset = "all cores", .range = SettingRange{1, kMostThreads}});
}

void add_output(std::vector<Setting>& table) {
  const Rows t{table, "Output"};
  t.add("out", TD_FIELD(out), "folder of the run", {.unset = "runs/MODEL, or the next free runs/MODEL-N"});
  t.add("resume", TD_FIELD(resume), "go on from the newest checkpoint in `out`");
  t.add("checkpoint-every", TD_FIELD(checkpoint_every), "steps between checkpoints (0: only at epochs' ends)",
        {.unset = "500, rarer where writing takes long", .range = at_least(0)});
  t.add("best", TD_FIELD(best), "keep the weights of the best epoch in best.safetensors");
  t.add("tensorboard", TD_FIELD(tensorboard), "write event files for TensorBoard");
  t.add("anomaly", TD_FIELD(anomaly), "stop at the operation that first makes a NaN or infinity (slow)");
}

#undef TD_FIELD

}  // namespace

const std::vector<Setting>& settings() {
  static const auto& table = *[] {
    auto* rows = new std::vector<Setting>;  // threads may ask until the process has ended
    add_model_and_data(*rows);
    add_tables(*rows);
    add_text(*rows);
    add_training(*rows);
    add_schedule(*rows);
    add_machine(*rows);
    add_output(*rows);
    return rows;
  }();
  return table;
}

}  // namespace tandem
