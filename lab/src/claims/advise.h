// Advice: which framework, engine, batch size and precision for one model on one device, how sure that is, and why, from a
// sweep that the lab measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"
#include "lab/src/study/study.h"

namespace tandem::lab {

enum class Goal { time, memory, energy };
std::string to_string(Goal goal);
/// "time", "memory" or "energy"; throws Error for anything else.
Goal parse_goal(const std::string& text);

/// One system at one batch size and precision.
struct Candidate {
  std::string system;
  Condition condition;
  size_t runs = 0;
  Estimate cost;     // in the unit of the advice
  Estimate ratio;    // its cost / that of the best one
  bool tie = false;  // with the best: the interval holds 1, or the ratio is within the noise floor
  bool few = false;  // it or the best one has too few runs to decide between them: no tie, and not beaten
  std::vector<std::string> why;  // what its breakdown says beside that of the best one
};

struct Advice {
  std::string model, device, phase;
  Goal goal = Goal::time;
  std::string cost_name, unit;        // "time a sample", "µs"
  double noise = 0;                   // the largest noise floor of the sweep, as a share; ties are within it
  std::vector<Candidate> candidates;  // the best one first
  std::vector<std::string> gaps;      // what could not be measured, with its reason
  std::string reason;                 // where there are no candidates: why
};

/// The sweep that advice needs: systems × batch sizes × precisions of one workload on one device ("" or "auto": the GPU
/// where there is one). `phase` is "train" or "infer". Throws Error for an unknown model, device or phase.
Plan make_advice_plan(const std::string& model, const std::string& device, Goal goal, bool quick,
                      const std::string& phase = "train");

/// Looks at the equal track alone. `phase` "": that of the first run.
Advice advise(const Results& results, const Analysis& analysis, Goal goal, const std::string& phase = "");

/// For people: the choice, its ties, the ranking and the reasons.
std::string advice_text(const Advice& advice);
Json to_json(const Advice& advice);

}  // namespace tandem::lab
