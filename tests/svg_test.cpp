// The writer of pictures: what stands in its text, and the round numbers of an axis.
#include "tandem/io/svg.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/train/plot.h"
#include "tests/support/refusal.h"

namespace tandem::testing {
namespace {

using io::Svg;

TEST(Svg, TextIsEscapedAndControlCharactersBecomeDots) {
  EXPECT_EQ(io::escaped("a < b & \"c\" > 'd'\n"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;\n");
  EXPECT_EQ(io::escaped("\x1b[31mµ"), "·[31mµ");
}

TEST(Svg, ShapesHaveOnlyTheAttributesThatTheyNeed) {
  Svg svg = Svg::in_page(100, 50, "a & b");
  svg.line(0, 1, 2, 3.25, {"grid"});
  svg.rect(1, 2, -3, NAN,
           {.kind = "bar", .colour = "red", .hover = "<x>", .stroke_width = 2, .opacity = 0.5});
  svg.lines({{1, 2}, {3, 4}}, {"line"});
  svg.text(1, 2, "up", Svg::Anchor::end, "tick", -90);
  svg.text(1, 2, "");
  EXPECT_EQ(
      svg.finish(),
      "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 100.0 50.0\" xmlns=\"http://www.w3.org/2000/svg\" "
      "aria-label=\"a &amp; b\">\n"
      "<line class=\"grid\" x1=\"0.0\" y1=\"1.0\" x2=\"2.0\" y2=\"3.2\"/>\n"
      "<rect class=\"bar\" x=\"1.0\" y=\"2.0\" width=\"0.0\" height=\"0.0\" stroke-width=\"2.0\" "
      "opacity=\"0.5\" style=\"--mark:red\"><title>&lt;x&gt;</title></rect>\n"
      "<polyline class=\"line\" points=\"1.0,2.0 3.0,4.0\"/>\n"
      "<text class=\"tick\" x=\"1.0\" y=\"2.0\" text-anchor=\"end\" transform=\"rotate(-90 1.0 "
      "2.0)\">up</text>\n"
      "</svg>\n");
}

TEST(Svg, APictureInAFileHasItsOwnSizeAndStyle) {
  const std::string svg = Svg::file(640, 400, "\n.a { fill: red }\n").finish();
  EXPECT_HAS(svg, "<svg width=\"640.0\" height=\"400.0\"");
  EXPECT_HAS(svg, "<style>\n.a { fill: red }\n</style>\n");
}

TEST(RoundTicks, AreOneTwoOrFiveTimesAPowerOfTenApart) {
  EXPECT_EQ(io::round_ticks(0.3, 5.1, 6), (std::vector<double>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(io::round_ticks(-130, 260, 4), (std::vector<double>{-200, -100, 0, 100, 200, 300}));
  EXPECT_EQ(io::round_ticks(0, 2, 8, 1), (std::vector<double>{0, 1, 2}));
}

// 0.3 / 0.1 is a little less than 3, and 3 * 0.1 a little more than 0.3.
TEST(RoundTicks, BeginAtAValueThatIsRoundButForItsLastBit) {
  const std::vector<double> ticks = io::round_ticks(0.3, 0.8, 6);
  ASSERT_EQ(ticks.size(), 6u);
  EXPECT_NEAR(ticks.front(), 0.3, 1e-12);
  EXPECT_EQ(line_chart({.series = {{"a", {0, 1}, {0.3, 0.8}}}}).find("<polygon"), std::string::npos)
      << "such a value lies within the frame";
}

}  // namespace
}  // namespace tandem::testing
