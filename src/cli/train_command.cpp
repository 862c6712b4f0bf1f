// tandem train MODEL: the flags, and how a stopped run goes on.
#include <cmath>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "tandem/core/error.h"
#include "tandem/optim/optimizer.h"
#include "tandem/train/train.h"

namespace tandem::cli {
namespace {

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

std::string quoted(const std::string& word) {
  const bool is_plain =
      !word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]#~!{}") == std::string::npos;
  std::string out = is_plain ? word : "'";
  if (is_plain) return out;
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

/// The command that goes on with a run in `out`.
std::string resume_command(const std::vector<std::string>& arguments, const std::string& out) {
  std::string text = "tandem";
  bool has_out = false, has_resume = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    text += " " + quoted(arguments[i]);
    has_out = has_out || arguments[i] == "--out" || arguments[i].starts_with("--out=");
    has_resume = has_resume || arguments[i] == "--resume";
  }
  return text + (has_out ? "" : " --out " + quoted(out)) + (has_resume ? "" : " --resume");
}

/// What becomes callbacks.
struct CallbackFlags {
  ScheduleOptions schedule;
  std::string schedule_by, time_budget;
  std::string monitor = "loss";
  std::optional<int64_t> early_stop;
  double min_delta = 0;
  bool restore_best = false, best = false, tensorboard = false;

  void add(CLI::App& cmd) {
    cmd.add_option("--schedule", schedule.kind,
                   "of the rate: constant, step, exponential, cosine, one-cycle, plateau")
        ->capture_default_str();
    cmd.add_option("--schedule-by", schedule_by, "step or epoch (default: epoch for step and exponential)");
    cmd.add_option("--schedule-length", schedule.total,
                   "of cosine and one-cycle (default: the run, by --epochs or else --steps)");
    cmd.add_option("--warmup", schedule.warm_up, "steps in which the rate rises to its beginning");
    cmd.add_option("--decay-every", schedule.every, "schedule step: epochs (or steps) between cuts")
        ->capture_default_str();
    cmd.add_option("--decay-factor", schedule.factor,
                   "step and plateau (default 0.1), exponential (default 0.95)");
    cmd.add_option("--least-lr", schedule.least, "that cosine and plateau go down to")->capture_default_str();
    cmd.add_option("--patience", schedule.patience, "plateau: epochs without progress that are let pass")
        ->capture_default_str();
    cmd.add_option("--monitor", monitor,
                   "of plateau, --early-stop, --best: a metric of the task, loss, accuracy, r2 …")
        ->capture_default_str();
    cmd.add_option("--early-stop", early_stop, "stop after more than so many epochs without progress");
    cmd.add_option("--min-delta", min_delta, "early stop: progress is more than this")->capture_default_str();
    cmd.add_flag("--restore-best", restore_best, "early stop: end with the weights of the best epoch");
    cmd.add_flag("--best", best, "keep the weights of the best epoch in best.safetensors");
    cmd.add_option("--time-budget", time_budget, "stop after 90s, 10m, 1.5h …");
    cmd.add_flag("--tensorboard", tensorboard, "write event files for TensorBoard");
  }
  std::vector<CallbackPtr> callbacks() {
    TD_CHECK(schedule_by.empty() || schedule_by == "step" || schedule_by == "epoch",
             "schedule-by: must be step or epoch; got '", schedule_by, "'.");
    TD_CHECK(early_stop || (!restore_best && min_delta == 0),
             "restore-best and min-delta: belong to --early-stop; got none. Give --early-stop as well.");
    if (!schedule_by.empty()) schedule.by_epoch = schedule_by == "epoch";
    schedule.monitor = monitor;
    check(schedule);
    std::vector<CallbackPtr> out;
    if (schedule.kind != "constant" || schedule.warm_up > 0) out.push_back(learning_rate(schedule));
    if (early_stop)
      out.push_back(early_stopping({.monitor = monitor,
                                    .patience = *early_stop,
                                    .min_delta = min_delta,
                                    .restore_best = restore_best}));
    if (best) out.push_back(best_weights({.monitor = monitor}));
    if (!time_budget.empty()) out.push_back(tandem::time_budget(parse_duration(time_budget)));
    if (tensorboard) out.push_back(tandem::tensorboard());
    return out;
  }
};

}  // namespace

void add_train(CLI::App& app, Action& action, const std::vector<std::string>& arguments) {
  struct Flags {
    TrainConfig config;
    MachineFlags machine;
    CallbackFlags callbacks;
    std::string input;
    bool decoupled = false, coupled = false, json = false;
  };
  auto flags = std::make_shared<Flags>();
  TrainConfig& c = flags->config;
  CLI::App* cmd = app.add_subcommand("train", "train a model");
  cmd->add_option("MODEL", c.model, "a name from 'tandem models', or the file of a description: ./mynet.toml")
      ->required();
  cmd->add_option(
      "--data", c.data,
      "data set (default: the model's; mnist may be fashion-mnist or digits where it is not found)");
  cmd->add_option("--data-dir", c.data_dir, "folder of the data set's files; of csv, or the file");
  cmd->add_option("--target", c.target, "csv: the column to predict (default: label or target)");
  cmd->add_option("--task", c.task_name, "classification, regression … (default: what the data asks for)");
  cmd->add_option("--input", flags->input, "image-folder: size of the inputs, 96x96 (default: the model's, or 224x224)");
  cmd->add_option("--test-share", c.test_share, "of data without a test part, split off for testing (default 0.2)");
  cmd->add_option("--valid", c.valid, "share of the training part held out to judge epochs by: 0.1");
  cmd->add_option("--split-seed", c.split_seed, "of --test-share and --valid")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  cmd->add_flag("--skip-bad", c.skip_bad, "image-folder: leave files out that cannot be read, and name them");
  cmd->add_flag("--class-weights", c.class_weights, "rare classes count more in the loss, so that all count alike");
  cmd->add_option("--weights", c.weights, "begin with what fits of a file of weights or of a run's folder");
  cmd->add_option("--freeze", c.freeze, "parameters with one of these in their name are not trained: conv1")
      ->delimiter(',')
      ->expected(1);
  flags->machine.add(*cmd, true);
  cmd->add_option("--epochs", c.epochs, "passes over the data (default 1)");
  cmd->add_option("--steps", c.steps, "end after so many steps in all");
  cmd->add_option("--batch", c.batch, "samples a step")->capture_default_str();
  cmd->add_option("--accumulate", c.accumulate, "batches a step: their gradients make one mean")
      ->capture_default_str();
  cmd->add_option("--optimizer", c.optimizer, optim::optimizer_names())->capture_default_str();
  cmd->add_option("--lr", c.lr, "learning rate (default: the optimizer's: sgd 0.01, adam 0.001 …)");
  cmd->add_option("--momentum", c.momentum, "of sgd and nesterov (default 0.9), and rmsprop (default 0)");
  cmd->add_option("--weight-decay", c.weight_decay, "(default: 0.01 for adamw and lamb, else 0)");
  CLI::Option* decoupled =
      cmd->add_flag("--decoupled", flags->decoupled, "decay shrinks weights (default for adamw and lamb)");
  cmd->add_flag("--coupled", flags->coupled, "decay is added to gradients (default for the rest)")
      ->excludes(decoupled);
  cmd->add_option("--no-decay", c.no_decay,
                  "parameters with one of these in their name are not decayed: bias")
      ->delimiter(',')
      ->expected(1);
  cmd->add_option("--clip-value", c.clip_value, "cut the elements of gradients to this size");
  cmd->add_option("--clip-norm", c.clip_norm, "scale gradients down to this norm");
  cmd->add_option("--ema", c.ema, "test and keep a moving average of the weights, of this decay: 0.999");
  cmd->add_flag("--ema-warmup", c.ema_warm_up, "its decay begins small");
  flags->callbacks.add(*cmd);
  cmd->add_option("--seed", c.seed, "of weights, shuffle and dropout")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  cmd->add_option("--threads", c.machine.threads, "CPU threads (default: all cores): the same bits");
  cmd->add_option("--limit", c.limit, "use the first so many samples to train, and to test");
  cmd->add_flag("--augment", c.augment,
                "crop, flip … the training images as is usual for the data, anew each epoch");
  cmd->add_option("--out", c.out, "folder of the run (default: runs/MODEL, or the next free runs/MODEL-N)");
  cmd->add_option("--checkpoint-every", c.checkpoint_every,
                  "steps between checkpoints (0: only at epochs' ends)")
      ->capture_default_str();
  cmd->add_flag("--resume", c.resume, "go on from the newest checkpoint in --out");
  cmd->add_flag("--anomaly", c.anomaly, "stop at the operation that first makes a NaN or infinity (slow)");
  cmd->add_flag("--json", flags->json, "print one JSON object a line");
  cmd->callback([flags, arguments, &action] {
    action = [flags, arguments] {
      TrainConfig& config = flags->config;
      as_usage([&] {
        flags->machine.parse_into(config);
        if (flags->decoupled || flags->coupled) config.decoupled = flags->decoupled;
        if (!flags->input.empty()) config.input = parse_size(flags->input);
        config.callbacks = flags->callbacks.callbacks();
        check(config);
      });
      config.stop = &stop_on_signals();
      config.callbacks.push_back(flags->json ? json_events() : text_events());
      const DoneEvent done = train(config);
      if (!done.interrupted) return;
      throw Interrupted(
          cat("stopped at step ", done.steps, ". Go on with: ", resume_command(arguments, done.out)));
    };
  });
}

}  // namespace tandem::cli
