// Plots of lines and points, as SVG text: axes with round numbers, a legend, colours for light and dark surroundings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

struct Series {
  std::string label;
  std::vector<double> x = {}, y = {};  ///< as many of each, finite
  bool points = false;                 ///< dots alone, without a line
};

struct Chart {
  std::string title = {};
  std::string x_label = {}, y_label = {};
  std::vector<Series> series = {};
  /// The least and the largest y in the frame; unset: of all series. What lies beyond is drawn at the edge: points as arrows.
  std::optional<std::pair<double, double>> y_range = {};
  int width = 640, height = 400;
};

std::string line_chart(const Chart& chart);

/// The least and the largest of the values without those that lie so far from most of them that a frame for all would
/// show nothing else. `must` is always within.
std::pair<double, double> usual_range(std::vector<double> values, double must);

/// Numbers from 0 to 1 over two axes, dark where they are high.
struct HeatMap {
  std::string title = {};
  std::string x_label = {}, y_label = {};
  int64_t columns = 0, rows = 0;
  std::vector<double> values = {};  ///< row by row; the first row is the lowest
  int width = 640, height = 400;
};
/// Of more rows or columns than a picture shows, neighbours are one cell, as high as the highest.
std::string heat_map(const HeatMap& map);

}  // namespace tandem
