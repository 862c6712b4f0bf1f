// Reading CSV: each row is turned into numbers as it is cut, so that the text is held only once.
#include "tandem/io/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "tandem/io/csv_rows.h"

namespace tandem::io {

namespace {

constexpr size_t kMaxColumns = size_t{1} << 20;  // a cell of two bytes becomes several strings

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_missing(std::string_view cell) {
  return std::find(std::begin(kMissingWords), std::end(kMissingWords), cell) != std::end(kMissingWords);
}

std::optional<size_t> label_column(const std::string& where, const std::string& wanted, bool or_last,
                                   const std::vector<std::string>& names) {
  if (wanted.empty()) return std::nullopt;
  if (wanted == "last") return names.size() - 1;
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  size_t index = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
  if (error == std::errc() && end == wanted.data() + wanted.size() && index < names.size()) return index;
  if (or_last) return names.size() - 1;
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 20); ++i)
    list += (i ? ", " : "") + one_line(names[i], 50);
  throw Error(cat(where, "the label column must be one of ", list, names.size() > 20 ? " …" : "", "; got '",
                  one_line(wanted, 50), "'."));
}

}  // namespace

CsvTable load_csv(const std::string& path, const CsvOptions& options) {
  const std::string where = cat("load '", one_line(path), "': ");
  const std::vector<uint8_t> content = read_maybe_gzip("load", path, options.max_bytes);
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  CsvRows rows(where, text, options.delimiter, kMaxColumns);
  std::vector<std::string> cells;
  TD_CHECK(rows.next(cells), where, "must hold at least one row; it is empty.");
  const bool has_header =
      options.header.value_or(std::any_of(cells.begin(), cells.end(), [](const std::string& cell) {
        return !is_missing(cell) && !csv_number(cell);
      }));
  std::vector<std::string> names = cells;
  if (!has_header)
    for (size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  const std::optional<size_t> label = label_column(where, options.label, options.label_or_last, names);
  const size_t width = names.size(), features = width - (label ? 1 : 0);
  TD_CHECK(features >= 1, where, "must have a column beside the labels; got none.");

  CsvTable table;
  for (size_t i = 0; i < width; ++i)
    if (i != label) table.columns.push_back(names[i]);
  std::vector<float> values;
  std::vector<std::string> label_texts;
  bool more = !has_header || rows.next(cells);
  for (; more; more = rows.next(cells)) {
    const int64_t line = rows.line();
    const size_t before = values.size();
    TD_CHECK(cells.size() == width, where, "every row must have ", width, " cells; line ", line, " has ",
             cells.size(), ". Fix the row, or give another delimiter.");
    bool dropped = false;
    for (size_t i = 0; i < width && !dropped; ++i) {
      const std::string_view cell = trimmed(cells[i]);
      if (is_missing(cell)) {
        dropped = options.missing == Missing::drop_row;
        TD_CHECK(dropped || (options.missing != Missing::refuse && i != label), where, "line ", line,
                 ", column '", one_line(names[i], 50),
                 "': a value is missing. Choose what to do with missing values",
                 i == label ? " (a label cannot be filled in)." : ".");
        if (i != label)
          values.push_back(options.missing == Missing::nan ? std::numeric_limits<float>::quiet_NaN()
                                                           : static_cast<float>(options.fill));
      } else if (i == label) {
        label_texts.emplace_back(cell);
      } else {
        const std::optional<double> value = csv_number(cell);
        TD_CHECK(value, where, "line ", line, ", column '", one_line(names[i], 50),
                 "': must be a number; got '", one_line(cell, 50), "'.");
        values.push_back(static_cast<float>(*value));
      }
    }
    if (dropped) {
      values.resize(before);
      if (label) label_texts.resize(before / features);
    }
  }
  const auto count = static_cast<Dim>(values.size() / features);
  TD_CHECK(count >= 1, where, "must hold at least one row of values; got none.");
  table.features = from_vector(values, {count, static_cast<Dim>(features)});
  if (!label) return table;

  // Labels that are all whole numbers stay what they are; any other text is a class, in sorted order.
  std::vector<int64_t> labels(label_texts.size());
  bool whole = true;
  for (size_t i = 0; i < labels.size() && whole; ++i) {
    const std::optional<double> value = csv_number(label_texts[i]);
    whole = value && *value >= 0 && *value < 9e15 && *value == std::floor(*value);
    if (whole) labels[i] = static_cast<int64_t>(*value);
  }
  if (!whole) {
    std::map<std::string, int64_t> classes;
    for (const std::string& name : label_texts) classes.emplace(name, 0);
    for (auto& [name, index] : classes) {
      index = static_cast<int64_t>(table.classes.size());
      table.classes.push_back(name);
    }
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = classes[label_texts[i]];
  }
  table.labels = from_vector(labels, {count});
  return table;
}

}  // namespace tandem::io
