// Charts with two axes: lines with intervals or bands, scattered points, and the confusion matrix.
#include <algorithm>
#include <cmath>
#include <map>

#include "lab/src/report/charts.h"
#include "lab/src/report/grid.h"
#include "tandem/io/svg.h"

namespace tandem::lab {
namespace {

using io::Svg;

constexpr double kWidth = 560, kHeight = 340, kLeft = 74, kRight = 20, kTop = 14, kBottom = 48,
                 kBetter = 20;  // the words which side is better, below the name of x

/// Axes, grid and names; the plot lies between the margins, from `top` to `bottom`.
void draw_frame(Svg& svg, const Axis& x, const Axis& y, const AxisName& x_name, const AxisName& y_name,
                double top, double bottom) {
  for (const double tick : x.ticks) {
    svg.line(x.at(tick), top, x.at(tick), bottom, {"grid"});
    svg.text(x.at(tick), bottom + 17, tick_text(tick), Svg::Anchor::middle, "tick");
  }
  for (const double tick : y.ticks) {
    svg.line(kLeft, y.at(tick), kWidth - kRight, y.at(tick), {"grid"});
    svg.text(kLeft - 8, y.at(tick) + 4, tick_text(tick), Svg::Anchor::end, "tick");
  }
  svg.line(kLeft, bottom, kWidth - kRight, bottom, {"axis"});
  svg.line(kLeft, top, kLeft, bottom, {"axis"});
  svg.text(kWidth / 2, bottom + 38, x_name.text, Svg::Anchor::middle, "axis-name");
  svg.text(kWidth / 2, bottom + 58, x_name.better, Svg::Anchor::middle, "axis-name");
  svg.text(4, top - 34, y_name.text, Svg::Anchor::start, "axis-name");
  svg.text(4, top - 14, y_name.better, Svg::Anchor::start, "axis-name");
}

/// Names in lines above the plot; returns their height. About 9 pixels per letter, as large as a phone shows them.
double draw_legend(Svg* svg, const std::vector<std::pair<std::string, std::string>>& entries) {
  double x = kLeft, y = kTop + 6;
  for (const auto& [label, colour] : entries) {
    const double width = 36 + 9 * static_cast<double>(text_width(label));
    if (x > kLeft && x + width > kWidth - kRight) x = kLeft, y += 20;
    if (svg) {
      svg->rect(x, y - 5, 14, 5, {"bar", colour});
      svg->text(x + 19, y + 2, label, Svg::Anchor::start, "label");
    }
    x += width;
  }
  return y + 22 - kTop;
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  std::vector<ChartLine> lines;
  for (ChartLine line : chart.lines) {
    std::erase_if(line.points,
                  [](const ChartPoint& p) { return !std::isfinite(p.x) || !std::isfinite(p.y.value); });
    if (line.points.empty()) continue;
    for (ChartPoint& p : line.points) {
      if (!std::isfinite(p.y.low)) p.y.low = p.y.value;
      if (!std::isfinite(p.y.high)) p.y.high = p.y.value;
      x_low = std::min(x_low, p.x);
      x_high = std::max(x_high, p.x);
      y_low = std::min(y_low, std::min(p.y.low, p.y.value));
      y_high = std::max(y_high, std::max(p.y.high, p.y.value));
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return "";
  for (const auto& [value, label] : chart.marks)
    if (std::isfinite(value)) y_low = std::min(y_low, value), y_high = std::max(y_high, value);

  std::vector<std::pair<std::string, std::string>> entries;
  for (const ChartLine& line : lines) entries.emplace_back(line.label, line.colour);
  const double top = kTop + draw_legend(nullptr, entries) + 44,
               bottom = top + kHeight - kTop - kBottom - kBetter;
  Svg svg = Svg::in_page(kWidth, bottom + kBottom + (chart.x_name.better.empty() ? 0 : kBetter), chart.title);
  draw_legend(&svg, entries);
  const Axis x = make_axis(x_low, x_high, kLeft, kWidth - kRight, chart.log_x, false, chart.whole_x);
  const Axis y = make_axis(y_low, y_high, bottom, top, chart.log_y, chart.y_from_zero);
  draw_frame(svg, x, y, chart.x_name, chart.y_name, top, bottom);
  for (const auto& [value, label] : chart.marks) {
    if (!std::isfinite(value)) continue;
    svg.line(kLeft, y.at(value), kWidth - kRight, y.at(value), {"mark"});
    svg.text(kWidth - kRight - 4, y.at(value) - 4, label, Svg::Anchor::end, "tick");
  }
  for (const ChartLine& line : lines) {
    Svg::Points middle, band;
    for (const ChartPoint& p : line.points) {
      middle.emplace_back(x.at(p.x), y.at(p.y.value));
      band.emplace_back(x.at(p.x), y.at(p.y.high));
      if (!chart.band && p.y.high > p.y.low)
        svg.line(x.at(p.x), y.at(p.y.low), x.at(p.x), y.at(p.y.high), {"whisker"});
    }
    if (chart.band) {
      for (auto p = line.points.rbegin(); p != line.points.rend(); ++p)
        band.emplace_back(x.at(p->x), y.at(p->y.low));
      svg.polygon(band, {"band", line.colour});
    }
    svg.lines(middle, {"line", line.colour, line.label});
    if (line.points.size() <= 60)
      for (const ChartPoint& p : line.points)
        svg.circle(
            x.at(p.x), y.at(p.y.value), 3,
            {"dot", line.colour, line.label + ": " + number_text(p.y.value) + " at " + number_text(p.x)});
  }
  return svg.finish();
}

std::string scatter_chart(const std::string& title, const Metric& x_metric, const Metric& y_metric,
                          const std::vector<ScatterPoint>& points) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  std::map<std::string, std::string> labels;
  for (const ScatterPoint& p : points) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) continue;
    x_low = std::min(x_low, p.x), x_high = std::max(x_high, p.x);
    y_low = std::min(y_low, p.y), y_high = std::max(y_high, p.y);
    labels[p.label] = p.colour;
  }
  if (labels.empty()) return "";
  const std::vector<std::pair<std::string, std::string>> entries(labels.begin(), labels.end());
  const Unit x_unit = unit_for(x_metric, x_high), y_unit = unit_for(y_metric, y_high);
  const double top = kTop + draw_legend(nullptr, entries) + 44,
               bottom = top + kHeight - kTop - kBottom - kBetter;
  Svg svg = Svg::in_page(kWidth, bottom + kBottom + (better_text(x_metric).empty() ? 0 : kBetter), title);
  draw_legend(&svg, entries);
  const Axis x = make_axis(x_low * x_unit.factor, x_high * x_unit.factor, kLeft, kWidth - kRight);
  const Axis y = make_axis(y_low * y_unit.factor, y_high * y_unit.factor, bottom, top);
  draw_frame(svg, x, y, {axis_name(x_metric, x_unit), better_text(x_metric)},
             {axis_name(y_metric, y_unit), better_text(y_metric)}, top, bottom);
  for (const ScatterPoint& p : points)
    if (std::isfinite(p.x) && std::isfinite(p.y))
      svg.circle(
          x.at(p.x * x_unit.factor), y.at(p.y * y_unit.factor), 3.5,
          {"dot", p.colour, p.label + ": " + with_unit(p.x, x_metric) + ", " + with_unit(p.y, y_metric)});
  return svg.finish();
}

std::string confusion_chart(const std::string& title, const std::vector<std::vector<int64_t>>& counts) {
  const size_t classes = counts.size();
  if (classes == 0) return "";
  const double cell = std::clamp(480.0 / static_cast<double>(classes), 4.0, 48.0), left = 44, top = 44;
  const double side = cell * static_cast<double>(classes);
  Svg svg = Svg::in_page(kWidth, top + side + 50, title);
  for (size_t i = 0; i < classes; ++i) {
    int64_t total = 0;
    for (const int64_t n : counts[i]) total += n;
    for (size_t j = 0; j < counts[i].size() && j < classes; ++j) {
      const double share = total > 0 ? static_cast<double>(counts[i][j]) / static_cast<double>(total) : 0;
      const double x = left + cell * static_cast<double>(j), y = top + cell * static_cast<double>(i);
      const std::string mix = "color-mix(in srgb, var(--" + std::string(i == j ? "c2" : "c3") + ") " +
                              io::pixels(100 * std::sqrt(share)) + "%, var(--sunk))";
      svg.rect(x, y, cell - 1, cell - 1,
               {"cell", mix,
                std::to_string(counts[i][j]) + " of class " + std::to_string(i) + " taken for " +
                    std::to_string(j)});
      if (cell >= 24 && counts[i][j] > 0)
        svg.text(x + cell / 2, y + cell / 2 + 4, std::to_string(counts[i][j]), Svg::Anchor::middle,
                 share > 0.4 ? "tick filled" : "tick");
    }
    if (cell >= 12) {
      svg.text(left - 6, top + cell * (static_cast<double>(i) + 0.5) + 4, std::to_string(i), Svg::Anchor::end,
               "tick");
      svg.text(left + cell * (static_cast<double>(i) + 0.5), top + side + 15, std::to_string(i),
               Svg::Anchor::middle, "tick");
    }
  }
  svg.text(4, top - 26, "down: the true class, number", Svg::Anchor::start, "axis-name");
  svg.text(4, top - 8, "cells: test samples; more on the diagonal is better", Svg::Anchor::start,
           "axis-name");
  svg.text(left, top + side + 38, "across: the class that it was taken for, number", Svg::Anchor::start,
           "axis-name");
  return svg.finish();
}

}  // namespace tandem::lab
