// What a study answers, metric by metric: who is the best, by how much, how sure that is and on which data. Nothing is
// computed here that the analysis has not.
#pragma once

#include <string>
#include <vector>

#include "lab/src/report/figures.h"

namespace tandem::lab {

/// The parts of study.json, in its order.
std::vector<Json> parts_of(const Results& results);
/// "not the same model" stands behind everything of such a part.
bool as_shipped(const Json& part);
/// The metrics of a part's figures, each once.
std::vector<std::string> metrics_of(const Json& part);
/// The metrics that a part asks about, of those that were measured: the time of a step; of phase fit the training time and the first
/// metric of the test. Where these were not measured: the first of its figures that has a better side.
std::vector<std::string> main_metrics(const ReportData& data, const Json& part);
/// The systems' summaries in one metric under one condition, the best first; where the metric depends on the epochs, those that
/// trained the most of them before the others.
std::vector<const Summary*> ranking(const ReportData& data, const Condition& condition, const Metric& metric);
/// What a switch does in this metric: between conditions of the part, and between one of them and the same without the switch,
/// wherever that was measured.
std::vector<const Effect*> effects_of(const ReportData& data, const Json& part, const std::string& metric);

struct Standing {
  std::string name;  // a system, or a system with its switches
  double median = 0;
};

/// Systems under one condition, or the settings of one switch of a system, in one metric.
struct Answer {
  Metric metric;
  std::string where;             // what tells it from others of its part: "batch 64", "conv of tandem:graph"
  std::string group;             // of many answers those with the same text are counted together
  std::vector<Standing> ranked;  // the best first
  const Comparison* second = nullptr;  // the best against the second
  const Comparison* last = nullptr;    // the best against the last, where that is not the second
  std::string data;
  std::string left_out;  // systems that are not ranked, since they trained fewer epochs; "" where all are
  std::string none;      // why there is no answer, where no comparison is asked; else ""
};

/// Never empty: a part without a measurement has one that says why.
std::vector<Answer> answers(const ReportData& data, const Json& part);

}  // namespace tandem::lab
