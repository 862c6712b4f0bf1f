// Reading dates from left to right.
#include "tandem/data/table_dates.h"

#include <chrono>

namespace tandem::data {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes what it reads from the front of the text.
class Front {
 public:
  explicit Front(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty(); }
  /// `least` to `most` digits, as a number.
  bool digits(size_t least, size_t most, unsigned& value) {
    size_t count = 0;
    value = 0;
    for (; count < most && count < text_.size() && is_digit(text_[count]); ++count)
      value = value * 10 + static_cast<unsigned>(text_[count] - '0');
    text_.remove_prefix(count);
    return count >= least;
  }
  /// One of these characters; `found` is which.
  bool any_of(std::string_view characters, char& found) {
    if (text_.empty() || characters.find(text_[0]) == std::string_view::npos) return false;
    found = text_[0];
    text_.remove_prefix(1);
    return true;
  }
  bool is(char c) { return any_of({&c, 1}, c); }

 private:
  std::string_view text_;
};

/// The rest of a cell behind its date: a time, as a part of the day.
bool read_time(Front& text, double& part) {
  char mark = 0;
  unsigned hour = 0, minute = 0, second = 0;
  if (!text.any_of("T ", mark) || !text.digits(2, 2, hour) || !text.is(':') || !text.digits(2, 2, minute))
    return false;
  if (text.is(':')) {
    if (!text.digits(2, 2, second)) return false;
    unsigned fraction = 0;
    if (text.is('.') && !text.digits(1, 9, fraction)) return false;
  }
  unsigned hours = 0, minutes = 0;
  if (text.any_of("+-", mark)) {
    if (!text.digits(2, 2, hours)) return false;
    text.is(':');
    if (!text.at_end() && !text.digits(2, 2, minutes)) return false;
  } else {
    text.is('Z');
  }
  part = (hour * 3600.0 + minute * 60.0 + second) / 86400;
  return hour < 24 && minute < 60 && second < 60 && hours < 24 && minutes < 60;
}

}  // namespace

std::optional<DateParts> parse_date(std::string_view cell, DateForm form) {
  Front text(cell);
  unsigned year = 0, month = 0, day = 0;
  if (form == DateForm::iso) {
    if (!text.digits(4, 4, year) || !text.is('-') || !text.digits(2, 2, month) || !text.is('-') ||
        !text.digits(2, 2, day))
      return std::nullopt;
  } else {
    char between = 0;
    unsigned first = 0, second = 0;
    if (!text.digits(1, 2, first) || !text.any_of("./", between) || !text.digits(1, 2, second) ||
        !text.is(between) || !text.digits(4, 4, year))
      return std::nullopt;
    day = form == DateForm::day_first ? first : second;
    month = form == DateForm::day_first ? second : first;
  }
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)), std::chrono::month(month),
                                         std::chrono::day(day)};
  double part = 0;
  if (!date.ok() || year == 0 || (!text.at_end() && !read_time(text, part)) || !text.at_end())
    return std::nullopt;
  const std::chrono::sys_days days(date);
  return DateParts{static_cast<double>(year), static_cast<double>(month),
                   static_cast<double>(std::chrono::weekday(days).iso_encoding()),
                   static_cast<double>(days.time_since_epoch().count()) + part};
}

}  // namespace tandem::data
