// Reading tables and splitting them.
#include "tandem/data/table.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "tandem/data/split.h"
#include "tandem/data/table_columns.h"
#include "tandem/io/csv_rows.h"
#include "tandem/io/file.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxColumns = size_t{1} << 16, kMaxNameBytes = 1000;

/// Refuses names that cannot be told apart.
void check_names(const std::string& where, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    TD_CHECK(!names[i].empty(), where, "every column must have a name; column ", i + 1, " of ", names.size(),
             " has none. Name it in the first line, or write the file without it (pandas: index=False).");
    TD_CHECK(names[i].size() <= kMaxNameBytes, where, "a column's name must take at most ", kMaxNameBytes,
             " bytes; that of column ", i + 1, " takes ", names[i].size(), ".");
    const auto [first, is_new] = seen.emplace(names[i], i);
    TD_CHECK(is_new, where, "every column must have a name of its own; columns ", first->second + 1, " and ",
             i + 1, " are both called ", shown(names[i]), ". Rename one.");
  }
}

/// Refuses a first line of numbers: the names were forgotten, and a row would be lost.
void check_header(const std::string& where, const std::vector<std::string>& cells) {
  const auto is_number = [](const std::string& cell) { return io::csv_number(cell).has_value(); };
  const bool all = std::all_of(cells.begin(), cells.end(),
                               [&](const std::string& cell) { return cell.empty() || is_number(cell); });
  TD_CHECK(
      !all || std::none_of(cells.begin(), cells.end(), is_number), where,
      "the first line must name the columns; it has only numbers (", list_of(cells),
      "). Add a line of names, or give `no_header` (header = false): the columns are then called c0, c1 …");
}

Table parse(const std::string& where, const std::string& source, std::string_view text,
            const TableOptions& options) {
  io::check_utf8(where, text);
  const char delimiter = options.delimiter ? *options.delimiter : io::find_delimiter(where, text);
  const auto is_missing = [&](const std::string& cell) {
    return cell.empty() ||
           std::find(options.missing.begin(), options.missing.end(), cell) != options.missing.end();
  };

  Table table;
  table.source = source;
  table.reading = options;
  io::CsvRows rows(where, text, delimiter, kMaxColumns);
  std::vector<std::string> cells;
  TD_CHECK(rows.next(cells), where, "must hold names of columns and rows; it is empty.");
  if (options.header) check_header(where, cells);
  table.names = cells;
  if (!options.header)
    for (size_t i = 0; i < cells.size(); ++i) table.names[i] = str("c", i);
  check_names(where, table.names);
  const size_t width = table.names.size();
  table.columns.resize(width);
  int64_t bytes = 0;
  bool more = !options.header || rows.next(cells);
  for (; more; more = rows.next(cells)) {
    TD_CHECK(cells.size() == width, where, "every row must have ", width, " cells as the first line; line ",
             rows.line(), " has ", cells.size(),
             ". Fix the row (a cell that holds the delimiter needs quotes), or give another `delimiter`.");
    bytes += static_cast<int64_t>(sizeof(int64_t));
    for (size_t i = 0; i < width; ++i) {
      bytes += static_cast<int64_t>(cells[i].size() + sizeof(uint64_t));
      table.columns[i].add(cells[i], is_missing(cells[i]));
    }
    TD_CHECK(bytes <= options.max_bytes, where, "a table must take at most ", options.max_bytes,
             " bytes in memory (its text, and 8 for each cell and each row); it takes more from line ",
             rows.line(), " on. Where you trust it, raise the limit (TANDEM_READING_LIMITS=bytes=…).");
    table.lines.push_back(rows.line());
  }
  TD_CHECK(table.rows() >= 1, where, "must hold rows below the names of the columns (", list_of(table.names),
           "); got none.");
  return table;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The only .csv file of a folder.
std::string only_csv_in(const std::string& folder) {
  const std::string where = str("load '", io::one_line(folder), "': ");
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".csv" && is_file(at->path()))
      names.push_back(at->path().filename().string());
  if (error) throw resource_error(where, "cannot read the folder: ", error.message(), ".");
  std::sort(names.begin(), names.end());
  TD_CHECK(names.size() == 1 && names[0] != "test.csv", where,
           "must hold train.csv (and test.csv), or one .csv file; it holds ",
           names.empty() ? "no .csv file" : list_of(names), ". Name the file, or call it train.csv.");
  return (fs::path(folder) / names[0]).string();
}

}  // namespace

void TextColumn::add(std::string_view cell, bool missing) {
  text_ += cell;
  ends_.push_back(text_.size());
  missing_.push_back(missing);
}

std::optional<size_t> Table::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

const TextColumn& Table::column(std::string_view name) const {
  const std::optional<size_t> place = find(name);
  TD_CHECK(place, "table ", source, ": the column must be one of ", list_of(names), "; got ", shown(name),
           ".");
  return columns[*place];
}

Table read_table(const std::string& path, const TableOptions& options) {
  const std::vector<uint8_t> content = io::read_maybe_gzip("load", path, options.max_bytes);
  const std::string name = str("'", io::one_line(path), "'");
  return parse(str("load ", name, ": "), name,
               {reinterpret_cast<const char*>(content.data()), content.size()}, options);
}

Table parse_table(std::string_view text, const TableOptions& options, const std::string& source) {
  const std::string name = str("'", io::one_line(source), "'");
  return parse(str("parse_table ", name, ": "), name, text, options);
}

TableParts read_tables(const std::string& path, const TableOptions& options) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {read_table(path, options), std::nullopt};
  const fs::path train = fs::path(path) / "train.csv", test = fs::path(path) / "test.csv";
  if (!is_file(train)) return {read_table(only_csv_in(path), options), std::nullopt};
  TableParts parts{read_table(train.string(), options), std::nullopt};
  if (is_file(test)) parts.test = read_table(test.string(), options);
  return parts;
}

Table take_rows(const Table& table, std::span<const int64_t> rows) {
  check_table(table);
  Table taken;
  taken.source = table.source;
  taken.names = table.names;
  taken.reading = table.reading;
  taken.columns.resize(table.columns.size());
  for (int64_t row : rows) {
    TD_CHECK(row >= 0 && row < table.rows(), "take_rows: a row must be at least 0 and less than ",
             table.rows(), "; got ", row, ".");
    taken.lines.push_back(table.lines[static_cast<size_t>(row)]);
  }
  for (size_t i = 0; i < table.columns.size(); ++i)
    for (int64_t row : rows) taken.columns[i].add(table.columns[i][row], table.columns[i].is_missing(row));
  return taken;
}

TableParts split(const Table& table, double share, uint64_t seed, const std::string& by) {
  check_table(table);
  const int64_t rows = table.rows();
  TD_CHECK(rows >= 2, "split: table ", table.source, " must have at least 2 rows; got ", rows, ".");
  std::vector<int64_t> group(static_cast<size_t>(rows), 0);
  if (!by.empty()) {
    const TextColumn& column = table.column(by);
    std::map<std::string_view, int64_t> groups;  // missing cells are one
    const auto key = [&](int64_t row) { return column.is_missing(row) ? std::string_view() : column[row]; };
    for (int64_t row = 0; row < rows; ++row) groups.emplace(key(row), 0);
    int64_t next = 0;
    for (auto& [value, index] : groups) index = next++;
    for (int64_t row = 0; row < rows; ++row) group[static_cast<size_t>(row)] = groups.find(key(row))->second;
  }
  const SplitIndices parts = split_indices(group, share, seed);
  TD_CHECK(!parts.test.empty(), "split: table ", table.source, ": a value of column ", shown(by),
           " must stand in two rows or more for a test part; each of the ", rows,
           " rows has its own. Add rows, or choose another column.");
  return {take_rows(table, parts.train), take_rows(table, parts.test)};
}

}  // namespace tandem::data
