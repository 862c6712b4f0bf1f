// Counts of classes and the values that follow from them.
#include "tandem/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

void ConfusionMatrix::add(int64_t actual, int64_t predicted) { add(actual, predicted, 1); }

void ConfusionMatrix::add(int64_t actual, int64_t predicted, int64_t times) {
  TD_CHECK(actual >= 0 && actual < classes_ && predicted >= 0 && predicted < classes_,
           "metrics: a class must be 0 to ", classes_ - 1, "; got ", actual, " predicted as ", predicted,
           ".");
  TD_CHECK(times >= 0, "metrics: a count must be at least 0; got ", times, ".");
  counts_[static_cast<size_t>(actual * classes_ + predicted)] += times;
  samples_ += times;
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
  int64_t there = 0;  // classes that some sample is of or was taken for
  for (int64_t c = 0; c < classes_; ++c) {
    int64_t either = 0;
    for (int64_t other = 0; other < classes_; ++other) either += count(other, c) + count(c, other);
    if (either == 0) continue;
    ++there;
    const ClassScores one = scores(c);
    mean.precision += one.precision;
    mean.recall += one.recall;
    mean.f1 += one.f1;
    mean.support += one.support;
  }
  if (there == 0) return mean;
  const auto n = static_cast<double>(there);
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

double ConfusionMatrix::mean_iou() const {
  double sum = 0;
  int64_t there = 0;
  for (int64_t cls = 0; cls < classes_; ++cls) {
    int64_t either = -count(cls, cls);
    for (int64_t other = 0; other < classes_; ++other) either += count(other, cls) + count(cls, other);
    if (either == 0) continue;
    sum += share(count(cls, cls), either);
    ++there;
  }
  return there == 0 ? 0 : sum / static_cast<double>(there);
}

double value_of(const std::vector<Metric>& metrics, std::string_view name) {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  return std::numeric_limits<double>::quiet_NaN();
}

double area_under_curve(const std::vector<double>& scores, const std::vector<bool>& positive) {
  TD_CHECK(scores.size() == positive.size(), "auc: there must be one score per sample; got ", scores.size(),
           " for ", positive.size(), ".");
  for (const double score : scores)
    if (std::isnan(score)) return score;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  // Ranks from 1; equal scores share the mean of theirs. The sum of the positive ones gives the pairs in order.
  double rank_sum = 0, positives = 0;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && scores[order[end]] == scores[order[begin]]) ++end;
    const double rank = static_cast<double>(begin + 1 + end) / 2;
    for (size_t i = begin; i < end; ++i)
      if (positive[order[i]]) {
        rank_sum += rank;
        ++positives;
      }
    begin = end;
  }
  const double negatives = static_cast<double>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace tandem
