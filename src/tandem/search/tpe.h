// Proposals: the next point to try, from the trials so far.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/search/space.h"

namespace tandem::search {

struct ProposalOptions {
  uint64_t seed = 0;
  size_t first = 10;  ///< trials that are drawn evenly from the space, before there is anything to learn from
  double good = 0.1;  ///< share of the trials that counts as good
  int candidates = 32;   ///< drawn for each proposal; the most promising is taken
  double explore = 0.1;  ///< share of later proposals that are drawn evenly all the same
};

/// A point drawn evenly from the space: a function of seed and number.
Point random_point(const Space& space, uint64_t seed, int64_t number);

/// The point of trial `number` by tree-structured Parzen estimators (Bergstra et al., 2011): one density is put around the
/// good points and one around the rest, and of some points drawn from the first the one is taken where the first is the
/// most above the second. A kernel stands on a whole point (as in BOHB), so that what goes together stays together.
/// `best_first`: the points of all finished trials, the best one first. The result is a function of the arguments.
Point tpe_point(const Space& space, const std::vector<Point>& best_first, int64_t number,
                const ProposalOptions& options = {});

}  // namespace tandem::search
