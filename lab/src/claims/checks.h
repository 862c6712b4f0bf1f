// The checks behind each kind of claim. Each returns what it found, one entry a condition (and system); judge.cpp puts
// them together.
#pragma once

#include <string>
#include <vector>

#include "lab/src/claims/evidence.h"
#include "lab/src/claims/judge.h"

namespace tandem::lab {

constexpr double kLevel = 0.05;  // of all tests here
/// An interval over fewer runs decides nothing: even the range of five values covers their median with less than 95 %.
constexpr size_t kFewestRuns = 6;

struct Checked {
  std::string figure;  // what the estimates are
  std::vector<Finding> findings;
};

// Two or more systems under one condition (checks_systems.cpp).
Checked check_order(const Claim& claim, const Evidence& evidence);
Checked check_ratio(const Claim& claim, const Evidence& evidence);
Checked check_equal(const Claim& claim, const Evidence& evidence);
Checked check_extreme(const Claim& claim, const Evidence& evidence);
Checked check_spread(const Claim& claim, const Evidence& evidence);
Checked check_no_winner(const Claim& claim, const Evidence& evidence);

// One system under several conditions (checks_conditions.cpp).
Checked check_across(const Claim& claim, const Evidence& evidence);
Checked check_trend(const Claim& claim, const Evidence& evidence);

// One system's runs (checks_runs.cpp).
Checked check_level(const Claim& claim, const Evidence& evidence);
Checked check_not_normal(const Claim& claim, const Evidence& evidence);
Checked check_correlation(const Claim& claim, const Evidence& evidence);
Checked check_within_run(const Claim& claim, const Evidence& evidence);

/// Whether so many runs of a metric make an interval: counts and breakdowns, which do not vary, are asked for once.
bool enough(size_t runs, const std::string& metric);
/// Whether an interval lies within bounds: holds inside, no_longer outside, undecided where it crosses one.
Mark within_bounds(const Estimate& ours, const std::optional<double>& low, const std::optional<double>& high);
/// "between 0.97 and 0.99", "at least 2".
std::string bounds_text(const std::optional<double>& low, const std::optional<double>& high);
/// "1.34 (95 % interval 1.29 to 1.40)"; "1.34 (no interval)" of one run, or where every run had the same.
std::string shown(const Estimate& estimate);
std::string shown(double value);

/// Which of two systems has the smaller values of a metric, where that is decided.
enum class Side { first_less, second_less, equal, undecided };
struct Compared {
  Side side = Side::undecided;
  Estimate ratio;  // second / first
  std::string text;
  bool measured = false;  // both, and they may be compared
  size_t runs = 0;
};
Compared compare(const Evidence& evidence, const Condition& condition, const std::string& metric,
                 const std::string& first, const std::string& second);

}  // namespace tandem::lab
