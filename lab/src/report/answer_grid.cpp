#include "lab/src/report/answer_grid.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lab/src/report/scale.h"

namespace tandem::lab {
namespace {

constexpr size_t kManyAnswers = 4;  // more than so many in one metric of a part are counted, not listed

bool is_decided(const Answer& answer) {
  return answer.none.empty() && answer.second &&
         (answer.second->verdict == Verdict::first || answer.second->verdict == Verdict::second);
}

/// With its unit, on one line.
std::string value_text(double value, const Metric& m) {
  std::string text = with_unit(value, m);
  if (const size_t space = text.find(' '); space != std::string::npos) text.replace(space, 1, "\u00a0");
  return text;
}

/// How many times better the best is than the other.
Estimate advantage(const Answer& answer, const Comparison& c) {
  const bool best_is_first = c.first == answer.ranked[0].name,
             more = answer.metric.better == Metric::Better::more;
  if (best_is_first != more) return c.ratio;
  return {1 / c.ratio.value, 1 / c.ratio.high, 1 / c.ratio.low};
}

std::string ratio_text(double ratio) {
  // 1.012 is not 1.01, and 0.996 is as exact.
  return number_text(ratio, ratio >= 1 && ratio < 1.1 ? 4 : 3) + "×";
}

std::string rival_text(const Answer& answer, const Standing& rival, const Comparison* c, bool interval) {
  std::string text = rival.name + ", " + value_text(rival.median, answer.metric);
  if (!c) return text;
  const Estimate ratio = advantage(answer, *c);
  if (!std::isfinite(ratio.value)) return text;  // one of them is at zero
  text += ": " + ratio_text(ratio.value);
  if (interval && c->runs == 1)
    text += " (one run)";
  else if (interval && !c->constant && std::isfinite(ratio.low) && std::isfinite(ratio.high))
    text += " (" + ratio_text(ratio.low) + " to " + ratio_text(ratio.high) + ")";
  if (!interval && c->verdict == Verdict::undecided) text += ", undecided";
  if (!interval && c->verdict == Verdict::equivalent) text += ", equal";
  return text;
}

std::string runs_text(size_t runs) { return std::to_string(runs) + (runs == 1 ? " run each" : " runs each"); }

std::string evidence_text(const Comparison& c) {
  return p_text(c.p_holm) + " after Holm" + (c.at_floor ? " (the floor)" : "") + ", " + runs_text(c.runs);
}

std::string sureness(const Comparison& c) {
  const std::string floor = !c.noise                  ? ""
                            : std::isfinite(*c.noise) ? "the noise floor of " + percent_text(*c.noise)
                                                      : "a noise floor without bound";
  if (c.constant && c.can_decide) {
    const std::string fact = "the same in every run, " + runs_text(c.runs);
    if (c.verdict == Verdict::undecided) return "undecided: " + fact + ", but not beyond " + floor;
    return (c.verdict == Verdict::equivalent ? "equal: " : "decided: ") + fact;
  }
  if (c.disturbed > 0)
    return "not decided: other work on the machine disturbed " + std::to_string(c.disturbed) + " of " +
           std::to_string(2 * c.runs) + " runs";
  switch (c.verdict) {
    case Verdict::first:
    case Verdict::second:
      return "decided: " + evidence_text(c) +
             (c.noise ? ", beyond " + floor : ", no noise floor was measured");
    case Verdict::equivalent:
      return "equal within " + percent_text(AnalysisOptions{}.equivalence) + ": " + runs_text(c.runs) +
             (c.noise ? ", " + floor : ", no noise floor was measured");
    case Verdict::undecided:
      break;
  }
  if (!c.can_decide)
    return "undecided: " + runs_text(c.runs) + ", too few to decide anything" +
           (c.left_out > 0 ? "; " + std::to_string(c.left_out) + " left out as disturbed" : "");
  if (c.p_holm < 0.05 && !c.beyond_noise)
    return "undecided: " + evidence_text(c) +
           (c.noise ? ", but not beyond " + floor : ", but the interval holds 1");
  if (c.noise && *c.noise > AnalysisOptions{}.equivalence)
    return "undecided: " + evidence_text(c) + ", and " + floor + " is too wide to call them equal";
  return "undecided: " + evidence_text(c) + ": neither a difference nor equality is shown";
}

/// "mnist (real)".
std::string data_kind(const std::string& name) {
  if (name == "–") return name;
  return name + (is_real_data(name) ? " (real)" : " (made up)");
}

std::string direction_text(const Metric& m) {
  const std::string words = better_text(m);
  return m.label + (words.empty() ? "" : ", " + words);
}

GridCell winner_cell(const Answer& answer) {
  if (!answer.none.empty()) return {"no answer", {}, "absent"};
  const std::string best = answer.ranked[0].name + ", " + value_text(answer.ranked[0].median, answer.metric);
  if (is_decided(answer)) return {best, {}, "good"};
  if (answer.second->verdict == Verdict::equivalent) return {"equal; ahead: " + best, {}, ""};
  return {"undecided; ahead: " + best, {}, "unsure"};
}

std::vector<GridCell> answer_row(const std::string& title, const Answer& answer) {
  const std::string place = title + (title.empty() || answer.where.empty() ? "" : ": ") + answer.where;
  const bool known = !answer.metric.name.empty();
  std::vector<GridCell> row = {{place}, {known ? direction_text(answer.metric) : "–"}, winner_cell(answer)};
  if (answer.none.empty()) {
    row.push_back({rival_text(answer, answer.ranked[1], answer.second, true)});
    row.push_back(
        {answer.ranked.size() > 2 ? rival_text(answer, answer.ranked.back(), answer.last, false) : "–"});
    row.push_back({sureness(*answer.second) + (answer.left_out.empty() ? "" : "; " + answer.left_out)});
  } else {
    row.push_back({"–"});
    row.push_back({"–"});
    row.push_back({answer.none});
  }
  row.push_back({data_kind(answer.data)});
  return row;
}

/// What many answers in one metric come to.
struct Tally {
  std::map<std::string, size_t> wins;
  size_t total = 0, decided = 0, equal = 0, undecided = 0, none = 0, least_runs = 0;
  bool noise = true;                // a floor was measured for all that are decided
  double low = INFINITY, high = 0;  // ratios to the second, of the decided ones
  double far = 0;                   // the largest to the last
  double largest_p = 0;             // of the decided ones that a test decided
  size_t tested = 0;                // of the decided ones
  std::set<std::string> data;
};

Tally tally(const std::vector<const Answer*>& list) {
  Tally t;
  for (const Answer* answer : list) {
    ++t.total;
    t.data.insert(answer->data);
    if (!answer->none.empty()) {
      ++t.none;
      continue;
    }
    const Comparison& c = *answer->second;
    t.least_runs = t.least_runs == 0 ? c.runs : std::min(t.least_runs, c.runs);
    if (const Comparison* last = answer->last ? answer->last : answer->second)
      if (const double ratio = advantage(*answer, *last).value; std::isfinite(ratio))
        t.far = std::max(t.far, ratio);
    if (is_decided(*answer)) {
      ++t.decided;
      ++t.wins[answer->ranked[0].name];
      if (!c.constant) {
        ++t.tested;
        t.largest_p = std::max(t.largest_p, c.p_holm);
        t.noise = t.noise && c.noise;
      }
      if (const double ratio = advantage(*answer, c).value; std::isfinite(ratio))
        t.low = std::min(t.low, ratio), t.high = std::max(t.high, ratio);
    } else {
      ++(c.verdict == Verdict::equivalent ? t.equal : t.undecided);
    }
  }
  return t;
}

/// "tandem:graph in 5, pytorch:eager in 1 of 7"; the most wins first.
std::string wins_text(const Tally& t) {
  std::vector<std::pair<std::string, size_t>> order(t.wins.begin(), t.wins.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, count] : order)
    text += (text.empty() ? "" : ", ") + name + " in " + std::to_string(count);
  return text + " of " + std::to_string(t.total);
}

std::string counts_text(const Tally& t) {
  std::string text;
  const auto add = [&](size_t count, const std::string& words) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + words;
  };
  add(t.decided, t.tested == 0 ? "decided (the same in every run)"
                               : "decided (" + p_text(t.largest_p) + " or less after Holm, " +
                                     (t.noise ? "beyond the noise)" : "not all with a noise floor)"));
  add(t.equal, "equal");
  add(t.undecided, "undecided");
  add(t.none, "not compared");
  return text + (t.least_runs > 0 ? ", " + runs_text(t.least_runs) + " or more" : "");
}

std::vector<GridCell> tally_row(const std::string& title, const std::string& group,
                                const std::vector<const Answer*>& list) {
  const Tally t = tally(list);
  std::string data;
  for (const std::string& name : t.data) data += (data.empty() ? "" : ", ") + data_kind(name);
  const std::string conditions = std::to_string(t.total) + " conditions";
  return {{title + (group.empty() ? "" : ": " + group) + ", " + conditions},
          {direction_text(list[0]->metric)},
          t.wins.empty()
              ? GridCell{t.none == t.total ? "no answer" : "undecided", {}, "unsure"}
              : GridCell{wins_text(t), {}, t.wins.size() == 1 && t.decided == t.total ? "good" : ""},
          {t.high > 0 ? ratio_text(t.low) + " to " + ratio_text(t.high) + " where decided" : "–"},
          {t.far > 0 ? "up to " + ratio_text(t.far) : "–"},
          {counts_text(t)},
          {data}};
}

Grid empty_answer_grid() {
  return Grid({"condition", "metric", "winner", "second", "last", "how sure", "data"});
}

/// The answers in one metric, by group in the order of the first.
std::vector<std::pair<std::string, std::vector<const Answer*>>> by_group(const std::vector<Answer>& list,
                                                                         const std::string& metric_name) {
  std::vector<std::pair<std::string, std::vector<const Answer*>>> groups;
  for (const Answer& answer : list) {
    if (answer.metric.name != metric_name) continue;
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return group.first == answer.group; });
    (found == groups.end() ? groups.emplace_back(answer.group, std::vector<const Answer*>{}) : *found)
        .second.push_back(&answer);
  }
  return groups;
}

std::vector<std::string> metrics_in(const std::vector<Answer>& list) {
  std::vector<std::string> names;
  for (const Answer& answer : list)
    if (std::find(names.begin(), names.end(), answer.metric.name) == names.end())
      names.push_back(answer.metric.name);
  return names;
}

bool are_many(const std::vector<Answer>& list, const std::string& metric_name) {
  return static_cast<size_t>(std::count_if(list.begin(), list.end(), [&](const Answer& answer) {
           return answer.metric.name == metric_name;
         })) > kManyAnswers;
}

}  // namespace

bool counts_answers(const std::vector<Answer>& list) {
  const auto names = metrics_in(list);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return are_many(list, name); });
}

Grid answer_grid(const ReportData& data, const std::vector<Json>& parts) {
  Grid grid = empty_answer_grid();
  for (const Json& part : parts) {
    const std::string title = text_at(part, "title") + (as_shipped(part) ? " (as shipped)" : "");
    const auto list = answers(data, part);
    const auto add = [&](std::vector<GridCell> row) {
      row[0].link = "part-" + text_at(part, "name");
      grid.add(std::move(row));
    };
    for (const std::string& name : metrics_in(list))
      for (const auto& [group, members] : by_group(list, name))
        if (are_many(list, name) && members.size() > 1)
          add(tally_row(title, group, members));
        else
          for (const Answer* answer : members) add(answer_row(title, *answer));
  }
  return grid;
}

Grid each_answer_grid(const ReportData& data, const Json& part) {
  Grid grid = empty_answer_grid();
  for (const Answer& answer : answers(data, part)) grid.add(answer_row("", answer));
  return grid;
}

std::vector<std::string> answer_sentences(const ReportData& data, const Json& part) {
  std::vector<std::string> sentences;
  const auto list = answers(data, part);
  for (const std::string& name : metrics_in(list)) {
    const Metric m = metric(name);
    for (const auto& [group, members] : by_group(list, name)) {
      if (are_many(list, name) && members.size() > 1) {
        const Tally t = tally(members);
        sentences.push_back((group.empty() ? "" : group + ": ") + "in " + m.label + " " +
                            (t.wins.empty() ? "" : "the best is " + wins_text(t) + "; ") + counts_text(t) +
                            ".");
        continue;
      }
      for (const Answer* answer : members) {
        const std::string begin = answer->where.empty() ? "" : answer->where + ": ";
        if (!answer->none.empty()) {
          sentences.push_back(begin + (name.empty() ? "" : "no answer in " + m.label + ": ") + answer->none +
                              ".");
          continue;
        }
        sentences.push_back(begin + answer->second->text);
        if (answer->last) sentences.push_back(begin + answer->last->text);
      }
    }
  }
  return sentences;
}

}  // namespace tandem::lab
