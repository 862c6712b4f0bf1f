// From records to findings: medians with intervals, comparisons of systems under one condition and of one system with a
// switch turned, the noise floor, and verdicts in plain words. The report, the ledger of claims and `advise` all read this and compute nothing themselves.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/src/record/record.h"

namespace tandem::lab {

/// A value with its 95 % interval.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

/// One system's runs in one metric under one condition.
struct Summary {
  Condition condition;
  std::string metric, system;
  std::vector<double> values;                // one per run, in the order of blocks
  std::vector<int64_t> blocks;               // of each value
  Estimate median;                           // interval: bootstrap over runs
  std::map<std::string, double> statistics;  // by name (statistics.h); those that have a meaning here
};

enum class Verdict { first, second, equivalent, undecided };
std::string to_string(Verdict verdict);

/// Two systems in one metric under one condition. `first` and `second` are systems; ratio = median of second / first.
struct Comparison {
  Condition condition;
  std::string metric, first, second;
  size_t runs = 0;  // pairs, or the smaller sample where unpaired
  bool paired = true;
  /// Each of the two gave one and the same value in every run: a fact, which needs neither a test (p is no number, and Holm's
  /// family is without it) nor an interval. Of one run only where the metric is a count.
  bool constant = false;
  /// Of medians; bootstrap over pairs. Not a number where the first median is not positive.
  Estimate ratio;
  Estimate shift;            // Hodges-Lehmann: second - first
  double cliffs_delta = 0;   // of second against first
  std::string test;          // "Wilcoxon signed-rank, exact"
  double p = 1, p_holm = 1;  // Holm within one condition and metric
  bool at_floor = false;     // p is the smallest that this test can give for so many runs
  bool can_decide =
      true;  // false: so few runs that p_holm cannot pass 0.05, whatever is measured; or disturbed ones, or a disturbed control
  size_t disturbed = 0;  // values of runs beside which other work went beyond the limits: they decide nothing
  size_t left_out = 0;   // runs of the two that were left out for that reason, and that no repeat replaced
  std::optional<double>
      noise;                  // the floor that it was held against: 0.02 = 2 %; none where none was measured
  bool beyond_noise = false;  // the interval of the ratio lies beyond that floor
  /// `first`: the first is better in the sense of the metric, and where neither is better, it is the lower one.
  Verdict verdict = Verdict::undecided;
  /// "pytorch:eager is 1.34× faster than … (95 % interval 1.29 to 1.40); the noise floor is 2 %."
  std::string text;
};

/// What a switch does to one system: two conditions that differ in one switch alone, compared as two systems are.
struct Effect {
  std::string system;
  Condition first, second;
  /// Its `first` and `second` are the system with its switches, "tandem:graph with conv=fixed"; its condition has none. Holm's
  /// family: the values of one switch, for one system in one metric.
  Comparison comparison;
};

/// Two systems, or settings of a switch, that a metric of whole training is not compared between: a pair of their runs trained
/// different numbers of epochs, as where a cap ended one of them early.
struct Uncompared {
  Condition condition;
  std::string metric, first, second;        // as of a Comparison
  std::string first_epochs, second_epochs;  // "2"; "1 to 2" where runs differ
  bool of_switch = false;
};

/// The A/A control: one system against itself.
struct NoiseFloor {
  Condition condition;
  std::string metric, system;
  size_t runs = 0;
  Estimate ratio;
  /// The larger of the interval's upper end and the reciprocal of its lower end, less 1: 0.02 = 2 %. Which half of the control
  /// stands below does not change it. Infinite where the interval reaches down to 0.
  double floor = 0;
};

/// A run or a cell that could not be measured.
struct Gap {
  Condition condition;
  std::string system;
  Status status = Status::absent;
  std::string why, last_words;
  size_t runs = 0;
};

/// How much of a study the machine disturbed. Repeats count once each.
struct Disturbances {
  size_t runs = 0;       // all records, of any status
  size_t recorded = 0;   // of these, records that say what the machine did
  size_t disturbed = 0;  // of these, disturbed ones: repeated, left out or kept
  size_t left_out = 0;   // that no repeat replaced
  size_t kept = 0;       // measured all the same, as was asked: they decide nothing
  std::string example;   // what happened beside one of them
};

struct Analysis {
  /// The names of the data that runs of a condition saw; more than one where a folder mixes them.
  std::map<Condition, std::set<std::string>> data;
  /// How many epochs the ordinary runs of each system trained; phase fit alone.
  std::map<Condition, std::map<std::string, std::set<int64_t>>> epochs;
  std::vector<Summary> summaries;
  std::vector<Comparison> comparisons;
  std::vector<Effect> effects;  // in metrics that have a better side
  std::vector<Uncompared> uncompared;
  std::vector<NoiseFloor> noise;
  std::vector<Gap> gaps;
  Disturbances disturbances;
  /// Runs of each system that were left out for that reason; control runs are not counted.
  std::map<Condition, std::map<std::string, size_t>> left_out;
  /// Systems some of whose control runs were disturbed, whether they were left out or kept.
  std::map<Condition, std::set<std::string>> disturbed_controls;

  /// Whether a system was controlled there, but disturbances left no pair of runs to measure its noise floor with: nothing is
  /// decided without it.
  bool lost_control(const Condition& condition, const std::string& metric, const std::string& system) const;
  const Summary* summary(const Condition& condition, const std::string& metric,
                         const std::string& system) const;
  /// The comparison of two systems in either order; the caller looks at its `first`.
  const Comparison* comparison(const Condition& condition, const std::string& metric, const std::string& a,
                               const std::string& b) const;
  /// The worst that was measured there; where there is none, the worst of the same phase on the same device.
  const NoiseFloor* noise_floor(const Condition& condition, const std::string& metric) const;
  /// The larger of the two systems' own, each against itself; for one that has no control the worst stands in.
  const NoiseFloor* noise_floor(const Condition& condition, const std::string& metric, const std::string& a,
                                const std::string& b) const;
  /// Whether these two are not compared because of their epochs; in either order.
  bool are_uncompared(const Condition& condition, const std::string& metric, const std::string& a,
                      const std::string& b) const;
  /// "2", "1 to 2"; "" where a system trained no epochs there.
  std::string epochs_text(const Condition& condition, const std::string& system) const;
  /// "mnist", or "mnist and synthetic-mnist"; "–" where no run got so far.
  std::string data_text(const Condition& condition) const;
  std::string data_text(const Effect& effect) const;
  /// Whether every run of the condition that saw data saw real data, and one did.
  bool on_real_data(const Condition& condition) const;
};

/// How a metric is read: its name for people, unit, and whether less is better.
struct Metric {
  std::string name;   // "step.latency_s"
  std::string label;  // "step time"
  std::string unit;   // "s"
  enum class Better { less, more, neither } better = Better::less;
  /// It says how well something was learned, or how soon: what means something on real data alone.
  bool learned = false;
};
/// All metrics that the lab knows, in the order in which tables show them (lab/docs/metrics.md).
const std::vector<Metric>& metrics();
/// The metric of a name; one that is not in the list is shown by its name, and neither is better.
Metric metric(const std::string& name);
/// Whether it says what the machine did beside a run, and nothing about the system: such numbers are not compared.
bool is_of_machine(const std::string& name);
/// Whether it is counted, and the same in every run by its nature: one run says all about it.
bool is_count(const std::string& name);
/// Whether it grows, or should, with the epochs that a run trains: the time and the energy of all of them, and what was learned at
/// the end or at best. The time of one epoch or test, and the time to an accuracy, do not depend on how many followed.
bool depends_on_epochs(const std::string& name);
/// "2", "1 to 2".
std::string epochs_text(const std::set<int64_t>& epochs);

struct AnalysisOptions {
  double level = 0.05;  // of all tests
  /// Two systems within this share of each other count as equal (TOST), where the noise floor is not above it.
  double equivalence = 0.02;
  int resamples = 4000;  // of every bootstrap
  uint64_t seed = 1;
};

Analysis analyse(const Results& results, const AnalysisOptions& options = {});

}  // namespace tandem::lab
