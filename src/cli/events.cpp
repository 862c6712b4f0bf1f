// The events of a training run, as JSON lines or as text.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/output.h"
#include "tandem/core/choices.h"
#include "tandem/core/error.h"
#include "tandem/io/json.h"
#include "tandem/train/settings.h"

namespace tandem::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// True at most once in `seconds`.
class Throttle {
 public:
  explicit Throttle(double seconds) : gap_(seconds) {}
  bool due() {
    const Clock::time_point now = Clock::now();
    if (now - last_ < gap_) return false;
    last_ = now;
    return true;
  }

 private:
  std::chrono::duration<double> gap_;
  Clock::time_point last_ = Clock::now();
};

class JsonEvents {
 public:
  void operator()(const StartEvent& e) {
    ordered_json line = {
        {"event", "start"},
        {"model", e.model},
        {"parameters", e.parameters},
        {"data", e.data},
        {"data_found", e.where},
        {"task", e.config.task ? e.config.task->name() : "classification"},
        {"train_samples", e.train_samples},
        {"valid_samples", e.valid_samples},
        {"test_samples", e.test_samples},
        {"engine", name(e.config.engine)},
        {"device", to_string(e.config.device)},
        {"dtype", tandem::name(e.config.dtype)},
        {"autocast", e.config.autocast ? ordered_json(tandem::name(*e.config.autocast)) : nullptr},
        {"conv", tandem::name(convolution_choice().mode)},
        {"matmul", tandem::name(matmul_choice().mode)},
        {"epochs", e.epochs},
        {"steps", e.steps},
        {"first_step", e.first_step},
        {"batch", e.config.batch},
        {"optimizer", e.config.optimizer},
        {"lr", e.lr}};
    if (const auto momentum = starting_momentum(e.config)) line["momentum"] = *momentum;
    line["seed"] = e.config.seed;
    line["threads"] = e.threads;
    line["out"] = e.out;
    if (!e.taken.empty()) line["samples_taken"] = e.taken;
    line["settings"] = io::parse_json<ordered_json>("settings: ", settings_object(e.config));
    print(line);
  }
  void operator()(const NoticeEvent& e) { print({{"event", "notice"}, {"text", with_flags(e.text)}}); }
  void operator()(const ProgressEvent& e) {
    if (progress_.due())
      print({{"event", "progress"},
             {"epoch", e.epoch},
             {"epochs", e.epochs},
             {"step", e.step},
             {"steps", e.steps},
             {"loss", e.loss},
             {"samples_per_second", e.samples_per_second},
             {"seconds_left", e.seconds_left}});
  }
  void operator()(const EpochEvent& e) {
    ordered_json line = {
        {"event", "epoch"}, {"epoch", e.epoch}, {"epochs", e.epochs}, {"step", e.step}, {"lr", e.lr}};
    for (const Metric& metric : e.values) line[metric.name] = metric.value;
    line["seconds"] = e.seconds;
    print(line);
  }
  void operator()(const CheckpointEvent& e) {
    print({{"event", "checkpoint"}, {"step", e.step}, {"path", e.path}});
  }
  void operator()(const InterruptedEvent& e) {
    print({{"event", "interrupted"}, {"step", e.step}, {"steps", e.steps}, {"out", e.out}});
  }
  void operator()(const DoneEvent& e) {
    ordered_json line = {{"event", "done"},
                         {"model", e.model},
                         {"data", e.data},
                         {"engine", name(e.engine)},
                         {"device", to_string(e.device)},
                         {"epochs", e.epochs},
                         {"steps", e.steps}};
    for (const Metric& metric : e.values) line[metric.name] = metric.value;
    line["seconds"] = e.seconds;
    line["samples_per_second"] = e.samples_per_second;
    line["weights_sha256"] = e.weights_sha256;
    print(line);
  }

 private:
  static void print(const ordered_json& line) {
    print_line(line);
    std::fflush(stdout);
  }
  Throttle progress_{1.0};
};

/// Those values that a person wants to see, in their order.
std::vector<std::pair<MetricInfo, double>> main_values(const std::vector<MetricInfo>& infos,
                                                       const std::vector<Metric>& values) {
  std::vector<std::pair<MetricInfo, double>> out;
  for (const Metric& metric : values)
    for (const MetricInfo& info : infos)
      if (info.name == metric.name && info.is_main) out.emplace_back(info, metric.value);
  return out;
}

/// What was given besides that which the other lines of the echo tell.
std::string other_settings(const TrainConfig& config) {
  static const std::set<std::string> told = {"model",      "data",     "engine", "device",     "dtype",
                                             "half-model", "conv",     "matmul", "threads",    "optimizer",
                                             "lr",         "momentum", "batch",  "accumulate", "seed",
                                             "epochs",     "steps",    "out",    "resume",     "limit"};
  std::string out;
  for (const Setting& s : settings()) {
    const SettingValue value = s.get(config);
    if (told.contains(s.name) || value == default_of(s)) continue;
    const bool is_on = value == SettingValue(true);
    out += (out.empty() ? "" : ", ") + s.name + (is_on ? "" : " " + text_of(value));
  }
  return out;
}

class TextEvents {
 public:
  void operator()(const StartEvent& e) {
    const TrainConfig& c = e.config;
    Table table;
    table.add({"model", e.model + ", " + grouped(e.parameters) + " parameters"});
    table.add({"data", e.title + " (" + e.data + "), " + grouped(e.train_samples) + " to train, " +
                           (e.valid_samples > 0 ? grouped(e.valid_samples) + " to validate, " : "") +
                           grouped(e.test_samples) + " to test, " + e.where});
    if (!e.taken.empty()) table.add({"limit", e.taken});
    const ChoiceMode conv = convolution_choice().mode, matmul = matmul_choice().mode;
    table.add(
        {"engine", std::string(name(c.engine)) + (c.anomaly ? ", eager for --anomaly" : "") + ", " +
                       to_string(c.device) + ", " + tandem::name(c.dtype) +
                       (c.autocast ? str(" with ", *c.autocast, " products, ") : ", ") +
                       std::to_string(e.threads) + (e.threads == 1 ? " thread" : " threads") +
                       (conv == ChoiceMode::heuristic ? "" : str(", conv ", tandem::name(conv))) +
                       (matmul == ChoiceMode::heuristic ? "" : str(", matmul ", tandem::name(matmul)))});
    const std::optional<double> given = starting_momentum(c);
    const std::string momentum = given ? str(", momentum ", *given) : "";
    const std::string batch = c.accumulate > 1 ? str(c.accumulate, " × ", c.batch) : str(c.batch);
    table.add({"optimizer", str(c.optimizer, ", lr ", e.lr, momentum, ", batch ", batch, ", seed ", c.seed)});
    table.add({"length", str(e.epochs, e.epochs == 1 ? " epoch, " : " epochs, ", grouped(e.steps), " steps",
                             e.first_step > 0 ? str(", from step ", grouped(e.first_step)) : "")});
    if (const std::string more = other_settings(c); !more.empty()) table.add({"settings", more});
    table.add({"out", e.out});
    table.print();
    std::fflush(stdout);
  }
  void operator()(const NoticeEvent& e) {
    clear_bar();
    std::fprintf(stderr, "tandem: %s\n", with_flags(e.text).c_str());
  }
  void operator()(const ProgressEvent& e) {
    if (!progress_.due()) return;
    const std::string numbers =
        str("epoch ", e.epoch, "/", e.epochs, "  step ", e.step, "/", e.steps, "  loss ", fixed(e.loss, 4),
            "  ", grouped(static_cast<int64_t>(e.samples_per_second)), " samples/s  ",
            duration(e.seconds_left), " left");
    if (!is_terminal_) {
      std::fprintf(stderr, "  %s\n", numbers.c_str());
      return;
    }
    constexpr int64_t kWidth = 24;
    const int64_t filled = e.steps > 0 ? kWidth * e.step / e.steps : 0;
    std::string bar;
    for (int64_t i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
    std::fprintf(stderr, "\r\033[K  %s  %s", bar.c_str(), numbers.c_str());
    std::fflush(stderr);
    bar_shown_ = true;
  }
  void operator()(const EpochEvent& e) {
    clear_bar();
    std::string line = str("  epoch ", e.epoch, "/", e.epochs);
    for (const auto& [info, value] : main_values(e.infos, e.values))
      line += "  " + title_of(info.name) + " " + shown(info, value);
    std::printf("%s  %s s\n", line.c_str(), fixed(e.seconds, 1).c_str());
    std::fflush(stdout);
  }
  void operator()(const CheckpointEvent&) {}
  void operator()(const InterruptedEvent&) { clear_bar(); }
  void operator()(const DoneEvent& e) {
    clear_bar();
    Table table;
    table.add({"steps", str(grouped(e.steps), " in ", fixed(e.seconds, 1), " s, ",
                            grouped(static_cast<int64_t>(e.samples_per_second)), " samples/s")});
    for (const auto& [info, value] : main_values(e.infos, e.values))
      table.add({title_of(info.name), shown(info, value)});
    table.add({"weights", e.out + "/model.safetensors"});
    table.add({"sha256", e.weights_sha256});
    table.print();
  }

 private:
  void clear_bar() {
    if (bar_shown_) std::fprintf(stderr, "\r\033[K");
    bar_shown_ = false;
  }
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool bar_shown_ = false;
  Throttle progress_{is_terminal_ ? 0.1 : 10.0};
};

}  // namespace

CallbackPtr json_events() { return listen(JsonEvents()); }
CallbackPtr text_events() { return listen(TextEvents()); }

}  // namespace tandem::cli
