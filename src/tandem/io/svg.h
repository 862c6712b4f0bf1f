// Pictures as SVG text: one writer for the plots of a run and for the figures of a report, and the round numbers of an axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::io {

/// Text as it must stand in HTML and SVG, quotes included. A control character, which neither allows, becomes a dot.
std::string escaped(const std::string& text);

/// A length in pixels: "12.3". What is not finite is "0.0".
std::string pixels(double value);

/// Round numbers (1, 2 or 5 times a power of ten apart) from at or below `low` to at or above `high`, which must be larger: about
/// `count` steps of at least `least`.
std::vector<double> round_ticks(double low, double high, int count, double least = 0);

/// How a shape looks, and what is shown when the mouse is over it.
struct Mark {
  std::string kind;         ///< its class in the style
  std::string colour = {};  ///< the value of --mark, which styles use
  std::string hover = {};
  double stroke_width = 0;  ///< 0: as the style says
  double opacity = 1;
};

/// A picture, drawn shape by shape. Sizes and places are in pixels; y grows downwards.
class Svg {
 public:
  using Points = std::vector<std::pair<double, double>>;
  enum class Anchor { start, middle, end };

  /// A picture in a file of its own: `style` is the CSS of its shapes.
  static Svg file(double width, double height, const std::string& style);
  /// A picture in a page: it has the class "chart", and the style of the page.
  static Svg in_page(double width, double height, const std::string& title);

  /// Turned by `degrees` around its place. Without words, nothing is drawn.
  void text(double x, double y, const std::string& words, Anchor anchor = Anchor::start,
            const std::string& kind = "", double degrees = 0);
  void line(double x1, double y1, double x2, double y2, const Mark& mark);
  void rect(double x, double y, double width, double height, const Mark& mark);
  void circle(double x, double y, double radius, const Mark& mark);
  void lines(const Points& points, const Mark& mark);    ///< from each point to the next
  void polygon(const Points& points, const Mark& mark);  ///< the area within these corners

  /// The whole text.
  std::string finish() const;

 private:
  explicit Svg(std::string head) : text_(std::move(head)) {}
  void shape(const char* element, const std::string& geometry, const Mark& mark);

  std::string text_;
};

}  // namespace tandem::io
