// Correlation of two measurements of the same runs.
#pragma once

#include <span>

#include "lab/src/stats/test_result.h"

namespace tandem::lab::stats {

/// Pearson's r, p by Student's t; at least three pairs, and both must vary.
TestResult pearson(std::span<const double> x, std::span<const double> y);
/// Pearson's r of the ranks: whether one grows with the other, in whatever shape.
TestResult spearman(std::span<const double> x, std::span<const double> y);

}  // namespace tandem::lab::stats
