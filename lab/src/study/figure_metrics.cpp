// Which metrics a figure may name: those of lab/docs/metrics.md, and what the curves of a run and its epochs are called.
#include <algorithm>
#include <regex>

#include "lab/src/analysis/analysis.h"
#include "lab/src/study/schema.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"
#include "tandem/core/nearest.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

/// Names that a workload's thresholds and deviations of noise make.
bool is_made_of_a_number(const std::string& name) {
  static const std::regex form(
      R"(fit\.(time_to_\d+\.\d\d_s|energy_to_\d+\.\d\d_j|(accuracy|perplexity|mse|mae)_noise_\d+\.\d\d))");
  return std::regex_match(name, form);
}

bool is_curve_of_a_core(const std::string& name) {
  static const std::regex form(R"(cpu\.core\d+_percent)");
  return std::regex_match(name, form);
}

std::vector<std::string> names_for(const std::string& kind) {
  std::vector<std::string> names;
  for (const Metric& metric : metrics()) names.push_back(metric.name);
  if (kind == "timeline")
    names.insert(names.end(), {"rss", "pss", "cpu.power_w", "gpu.memory", "gpu.tree_memory"});
  if (kind == "convergence")
    for (const char* each : {"loss", "accuracy", "perplexity", "mse", "mae"})
      names.insert(names.end(), {each, str("test_", each)});
  return names;
}

/// "Of step there are step.latency_s, …": the names with the same beginning.
std::string those_like(const std::string& name, const std::vector<std::string>& names) {
  const std::string beginning = name.substr(0, name.find('.'));
  std::vector<std::string> alike;
  for (const std::string& each : names)
    if (each.starts_with(beginning + ".")) alike.push_back(each);
  return alike.empty() ? "That page lists them." : str("Of ", beginning, " there are ", listed(alike), ".");
}

}  // namespace

void check_metrics(const Table& owner, const std::string& kind, const std::vector<std::string>& wanted) {
  const std::vector<std::string> names = names_for(kind);
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) != names.end() || is_made_of_a_number(name) ||
        (kind == "timeline" && is_curve_of_a_core(name)))
      continue;
    const std::string near = did_you_mean(name, names);
    throw Error(str(owner.place(), ": metrics must be names of lab/docs/metrics.md; got '",
                    io::one_line(name, 80), "'.", near.empty() ? " " + those_like(name, names) : near));
  }
}

}  // namespace tandem::lab
