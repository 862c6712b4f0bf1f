// Successive halving (ASHA, Li et al., 2018): every trial begins with a few epochs, and only the best of those that have
// had as many go on to more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::search {

/// Numbers of epochs at which trials are compared: `most`, and that divided by eta again and again, down to `least`:
/// {1, 3, 9}, the fewest first.
std::vector<int64_t> rungs_of(int64_t least, int64_t most, int64_t eta);

/// How a trial stands: its score at each rung that it has reached, the higher the better. One that failed has minus
/// infinity at the rung that it did not reach.
using Scores = std::vector<double>;

/// Which trial (its place in `trials`) goes on to its next rung: of the n trials that have reached a rung the best n / eta
/// may, and the highest rung is looked at first. Nothing: none may, and a new trial begins. Equal scores: the earlier
/// trial is the better one.
std::optional<size_t> next_promotion(const std::vector<Scores>& trials, size_t rungs, int64_t eta);

/// The best of the trials that have come furthest and can go further; for the end of a search, when no more trials
/// begin, so that the best ones have their full length. Nothing: `finalists` trials have it, or none can go on.
std::optional<size_t> next_leader(const std::vector<Scores>& trials, size_t rungs, int64_t finalists);

}  // namespace tandem::search
