#include "lab/src/report/scale.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tandem/io/svg.h"

namespace tandem::lab {

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "–";
  if (value == 0) return "0";
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value))));
  char text[64];
  if (magnitude < -4 || magnitude > 14) {
    std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
    return text;
  }
  std::snprintf(text, sizeof text, "%.*f", std::clamp(digits - 1 - magnitude, 0, 9), value);
  std::string plain = text;
  const size_t point = plain.find('.');
  const size_t first = plain[0] == '-' ? 1 : 0;
  for (size_t at = point == std::string::npos ? plain.size() : point; at > first + 3;) {
    at -= 3;
    plain.insert(at, ",");
  }
  return plain;
}

std::string tick_text(double value) {
  std::string text = number_text(value, 6);
  if (text.find('e') != std::string::npos || text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string p_text(double p) {
  if (!std::isfinite(p)) return "p = –";
  if (p < 0.001) {
    char text[32];
    std::snprintf(text, sizeof text, "p = %.1e", p);
    return text;
  }
  return "p = " + number_text(p, 2);
}

Unit unit_for(const Metric& metric, double largest) {
  const double size = std::abs(largest);
  if (metric.unit == "s" && size > 0) {
    if (size < 1e-3) return {1e6, "µs"};
    if (size < 1) return {1e3, "ms"};
    if (size >= 7200) return {1.0 / 3600, "h"};
    if (size >= 300) return {1.0 / 60, "min"};
  }
  if (metric.unit == "MiB" && size >= 10240) return {1.0 / 1024, "GiB"};
  if (metric.unit == "J" && size > 0 && size < 0.1) return {1e3, "mJ"};
  return {1, metric.unit};
}

std::string with_unit(double value, const Metric& metric) {
  if (!std::isfinite(value)) return "–";
  const Unit unit = unit_for(metric, value);
  return number_text(value * unit.factor) + (unit.name.empty() ? "" : " " + unit.name);
}

std::string better_text(const Metric& metric) {
  switch (metric.better) {
    case Metric::Better::less:
      return "lower is better";
    case Metric::Better::more:
      return "higher is better";
    case Metric::Better::neither:
      break;
  }
  return "";
}

std::string axis_name(const Metric& metric, const Unit& unit) {
  if (!unit.name.empty()) return metric.label + ", " + unit.name;
  const auto has = [&](const char* word) { return metric.name.find(word) != std::string::npos; };
  if (has("accuracy") || has("_share")) return metric.label + ", share of 1";
  if (has("epoch") || has("launches") || has("nodes") || has("lines")) return metric.label + ", number";
  return metric.label + ", no unit";
}

double Axis::at(double value) const {
  const double share = logarithmic ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                                   : (value - low) / (high - low);
  return from + share * (to - from);
}

Axis make_axis(double low, double high, double from, double to, bool logarithmic, bool from_zero,
               bool whole) {
  Axis axis;
  axis.from = from;
  axis.to = to;
  if (!std::isfinite(low) || !std::isfinite(high)) low = 0, high = 1;
  if (logarithmic && low > 0) {
    axis.logarithmic = true;
    const double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
    std::vector<double> round;
    for (double power = first; power <= last; ++power)
      for (const double factor : last - first > 3 ? std::vector<double>{1} : std::vector<double>{1, 2, 5})
        round.push_back(factor * std::pow(10, power));
    // From the last round number at or below the values to the first at or above them.
    size_t begin = 0, end = round.size() - 1;
    while (begin + 1 < round.size() && round[begin + 1] <= low * (1 + 1e-12)) ++begin;
    while (end > begin + 1 && round[end - 1] >= high * (1 - 1e-12)) --end;
    axis.low = round[begin];
    axis.high = std::max(round[end], axis.low * 2);
    axis.ticks.assign(round.begin() + static_cast<long>(begin), round.begin() + static_cast<long>(end) + 1);
    return axis;
  }
  if (from_zero && low > 0) low = 0;
  if (from_zero && high < 0) high = 0;
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high))) {
    const double room = low == 0 || whole ? 1 : std::abs(low) * 0.1;
    low -= from_zero && low == 0 ? 0 : room;
    high += room;
  }
  axis.ticks = io::round_ticks(low, high, 6, whole ? 1 : 0);
  axis.low = axis.ticks.front();
  axis.high = axis.ticks.back();
  return axis;
}

std::string percent_text(double share) {
  if (!std::isfinite(share)) return "–";
  const double percent = 100 * share;
  const double step = percent > 0 ? std::pow(10, std::floor(std::log10(percent)) - 1) : 1;
  return tick_text(std::round(percent / step) * step) + " %";
}

}  // namespace tandem::lab
