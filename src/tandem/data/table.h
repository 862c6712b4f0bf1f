// Tables of the user's own: rows of text cells under named columns, read from CSV files. What the cells mean is decided by
// TableEncoder (table_encoder.h), from the training rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/io/limits.h"

namespace tandem::data {

struct TableOptions {
  /// Between cells. Unset: the one of comma, semicolon and tab that stands most often in the first line.
  std::optional<char> delimiter = {};
  /// The first line names the columns. false: they are called c0, c1 …
  bool header = true;
  /// Words for a value that is missing; an empty cell always is.
  std::vector<std::string> missing = {"NA", "N/A", "NaN", "nan", "null", "NULL", "?"};
  /// Of the file, and of the table in memory (its text, and 8 bytes for each cell and each row).
  int64_t max_bytes = io::reading_limits().bytes;
};

/// The cells of one column, one after the other in one text.
class TextColumn {
 public:
  void add(std::string_view cell, bool missing);
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  /// The cell of a row, 0 <= row < size().
  std::string_view operator[](int64_t row) const {
    const auto i = static_cast<size_t>(row);
    const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  bool is_missing(int64_t row) const { return missing_[static_cast<size_t>(row)]; }

 private:
  std::string text_;
  std::vector<uint64_t> ends_;
  std::vector<bool> missing_;
};

struct Table {
  std::string source;              ///< what messages call it: 'house.csv'
  std::vector<std::string> names;  ///< of the columns, each once
  std::vector<TextColumn> columns;
  std::vector<int64_t> lines;  ///< where each row begins in its file, from 1
  TableOptions reading = {};   ///< how it was read

  int64_t rows() const { return static_cast<int64_t>(lines.size()); }
  /// The place of a column, or nothing.
  std::optional<size_t> find(std::string_view name) const;
  /// The column, or an Error with the names that there are.
  const TextColumn& column(std::string_view name) const;
};

/// Reads a CSV file, plain or gzip: RFC 4180 in UTF-8, a byte order mark and empty lines passed over. Throws Error, with
/// line and column, for another encoding, a first line of numbers alone (unless header is false), names that are empty
/// or there twice, rows of another length, and a table without rows.
Table read_table(const std::string& path, const TableOptions& options = {});
/// The same of a text in memory. `source` is its name in messages.
Table parse_table(std::string_view text, const TableOptions& options = {},
                  const std::string& source = "text");

/// Rows to learn from, and rows to test with where there are any.
struct TableParts {
  Table train;
  std::optional<Table> test;
};
/// A file: its rows are for training. A folder: train.csv, and test.csv where it is there; or its only .csv file.
TableParts read_tables(const std::string& path, const TableOptions& options = {});

/// Some rows, in the order of `rows`.
Table take_rows(const Table& table, std::span<const int64_t> rows);

/// Takes `share` of the rows (rounded, at least one) as the test part, by chance: a function of the table's size, share
/// and seed, the same on every machine. `by` names a column whose values come in equal shares to both parts (as near as
/// whole rows allow, and each value stays in training); empty: none does. Both parts keep the order of the rows.
TableParts split(const Table& table, double share, uint64_t seed, const std::string& by = "");

}  // namespace tandem::data
