#include "lab/src/claims/why.h"

#include <algorithm>
#include <cmath>

#include "lab/src/claims/checks.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// The median of a metric over the runs of a candidate.
std::optional<double> middle(const Evidence& evidence, const Candidate& candidate,
                             const std::string& metric) {
  const std::vector<double> values =
      values_of(evidence.sample(candidate.condition, candidate.system, metric));
  if (values.empty()) return std::nullopt;
  return stats::median(values);
}

/// The first breakdown that a run of the candidate has, or null.
Json breakdown_of(const Evidence& evidence, const Candidate& candidate) {
  for (const Run* run : evidence.runs(candidate.condition, candidate.system)) {
    if (run->status == Status::ok && run->breakdown.is_object()) return run->breakdown;
  }
  return nullptr;
}

std::string percent(double share) { return shown(100 * share) + " %"; }

/// The algorithm that a breakdown names most often, with its count.
std::string usual_algorithm(const Json& breakdown) {
  if (!breakdown.is_object() || !breakdown.contains("choices") || !breakdown["choices"].is_object())
    return "";
  std::map<std::string, int> counts;
  for (const auto& [layer, choice] : breakdown["choices"].items()) {
    if (choice.is_string()) ++counts[choice.get<std::string>()];
  }
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : most->first;
}

/// The operation with the largest share of a step.
std::string largest_op(const Json& breakdown) {
  if (!breakdown.is_object() || !breakdown.contains("ops") || !breakdown["ops"].is_array() ||
      breakdown["ops"].empty())
    return "";
  const Json& op = breakdown["ops"][0];
  if (!op.is_array() || op.size() < 2 || !op[0].is_string() || !op[1].is_number()) return "";
  return op[0].get<std::string>() + " (" + percent(op[1].get<double>()) + ")";
}

}  // namespace

std::vector<std::string> reasons(const Evidence& evidence, const Candidate& best, const Candidate& other) {
  std::vector<std::string> found;
  const std::string a = best.system, b = other.system;
  // A sentence where both have the metric and the larger exceeds the smaller by a tenth: "a step launches 73 kernels with
  // tandem:eager, 38 with tandem:graph".
  const auto both = [&](const std::string& metric, const std::string& before, const std::string& what,
                        bool share, const std::string& after = "") {
    const auto x = middle(evidence, best, metric), y = middle(evidence, other, metric);
    if (!x || !y || std::abs(*x - *y) <= 0.1 * std::max(std::abs(*x), std::abs(*y))) return;
    const auto text = [&](double value) { return share ? percent(value) : shown(value); };
    found.push_back(str(before, " ", text(*x), what, " with ", a, ", ", text(*y), " with ", b, after));
  };
  if (a == b && best.condition.batch != other.condition.batch) {
    found.push_back(str("the batch is ", other.condition.batch, " instead of ", best.condition.batch,
                        ": what a step costs once is shared by ",
                        other.condition.batch < best.condition.batch ? "fewer" : "more", " samples"));
  }
  if (best.condition.precision != other.condition.precision) {
    found.push_back(
        str("the precision is ", other.condition.precision, " instead of ", best.condition.precision));
  }
  both("breakdown.kernel_share", "kernels take", " of a step", true,
       ": the rest is launching, waiting and copying");
  both("breakdown.launches", "a step launches", " kernels", false);
  both("breakdown.copy_share", "copies take", " of a step", true);
  both("breakdown.nodes_after", "the graph has", " nodes after its passes", false);
  const Json mine = breakdown_of(evidence, best), theirs = breakdown_of(evidence, other);
  const std::string my_choice = usual_algorithm(mine), their_choice = usual_algorithm(theirs);
  if (!my_choice.empty() && !their_choice.empty() && my_choice != their_choice) {
    found.push_back(
        str("convolutions run mostly as ", my_choice, " with ", a, ", as ", their_choice, " with ", b));
  }
  const std::string my_op = largest_op(mine), their_op = largest_op(theirs);
  if (!my_op.empty() && !their_op.empty()) {
    found.push_back(str("the largest operation is ", my_op, " with ", a, ", ", their_op, " with ", b));
  }
  both("cpu.tree_percent", "the processor is busy", " % (100 = one core)", false);
  both("rss.peak_mib", "peak memory is", " MiB", false);
  both("gpu.memory_peak_mib", "peak memory of the GPU is", " MiB", false);
  return found;
}

}  // namespace tandem::lab
