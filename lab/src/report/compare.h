// Two studies' folders held against each other: before and after a change, or two machines. Runs of different folders
// are never pairs, so the tests are those of independent samples.
#pragma once

#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"

namespace tandem::lab {

/// One system under one condition in both folders. `comparison.first` is "A", `.second` is "B".
struct Change {
  std::string system;
  Comparison comparison;
  std::string data;  // "mnist"; "synthetic-mnist in A, mnist in B"
};

struct FolderComparison {
  std::string a, b;  // the folders
  std::vector<Change> changes;
  std::vector<std::string> not_compared;    // what differs in the number of epochs
  std::vector<std::string> only_a, only_b;  // systems under conditions that one folder alone has
  std::vector<std::string> provenance;      // "cpu.governor: powersave in A, performance in B"
};

/// In the metrics that have a better side. Throws Error where a folder holds no study.
FolderComparison compare_folders(const std::string& a, const std::string& b);

std::string comparison_text(const FolderComparison& comparison);
/// A page of its own, like report.html.
std::string comparison_html(const FolderComparison& comparison);

}  // namespace tandem::lab
