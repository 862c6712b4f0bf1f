#include "lab/src/report/machine_view.h"

#include <algorithm>
#include <map>

#include "lab/src/record/sittings.h"
#include "lab/src/report/scale.h"
#include "lab/src/report/tables.h"
#include "lab/src/stats/sample.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

std::string runs_of(size_t some, size_t all) { return str(some, " of ", all, all == 1 ? " run" : " runs"); }

std::vector<std::string> disturbance_warnings(const Disturbances& d) {
  std::vector<std::string> lines;
  // Of several reasons the first is enough here.
  const std::string first = d.example.substr(0, d.example.find("; "));
  const std::string example = first.empty() ? "" : " (" + first + ")";
  const size_t turns = d.runs - d.disturbed + d.left_out + d.kept;  // a repeat is no other run
  if (d.left_out > 0)
    lines.push_back(str("the machine was busy: other work disturbed ", runs_of(d.left_out, turns),
                        ", which are left out", example,
                        ". Stop that work and give the same command again: it takes them anew."));
  if (d.kept > 0)
    lines.push_back(str("the machine was busy: other work disturbed ", runs_of(d.kept, turns), example,
                        ". Their times are shown, and nothing is decided by them."));
  return lines;
}

}  // namespace

std::vector<std::string> warnings(const ReportData& data) {
  std::vector<std::string> lines = disturbance_warnings(data.analysis.disturbances);
  for (const auto& more : {provenance_warnings(data.results.provenance), data_warnings(data)})
    lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

std::string machine_sentence(const ReportData& data) {
  const Disturbances& d = data.analysis.disturbances;
  if (d.runs == 0) return "";
  if (d.recorded == 0) return "What the machine did beside the runs was not recorded.";
  const size_t replaced = d.disturbed - std::min(d.disturbed, d.left_out + d.kept);
  return str("What the machine did was recorded beside ", runs_of(d.recorded, d.runs), "; ", d.disturbed,
             d.disturbed == 1 ? " was" : " were", " disturbed beyond the limits: ", replaced,
             " of them repeated, ", d.left_out, " left out, ", d.kept, " kept.");
}

Grid machine_grid(const ReportData& data) {
  struct Row {
    size_t runs = 0, disturbed = 0;
    std::map<std::string, std::vector<double>> values;
  };
  std::map<std::string, Row> rows;
  const std::vector<std::string> shown = {"machine.others_cores",     "machine.stolen_cores",
                                          "machine.runnable_others",  "machine.wait_percent",
                                          "machine.pressure_percent", "machine.calibration_before_s"};
  bool any = false;
  for (const Run& run : data.results.runs) {
    Row& row = rows[run.system];
    ++row.runs;
    row.disturbed += !run.disturbed.empty();
    for (const std::string& name : shown)
      if (const auto at = run.metrics.find(name); at != run.metrics.end()) {
        row.values[name].push_back(at->second);
        any = true;
      }
  }
  std::vector<std::string> header = {"system"};
  std::vector<size_t> numbers;
  for (const std::string& name : shown) {
    numbers.push_back(header.size());
    header.push_back(metric(name).label);
  }
  for (const char* name : {"disturbed", "runs"}) {
    numbers.push_back(header.size());
    header.emplace_back(name);
  }
  Grid grid(header, numbers);
  if (!any) return grid;
  for (const auto& [system, row] : rows) {
    std::vector<GridCell> cells = {{system}};
    for (const std::string& name : shown) {
      const auto at = row.values.find(name);
      if (at == row.values.end()) {
        cells.push_back({"unavailable", {}, "absent"});
        continue;
      }
      const Metric m = metric(name);
      const double most = *std::max_element(at->second.begin(), at->second.end());
      cells.push_back({with_unit(stats::median(at->second), m) + ", at most " + with_unit(most, m), most});
    }
    cells.push_back({std::to_string(row.disturbed), static_cast<double>(row.disturbed)});
    cells.push_back({std::to_string(row.runs), static_cast<double>(row.runs)});
    grid.add(std::move(cells));
  }
  return grid;
}

}  // namespace tandem::lab
