// The table that stands first in every report, and the same as sentences for a terminal.
#pragma once

#include <string>
#include <vector>

#include "lab/src/report/answers.h"
#include "lab/src/report/grid.h"

namespace tandem::lab {

/// One row per answer; of many answers in one metric, one row per group that counts them.
Grid answer_grid(const ReportData& data, const std::vector<Json>& parts);
/// Whether answer_grid() counts answers of this part, so that each by itself must stand elsewhere.
bool counts_answers(const std::vector<Answer>& answers);
/// One row per answer of a part, whatever their number.
Grid each_answer_grid(const ReportData& data, const Json& part);
/// The same as sentences.
std::vector<std::string> answer_sentences(const ReportData& data, const Json& part);

}  // namespace tandem::lab
