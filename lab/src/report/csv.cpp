#include "lab/src/report/csv.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <vector>

#include "lab/src/analysis/statistics.h"

namespace tandem::lab {
namespace {

/// A field as RFC 4180 writes it. A text that a spreadsheet would take for a formula gets an apostrophe in front.
std::string field(const std::string& text) {
  std::string safe =
      !text.empty() && std::string("=+-@\t\r\n").find(text[0]) != std::string::npos ? "'" + text : text;
  if (safe.find_first_of(",\"\r\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// All digits; empty where there is no number.
std::string field(double value) {
  if (!std::isfinite(value)) return "";
  char text[40];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

std::string row(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) line += (i ? "," : "") + fields[i];
  return line + "\r\n";
}

const std::vector<std::string> kConditionHeader = {"workload", "phase", "track",     "device",   "precision",
                                                   "batch",    "input", "optimizer", "switches", "data"};

std::vector<std::string> condition_fields(const Condition& c, const std::string& data) {
  std::string input, switches;
  for (const int64_t size : c.input) input += (input.empty() ? "" : "x") + std::to_string(size);
  for (const auto& [name, value] : c.switches) switches += (switches.empty() ? "" : ";") + name + "=" + value;
  return {field(c.workload),       field(c.phase), field(c.track),     field(c.device), field(c.precision),
          std::to_string(c.batch), field(input),   field(c.optimizer), field(switches), field(data)};
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

std::string runs_csv(const Results& results) {
  std::set<std::string> names;
  for (const Run& run : results.runs)
    for (const auto& [name, value] : run.metrics) names.insert(name);
  std::vector<std::string> head = joined({"part", "system", "control"}, kConditionHeader);
  head = joined(head, {"block", "order", "seed", "started", "status", "why"});
  const bool any_disturbed = std::any_of(results.runs.begin(), results.runs.end(),
                                         [](const Run& run) { return !run.disturbed.empty(); });
  if (any_disturbed) head.emplace_back("disturbed");
  for (const std::string& name : names) head.push_back(field(name));
  std::string text = row(head);
  for (const Run& run : results.runs) {
    std::vector<std::string> fields = joined({field(run.part), field(run.system), field(run.control)},
                                             condition_fields(run.condition, run.data));
    fields = joined(fields, {std::to_string(run.block), std::to_string(run.order), std::to_string(run.seed),
                             field(run.started), field(to_string(run.status)), field(run.why)});
    if (any_disturbed) fields.push_back(field(run.disturbed));
    for (const std::string& name : names) {
      const auto found = run.metrics.find(name);
      fields.push_back(found == run.metrics.end() ? "" : field(found->second));
    }
    text += row(fields);
  }
  return text;
}

std::string summaries_csv(const Analysis& analysis) {
  std::vector<std::string> header = {"system", "metric", "runs", "median", "low", "high"};
  for (const Statistic& statistic : statistics()) header.push_back(statistic.name);
  std::string text = row(joined(kConditionHeader, header));
  for (const Summary& s : analysis.summaries) {
    const auto [least, most] = std::minmax_element(s.values.begin(), s.values.end());
    const bool varied = *least < *most;  // else there is no interval
    std::vector<std::string> fields = {field(s.system),
                                       field(s.metric),
                                       std::to_string(s.values.size()),
                                       field(s.median.value),
                                       varied ? field(s.median.low) : "",
                                       varied ? field(s.median.high) : ""};
    for (const Statistic& statistic : statistics()) {
      const auto found = s.statistics.find(statistic.name);
      fields.push_back(found == s.statistics.end() ? "" : field(found->second));
    }
    text += row(joined(condition_fields(s.condition, analysis.data_text(s.condition)), fields));
  }
  return text;
}

std::string comparisons_csv(const Analysis& analysis) {
  std::string text =
      row(joined(kConditionHeader,
                 {"metric", "first", "second", "runs", "paired", "ratio", "ratio_low", "ratio_high", "shift",
                  "shift_low", "shift_high", "cliffs_delta", "test", "p", "p_holm", "at_floor", "verdict"}));
  const auto add = [&](const Comparison& c, const std::string& data) {
    const auto end = [&](double value) { return c.runs == 1 || c.constant ? "" : field(value); };
    text += row(joined(
        condition_fields(c.condition, data),
        {field(c.metric), field(c.first), field(c.second), std::to_string(c.runs), c.paired ? "1" : "0",
         field(c.ratio.value), end(c.ratio.low), end(c.ratio.high), field(c.shift.value), end(c.shift.low),
         end(c.shift.high), field(c.cliffs_delta), field(c.test), field(c.p), field(c.p_holm),
         c.at_floor ? "1" : "0", field(to_string(c.verdict))}));
  };
  for (const Comparison& c : analysis.comparisons) add(c, analysis.data_text(c.condition));
  for (const Effect& effect : analysis.effects) add(effect.comparison, analysis.data_text(effect));
  return text;
}

}  // namespace tandem::lab
