// Plots of lines and maps.
#include "tandem/train/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "tandem/core/error.h"
#include "tandem/core/shape.h"

namespace tandem {
namespace {

/// Round numbers from below `low` to above `high`, about `count` of them, at least `least` apart.
std::vector<double> ticks(double low, double high, int count, double least) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > 1e-9 * size + 1e-290)) {  // as good as one number: steps would be lost in rounding
    const double around = size < 1e-290 ? 1 : size / 2;
    low -= around;
    high += around;
  }
  const double rough = (high - low) / count;
  const double ten = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * ten;
  for (const double multiple : {1.0, 2.0, 5.0})
    if (rough <= multiple * ten) {
      step = multiple * ten;
      break;
    }
  step = std::max(step, least);
  std::vector<double> out;
  const double first = std::floor(low / step), last = std::ceil(high / step);
  for (double i = first; i <= last; ++i) out.push_back(i * step);
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", std::abs(value) < 1e-12 ? 0.0 : value);
  return text;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

constexpr const char* kStyle = R"(<style>
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
</style>
)";

/// A picture with a frame for the plot inside.
class Drawing {
 public:
  Drawing(int width, int height) : width_(width), height_(height) {
    out_ = str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height, "\" width=\"",
               width, "\" height=\"", height, "\" role=\"img\">\n", kStyle);
  }
  double left = 64, top = 44;
  /// Makes room for the numbers of the y axis, and for its label where there is one.
  void leave_room_for(const std::vector<double>& y_ticks, bool has_label) {
    constexpr double kDigit = 7.5, kLabel = 28;
    for (const double v : y_ticks)
      left = std::max(left, kDigit * static_cast<double>(number(v).size()) + 12 + (has_label ? kLabel : 0));
  }
  double right() const { return width_ - 20; }
  double bottom() const { return height_ - 46; }

  void add(const std::string& shape) { out_ += shape; }
  void text(double x, double y, const char* anchor, const std::string& what, const std::string& more = "") {
    out_ += str("<text x=\"", fixed(x), "\" y=\"", fixed(y), "\" text-anchor=\"", anchor, "\"", more, ">",
                escaped(what), "</text>\n");
  }
  void grid(double x1, double y1, double x2, double y2) {
    out_ += str("<line class=\"grid\" x1=\"", fixed(x1), "\" y1=\"", fixed(y1), "\" x2=\"", fixed(x2),
                "\" y2=\"", fixed(y2), "\"/>\n");
  }
  void x_tick(double x, double value) {
    grid(x, bottom(), x, bottom() + 5);
    text(x, bottom() + 20, "middle", number(value));
  }
  /// A dot, or at the edge an arrow to where it would be: beyond is -1 below the frame, 1 above it.
  void point(double x, double y, int beyond, size_t colour, const std::string& title) {
    const std::string shown = "><title>" + escaped(title) + "</title></";
    if (beyond == 0) {
      add(str("<circle class=\"d", colour, "\" cx=\"", fixed(x), "\" cy=\"", fixed(y), "\" r=\"3\"", shown,
              "circle>\n"));
      return;
    }
    const double base = y + 7 * beyond;
    add(str("<polygon class=\"d", colour, "\" points=\"", fixed(x), ",", fixed(y), " ", fixed(x - 4), ",",
            fixed(base), " ", fixed(x + 4), ",", fixed(base), "\"", shown, "polygon>\n"));
  }
  void y_tick(double y, double value) { text(left - 8, y + 4, "end", number(value)); }
  void labels(const std::string& title, const std::string& x, const std::string& y) {
    text(left, 22, "start", title, " class=\"title\"");
    text((left + right()) / 2, height_ - 8, "middle", x);
    const double middle = (top + bottom()) / 2;
    if (!y.empty()) text(16, middle, "middle", y, str(" transform=\"rotate(-90 16 ", fixed(middle), ")\""));
  }
  std::string finished() { return out_ + "</svg>\n"; }

 private:
  int width_, height_;
  std::string out_;
};

}  // namespace

std::string line_chart(const Chart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low_x = kInfinity, high_x = -kInfinity, low_y = kInfinity, high_y = -kInfinity;
  for (const Series& line : chart.series) {
    TD_CHECK(line.x.size() == line.y.size(), "plot: a line must have as many x as y; got ", line.x.size(),
             " and ", line.y.size(), ".");
    for (const auto* values : {&line.x, &line.y})
      for (const double v : *values)
        TD_CHECK(std::fabs(v) <= 1e300, "plot: numbers must be finite; got ", v, " in '", line.label,
                 "'. Leave it out.");
    for (const double v : line.x) low_x = std::min(low_x, v), high_x = std::max(high_x, v);
    for (const double v : line.y) low_y = std::min(low_y, v), high_y = std::max(high_y, v);
  }
  if (low_x > high_x) low_x = high_x = low_y = high_y = 0;
  if (chart.y_range) {
    std::tie(low_y, high_y) = *chart.y_range;
    TD_CHECK(std::fabs(low_y) <= 1e300 && std::fabs(high_y) <= 1e300 && low_y <= high_y,
             "plot: y_range must be two finite numbers, the lesser first; got ", low_y, " and ", high_y, ".");
  }
  Drawing drawing(chart.width, chart.height);
  const std::vector<double> y_ticks = ticks(low_y, high_y, 6, 0);
  drawing.leave_room_for(y_ticks, !chart.y_label.empty());
  const double left = drawing.left, right = drawing.right(), top = drawing.top, bottom = drawing.bottom();
  bool is_whole = true;  // counts, like epochs: no ticks between them
  for (const Series& line : chart.series)
    for (const double v : line.x) is_whole = is_whole && v == std::floor(v);
  std::vector<double> x_ticks = ticks(low_x, high_x, 8, is_whole ? 1 : 0);
  if (low_x < high_x) {  // the line begins and ends at the frame
    std::erase_if(x_ticks, [&](double v) { return v < low_x || v > high_x; });
  } else {
    low_x = x_ticks.front(), high_x = x_ticks.back();
  }
  low_y = y_ticks.front(), high_y = y_ticks.back();
  const auto px = [&](double v) { return left + (v - low_x) / (high_x - low_x) * (right - left); };
  const auto py = [&](double v) {
    return bottom - (std::clamp(v, low_y, high_y) - low_y) / (high_y - low_y) * (bottom - top);
  };

  drawing.labels(chart.title, chart.x_label, chart.y_label);
  for (const double v : y_ticks) {
    drawing.grid(left, py(v), right, py(v));
    drawing.y_tick(py(v), v);
  }
  for (const double v : x_ticks) drawing.x_tick(px(v), v);

  double legend = right;
  for (size_t i = chart.series.size(); i-- > 0;) {
    const Series& line = chart.series[i];
    if (line.x.empty()) continue;
    const size_t colour = i % 4;
    if (!line.points) {
      std::string points;
      for (size_t k = 0; k < line.x.size(); ++k)
        points += str(k ? " " : "", fixed(px(line.x[k])), ",", fixed(py(line.y[k])));
      drawing.add(str("<polyline class=\"line c", colour, "\" points=\"", points, "\"/>\n"));
    }
    if (line.points || line.x.size() <= 60)
      for (size_t k = 0; k < line.x.size(); ++k)
        drawing.point(px(line.x[k]), py(line.y[k]),
                      line.y[k] < low_y    ? -1
                      : line.y[k] > high_y ? 1
                                           : 0,
                      colour, str(line.label, " ", number(line.x[k]), ": ", number(line.y[k])));
    const double wide = 8.0 * static_cast<double>(line.label.size());
    drawing.text(legend, 22, "end", line.label);
    drawing.add(str("<line class=\"line c", colour, "\" x1=\"", fixed(legend - wide - 26),
                    "\" y1=\"18\" x2=\"", fixed(legend - wide - 6), "\" y2=\"18\"/>\n"));
    legend -= wide + 42;
  }
  return drawing.finished();
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
        drawing.add(str("<rect class=\"d0\" x=\"", fixed(left + wide * static_cast<double>(k)), "\" y=\"",
                        fixed(drawing.bottom() - high * static_cast<double>(i + 1)), "\" width=\"",
                        fixed(wide * static_cast<double>(end - k) + 0.1), "\" height=\"", fixed(high + 0.1),
                        "\" opacity=\"", number(static_cast<double>(level) / kLevels), "\"/>\n"));
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
  return drawing.finished();
}

}  // namespace tandem
