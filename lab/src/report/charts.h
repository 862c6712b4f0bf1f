// The report's charts, as SVG. Colours are CSS variables of the page (--ink, --line, --c0 …), so that one drawing serves
// light, dark and print. Each chart takes plain numbers and labels: what they mean was decided before. Data that cannot
// be drawn (nothing finite) give "", and the page says so in words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/src/report/scale.h"

namespace tandem::lab {

/// The colour of a system's marks: the same in every figure of a report. `place` is its place in the list of systems.
inline std::string system_colour(size_t place) { return "var(--c" + std::to_string(place % 10) + ")"; }

/// One row of a box plot or of bars. `colour` from system_colour().
struct ChartRow {
  std::string label;
  std::string colour;
  std::vector<double> values;        // the runs; drawn as dots over the box
  std::optional<Estimate> estimate;  // of bars: the value and its interval
  std::string group = {};            // rows of one group stand together under its name
};

/// Horizontal boxes: quartiles, median, whiskers to the last run within 1.5 boxes, every run a dot.
std::string box_chart(const std::string& title, const Metric& metric, const std::vector<ChartRow>& rows);
/// Horizontal bars from 0, or dots on a logarithmic axis where the values span more than two decades, with intervals.
std::string bar_chart(const std::string& title, const Metric& metric, const std::vector<ChartRow>& rows);

struct ChartPoint {
  double x = 0;
  Estimate y;  // low = high = value where there is no interval
};
struct ChartLine {
  std::string label, colour;
  std::vector<ChartPoint> points;  // in the order of x
};
/// What stands at an axis.
struct AxisName {
  std::string text;         // with the unit: "step time, ms"
  std::string better = {};  // "lower is better"; "" where neither side is
};
struct LineChart {
  std::string title;
  AxisName x_name, y_name;
  bool band = false;  // intervals as a band instead of bars
  bool log_x = false, log_y = false, y_from_zero = false;
  bool whole_x = false;  // x counts something: no ticks between whole numbers
  std::vector<ChartLine> lines;
  std::vector<std::pair<double, std::string>> marks = {};  // horizontal lines: thresholds, published values
};
std::string line_chart(const LineChart& chart);

struct ScatterPoint {
  double x = 0, y = 0;
  std::string label, colour;
};
std::string scatter_chart(const std::string& title, const Metric& x, const Metric& y,
                          const std::vector<ScatterPoint>& points);

/// Row i, column j: how many of class i were taken for j.
std::string confusion_chart(const std::string& title, const std::vector<std::vector<int64_t>>& counts);

}  // namespace tandem::lab
