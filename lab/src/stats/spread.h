// Do samples spread equally wide?
#pragma once

#include <span>
#include <vector>

#include "lab/src/stats/test_result.h"

namespace tandem::lab::stats {

enum class Centre { median, mean };

/// Levene's test on distances from each sample's centre; with the median it is Brown and Forsythe's, which long tails do
/// not fool. At least two samples of at least two values each.
TestResult levene(std::span<const std::vector<double>> samples, Centre centre = Centre::median);

/// Fligner and Killeen's test: the same distances by their ranks; the most robust of the family.
TestResult fligner(std::span<const std::vector<double>> samples);

}  // namespace tandem::lab::stats
