// Which trial is better.
#include <algorithm>

#include "tandem/search/search.h"

namespace tandem::search {

std::optional<size_t> Trial::best_epoch(bool higher_is_better) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < values.size(); ++i)
    if (!best || (higher_is_better ? values[i] > values[*best] : values[i] < values[*best])) best = i;
  return best;
}

std::vector<size_t> ranking(const std::vector<Trial>& trials, bool higher_is_better) {
  std::vector<size_t> order;
  for (size_t i = 0; i < trials.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const std::optional<size_t> at_a = trials[a].best_epoch(higher_is_better),
                                at_b = trials[b].best_epoch(higher_is_better);
    const bool has_a = at_a && trials[a].failed.empty(), has_b = at_b && trials[b].failed.empty();
    if (!has_a || !has_b) return has_a && !has_b;
    const double value_a = trials[a].values[*at_a], value_b = trials[b].values[*at_b];
    if (value_a != value_b) return higher_is_better ? value_a > value_b : value_a < value_b;
    return trials[a].losses[*at_a] < trials[b].losses[*at_b];
  });
  return order;
}

}  // namespace tandem::search
