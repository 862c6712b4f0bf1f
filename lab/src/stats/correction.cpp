#include "lab/src/stats/correction.h"

#include <algorithm>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::lab::stats {

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 0; i < p.size(); ++i)
    TD_CHECK(p[i] >= 0 && p[i] <= 1, "holm: every p must lie between 0 and 1; got ", p[i], " at place ", i,
             ". Leave out tests that could not be made.");
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  // The smallest p is multiplied by the number of tests, the next by one less …; none may come out below the one
  // before it.
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, static_cast<double>(order.size() - i) * p[order[i]]);
    adjusted[order[i]] = std::min(1.0, largest);
  }
  return adjusted;
}

}  // namespace tandem::lab::stats
