// What a study answers: the sentences that stand first in every report, and the tables behind them.
#pragma once

#include <string>
#include <vector>

#include "lab/src/report/figures.h"
#include "lab/src/report/grid.h"

namespace tandem::lab {

/// The parts of study.json, in its order.
std::vector<Json> parts_of(const Results& results);
/// The metric that a part asks about: the first of its figures that has a better side and was measured; "" where none was.
std::string main_metric(const ReportData& data, const Json& part);

/// One sentence a finding, the systems of a condition from the best to the worst, then what each switch does to a system. Where
/// a part has many conditions: in how many of them each system, or setting, is the best, and how many are undecided.
std::vector<std::string> answers(const ReportData& data, const Json& part);

/// Every comparison of a part in the metrics of its figures.
Grid comparison_grid(const ReportData& data, const Json& part);
/// One sentence for each workload that made-up samples stood in for its data.
std::vector<std::string> data_warnings(const ReportData& data);
/// "Data: mnist." of a part; "" where no run of it saw any.
std::string data_sentence(const ReportData& data, const std::string& part);
Grid noise_grid(const ReportData& data);
Grid gap_grid(const ReportData& data);
/// Where the monitors' numbers come from, and the reason for those that this machine does not offer.
Grid source_grid(const Results& results);
/// What the study asks for and could not be planned here.
Grid missing_grid(const Results& results);
/// Medians of each part's main metrics, for a terminal and for Markdown.
Grid summary_grid(const ReportData& data, const Json& part);

}  // namespace tandem::lab
