// Metrics of a classifier. All are counted on the host, in the order of the samples: the same numbers whatever the
// device, the engine and the threads.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

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

 private:
  int64_t classes_ = 0, samples_ = 0;
  std::vector<int64_t> counts_;  // classes × classes, actual by row
};

/// What an evaluation measures. NaN: not measured. Accuracy and what follows belong to models that give one number a
/// class (…, classes) for integer targets (…); others have a loss alone.
struct Metrics {
  int64_t samples = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();      ///< mean
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< the largest output is the target's
  double top_k = std::numeric_limits<double>::quiet_NaN();     ///< the target's is among the k largest
  int64_t k = 0;
  ConfusionMatrix confusion = ConfusionMatrix();
  bool is_classification() const { return confusion.classes() > 0; }
  double perplexity() const;  ///< e to the loss
};

}  // namespace tandem
