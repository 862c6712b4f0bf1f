#include "lab/src/report/tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lab/src/analysis/statistics.h"
#include "lab/src/report/answers.h"
#include "lab/src/report/scale.h"
#include "lab/src/study/table.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

bool all_same(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
}

GridCell verdict_cell(const Comparison& c) {
  if (c.verdict == Verdict::equivalent) return {"equal", {}, ""};
  if (c.verdict == Verdict::undecided && c.disturbed > 0) return {"disturbed", {}, "unsure"};
  if (c.verdict == Verdict::undecided) return {c.can_decide ? "undecided" : "too few runs", {}, "unsure"};
  const std::string& named = c.verdict == Verdict::first ? c.first : c.second;
  // Where neither side is better the verdict names the lower one.
  if (metric(c.metric).better == Metric::Better::neither) return {"lower: " + named, {}, ""};
  return {named, {}, "good"};
}

}  // namespace

std::string interval_text(const Estimate& e, size_t runs, bool constant,
                          const std::function<std::string(double)>& shown) {
  if (runs == 1) return "one run";
  return constant ? "–" : shown(e.low) + " to " + shown(e.high);
}

GridCell interval_cell(const Comparison& c) {
  return {interval_text(c.ratio, c.runs, c.constant), c.ratio.low};
}

GridCell p_cell(const Comparison& c) {
  if (c.constant) return {"–"};
  return {p_text(c.p_holm) + (c.at_floor ? ", the floor" : ""), c.p_holm};
}

Grid comparison_grid(const ReportData& data, const Json& part) {
  Grid grid({"condition", "data", "metric", "first", "second", "second / first", "95 % interval",
             "Cliff's delta", "p (Holm)", "runs", "better"},
            {5, 6, 7, 8, 9});
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  const auto add = [&](const std::string& group, const std::string& samples, const Comparison& c) {
    grid.add({{group.empty() ? "–" : group},
              {samples},
              {metric(c.metric).label},
              {c.first},
              {c.second},
              {number_text(c.ratio.value) + "×", c.ratio.value},
              interval_cell(c),
              {number_text(c.cliffs_delta, 2), c.cliffs_delta},
              p_cell(c),
              {std::to_string(c.runs), static_cast<double>(c.runs)},
              verdict_cell(c)});
  };
  for (const std::string& name : metrics_of(part)) {
    for (size_t i = 0; i < conditions.size(); ++i)
      for (const Comparison& c : data.analysis.comparisons)
        if (c.metric == name && c.condition == conditions[i])
          add(groups[i], data.analysis.data_text(c.condition), c);
    for (const Effect* effect : effects_of(data, part, name))
      add(effect->comparison.condition.text(), data.analysis.data_text(*effect), effect->comparison);
  }
  return grid;
}

std::vector<std::string> data_warnings(const ReportData& data) {
  std::map<std::string, std::set<std::string>> made_up;  // by workload
  for (const auto& [condition, names] : data.analysis.data)
    for (const std::string& name : names)
      if (!is_real_data(name)) made_up[condition.workload].insert(name);
  // One sentence for all that had the same samples.
  std::map<std::set<std::string>, std::vector<std::string>> workloads;
  for (const auto& [workload, names] : made_up) workloads[names].push_back(workload);
  std::vector<std::string> sentences;
  for (const auto& [names, measured] : workloads) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
    const bool one = measured.size() == 1;
    sentences.push_back(str(listed(measured), one ? " was" : " were", " measured on ", text,
                            ", made-up samples: ", one ? "its" : "their", " times stand, and ",
                            one ? "its" : "their", " accuracies say nothing about real data."));
  }
  return sentences;
}

std::string data_sentence(const ReportData& data, const std::string& part) {
  std::set<std::string> names;
  for (const Run& run : data.results.runs)
    if (run.part == part && !run.data.empty()) names.insert(run.data);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "Data: " : ", ") + name;
  return text.empty() ? "" : text + ".";
}

std::vector<std::string> epoch_sentences(const ReportData& data, const Json& part) {
  struct Row {
    std::vector<std::string> labels;           // of metrics
    std::map<std::string, std::string> names;  // of systems: their epochs
    std::string where;
  };
  std::map<std::pair<Condition, bool>, Row> rows;
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  auto asked = metrics_of(part);
  for (const std::string& name : main_metrics(data, part)) asked.push_back(name);
  for (const std::string& name : asked)
    for (const Uncompared& each : data.analysis.uncompared) {
      const auto at = std::find_if(conditions.begin(), conditions.end(), [&](Condition condition) {
        if (each.of_switch) condition.switches.clear();
        return condition == each.condition;
      });
      if (each.metric != name || at == conditions.end()) continue;
      Row& row = rows[{each.condition, each.of_switch}];
      const std::string label = metric(name).label;
      if (std::find(row.labels.begin(), row.labels.end(), label) == row.labels.end())
        row.labels.push_back(label);
      row.names[each.first] = each.first_epochs;
      row.names[each.second] = each.second_epochs;
      row.where = each.of_switch ? "" : groups[static_cast<size_t>(at - conditions.begin())];
    }
  std::vector<std::string> sentences;
  for (const auto& [key, row] : rows) {
    std::map<std::string, std::vector<std::string>> by_epochs;
    for (const auto& [name, epochs] : row.names) by_epochs[epochs].push_back(name);
    std::string counts;
    for (const auto& [epochs, names] : by_epochs)
      counts += (counts.empty() ? "" : ", ") + listed(names) + " trained " + epochs_with_word(epochs);
    sentences.push_back(str(
        row.where.empty() ? "" : row.where + ": ", counts, " (a fit stops at its cap): ", listed(row.labels),
        row.labels.size() == 1 ? " is" : " are", " compared only between those that trained equally many."));
  }
  return sentences;
}

Grid noise_grid(const ReportData& data) {
  Grid grid({"condition", "data", "metric", "system against itself", "ratio", "95 % interval", "noise floor",
             "runs"},
            {4, 5, 6, 7});
  for (const NoiseFloor& n : data.analysis.noise)
    if (metric(n.metric).better != Metric::Better::neither)
      grid.add({{n.condition.text()},
                {data.analysis.data_text(n.condition)},
                {metric(n.metric).label},
                {n.system},
                {number_text(n.ratio.value), n.ratio.value},
                {interval_text(n.ratio, n.runs, n.ratio.low == n.ratio.high), n.ratio.low},
                {std::isfinite(n.floor) ? number_text(100 * n.floor, 2) + " %" : "no bound", n.floor},
                {std::to_string(n.runs), static_cast<double>(n.runs)}});
  return grid;
}

Grid gap_grid(const ReportData& data) {
  Grid grid({"condition", "data", "system", "what happened", "why", "runs"}, {5});
  for (const Gap& gap : data.analysis.gaps)
    grid.add({{gap.condition.text()},
              {data.analysis.data_text(gap.condition)},
              {gap.system},
              {to_string(gap.status), {}, "bad"},
              {gap.why},
              {std::to_string(gap.runs), static_cast<double>(gap.runs)}});
  return grid;
}

Grid source_grid(const Results& results) {
  std::map<std::string, std::pair<std::string, bool>>
      sources;  // by metric: the text, and whether it is a source
  for (const Run& run : results.runs) {
    for (const auto& [name, source] : run.sources) sources[name] = {source, true};
    for (const auto& [name, why] : run.unavailable) sources.try_emplace(name, why, false);
  }
  Grid grid({"number", "read from"});
  for (const auto& [name, row] : sources)
    grid.add({{metric(name).label},
              {row.second ? row.first : "unavailable: " + row.first, {}, row.second ? "" : "absent"}});
  return grid;
}

Grid missing_grid(const Results& results) {
  Grid grid({"part", "what", "why it is not here"});
  if (results.study.is_object() && results.study.contains("missing") && results.study["missing"].is_array())
    for (const Json& row : results.study["missing"])
      grid.add({{text_at(row, "part")}, {text_at(row, "what")}, {text_at(row, "why")}});
  return grid;
}

Grid summary_grid(const ReportData& data, const Json& part) {
  std::vector<std::string> header = {"condition", "data", "metric", "system", "median", "95 % interval"};
  std::vector<size_t> numbers = {4, 5};
  const auto add_column = [&](const std::string& name) {
    numbers.push_back(header.size());
    header.push_back(name);
  };
  for (const Statistic& statistic : statistics())
    if (!statistic.label.empty()) add_column(statistic.label);
  const bool show_epochs = epochs_differ(data, text_at(part, "name"));
  if (show_epochs) add_column("epochs");
  add_column("runs");
  Grid grid(header, numbers);
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  for (const std::string& name : main_metrics(data, part)) {
    const Metric m = metric(name);
    for (size_t i = 0; i < conditions.size(); ++i)
      for (const Summary* s : ranking(data, conditions[i], m)) {
        std::vector<GridCell> row = {{groups[i].empty() ? conditions[i].text() : groups[i]},
                                     {data.analysis.data_text(conditions[i])},
                                     {m.label},
                                     {s->system},
                                     {with_unit(s->median.value, m), s->median.value},
                                     {interval_text(s->median, s->values.size(), all_same(s->values),
                                                    [&](double value) { return with_unit(value, m); }),
                                      s->median.low}};
        for (const Statistic& statistic : statistics()) {
          if (statistic.label.empty()) continue;
          const auto found = s->statistics.find(statistic.name);
          if (found == s->statistics.end())
            row.push_back({"–"});
          else
            row.push_back({statistic.is_share ? percent_text(found->second) : with_unit(found->second, m),
                           found->second});
        }
        if (show_epochs) row.push_back({data.analysis.epochs_text(s->condition, s->system)});
        row.push_back({std::to_string(s->values.size()), static_cast<double>(s->values.size())});
        grid.add(row);
      }
  }
  return grid;
}

}  // namespace tandem::lab
