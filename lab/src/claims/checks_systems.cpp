// Claims about two or more systems under one condition. The comparisons are those of the analysis; where it has none for a
// metric that only the ledger knows, the same tests are applied to the runs.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "lab/src/claims/checks.h"
#include "lab/src/stats/effect.h"
#include "lab/src/stats/equivalence.h"
#include "lab/src/stats/rank_tests.h"
#include "lab/src/stats/sample.h"
#include "lab/src/stats/spread.h"

namespace tandem::lab {
namespace {

Estimate flipped(const Estimate& ratio) { return {1 / ratio.value, 1 / ratio.high, 1 / ratio.low}; }

/// What the analysis found, seen from `first`.
Compared from_analysis(const Evidence& evidence, const Comparison& found, const std::string& first) {
  Compared compared;
  compared.measured = true;
  compared.runs = found.runs;
  const bool turned = found.first != first;
  compared.ratio = turned ? flipped(found.ratio) : found.ratio;
  compared.text = found.text;
  if (found.verdict == Verdict::equivalent) {
    compared.side = Side::equal;
    return compared;
  }
  // The verdict speaks of better and worse; which of the two is smaller is what the shift says.
  bool decided = found.verdict == Verdict::first || found.verdict == Verdict::second;
  if (metric(found.metric).better == Metric::Better::neither) {
    const double floor = evidence.noise(found);
    decided = found.can_decide && (found.constant || found.p_holm < kLevel) &&
              std::abs(std::log(std::abs(found.ratio.value))) > std::log1p(floor);
  }
  const bool excludes_zero = found.shift.low > 0 || found.shift.high < 0 || found.shift.value != 0;
  if (!decided || !excludes_zero) return compared;
  const bool first_less = (found.shift.value > 0) != turned;
  compared.side = first_less ? Side::first_less : Side::second_less;
  return compared;
}

/// The same tests for a metric that the analysis does not know.
Compared from_runs(const Sample& first, const Sample& second) {
  Compared compared;
  const auto [a, b] = paired(first, second);
  if (a.empty()) return compared;
  compared.measured = true;
  compared.runs = a.size();
  const stats::Interval ratio = stats::median_ratio_paired(a, b);
  compared.ratio = {ratio.value, ratio.low, ratio.high};
  if (a == b) {
    compared.side = Side::equal;  // counts that are the same in every run
    return compared;
  }
  const stats::TestResult test = stats::wilcoxon(a, b);
  if (test.p < kLevel) {
    compared.side = stats::hodges_lehmann_paired(a, b).value > 0 ? Side::first_less : Side::second_less;
  }
  return compared;
}

std::string better_text(const Compared& compared, const std::string& first, const std::string& second) {
  switch (compared.side) {
    case Side::first_less:
      return first + " has the smaller value";
    case Side::second_less:
      return second + " has the smaller value";
    case Side::equal:
      return "the two are equivalent";
    case Side::undecided:
      break;
  }
  return "the runs do not decide between the two";
}

using Places = std::vector<std::pair<Condition, std::string>>;

/// A finding for a condition in which one of the systems has no values, or in which they must not be compared.
Finding not_measured(const Evidence& evidence, const Condition& condition, const std::string& metric,
                     const std::vector<std::string>& systems) {
  Finding finding{condition.text(), Mark::not_measured, {}, ""};
  for (const std::string& system : systems) {
    if (!evidence.sample(condition, system, metric).empty()) continue;
    finding.reason = evidence.why_empty(condition, system, metric);
    return finding;
  }
  Places places;
  for (const std::string& system : systems) places.emplace_back(condition, system);
  finding.reason = evidence.other_epochs(metric, places);
  if (finding.reason.empty())
    finding.reason = "too few runs";
  else
    finding.mark = Mark::undecided;
  return finding;
}

}  // namespace

Compared compare(const Evidence& evidence, const Condition& condition, const std::string& metric,
                 const std::string& first, const std::string& second) {
  if (const Comparison* found = evidence.analysis().comparison(condition, metric, first, second)) {
    return from_analysis(evidence, *found, first);
  }
  Compared apart;
  apart.text = evidence.other_epochs(metric, {{condition, first}, {condition, second}});
  if (!apart.text.empty()) return apart;
  return from_runs(evidence.sample(condition, first, metric), evidence.sample(condition, second, metric));
}

Checked check_order(const Claim& claim, const Evidence& evidence) {
  const std::string& less = claim.systems[0];
  const std::string& more = claim.systems[1];
  Checked checked{claim.metrics[0] + ", " + more + " / " + less, {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    const Compared compared = compare(evidence, condition, claim.metrics[0], less, more);
    if (!compared.measured) {
      checked.findings.push_back(not_measured(evidence, condition, claim.metrics[0], claim.systems));
      continue;
    }
    const Mark mark = compared.side == Side::first_less  ? Mark::holds
                      : compared.side == Side::undecided ? Mark::undecided
                                                         : Mark::no_longer;
    checked.findings.push_back({condition.text(), mark, compared.ratio,
                                better_text(compared, less, more) + "; ratio " + shown(compared.ratio)});
  }
  return checked;
}

Checked check_ratio(const Claim& claim, const Evidence& evidence) {
  const std::string& of = claim.systems[0];
  const std::string& to = claim.systems[1];
  Checked checked{claim.metrics[0] + ", " + of + " / " + to, {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    const Compared compared = compare(evidence, condition, claim.metrics[0], to, of);
    if (!compared.measured) {
      checked.findings.push_back(not_measured(evidence, condition, claim.metrics[0], claim.systems));
      continue;
    }
    const bool decides = enough(compared.runs, claim.metrics[0]);
    checked.findings.push_back(
        {condition.text(), decides ? within_bounds(compared.ratio, claim.low, claim.high) : Mark::undecided,
         compared.ratio,
         "the ratio is " + shown(compared.ratio) + "; the claim needs it " +
             bounds_text(claim.low, claim.high)});
  }
  return checked;
}

Checked check_equal(const Claim& claim, const Evidence& evidence) {
  Checked checked{claim.metrics[0] + ", ratio of the two", {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    for (size_t i = 0; i < claim.systems.size(); ++i) {
      for (size_t j = i + 1; j < claim.systems.size(); ++j) {
        const std::string &a = claim.systems[i], &b = claim.systems[j];
        const Compared compared = compare(evidence, condition, claim.metrics[0], a, b);
        const std::string where = condition.text() + (claim.systems.size() > 2 ? ", " + b + " / " + a : "");
        if (!compared.measured) {
          Finding finding = not_measured(evidence, condition, claim.metrics[0], {a, b});
          finding.where = where;
          checked.findings.push_back(std::move(finding));
          continue;
        }
        Mark mark = compared.side == Side::equal       ? Mark::holds
                    : compared.side == Side::undecided ? Mark::undecided
                                                       : Mark::no_longer;
        std::string reason = better_text(compared, a, b) + "; ratio " + shown(compared.ratio);
        if (claim.within > 0) {
          mark = enough(compared.runs, claim.metrics[0])
                     ? within_bounds(compared.ratio, 1 / (1 + claim.within), 1 + claim.within)
                     : Mark::undecided;
          reason = "the ratio is " + shown(compared.ratio) + "; the claim allows " +
                   shown(100 * claim.within) + " %";
        }
        checked.findings.push_back({where, mark, compared.ratio, reason});
      }
    }
  }
  return checked;
}

Checked check_extreme(const Claim& claim, const Evidence& evidence) {
  const std::string& system = claim.systems[0];
  const bool highest = claim.direction == "highest";
  Checked checked{claim.metrics[0] + ", " + system + " against the nearest other (other / it)", {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    if (evidence.sample(condition, system, claim.metrics[0]).empty()) {
      checked.findings.push_back(not_measured(evidence, condition, claim.metrics[0], {system}));
      continue;
    }
    size_t confirmed = 0, open = 0;
    std::string beaten, absent;
    std::optional<Estimate> nearest;
    for (size_t i = 1; i < claim.systems.size(); ++i) {
      const Compared compared = compare(evidence, condition, claim.metrics[0], system, claim.systems[i]);
      if (!compared.measured && !compared.text.empty()) {
        ++open;
        continue;
      }
      if (!compared.measured) {
        absent += (absent.empty() ? "" : ", ") + claim.systems[i];
        continue;
      }
      if (!nearest ||
          (highest ? compared.ratio.value > nearest->value : compared.ratio.value < nearest->value)) {
        nearest = compared.ratio;
      }
      const Side wanted = highest ? Side::second_less : Side::first_less;
      if (compared.side == wanted)
        ++confirmed;
      else if (compared.side == Side::undecided)
        ++open;
      else
        beaten += (beaten.empty() ? "" : ", ") + claim.systems[i];
    }
    Finding finding{condition.text(), Mark::undecided, nearest, ""};
    if (!beaten.empty()) {
      finding.mark = Mark::no_longer;
      finding.reason = "not the " + claim.direction + ": as far or farther is " + beaten;
    } else if (confirmed == 0 && open == 0) {
      finding.mark = Mark::not_measured;
      finding.reason = "no other system was measured: " + absent;
    } else if (absent.empty() && open == 0) {
      finding.mark = Mark::holds;
      finding.reason = "the " + claim.direction + " of all";
    } else {
      finding.reason = open > 0 ? "the runs do not decide against all others"
                                : "the " + claim.direction + " of those measured; not measured: " + absent;
    }
    checked.findings.push_back(std::move(finding));
  }
  return checked;
}

Checked check_spread(const Claim& claim, const Evidence& evidence) {
  const std::string &less = claim.systems[0], &more = claim.systems[1];
  Checked checked{"deviation of " + claim.metrics[0] + ", " + more + " / " + less, {}};
  for (const Condition& condition : evidence.conditions(claim.where)) {
    const std::vector<double> a = values_of(evidence.sample(condition, less, claim.metrics[0]));
    const std::vector<double> b = values_of(evidence.sample(condition, more, claim.metrics[0]));
    if (a.empty() || b.empty() ||
        !evidence.other_epochs(claim.metrics[0], {{condition, less}, {condition, more}}).empty()) {
      checked.findings.push_back(not_measured(evidence, condition, claim.metrics[0], claim.systems));
      continue;
    }
    if (a.size() < kFewestRuns || b.size() < kFewestRuns) {
      checked.findings.push_back(
          {condition.text(), Mark::undecided, {}, "too few runs to tell how far they spread"});
      continue;
    }
    const double narrow = stats::deviation(a), wide = stats::deviation(b);
    Finding finding{condition.text(), Mark::undecided, {}, ""};
    if (narrow == 0 && wide == 0) {
      finding.mark = Mark::no_longer;
      finding.reason = "neither varies";
    } else {
      const stats::TestResult test = stats::levene(std::vector<std::vector<double>>{a, b});
      if (test.p < kLevel) finding.mark = wide > narrow ? Mark::holds : Mark::no_longer;
      finding.reason =
          "deviations " + shown(narrow) + " and " + shown(wide) + "; " + test.name + ", p = " + shown(test.p);
    }
    checked.findings.push_back(std::move(finding));
  }
  return checked;
}

Checked check_no_winner(const Claim& claim, const Evidence& evidence) {
  // A system could win everywhere as long as no other one beats it anywhere; the claim holds when none is left.
  const bool less_is_better = metric(claim.metrics[0]).better != Metric::Better::more;
  std::map<std::string, std::string> beaten;  // system -> where and by whom
  std::map<std::string, size_t> wins;         // conditions in which it beats or equals all others, decided
  size_t conditions = 0;
  std::vector<std::string> measured;
  for (const Condition& condition : evidence.conditions(claim.where)) {
    std::vector<std::string> here;
    for (const std::string& system : claim.systems) {
      if (!evidence.sample(condition, system, claim.metrics[0]).empty()) here.push_back(system);
    }
    if (here.size() < 2) continue;
    ++conditions;
    for (const std::string& system : here) {
      if (std::find(measured.begin(), measured.end(), system) == measured.end()) measured.push_back(system);
      bool ahead = true;
      for (const std::string& other : here) {
        if (other == system) continue;
        const Compared compared = compare(evidence, condition, claim.metrics[0], system, other);
        const Side loses = less_is_better ? Side::second_less : Side::first_less;
        if (compared.side == loses) beaten.emplace(system, "by " + other + " with " + condition.text());
        ahead = ahead && compared.side != loses && compared.side != Side::undecided;
      }
      if (ahead) ++wins[system];
    }
  }
  Checked checked{"", {}};
  if (conditions == 0) return checked;
  Finding finding{std::to_string(conditions) + " conditions", Mark::undecided, {}, ""};
  std::string text;
  for (const std::string& system : measured) {
    if (beaten.contains(system)) text += (text.empty() ? "" : "; ") + system + " is beaten " + beaten[system];
  }
  if (beaten.size() == measured.size()) {
    finding.mark = Mark::holds;
    finding.reason = text;
  } else {
    for (const std::string& system : measured) {
      if (wins[system] == conditions && conditions >= 2) {
        finding.mark = Mark::no_longer;
        finding.reason = system + " is nowhere beaten in " + std::to_string(conditions) + " conditions";
      }
    }
    if (finding.mark == Mark::undecided) {
      finding.reason =
          conditions < 2 ? "one condition alone was measured" : "the runs do not decide everywhere. " + text;
    }
  }
  checked.findings.push_back(std::move(finding));
  return checked;
}

}  // namespace tandem::lab
