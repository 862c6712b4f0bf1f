#include "lab/report/answers.h"

#include <algorithm>
#include <set>

#include "lab/report/scale.h"

namespace tandem::lab {
namespace {

constexpr size_t kManyConditions = 4;  // more than so many are counted, not listed

std::vector<std::string> metrics_of(const Json& part) {
  std::vector<std::string> names;
  if (!part.is_object() || !part.contains("figures") || !part["figures"].is_array()) return names;
  for (const Json& figure : part["figures"])
    if (figure.is_object() && figure.contains("metrics") && figure["metrics"].is_array())
      for (const Json& name : figure["metrics"])
        if (name.is_string() && std::find(names.begin(), names.end(), name.get<std::string>()) == names.end())
          names.push_back(name);
  return names;
}

/// The systems' summaries in one metric under one condition, the best first.
std::vector<const Summary*> ranking(const ReportData& data, const Condition& condition, const Metric& m) {
  std::vector<const Summary*> list;
  for (const Summary& s : data.analysis.summaries)
    if (s.metric == m.name && s.condition == condition) list.push_back(&s);
  std::stable_sort(list.begin(), list.end(), [&](const Summary* a, const Summary* b) {
    return m.better == Metric::Better::more ? a->median.value > b->median.value
                                            : a->median.value < b->median.value;
  });
  return list;
}

std::string interval_text(const Estimate& e) { return number_text(e.low) + " to " + number_text(e.high); }

GridCell verdict_cell(const Comparison& c) {
  if (c.verdict == Verdict::equivalent) return {"equal", {}, ""};
  if (c.verdict == Verdict::undecided) return {c.can_decide ? "undecided" : "too few runs", {}, "unsure"};
  const std::string& named = c.verdict == Verdict::first ? c.first : c.second;
  // Where neither side is better the verdict names the lower one.
  if (metric(c.metric).better == Metric::Better::neither) return {"lower: " + named, {}, ""};
  return {named, {}, "good"};
}

}  // namespace

std::vector<Json> parts_of(const Results& results) {
  std::vector<Json> parts;
  if (results.study.is_object() && results.study.contains("parts") && results.study["parts"].is_array())
    for (const Json& part : results.study["parts"])
      if (part.is_object()) parts.push_back(part);
  return parts;
}

std::string main_metric(const ReportData& data, const Json& part) {
  const auto conditions = data.conditions(text_at(part, "name"));
  for (const std::string& name : metrics_of(part)) {
    if (metric(name).better == Metric::Better::neither) continue;
    for (const Condition& condition : conditions)
      if (!ranking(data, condition, metric(name)).empty()) return name;
  }
  return "";
}

std::vector<std::string> answers(const ReportData& data, const Json& part) {
  std::vector<std::string> sentences;
  const std::string name = main_metric(data, part);
  if (name.empty()) return sentences;
  const Metric m = metric(name);
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  std::map<std::string, size_t> wins;
  size_t undecided = 0, compared = 0;
  for (size_t i = 0; i < conditions.size(); ++i) {
    const auto list = ranking(data, conditions[i], m);
    if (list.size() < 2) continue;
    ++compared;
    const Comparison* next = data.analysis.comparison(conditions[i], name, list[0]->system, list[1]->system);
    const bool won = next && (next->verdict == Verdict::first || next->verdict == Verdict::second);
    if (won)
      ++wins[list[0]->system];
    else
      ++undecided;
    if (conditions.size() > kManyConditions) continue;
    for (size_t k = 1; k < list.size(); ++k)
      if (const Comparison* c =
              data.analysis.comparison(conditions[i], name, list[0]->system, list[k]->system))
        sentences.push_back((groups[i].empty() ? "" : groups[i] + ": ") + c->text);
  }
  if (conditions.size() > kManyConditions && compared > 0) {
    std::string text = "By " + m.label + ", over " + std::to_string(compared) + " conditions: ";
    for (const auto& [system, count] : wins)
      text += system + " is the best in " + std::to_string(count) + ", ";
    sentences.push_back(text + std::to_string(undecided) + " are undecided or equal between the best two.");
  }
  return sentences;
}

Grid comparison_grid(const ReportData& data, const Json& part) {
  Grid grid({"condition", "metric", "first", "second", "second / first", "95 % interval", "Cliff's delta",
             "p (Holm)", "runs", "better"},
            {4, 5, 6, 7, 8});
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  for (const std::string& name : metrics_of(part))
    for (size_t i = 0; i < conditions.size(); ++i)
      for (const Comparison& c : data.analysis.comparisons)
        if (c.metric == name && c.condition == conditions[i])
          grid.add({{groups[i].empty() ? "–" : groups[i]},
                    {metric(name).label},
                    {c.first},
                    {c.second},
                    {number_text(c.ratio.value) + "×", c.ratio.value},
                    {interval_text(c.ratio), c.ratio.low},
                    {number_text(c.cliffs_delta, 2), c.cliffs_delta},
                    {p_text(c.p_holm) + (c.at_floor ? ", the floor" : ""), c.p_holm},
                    {std::to_string(c.runs), static_cast<double>(c.runs)},
                    verdict_cell(c)});
  return grid;
}

Grid noise_grid(const ReportData& data) {
  Grid grid({"condition", "metric", "system against itself", "ratio", "95 % interval", "noise floor", "runs"},
            {3, 4, 5, 6});
  for (const NoiseFloor& n : data.analysis.noise)
    if (metric(n.metric).better != Metric::Better::neither)
      grid.add({{n.condition.text()},
                {metric(n.metric).label},
                {n.system},
                {number_text(n.ratio.value), n.ratio.value},
                {interval_text(n.ratio), n.ratio.low},
                {number_text(100 * n.floor, 2) + " %", n.floor},
                {std::to_string(n.runs), static_cast<double>(n.runs)}});
  return grid;
}

Grid gap_grid(const ReportData& data) {
  Grid grid({"condition", "system", "what happened", "why", "runs"}, {4});
  for (const Gap& gap : data.analysis.gaps)
    grid.add({{gap.condition.text()},
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
  const std::string name = main_metric(data, part);
  const Metric m = metric(name);
  Grid grid({"condition", "system", m.label, "95 % interval", "runs"}, {2, 3, 4});
  if (name.empty()) return grid;
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  for (size_t i = 0; i < conditions.size(); ++i)
    for (const Summary* s : ranking(data, conditions[i], m))
      grid.add({{groups[i].empty() ? conditions[i].text() : groups[i]},
                {s->system},
                {with_unit(s->median.value, m), s->median.value},
                {with_unit(s->median.low, m) + " to " + with_unit(s->median.high, m), s->median.low},
                {std::to_string(s->values.size()), static_cast<double>(s->values.size())}});
  return grid;
}

}  // namespace tandem::lab
