// Plots of lines and maps.
#include "tandem/train/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>

#include "tandem/core/error.h"
#include "tandem/core/shape.h"
#include "tandem/io/svg.h"

namespace tandem {
namespace {

using Anchor = io::Svg::Anchor;

/// Round numbers around the values, at least `least` apart; around a single value, as far as half its size.
std::vector<double> ticks(double low, double high, int count, double least) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > 1e-9 * size + 1e-290)) {  // as good as one number: steps would be lost in rounding
    const double around = size < 1e-290 ? 1 : size / 2;
    low -= around;
    high += around;
  }
  return io::round_ticks(low, high, count, least);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", std::abs(value) < 1e-12 ? 0.0 : value);
  return text;
}

constexpr const char* kStyle = R"(
text { font: 13px system-ui, sans-serif; fill: #333 }
.title { font-size: 16px; font-weight: 600 }
.grid { stroke: #8884; stroke-width: 1 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.c0 { stroke: #2563eb } .c1 { stroke: #ea580c } .c2 { stroke: #16a34a } .c3 { stroke: #9333ea }
.d0 { fill: #2563eb } .d1 { fill: #ea580c } .d2 { fill: #16a34a } .d3 { fill: #9333ea }
@media (prefers-color-scheme: dark) {
text { fill: #ddd }
.c0 { stroke: #60a5fa } .c1 { stroke: #fb923c } .c2 { stroke: #4ade80 } .c3 { stroke: #c084fc }
.d0 { fill: #60a5fa } .d1 { fill: #fb923c } .d2 { fill: #4ade80 } .d3 { fill: #c084fc }
}
)";

/// A picture with a frame for the plot inside.
class Drawing {
 public:
  Drawing(int width, int height)
      : width_(width), height_(height), svg_(io::Svg::file(width, height, kStyle)) {}
  double left = 64, top = 44;
  /// Makes room for the numbers of the y axis, and for its label where there is one.
  void leave_room_for(const std::vector<double>& y_ticks, bool has_label) {
    constexpr double kDigit = 7.5, kLabel = 28;
    for (const double v : y_ticks)
      left = std::max(left, kDigit * static_cast<double>(number(v).size()) + 12 + (has_label ? kLabel : 0));
  }
  double right() const { return width_ - 20; }
  double bottom() const { return height_ - 46; }

  io::Svg& svg() { return svg_; }
  void grid(double x1, double y1, double x2, double y2) { svg_.line(x1, y1, x2, y2, {"grid"}); }
  void x_tick(double x, double value) {
    grid(x, bottom(), x, bottom() + 5);
    svg_.text(x, bottom() + 20, number(value), Anchor::middle);
  }
  void y_tick(double y, double value) { svg_.text(left - 8, y + 4, number(value), Anchor::end); }
  /// A dot, or at the edge an arrow to where it would be: beyond is -1 below the frame, 1 above it.
  void point(double x, double y, int beyond, const io::Mark& mark) {
    const double base = y + 7 * beyond;
    if (beyond == 0)
      svg_.circle(x, y, 3, mark);
    else
      svg_.polygon({{x, y}, {x - 4, base}, {x + 4, base}}, mark);
  }
  void labels(const std::string& title, const std::string& x, const std::string& y) {
    svg_.text(left, 22, title, Anchor::start, "title");
    svg_.text((left + right()) / 2, height_ - 8, x, Anchor::middle);
    svg_.text(16, (top + bottom()) / 2, y, Anchor::middle, "", -90);
  }

 private:
  int width_, height_;
  io::Svg svg_;
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
};

void check_series(const Series& line) {
  TD_CHECK(line.x.size() == line.y.size(), "plot: a line must have as many x as y; got ", line.x.size(),
           " and ", line.y.size(), ".");
  for (const auto* values : {&line.x, &line.y})
    for (const double v : *values)
      TD_CHECK(std::fabs(v) <= 1e300, "plot: numbers must be finite; got ", v, " in '", line.label,
               "'. Leave it out.");
}

/// The ranges of all x and of all y, or of what y_range says.
std::pair<Range, Range> ranges(const Chart& chart) {
  Range x, y;
  for (const Series& line : chart.series) {
    check_series(line);
    for (const double v : line.x) x.add(v);
    for (const double v : line.y) y.add(v);
  }
  if (x.low > x.high) x = y = {0, 0};
  if (chart.y_range) {
    std::tie(y.low, y.high) = *chart.y_range;
    TD_CHECK(std::fabs(y.low) <= 1e300 && std::fabs(y.high) <= 1e300 && y.low <= y.high,
             "plot: y_range must be two finite numbers, the lesser first; got ", y.low, " and ", y.high, ".");
  }
  return {x, y};
}

/// Counts, like epochs: their axis has no ticks between them.
bool has_whole_x(const Chart& chart) {
  const auto is_whole = [](double v) { return v == std::floor(v); };
  return std::all_of(chart.series.begin(), chart.series.end(),
                     [&](const Series& line) { return std::all_of(line.x.begin(), line.x.end(), is_whole); });
}

/// A frame with axes, and where a value lies in it.
struct Plot {
  explicit Plot(const Chart& chart) : drawing(chart.width, chart.height) {
    std::tie(x, y) = ranges(chart);
    const std::vector<double> y_ticks = ticks(y.low, y.high, 6, 0);
    drawing.leave_room_for(y_ticks, !chart.y_label.empty());
    std::vector<double> x_ticks = ticks(x.low, x.high, 8, has_whole_x(chart) ? 1 : 0);
    if (x.low < x.high)  // the line begins and ends at the frame
      std::erase_if(x_ticks, [&](double v) { return v < x.low || v > x.high; });
    else
      x = {x_ticks.front(), x_ticks.back()};
    y.add(y_ticks.front());
    y.add(y_ticks.back());

    drawing.labels(chart.title, chart.x_label, chart.y_label);
    for (const double v : y_ticks) {
      drawing.grid(drawing.left, at_y(v), drawing.right(), at_y(v));
      drawing.y_tick(at_y(v), v);
    }
    for (const double v : x_ticks) drawing.x_tick(at_x(v), v);
  }
  double at_x(double v) const {
    return drawing.left + (v - x.low) / (x.high - x.low) * (drawing.right() - drawing.left);
  }
  double at_y(double v) const {
    const double share = (std::clamp(v, y.low, y.high) - y.low) / (y.high - y.low);
    return drawing.bottom() - share * (drawing.bottom() - drawing.top);
  }

  Drawing drawing;
  Range x, y;
};

void draw_series(Plot& plot, const Series& line, const std::string& colour) {
  if (!line.points) {
    io::Svg::Points points;
    for (size_t k = 0; k < line.x.size(); ++k)
      points.emplace_back(plot.at_x(line.x[k]), plot.at_y(line.y[k]));
    plot.drawing.svg().lines(points, {"line c" + colour});
  }
  if (!line.points && line.x.size() > 60) return;
  for (size_t k = 0; k < line.x.size(); ++k) {
    const double x = line.x[k], y = line.y[k];
    plot.drawing.point(plot.at_x(x), plot.at_y(y),
                       y < plot.y.low    ? -1
                       : y > plot.y.high ? 1
                                         : 0,
                       {.kind = "d" + colour, .hover = str(line.label, " ", number(x), ": ", number(y))});
  }
}

}  // namespace

std::string line_chart(const Chart& chart) {
  Plot plot(chart);
  double legend = plot.drawing.right();
  for (size_t i = chart.series.size(); i-- > 0;) {
    const Series& line = chart.series[i];
    if (line.x.empty()) continue;
    const std::string colour = str(i % 4);
    draw_series(plot, line, colour);
    const double wide = 8.0 * static_cast<double>(line.label.size());
    plot.drawing.svg().text(legend, 22, line.label, Anchor::end);
    plot.drawing.svg().line(legend - wide - 26, 18, legend - wide - 6, 18, {"line c" + colour});
    legend -= wide + 42;
  }
  return plot.drawing.svg().finish();
}

std::pair<double, double> usual_range(std::vector<double> values, double must) {
  constexpr double kFar = 20, kFarOfFew = 100, kLeast = 0.1;
  constexpr size_t kFew = 5;  // so few tell little of what is usual
  values.push_back(must);
  const auto middle = [](std::vector<double> all) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
    std::nth_element(all.begin(), at, all.end());
    return *at;
  };
  const double usual = middle(values), size = std::max(std::abs(usual), std::abs(must));
  std::vector<double> distances;
  for (const double v : values) distances.push_back(std::abs(v - usual));
  const double spread = middle(distances), far = values.size() < kFew
                                                     ? kFarOfFew * std::max(spread, size)
                                                     : std::max(kFar * spread, kLeast * size);
  std::pair<double, double> range = {must, must};
  for (const double v : values) {
    if (far > 0 && std::abs(v - usual) > far && std::abs(v - must) > far) continue;
    range.first = std::min(range.first, v);
    range.second = std::max(range.second, v);
  }
  return range;
}

std::string heat_map(const HeatMap& map) {
  constexpr int64_t kMostColumns = 200, kMostRows = 120;
  constexpr int kLevels = 32;
  TD_CHECK(map.columns >= 1 && map.rows >= 1 &&
               static_cast<size_t>(times_capped(map.columns, map.rows)) == map.values.size(),
           "plot: a map must have as many numbers as rows times columns; got ", map.values.size(), " for ",
           map.rows, " and ", map.columns, ".");
  const int64_t columns = std::min(map.columns, kMostColumns), rows = std::min(map.rows, kMostRows);
  std::vector<int> levels(static_cast<size_t>(columns * rows));
  for (int64_t i = 0; i < map.rows; ++i)
    for (int64_t k = 0; k < map.columns; ++k) {
      const double value = map.values[static_cast<size_t>(i * map.columns + k)];
      TD_CHECK(value >= 0 && value <= 1, "plot: a map must have numbers from 0 to 1; got ", value, " at ", i,
               ", ", k, ".");
      int& level = levels[static_cast<size_t>(i * rows / map.rows * columns + k * columns / map.columns)];
      level = std::max(level, static_cast<int>(std::lround(value * kLevels)));
    }
  Drawing drawing(map.width, map.height);
  const double left = drawing.left, top = drawing.top,
               wide = (drawing.right() - left) / static_cast<double>(columns),
               high = (drawing.bottom() - top) / static_cast<double>(rows);
  drawing.labels(map.title, map.x_label, map.y_label);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < columns;) {  // neighbours of one level are one shape
      const int level = levels[static_cast<size_t>(i * columns + k)];
      int64_t end = k + 1;
      while (end < columns && levels[static_cast<size_t>(i * columns + end)] == level) ++end;
      if (level > 0)
        drawing.svg().rect(left + wide * static_cast<double>(k),
                           drawing.bottom() - high * static_cast<double>(i + 1),
                           wide * static_cast<double>(end - k) + 0.1, high + 0.1,
                           {.kind = "d0", .opacity = static_cast<double>(level) / kLevels});
      k = end;
    }
  const auto along = [](int64_t count, const auto& tick) {  // the scale of an axis
    for (const double v : ticks(0, static_cast<double>(count), 6, 1))
      if (v <= static_cast<double>(count)) tick(v, v / static_cast<double>(count));
  };
  along(map.columns,
        [&](double v, double share) { drawing.x_tick(left + share * (drawing.right() - left), v); });
  along(map.rows, [&](double v, double share) {
    drawing.y_tick(drawing.bottom() - share * (drawing.bottom() - top), v);
  });
  drawing.grid(left, drawing.bottom(), drawing.right(), drawing.bottom());
  drawing.grid(left, top, left, drawing.bottom());
  return drawing.svg().finish();
}

}  // namespace tandem
