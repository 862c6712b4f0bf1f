#include "lab/src/report/answers.h"

#include <algorithm>
#include <map>
#include <set>

namespace tandem::lab {
namespace {

bool is_measured(const ReportData& data, const std::vector<Condition>& conditions, const std::string& name) {
  return std::any_of(data.analysis.summaries.begin(), data.analysis.summaries.end(), [&](const Summary& s) {
    return s.metric == name &&
           std::find(conditions.begin(), conditions.end(), s.condition) != conditions.end();
  });
}

/// Puts the best first, and finds the comparisons with the second and the last.
template <class Find>
void rank(Answer& answer, Find find) {
  auto& list = answer.ranked;
  const bool more = answer.metric.better == Metric::Better::more;
  std::stable_sort(list.begin(), list.end(), [&](const Standing& a, const Standing& b) {
    return more ? a.median > b.median : a.median < b.median;
  });
  if (list.size() < 2) return;
  answer.second = find(list[0].name, list[1].name);
  // A verdict rests on pairs, the medians on all runs: where the two disagree the verdict counts.
  if (const Comparison* c = answer.second;
      c && ((c->verdict == Verdict::first && c->first == list[1].name) ||
            (c->verdict == Verdict::second && c->second == list[1].name)))
    std::swap(list[0], list[1]);
  if (list.size() > 2) answer.last = find(list[0].name, list.back().name);
}

/// "; runs of pytorch:eager are left out as disturbed": why there may be less than was asked for.
std::string left_out_text(const Analysis& analysis, const Condition& condition) {
  const auto here = analysis.left_out.find(condition);
  if (here == analysis.left_out.end()) return "";
  std::string names;
  for (const auto& [system, runs] : here->second) names += (names.empty() ? "" : ", ") + system;
  return "; runs of " + names + " are left out, which other work on the machine disturbed";
}

/// Why a comparison must not or cannot be asked; "" where it can.
std::string reason_for_none(const Answer& answer, bool real) {
  if (answer.metric.learned && !real) return "made-up samples say nothing about learning";
  if (answer.ranked.size() == 1 && !answer.left_out.empty()) return answer.left_out;
  if (answer.ranked.size() == 1) return answer.ranked[0].name + " alone was measured";
  return answer.second ? "" : "the best two were not compared";
}

std::vector<Answer> system_answers(const ReportData& data, const Json& part, const Metric& m,
                                   const std::set<Condition>& alone_is_answered) {
  std::vector<Answer> list;
  const auto conditions = data.conditions(text_at(part, "name"));
  std::vector<Condition> groups = conditions;
  for (Condition& group : groups) {
    group.batch = 0;
    group.input.clear();
    group.optimizer.clear();
    group.switches.clear();
  }
  const auto texts = distinctions(conditions), group_texts = distinctions(groups);
  for (size_t i = 0; i < conditions.size(); ++i) {
    const auto summaries = ranking(data, conditions[i], m);
    if (summaries.empty() || (summaries.size() == 1 && alone_is_answered.contains(conditions[i]))) continue;
    Answer answer{m,  texts[i], group_texts[i], {}, nullptr, nullptr, data.analysis.data_text(conditions[i]),
                  "", ""};
    const std::string& most = summaries[0]->system;
    for (const Summary* s : summaries)
      if (!data.analysis.are_uncompared(conditions[i], m.name, most, s->system))
        answer.ranked.push_back({s->system, s->median.value});
      else
        answer.left_out += (answer.left_out.empty() ? "not compared with " : "; nor with ") + s->system +
                           ", which trained " +
                           epochs_with_word(data.analysis.epochs_text(conditions[i], s->system)) + ", not " +
                           data.analysis.epochs_text(conditions[i], most);
    rank(answer, [&](const std::string& a, const std::string& b) {
      return data.analysis.comparison(conditions[i], m.name, a, b);
    });
    answer.none = reason_for_none(answer, data.analysis.on_real_data(conditions[i]));
    if (!answer.none.empty()) answer.none += left_out_text(data.analysis, conditions[i]);
    list.push_back(std::move(answer));
  }
  return list;
}

/// One switch of one system, all else the same.
struct Turned {
  std::string name, system;
  Condition base;                               // without switches
  std::map<std::string, std::string> the_rest;  // the other switches
  auto operator<=>(const Turned&) const = default;
};

Turned turned_by(const Effect& effect) {
  Turned turned{"", effect.system, effect.comparison.condition, {}};
  for (const auto* switches : {&effect.first.switches, &effect.second.switches})
    for (const auto& [name, value] : *switches) {
      const auto &a = effect.first.switches, &b = effect.second.switches;
      if (a.contains(name) && b.contains(name) && a.at(name) == b.at(name))
        turned.the_rest[name] = value;
      else
        turned.name = name;
    }
  return turned;
}

std::vector<Answer> switch_answers(const ReportData& data, const Json& part, const Metric& m) {
  std::map<Turned, std::vector<const Effect*>> contests;
  for (const Effect* effect : effects_of(data, part, m.name)) contests[turned_by(*effect)].push_back(effect);
  std::vector<Condition> bases;
  for (const auto& [turned, effects] : contests) bases.push_back(turned.base);
  const auto texts = distinctions(bases);
  std::vector<Answer> list;
  for (const auto& [turned, effects] : contests) {
    const std::string group = turned.name + " of " + turned.system;
    std::string where = group;
    for (const auto& [name, value] : turned.the_rest) where += ", " + name + "=" + value;
    if (const std::string& text = texts[list.size()]; !text.empty()) where += ", " + text;
    Answer answer{m, where, group, {}, nullptr, nullptr, data.analysis.data_text(*effects[0]), "", ""};
    std::set<std::string> seen;
    bool real = true;
    for (const Effect* effect : effects)
      for (const auto& [name, condition] : {std::pair(&effect->comparison.first, &effect->first),
                                            std::pair(&effect->comparison.second, &effect->second)}) {
        real &= data.analysis.on_real_data(*condition);
        if (const Summary* s = data.analysis.summary(*condition, m.name, effect->system);
            s && seen.insert(*name).second)
          answer.ranked.push_back({*name, s->median.value});
      }
    rank(answer, [&](const std::string& a, const std::string& b) -> const Comparison* {
      for (const Effect* effect : effects)
        if (const Comparison& c = effect->comparison;
            (c.first == a && c.second == b) || (c.first == b && c.second == a))
          return &c;
      return nullptr;
    });
    answer.none = reason_for_none(answer, real);
    list.push_back(std::move(answer));
  }
  return list;
}

/// Why nothing of a part was measured.
std::string reason_for_nothing(const ReportData& data, const std::string& part) {
  for (const Run& run : data.results.runs)
    if (run.part == part && run.status != Status::ok) return "no run ended well: " + run.why;
  const Json& study = data.results.study;
  if (study.is_object() && study.contains("missing") && study["missing"].is_array())
    for (const Json& row : study["missing"])
      if (text_at(row, "part") == part) return "not measured: " + text_at(row, "why");
  return "no run of this part has been taken";
}

}  // namespace

std::vector<Json> parts_of(const Results& results) {
  std::vector<Json> parts;
  if (results.study.is_object() && results.study.contains("parts") && results.study["parts"].is_array())
    for (const Json& part : results.study["parts"])
      if (part.is_object()) parts.push_back(part);
  return parts;
}

bool as_shipped(const Json& part) { return text_at(part, "track") == "as_shipped"; }

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

std::vector<std::string> main_metrics(const ReportData& data, const Json& part) {
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto shown = metrics_of(part);
  const auto is_shown = [&](const char* name) {
    return std::find(shown.begin(), shown.end(), name) != shown.end();
  };
  const bool fit = text_at(part, "phase") == "fit";
  const char* usual = fit ? "fit.total_s" : "step.throughput_s";
  // What its figures show first; what every such part measures where they show nothing that has a better side.
  std::vector<std::string> times, learned;
  if (is_shown(usual)) times.push_back(usual);
  for (const std::string& name : shown)
    if (metric(name).better != Metric::Better::neither)
      (metric(name).learned ? learned : times).push_back(name);
  times.push_back(usual);
  if (fit)
    for (const char* name : {"fit.accuracy", "fit.perplexity", "fit.mse", "fit.mae"}) learned.push_back(name);
  std::vector<std::string> names;
  for (const auto* candidates : {&times, &learned})
    for (const std::string& name : *candidates)
      if (is_measured(data, conditions, name)) {
        names.push_back(name);
        break;
      }
  return names;
}

std::vector<const Summary*> ranking(const ReportData& data, const Condition& condition, const Metric& m) {
  std::vector<const Summary*> list;
  for (const Summary& s : data.analysis.summaries)
    if (s.metric == m.name && s.condition == condition) list.push_back(&s);
  const auto here = data.analysis.epochs.find(condition);
  const auto most_epochs = [&](const Summary* s) -> int64_t {
    if (!depends_on_epochs(m.name) || here == data.analysis.epochs.end()) return 0;
    const auto found = here->second.find(s->system);
    return found == here->second.end() ? 0 : *found->second.rbegin();
  };
  std::stable_sort(list.begin(), list.end(), [&](const Summary* a, const Summary* b) {
    if (most_epochs(a) != most_epochs(b)) return most_epochs(a) > most_epochs(b);
    return m.better == Metric::Better::more ? a->median.value > b->median.value
                                            : a->median.value < b->median.value;
  });
  return list;
}

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

std::vector<Answer> answers(const ReportData& data, const Json& part) {
  std::vector<Answer> list;
  for (const std::string& name : main_metrics(data, part)) {
    const Metric m = metric(name);
    std::set<Condition> turned;
    for (const Effect* effect : effects_of(data, part, name)) {
      turned.insert(effect->first);
      turned.insert(effect->second);
    }
    for (auto& more : {system_answers(data, part, m, turned), switch_answers(data, part, m)})
      list.insert(list.end(), more.begin(), more.end());
  }
  if (list.empty()) {
    Answer nothing;
    nothing.data = "–";
    nothing.none = reason_for_nothing(data, text_at(part, "name"));
    list.push_back(std::move(nothing));
  }
  return list;
}

}  // namespace tandem::lab
