// Advice in words, and as JSON.
#include <cmath>
#include <set>

#include "lab/src/claims/advise.h"
#include "lab/src/claims/checks.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr size_t kShownRows = 12;

std::string name_of(const Candidate& candidate) {
  return str(candidate.system, " at batch ", candidate.condition.batch, " in ",
             candidate.condition.precision);
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json estimate(const Estimate& value) {
  if (value.low == value.high)  // one run, or the same in all: no interval
    return {{"value", number(value.value)}, {"low", nullptr}, {"high", nullptr}};
  return {{"value", number(value.value)}, {"low", number(value.low)}, {"high", number(value.high)}};
}

Json to_json(const Candidate& candidate) {
  return {{"system", candidate.system},
          {"batch", candidate.condition.batch},
          {"precision", candidate.condition.precision},
          {"runs", candidate.runs},
          {"cost", estimate(candidate.cost)},
          {"ratio", estimate(candidate.ratio)},
          {"tie", candidate.tie},
          {"too_few_runs", candidate.few},
          {"why", candidate.why}};
}

std::string runs_text(size_t runs) { return runs == 1 ? "one run" : str(runs, " runs"); }

/// The candidates but the first that are so, in one line.
std::string named(const Advice& advice, bool Candidate::*is_so) {
  std::string names;
  for (size_t i = 1; i < advice.candidates.size(); ++i)
    if (advice.candidates[i].*is_so) names += (names.empty() ? "" : "; ") + name_of(advice.candidates[i]);
  return names;
}

}  // namespace

std::string advice_text(const Advice& advice) {
  std::string text;
  if (advice.candidates.empty()) {
    text = "No advice: " + advice.reason + ".\n";
  } else {
    const Candidate& best = advice.candidates.front();
    text = str(advice.phase == "train" ? "Training " : "Running ", advice.model, " on ", advice.device,
               ": take ", name_of(best), ". Its ", advice.cost_name, " is ", shown(best.cost.value), " ",
               advice.unit, " (");
    if (best.cost.low < best.cost.high)
      text += str("95 % interval ", shown(best.cost.low), " to ", shown(best.cost.high), "; ");
    text += runs_text(best.runs) + ").\n";
    if (best.few)
      text += str("This rests on ", runs_text(best.runs), ", too few to decide anything; from ", kFewestRuns,
                  " on (--runs ", kFewestRuns, ") a sweep can.\n");
    if (const std::string ties = named(advice, &Candidate::tie); !ties.empty()) {
      const std::string floor = std::isfinite(advice.noise)
                                    ? str("within the noise floor of ", shown(100 * advice.noise), " %")
                                    : std::string("the noise floor has no bound");
      text += str("Ties, which this sweep cannot tell from it (", floor, ", or undecided): ", ties, ".\n");
    }
    if (const std::string few = named(advice, &Candidate::few); !few.empty() && !best.few)
      text += str("Too few runs to decide between it and: ", few, ".\n");
    text += "\n";
    for (size_t i = 0; i < advice.candidates.size() && i < kShownRows; ++i) {
      const Candidate& row = advice.candidates[i];
      text += str("  ", i + 1, ". ", name_of(row), ": ", shown(row.cost.value), " ", advice.unit);
      if (i > 0) {
        const bool once = best.runs == 1 || row.runs == 1;
        text += str(", ", shown(row.ratio.value), " times the best (",
                    once ? "one run" : str(shown(row.ratio.low), " to ", shown(row.ratio.high)), ")",
                    row.tie   ? ", a tie"
                    : row.few ? ", too few runs to decide"
                              : "");
      }
      text += "\n";
    }
    if (advice.candidates.size() > kShownRows)
      text += str("  … and ", advice.candidates.size() - kShownRows, " more\n");
    // One reason for each other system: its best candidate against the winner.
    std::set<std::string> told = {best.system};
    std::string why;
    for (const Candidate& row : advice.candidates) {
      if (!told.insert(row.system).second || row.why.empty()) continue;
      why += str("  against ", name_of(row), ":\n");
      for (const std::string& sentence : row.why) why += "    - " + sentence + "\n";
    }
    if (!why.empty()) text += "\nWhy:\n" + why;
  }
  if (!advice.gaps.empty()) {
    text += "\nNot measured:\n";
    for (size_t i = 0; i < advice.gaps.size() && i < kShownRows; ++i) text += "  " + advice.gaps[i] + "\n";
    if (advice.gaps.size() > kShownRows) text += str("  … and ", advice.gaps.size() - kShownRows, " more\n");
  }
  return text;
}

Json to_json(const Advice& advice) {
  Json candidates = Json::array();
  for (const Candidate& candidate : advice.candidates) candidates.push_back(to_json(candidate));
  return {{"model", advice.model},          {"device", advice.device},  {"phase", advice.phase},
          {"goal", to_string(advice.goal)}, {"cost", advice.cost_name}, {"unit", advice.unit},
          {"noise", advice.noise},          {"candidates", candidates}, {"not_measured", advice.gaps},
          {"reason", advice.reason}};
}

}  // namespace tandem::lab
