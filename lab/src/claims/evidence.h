// What a study measured, as the checks of claims ask for it: the conditions that fit a claim, one system's values of a
// metric block by block, and the reason where there are none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"
#include "lab/src/claims/ledger.h"

namespace tandem::lab {

/// Names of the metrics that the ledger derives from others, beyond lab/docs/metrics.md: first_epoch_excess_s (first epoch
/// less the median of the later ones), removed.share (nodes that graph passes removed, of all), removed.no_op_share,
/// removed.cheap_share, removed.expensive_share (of the removed ones), removed.PASS_share (by one pass, of all).
bool is_derived_metric(const std::string& name);

/// One run's number; nothing where the run has none.
std::optional<double> metric_of(const Run& run, const std::string& metric);

/// Values of one system, by block.
using Sample = std::map<int64_t, double>;
std::vector<double> values_of(const Sample& sample);
/// The values of the blocks that both have, in order.
std::pair<std::vector<double>, std::vector<double>> paired(const Sample& first, const Sample& second);

class Evidence {
 public:
  /// Both must outlive it. `only_real`: of conditions whose runs saw real data alone.
  Evidence(const Results& results, const Analysis& analysis, bool only_real = false);

  const Analysis& analysis() const { return analysis_; }

  /// The conditions of ordinary runs, measured or not, that fit; of the first kind of device that has any.
  std::vector<Condition> conditions(const Where& where, bool any_device = false) const;
  /// The ordinary runs of a system there, whatever their status; of all systems where `system` is "".
  std::vector<const Run*> runs(const Condition& condition, const std::string& system) const;
  Sample sample(const Condition& condition, const std::string& system, const std::string& metric) const;
  /// Why that sample is empty: the gap's reason, the metric's reason, or that the study did not ask for it.
  std::string why_empty(const Condition& condition, const std::string& system,
                        const std::string& metric) const;
  /// Why a metric is not compared between these: it depends on the epochs, and they trained different numbers of them. "" where
  /// it may be compared.
  std::string other_epochs(const std::string& metric,
                           const std::vector<std::pair<Condition, std::string>>& systems) const;
  /// The noise floor of that metric there, as a share; 0 where the study has no control.
  double noise(const Condition& condition, const std::string& metric) const;
  /// Of the two systems of a comparison.
  double noise(const Comparison& of) const;

 private:
  const Analysis& analysis_;
  std::map<Condition, std::vector<const Run*>> runs_;
};

/// "cpu" or "cuda".
std::string device_kind(const std::string& device);

}  // namespace tandem::lab
