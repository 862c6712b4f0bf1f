// Plots of lines.
#include "tandem/train/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/core/error.h"

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
  const double left = 64, right = chart.width - 20, top = 44, bottom = chart.height - 46;
  bool is_whole = true;  // counts, like epochs: no ticks between them
  for (const Series& line : chart.series)
    for (const double v : line.x) is_whole = is_whole && v == std::floor(v);
  std::vector<double> x_ticks = ticks(low_x, high_x, 8, is_whole ? 1 : 0);
  const std::vector<double> y_ticks = ticks(low_y, high_y, 6, 0);
  if (low_x < high_x) {  // the line begins and ends at the frame
    std::erase_if(x_ticks, [&](double v) { return v < low_x || v > high_x; });
  } else {
    low_x = x_ticks.front(), high_x = x_ticks.back();
  }
  low_y = y_ticks.front(), high_y = y_ticks.back();
  const auto px = [&](double v) { return left + (v - low_x) / (high_x - low_x) * (right - left); };
  const auto py = [&](double v) { return bottom - (v - low_y) / (high_y - low_y) * (bottom - top); };

  std::string out =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", chart.width, " ", chart.height,
          "\" width=\"", chart.width, "\" height=\"", chart.height, "\" role=\"img\">\n", kStyle);
  const auto text = [&](double x, double y, const char* anchor, const std::string& what,
                        const char* more = "") {
    out += cat("<text x=\"", fixed(x), "\" y=\"", fixed(y), "\" text-anchor=\"", anchor, "\"", more, ">",
               escaped(what), "</text>\n");
  };
  const auto grid = [&](double x1, double y1, double x2, double y2) {
    out += cat("<line class=\"grid\" x1=\"", fixed(x1), "\" y1=\"", fixed(y1), "\" x2=\"", fixed(x2),
               "\" y2=\"", fixed(y2), "\"/>\n");
  };
  text(left, 22, "start", chart.title, " class=\"title\"");
  for (const double v : y_ticks) {
    grid(left, py(v), right, py(v));
    text(left - 8, py(v) + 4, "end", number(v));
  }
  for (const double v : x_ticks) {
    grid(px(v), bottom, px(v), bottom + 5);
    text(px(v), bottom + 20, "middle", number(v));
  }
  text((left + right) / 2, chart.height - 8, "middle", chart.x_label);
  if (!chart.y_label.empty())
    text(16, (top + bottom) / 2, "middle", chart.y_label,
         cat(" transform=\"rotate(-90 16 ", fixed((top + bottom) / 2), ")\"").c_str());

  double legend = right;
  for (size_t i = chart.series.size(); i-- > 0;) {
    const Series& line = chart.series[i];
    if (line.x.empty()) continue;
    const size_t colour = i % 4;
    if (!line.points) {
      out += cat("<polyline class=\"line c", colour, "\" points=\"");
      for (size_t k = 0; k < line.x.size(); ++k)
        out += cat(k ? " " : "", fixed(px(line.x[k])), ",", fixed(py(line.y[k])));
      out += "\"/>\n";
    }
    if (line.points || line.x.size() <= 60)
      for (size_t k = 0; k < line.x.size(); ++k)
        out += cat("<circle class=\"d", colour, "\" cx=\"", fixed(px(line.x[k])), "\" cy=\"",
                   fixed(py(line.y[k])), "\" r=\"3\"><title>", escaped(line.label), " ", number(line.x[k]),
                   ": ", number(line.y[k]), "</title></circle>\n");
    const double wide = 8.0 * static_cast<double>(line.label.size());
    text(legend, 22, "end", line.label);
    out += cat("<line class=\"line c", colour, "\" x1=\"", fixed(legend - wide - 26), "\" y1=\"18\" x2=\"",
               fixed(legend - wide - 6), "\" y2=\"18\"/>\n");
    legend -= wide + 42;
  }
  return out + "</svg>\n";
}

}  // namespace tandem
