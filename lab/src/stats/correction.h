// Many tests at once.
#pragma once

#include <span>
#include <vector>

namespace tandem::lab::stats {

/// Holm's correction: in the order given, each p such that rejecting those below a level errs anywhere with at most that
/// chance.
std::vector<double> holm(std::span<const double> p);

}  // namespace tandem::lab::stats
