// Dates in the cells of a table.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/data/table_encoder.h"

namespace tandem::data {

/// A date by the calendar, as four numbers that a network can use.
struct DateParts {
  double year = 0, month = 0;  // month 1 … 12
  double weekday = 0;          // Monday is 1
  double days = 0;             // since 1970-01-01, time of day included
};

/// yyyy-mm-dd (iso), or d.m.yyyy or d/m/yyyy (day_first), or m.d.yyyy or m/d/yyyy (month_first); then perhaps a T or a space and hh:mm,
/// :ss, a fraction, and Z or an offset, which is passed over: the time is taken as it is written. Nothing where the cell
/// is no such date, or the calendar has no such day.
std::optional<DateParts> parse_date(std::string_view cell, DateForm form);

}  // namespace tandem::data
