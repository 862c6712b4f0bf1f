// Several labels per sample, each of them there or not: targets (n, labels) of 0 and 1.
#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/train/task.h"

namespace tandem {
namespace {

void check_target(double value) {
  TD_CHECK(value == 0 || value == 1, "multi-label: targets must be 0 or 1; got ", value,
           ". Give other data, or `task` regression.");
}

/// Counts by label: a label is predicted where its output is above 0, which is a probability above one half.
class LabelMeter final : public Meter {
 public:
  void add(const Named& measured) override {
    const auto labels = static_cast<size_t>(measured["output"].size(1));
    const std::vector<double> out = cast(measured["output"], DType::f64).to_vector<double>(),
                              target = cast(measured["target"], DType::f64).to_vector<double>();
    if (counts_.empty()) {
      counts_.assign(labels, ConfusionMatrix(2));
      scores_.resize(labels);
      there_.resize(labels);
    }
    for (size_t row = 0; row < out.size() / labels; ++row) {
      bool all_right = true;
      for (size_t k = 0; k < labels; ++k) {
        const size_t i = row * labels + k;
        check_target(target[i]);
        const bool is = target[i] == 1, said = out[i] > 0;
        counts_[k].add(is, said);
        scores_[k].push_back(out[i]);
        there_[k].push_back(is);
        all_right = all_right && is == said;
      }
      ++samples_;
      whole_ += all_right ? 1 : 0;
    }
  }
  void finish(Metrics& metrics) const override {
    if (samples_ == 0) return;
    double accuracy = 0, f1 = 0, auc = 0, found = 0, said = 0, there = 0;
    int64_t with_auc = 0;
    for (size_t k = 0; k < counts_.size(); ++k) {
      const ConfusionMatrix& c = counts_[k];
      accuracy += c.accuracy();
      f1 += c.scores(1).f1;
      found += static_cast<double>(c.count(1, 1));
      said += static_cast<double>(c.count(1, 1) + c.count(0, 1));
      there += static_cast<double>(c.count(1, 1) + c.count(1, 0));
      const double area = area_under_curve(scores_[k], there_[k]);
      if (std::isnan(area)) continue;
      auc += area;
      ++with_auc;
    }
    const auto labels = static_cast<double>(counts_.size());
    metrics.add("accuracy", accuracy / labels);
    metrics.add("exact_match", static_cast<double>(whole_) / static_cast<double>(samples_));
    metrics.add("f1", f1 / labels);
    metrics.add("micro_f1", said + there == 0 ? 0 : 2 * found / (said + there));
    if (with_auc > 0) metrics.add("auc", auc / static_cast<double>(with_auc));
  }

 private:
  std::vector<ConfusionMatrix> counts_;  // of each label
  std::vector<std::vector<double>> scores_;
  std::vector<std::vector<bool>> there_;
  int64_t samples_ = 0, whole_ = 0;
};

class MultiLabel final : public Task {
 public:
  std::string name() const override { return "multi-label"; }
  std::string reads_as() const override { return "regression"; }  // labels that are there or not are numbers
  Tensor loss(const Named& out, const Named& batch) const override {
    return binary_cross_entropy_with_logits(out[0], target_of(out, batch));
  }
  void check_batch(const Named& batch) const override {
    const NoGrad off;
    for (const double value : cast(batch["target"], DType::f64).to_vector<double>()) check_target(value);
  }
  Named measure(const Named& out, const Named& batch) const override {
    return {{"output", out[0]}, {"target", target_of(out, batch)}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<LabelMeter>(); }
  std::vector<MetricInfo> metrics() const override {
    return {{"accuracy", true, true},
            {"exact_match", true, true, false},
            {"f1", true, true},
            {"micro_f1", true, true, false},
            {"auc", true, true, false}};
  }
  /// In f32 at least: f16 and bf16 have few numbers near 1.
  std::vector<Tensor> answer(const Named& out) const override {
    const Tensor& x = out[0];
    return {sigmoid(bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x)};
  }

 private:
  static Tensor target_of(const Named& out, const Named& batch) {
    const Tensor& y = batch["target"];
    TD_CHECK(out[0].rank() == 2 && out[0].shape() == y.shape(),
             "multi-label: outputs and targets must both be (n, labels); got ", out[0].shape(), " and ",
             y.shape(), ". Give the last layer one output per label.");
    return cast(y, out[0].dtype());
  }
};

const TaskRow kRow(
    "multi-label", "several labels per sample, each there or not", [](const TaskOptions& options) -> TaskPtr {
      TD_CHECK(options.class_weights.empty() && !options.ignore_index && options.target_deviation == 1,
               "multi-label: takes no class weights, ignored index or scale of targets. Leave them out.");
      return std::make_shared<MultiLabel>();
    });

}  // namespace
}  // namespace tandem
