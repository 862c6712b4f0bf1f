// Claims about one system's runs: a level, a distribution, a correlation, two metrics of one run.
#include <algorithm>
#include <cmath>

#include "lab/src/claims/checks.h"
#include "lab/src/stats/correlation.h"
#include "lab/src/stats/distributions.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/normality.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// Runs from which on a test that does not reject counts against "is not normal": as many as paper 000 had.
constexpr size_t kRunsForNormality = 100;

struct Points {
  std::vector<double> x, y;
};

/// One point per epoch of each run: its number, and an accuracy, a loss or the training time until then.
void add_epochs(const Run& run, const std::string& x, const std::string& y, Points& points) {
  double elapsed = 0;
  for (const Epoch& epoch : run.epochs) {
    elapsed += epoch.train_s;
    const auto value = [&](const std::string& name) -> std::optional<double> {
      if (name == "epoch") return static_cast<double>(epoch.epoch);
      if (name == "elapsed_s") return elapsed;
      if (name == "loss") return epoch.loss;
      const bool is_test = name.starts_with("test_");
      const auto& values = is_test ? epoch.test_metrics : epoch.metrics;
      const auto at = values.find(is_test ? name.substr(5) : name);
      return at == values.end() ? std::nullopt : std::optional(at->second);
    };
    const auto across = value(x), up = value(y);
    if (!across || !up || !std::isfinite(*across) || !std::isfinite(*up)) continue;
    points.x.push_back(*across);
    points.y.push_back(*up);
  }
}

bool varies(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [&](double value) { return value != values.front(); });
}

/// Pearson's r with the interval of Fisher's transformation.
Estimate correlation_interval(const Points& points) {
  const double r = stats::pearson(points.x, points.y).statistic;
  const double clipped = std::clamp(r, -1 + 1e-12, 1 - 1e-12);
  const double z = std::atanh(clipped);
  const double half = stats::normal_quantile(0.975) / std::sqrt(static_cast<double>(points.x.size()) - 3);
  return {r, std::tanh(z - half), std::tanh(z + half)};
}

Finding judge_points(const Claim& claim, const Points& points, const std::string& where) {
  Finding finding{where, Mark::undecided, {}, ""};
  if (points.x.size() < 5 || !varies(points.x) || !varies(points.y)) {
    finding.mark = points.x.empty() ? Mark::not_measured : Mark::undecided;
    finding.reason = points.x.empty()
                         ? "no run has both " + claim.metrics[0] + " and " + claim.metrics[1]
                         : str("a correlation needs five points that vary; there are ", points.x.size());
    return finding;
  }
  finding.ours = correlation_interval(points);
  finding.mark = within_bounds(*finding.ours, claim.low, claim.high);
  finding.reason = str("r is ", shown(*finding.ours), " over ", points.x.size(),
                       " points; the claim needs it ", bounds_text(claim.low, claim.high));
  return finding;
}

}  // namespace

Checked check_level(const Claim& claim, const Evidence& evidence) {
  Checked checked{"median of " + claim.metrics[0], {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    for (const std::string& system : claim.systems) {
      const std::vector<double> values = values_of(evidence.sample(condition, system, claim.metrics[0]));
      Finding finding{system + ", " + condition.text(), Mark::not_measured, {}, ""};
      if (values.empty()) {
        finding.reason = evidence.why_empty(condition, system, claim.metrics[0]);
      } else {
        const Summary* summary = evidence.analysis().summary(condition, claim.metrics[0], system);
        if (summary != nullptr &&
            summary->values.size() == values.size()) {  // else it counts disturbed runs, too
          finding.ours = summary->median;
        } else {
          const stats::Interval median = stats::median_interval(values);
          finding.ours = Estimate{median.value, median.low, median.high};
        }
        finding.mark = enough(values.size(), claim.metrics[0])
                           ? within_bounds(*finding.ours, claim.low, claim.high)
                           : Mark::undecided;
        finding.reason =
            str(shown(*finding.ours), " over ", values.size(), values.size() == 1 ? " run" : " runs",
                "; the claim needs it ", bounds_text(claim.low, claim.high));
      }
      checked.findings.push_back(std::move(finding));
    }
  }
  return checked;
}

Checked check_not_normal(const Claim& claim, const Evidence& evidence) {
  const bool ks = claim.direction == "ks";
  Checked checked{"p of the test of normality", {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    for (const std::string& name : claim.metrics) {
      for (const std::string& system : claim.systems) {
        const std::vector<double> values = values_of(evidence.sample(condition, system, name));
        Finding finding{system + ", " + name + ", " + condition.text(), Mark::not_measured, {}, ""};
        if (values.empty()) {
          finding.reason = evidence.why_empty(condition, system, name);
        } else if (values.size() < 5 || !varies(values)) {
          finding.mark = Mark::undecided;
          finding.reason = str("the test needs five runs that vary; there are ", values.size());
        } else {
          const stats::TestResult test =
              ks ? stats::kolmogorov_smirnov_normal(values) : stats::lilliefors(values);
          finding.ours = Estimate{test.p, test.p, test.p};
          finding.mark = test.p < kLevel                      ? Mark::holds
                         : values.size() >= kRunsForNormality ? Mark::no_longer
                                                              : Mark::undecided;
          finding.reason = str(test.name, " over ", values.size(), " runs, p = ", shown(test.p));
          if (finding.mark == Mark::undecided)
            finding.reason += str("; the paper had ", kRunsForNormality, " runs");
        }
        checked.findings.push_back(std::move(finding));
      }
    }
  }
  return checked;
}

Checked check_correlation(const Claim& claim, const Evidence& evidence) {
  Checked checked{"Pearson's r of " + claim.metrics[0] + " and " + claim.metrics[1], {}};
  const std::vector<Condition> conditions = evidence.conditions(claim.where);
  const bool epochs = claim.metrics[0] == "epoch";
  const auto wanted = [&](const std::string& system) {
    return claim.systems.empty() ||
           std::find(claim.systems.begin(), claim.systems.end(), system) != claim.systems.end();
  };
  // Metrics of different workloads have different scales, so each condition is judged for itself.
  for (const Condition& condition : conditions) {
    Points points;
    std::map<std::string, Points> by_system;
    for (const Run* run : evidence.runs(condition, "")) {
      if (run->status != Status::ok || !wanted(run->system)) continue;
      if (epochs) {
        add_epochs(*run, claim.metrics[0], claim.metrics[1], points);
        continue;
      }
      const auto x = metric_of(*run, claim.metrics[0]), y = metric_of(*run, claim.metrics[1]);
      if (!x || !y) continue;
      by_system[run->system].x.push_back(*x);
      by_system[run->system].y.push_back(*y);
    }
    // Runs of one system are no points of their own: a system is one point, at its medians.
    for (const auto& [system, sample] : by_system) {
      points.x.push_back(stats::median(sample.x));
      points.y.push_back(stats::median(sample.y));
    }
    checked.findings.push_back(judge_points(claim, points, condition.text()));
  }
  return checked;
}

Checked check_within_run(const Claim& claim, const Evidence& evidence) {
  const std::string &less = claim.metrics[0], &more = claim.metrics[1];
  Checked checked{more + " less " + less, {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    for (const std::string& system : claim.systems) {
      const Sample low = evidence.sample(condition, system, less),
                   high = evidence.sample(condition, system, more);
      const auto [a, b] = paired(low, high);
      Finding finding{system + ", " + condition.text(), Mark::not_measured, {}, ""};
      if (a.empty()) {
        finding.reason = evidence.why_empty(condition, system, low.empty() ? less : more);
      } else if (a.size() < kFewestRuns) {
        finding.mark = Mark::undecided;
        finding.reason = str("only ", a.size(), " runs");
      } else if (a == b) {
        finding.mark = Mark::no_longer;
        finding.ours = Estimate{};
        finding.reason = "the two are the same in every run";
      } else {
        const stats::Interval shift = stats::hodges_lehmann_paired(a, b);
        const stats::TestResult test = stats::wilcoxon(a, b);
        finding.ours = Estimate{shift.value, shift.low, shift.high};
        if (test.p < kLevel)
          finding.mark = shift.value > 0 ? Mark::holds : Mark::no_longer;
        else
          finding.mark = Mark::undecided;
        finding.reason =
            str("the difference is ", shown(*finding.ours), "; ", test.name, ", p = ", shown(test.p));
      }
      checked.findings.push_back(std::move(finding));
    }
  }
  return checked;
}

}  // namespace tandem::lab
