// Plots whose scale a single value must not decide, and whose numbers need room.
#include <gtest/gtest.h>

#include "tandem/train/plot.h"
#include "tests/support/refusal.h"

namespace tandem::testing {
namespace {

using Range = std::pair<double, double>;

TEST(UsualRange, LeavesOutWhatLiesFarFromMostValues) {
  EXPECT_EQ(usual_range({-0.2, 0.31, 0.62, -1234567, 0.7, 0.71, 0.55}, 0.71), (Range{-0.2, 0.71}));
  EXPECT_EQ(usual_range({0.9, -1e6}, 0.9), (Range{0.9, 0.9}));
  EXPECT_EQ(usual_range({1e9, 2.3, 0.1}, 0.1), (Range{0.1, 2.3}));
  EXPECT_EQ(usual_range({0.1, 0.1, 0.98, 0.97, 0.6, 0.3}, 0.98), (Range{0.1, 0.98}));
  EXPECT_EQ(usual_range({3}, 3), (Range{3, 3}));
  EXPECT_EQ(usual_range({0, 0, 0, 0, 0, 5}, 5), (Range{0, 5})) << "the best is always within";
}

TEST(LineChart, WhatLiesBeyondTheRangeIsAnArrowAtTheEdge) {
  const std::string svg =
      line_chart({.series = {{"trials", {1, 2, 3}, {0.5, -1e6, 0.7}, true}}, .y_range = Range{0, 1}});
  size_t circles = 0, arrows = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++circles;
  for (size_t at = svg.find("<polygon"); at != std::string::npos; at = svg.find("<polygon", at + 1)) ++arrows;
  EXPECT_EQ(circles, 2u);
  EXPECT_EQ(arrows, 1u);
  EXPECT_HAS(svg, "<title>trials 2: -1e+06</title>");
  EXPECT_HAS(svg, ">0.8</text>");
  EXPECT_HAS(refusal([] { line_chart({.y_range = Range{1, 0}}); }), "the lesser first; got 1 and 0");
}

TEST(LineChart, TheNumbersOfTheAxisDoNotReachItsLabel) {
  // The label stands at x = 16, 13 high; a digit is 7.5 wide.
  for (const double size : {1.0, 1234567.0, 1.234e-15}) {
    const std::string svg = line_chart({.y_label = "r2", .series = {{"a", {0, 1}, {-size, 0.7 * size}}}});
    size_t numbers = 0;
    for (size_t at = svg.find("text-anchor=\"end\""); at != std::string::npos;
         at = svg.find("text-anchor=\"end\"", at + 1)) {
      const size_t line = svg.rfind("<text x=\"", at) + 9, begin = svg.find('>', at) + 1,
                   end = svg.find('<', begin);
      const double right = std::stod(svg.substr(line));
      if (right > 320) continue;  // the legend
      EXPECT_GT(right - 7.5 * static_cast<double>(end - begin), 16 + 6) << svg.substr(begin, end - begin);
      ++numbers;
    }
    EXPECT_GT(numbers, 2u);
  }
}

}  // namespace
}  // namespace tandem::testing
