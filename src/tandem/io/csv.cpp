// Reading CSV: one pass cuts rows into cells, and each row is turned into numbers at once, so that the text is held
// only once.
#include "tandem/io/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

namespace tandem::io {

namespace {

constexpr size_t kMaxColumns = size_t{1} << 20;  // a cell of two bytes becomes several strings

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_missing(std::string_view cell) {
  return cell.empty() || cell == "NA" || cell == "N/A" || cell == "nan" || cell == "NaN" || cell == "null" ||
         cell == "?";
}

std::optional<double> number(std::string_view cell) {
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

/// Cuts a text into rows of cells.
class Rows {
 public:
  Rows(const std::string& where, std::string_view text, char delimiter)
      : where_(where), text_(text), delimiter_(delimiter) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // UTF-8's byte order mark
  }
  size_t line() const { return line_; }

  /// The next row that is not empty, or false at the end.
  bool next(std::vector<std::string>& cells) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) line_ += text_[at_++] == '\n';
    if (at_ >= text_.size()) return false;
    size_t count = 0;
    while (true) {
      if (count == cells.size()) cells.emplace_back();
      cell(cells[count++]);
      if (at_ >= text_.size()) break;
      const char c = text_[at_];
      if (c == delimiter_) {
        ++at_;
        continue;
      }
      break;  // the end of a line
    }
    cells.resize(count);
    return true;
  }

 private:
  void cell(std::string& out) {
    out.clear();
    if (at_ < text_.size() && text_[at_] == '"') {
      const size_t opened = line_ + 1;
      for (++at_;; ++at_) {
        TD_CHECK(at_ < text_.size(), where_, "quotes must be closed; those of line ", opened,
                 " are not. Close them, or give another delimiter.");
        if (text_[at_] == '"') {
          if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
          ++at_;
        }
        line_ += text_[at_] == '\n';
        out += text_[at_];
      }
      ++at_;
      TD_CHECK(at_ >= text_.size() || text_[at_] == delimiter_ || text_[at_] == '\n' || text_[at_] == '\r',
               where_, "after closing quotes a cell must end; in line ", line_ + 1,
               " it does not. Double the quotes inside a cell.");
      return;
    }
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
    out = trimmed(text_.substr(begin, at_ - begin));
  }

  const std::string& where_;
  std::string_view text_;
  char delimiter_;
  size_t at_ = 0, line_ = 0;
};

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
  TD_CHECK(options.delimiter != '"' && options.delimiter != '\n' && options.delimiter != '\r', where,
           "the delimiter must not be a quote or a line break.");
  const std::vector<uint8_t> content = read_maybe_gzip("load", path, options.max_bytes);
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  Rows rows(where, text, options.delimiter);
  std::vector<std::string> cells;
  TD_CHECK(rows.next(cells), where, "must hold at least one row; it is empty.");
  TD_CHECK(cells.size() <= kMaxColumns, where, "must have at most ", kMaxColumns, " columns; got ",
           cells.size(), ". Give another delimiter, or save the values as npy.");
  const bool has_header =
      options.header.value_or(std::any_of(cells.begin(), cells.end(), [](const std::string& cell) {
        return !is_missing(cell) && !number(cell);
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
    const size_t line = rows.line() + 1, before = values.size();
    TD_CHECK(cells.size() == width, where, "every row must have ", width, " cells; line ", line, " has ",
             cells.size(), ". Mend the row, or give another delimiter.");
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
        const std::optional<double> value = number(cell);
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
    const std::optional<double> value = number(label_texts[i]);
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
