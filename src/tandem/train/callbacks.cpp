// The callbacks that come with Tandem.
#include "tandem/train/callbacks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/core/tape.h"
#include "tandem/data/loader.h"
#include "tandem/io/file.h"
#include "tandem/io/tensorboard.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/plot.h"
#include "tandem/train/run_folder.h"
#include "tandem/train/settings.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

/// The shortest text that reads as the same number: settings are compared by it.
std::string exact(double value) { return text_of(SettingValue(value)); }

/// The metric that a user's word for it means in a run: its own name, or its plain one.
const MetricInfo& monitored(const Training& training, const std::string& monitor) {
  std::string names;
  const std::string full = str(training.measured_part(), "_", monitor);
  for (const MetricInfo& info : training.metrics()) {
    if (info.name == monitor || info.name == full) return info;
    names += (names.empty() ? "" : ", ") + info.name;
  }
  throw Error(str("monitor: must be one of ", names, "; got '", io::one_line(monitor, 100), "'."));
}

double latest(const Training& training, const std::string& monitor) {
  const std::string& name = monitored(training, monitor).name;
  const double value = training.state().history.back()[name];
  TD_CHECK(!std::isnan(value), "monitor: ", name,
           " is not measured in this run, or is no number. Monitor another metric: train_loss.");
  return value;
}

void check_mode(const std::string& mode) {
  TD_CHECK(mode == "auto" || mode == "min" || mode == "max", "mode: must be auto, min or max; got '", mode,
           "'.");
}
bool wants_higher(const Training& training, const std::string& monitor, const std::string& mode) {
  const MetricInfo& info = monitored(training, monitor);
  return mode == "auto" ? info.higher_is_better : mode == "max";
}

std::string in_folder(const Training& training, const char* callback, const std::string& given,
                      const char* usual) {
  if (!given.empty()) return given;
  TD_CHECK(!training.folder().empty(), callback,
           ": a run without a folder has no place for it. Give the callback a path, or the run an out.");
  return (std::filesystem::path(training.folder()) / usual).string();
}

/// Replaces a file in one go. It does not wait for the disk: these files follow from the checkpoint's history, and a
/// resumed run writes them anew.
void write_text(const std::string& path, const std::string& text) {
  io::write_atomically(
      path, [&](io::OutputFile& file) { file.write(text); }, io::Sync::no);
}

/// The best value of a monitor so far, as callbacks keep it.
class Best {
 public:
  Best(std::string monitor, std::string mode, double min_delta)
      : monitor_(std::move(monitor)), mode_(std::move(mode)), min_delta_(min_delta) {
    check_mode(mode_);
  }
  void reset() {
    value_.reset();
    epoch_ = 0;
  }
  /// Takes the latest epoch's value; true where it is progress.
  bool take(const Training& training) {
    return take(latest(training, monitor_), training.state().epoch, higher(training));
  }
  /// Takes those of all epochs so far.
  void take_history(const Training& training) {
    for (const EpochMetrics& row : training.state().history)
      if (const double value = row[name(training)]; !std::isnan(value))
        take(value, row.epoch, higher(training));
  }
  double value() const { return value_.value_or(std::nan("")); }
  int64_t epoch() const { return epoch_; }  // of the best; 0: none yet
  /// Of the metric, as the run calls it.
  const std::string& name(const Training& training) const { return monitored(training, monitor_).name; }
  bool higher(const Training& training) const { return wants_higher(training, monitor_, mode_); }
  std::string text() const { return hex_bits(value()) + " " + std::to_string(epoch_); }
  void read(std::istream& in) {
    std::string bits;
    in >> bits >> epoch_;
    const double value = from_hex_bits(bits);
    if (!in) throw std::invalid_argument("cut short");
    value_ = epoch_ == 0 ? std::nullopt : std::optional(value);
  }

 private:
  bool take(double value, int64_t epoch, bool higher) {
    if (value_ && !(higher ? value > *value_ + min_delta_ : value < *value_ - min_delta_)) return false;
    value_ = value;
    epoch_ = epoch;
    return true;
  }

  std::string monitor_, mode_;
  double min_delta_;
  std::optional<double> value_;
  int64_t epoch_ = 0;
};

class LearningRate final : public Callback {
 public:
  explicit LearningRate(const ScheduleOptions& options) : o_(options) { check(options); }
  std::string name() const override { return "schedule"; }
  std::string settings(const Training& training) const override {
    std::string text = o_.kind + (by_epoch() ? " by epoch" : " by step");
    if (o_.kind == "step") text += str(", every ", o_.every);
    if (o_.kind == "step" || o_.kind == "exponential" || o_.kind == "plateau")
      text += ", factor " + exact(factor());
    if (o_.kind == "cosine" || o_.kind == "plateau") text += ", least " + exact(o_.least);
    if (o_.kind == "plateau")
      text += str(", patience ", o_.patience, " of ", monitored(training, o_.monitor).name);
    if (o_.kind == "cosine" || o_.kind == "one-cycle") text += str(", over ", total(training));
    if (o_.kind == "one-cycle")
      text += str(", rise ", exact(o_.one_cycle.rise), ", divisors ", exact(o_.one_cycle.divisor), " and ",
                  exact(o_.one_cycle.final_divisor), o_.one_cycle.linear ? ", linear" : "",
                  o_.one_cycle.three_phases ? ", three phases" : "");
    if (o_.warm_up > 0) text += str(", warm-up ", o_.warm_up, " from ", exact(o_.warm_up_start));
    return text;
  }
  void load_state(const std::string& state, const nn::NamedTensors&) override {
    plateau_.reset();
    saved_.reset();
    if (state.empty()) return;
    std::istringstream in(state);
    std::string lr, best;
    optim::Plateau::State saved;
    in >> lr >> best >> saved.bad >> saved.cooling;
    saved.lr = from_hex_bits(lr);
    saved.best = from_hex_bits(best);
    saved_ = saved;
  }
  std::string state() const override {
    if (!plateau_) return "";
    const optim::Plateau::State& s = plateau_->state();
    return str(hex_bits(s.lr), " ", hex_bits(s.best), " ", s.bad, " ", s.cooling);
  }
  void on_start(Training& training) override {
    if (o_.kind == "plateau" && !plateau_) {
      plateau_ = std::make_unique<optim::Plateau>(training.optimizer().first_lr(), plateau_options(training));
      if (saved_) plateau_->load_state(*saved_);
    }
    set_.reset();
    apply(training);
  }
  void on_step(Training& training) override { apply(training); }
  void on_epoch(Training& training) override {
    if (plateau_) plateau_->measure(latest(training, o_.monitor));
    apply(training);
  }

 private:
  bool by_epoch() const { return o_.by_epoch.value_or(o_.kind == "step" || o_.kind == "exponential"); }
  double factor() const { return o_.factor.value_or(o_.kind == "exponential" ? 0.95 : 0.1); }
  int64_t total(const Training& training) const {
    const int64_t spe = training.steps_per_epoch(), steps = training.planned_steps();
    return o_.total.value_or(by_epoch() ? (steps + spe - 1) / spe : steps);
  }
  optim::PlateauOptions plateau_options(const Training& training) const {
    return {.factor = factor(),
            .patience = o_.patience,
            .higher_is_better = monitored(training, o_.monitor).higher_is_better,
            .least = o_.least};
  }
  /// The rate of the step that comes next.
  double rate(const Training& training, double lr) const {
    const RunState& state = training.state();
    const int64_t at = by_epoch() ? state.epoch : state.step;
    if (o_.kind == "step") return optim::step_decay(lr, at, o_.every, factor());
    if (o_.kind == "exponential") return optim::exponential_decay(lr, at, factor());
    if (o_.kind == "cosine")
      return optim::cosine(lr, std::min(at, total(training)), total(training), o_.least);
    if (o_.kind == "one-cycle")
      return optim::one_cycle(lr, std::min(at, total(training) - 1), total(training), o_.one_cycle);
    return plateau_ ? plateau_->lr() : lr;
  }
  void apply(Training& training) {
    double lr = rate(training, training.optimizer().first_lr());
    if (o_.warm_up > 0) lr = optim::warm_up(lr, training.state().step, o_.warm_up, o_.warm_up_start);
    if (set_ == lr) return;
    training.optimizer().set_lr(lr);
    set_ = lr;
  }

  ScheduleOptions o_;
  std::unique_ptr<optim::Plateau> plateau_;
  std::optional<optim::Plateau::State> saved_;  // of a checkpoint, until the run begins
  std::optional<double> set_;                   // by this process
};

class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(const EarlyStopOptions& options)
      : o_(options), best_(options.monitor, options.mode, options.min_delta) {
    check(options);
  }
  std::string name() const override { return "early-stop"; }
  std::string settings(const Training& training) const override {
    return str(o_.patience, " epochs of ", best_.name(training), best_.higher(training) ? " up" : " down",
               " by more than ", exact(o_.min_delta), o_.restore_best ? ", restoring the best" : "");
  }
  void on_start(Training& training) override {
    if (waited_ > o_.patience) stop(training);
  }
  void on_epoch(Training& training) override {
    if (best_.take(training)) {
      waited_ = 0;
      if (o_.restore_best) weights_ = training.weights();
    } else if (++waited_ > o_.patience) {
      stop(training);
    }
  }
  void on_end(Training& training) override {
    if (o_.restore_best && !weights_.empty()) training.replace_weights(weights_);
  }
  std::string state() const override { return str(best_.text(), " ", waited_); }
  nn::NamedTensors tensors() const override { return weights_; }
  void load_state(const std::string& state, const nn::NamedTensors& tensors) override {
    best_.reset();
    waited_ = 0;
    weights_ = tensors;
    if (state.empty()) return;
    std::istringstream in(state);
    best_.read(in);
    if (!(in >> waited_)) throw std::invalid_argument("cut short");
  }

 private:
  void stop(Training& training) const {
    training.stop(str("stopped early: ", best_.name(training), " has not been better than the ",
                      best_.value(), " of epoch ", best_.epoch(), " for ", waited_,
                      waited_ == 1 ? " epoch." : " epochs."));
  }

  EarlyStopOptions o_;
  Best best_;
  int64_t waited_ = 0;
  nn::NamedTensors weights_;
};

class BestWeights final : public Callback {
 public:
  explicit BestWeights(const BestOptions& options) : o_(options), best_(options.monitor, options.mode, 0) {}
  std::string name() const override { return "best"; }
  /// No bits of the run depend on it, but what "best" means must not change on the way (check_same_settings).
  std::string settings(const Training& training) const override {
    return best_.name(training) + (best_.higher(training) ? " up" : " down");
  }
  void on_start(Training& training) override {  // asked for at a resume: the epochs before it count as well
    if (best_.epoch() == 0) best_.take_history(training);
  }
  void on_epoch(Training& training) override {
    if (!best_.take(training)) return;
    save_weights(in_folder(training, "best", o_.path, "best.safetensors"), training.weights());
  }
  std::string state() const override { return best_.text(); }
  void load_state(const std::string& state, const nn::NamedTensors&) override {
    best_.reset();
    if (state.empty()) return;
    std::istringstream in(state);
    best_.read(in);
  }

 private:
  BestOptions o_;
  Best best_;
};

class TimeBudget final : public Callback {
 public:
  explicit TimeBudget(double seconds) : seconds_(seconds) {
    TD_CHECK(std::isfinite(seconds) && seconds > 0, "time-budget: must be above 0 seconds; got ", seconds,
             ".");
  }
  std::string name() const override { return "time-budget"; }
  void on_step(Training& training) override { look(training); }
  /// An epoch has just been measured: another step would need a measurement of its own.
  void on_epoch(Training& training) override { look(training); }

 private:
  void look(Training& training) const {
    if (training.state().step >= training.planned_steps()) return;  // it ends by itself
    const double closing = std::min(training.closing_seconds(), seconds_ / 2);
    if (training.seconds() + closing < seconds_) return;
    training.stop(
        str("stopped to end within ", seconds_, " s, the time budget, at step ", training.state().step, "."));
  }

  double seconds_;
};

/// A file that is a function of the history, written anew after each epoch.
class HistoryFile : public Callback {
 public:
  void on_start(Training& training) override { write(training); }
  void on_epoch(Training& training) override { write(training); }

 protected:
  virtual void write(const Training& training) = 0;
  /// The metrics that some epoch of the run has; before the first, those of the task that every run of it has.
  static std::vector<std::string> columns(const Training& training) {
    std::vector<std::string> names;
    for (const MetricInfo& info : training.metrics()) {
      bool is_there = training.state().history.empty() && info.is_main;
      for (const EpochMetrics& row : training.state().history)
        for (const Metric& metric : row.values) is_there = is_there || metric.name == info.name;
      if (is_there) names.push_back(info.name);
    }
    return names;
  }
};

class CsvLog final : public HistoryFile {
 public:
  explicit CsvLog(std::string path) : path_(std::move(path)) {}
  std::string name() const override { return "csv"; }

 private:
  void write(const Training& training) override {
    std::ostringstream out;
    out.precision(17);
    out << "epoch,step,lr";
    for (const std::string& name : columns(training)) out << ',' << name;
    out << ",seconds\n";
    const auto number = [&](double value) {
      out << ',';
      if (!std::isnan(value)) out << value;
    };
    for (const EpochMetrics& row : training.state().history) {
      out << row.epoch << ',' << row.step;
      number(row.lr);
      for (const std::string& name : columns(training)) number(row[name]);
      number(row.seconds);
      out << '\n';
    }
    write_text(in_folder(training, "csv", path_, "metrics.csv"), out.str());
  }
  std::string path_;
};

class JsonlLog final : public HistoryFile {
 public:
  explicit JsonlLog(std::string path) : path_(std::move(path)) {}
  std::string name() const override { return "jsonl"; }

 private:
  void write(const Training& training) override {
    std::string out;
    for (const EpochMetrics& row : training.state().history) {
      ordered_json line = {{"epoch", row.epoch}, {"step", row.step}, {"lr", row.lr}};
      for (const std::string& name : columns(training)) line[name] = row[name];  // a NaN is printed as null
      line["seconds"] = row.seconds;
      out += line.dump() + "\n";
    }
    write_text(in_folder(training, "jsonl", path_, "metrics.jsonl"), out);
  }
  std::string path_;
};

class Plots final : public HistoryFile {
 public:
  explicit Plots(std::string folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "plots"; }

 private:
  void write(const Training& training) override {
    if (training.state().history.empty()) return;
    const auto path = [&](const char* file) {
      return folder_.empty() ? in_folder(training, "plots", "", file)
                             : (std::filesystem::path(folder_) / file).string();
    };
    const auto series = [&](const std::string& part, const std::string& metric) {
      Series line{part, {}, {}};
      for (const EpochMetrics& row : training.state().history) {
        const double value = row[part + "_" + metric];
        if (!std::isfinite(value)) continue;
        line.x.push_back(static_cast<double>(row.epoch));
        line.y.push_back(value);
      }
      return line;
    };
    const std::string part = training.measured_part();
    std::vector<Series> losses = {series("train", "loss")};
    if (part != "train") losses.push_back(series(part, "loss"));
    write_text(path("loss.svg"), line_chart({.title = "Loss", .x_label = "epoch", .series = losses}));
    for (const MetricInfo& info : training.metrics()) {
      if (!info.is_main || !info.name.starts_with(part + "_") || info.name.ends_with("_loss")) continue;
      const std::string metric = info.name.substr(part.size() + 1);
      const Series line = series(part, metric);
      std::string title = metric;
      title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
      if (!line.x.empty())
        write_text(path((metric + ".svg").c_str()),
                   line_chart({.title = title, .x_label = "epoch", .series = {line}}));
    }
  }
  std::string folder_;
};

class TensorBoard final : public Callback {
 public:
  explicit TensorBoard(const TensorBoardOptions& options) : o_(options) {
    check_between("tensorboard: every", options.every, 1, kMostCount, " steps");
  }
  std::string name() const override { return "tensorboard"; }
  void on_start(Training& training) override {
    const int64_t step = training.state().step;
    writer_ =
        std::make_unique<io::TensorBoardWriter>(in_folder(training, "tensorboard", o_.folder, "tensorboard"));
    if (step > 0)
      writer_->restart(step);  // what a stopped process wrote beyond is not shown
    else if (o_.images)
      images(training.train_set());
    writer_->flush();
  }
  void on_step(Training& training) override {
    const int64_t step = training.state().step;
    if (step % o_.every != 0) return;
    writer_->scalar("step/loss", training.loss(), step);
    writer_->scalar("step/lr", training.optimizer().lr(), step);
  }
  void on_epoch(Training& training) override {
    const EpochMetrics& row = training.state().history.back();
    for (const Metric& metric : row.values)
      if (!std::isnan(metric.value)) writer_->scalar("epoch/" + metric.name, metric.value, row.step);
    if (o_.histograms) histograms("weights/", training.weights(), row.step);
    if (o_.gradients) histograms("gradients/", training.gradients(), row.step);
    writer_->flush();
  }
  void on_end(Training&) override { writer_->flush(); }

 private:
  void histograms(const std::string& prefix, const nn::NamedTensors& tensors, int64_t step) {
    const NoGrad off;
    for (const auto& [name, tensor] : tensors)
      writer_->histogram(prefix + name, cast(tensor, DType::f64).to_vector<double>(), step);
  }
  /// The first samples, scaled to bytes by their common least and largest value.
  void images(const data::Dataset& dataset) {
    const int64_t count = std::min<int64_t>(dataset.size(), 8);
    for (int64_t i = 0; i < count; ++i) {
      const Tensor image = dataset.get(i).front();
      if (image.rank() != 3 || (image.size(0) != 1 && image.size(0) != 3) || !is_floating(image.dtype()))
        return;
      const NoGrad off;
      const Tensor low = min(image), range = maximum(max(image) - low, 1e-12);
      writer_->image("data/first/" + std::to_string(i), cast((image - low) / range * 255.0, DType::u8), 0);
    }
  }

  TensorBoardOptions o_;
  std::unique_ptr<io::TensorBoardWriter> writer_;
};

}  // namespace

void check(const ScheduleOptions& o) {
  const char* kinds[] = {"constant", "step", "exponential", "cosine", "one-cycle", "plateau"};
  TD_CHECK(std::find(std::begin(kinds), std::end(kinds), o.kind) != std::end(kinds),
           "schedule: must be constant, step, exponential, cosine, one-cycle or plateau; got '", o.kind,
           "'.");
  check_between("warmup", o.warm_up, 0, kMostCount, " steps");
  TD_CHECK(o.warm_up_start >= 0 && o.warm_up_start <= 1, "warmup: must start from a share of 0 to 1; got ",
           o.warm_up_start, ".");
  check_between("decay-every", o.every, 1);
  TD_CHECK(!o.factor || (*o.factor > 0 && *o.factor <= 1 && (o.kind != "plateau" || *o.factor < 1)),
           "decay-factor: must be above 0 and at most 1 (below 1 for plateau); got ", o.factor.value_or(0),
           ".");
  check_between("schedule-length", o.total, 1);
  check_number("least-lr", o.least, 0, true);
  check_between("patience", o.patience, 0, kMostCount, " epochs");
}

void check(const EarlyStopOptions& o) {
  check_mode(o.mode);
  check_between("early-stop", o.patience, 0, kMostCount, " epochs");
  check_number("min-delta", o.min_delta, 0, true);
}

CallbackPtr learning_rate(const ScheduleOptions& options) { return std::make_shared<LearningRate>(options); }
CallbackPtr early_stopping(const EarlyStopOptions& options) {
  return std::make_shared<EarlyStopping>(options);
}
CallbackPtr best_weights(const BestOptions& options) { return std::make_shared<BestWeights>(options); }
CallbackPtr time_budget(double seconds) { return std::make_shared<TimeBudget>(seconds); }
CallbackPtr csv_log(const std::string& path) { return std::make_shared<CsvLog>(path); }
CallbackPtr jsonl_log(const std::string& path) { return std::make_shared<JsonlLog>(path); }
CallbackPtr plots(const std::string& folder) { return std::make_shared<Plots>(folder); }
CallbackPtr tensorboard(const TensorBoardOptions& options) { return std::make_shared<TensorBoard>(options); }

}  // namespace tandem
