#include "lab/src/report/figures.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lab/src/report/charts.h"
#include "lab/src/report/grid.h"
#include "lab/src/stats/sample.h"
#include "tandem/io/svg.h"

namespace tandem::lab {

ReportData::ReportData(const Results& results_, const Analysis& analysis_)
    : results(results_), analysis(analysis_) {
  for (const Run& run : results.runs) places.emplace(run.system, places.size());
}

std::string ReportData::colour(const std::string& system) const {
  const auto found = places.find(system);
  return system_colour(found == places.end() ? 8 : found->second);
}

std::vector<Condition> ReportData::conditions(const std::string& part) const {
  std::vector<Condition> list;
  std::set<Condition> seen;
  for (const Run& run : results.runs)
    if (run.part == part && seen.insert(run.condition).second) list.push_back(run.condition);
  std::sort(list.begin(), list.end());
  return list;
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string epochs_with_word(const std::string& epochs) {
  return epochs + (epochs == "1" ? " epoch" : " epochs");
}

bool epochs_differ(const ReportData& data, const std::string& part) {
  std::set<std::set<int64_t>> seen;
  for (const Condition& condition : data.conditions(part))
    if (const auto here = data.analysis.epochs.find(condition); here != data.analysis.epochs.end())
      for (const auto& [system, epochs] : here->second) seen.insert(epochs);
  return seen.size() > 1;
}

namespace {

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "×") + std::to_string(size);
  return text;
}

std::string switches_text(const std::map<std::string, std::string>& switches) {
  std::string text;
  for (const auto& [name, value] : switches) text += (text.empty() ? "" : ", ") + name + " " + value;
  return text.empty() ? "as it comes" : text;
}

/// A condition's value on an axis of a figure.
std::string axis_text(const Condition& c, const std::string& axis) {
  if (axis == "workload") return c.workload;
  if (axis == "phase") return c.phase;
  if (axis == "batch") return "batch " + std::to_string(c.batch);
  if (axis == "input") return sizes_text(c.input);
  if (axis == "precision") return c.precision;
  if (axis == "device") return c.device;
  if (axis == "optimizer") return c.optimizer;
  if (axis == "switches") return switches_text(c.switches);
  return "";
}

constexpr const char* kAxes[] = {"workload", "phase", "device",    "precision",
                                 "input",    "batch", "optimizer", "switches"};

std::vector<std::string> texts_at(const Json& json, const char* key) {
  std::vector<std::string> list;
  if (json.is_object() && json.contains(key) && json[key].is_array())
    for (const Json& item : json[key])
      if (item.is_string()) list.push_back(item);
  return list;
}

std::string caption(const Json& part, const Json& figure, const std::string& more) {
  const std::string counterpart = text_at(figure, "counterpart"), note = text_at(figure, "note");
  std::string text = "<figcaption>" + io::escaped(text_at(figure, "title") + more);
  if (!counterpart.empty()) text += " <small>(" + io::escaped(counterpart) + " of the paper)</small>";
  if (text_at(part, "track") == "as_shipped")
    text += " <span class=\"track\">as shipped: not the same model</span>";
  text += "</figcaption>";
  if (!note.empty()) text += "<p class=\"soft\">" + io::escaped(note) + "</p>";
  return text;
}

/// A figure that has nothing to show: one line.
std::string nothing(const Json& figure, const std::string& more, const std::string& why) {
  return "<p class=\"soft nothing\">" + io::escaped(text_at(figure, "title") + more + ": " + why) + "</p>\n";
}

std::string framed(const Json& part, const Json& figure, const std::string& more,
                   const std::string& content) {
  // Drawings stand beside each other where there is room; a table has the whole width.
  const std::string kind = content.starts_with("<svg") ? "<figure class=\"drawn\">" : "<figure>";
  return kind + caption(part, figure, more) + "\n" + content + "</figure>\n";
}

/// Why nothing of a metric can be drawn: the reason that runs give, or that there are none.
std::string absence(const ReportData& data, const std::string& part, const std::string& metric_name) {
  for (const Run& run : data.results.runs)
    if (run.part == part)
      if (const auto found = run.unavailable.find(metric_name); found != run.unavailable.end())
        return metric(metric_name).label + " is unavailable here: " + found->second + ".";
  return "no run has a " + metric(metric_name).label + " yet.";
}

std::string rows_figure(const ReportData& data, const Json& part, const Json& figure, bool boxes) {
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  const bool name_epochs = epochs_differ(data, text_at(part, "name"));
  std::string html;
  for (const std::string& name : texts_at(figure, "metrics")) {
    std::vector<ChartRow> rows;
    for (size_t i = 0; i < conditions.size(); ++i)
      for (const Summary& summary : data.analysis.summaries)
        if (summary.metric == name && summary.condition == conditions[i]) {
          const std::string epochs = data.analysis.epochs_text(conditions[i], summary.system);
          const bool named = name_epochs && depends_on_epochs(name) && !epochs.empty();
          rows.push_back({summary.system + (named ? ", " + epochs_with_word(epochs) : ""),
                          data.colour(summary.system), summary.values, summary.median, groups[i]});
        }
    const Metric m = metric(name);
    const std::string chart = boxes ? box_chart(m.label, m, rows) : bar_chart(m.label, m, rows);
    html += chart.empty() ? nothing(figure, "", absence(data, text_at(part, "name"), name))
                          : framed(part, figure, ": " + m.label, chart);
  }
  return html;
}

/// The number on the axis, where it is one.
std::optional<double> axis_number(const Condition& c, const std::string& axis) {
  if (axis == "batch") return static_cast<double>(c.batch);
  if (axis == "input" && c.input.size() == 3) return static_cast<double>(c.input[1]);
  return std::nullopt;
}

std::string lines_figure(const ReportData& data, const Json& part, const Json& figure) {
  const std::string axis = text_at(figure, "x").empty() ? "batch" : text_at(figure, "x");
  const auto conditions = data.conditions(text_at(part, "name"));
  if (std::any_of(conditions.begin(), conditions.end(),
                  [&](const Condition& c) { return !axis_number(c, axis); }))
    return rows_figure(data, part, figure, false);
  // Lines join conditions that differ in this axis alone; others are charts of their own.
  std::map<Condition, std::vector<Condition>> families;
  for (const Condition& condition : conditions) {
    Condition family = condition;
    if (axis == "batch") family.batch = 0;
    if (axis == "input") family.input.clear();
    families[family].push_back(condition);
  }
  std::vector<Condition> keys;
  for (const auto& [family, members] : families) keys.push_back(family);
  const auto names = distinctions(keys);
  std::string html;
  for (const std::string& name : texts_at(figure, "metrics")) {
    for (size_t k = 0; k < keys.size(); ++k) {
      const Metric m = metric(name);
      double largest = 0;
      std::map<std::string, ChartLine> lines;
      for (const Condition& condition : families[keys[k]])
        for (const Summary& s : data.analysis.summaries)
          if (s.metric == name && s.condition == condition) {
            ChartLine& line = lines[s.system];
            line.label = s.system;
            line.colour = data.colour(s.system);
            line.points.push_back({*axis_number(condition, axis), s.median});
            largest = std::max(largest, s.median.value);
          }
      const Unit unit = unit_for(m, largest);
      LineChart chart{.title = m.label,
                      .x_name = {axis == "batch" ? "batch size, samples" : "side of the input, pixels"},
                      .y_name = {axis_name(m, unit), better_text(m)},
                      .log_x = axis == "batch",
                      .y_from_zero = true,
                      .lines = {}};
      for (auto& [system, line] : lines) {
        std::sort(line.points.begin(), line.points.end(),
                  [](const auto& a, const auto& b) { return a.x < b.x; });
        for (ChartPoint& p : line.points)
          p.y = {p.y.value * unit.factor, p.y.low * unit.factor, p.y.high * unit.factor};
        chart.lines.push_back(std::move(line));
      }
      const std::string drawn = line_chart(chart), more = names[k].empty() ? "" : ", " + names[k];
      html += drawn.empty() ? nothing(figure, more, absence(data, text_at(part, "name"), name))
                            : framed(part, figure, ": " + m.label + more, drawn);
    }
  }
  return html;
}

/// The metrics of the test and the loss by epoch: the median of the runs, a band from the worst to the best.
std::string convergence_figure(const ReportData& data, const Json& part, const Json& figure) {
  const std::string part_name = text_at(part, "name");
  const auto conditions = data.conditions(part_name);
  const auto names = distinctions(conditions);
  std::string html;
  for (size_t i = 0; i < conditions.size(); ++i) {
    std::set<std::string> measured;  // each metric of the test, and the loss of training
    for (const Run& run : data.results.runs)
      if (run.part == part_name && run.condition == conditions[i])
        for (const Epoch& epoch : run.epochs)
          for (const auto& [name, value] : epoch.test_metrics) measured.insert(name);
    std::vector<std::string> shown(measured.begin(), measured.end());
    shown.push_back("");
    for (const std::string& name : shown) {
      const std::string title = name.empty() ? "training loss" : "test " + name;
      const Metric m = metric(name.empty() ? "fit.loss" : "fit." + name);
      std::map<std::string, std::map<int64_t, std::vector<double>>> curves;
      for (const Run& run : data.results.runs) {
        if (run.part != part_name || run.condition != conditions[i] || !run.control.empty()) continue;
        for (const Epoch& epoch : run.epochs) {  // a loss that is not finite any more ends its curve
          const auto at = epoch.test_metrics.find(name);
          const double value = name.empty() ? epoch.loss : at == epoch.test_metrics.end() ? NAN : at->second;
          if (std::isfinite(value)) curves[run.system][epoch.epoch].push_back(value);
        }
      }
      LineChart chart{.title = title,
                      .x_name = {"epoch, number"},
                      .y_name = {axis_name(m, unit_for(m, 1)), better_text(m)},
                      .band = true,
                      .whole_x = true,
                      .lines = {}};
      for (const auto& [system, epochs] : curves) {
        ChartLine line{system, data.colour(system), {}};
        for (const auto& [epoch, values] : epochs)
          line.points.push_back({static_cast<double>(epoch),
                                 {stats::median(values), *std::min_element(values.begin(), values.end()),
                                  *std::max_element(values.begin(), values.end())}});
        chart.lines.push_back(std::move(line));
      }
      const std::string drawn = line_chart(chart);
      if (!drawn.empty())
        html += framed(part, figure, ": " + chart.title + (names[i].empty() ? "" : ", " + names[i]), drawn);
    }
  }
  return html.empty() ? nothing(figure, "", "no run has finished an epoch yet.") : html;
}

std::string timeline_figure(const ReportData& data, const Json& part, const Json& figure) {
  const std::string part_name = text_at(part, "name");
  const auto conditions = data.conditions(part_name);
  const auto names = distinctions(conditions);
  std::string html;
  for (const std::string& name : texts_at(figure, "metrics")) {
    bool any = false;
    for (size_t i = 0; i < conditions.size(); ++i) {
      const Metric m = metric(name);
      LineChart chart{.title = m.label,
                      .x_name = {"time since the first timed step, s"},
                      .y_name = {axis_name(m, {1, m.unit}), better_text(m)},
                      .y_from_zero = true,
                      .lines = {}};
      std::set<std::string> drawn_systems;
      for (const Run& run : data.results.runs) {  // the first run of each system
        if (run.part != part_name || run.condition != conditions[i] || !run.control.empty()) continue;
        for (const Trace& trace : run.traces) {
          // The curve of rss.mean_mib is rss.
          const bool is_it = trace.metric == name || name.starts_with(trace.metric + ".");
          if (!is_it || !drawn_systems.insert(run.system).second) continue;
          ChartLine line{run.system, data.colour(run.system), {}};
          for (size_t j = 0; j < std::min(trace.seconds.size(), trace.values.size()); ++j)
            line.points.push_back({trace.seconds[j], {trace.values[j], trace.values[j], trace.values[j]}});
          chart.lines.push_back(std::move(line));
        }
      }
      const std::string drawn = line_chart(chart);
      if (drawn.empty()) continue;
      any = true;
      html += framed(part, figure, ": " + chart.title + (names[i].empty() ? "" : ", " + names[i]), drawn);
    }
    if (!any) html += nothing(figure, "", absence(data, part_name, name));
  }
  return html;
}

std::string table_figure(const ReportData& data, const Json& part, const Json& figure) {
  const auto names = texts_at(figure, "metrics");
  const auto conditions = data.conditions(text_at(part, "name"));
  const auto groups = distinctions(conditions);
  std::vector<std::string> header = {"condition", "data", "system", "runs"};
  std::vector<size_t> numbers = {3};
  const bool show_epochs = epochs_differ(data, text_at(part, "name"));
  if (show_epochs) {
    numbers.push_back(header.size());
    header.push_back("epochs");
  }
  std::vector<Metric> shown;
  for (const std::string& name : names) {
    const bool any = std::any_of(data.analysis.summaries.begin(), data.analysis.summaries.end(),
                                 [&](const Summary& s) { return s.metric == name; });
    if (!any) continue;  // a column without a single number says nothing
    shown.push_back(metric(name));
    numbers.push_back(header.size());
    header.push_back(shown.back().label);
  }
  Grid grid(header, numbers);
  for (size_t i = 0; i < conditions.size(); ++i)
    for (const auto& [system, place] : data.places) {
      std::vector<GridCell> row = {{groups[i].empty() ? conditions[i].text() : groups[i]},
                                   {data.analysis.data_text(conditions[i])},
                                   {system},
                                   {"0"}};
      if (show_epochs) row.push_back({data.analysis.epochs_text(conditions[i], system)});
      bool any = false;
      for (const Metric& m : shown) {
        const Summary* s = data.analysis.summary(conditions[i], m.name, system);
        if (s) {
          any = true;
          row[3] = {std::to_string(s->values.size()), static_cast<double>(s->values.size())};
          row.push_back({with_unit(s->median.value, m), s->median.value});
        } else {
          row.push_back({"unavailable", std::nullopt, "absent"});
        }
      }
      if (any) grid.add(std::move(row));
    }
  if (grid.empty()) return nothing(figure, "", "no run has any of its numbers.");
  return framed(part, figure, ": medians of the runs", grid.html());
}

std::string confusion_figure(const ReportData& data, const Json& part, const Json& figure) {
  std::string html;
  std::set<std::pair<std::string, Condition>> done;
  for (const Run& run : data.results.runs)
    if (run.part == text_at(part, "name") && !run.confusion.empty() && run.control.empty() &&
        done.insert({run.system, run.condition}).second)
      html += framed(part, figure, ": " + run.system, confusion_chart(run.system, run.confusion));
  return html.empty() ? nothing(figure, "", "no run has been tested yet.") : html;
}

std::string scatter_figure(const ReportData& data, const Json& part, const Json& figure) {
  const auto names = texts_at(figure, "metrics");
  if (names.size() < 2) return nothing(figure, "", "a scatter plot needs two metrics.");
  std::vector<ScatterPoint> points;
  for (const Run& run : data.results.runs) {
    if (run.part != text_at(part, "name") || run.status != Status::ok || !run.control.empty()) continue;
    const auto x = run.metrics.find(names[0]), y = run.metrics.find(names[1]);
    if (x != run.metrics.end() && y != run.metrics.end())
      points.push_back({x->second, y->second, run.system, data.colour(run.system)});
  }
  const std::string drawn =
      scatter_chart(text_at(figure, "title"), metric(names[0]), metric(names[1]), points);
  return drawn.empty() ? nothing(figure, "", "no run has both numbers yet.")
                       : framed(part, figure, "", drawn);
}

}  // namespace

std::vector<std::string> distinctions(const std::vector<Condition>& conditions) {
  std::vector<std::string> texts(conditions.size());
  for (const char* axis : kAxes) {
    std::set<std::string> values;
    for (const Condition& condition : conditions) values.insert(axis_text(condition, axis));
    if (values.size() < 2) continue;
    for (size_t i = 0; i < conditions.size(); ++i) {
      const std::string value = axis_text(conditions[i], axis);
      if (!value.empty()) texts[i] += (texts[i].empty() ? "" : ", ") + value;
    }
  }
  return texts;
}

std::string figure_html(const ReportData& data, const Json& part, const Json& figure) {
  const std::string kind = text_at(figure, "kind");
  if (kind == "box") return rows_figure(data, part, figure, true);
  if (kind == "bars") return rows_figure(data, part, figure, false);
  if (kind == "lines") return lines_figure(data, part, figure);
  if (kind == "convergence") return convergence_figure(data, part, figure);
  if (kind == "timeline") return timeline_figure(data, part, figure);
  if (kind == "table") return table_figure(data, part, figure);
  if (kind == "confusion") return confusion_figure(data, part, figure);
  if (kind == "scatter") return scatter_figure(data, part, figure);
  return nothing(figure, "", "this report cannot draw '" + kind + "'.");
}

}  // namespace tandem::lab
