// Charts of rows: box plots and bars. Rows lie horizontally, since names of systems are long.
#include <algorithm>
#include <cmath>

#include "lab/src/report/charts.h"
#include "lab/src/report/grid.h"
#include "lab/src/stats/sample.h"
#include "tandem/io/svg.h"

namespace tandem::lab {
namespace {

using io::Svg;

// Narrow, so that the letters can be read where a phone shows the whole drawing; hence names above their rows.
constexpr double kWidth = 560, kLeft = 14, kRight = 26, kNameHeight = 22, kRowHeight = 26, kGroupSpace = 8,
                 kTop = 6, kBottom = 66;

std::vector<double> finite(const std::vector<double>& values) {
  std::vector<double> kept;
  std::copy_if(values.begin(), values.end(), std::back_inserter(kept),
               [](double v) { return std::isfinite(v); });
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// A text in lines that fit the drawing, broken between words.
std::vector<std::string> lines_of(const std::string& text) {
  constexpr size_t kLetters = 54;
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (lines.empty() || text_width(lines.back()) + 1 + text_width(word) > kLetters)
      lines.push_back(word);
    else
      lines.back() += " " + word;
    begin = end + 1;
  }
  return lines;
}

/// The frame that both kinds share: groups, labels, the axis below. Calls draw(row, y, axis, unit) for each row.
template <class Draw>
std::string rows_chart(const std::string& title, const Metric& metric, const std::vector<ChartRow>& rows,
                       double low, double high, bool logarithmic, bool from_zero, Draw draw) {
  const Unit unit = unit_for(metric, high);
  double height = kTop + kBottom;
  std::string group;
  for (const ChartRow& row : rows) {
    if (row.group != group) {
      group = row.group;
      height += kGroupSpace + kNameHeight * static_cast<double>(lines_of(group).size());
    }
    height += kRowHeight + kNameHeight * static_cast<double>(lines_of(row.label).size());
  }
  Svg svg = Svg::in_page(kWidth, height, title);
  const Axis axis =
      make_axis(low * unit.factor, high * unit.factor, kLeft, kWidth - kRight, logarithmic, from_zero);
  const double bottom = height - kBottom;
  for (const double tick : axis.ticks) {
    svg.line(axis.at(tick), kTop, axis.at(tick), bottom, {"grid"});
    svg.text(axis.at(tick), bottom + 17, tick_text(tick), Svg::Anchor::middle, "tick");
  }
  svg.line(kLeft, bottom, kWidth - kRight, bottom, {"axis"});
  svg.text(kWidth / 2, bottom + 38, axis_name(metric, unit) + (axis.logarithmic ? " (logarithmic)" : ""),
           Svg::Anchor::middle, "axis-name");
  svg.text(kWidth / 2, bottom + 58, better_text(metric), Svg::Anchor::middle, "axis-name");
  double y = kTop;
  const auto write = [&](const std::string& text, const char* kind) {
    for (const std::string& line : lines_of(text)) {
      svg.text(kLeft, y + 17, line, Svg::Anchor::start, kind);
      y += kNameHeight;
    }
  };
  group.clear();
  for (const ChartRow& row : rows) {
    if (row.group != group) {
      group = row.group;
      y += kGroupSpace;
      write(group, "group");
    }
    write(row.label, "label");
    draw(svg, row, y + kRowHeight / 2, axis, unit);
    y += kRowHeight;
  }
  return svg.finish();
}

}  // namespace

std::string box_chart(const std::string& title, const Metric& metric, const std::vector<ChartRow>& rows) {
  std::vector<ChartRow> drawn;
  double low = INFINITY, high = -INFINITY;
  for (ChartRow row : rows) {
    row.values = finite(row.values);
    if (row.values.empty()) continue;
    low = std::min(low, row.values.front());
    high = std::max(high, row.values.back());
    drawn.push_back(std::move(row));
  }
  if (drawn.empty()) return "";
  // Systems that differ by more than a decade would hide each other's boxes on a linear axis.
  const bool logarithmic = low > 0 && high / low > 8;
  return rows_chart(title, metric, drawn, low, high, logarithmic, false,
                    [&](Svg& svg, const ChartRow& row, double y, const Axis& axis, const Unit& unit) {
                      const auto& v = row.values;
                      const auto x = [&](double value) { return axis.at(value * unit.factor); };
                      const double q1 = stats::sorted_quantile(v, 0.25),
                                   median = stats::sorted_quantile(v, 0.5),
                                   q3 = stats::sorted_quantile(v, 0.75);
                      const double reach = 1.5 * (q3 - q1);
                      const double least = *std::lower_bound(v.begin(), v.end(), q1 - reach);
                      const double most = *std::prev(std::upper_bound(v.begin(), v.end(), q3 + reach));
                      const std::string hover = row.label + ": median " + with_unit(median, metric) +
                                                ", half of the runs " + with_unit(q1, metric) + " to " +
                                                with_unit(q3, metric) + ", " + std::to_string(v.size()) +
                                                (v.size() == 1 ? " run" : " runs");
                      svg.line(x(least), y, x(most), y, {"stroke", row.colour, hover, 1.5});
                      svg.rect(x(q1), y - 8, std::max(x(q3) - x(q1), 1.0), 16, {"box", row.colour, hover});
                      for (size_t i = 0; i < v.size();
                           ++i)  // dots of equal runs are spread a little, by place and not by chance
                        svg.circle(x(v[i]), y + (static_cast<double>(i * 7 % 5) - 2) * 2.2, 2.2,
                                   {"dot", row.colour, with_unit(v[i], metric)});
                      svg.line(x(median), y - 9, x(median), y + 9, {"stroke", row.colour, hover, 3});
                    });
}

std::string bar_chart(const std::string& title, const Metric& metric, const std::vector<ChartRow>& rows) {
  std::vector<ChartRow> drawn;
  double low = INFINITY, high = -INFINITY;
  for (const ChartRow& row : rows) {
    if (!row.estimate || !std::isfinite(row.estimate->value)) continue;
    drawn.push_back(row);
    const Estimate& e = *row.estimate;
    low = std::min({low, e.value, std::isfinite(e.low) ? e.low : e.value});
    high = std::max({high, e.value, std::isfinite(e.high) ? e.high : e.value});
  }
  if (drawn.empty()) return "";
  const bool logarithmic = low > 0 && high / low > 100;
  return rows_chart(
      title, metric, drawn, low, high, logarithmic, true,
      [&](Svg& svg, const ChartRow& row, double y, const Axis& axis, const Unit& unit) {
        const Estimate& e = *row.estimate;
        const auto x = [&](double value) { return axis.at(value * unit.factor); };
        const std::string hover = row.label + ": " + with_unit(e.value, metric) +
                                  (row.values.size() == 1 ? " (one run)"
                                   : e.low < e.high ? " (95 % interval " + with_unit(e.low, metric) + " to " +
                                                          with_unit(e.high, metric) + ")"
                                                    : "");
        if (axis.logarithmic) {
          svg.circle(x(e.value), y, 5,
                     {"dot", row.colour, hover});  // a bar's length means nothing on such an axis
        } else {
          const double zero = axis.at(std::clamp(0.0, axis.low, axis.high));
          svg.rect(std::min(zero, x(e.value)), y - 9, std::abs(x(e.value) - zero), 18,
                   {"bar", row.colour, hover});
        }
        if (std::isfinite(e.low) && std::isfinite(e.high) && e.high > e.low) {
          svg.line(x(e.low), y, x(e.high), y, {"whisker"});
          svg.line(x(e.low), y - 4, x(e.low), y + 4, {"whisker"});
          svg.line(x(e.high), y - 4, x(e.high), y + 4, {"whisker"});
        }
      });
}

}  // namespace tandem::lab
