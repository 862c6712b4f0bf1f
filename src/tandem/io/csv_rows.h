// CSV: cutting a text into rows of cells (RFC 4180), and numbers. What the cells mean: data/table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/standard.h"

namespace tandem::io {

/// Bytes of one cell. A longer one is a quote that was never closed.
inline constexpr size_t kMaxCellBytes = size_t{1} << 20;

/// The number that the whole cell is: 1, +1.5, -2e3, inf, nan; a decimal point, no separators of thousands.
std::optional<double> csv_number(std::string_view cell);

/// Refuses, beginning with `where`, what is no UTF-8 text: the mark of UTF-16 or UTF-32, a byte that breaks UTF-8, NUL.
void check_utf8(const std::string& where, std::string_view text);
/// Whether check_utf8 lets it pass.
bool is_utf8(std::string_view text);

/// Cuts a text into rows of cells. A cell in quotes holds anything, quotes doubled; spaces and tabs around a cell do not
/// count, those inside quotes do. Lines end with LF, CRLF or CR. Empty lines and a byte order mark are passed over.
class CsvRows {
 public:
  /// `where` is what messages begin with. Both texts must outlive the object.
  CsvRows(const std::string& where, std::string_view text, char delimiter, size_t max_columns);

  /// The next row that is not empty, or false at the end. The strings of `cells` are used again.
  bool next(std::vector<std::string>& cells);
  /// The line on which the last row begins, from 1.
  int64_t line() const { return row_line_; }

 private:
  bool at_end_of_line() const { return at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }
  void skip_blanks();
  void count_line();
  void cell(std::string& out);

  const std::string& where_;
  std::string_view text_;
  char delimiter_;
  size_t max_columns_, at_ = 0;
  int64_t line_ = 1, row_line_ = 0;
};

/// The one of comma, semicolon and tab that stands most often outside of quotes in the first line that is not empty; a
/// comma where none does. Throws where two stand equally often.
char find_delimiter(const std::string& where, std::string_view text);

}  // namespace tandem::io
