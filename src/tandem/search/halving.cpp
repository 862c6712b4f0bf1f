#include "tandem/search/halving.h"

#include <algorithm>
#include <cmath>

namespace tandem::search {
namespace {

/// The trials that have reached a rung, the best first.
std::vector<size_t> ranked(const std::vector<Scores>& trials, size_t rung) {
  std::vector<size_t> out;
  for (size_t i = 0; i < trials.size(); ++i)
    if (trials[i].size() > rung) out.push_back(i);
  std::stable_sort(out.begin(), out.end(),
                   [&](size_t a, size_t b) { return trials[a][rung] > trials[b][rung]; });
  return out;
}

bool stands_at(const Scores& scores, size_t rung) {
  return scores.size() == rung + 1 && std::isfinite(scores[rung]);
}

}  // namespace

// From the most down by eta, as long as it is not below the least: the last rung is always the full budget.
std::vector<int64_t> rungs_of(int64_t least, int64_t most, int64_t eta) {
  std::vector<int64_t> out = {most};
  while (out.back() / eta >= least) out.push_back(out.back() / eta);
  std::reverse(out.begin(), out.end());
  return out;
}

// From the highest rung down: whoever is among the best of a rung's 1 / eta and still stands there goes on. A trial
// that failed (a score that is not finite) is ranked but never goes on.
std::optional<size_t> next_promotion(const std::vector<Scores>& trials, size_t rungs, int64_t eta) {
  for (size_t rung = rungs - 1; rung-- > 0;) {
    std::vector<size_t> best = ranked(trials, rung);
    best.resize(best.size() / static_cast<size_t>(eta));
    for (const size_t trial : best)
      if (stands_at(trials[trial], rung)) return trial;
  }
  return std::nullopt;
}

// When no more trials are begun: the best that wait, the furthest first, until enough have reached the last rung.
std::optional<size_t> next_leader(const std::vector<Scores>& trials, size_t rungs, int64_t finalists) {
  const auto done = std::count_if(trials.begin(), trials.end(),
                                  [&](const Scores& scores) { return stands_at(scores, rungs - 1); });
  if (done >= finalists) return std::nullopt;
  for (size_t rung = rungs - 1; rung-- > 0;)
    for (const size_t trial : ranked(trials, rung))
      if (stands_at(trials[trial], rung)) return trial;
  return std::nullopt;
}

}  // namespace tandem::search
