#include "lab/src/analysis/statistics.h"

#include <algorithm>

#include "lab/src/stats/kolmogorov.h"
#include "lab/src/stats/normality.h"
#include "lab/src/stats/sample.h"

namespace tandem::lab {
namespace {

using Values = std::vector<double>;
using Maybe = std::optional<double>;

constexpr size_t kLeastForNormality = 5;

}  // namespace

const std::vector<Statistic>& statistics() {
  static const auto& table = *new std::vector<Statistic>{
      {"mean", "", false, [](const Values& v) -> Maybe { return stats::mean(v); }},
      {"deviation", "", false, [](const Values& v) -> Maybe { return stats::deviation(v); }},
      {"minimum", "", false, [](const Values& v) -> Maybe { return *std::min_element(v.begin(), v.end()); }},
      {"maximum", "", false, [](const Values& v) -> Maybe { return *std::max_element(v.begin(), v.end()); }},
      // From the first quartile to the third, as a share of the median: one slow run does not change it.
      {"spread", "spread", true,
       [](const Values& v) -> Maybe {
         const double middle = stats::median(v);
         if (v.size() < 4 || !(middle > 0)) return std::nullopt;
         return (stats::quantile(v, 0.75) - stats::quantile(v, 0.25)) / middle;
       }},
      {"p_lilliefors", "", false,
       [](const Values& v) -> Maybe {
         if (v.size() < kLeastForNormality || !(stats::deviation(v) > 0)) return std::nullopt;
         return stats::lilliefors(v).p;
       }},
      // Against a standard normal, as paper 000 did it.
      {"p_ks", "", false,
       [](const Values& v) -> Maybe {
         if (v.size() < kLeastForNormality) return std::nullopt;
         return stats::kolmogorov_smirnov_normal(v).p;
       }},
  };
  return table;
}

}  // namespace tandem::lab
