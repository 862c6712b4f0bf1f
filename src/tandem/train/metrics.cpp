// Metrics of a classifier.
#include "tandem/train/metrics.h"

#include <cmath>

#include "tandem/core/error.h"

namespace tandem {
namespace {

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

ClassScores scores_of(int64_t right, int64_t predicted, int64_t there) {
  return {.precision = share(right, predicted),
          .recall = share(right, there),
          .f1 = share(2 * right, predicted + there),
          .support = there};
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(int64_t classes) : classes_(classes) {
  TD_CHECK(classes >= 0 && classes <= 1 << 20, "metrics: the number of classes must be 0 to 2^20; got ",
           classes, ".");
  counts_.resize(static_cast<size_t>(classes * classes));
}

void ConfusionMatrix::add(int64_t actual, int64_t predicted) {
  TD_CHECK(actual >= 0 && actual < classes_ && predicted >= 0 && predicted < classes_,
           "metrics: a class must be 0 to ", classes_ - 1, "; got ", actual, " predicted as ", predicted,
           ".");
  ++counts_[static_cast<size_t>(actual * classes_ + predicted)];
  ++samples_;
}

int64_t ConfusionMatrix::count(int64_t actual, int64_t predicted) const {
  TD_CHECK(actual >= 0 && actual < classes_ && predicted >= 0 && predicted < classes_,
           "metrics: a class must be 0 to ", classes_ - 1, "; got ", actual, " and ", predicted, ".");
  return counts_[static_cast<size_t>(actual * classes_ + predicted)];
}

double ConfusionMatrix::accuracy() const { return micro().recall; }

ClassScores ConfusionMatrix::scores(int64_t cls) const {
  int64_t predicted = 0, there = 0;
  for (int64_t other = 0; other < classes_; ++other) {
    predicted += count(other, cls);
    there += count(cls, other);
  }
  return scores_of(count(cls, cls), predicted, there);
}

ClassScores ConfusionMatrix::macro() const {
  ClassScores mean;
  for (int64_t c = 0; c < classes_; ++c) {
    const ClassScores one = scores(c);
    mean.precision += one.precision;
    mean.recall += one.recall;
    mean.f1 += one.f1;
    mean.support += one.support;
  }
  if (classes_ == 0) return mean;
  const auto n = static_cast<double>(classes_);
  mean.precision /= n;
  mean.recall /= n;
  mean.f1 /= n;
  return mean;
}

ClassScores ConfusionMatrix::micro() const {
  int64_t right = 0;
  for (int64_t c = 0; c < classes_; ++c) right += count(c, c);
  return scores_of(right, samples_, samples_);
}

double Metrics::perplexity() const { return std::exp(loss); }

}  // namespace tandem
