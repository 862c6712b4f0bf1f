#include "lab/src/claims/evidence.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tandem::lab {
namespace {

constexpr const char* kRemoved = "removed.";
constexpr const char* kShare = "_share";

/// Nodes that the passes of a breakdown removed, of one class or one pass; "" means all.
std::optional<double> removed_nodes(const Json& breakdown, const std::string& wanted_class,
                                    const std::string& wanted_pass) {
  const auto passes = breakdown.find("passes");
  if (passes == breakdown.end() || !passes->is_object() || passes->empty()) return std::nullopt;
  double removed = 0;
  for (const auto& [pass, classes] : passes->items()) {
    if (!classes.is_object() || (!wanted_pass.empty() && pass != wanted_pass)) continue;
    for (const auto& [name, count] : classes.items()) {
      if (count.is_number() && (wanted_class.empty() || name == wanted_class)) removed += count.get<double>();
    }
  }
  if (!wanted_pass.empty() && !passes->contains(wanted_pass)) return std::nullopt;
  return removed;
}

std::optional<double> number_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<double> removed_metric(const Run& run, const std::string& metric) {
  if (!run.breakdown.is_object()) return std::nullopt;
  const auto before = number_in(run.breakdown, "nodes_before"),
             after = number_in(run.breakdown, "nodes_after");
  if (metric == "removed.share") {
    if (!before || !after || *before <= 0) return std::nullopt;
    return 1 - *after / *before;
  }
  const size_t begin = std::string(kRemoved).size();
  const std::string which = metric.substr(begin, metric.size() - begin - std::string(kShare).size());
  const bool is_class = which == "no_op" || which == "cheap" || which == "expensive";
  const auto part = removed_nodes(run.breakdown, is_class ? which : "", is_class ? "" : which);
  const auto all = is_class ? removed_nodes(run.breakdown, "", "") : before;
  if (!part || !all || *all <= 0) return std::nullopt;
  return *part / *all;
}

bool fits(const Where& where, const Condition& condition) {
  const auto among = [](const auto& list, const auto& value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  if (!among(where.workload, condition.workload) || !among(where.batch, condition.batch)) return false;
  if (!among(where.precision, condition.precision) || !among(where.optimizer, condition.optimizer))
    return false;
  if (!where.phase.empty() && where.phase != condition.phase) return false;
  if (where.track != condition.track) return false;
  for (const auto& [key, value] : where.switches) {
    const auto found = condition.switches.find(key);
    if (found == condition.switches.end() || found->second != value) return false;
  }
  return where.any_switches || condition.switches.size() == where.switches.size();
}

}  // namespace

bool is_derived_metric(const std::string& name) {
  if (name == "first_epoch_excess_s" || name == "removed.share") return true;
  return name.starts_with(kRemoved) && name.ends_with(kShare) &&
         name.size() > std::string(kRemoved).size() + std::string(kShare).size();
}

std::optional<double> metric_of(const Run& run, const std::string& metric) {
  if (metric == "first_epoch_excess_s") {
    const auto first = run.metrics.find("fit.first_epoch_s"), later = run.metrics.find("fit.epoch_s");
    if (first == run.metrics.end() || later == run.metrics.end()) return std::nullopt;
    return first->second - later->second;
  }
  if (is_derived_metric(metric)) return removed_metric(run, metric);
  const auto found = run.metrics.find(metric);
  if (found == run.metrics.end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

std::vector<double> values_of(const Sample& sample) {
  std::vector<double> values;
  for (const auto& [block, value] : sample) values.push_back(value);
  return values;
}

std::pair<std::vector<double>, std::vector<double>> paired(const Sample& first, const Sample& second) {
  std::pair<std::vector<double>, std::vector<double>> pairs;
  for (const auto& [block, value] : first) {
    const auto other = second.find(block);
    if (other == second.end()) continue;
    pairs.first.push_back(value);
    pairs.second.push_back(other->second);
  }
  return pairs;
}

std::string device_kind(const std::string& device) { return device.substr(0, device.find(':')); }

Evidence::Evidence(const Results& results, const Analysis& analysis, bool only_real) : analysis_(analysis) {
  for (const Run& run : results.runs) {
    if (run.control.empty() && (!only_real || analysis.on_real_data(run.condition)))
      runs_[run.condition].push_back(&run);
  }
}

std::vector<Condition> Evidence::conditions(const Where& where, bool any_device) const {
  std::vector<Condition> all;
  for (const auto& [condition, runs] : runs_) {
    if (fits(where, condition)) all.push_back(condition);
  }
  if (any_device) return all;
  for (const std::string& kind : where.device) {
    std::vector<Condition> found;
    for (const Condition& condition : all) {
      if (device_kind(condition.device) == kind) found.push_back(condition);
    }
    if (!found.empty()) return found;
  }
  return {};
}

std::vector<const Run*> Evidence::runs(const Condition& condition, const std::string& system) const {
  const auto found = runs_.find(condition);
  if (found == runs_.end()) return {};
  if (system.empty()) return found->second;
  std::vector<const Run*> runs;
  for (const Run* run : found->second) {
    if (run->system == system) runs.push_back(run);
  }
  return runs;
}

Sample Evidence::sample(const Condition& condition, const std::string& system,
                        const std::string& metric) const {
  Sample sample;
  for (const Run* run : runs(condition, system)) {
    if (run->status != Status::ok || !run->disturbed.empty()) continue;  // a disturbed run decides nothing
    if (const auto value = metric_of(*run, metric)) sample[run->block] = *value;
  }
  return sample;
}

std::string Evidence::why_empty(const Condition& condition, const std::string& system,
                                const std::string& metric) const {
  bool ran = false;
  for (const Run* run : runs(condition, system)) {
    if (run->status != Status::ok) {
      return system + ": " + to_string(run->status) + (run->why.empty() ? "" : ", " + run->why);
    }
    if (!run->disturbed.empty()) return system + ": disturbed, " + run->disturbed;
    const auto reason = run->unavailable.find(metric);
    if (reason != run->unavailable.end()) return metric + " is unavailable: " + reason->second;
    ran = true;
  }
  return ran ? system + " gave no " + metric : "the study did not run " + system + " there";
}

std::string Evidence::other_epochs(const std::string& metric,
                                   const std::vector<std::pair<Condition, std::string>>& systems) const {
  if (!depends_on_epochs(metric)) return "";
  std::set<std::string> counts;
  std::string text;
  for (const auto& [condition, system] : systems) {
    const std::string epochs = analysis_.epochs_text(condition, system);
    if (epochs.empty() || !counts.insert(epochs).second) continue;
    text += (text.empty() ? "" : ", ") + system + " " + epochs;
  }
  return counts.size() < 2
             ? ""
             : "they trained different numbers of epochs, which " + metric + " depends on: " + text;
}

double Evidence::noise(const Condition& condition, const std::string& metric) const {
  const NoiseFloor* floor = analysis_.noise_floor(condition, metric);
  return floor == nullptr ? 0 : floor->floor;
}

double Evidence::noise(const Comparison& of) const {
  const NoiseFloor* floor = analysis_.noise_floor(of.condition, of.metric, of.first, of.second);
  return floor == nullptr ? 0 : floor->floor;
}

}  // namespace tandem::lab
