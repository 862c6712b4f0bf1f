// Numbers: the mean squared error is the loss.
#include <cmath>

#include "tandem/core/tape.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tandem/train/task.h"

namespace tandem {
namespace {

/// f32, or f64 where one of them is: no target is rounded to a smaller type of the outputs.
DType common_type(const Tensor& a, const Tensor& b) {
  return a.dtype() == DType::f64 || b.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

/// Both as (n, numbers) in one type: a model gives (n, 1) where the data may have (n).
struct Pair {
  Tensor out, target;
};
Pair matched(const Named& outputs, const Named& batch) {
  const Tensor &out = outputs[0], &y = batch["target"];
  const auto rows = [](const Tensor& x) { return x.rank() == 1 ? unsqueeze(x, 1) : flatten(x, 1); };
  TD_CHECK(out.rank() >= 1 && y.rank() >= 1, "regression: outputs and targets must be (n, …); got ",
           out.shape(), " and ", y.shape(), ".");
  const DType type = common_type(out, y);
  const Pair pair{rows(cast(out, type)), rows(cast(y, type))};
  TD_CHECK(pair.out.shape() == pair.target.shape(),
           "regression: the model must give as many numbers as a sample has targets; got outputs ",
           out.shape(), " for targets ", y.shape(), ". Give its last layer that many outputs.");
  return pair;
}

/// Errors in the targets' own unit. R² is the mean over the targets of 1 - squared errors / squared distances from the
/// target's mean; a target that is always the same has none.
class ErrorMeter final : public Meter {
 public:
  explicit ErrorMeter(double deviation) : deviation_(deviation) {}
  void add(const Named& measured) override {
    numbers_ = static_cast<size_t>(measured["output"].size(1));
    for (const auto& [tensor, into] :
         {std::pair(&measured["output"], &out_), std::pair(&measured["target"], &target_)}) {
      const std::vector<double> values = cast(*tensor, DType::f64).to_vector<double>();
      into->insert(into->end(), values.begin(), values.end());
    }
  }
  void finish(Metrics& metrics) const override {
    if (out_.empty()) return;
    const auto count = static_cast<double>(out_.size());
    double squared = 0, absolute = 0, r2 = 0;
    for (size_t i = 0; i < out_.size(); ++i) {
      const double error = out_[i] - target_[i];
      squared += error * error;
      absolute += std::abs(error);
    }
    int64_t varying = 0;
    for (size_t k = 0; k < numbers_; ++k) {
      double mean = 0, spread = 0, errors = 0;
      for (size_t i = k; i < out_.size(); i += numbers_) mean += target_[i];
      mean /= count / static_cast<double>(numbers_);
      for (size_t i = k; i < out_.size(); i += numbers_) {
        spread += (target_[i] - mean) * (target_[i] - mean);
        errors += (out_[i] - target_[i]) * (out_[i] - target_[i]);
      }
      if (spread == 0) continue;
      r2 += 1 - errors / spread;
      ++varying;
    }
    if (varying > 0) metrics.add("r2", r2 / static_cast<double>(varying));
    metrics.add("mse", squared / count * deviation_ * deviation_);
    metrics.add("rmse", std::sqrt(squared / count) * deviation_);
    metrics.add("mae", absolute / count * deviation_);
  }

 private:
  double deviation_;
  size_t numbers_ = 1;
  std::vector<double> out_, target_;
};

class Regression final : public Task {
 public:
  explicit Regression(const TaskOptions& options)
      : mean_(options.target_mean), deviation_(options.target_deviation) {
    TD_CHECK(std::isfinite(mean_) && std::isfinite(deviation_) && deviation_ > 0,
             "regression: the targets' mean must be a number and their deviation above 0; got ", mean_,
             " and ", deviation_, ".");
    TD_CHECK(options.class_weights.empty() && !options.ignore_index,
             "class-weights: belong to classes; regression has none. Leave them out.");
  }
  std::string name() const override { return "regression"; }
  std::string reads_as() const override { return "regression"; }
  Tensor loss(const Named& out, const Named& batch) const override {
    const Pair pair = matched(out, batch);
    return mse_loss(pair.out, pair.target);
  }
  Named measure(const Named& out, const Named& batch) const override {
    const Pair pair = matched(out, batch);
    return {{"output", pair.out}, {"target", pair.target}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<ErrorMeter>(deviation_); }
  std::vector<MetricInfo> metrics() const override {
    return {{"r2", true}, {"mse", false, false, false}, {"rmse", false}, {"mae", false, false, false}};
  }
  /// In f64: a mean that is large beside the deviation, or beyond f16, must not take the answer away.
  std::vector<Tensor> answer(const Named& out) const override {
    if (mean_ == 0 && deviation_ == 1) return {out[0]};
    return {cast(out[0], DType::f64) * deviation_ + mean_};
  }

 private:
  double mean_, deviation_;
};

const TaskRow kRow("regression", "numbers, by their mean squared error",
                   [](const TaskOptions& options) -> TaskPtr {
                     return std::make_shared<Regression>(options);
                   });

}  // namespace
}  // namespace tandem
