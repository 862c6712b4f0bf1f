// The figures of a study's parts, made from its analysis: which runs go into which chart, and what stands under it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"

namespace tandem::lab {

/// What all sections of a report share.
struct ReportData {
  const Results& results;
  const Analysis& analysis;
  std::map<std::string, size_t> places;  // of each system: its colour

  ReportData(const Results& results, const Analysis& analysis);
  std::string colour(const std::string& system) const;
  /// The conditions that runs of a part have, in the order in which they were planned.
  std::vector<Condition> conditions(const std::string& part) const;
};

/// What tells the conditions of a list apart ("batch 64, f32"), one text each; "" where there is only one.
std::vector<std::string> distinctions(const std::vector<Condition>& conditions);

/// "1 epoch", "2 epochs", "1 to 2 epochs", of the text that the analysis has for them.
std::string epochs_with_word(const std::string& epochs);
/// Whether the systems of a part, or one system's conditions, trained different numbers of epochs: then tables have a column for them.
bool epochs_differ(const ReportData& data, const std::string& part);

/// One figure of a part (`figure`: its table in study.json) as HTML, or a sentence where there is nothing to draw.
std::string figure_html(const ReportData& data, const Json& part, const Json& figure);

/// Text at a key of a JSON object, or "".
std::string text_at(const Json& json, const char* key);

}  // namespace tandem::lab
