// What the command prints: tables, numbers, and the events of a training run as text or as JSON lines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/train/callbacks.h"

namespace tandem::cli {

/// Rows of cells in aligned columns. Columns named in `right` are aligned right.
class Table {
 public:
  explicit Table(std::vector<std::string> header = {}, std::vector<size_t> right = {});
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;  // on stdout, two spaces before and between

 private:
  std::vector<std::string> header_;
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string fixed(double value, int digits);
std::string percent(double share);     // "97.31 %"
std::string grouped(int64_t value);    // "61,706"
std::string bytes_text(size_t bytes);  // "1.2 MB"
std::string duration(double seconds);  // "2 h 05 min", "3 min 20 s", "12 s"

/// A metric's name for a person: "test accuracy", "test R²".
std::string title_of(const std::string& metric);
/// Its value: "97.31 %" of a share, else four digits after the point.
std::string shown(const MetricInfo& info, double value);

/// One JSON object on a line of stdout. Bytes that are no UTF-8 are replaced.
void print_line(const nlohmann::ordered_json& object);

/// One JSON object per line on stdout, and nothing else.
CallbackPtr json_events();
/// For a person: a table of the settings, a line per epoch, and the end. On a terminal a bar moves on stderr.
CallbackPtr text_events();

}  // namespace tandem::cli
