// What a sample is described by, as a table: the columns of summaries.csv, and those of the report's tables that are shown there.
// A new statistic costs its function in lab/src/stats and a row in statistics.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

struct Statistic {
  std::string name;       // of its column in summaries.csv: "deviation"
  std::string label;      // of its column in tables; empty: it is not shown there
  bool is_share = false;  // shown in per cent; else with the metric's unit
  /// Of one value or more, all finite; none where it has no meaning for them.
  std::optional<double> (*of)(const std::vector<double>& values) = nullptr;
};

/// In the order of the columns.
const std::vector<Statistic>& statistics();

}  // namespace tandem::lab
