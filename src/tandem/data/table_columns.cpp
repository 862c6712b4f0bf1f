// What columns hold and mean.
#include "tandem/data/table_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tandem/core/file.h"
#include "tandem/core/shortest.h"
#include "tandem/data/table_dates.h"
#include "tandem/io/csv_rows.h"

namespace tandem::data {

namespace {

/// Fewer cells do not tell names from categories.
constexpr int64_t kFewCells = 20;

/// Of numbers that are classes: fewer are taken for them whatever they are, and more must have so many samples each.
constexpr int64_t kFewClasses = 20, kSamplesPerClass = 10;

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// The different values with their counts, in sorted order. Sorting takes 16 bytes per cell, whatever the cells hold.
template <class Value, class Text>
std::vector<Counted> counted(std::vector<Value> values, const Text& text) {
  std::sort(values.begin(), values.end());
  std::vector<Counted> runs;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i == 0 || values[i] != values[i - 1]) runs.push_back({text(values[i]), 0});
    ++runs.back().count;
  }
  return runs;
}

/// So many that the others look like mistakes.
bool nearly_all(int64_t some, int64_t cells) { return some < cells && some * 10 >= cells * 9; }

/// "inf", and numbers that a double cannot hold: 1e400.
bool is_infinite(std::string_view cell) {
  const std::optional<double> value = io::csv_number(cell);
  if (value) return std::isinf(*value);
  double ignored = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), ignored);
  return error == std::errc::result_out_of_range && end == cell.data() + cell.size();
}

/// Takes one of `words` off the start, or the end, of the text; true where one was there.
bool drop_start(std::string_view& text, std::span<const std::string_view> words) {
  for (const std::string_view word : words)
    if (text.starts_with(word)) return text.remove_prefix(word.size()), true;
  return false;
}
bool drop_end(std::string_view& text, std::span<const std::string_view> words) {
  for (const std::string_view word : words)
    if (text.ends_with(word)) return text.remove_suffix(word.size()), true;
  return false;
}

/// Takes the digits off the start of the text. -> how many.
size_t drop_digits(std::string_view& text) {
  const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(count);
  return count;
}

/// Digits in groups of three after the first, with `separator` between them and a decimal part after `point` or none.
bool is_grouped(std::string_view text, std::string_view separator, char point) {
  const size_t first = drop_digits(text);
  bool is_valid = first >= 1 && first <= 3 && text.starts_with(separator);
  while (is_valid && text.starts_with(separator)) {
    text.remove_prefix(separator.size());
    is_valid = drop_digits(text) == 3;
  }
  if (is_valid && text.starts_with(point)) {
    text.remove_prefix(1);
    is_valid = drop_digits(text) > 0;
  }
  return is_valid && text.empty();
}

/// Digits with a decimal part after `point` or none.
bool is_decimal(std::string_view text, char point) {
  bool is_valid = drop_digits(text) > 0;
  if (is_valid && text.starts_with(point)) {
    text.remove_prefix(1);
    is_valid = drop_digits(text) > 0;
  }
  return is_valid && text.empty();
}

/// The start of a text for a message, cut between characters.
std::string start_of(std::string_view text) {
  size_t limit = 50;
  while (limit < text.size() && limit > 0 && (text[limit] & 0xc0) == 0x80) --limit;
  return one_line(text, limit);
}

}  // namespace

std::string shown(std::string_view text) { return str("'", start_of(text), "'"); }

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 20); ++i)
    list += (i ? ", " : "") + start_of(names[i]);
  return list + (names.size() > 20 ? " …" : "");
}

std::string place_of(const Table& table, const std::string& column, int64_t row) {
  return str("table ", table.source, ": line ", table.lines[static_cast<size_t>(row)], ", column ",
             shown(column), ": ");
}

void check_table(const Table& table) {
  TD_CHECK(table.names.size() == table.columns.size(), "table ", table.source,
           ": every column must have a name; got ", table.columns.size(), " columns and ", table.names.size(),
           " names.");
  for (size_t i = 0; i < table.columns.size(); ++i)
    TD_CHECK(table.columns[i].size() == table.rows(), "table ", table.source, ": column ",
             shown(table.names[i]), " must have a cell for each of ", table.rows(), " rows (lines); got ",
             table.columns[i].size(), ".");
}

std::optional<double> finite_number(std::string_view cell) {
  const std::optional<double> value = io::csv_number(cell);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

bool is_otherwise_written(std::string_view cell) {
  static constexpr std::string_view kSigns[] = {"+", "-", "\u2212"},
                                    kUnits[] = {"%", "$", "\u20ac", "\u00a3", "\u00a5"},
                                    kBlanks[] = {" ", "\u00a0", "\u202f"};
  if (io::csv_number(cell)) return false;
  drop_start(cell, kSigns);
  if (drop_start(cell, kUnits)) {
    drop_start(cell, kBlanks);
    drop_start(cell, kSigns);
  }
  if (drop_end(cell, kUnits)) drop_end(cell, kBlanks);
  for (const std::string_view separator : {"'", " ", "\u00a0", "\u202f"})
    if (is_grouped(cell, separator, ',') || is_grouped(cell, separator, '.')) return true;
  return is_decimal(cell, ',') || is_decimal(cell, '.') || is_grouped(cell, ".", ',') ||
         is_grouped(cell, ",", '.');
}

std::string number_text(double value) { return shortest(value + 0.0); }  // + 0.0: -0 is 0

Content content_of(const TextColumn& column) {
  Content content;
  for (int64_t row = 0; row < column.size(); ++row) {
    if (column.is_missing(row)) {
      ++content.missing;
      continue;
    }
    ++content.cells;
    if (const std::optional<double> value = finite_number(column[row])) {
      ++content.numbers;
      content.values.push_back(*value);
    } else {
      content.infinite += is_infinite(column[row]) ? 1 : 0;
      if (content.first_text < 0) content.first_text = row;
      if (!is_otherwise_written(column[row])) continue;
      if (content.otherwise++ == 0) content.first_otherwise = row;
    }
  }
  return content;
}

void check_nearly_numbers(const Table& table, const std::string& name, const TextColumn& column,
                          const Content& content, const char* fix) {
  const int64_t others = content.cells - content.numbers;
  if (content.numbers == 0 || others == 0) return;
  TD_CHECK(!nearly_all(content.numbers, content.cells) && content.infinite < others,
           place_of(table, name, content.first_text), "must be a finite number, as ", content.numbers,
           " of the column's ", content.cells, " cells are; got ", shown(column[content.first_text]),
           ". Fix the cell; if it means missing, give `missing` ", shown(column[content.first_text]), fix);
}

void check_plain_numbers(const Table& table, const std::string& name, const TextColumn& column,
                         const Content& content, const char* fix) {
  if (!content.has_foreign_numbers()) return;
  throw Error(str(place_of(table, name, content.first_otherwise),
                  "numbers must have a decimal point, and neither separators of thousands nor a unit; got ",
                  shown(column[content.first_otherwise]), ", and ", content.otherwise, " of the column's ",
                  content.cells, " cells are written so. Write 86,8 as 86.8 and 1.234,5 as 1234.5", fix));
}

bool look_like_quantities(int64_t different, int64_t samples, std::span<const double> numbers) {
  if (different <= kFewClasses || samples / kSamplesPerClass >= different) return false;
  if (numbers.empty()) return true;
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  const bool are_whole =
      std::all_of(numbers.begin(), numbers.end(), [](double value) { return value == std::floor(value); });
  return !are_whole || *most - *least >= 2 * static_cast<double>(different);
}

bool Content::compare_as_numbers() const {
  constexpr double kMost = 9007199254740992;  // 2^53
  return all_numbers() &&
         std::all_of(values.begin(), values.end(), [](double value) { return std::abs(value) < kMost; });
}

std::string mixed_hint(const Table& table, const TextColumn& column, const Content& content) {
  if (content.numbers * 2 < content.cells || content.first_text < 0) return "";
  return str(" ", content.numbers, " of its ", content.cells, " cells are numbers; ",
             shown(column[content.first_text]), " in line ",
             table.lines[static_cast<size_t>(content.first_text)],
             " is not: if it means missing, name it by `missing`.");
}

std::vector<Counted> counted_values(const TextColumn& column, const Content& content) {
  if (content.compare_as_numbers()) return counted(content.values, number_text);
  std::vector<std::string_view> cells;
  for (int64_t row = 0; row < column.size(); ++row)
    if (!column.is_missing(row)) cells.push_back(column[row]);
  return counted(std::move(cells), [](std::string_view cell) { return std::string(cell); });
}

bool nearly_all_different(int64_t different, int64_t cells) {
  return cells >= kFewCells && different * 10 > cells * 9;
}

namespace {

/// The dates of a form among the cells that are not missing, and the row of the first cell that is none, or -1.
struct DateCount {
  int64_t dates = 0, cells = 0, first_other = -1;
};
DateCount count_dates(const TextColumn& column, DateForm form) {
  DateCount count;
  for (int64_t row = 0; row < column.size(); ++row) {
    if (column.is_missing(row)) continue;
    ++count.cells;
    if (parse_date(column[row], form))
      ++count.dates;
    else if (count.first_other < 0)
      count.first_other = row;
  }
  return count;
}

}  // namespace

bool are_dates(const TextColumn& column, DateForm form) {
  const DateCount count = count_dates(column, form);
  return count.cells > 0 && count.dates == count.cells;
}

Scale scale_of(const std::string& what, std::span<const double> values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return {*least, 1};  // not the rounding of their mean
  double sum = 0, squares = 0;
  for (double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (double value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
  TD_CHECK(std::isfinite(mean) && std::isfinite(deviation), what,
           ": numbers must be small enough for their mean square (about 1e150); got ",
           std::abs(*least) > std::abs(*most) ? *least : *most, ". Give the column in another unit.");
  return {mean, deviation > 0 ? deviation : 1};  // 0: the squares vanished
}

namespace {

/// The form of a column of dates, or nothing where it is none.
std::optional<DateForm> date_form(const Table& table, const std::string& name, const TextColumn& column,
                                  const TableEncoderOptions& options) {
  const bool day = are_dates(column, DateForm::day_first), month = are_dates(column, DateForm::month_first);
  const bool says_day = contains(options.day_first, name), says_month = contains(options.month_first, name);
  TD_CHECK((!says_day || day) && (!says_month || month), "table ", table.source, ": column ", shown(name),
           ": every cell must be a date ", says_day ? "dd/mm/yyyy or dd.mm.yyyy" : "mm/dd/yyyy or mm.dd.yyyy",
           ", as ", says_day ? "`day_first`" : "`month_first`", " says; one is not. Do not name it there.");
  if (says_day || says_month) return says_day ? DateForm::day_first : DateForm::month_first;
  if (are_dates(column, DateForm::iso)) return DateForm::iso;
  if (!day && !month) {
    for (const DateForm form : {DateForm::iso, DateForm::day_first, DateForm::month_first})
      if (const DateCount count = count_dates(column, form); nearly_all(count.dates, count.cells))
        throw Error(str(place_of(table, name, count.first_other), "must be a date, as ", count.dates,
                        " of the column's ", count.cells, " cells are; got ",
                        shown(column[count.first_other]),
                        ". Fix the cell; if it means missing, name it by `missing`; if the column holds "
                        "categories, name it by `categories`."));
    return std::nullopt;
  }
  int64_t row = 0;
  while (column.is_missing(row)) ++row;
  TD_CHECK(
      !day || !month, place_of(table, name, row), "what is the day and what the month in ",
      shown(column[row]),
      "? No date of the column tells. Name the column by `day_first` or `month_first`, or write yyyy-mm-dd.");
  return day ? DateForm::day_first : DateForm::month_first;
}

/// Makes features of a category's values: all, or the most frequent (the first in order among equals).
void learn_categories(const Table& table, EncodedColumn& column, const std::vector<Counted>& values,
                      int64_t max_values, int64_t cells, std::vector<std::string>& notices) {
  std::vector<size_t> taken(values.size());
  for (size_t i = 0; i < taken.size(); ++i) taken[i] = i;
  const auto most = static_cast<size_t>(max_values);
  if (taken.size() > most) {
    std::stable_sort(taken.begin(), taken.end(),
                     [&](size_t a, size_t b) { return values[a].count > values[b].count; });
    taken.resize(most);
    std::sort(taken.begin(), taken.end());
    int64_t rare = cells;
    for (size_t i : taken) rare -= values[i].count;
    notices.push_back(str("column ", shown(column.name), " has ", values.size(), " different values: the ",
                          most, " most frequent have a feature each, the others share one (", rare, " of ",
                          cells, " cells). Raise `max_values` for more."));
    column.has_missing = true;
  }
  for (size_t i : taken) {
    TD_CHECK(values[i].value.size() <= kMaxValueBytes, "table ", table.source, ": column ",
             shown(column.name), ": a category's value must take at most ", kMaxValueBytes, " bytes; got ",
             values[i].value.size(), " (", shown(values[i].value), "). Name the column by `ignore`.");
    column.categories.values.push_back(values[i].value);
  }
}

}  // namespace

EncodedColumn learn_column(const Table& table, size_t place, const TableEncoderOptions& options,
                           std::vector<std::string>& notices) {
  EncodedColumn column{table.names[place]};
  if (contains(options.ignore, column.name)) return column;
  const TextColumn& cells = table.columns[place];
  const Content content = content_of(cells);
  // What kind of column it is, is told by all the rows that there are; what its values are, by those of training.
  const Table& all = options.taken_from ? *options.taken_from : table;
  const TextColumn& all_cells = all.column(column.name);
  const Content all_content = options.taken_from ? content_of(all_cells) : content;
  const std::string what = str("table ", table.source, ": column ", shown(column.name));
  column.has_missing = content.missing > 0;
  const bool as_category = contains(options.categories, column.name);
  const auto left_out = [&](const char* why) {
    notices.push_back(str("column ", shown(column.name), " is left out: ", why));
    return column;
  };
  if (!as_category && !contains(options.keep, column.name))
    check_plain_numbers(all, column.name, all_cells, all_content,
                        "; if the column holds categories, name it by `categories`, or leave it out by "
                        "`ignore_columns`.");
  if (!as_category)
    check_nearly_numbers(all, column.name, all_cells, all_content,
                         "; if the column holds categories, name it by `categories`.");
  if (content.cells == 0) return left_out("it has no values.");
  const char* constant = "all its cells are the same.";
  if (all_content.all_numbers() && !as_category) {
    const auto [least, most] = std::minmax_element(content.values.begin(), content.values.end());
    if (*least == *most && content.missing == 0) return left_out(constant);
    column.type = ColumnType::number;
    column.scales = {scale_of(what, content.values)};
    return column;
  }
  const std::vector<Counted> values = counted_values(cells, content);
  if (values.size() == 1 && content.missing == 0) return left_out(constant);
  if (!as_category) {
    if (const std::optional<DateForm> form = date_form(all, column.name, all_cells, options)) {
      column.type = ColumnType::date;
      column.form = *form;
      std::vector<double> parts[4];
      for (int64_t row = 0; row < cells.size(); ++row) {
        if (cells.is_missing(row)) continue;
        const DateParts date = *parse_date(cells[row], *form);
        const double numbers[4] = {date.year, date.month, date.weekday, date.days};
        for (size_t i = 0; i < 4; ++i) parts[i].push_back(numbers[i]);
      }
      for (const std::vector<double>& part : parts) column.scales.push_back(scale_of(what, part));
      return column;
    }
    if (nearly_all_different(static_cast<int64_t>(values.size()), content.cells) &&
        !contains(options.keep, column.name)) {
      notices.push_back(str("column ", shown(column.name), " is left out: nearly every value is different (",
                            values.size(), " of ", content.cells,
                            " cells). Name it by `keep` to have it as a category.",
                            mixed_hint(all, all_cells, all_content)));
      return column;
    }
    if (const std::string hint = mixed_hint(all, all_cells, all_content); !hint.empty())
      notices.push_back(str("column ", shown(column.name), " is taken as a category.", hint));
  }
  column.type = ColumnType::category;
  column.categories.are_numbers = content.compare_as_numbers();
  learn_categories(table, column, values, options.max_values, content.cells, notices);
  return column;
}

}  // namespace tandem::data
