#include <gtest/gtest.h>

#include <cmath>

#include "lab/src/report/charts.h"
#include "lab/src/report/grid.h"

namespace tandem::lab {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

const Metric kTime{"t", "step time", "s", Metric::Better::less};

TEST(Numbers, HaveThreeDigitsAndGroups) {
  EXPECT_EQ(number_text(0.0031234), "0.00312");
  EXPECT_EQ(number_text(12.345), "12.3");
  EXPECT_EQ(number_text(1234567), "1,234,567");
  EXPECT_EQ(number_text(-1234.5), "-1,234");
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(NAN), "–");
  EXPECT_EQ(number_text(1.5e-7), "1.50e-07");
  EXPECT_EQ(tick_text(0.5), "0.5");
  EXPECT_EQ(tick_text(20), "20");
  EXPECT_EQ(tick_text(1500), "1,500");
  EXPECT_EQ(p_text(3.8966e-18), "p = 3.9e-18");
  EXPECT_EQ(p_text(0.0123), "p = 0.012");
}

TEST(Numbers, SecondsAreShownInTheUnitThatFits) {
  EXPECT_EQ(with_unit(0.00317, kTime), "3.17 ms");
  EXPECT_EQ(with_unit(9.39e-5, kTime), "93.9 µs");
  EXPECT_EQ(with_unit(12.5, kTime), "12.5 s");
  EXPECT_EQ(with_unit(7201, kTime), "2.00 h");
}

TEST(Axis, HasRoundTicksAroundTheValues) {
  const Axis axis = make_axis(0.13, 0.87, 0, 100);
  EXPECT_LE(axis.low, 0.13);
  EXPECT_GE(axis.high, 0.87);
  EXPECT_NEAR(axis.ticks[1] - axis.ticks[0], 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(axis.at(axis.low), 0);
  EXPECT_DOUBLE_EQ(axis.at(axis.high), 100);
}

TEST(Axis, OfOneValueIsNotEmpty) {
  for (const double value : {0.0, 5.0, -3.0, 1e-9}) {
    const Axis axis = make_axis(value, value, 0, 100);
    EXPECT_LT(axis.low, axis.high);
    EXPECT_GE(axis.ticks.size(), 2u);
    EXPECT_LT(axis.ticks.size(), 30u);
  }
}

TEST(Axis, OfCountsHasNoTicksBetweenWholeNumbers) {
  EXPECT_EQ(make_axis(1, 2, 0, 100, false, false, true).ticks, (std::vector<double>{1, 2}));
  EXPECT_EQ(make_axis(1, 1, 0, 100, false, false, true).ticks, (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(make_axis(1, 10, 0, 100, false, false, true).ticks, (std::vector<double>{0, 2, 4, 6, 8, 10}));
}

TEST(Axis, LogarithmicOnesFallBackWithoutPositiveValues) {
  EXPECT_TRUE(make_axis(0.02, 300, 0, 1, true).logarithmic);
  EXPECT_FALSE(make_axis(-1, 300, 0, 1, true).logarithmic);
  const Axis axis = make_axis(0.02, 300, 0, 100, true);
  EXPECT_LE(axis.low, 0.02);
  EXPECT_GE(axis.high, 300);
}

TEST(BoxChart, DrawsABoxAMedianAndEveryRun) {
  const std::string chart = box_chart(
      "times", kTime, {{"a", system_colour(0), {1, 2, 3, 4, 50, NAN}, {}}, {"b", system_colour(1), {7}, {}}});
  EXPECT_EQ(count(chart, "class=\"box\""), 2u);
  EXPECT_EQ(count(chart, "class=\"dot\""), 6u);
  EXPECT_EQ(count(chart, "class=\"stroke\""), 4u);
  EXPECT_NE(chart.find("median 3.00 s"), std::string::npos);
}

TEST(BoxChart, OfNothingFiniteIsNothing) {
  EXPECT_EQ(box_chart("t", kTime, {}), "");
  EXPECT_EQ(box_chart("t", kTime, {{"a", "red", {NAN, INFINITY}, {}}}), "");
}

TEST(BarChart, DrawsIntervalsAndTurnsToDotsOverDecades) {
  const std::string bars = bar_chart(
      "t", kTime, {{"a", "red", {}, Estimate{2, 1, 3}, "one"}, {"b", "red", {}, Estimate{4, 4, 4}, "two"}});
  EXPECT_EQ(count(bars, "class=\"bar\""), 2u);
  EXPECT_EQ(count(bars, "class=\"whisker\""), 3u);
  EXPECT_EQ(count(bars, "class=\"group\""), 2u);
  const std::string dots = bar_chart(
      "t", kTime, {{"a", "red", {}, Estimate{0.001, 0.001, 0.001}}, {"b", "red", {}, Estimate{4, 4, 4}}});
  EXPECT_EQ(count(dots, "class=\"dot\""), 2u);
  EXPECT_NE(dots.find("logarithmic"), std::string::npos);
}

TEST(LineChart, LeavesOutWhatIsNotFinite) {
  LineChart chart{.title = "t",
                  .x_name = {"x, s"},
                  .y_name = {"y, ms", "lower is better"},
                  .band = true,
                  .lines = {},
                  .marks = {{0.5, "a mark"}}};
  chart.lines = {{"a", "red", {{1, {1, 0.5, 1.5}}, {2, {NAN, 0, 0}}, {3, {2, 1, INFINITY}}}},
                 {"b", "blue", {}}};
  const std::string svg = line_chart(chart);
  EXPECT_EQ(count(svg, "class=\"line\""), 1u);
  EXPECT_EQ(count(svg, "class=\"band\""), 1u);
  EXPECT_EQ(count(svg, "class=\"dot\""), 2u);
  EXPECT_EQ(count(svg, "class=\"mark\""), 1u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  chart.lines.pop_back();
  chart.lines[0].points = {{NAN, {1, 1, 1}}};
  EXPECT_EQ(line_chart(chart), "");
}

TEST(ConfusionChart, HasACellForEachPair) {
  EXPECT_EQ(count(confusion_chart("c", {{9, 1}, {2, 8}}), "class=\"cell\""), 4u);
  EXPECT_EQ(confusion_chart("c", {}), "");
}

/// The texts at the axes of a drawing.
std::vector<std::string> axis_names(const std::string& svg) {
  std::vector<std::string> names;
  for (size_t at = svg.find("class=\"axis-name\""); at != std::string::npos;
       at = svg.find("class=\"axis-name\"", at + 1)) {
    const size_t begin = svg.find('>', at) + 1;
    names.push_back(svg.substr(begin, svg.find('<', begin) - begin));
  }
  return names;
}

TEST(Charts, EveryAxisHasItsUnitAndSaysWhichSideIsBetter) {
  using Names = std::vector<std::string>;
  const Metric more{"n", "throughput", "samples/s", Metric::Better::more};
  const Metric neither{"u", "utilisation", "%", Metric::Better::neither};
  const std::vector<ChartRow> rows = {{"a", "red", {0.001, 0.002}, Estimate{0.002, 0.001, 0.003}}};
  EXPECT_EQ(axis_names(box_chart("t", kTime, rows)), (Names{"step time, ms", "lower is better"}));
  EXPECT_EQ(axis_names(bar_chart("t", more, rows)), (Names{"throughput, samples/s", "higher is better"}));
  EXPECT_EQ(axis_names(bar_chart("t", neither, rows)), (Names{"utilisation, %"}));
  EXPECT_EQ(axis_names(scatter_chart("t", neither, kTime, {{1, 2, "a", "red"}})),
            (Names{"utilisation, %", "step time, s", "lower is better"}));
  const LineChart lines{.title = "t",
                        .x_name = {"batch size, samples"},
                        .y_name = {"step time, s", "lower is better"},
                        .lines = {{"a", "red", {{1, {1, 1, 1}}}}}};
  EXPECT_EQ(axis_names(line_chart(lines)), (Names{"batch size, samples", "step time, s", "lower is better"}));
  EXPECT_EQ(axis_names(confusion_chart("c", {{1}})).size(), 3u);
}

TEST(Charts, WhatHasNoUnitSaysWhatItsNumbersAre) {
  EXPECT_EQ(axis_name(metric("fit.accuracy"), {}), "test accuracy, share of 1");
  EXPECT_EQ(axis_name(metric("code.lines"), {}), "lines of code, number");
  EXPECT_EQ(axis_name(metric("fit.loss"), {}), "training loss, no unit");
  for (const Metric& known : metrics()) {
    const std::string name = axis_name(known, {1, known.unit});
    EXPECT_GT(name.size(), known.label.size() + 2) << known.name;
    EXPECT_EQ(better_text(known).empty(), known.better == Metric::Better::neither) << known.name;
  }
}

TEST(BoxChart, BreaksALongNameIntoLinesInsteadOfCuttingIt) {
  const std::string words =
      "tandem:graph with graph=on, graph.prune=off, graph.fuse=off, conv=profile, threads=2";
  const std::string chart = box_chart("t", kTime, {{words, "red", {1, 2}, {}}});
  EXPECT_EQ(count(chart, "class=\"label\""), 2u);
  EXPECT_EQ(chart.find("…"), std::string::npos);
}

TEST(Charts, NamesAreEscaped) {
  const std::string chart = box_chart("<t>", kTime, {{"<script>&\"", "red", {1, 2}, {}}});
  EXPECT_EQ(chart.find("<script>"), std::string::npos);
  EXPECT_NE(chart.find("&lt;script&gt;&amp;&quot;"), std::string::npos);
}

TEST(Grid, IsAlignedByLettersAndNotByBytes) {
  Grid grid({"name", "value"}, {1});
  grid.add({{"µ"}, {"1"}});
  grid.add({{"abc"}, {"12.5"}});
  EXPECT_EQ(grid.text(), "  name  value\n  µ         1\n  abc    12.5\n");
}

TEST(Grid, EveryCellOfHtmlCarriesItsColumnsNameForNarrowPages) {
  Grid grid({"system", "time <s>"}, {1});
  grid.add({{"tandem:graph", {}, "", "part-x"}, {"3.00 ms", 0.003}});
  const std::string html = grid.html();
  EXPECT_NE(html.find("<td data-label=\"system\"><a href=\"#part-x\">tandem:graph</a></td>"),
            std::string::npos)
      << html;
  EXPECT_NE(
      html.find("<td data-label=\"time &lt;s&gt;\" class=\"number short\" data-sort=\"0.003\">3.00 ms</td>"),
      std::string::npos)
      << html;
}

TEST(Grid, BecomesBlocksBelowTheWidthThatItNeeds) {
  const auto width_of = [](const Grid& grid) {
    const std::string html = grid.html();
    return std::stoi(html.substr(html.find("blocks-") + 7));
  };
  Grid narrow({"what", "value"}), wide(std::vector<std::string>(9, "tensorflow:function")),
      huge(std::vector<std::string>(40, "tensorflow:function")), word({"what"});
  narrow.add({{"a"}, {"b"}});
  word.add({{std::string(500, 'x')}});
  EXPECT_EQ(width_of(narrow), block_widths().front());
  EXPECT_GT(width_of(wide), 90);
  EXPECT_LE(width_of(wide), 120);
  EXPECT_EQ(width_of(huge), block_widths().back()) << "it is never a table";
  EXPECT_LE(width_of(word), 30) << "a word without end is broken";
  EXPECT_NE(word.html().find("class=\"long\""), std::string::npos);
}

TEST(Grid, EscapesInHtmlAndMarkdown) {
  Grid grid({"a|b"});
  grid.add({{"x|<y>\n`z`", 3.5, "good"}});
  EXPECT_NE(grid.html().find("data-sort=\"3.5\">x|&lt;y&gt;"), std::string::npos);
  EXPECT_NE(grid.markdown().find("x\\|&lt;y&gt; \\`z\\`"), std::string::npos);
}

}  // namespace
}  // namespace tandem::lab
