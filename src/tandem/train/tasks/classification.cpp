// One class for each sample, or for each place of a sample: sequence-labelling is the same for sequences of different
// lengths.
#include <algorithm>
#include <cmath>

#include "tandem/core/shortest.h"
#include "tandem/core/tape.h"
#include "tandem/data/registry.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tandem/train/task.h"
#include "tandem/train/tasks/class_weights.h"

namespace tandem {
namespace {

/// One number per class (…, classes) for integer targets (…).
bool are_classes(const Tensor& out, const Tensor& y) {
  if (!is_integer(y.dtype()) || out.rank() != y.rank() + 1 || out.size() == 0) return false;
  for (int axis = 0; axis < y.rank(); ++axis)
    if (out.size(axis) != y.size(axis)) return false;
  return true;
}

/// How many classes come before y's by their output, the first among equals first: 0 where it is the largest.
Tensor rank_of(const Tensor& logits, const Tensor& y) {
  const Tensor at = unsqueeze(y, 1), own = gather(logits, 1, at);
  const Tensor classes = arange(logits.size(1), DType::i64, logits.device());
  // Written so that a NaN is ahead of everything, as for argmax.
  const Tensor behind =
      logical_or(less(logits, own), logical_and(equal(logits, own), greater_equal(classes, at)));
  return sum(logical_not(behind), {1});
}

struct Settings {
  std::vector<double> weights;
  int64_t top_k = 5;
  std::optional<int64_t> ignored;
};

std::string top_name(int64_t k) { return "top_" + std::to_string(k); }

/// Counts what was taken for what. `score`, of two classes: how much more the second was believed.
class ClassMeter final : public Meter {
 public:
  explicit ClassMeter(const Settings& settings) : settings_(settings) {}
  void add(const Named& measured) override {
    if (measured.empty()) return;
    const std::vector<int64_t> predicted = measured["predicted"].to_vector<int64_t>(),
                               rank = measured["rank"].to_vector<int64_t>(),
                               target = measured["target"].to_vector<int64_t>();
    const int64_t classes = measured["classes"].to_vector<int64_t>().front();
    if (confusion_.classes() == 0) confusion_ = ConfusionMatrix(classes);
    std::vector<double> score;
    if (measured.has("score")) score = cast(measured["score"], DType::f64).to_vector<double>();
    for (size_t i = 0; i < target.size(); ++i) {
      if (settings_.ignored && target[i] == *settings_.ignored) continue;
      confusion_.add(target[i], predicted[i]);
      among_ += rank[i] < settings_.top_k ? 1 : 0;
      if (score.empty()) continue;
      scores_.push_back(score[i]);
      positive_.push_back(target[i] == 1);
    }
  }
  void finish(Metrics& metrics) const override {
    metrics.confusion = confusion_;
    if (confusion_.samples() == 0) return;
    metrics.add("accuracy", confusion_.accuracy());
    if (settings_.top_k < confusion_.classes())
      metrics.add(top_name(settings_.top_k), among_ / static_cast<double>(confusion_.samples()));
    metrics.add("f1", confusion_.macro().f1);
    metrics.add("perplexity", std::exp(metrics["loss"]));
    if (scores_.empty()) return;
    const double auc = area_under_curve(scores_, positive_);
    if (!std::isnan(auc)) metrics.add("auc", auc);
  }

 private:
  Settings settings_;
  ConfusionMatrix confusion_;
  double among_ = 0;
  std::vector<double> scores_;
  std::vector<bool> positive_;
};

class Classification : public Task {
 public:
  explicit Classification(Settings settings) : s_(std::move(settings)) {}
  std::string name() const override { return "classification"; }
  TaskAnswer answer_kind() const override { return TaskAnswer::one_class; }
  std::vector<int64_t> outputs(const data::Splits& splits) const override { return {splits.info.classes}; }
  std::string reads_as() const override { return "classification"; }
  std::string settings() const override {
    std::string text;
    for (const double weight : s_.weights) text += (text.empty() ? "class weights " : " ") + shortest(weight);
    if (s_.ignored) text += str(text.empty() ? "" : ", ", "ignoring ", *s_.ignored);
    return text;
  }
  Tensor loss(const Named& out, const Named& batch) const override { return loss_by(s_.weights, out, batch); }
  Tensor test_loss(const Named& out, const Named& batch) const override { return loss_by({}, out, batch); }
  Tensor weight(const Named& batch) const override {
    return sum_of_class_weights(batch["target"], s_.weights, s_.ignored);
  }
  Tensor test_weight(const Named& batch) const override {
    return sum_of_class_weights(batch["target"], {}, s_.ignored);
  }
  Named measure(const Named& out, const Named& batch) const override {
    if (!are_classes(out[0], batch["target"]))
      return {};  // a loss of your own for targets that are no classes
    const int64_t classes = out[0].size(-1);
    const Tensor logits = reshape(out[0], {-1, classes}), y = reshape(batch["target"], {-1});
    // A target that is ignored is no class: rank_of must not look for it.
    const Tensor known = s_.ignored ? where(equal(y, *s_.ignored), zeros_like(y), y) : y;
    const Tensor score =
        classes == 2 ? reshape(slice(logits, 1, 1, 2) - slice(logits, 1, 0, 1), {-1}) : Tensor();
    return {{"predicted", argmax(logits, 1)},
            {"rank", rank_of(logits, known)},
            {"target", y},
            {"classes", full({1}, static_cast<double>(classes), DType::i64, logits.device())},
            {"score", score}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<ClassMeter>(s_); }
  std::vector<MetricInfo> metrics() const override {
    return {{"accuracy", true, true},
            {top_name(s_.top_k), true, true, false},
            {"f1", true, true, false},
            {"perplexity", false, false, false},
            {"auc", true, true, false}};
  }

 private:
  Tensor loss_by(const std::vector<double>& weights, const Named& out, const Named& batch) const {
    Tensor logits = out[0], y = batch["target"];
    if (logits.rank() > 2 && are_classes(logits, y)) {
      logits = reshape(logits, {-1, logits.size(-1)});
      y = reshape(y, {-1});
    }
    return cross_entropy(logits, y,
                         {.weight = class_weights_for(logits, weights), .ignore_index = s_.ignored});
  }
  Settings s_;
};

constexpr int64_t kNoLabel = -100;

/// Samples {input (length, …), target (length)} of different lengths. A model takes the inputs (n, length, …) and how many places of
/// each are true (n), and gives one number per class for each place, (n, length, classes). One in which no place looks at those behind
/// it has no use for the lengths; any other would read padding without them.
class SequenceLabelling final : public Classification {
 public:
  using Classification::Classification;
  std::string name() const override { return "sequence-labelling"; }
  TaskAnswer answer_kind() const override { return TaskAnswer::numbers; }
  std::string reads_as() const override { return ""; }
  std::vector<data::Field> fields() const override {
    return {{"input"}, {"length", data::Role::length}, {"target", data::Role::target}};
  }
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t length) const override {
    std::vector<Tensor> inputs, targets;
    std::vector<int64_t> sizes;
    for (const int64_t i : indices) {
      const std::vector<Tensor> sample = data::sample_at(set, i, epoch);
      const bool has_target = sample.size() >= 2;
      TD_CHECK(!sample.empty() && sample[0].rank() >= 1 &&
                   (!has_target || (sample[1].rank() == 1 && sample[0].size(0) == sample[1].size(0))),
               "data: a sample of sequence-labelling must have an input (length, …) and a target (length); ",
               set.sample_name(i), " does not.");
      inputs.push_back(sample[0]);
      sizes.push_back(sample[0].size(0));
      if (has_target) targets.push_back(cast(sample[1], DType::i64));
    }
    const auto count = static_cast<int64_t>(sizes.size());
    const Tensor input = data::pad_stack(inputs, length, 0), each = from_vector(sizes, {count});
    if (targets.size() < inputs.size()) return {{"input", input}, {"length", each}};
    return {{"input", input}, {"length", each}, {"target", data::pad_stack(targets, length, kNoLabel)}};
  }
  std::vector<int64_t> lengths(const data::Dataset& set) const override {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < set.size(); ++i) out.push_back(data::sample_at(set, i, 0).at(0).size(0));
    return out;
  }
  /// Zeros behind the end of each sample, so that an answer is the same in every batch.
  Named forward(nn::Module& model, const Named& batch, Named&) const override {
    const Tensor &x = batch["input"], &length = batch["length"];
    Tensor out;
    try {
      out = model(std::vector<Tensor>{x, length}).at(0);
    } catch (Error& error) {
      error.prepend(str("sequence-labelling: the model is given inputs ", x.shape(), " and their lengths ",
                        length.shape(), ": "));
      throw;
    }
    TD_CHECK(out.rank() >= 2 && out.size(0) == x.size(0) && out.size(1) == x.size(1),
             "sequence-labelling: the model must give (n, length, classes), here (", x.size(0), ", ",
             x.size(1), ", classes); got ", out.shape(), ".");
    Dims rows{x.size(0), x.size(1)};
    while (rows.rank() < out.rank()) rows.insert(rows.rank(), 1);
    const Tensor within = within_lengths("sequence-labelling", length, x.size(0), x.size(1), 0);
    return {{"classes", where(reshape(within, rows), out, 0)}};
  }
};

void check_no_scale(const char* task, const TaskOptions& options) {
  TD_CHECK(options.target_mean == 0 && options.target_deviation == 1, task,
           ": classes have no mean and deviation; got ", options.target_mean, " and ",
           options.target_deviation, ".");
}

Settings settings_of(const char* task, const TaskOptions& options) {
  check_no_scale(task, options);
  TD_CHECK(options.top_k >= 1, "top_k: must be at least 1; got ", options.top_k, ".");
  check_class_weights(options.class_weights);
  return {options.class_weights, options.top_k, options.ignore_index};
}

const TaskRow kClassification("classification", "one class per sample",
                              [](const TaskOptions& options) -> TaskPtr {
                                return std::make_shared<Classification>(
                                    settings_of("classification", options));
                              });
const TaskRow kLabelling("sequence-labelling", "one class per place of a sequence",
                         [](const TaskOptions& options) -> TaskPtr {
                           Settings settings = settings_of("sequence-labelling", options);
                           if (!settings.ignored) settings.ignored = kNoLabel;
                           TD_CHECK(*settings.ignored == kNoLabel, "sequence-labelling: pads with ", kNoLabel,
                                    ", which is what must be ignored; got ", *settings.ignored, ".");
                           return std::make_shared<SequenceLabelling>(std::move(settings));
                         });

}  // namespace
}  // namespace tandem
