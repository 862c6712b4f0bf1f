// Plots of lines and points, as SVG text: axes with round numbers, a legend, colours for light and dark surroundings.
#pragma once

#include <string>
#include <vector>

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
  int width = 640, height = 400;
};

std::string line_chart(const Chart& chart);

}  // namespace tandem
