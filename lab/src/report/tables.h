// The tables behind a report's answers: every comparison, the noise floor, what is missing, and where numbers come from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/src/report/figures.h"
#include "lab/src/report/grid.h"
#include "lab/src/report/scale.h"

namespace tandem::lab {

/// "1.02 to 1.04". What was measured once says "one run", and what every run had the same has none: "–".
std::string interval_text(
    const Estimate& estimate, size_t runs, bool constant,
    const std::function<std::string(double)>& shown = [](double value) { return number_text(value); });
/// The columns that tables of comparisons share.
GridCell interval_cell(const Comparison& comparison);
GridCell p_cell(const Comparison& comparison);

/// Every comparison of a part in the metrics of its figures.
Grid comparison_grid(const ReportData& data, const Json& part);
/// One sentence for each workload that made-up samples stood in for its data.
std::vector<std::string> data_warnings(const ReportData& data);
/// "Data: mnist." of a part; "" where no run of it saw any.
std::string data_sentence(const ReportData& data, const std::string& part);
/// One sentence for each condition of a part under which systems trained different numbers of epochs: which numbers, and what is
/// not compared.
std::vector<std::string> epoch_sentences(const ReportData& data, const Json& part);
Grid noise_grid(const ReportData& data);
Grid gap_grid(const ReportData& data);
/// Where the monitors' numbers come from, and the reason for those that this machine does not offer.
Grid source_grid(const Results& results);
/// What the study asks for and could not be planned here.
Grid missing_grid(const Results& results);
/// Medians of each part's main metrics, for a terminal and for Markdown.
Grid summary_grid(const ReportData& data, const Json& part);

}  // namespace tandem::lab
