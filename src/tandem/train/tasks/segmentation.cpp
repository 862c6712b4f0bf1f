// A class for each pixel: outputs (n, classes, …), targets (n, …) of class numbers.
#include <cmath>

#include "tandem/core/shortest.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/task.h"
#include "tandem/train/tasks/class_weights.h"

namespace tandem {
namespace {

constexpr int64_t kVoid = 255;  // what most label images call a pixel that counts for nothing

/// `counts`: for each batch how often a class was taken for which, (1, classes · classes + 1); the last place takes
/// what is ignored.
class PixelMeter final : public Meter {
 public:
  void add(const Named& measured) override {
    const int64_t width = measured["counts"].size(1);
    const std::vector<int64_t> counts = measured["counts"].to_vector<int64_t>();
    const auto classes = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(width - 1))));
    if (confusion_.classes() == 0) confusion_ = ConfusionMatrix(classes);
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t place = static_cast<int64_t>(i) % width;
      if (place < width - 1 && counts[i] > 0) confusion_.add(place / classes, place % classes, counts[i]);
    }
  }
  void finish(Metrics& metrics) const override {
    metrics.confusion = confusion_;
    if (confusion_.samples() == 0) return;
    metrics.add("iou", confusion_.mean_iou());
    metrics.add("accuracy", confusion_.accuracy());
  }

 private:
  ConfusionMatrix confusion_;
};

class Segmentation final : public Task {
 public:
  explicit Segmentation(const TaskOptions& options)
      : weights_(options.class_weights), ignored_(options.ignore_index.value_or(kVoid)) {
    TD_CHECK(options.target_deviation == 1 && options.target_mean == 0,
             "segmentation: classes have no mean and deviation. Leave them out.");
    check_class_weights(weights_);
  }
  std::string name() const override { return "segmentation"; }
  std::string settings() const override {
    std::string text = str("ignoring ", ignored_);
    for (const double weight : weights_) text += ", " + shortest(weight);
    return text;
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    const Tensor& logits = checked(out, batch);
    return cross_entropy(logits, batch["target"],
                         {.weight = class_weights_for(logits, weights_), .ignore_index = ignored_});
  }
  Tensor test_loss(const Named& out, const Named& batch) const override {
    return cross_entropy(checked(out, batch), batch["target"], {.ignore_index = ignored_});
  }
  Tensor weight(const Named& batch) const override {
    return sum_of_class_weights(batch["target"], weights_, ignored_);
  }
  Tensor test_weight(const Named& batch) const override {
    return sum_of_class_weights(batch["target"], {}, ignored_);
  }
  Named measure(const Named& out, const Named& batch) const override {
    const Tensor& logits = checked(out, batch);
    const int64_t classes = logits.size(1);
    const Tensor y = cast(reshape(batch["target"], {-1}), DType::i64),
                 said = reshape(argmax(logits, 1), {-1});
    const Tensor place =
        where(equal(y, ignored_), full_like(y, static_cast<double>(classes * classes)), y * classes + said);
    const Tensor counts =
        index_add(zeros({classes * classes + 1}, DType::i64, y.device()), 0, place, ones_like(y));
    return {{"counts", unsqueeze(counts, 0)}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<PixelMeter>(); }
  std::vector<MetricInfo> metrics() const override { return {{"iou", true, true}, {"accuracy", true, true}}; }

 private:
  static const Tensor& checked(const Named& out, const Named& batch) {
    const Tensor &logits = out[0], &y = batch["target"];
    Dims without = logits.shape();
    if (without.rank() >= 2) without.erase(1);
    TD_CHECK(logits.rank() >= 3 && is_integer(y.dtype()) && without == y.shape(),
             "segmentation: outputs must be (n, classes, …) and targets (n, …) of whole numbers; got ",
             logits.shape(), " and ", y.dtype(), " ", y.shape(), ".");
    return logits;
  }
  std::vector<double> weights_;
  int64_t ignored_;
};

const TaskRow kRow("segmentation", "a class for each pixel", [](const TaskOptions& options) -> TaskPtr {
  return std::make_shared<Segmentation>(options);
});

}  // namespace
}  // namespace tandem
