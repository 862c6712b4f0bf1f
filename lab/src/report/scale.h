// Numbers for people, and axes: units that fit the size of the values, round ticks, positions on a line.
#pragma once

#include <string>
#include <vector>

#include "lab/src/analysis/analysis.h"

namespace tandem::lab {

/// A number with about `digits` significant digits and grouped thousands: "0.00312", "12.3", "1,234,567". What is not
/// finite is shown as "–".
std::string number_text(double value, int digits = 3);
/// The same for an axis, without zeros at the end: "0.5", "20".
std::string tick_text(double value);
/// "p = 3.9e-18", "p = 0.012".
std::string p_text(double p);

/// How values of a metric are shown: value · factor, in `name`.
struct Unit {
  double factor = 1;
  std::string name;
};
/// The unit in which the largest of the values has one to three digits before the point: seconds become ms or µs.
Unit unit_for(const Metric& metric, double largest);
/// "3.17 ms".
std::string with_unit(double value, const Metric& metric);

/// "lower is better", "higher is better"; "" where neither side is.
std::string better_text(const Metric& metric);
/// What stands at an axis: "step time, ms". What has no unit says what its numbers are: "test accuracy, share of 1".
std::string axis_name(const Metric& metric, const Unit& unit);

/// An axis from `low` to `high` over `pixels`.
struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  double from = 0, to = 1;  // pixels of both ends
  std::vector<double> ticks;

  double at(double value) const;
};
/// Round ends and ticks around the values' range. A linear axis of values that are all of one sign and spread widely
/// begins at 0 where `from_zero`; a logarithmic one needs positive values, and falls back to a linear one without. `whole`: the
/// values are counts, and so are the ticks of a linear axis.
Axis make_axis(double low, double high, double from, double to, bool logarithmic = false,
               bool from_zero = false, bool whole = false);

/// A share in per cent with two digits: 2 %, 1.4 %, 0.31 %.
std::string percent_text(double share);

}  // namespace tandem::lab
