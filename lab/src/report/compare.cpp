#include "lab/src/report/compare.h"

#include <map>
#include <set>

#include "lab/src/report/figures.h"
#include "lab/src/report/grid.h"
#include "lab/src/report/page.h"
#include "lab/src/report/scale.h"
#include "lab/src/report/tables.h"
#include "lab/src/study/table.h"
#include "tandem/io/svg.h"

namespace tandem::lab {
namespace {

using Key = std::pair<std::string, Condition>;  // a system under a condition

std::map<Key, std::vector<Run>> measured(const Results& results) {
  std::map<Key, std::vector<Run>> runs;
  for (const Run& run : results.runs)
    if (run.status == Status::ok && run.control.empty()) runs[{run.system, run.condition}].push_back(run);
  return runs;
}

std::string data_of(const std::vector<Run>& runs) {
  std::set<std::string> names;
  for (const Run& run : runs)
    if (!run.data.empty()) names.insert(run.data);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
  return text.empty() ? "–" : text;
}

/// Every field of a JSON object by its path, as text.
void flatten(const Json& json, const std::string& prefix, std::map<std::string, std::string>& fields) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items())
      flatten(value, prefix.empty() ? key : prefix + "." + key, fields);
  } else {
    fields[prefix] = json.is_string() ? json.get<std::string>() : json.dump();
  }
}

std::vector<std::string> provenance_differences(const Json& a, const Json& b) {
  // What differs between any two runs and says nothing about the machine.
  static const std::set<std::string> passing = {"time",     "command", "command_line",
                                                "warnings", "load",    "load_average"};
  std::map<std::string, std::string> in_a, in_b;
  flatten(a, "", in_a);
  flatten(b, "", in_b);
  std::set<std::string> names;
  for (const auto& [name, value] : in_a) names.insert(name);
  for (const auto& [name, value] : in_b) names.insert(name);
  const auto value_of = [](const std::map<std::string, std::string>& fields, const std::string& name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string("nothing") : found->second.substr(0, 120);
  };
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    if (passing.contains(name.substr(0, name.find('.')))) continue;
    const std::string left = value_of(in_a, name), right = value_of(in_b, name);
    if (left != right) texts.push_back(name + ": " + left + " in A, " + right + " in B");
  }
  return texts;
}

Grid change_grid(const FolderComparison& all) {
  Grid grid(
      {"system", "condition", "data", "metric", "B / A", "95 % interval", "p (Holm)", "runs", "verdict"},
      {4, 5, 6, 7});
  for (const Change& change : all.changes) {
    const Comparison& c = change.comparison;
    GridCell verdict{"undecided", {}, "unsure"};
    if (c.verdict == Verdict::first) verdict = {"B is worse", {}, "bad"};
    if (c.verdict == Verdict::second) verdict = {"B is better", {}, "good"};
    if (c.verdict == Verdict::equivalent) verdict = {"equal", {}, ""};
    grid.add({{change.system},
              {c.condition.text()},
              {change.data},
              {metric(c.metric).label},
              {number_text(c.ratio.value) + "×", c.ratio.value},
              interval_cell(c),
              p_cell(c),
              {std::to_string(c.runs), static_cast<double>(c.runs)},
              verdict});
  }
  return grid;
}

}  // namespace

FolderComparison compare_folders(const std::string& a, const std::string& b) {
  const Results left = load_results(a), right = load_results(b);
  FolderComparison all{a, b, {}, {}, {}, {}, provenance_differences(left.provenance, right.provenance)};
  const auto runs_a = measured(left), runs_b = measured(right);
  for (const auto& [key, runs] : runs_a) {
    const auto other = runs_b.find(key);
    if (other == runs_b.end()) {
      all.only_a.push_back(key.first + ", " + key.second.text());
      continue;
    }
    Results both;
    for (Run run : runs) {
      run.system = "A";
      both.runs.push_back(std::move(run));
    }
    for (Run run : other->second) {
      run.system = "B";
      run.block += int64_t{1} << 40;  // blocks of another folder are other blocks: nothing is paired
      both.runs.push_back(std::move(run));
    }
    const std::string here = data_of(runs), there = data_of(other->second);
    const std::string data = here == there ? here : here + " in A, " + there + " in B";
    const Analysis found = analyse(both);
    std::vector<std::string> labels;
    for (const Uncompared& each : found.uncompared) labels.push_back(metric(each.metric).label);
    if (!labels.empty())
      all.not_compared.push_back(key.first + ", " + key.second.text() + ": " + listed(labels) +
                                 ", for A trained " + epochs_with_word(found.uncompared[0].first_epochs) +
                                 " and B " + found.uncompared[0].second_epochs);
    for (const Comparison& c : found.comparisons)
      if (metric(c.metric).better != Metric::Better::neither) all.changes.push_back({key.first, c, data});
  }
  for (const auto& [key, runs] : runs_b)
    if (!runs_a.contains(key)) all.only_b.push_back(key.first + ", " + key.second.text());
  return all;
}

std::string comparison_text(const FolderComparison& all) {
  std::string text = "A = " + terminal_text(all.a) + "\nB = " + terminal_text(all.b) + "\n";
  const Grid grid = change_grid(all);
  text += grid.empty() ? "No system has runs under the same condition in both.\n" : grid.text();
  for (const std::string& what : all.not_compared) text += "not compared: " + terminal_text(what) + "\n";
  for (const std::string& name : all.only_a) text += "only in A: " + terminal_text(name) + "\n";
  for (const std::string& name : all.only_b) text += "only in B: " + terminal_text(name) + "\n";
  for (const std::string& difference : all.provenance) text += "differs: " + terminal_text(difference) + "\n";
  return text;
}

std::string comparison_html(const FolderComparison& all) {
  std::string body =
      "<h1>Two studies compared</h1>\n<p>A is " + io::escaped(all.a) + ", B is " + io::escaped(all.b) +
      ". Runs of different folders are not pairs: the tests are those of independent samples.</p>\n";
  const Grid grid = change_grid(all);
  body += grid.empty() ? "<p>No system has runs under the same condition in both.</p>\n" : grid.html();
  const auto list = [&](const char* title, const std::vector<std::string>& items) {
    if (items.empty()) return;
    body += std::string("<h2>") + title + "</h2>\n<ul>\n";
    for (const std::string& item : items) body += "<li>" + io::escaped(item) + "</li>\n";
    body += "</ul>\n";
  };
  list("Not compared", all.not_compared);
  list("Only in A", all.only_a);
  list("Only in B", all.only_b);
  list("What differs between the machines and the software", all.provenance);
  return html_page("Two studies compared", body);
}

}  // namespace tandem::lab
