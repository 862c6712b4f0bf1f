// One comparison of two systems, and the words for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"

namespace tandem::lab {

/// One run's value of one metric, and where it belongs: runs of one part and block are a pair.
struct Observation {
  int64_t block = 0;
  std::string part;
  double value = 0;
  int64_t epochs = 0;      // that the run trained
  bool disturbed = false;  // other work on the machine went beyond the limits
};

/// Two systems' values: paired place by place where `paired`.
struct Samples {
  std::vector<double> first, second;
  bool paired = true;
  bool same_epochs = true;  // the runs of each pair, or all where unpaired, trained equally many
  size_t disturbed = 0;     // values of disturbed runs
};
/// Matches by block and part; by block alone where no part matches. Both lists are in the order of blocks. Where fewer
/// than half of the smaller sample finds a partner, all values are taken, unpaired.
Samples match(const std::vector<Observation>& first, const std::vector<Observation>& second);

/// The metric under whose name resamples are drawn: what is another's multiple or reciprocal in every run is resampled as that one,
/// so that both get one interval.
std::string resampled_as(const std::string& metric);

/// What the verdict is held against.
struct Yardstick {
  std::optional<NoiseFloor> noise = {};
  size_t family = 1;  // comparisons that share Holm's correction; of constants it says nothing
  std::vector<std::string> lost_controls =
      {};  // systems whose noise floor other work on the machine took away
};

/// Everything but p_holm, verdict and text, which need the family.
Comparison compare(const Samples& samples, Comparison head, const AnalysisOptions& options);
/// Verdict and text, once p_holm is known.
void judge(Comparison& comparison, const Samples& samples, const Yardstick& yardstick,
           const AnalysisOptions& options);

/// What a judgement rests on, for its words.
struct Grounds {
  double median_first = 0, median_second = 0;
  double equivalence_p = 1;
  double smallest_p_holm = 0;  // the smallest that so many runs and comparisons allow
  size_t least_runs = 0;       // that could decide
};
/// Of a constant comparison: what each of the two has.
std::string constant_text(const Comparison& comparison, const Grounds& grounds, const Yardstick& yardstick);
/// Of one that rests on disturbed runs, or whose control does: nothing is decided.
std::string disturbed_text(const Comparison& comparison, const Grounds& grounds, const Yardstick& yardstick);
std::string verdict_text(const Comparison& comparison, const Grounds& grounds, const Yardstick& yardstick,
                         const AnalysisOptions& options);

}  // namespace tandem::lab
