#include "lab/src/report/answers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "lab/src/report/scale.h"

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

/// What a switch does in this metric: between conditions of the part, and between one of them and the same without the
/// switch, wherever that was measured.
std::vector<const Effect*> effects_of(const ReportData& data, const Json& part, const std::string& name) {
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto has = [&](const Condition& c) {
    return std::find(conditions.begin(), conditions.end(), c) != conditions.end();
  };
  std::vector<const Effect*> list;
  for (const Effect& effect : data.analysis.effects)
    if (const size_t first = effect.first.switches.size(), second = effect.second.switches.size();
        effect.comparison.metric == name && (first < second || has(effect.first)) &&
        (second < first || has(effect.second)))
      list.push_back(&effect);
  return list;
}

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

namespace {

/// One sentence for each switch turned on each system; where there are many, how often each setting is the best.
std::vector<std::string> switch_answers(const ReportData& data, const Json& part) {
  std::vector<std::string> sentences;
  const std::string name = main_metric(data, part);
  // What was turned on one system under otherwise the same condition: a group.
  std::map<std::pair<std::string, Condition>, std::vector<const Effect*>> groups;
  std::vector<Condition> bases;
  for (const Effect* effect : effects_of(data, part, name)) {
    groups[{effect->system, effect->comparison.condition}].push_back(effect);
    if (std::find(bases.begin(), bases.end(), effect->comparison.condition) == bases.end())
      bases.push_back(effect->comparison.condition);
  }
  const auto texts = distinctions(bases);
  std::map<std::string, std::map<std::string, size_t>> wins;  // by system: with its switches
  std::map<std::string, size_t> open;
  for (const auto& [key, effects] : groups) {
    // The best is the one that no comparison finds worse, if one of them finds it better.
    std::set<std::string> better, worse;
    for (const Effect* effect : effects) {
      const Comparison& c = effect->comparison;
      if (c.verdict != Verdict::first && c.verdict != Verdict::second) continue;
      better.insert(c.verdict == Verdict::first ? c.first : c.second);
      worse.insert(c.verdict == Verdict::first ? c.second : c.first);
    }
    std::vector<std::string> best;
    std::set_difference(better.begin(), better.end(), worse.begin(), worse.end(), std::back_inserter(best));
    if (best.size() == 1)
      ++wins[key.first][best[0]];
    else
      ++open[key.first];
    if (groups.size() > kManyConditions) continue;
    const auto place = std::find(bases.begin(), bases.end(), key.second) - bases.begin();
    const std::string& text = texts[static_cast<size_t>(place)];
    for (const Effect* effect : effects)
      sentences.push_back((text.empty() ? "" : text + ": ") + effect->comparison.text);
  }
  if (groups.size() <= kManyConditions) return sentences;
  std::map<std::string, size_t> of_system;
  for (const auto& [key, effects] : groups) ++of_system[key.first];
  for (const auto& [system, count] : of_system) {
    std::string text =
        "By " + metric(name).label + ", over " + std::to_string(count) + " conditions of " + system + ": ";
    for (const auto& [setting, won] : wins[system])
      text += setting + " is the best setting in " + std::to_string(won) + ", ";
    sentences.push_back(text + std::to_string(open[system]) + " have no single best.");
  }
  return sentences;
}

}  // namespace

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
  const auto switched = switch_answers(data, part);
  sentences.insert(sentences.end(), switched.begin(), switched.end());
  return sentences;
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
              {interval_text(c.ratio), c.ratio.low},
              {number_text(c.cliffs_delta, 2), c.cliffs_delta},
              {p_text(c.p_holm) + (c.at_floor ? ", the floor" : ""), c.p_holm},
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
  std::vector<std::string> sentences;
  for (const auto& [workload, names] : made_up) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
    sentences.push_back(
        workload + " was measured on " + text +
        ", made-up samples: its times stand, and its accuracies say nothing about real data.");
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
                {interval_text(n.ratio), n.ratio.low},
                {number_text(100 * n.floor, 2) + " %", n.floor},
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
  const std::string name = main_metric(data, part);
  const Metric m = metric(name);
  Grid grid({"condition", "data", "system", m.label, "95 % interval", "runs"}, {3, 4, 5});
  if (name.empty()) return grid;
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  for (size_t i = 0; i < conditions.size(); ++i)
    for (const Summary* s : ranking(data, conditions[i], m))
      grid.add({{groups[i].empty() ? conditions[i].text() : groups[i]},
                {data.analysis.data_text(conditions[i])},
                {s->system},
                {with_unit(s->median.value, m), s->median.value},
                {with_unit(s->median.low, m) + " to " + with_unit(s->median.high, m), s->median.low},
                {std::to_string(s->values.size()), static_cast<double>(s->values.size())}});
  return grid;
}

}  // namespace tandem::lab
