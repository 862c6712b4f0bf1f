// Tables for other programs: one row per run, summary or comparison, with every number in full.
#pragma once

#include <string>

#include "lab/src/analysis/analysis.h"

namespace tandem::lab {

std::string runs_csv(const Results& results);
std::string summaries_csv(const Analysis& analysis);
std::string comparisons_csv(const Analysis& analysis);

}  // namespace tandem::lab
