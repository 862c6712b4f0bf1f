// Does a sample come from a normal distribution?
#pragma once

#include <span>

#include "lab/src/stats/test_result.h"

namespace tandem::lab::stats {

/// Kolmogorov and Smirnov's test against a given normal distribution; two-sided, exact up to 1000 values. With the
/// standard normal it is what paper 000 did: times in seconds or degrees are never that, so its p says nothing about
/// their shape.
TestResult kolmogorov_smirnov_normal(std::span<const double> values, double mean = 0, double deviation = 1,
                                     Method method = Method::automatic);

/// Lilliefors' test: mean and deviation are the sample's own. p by the approximations of Dallal and Wilkinson (1986) and,
/// above 0.1, of Stephens (1974). Needs five values that are not all equal.
TestResult lilliefors(std::span<const double> values);

}  // namespace tandem::lab::stats
