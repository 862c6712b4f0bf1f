// Several treatments of the same blocks: do any differ (Friedman), and do they grow in a foretold order (Page)? For claims
// such as "batch size does not change power".
#pragma once

#include <span>
#include <vector>

#include "lab/src/stats/test_result.h"

namespace tandem::lab::stats {

/// rows[i][j]: block i under treatment j. Friedman's test with ties corrected, p by chi-square. At least two blocks and
/// three treatments.
TestResult friedman(std::span<const std::vector<double>> rows);

/// Page's L: one-sided, small p where values grow with j. Exact up to eight treatments and 100 blocks without ties, else a
/// normal approximation. At least two blocks and three treatments.
TestResult page(std::span<const std::vector<double>> rows, Method method = Method::automatic);

}  // namespace tandem::lab::stats
