// What a test answers.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::lab::stats {

enum class Alternative { two_sided, less, greater };

/// How a rank test finds its p: from the exact distribution of its statistic for these very ranks, or from a normal one.
enum class Method { automatic, exact, normal };

struct TestResult {
  std::string name;  // "Wilcoxon signed-rank, exact"
  double statistic = 0;
  double p = 1;
  size_t runs = 0;        // values or pairs that bear on the result
  double smallest_p = 0;  // the smallest p that this test can give for so many runs with these ties
  bool at_floor = false;  // p is that: it says only that all runs agree, not how large the difference is
};

}  // namespace tandem::lab::stats
