// Metrics: named values, and the counts that those of classes come from. All are counted on the host, in the order of the samples: the same numbers whatever the
// device, the engine and the threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

/// Of one class, or averaged. A share of nothing (no sample predicted, or none there) is 0.
struct ClassScores {
  double precision = 0;  ///< of those predicted, the share that is right
  double recall = 0;     ///< of those there, the share that was found
  double f1 = 0;         ///< harmonic mean of both
  int64_t support = 0;   ///< samples there
};

/// How often a class was taken for which.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes = 0);
  /// Both must be 0 to classes - 1.
  void add(int64_t actual, int64_t predicted);
  int64_t classes() const { return classes_; }
  int64_t count(int64_t actual, int64_t predicted) const;
  int64_t samples() const { return samples_; }

  double accuracy() const;
  ClassScores scores(int64_t cls) const;
  /// The mean over all classes, each weighing the same.
  ClassScores macro() const;
  /// From the counts of all classes together.
  ClassScores micro() const;
  /// Intersection over union: of the samples that are of a class or were taken for it, the share that is both; the mean
  /// over the classes that occur at all.
  double mean_iou() const;
  /// Adds so many at once.
  void add(int64_t actual, int64_t predicted, int64_t times);

 private:
  int64_t classes_ = 0, samples_ = 0;
  std::vector<int64_t> counts_;  // classes × classes, actual by row
};

/// What a task measures: its name, and how it is to be read.
struct MetricInfo {
  std::string name;               ///< "accuracy"
  bool higher_is_better = false;  ///< the loss and errors: lower
  bool is_share = false;          ///< 0 to 1, shown in percent
  bool is_main = true;            ///< shown after each epoch, and drawn
};

/// A value by its name.
struct Metric {
  std::string name;
  double value = 0;
};
/// NaN where there is none of that name.
double value_of(const std::vector<Metric>& metrics, std::string_view name);

/// What an evaluation measures: "loss" first, then what the task gives. A metric that cannot be told of this data (the
/// AUC of one class alone) is not there.
struct Metrics {
  int64_t samples = 0;
  std::vector<Metric> values = {};
  ConfusionMatrix confusion = ConfusionMatrix();  ///< of classes; of 0 classes for other tasks
  /// metrics["accuracy"]; NaN where it is not there.
  double operator[](std::string_view name) const { return value_of(values, name); }
  void add(std::string name, double value) { values.push_back({std::move(name), value}); }
};

/// The share of pairs of a positive and a negative sample whose scores are in the right order (ties count half): the area
/// under the ROC curve. NaN where one of the two kinds is missing, or a score is NaN.
double area_under_curve(const std::vector<double>& scores, const std::vector<bool>& positive);

}  // namespace tandem
