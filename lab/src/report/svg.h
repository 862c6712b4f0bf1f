// Drawing in SVG text. Colours are CSS variables of the page (--ink, --line, --c0 …), so that one drawing serves light,
// dark and print; a drawing that stands alone gets them from its own style.
#pragma once

#include <string>

namespace tandem::lab {

/// Text as it must stand in HTML and SVG, quotes included.
std::string escaped(const std::string& text);

class Svg {
 public:
  Svg(double width, double height, const std::string& title);

  enum class Anchor { start, middle, end };
  void text(double x, double y, const std::string& words, Anchor anchor = Anchor::start,
            const char* kind = "label");
  void line(double x1, double y1, double x2, double y2, const char* kind = "axis");
  /// A shape with `hover` as the words that appear over it.
  void rect(double x, double y, double width, double height, const std::string& colour,
            const std::string& hover, const char* kind = "bar");
  void circle(double x, double y, double radius, const std::string& colour, const std::string& hover);
  void path(const std::string& points, const std::string& colour, const char* kind,
            const std::string& hover = "");
  void stroke(double x1, double y1, double x2, double y2, const std::string& colour, double width,
              const std::string& hover = "");

  /// The whole drawing.
  std::string finish();

 private:
  std::string body_;
};

/// "12.3": pixels.
std::string pixels(double value);

/// The colour of a system's marks: the same in every figure of a report. `place` is its place in the list of systems.
std::string system_colour(size_t place);

}  // namespace tandem::lab
