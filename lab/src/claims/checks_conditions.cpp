// Claims about one system under several conditions: a switch turned, another device, a growing batch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/src/claims/checks.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/sample.h"
#include "lab/src/stats/trend.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// The condition with the claim's axis taken out, so that conditions that differ in it alone become equal.
Condition without_axis(Condition condition, const std::string& axis) {
  if (axis == "switches") condition.switches.clear();
  if (axis == "device") condition.device.clear();
  if (axis == "precision") condition.precision.clear();
  if (axis == "optimizer") condition.optimizer.clear();
  if (axis == "batch") condition.batch = 0;
  if (axis == "input" || axis == "workload") condition.input.clear();
  if (axis == "workload") condition.workload.clear();
  return condition;
}

bool is_at(const Condition& condition, const std::string& axis, const Json& place) {
  if (axis == "switches") {
    if (place.size() != condition.switches.size()) return false;
    return std::all_of(condition.switches.begin(), condition.switches.end(), [&](const auto& entry) {
      return place.contains(entry.first) && place[entry.first] == entry.second;
    });
  }
  if (axis == "batch") return place == condition.batch;
  const std::string name = place.get<std::string>();
  if (axis == "device") return condition.device == name || (name == "cuda" && condition.device == "cuda:0");
  if (axis == "precision") return condition.precision == name;
  if (axis == "optimizer") return condition.optimizer == name;
  return condition.workload == name;
}

std::string place_text(const Json& place) {
  if (place.is_string()) return place.get<std::string>();
  if (!place.is_object()) return place.dump();
  std::string text;
  for (const auto& [key, value] : place.items())
    text += (text.empty() ? "" : ", ") + key + " " + value.get<std::string>();
  return text;
}

/// The place of a condition along the axis of a trend.
int64_t place_of(const Condition& condition, const std::string& axis) {
  if (axis == "batch") return condition.batch;
  return std::accumulate(condition.input.begin(), condition.input.end(), int64_t{1}, std::multiplies<>());
}

/// The metric of a system, or its quotient by another system's in the same block.
Sample series(const Claim& claim, const Evidence& evidence, const Condition& condition,
              const std::string& system) {
  Sample sample = evidence.sample(condition, system, claim.metrics[0]);
  if (claim.relative.empty()) return sample;
  const Sample below = evidence.sample(condition, claim.relative, claim.metrics[0]);
  std::erase_if(
      sample, [&](const auto& entry) { return !below.contains(entry.first) || below.at(entry.first) == 0; });
  for (auto& [block, value] : sample) value /= below.at(block);
  return sample;
}

/// Judges one system's series over at least three places.
Finding judge_trend(const Claim& claim, const std::vector<std::pair<int64_t, Sample>>& places, double noise) {
  Finding finding;
  std::vector<std::vector<double>> rows;  // a row per block that all places have
  for (const auto& [block, value] : places.front().second) {
    std::vector<double> row;
    for (const auto& [place, sample] : places) {
      const auto found = sample.find(block);
      if (found != sample.end()) row.push_back(found->second);
    }
    if (row.size() == places.size()) rows.push_back(std::move(row));
  }
  if (rows.size() < (claim.direction == "flat" ? kFewestRuns : 2)) {
    finding.mark = Mark::undecided;
    finding.reason = str("only ", rows.size(), " blocks have all ", places.size(), " values of ", claim.axis);
    return finding;
  }
  std::vector<double> first, last;
  for (const auto& row : rows) {
    first.push_back(row.front());
    last.push_back(row.back());
  }
  const stats::Interval ends = stats::median_ratio_paired(first, last);
  finding.ours = Estimate{ends.value, ends.low, ends.high};
  const std::string from_to = str("from ", claim.axis == "batch" ? "batch " : "size ", places.front().first,
                                  " to ", places.back().first, " the ratio is ", shown(*finding.ours));
  if (claim.direction == "flat") {
    const double margin = std::max(claim.within, noise);
    Estimate widest = *finding.ours;  // of all places against the first, the one that strays farthest
    for (size_t j = 1; j < places.size(); ++j) {
      std::vector<double> here;
      for (const auto& row : rows) here.push_back(row[j]);
      const stats::Interval ratio = stats::median_ratio_paired(first, here);
      widest.low = std::min(widest.low, ratio.low);
      widest.high = std::max(widest.high, ratio.high);
    }
    const bool inside = std::isfinite(margin) && widest.low >= 1 / (1 + margin) && widest.high <= 1 + margin;
    const stats::TestResult differ = stats::friedman(rows);
    const bool outside = finding.ours->low > 1 + margin || finding.ours->high < 1 / (1 + margin);
    finding.mark = inside ? Mark::holds : outside && differ.p < kLevel ? Mark::no_longer : Mark::undecided;
    finding.reason =
        str(from_to, "; ", shown(100 * margin), " % count as none; ", differ.name, ", p = ", shown(differ.p));
    return finding;
  }
  std::vector<std::vector<double>> turned = rows;
  for (auto& row : turned) std::reverse(row.begin(), row.end());
  const bool rises = claim.direction == "rises";
  const stats::TestResult claimed = stats::page(rises ? rows : turned),
                          against = stats::page(rises ? turned : rows);
  finding.mark = claimed.p < kLevel ? Mark::holds : against.p < kLevel ? Mark::no_longer : Mark::undecided;
  finding.reason = str(from_to, "; ", claimed.name, ", p = ", shown(claimed.p), " that it ", claim.direction);
  return finding;
}

}  // namespace

Checked check_across(const Claim& claim, const Evidence& evidence) {
  Checked checked{claim.metrics[0] + ", " + place_text(claim.to) + " / " + place_text(claim.from), {}};
  Where where = claim.where;
  if (claim.axis == "switches") where.any_switches = true;
  const std::vector<Condition> conditions = evidence.conditions(where, claim.axis == "device");
  for (const Condition& from : conditions) {
    if (!is_at(from, claim.axis, claim.from)) continue;
    for (const Condition& to : conditions) {
      if (!is_at(to, claim.axis, claim.to) || without_axis(from, claim.axis) != without_axis(to, claim.axis))
        continue;
      for (const std::string& system : claim.systems) {
        const Sample at_from = evidence.sample(from, system, claim.metrics[0]);
        const Sample at_to = evidence.sample(to, system, claim.metrics[0]);
        Finding finding{system + ", " + to.text(), Mark::not_measured, {}, ""};
        if (at_from.empty() || at_to.empty()) {
          finding.reason = evidence.why_empty(at_from.empty() ? from : to, system, claim.metrics[0]);
        } else if (const std::string apart =
                       evidence.other_epochs(claim.metrics[0], {{from, system}, {to, system}});
                   !apart.empty()) {
          finding.mark = Mark::undecided;
          finding.reason = apart;
        } else if (!enough(std::min(at_from.size(), at_to.size()), claim.metrics[0])) {
          finding.mark = Mark::undecided;
          finding.reason = str("only ", std::min(at_from.size(), at_to.size()), " runs");
        } else {
          // Blocks of two conditions are not taken close together, so the samples are resampled each for itself.
          const stats::Interval ratio = stats::median_ratio(values_of(at_from), values_of(at_to));
          finding.ours = Estimate{ratio.value, ratio.low, ratio.high};
          finding.mark = within_bounds(*finding.ours, claim.low, claim.high);
          finding.reason = "the ratio is " + shown(*finding.ours) + "; the claim needs it " +
                           bounds_text(claim.low, claim.high);
        }
        checked.findings.push_back(std::move(finding));
      }
    }
  }
  return checked;
}

Checked check_trend(const Claim& claim, const Evidence& evidence) {
  Checked checked{claim.metrics[0] + (claim.relative.empty() ? "" : " relative to " + claim.relative) +
                      ", last / first " + claim.axis,
                  {}};
  std::map<Condition, std::vector<Condition>> groups;
  for (const Condition& condition : evidence.conditions(claim.where)) {
    groups[without_axis(condition, claim.axis)].push_back(condition);
  }
  for (auto& [common, conditions] : groups) {
    std::sort(conditions.begin(), conditions.end(), [&](const Condition& a, const Condition& b) {
      return place_of(a, claim.axis) < place_of(b, claim.axis);
    });
    for (const std::string& system : claim.systems) {
      std::vector<std::pair<int64_t, Sample>> places;
      std::string why;
      double noise = 0;
      std::vector<std::pair<Condition, std::string>> trained;
      for (const Condition& condition : conditions) {
        Sample sample = series(claim, evidence, condition, system);
        noise = std::max(noise, evidence.noise(condition, claim.metrics[0]));
        trained.emplace_back(condition, system);
        if (!claim.relative.empty()) trained.emplace_back(condition, claim.relative);
        if (sample.empty())
          why = evidence.why_empty(condition, system, claim.metrics[0]);
        else
          places.emplace_back(place_of(condition, claim.axis), std::move(sample));
      }
      Finding finding;
      if (const std::string apart = evidence.other_epochs(claim.metrics[0], trained); !apart.empty()) {
        finding.mark = Mark::undecided;
        finding.reason = apart;
      } else if (places.size() >= 3) {
        finding = judge_trend(claim, places, noise);
      } else {
        finding.mark = places.empty() ? Mark::not_measured : Mark::undecided;
        finding.reason =
            places.empty() ? why
                           : str("a trend needs three values of ", claim.axis, "; there are ", places.size());
      }
      finding.where = system + ", " + conditions.front().text() + " and so on";
      checked.findings.push_back(std::move(finding));
    }
  }
  return checked;
}

}  // namespace tandem::lab
