// Tables and numbers.
#include "cli/output.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace tandem::cli {
namespace {

/// Characters, not bytes: continuation bytes of UTF-8 take no column.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> header, std::vector<size_t> right)
    : header_(std::move(header)), right_(std::move(right)) {}

void Table::print() const {
  std::vector<std::vector<std::string>> rows = rows_;
  if (!header_.empty()) rows.insert(rows.begin(), header_);
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - width_of(row[i]), ' ');
      const bool is_right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += "  " + (is_right ? gap + row[i] : row[i] + gap);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string percent(double share) { return fixed(100 * share, 2) + " %"; }

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  const int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(text.size()) - 3; at > first; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string bytes_text(size_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000000) return fixed(value / 1e3, 1) + " kB";
  if (bytes < 1000000000) return fixed(value / 1e6, 1) + " MB";
  return fixed(value / 1e9, 2) + " GB";
}

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  char text[64];
  if (whole < 60)
    std::snprintf(text, sizeof(text), "%lld s", whole);
  else if (whole < 3600)
    std::snprintf(text, sizeof(text), "%lld min %02lld s", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof(text), "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  return text;
}

std::string title_of(const std::string& metric) {
  std::string out = metric;
  for (char& c : out)
    if (c == '_') c = ' ';
  return out;
}

std::string shown(const MetricInfo& info, double value) {
  return info.is_share ? percent(value) : fixed(value, 4);
}

void print_line(const nlohmann::ordered_json& object) {
  std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace tandem::cli
