#include "lab/report/grid.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lab/report/svg.h"

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

namespace {

/// A cell's text on one line of Markdown.
std::string markdown_cell(std::string text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '`' || c == '*') safe += '\\';
    safe += c == '\n' || c == '\r' ? ' ' : c;
  }
  return safe;
}

}  // namespace

std::string Grid::markdown() const {
  std::string page = "|", rule = "|";
  for (size_t i = 0; i < header_.size(); ++i) {
    page += " " + markdown_cell(header_[i]) + " |";
    rule += is_number(i) ? "---:|" : "---|";
  }
  page += "\n" + rule + "\n";
  for (const auto& row : rows_) {
    page += "|";
    for (const GridCell& cell : row) page += " " + markdown_cell(cell.text) + " |";
    page += "\n";
  }
  return page;
}

std::string Grid::text() const {
  std::vector<size_t> widths;
  for (const std::string& name : header_) widths.push_back(text_width(name));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i].text));
  std::string page;
  const auto put = [&](const auto& texts) {
    std::string line;
    for (size_t i = 0; i < header_.size(); ++i) {
      const std::string space(widths[i] - text_width(texts(i)), ' ');
      line += "  " + (is_number(i) ? space + texts(i) : texts(i) + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    page += line + "\n";
  };
  put([&](size_t i) -> const std::string& { return header_[i]; });
  for (const auto& row : rows_) put([&](size_t i) -> const std::string& { return row[i].text; });
  return page;
}

}  // namespace tandem::lab
