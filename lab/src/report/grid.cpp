#include "lab/src/report/grid.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "lab/src/report/svg.h"
#include "tandem/io/file.h"

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

std::string Grid::html() const {
  std::string page = "<div class=\"table\"><table class=\"sortable\"><thead><tr>";
  for (size_t i = 0; i < header_.size(); ++i)
    page += std::string("<th scope=\"col\"") + (is_number(i) ? " class=\"number\"" : "") + ">" +
            escaped(header_[i]) + "</th>";
  page += "</tr></thead><tbody>\n";
  for (const auto& row : rows_) {
    page += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const GridCell& cell = row[i];
      std::string classes = is_number(i) ? "number" : "";
      if (!cell.mark.empty()) classes += (classes.empty() ? "" : " ") + cell.mark;
      page += "<td";
      if (!classes.empty()) page += " class=\"" + classes + "\"";
      if (cell.sort && std::isfinite(*cell.sort)) {
        char key[40];
        std::snprintf(key, sizeof key, "%.9g", *cell.sort);
        page += std::string(" data-sort=\"") + key + "\"";
      }
      page += ">" + escaped(cell.text) + "</td>";
    }
    page += "</tr>\n";
  }
  return page + "</tbody></table></div>\n";
}

std::string markdown_text(const std::string& text) {
  const auto is_word = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || (text[i] & 0x80));
  };
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const size_t digits = std::min(text.find_first_not_of("0123456789", begin), text.size());
  std::string safe;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    // At the beginning of a line these make headings, lists, quotes, rules and numbered lists.
    const bool begins = (i == begin && std::strchr("#>+-=~:", c)) ||
                        (i == digits && digits > begin && (c == '.' || c == ')'));
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
    page += " " + markdown_text(header_[i]) + " |";
    rule += is_number(i) ? "---:|" : "---|";
  }
  page += "\n" + rule + "\n";
  for (const auto& row : rows_) {
    page += "|";
    for (const GridCell& cell : row) page += " " + markdown_text(cell.text) + " |";
    page += "\n";
  }
  return page;
}

std::string Grid::text() const {
  std::vector<size_t> widths;
  for (const std::string& name : header_) widths.push_back(text_width(terminal_text(name)));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], text_width(terminal_text(row[i].text)));
  std::string page;
  const auto put = [&](const auto& texts) {
    std::string line;
    for (size_t i = 0; i < header_.size(); ++i) {
      const std::string text = terminal_text(texts(i));
      const std::string space(widths[i] - text_width(text), ' ');
      line += "  " + (is_number(i) ? space + text : text + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    page += line + "\n";
  };
  put([&](size_t i) -> const std::string& { return header_[i]; });
  for (const auto& row : rows_) put([&](size_t i) -> const std::string& { return row[i].text; });
  return page;
}

}  // namespace tandem::lab
