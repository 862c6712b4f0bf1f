// The ledger of claims: what the papers published and a rerun can test, each with its source, its numbers and the check
// that decides on it. lab/docs/claims.md describes the files studies/claims/PAPER.toml.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/record/record.h"

namespace tandem::lab {

/// Where a claim is tested: the conditions of a study that fit. An empty list or text fits all.
struct Where {
  std::vector<std::string> workload;
  std::string phase;
  std::string track = "equal";                        // one track, always
  std::vector<std::string> device = {"cuda", "cpu"};  // kinds; the first of them that has runs counts
  std::vector<int64_t> batch;
  std::vector<std::string> precision, optimizer;
  std::map<std::string, std::string> switches;  // must be turned so; others may be turned as they like
  bool any_switches = false;  // false: a condition that turns other switches than those does not fit
};

/// A number as the paper printed it.
struct Published {
  std::string what;  // "TensorFlow", "p of the paired Wilcoxon test"
  double value = 0;
  std::string unit;
  std::string system;  // whose it is, where it is one system's: "pytorch:eager"
};

enum class CheckKind {
  order,    // `less` has a smaller metric than `more`
  ratio,    // the metric of `of` divided by that of `to` lies within low and high
  equal,    // `systems` do not differ, or by less than `within`
  level,    // the metric of each of `systems` lies within low and high
  extreme,  // `system` has the highest or lowest metric of all `among`
  across,  // one system under two conditions: the metric at `to` divided by that at `from` lies within low and high
  trend,        // along an axis the metric rises, falls or stays flat
  not_normal,   // the metrics of `systems` are not normally distributed
  correlation,  // of two metrics: Pearson's r lies within low and high
  spread,       // `less` varies less than `more`
  within_run,   // in each run one metric is larger than another one
  no_winner,    // no one of `among` is best under all conditions
};
std::string to_string(CheckKind kind);

struct Claim {
  std::string id, paper, source, text;
  CheckKind kind = CheckKind::order;
  Where where;
  std::vector<Published> published;
  std::string later;  // why it cannot be tested yet; "" where it can
  bool most = false;  // it is about most conditions, not about each

  // What the check needs; the rest is empty.
  std::vector<std::string> metrics;  // one; not_normal: some; correlation: x, y; within_run: less, more
  std::vector<std::string> systems;  // order, spread: less, more; ratio: of, to; extreme: it, then the others
  std::optional<double> low, high;
  double within = 0;
  std::string axis;  // trend: "batch", "input"; across: the field of Condition that varies
  std::string
      direction;  // trend: "rises", "falls", "flat"; extreme: "highest", "lowest"; not_normal: the test
  std::string relative;  // trend: the metric is divided by that of this system in the same block
  Json from, to;         // across
};

struct Ledger {
  std::vector<Claim> claims;
  std::map<std::string, std::string> machines;  // paper -> what it measured on

  const Claim* find(const std::string& id) const;
};

/// studies/claims/*.toml of the lab's home. Throws Error for a file that breaks a rule.
Ledger load_ledger();
/// One file of it, for tests and tools: `path` is what messages call it.
Ledger parse_ledger(const Json& json, const std::string& path);

}  // namespace tandem::lab
