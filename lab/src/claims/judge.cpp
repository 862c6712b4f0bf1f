// From findings to a judgement of each claim.
#include "lab/src/claims/judge.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "lab/src/claims/checks.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

Checked check(const Claim& claim, const Evidence& evidence) {
  switch (claim.kind) {
    case CheckKind::order:
      return check_order(claim, evidence);
    case CheckKind::ratio:
      return check_ratio(claim, evidence);
    case CheckKind::equal:
      return check_equal(claim, evidence);
    case CheckKind::level:
      return check_level(claim, evidence);
    case CheckKind::extreme:
      return check_extreme(claim, evidence);
    case CheckKind::across:
      return check_across(claim, evidence);
    case CheckKind::trend:
      return check_trend(claim, evidence);
    case CheckKind::not_normal:
      return check_not_normal(claim, evidence);
    case CheckKind::correlation:
      return check_correlation(claim, evidence);
    case CheckKind::spread:
      return check_spread(claim, evidence);
    case CheckKind::within_run:
      return check_within_run(claim, evidence);
    case CheckKind::no_winner:
      return check_no_winner(claim, evidence);
  }
  throw InternalError("a claim's kind has no check");
}

/// What all findings come to. A claim about each condition falls with the first that contradicts it; one about most
/// conditions needs more than half of them on one side.
Mark together(const std::vector<Finding>& findings, bool most) {
  size_t measured = 0, holds = 0, fails = 0;
  for (const Finding& finding : findings) {
    if (finding.mark == Mark::not_measured) continue;
    ++measured;
    holds += finding.mark == Mark::holds;
    fails += finding.mark == Mark::no_longer;
  }
  if (measured == 0) return Mark::not_measured;
  if (most) {
    if (2 * holds > measured) return Mark::holds;
    if (2 * fails > measured) return Mark::no_longer;
    return Mark::undecided;
  }
  if (fails > 0) return Mark::no_longer;
  return holds == measured ? Mark::holds : Mark::undecided;
}

std::string reason_of(const Judgement& judgement) {
  const auto& findings = judgement.findings;
  if (findings.size() == 1) return findings[0].where + ": " + findings[0].reason + ".";
  size_t holds = 0, fails = 0, open = 0, absent = 0;
  const Finding* telling = nullptr;
  for (const Finding& finding : findings) {
    holds += finding.mark == Mark::holds;
    fails += finding.mark == Mark::no_longer;
    open += finding.mark == Mark::undecided;
    absent += finding.mark == Mark::not_measured;
    if (telling == nullptr && finding.mark == judgement.mark) telling = &finding;
  }
  std::string text = str("Of ", findings.size(), " findings ", holds, " agree, ", fails, " contradict, ",
                         open, " do not decide");
  if (absent > 0) text += str(", ", absent, " were not measured");
  return text + "." + (telling == nullptr ? "" : " " + telling->where + ": " + telling->reason + ".");
}

/// The published numbers in one line.
std::string published_text(const Claim& claim) {
  std::string text;
  for (const Published& number : claim.published) {
    text += text.empty() ? "" : "; ";
    text += number.what + (number.system.empty() ? "" : " of " + number.system) + ": " + shown(number.value);
    if (!number.unit.empty()) text += " " + number.unit;
  }
  return text;
}

/// Whether it is about what was learned, and not about time, memory or energy alone.
bool is_about_learning(const Claim& claim) {
  return std::any_of(claim.metrics.begin(), claim.metrics.end(),
                     [](const std::string& name) { return metric(name).learned; });
}

/// The conditions that a claim may be about, whatever their data.
std::vector<Condition> conditions_of(const Claim& claim, const Evidence& evidence) {
  Where where = claim.where;
  const bool across = claim.kind == CheckKind::across;
  if (across && claim.axis == "switches") where.any_switches = true;
  return evidence.conditions(where, across && claim.axis == "device");
}

/// One finding for each condition that real data did not decide: made-up samples decide nothing.
std::vector<Finding> made_up(const Claim& claim, const Evidence& evidence) {
  std::vector<Finding> findings;
  const Analysis& analysis = evidence.analysis();
  for (const Condition& condition : conditions_of(claim, evidence)) {
    if (analysis.on_real_data(condition)) continue;
    Finding finding{condition.text(), Mark::not_measured, {}, "no run ended well"};
    for (const Run* run : evidence.runs(condition, ""))
      if (run->status == Status::ok) finding.mark = Mark::undecided;
    if (finding.mark == Mark::undecided)
      finding.reason = analysis.data.contains(condition)
                           ? "measured on synthetic data (" + analysis.data_text(condition) + ")"
                           : "the records do not say on which data it was measured";
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::string data_of(const Claim& claim, const Evidence& evidence) {
  std::set<std::string> names;
  for (const Condition& condition : conditions_of(claim, evidence))
    names.insert(evidence.analysis().data_text(condition));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// `real`: the same evidence without conditions of made-up samples.
Judgement judge_one(const Claim& claim, const Evidence& all, const Evidence& real) {
  const bool about_learning = is_about_learning(claim);
  const Evidence& evidence = about_learning ? real : all;
  Judgement judgement;
  judgement.id = claim.id;
  judgement.paper = claim.paper;
  judgement.source = claim.source;
  judgement.text = claim.text;
  judgement.published = published_text(claim);
  Checked checked = check(claim, evidence);
  judgement.figure = checked.figure;
  judgement.findings = std::move(checked.findings);
  judgement.data = data_of(claim, all);
  judgement.mark = together(judgement.findings, claim.most);
  if (about_learning) {
    const std::vector<Finding> others = made_up(claim, all);
    if (judgement.mark == Mark::not_measured) judgement.mark = together(others, claim.most);
    judgement.findings.insert(judgement.findings.end(), others.begin(), others.end());
  }
  if (judgement.findings.empty()) {
    judgement.reason = claim.later.empty() ? "No run of this study fits the claim's condition."
                                           : "Not yet: " + claim.later + ".";
    return judgement;
  }
  judgement.reason = reason_of(judgement);
  for (const Finding& finding : judgement.findings) {
    if (finding.ours && finding.mark == judgement.mark) {
      judgement.estimate = finding.ours;
      judgement.ours = shown(*finding.ours) + (judgement.figure.empty() ? "" : ", " + judgement.figure);
      break;
    }
  }
  return judgement;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json estimate_json(const std::optional<Estimate>& estimate) {
  if (!estimate) return nullptr;
  if (estimate->low == estimate->high)  // one run, or the same in all: no interval
    return {{"value", number(estimate->value)}, {"low", nullptr}, {"high", nullptr}};
  return {
      {"value", number(estimate->value)}, {"low", number(estimate->low)}, {"high", number(estimate->high)}};
}

}  // namespace

std::string to_string(Mark mark) {
  switch (mark) {
    case Mark::holds:
      return "holds";
    case Mark::no_longer:
      return "no longer";
    case Mark::undecided:
      return "undecided";
    case Mark::not_measured:
      return "not measured";
  }
  return "?";
}

Mark within_bounds(const Estimate& ours, const std::optional<double>& low,
                   const std::optional<double>& high) {
  if (!std::isfinite(ours.low) || !std::isfinite(ours.high)) return Mark::undecided;
  if ((low && ours.high < *low) || (high && ours.low > *high)) return Mark::no_longer;
  if ((!low || ours.low >= *low) && (!high || ours.high <= *high)) return Mark::holds;
  return Mark::undecided;
}

bool enough(size_t runs, const std::string& metric) {
  const bool counted =
      metric.starts_with("removed.") || metric.starts_with("breakdown.") || metric == "code.lines";
  return runs >= (counted ? 1 : kFewestRuns);
}

std::string shown(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string shown(const Estimate& estimate) {
  if (estimate.low == estimate.high) return shown(estimate.value) + " (no interval)";
  return shown(estimate.value) + " (95 % interval " + shown(estimate.low) + " to " + shown(estimate.high) +
         ")";
}

std::string bounds_text(const std::optional<double>& low, const std::optional<double>& high) {
  if (low && high) return "between " + shown(*low) + " and " + shown(*high);
  return low ? "to be at least " + shown(*low) : "to be at most " + shown(*high);
}

std::vector<Judgement> judge(const Ledger& ledger, const Results& results, const Analysis& analysis) {
  const std::string paper = results.study.is_object() ? results.study.value("paper", "") : "";
  const Evidence all(results, analysis), real(results, analysis, true);
  std::vector<Judgement> judgements;
  for (const Claim& claim : ledger.claims) {
    if (!paper.empty() && claim.paper != paper) continue;
    Judgement judgement = judge_one(claim, all, real);
    if (paper.empty() && judgement.findings.empty()) continue;
    judgements.push_back(std::move(judgement));
  }
  return judgements;
}

Json to_json(const Judgement& judgement) {
  Json findings = Json::array();
  for (const Finding& finding : judgement.findings) {
    findings.push_back({{"where", finding.where},
                        {"mark", to_string(finding.mark)},
                        {"ours", estimate_json(finding.ours)},
                        {"reason", finding.reason}});
  }
  return {{"id", judgement.id},
          {"paper", judgement.paper},
          {"source", judgement.source},
          {"text", judgement.text},
          {"published", judgement.published},
          {"mark", to_string(judgement.mark)},
          {"ours", judgement.ours},
          {"estimate", estimate_json(judgement.estimate)},
          {"figure", judgement.figure},
          {"reason", judgement.reason},
          {"data", judgement.data},
          {"findings", findings}};
}

}  // namespace tandem::lab
