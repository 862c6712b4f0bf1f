// The reports of a study's folder: report.html (one file that needs no network), report.md, CSV tables, and the lines
// that a terminal shows at the end of a run.
#pragma once

#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"
#include "lab/src/claims/judge.h"

namespace tandem::lab {

/// Reads a study's folder, decides, and writes report.html, report.md, runs.csv, summaries.csv and comparisons.csv into
/// it, each whole or not at all. Returns the files' paths, report.html first. Throws Error for a folder without a study.
std::vector<std::string> write_report(const std::string& folder);

std::string html_report(const Results& results, const Analysis& analysis,
                        const std::vector<Judgement>& judgements);
std::string markdown_report(const Results& results, const Analysis& analysis,
                            const std::vector<Judgement>& judgements);
/// What a reader must know first, one line each: other work that disturbed runs, a loaded machine, made-up samples.
std::vector<std::string> report_warnings(const Results& results, const Analysis& analysis);
/// Warnings, then a table and the answers per part, aligned. `width`: columns of the terminal; 0: lines may have any length.
std::string terminal_report(const Results& results, const Analysis& analysis, size_t width = 0);

}  // namespace tandem::lab
