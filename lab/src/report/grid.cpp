#include "lab/src/report/grid.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tandem/io/file.h"
#include "tandem/io/svg.h"

namespace tandem::lab {

size_t text_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Grid::Grid(std::vector<std::string> header, std::vector<size_t> numbers)
    : header_(std::move(header)), numbers_(std::move(numbers)) {}

void Grid::add(std::vector<GridCell> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

bool Grid::is_number(size_t column) const {
  return std::find(numbers_.begin(), numbers_.end(), column) != numbers_.end();
}

const std::vector<int>& block_widths() {
  static const std::vector<int> widths = {20, 25, 30, 35, 40, 45,  50,  55,  60, 65,
                                          70, 75, 80, 85, 90, 100, 110, 120, 999};
  return widths;
}

namespace {

constexpr size_t kShortNumber = 12;  // letters: such a number is not broken over lines
constexpr size_t kLongestWord = 24;  // letters: longer words may be broken anywhere

size_t longest_word(const std::string& text) {
  size_t longest = 0, begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    longest = std::max(longest, text_width(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return longest;
}

std::string cell_classes(const GridCell& cell, bool number) {
  std::string classes = cell.mark;
  const auto add = [&](const char* name) { classes += (classes.empty() ? "" : " ") + std::string(name); };
  if (number) add(text_width(cell.text) <= kShortNumber ? "number short" : "number");
  if (longest_word(cell.text) > kLongestWord) add("long");
  return classes;
}

}  // namespace

double Grid::width() const {
  double sum = 0;
  for (size_t i = 0; i < header_.size(); ++i) {
    size_t word = longest_word(header_[i]), letters = text_width(header_[i]);
    for (const auto& row : rows_) {
      const size_t all = text_width(row[i].text);
      letters = std::max(letters, all);
      word = std::max(word, is_number(i) && all <= kShortNumber ? all : longest_word(row[i].text));
    }
    // A letter is about half as wide as high; texts of many words want room for a few of them in a line.
    const size_t line = is_number(i) ? word : std::max(word, std::min<size_t>(letters, 16));
    sum += 0.55 * static_cast<double>(std::min(line, kLongestWord)) + 1.2;
  }
  return sum;
}

std::string Grid::html() const {
  const auto& widths = block_widths();
  const auto fits = std::lower_bound(widths.begin(), widths.end() - 1, width());
  std::string page =
      "<div class=\"table blocks-" + std::to_string(*fits) + "\"><table class=\"sortable\"><thead><tr>";
  for (size_t i = 0; i < header_.size(); ++i)
    page += std::string("<th scope=\"col\"") + (is_number(i) ? " class=\"number\"" : "") + ">" +
            io::escaped(header_[i]) + "</th>";
  page += "</tr></thead><tbody>\n";
  for (const auto& row : rows_) {
    page += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const GridCell& cell = row[i];
      page += "<td data-label=\"" + io::escaped(header_[i]) + "\"";
      if (const std::string classes = cell_classes(cell, is_number(i)); !classes.empty())
        page += " class=\"" + classes + "\"";
      if (cell.sort && std::isfinite(*cell.sort)) {
        char key[40];
        std::snprintf(key, sizeof key, "%.9g", *cell.sort);
        page += std::string(" data-sort=\"") + key + "\"";
      }
      const std::string text = io::escaped(cell.text);
      page += ">" +
              (cell.link.empty() ? text : "<a href=\"#" + io::escaped(cell.link) + "\">" + text + "</a>") +
              "</td>";
    }
    page += "</tr>\n";
  }
  return page + "</tbody></table></div>\n";
}

std::string markdown_text(const std::string& text, bool in_cell) {
  const auto is_word = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || (text[i] & 0x80));
  };
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const size_t digits = std::min(text.find_first_not_of("0123456789", begin), text.size());
  std::string safe;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    // At the beginning of a line these make headings, lists, quotes, rules and numbered lists.
    const bool begins = !in_cell && ((i == begin && std::strchr("#>+-=~:", c)) ||
                                     (i == digits && digits > begin && (c == '.' || c == ')')));
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      safe += ' ';
    else if (begins || std::strchr("\\`*[]|~$", c) ||
             (c == '_' && !(i > begin && is_word(i - 1) && is_word(i + 1))))
      (safe += '\\') += c;
    else
      safe += c;
  }
  return safe;
}

std::string terminal_text(const std::string& text) { return io::one_line(text, text.size()); }

std::string Grid::markdown() const {
  std::string page = "|", rule = "|";
  for (size_t i = 0; i < header_.size(); ++i) {
    page += " " + markdown_text(header_[i], true) + " |";
    rule += is_number(i) ? "---:|" : "---|";
  }
  page += "\n" + rule + "\n";
  for (const auto& row : rows_) {
    page += "|";
    for (const GridCell& cell : row) page += " " + markdown_text(cell.text, true) + " |";
    page += "\n";
  }
  return page;
}

std::vector<std::string> lines_of(const std::string& text, size_t width) {
  if (width == 0 || text_width(text) <= width) return {text};
  std::vector<std::string> lines;
  // Blanks at the beginning are kept.
  size_t begin = std::min(text.find_first_not_of(' '), text.size());
  std::string line = text.substr(0, begin);
  bool is_empty = true;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!is_empty && text_width(line) + 1 + text_width(word) > width) {
      lines.push_back(std::exchange(line, ""));
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + word;
    is_empty = false;
    begin = std::min(text.find_first_not_of(' ', end), text.size());
  }
  lines.push_back(line);
  return lines;
}

std::string wrapped(const std::string& text, size_t width, const std::string& indent) {
  std::string out;
  const size_t room = width > indent.size() + 20 ? width - indent.size() : 0;
  for (const std::string& line : lines_of(text, room)) out += (out.empty() ? "" : "\n" + indent) + line;
  return out;
}

namespace {

/// Takes columns from the widest until all fit, but none from one that is as wide as its longest word.
bool shrink(std::vector<size_t>& widths, const std::vector<size_t>& least, size_t room) {
  const auto sum = [](const std::vector<size_t>& list) {
    size_t all = 0;
    for (const size_t width : list) all += width;
    return all;
  };
  if (sum(least) > room) return false;
  while (sum(widths) > room) {
    size_t widest = widths.size();
    for (size_t i = 0; i < widths.size(); ++i)
      if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    --widths[widest];
  }
  return true;
}

}  // namespace

std::string Grid::blocks(size_t width) const {
  size_t label = 0;
  for (size_t i = 1; i < header_.size(); ++i) label = std::max(label, text_width(terminal_text(header_[i])));
  std::string page;
  for (const auto& row : rows_) {
    page += "  " + wrapped(terminal_text(row[0].text), width, "  ") + "\n";
    for (size_t i = 1; i < row.size(); ++i) {
      const std::string name = terminal_text(header_[i]);
      if (row[i].text.empty()) continue;
      std::string before = "    " + name + std::string(label - text_width(name) + 2, ' ');
      for (const std::string& line :
           lines_of(terminal_text(row[i].text), width > label + 26 ? width - label - 6 : 0)) {
        page += before + line + "\n";
        before.assign(label + 6, ' ');
      }
    }
  }
  return page;
}

std::string Grid::text(size_t width) const {
  std::vector<size_t> widths, least;
  for (size_t i = 0; i < header_.size(); ++i) {
    size_t wide = text_width(terminal_text(header_[i])), word = longest_word(terminal_text(header_[i]));
    for (const auto& row : rows_) {
      wide = std::max(wide, text_width(terminal_text(row[i].text)));
      word = std::max(word, longest_word(terminal_text(row[i].text)));
    }
    widths.push_back(wide);
    least.push_back(word);
  }
  const size_t between = 2 * header_.size();
  if (width > 0 && !shrink(widths, least, width > between ? width - between : 0)) return blocks(width);
  std::string page;
  const auto put = [&](const auto& texts) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t i = 0; i < header_.size(); ++i) {
      cells.push_back(lines_of(terminal_text(texts(i)), widths[i]));
      height = std::max(height, cells.back().size());
    }
    for (size_t at = 0; at < height; ++at) {
      std::string line;
      for (size_t i = 0; i < header_.size(); ++i) {
        const std::string text = at < cells[i].size() ? cells[i][at] : "";
        const std::string space(widths[i] - text_width(text), ' ');
        line += "  " + (is_number(i) ? space + text : text + space);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      page += line + "\n";
    }
  };
  put([&](size_t i) -> const std::string& { return header_[i]; });
  for (const auto& row : rows_) put([&](size_t i) -> const std::string& { return row[i].text; });
  return page;
}

}  // namespace tandem::lab
