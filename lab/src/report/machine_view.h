// What the machine did beside the runs of a study, and the warnings that stand before everything else.
#pragma once

#include <string>
#include <vector>

#include "lab/src/report/figures.h"
#include "lab/src/report/grid.h"

namespace tandem::lab {

/// What a reader must know first: disturbed runs, then what the machine's description warns of, then made-up samples.
std::vector<std::string> warnings(const ReportData& data);
/// How far the machine was watched, in one sentence; of older records that it was not.
std::string machine_sentence(const ReportData& data);
/// A row for each system: the most and the median that others did beside its runs. Empty where nothing was recorded.
Grid machine_grid(const ReportData& data);

}  // namespace tandem::lab
