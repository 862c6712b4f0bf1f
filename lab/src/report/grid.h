// Tables of a report: filled once, written as HTML (sortable), as Markdown, or as aligned text for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

struct GridCell {
  std::string text;
  std::optional<double> sort = {};  // by what a column of numbers is sorted
  std::string mark = {};            // class of the HTML cell: "good", "bad", "unsure", "absent"
  std::string link = {};            // in HTML: the id of the section to which the text leads
};

class Grid {
 public:
  /// `numbers`: columns that are aligned right.
  explicit Grid(std::vector<std::string> header, std::vector<size_t> numbers = {});
  /// Cells that are missing at the end are empty.
  void add(std::vector<GridCell> row);
  bool empty() const { return rows_.empty(); }

  /// Where the page is narrower than the table needs, each row becomes a block with a line per column: nothing is cut or scrolled.
  std::string html() const;
  std::string markdown() const;
  /// `width`: of the terminal; 0: any. Where the table is wider, texts take several lines; where that is not enough, each row becomes a
  /// block with a line per column.
  std::string text(size_t width = 0) const;

 private:
  bool is_number(size_t column) const;
  std::string blocks(size_t width) const;
  /// About how wide the table must be to be read, in letters' heights.
  double width() const;

  std::vector<std::string> header_;
  std::vector<size_t> numbers_;
  std::vector<std::vector<GridCell>> rows_;
};

/// The widths at which a table becomes blocks, one CSS class each ("blocks-40"): html() takes the first that is not below its own.
const std::vector<int>& block_widths();

/// Text as it must stand in Markdown, on one line: nothing in it is markup or HTML. In a cell of a table nothing begins a
/// heading or a list.
std::string markdown_text(const std::string& text, bool in_cell = false);
/// Text as it must stand on a terminal, on one line: without control characters, which could move the cursor or worse.
std::string terminal_text(const std::string& text);

/// Columns that a text takes on a terminal: characters, not bytes.
size_t text_width(const std::string& text);
/// The text in lines of at most so many columns, broken between words; a longer word has a line for itself. 0: one line.
std::vector<std::string> lines_of(const std::string& text, size_t width);
/// The same as one text, the lines after the first indented.
std::string wrapped(const std::string& text, size_t width, const std::string& indent);

}  // namespace tandem::lab
