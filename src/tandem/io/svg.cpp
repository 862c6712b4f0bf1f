#include "tandem/io/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tandem/core/error.h"

namespace tandem::io {
namespace {

std::string escaped(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\n':
    case '\t':
      return {c};
    default:
      return static_cast<unsigned char>(c) < 0x20 ? "·" : std::string{c};
  }
}

/// The step of 1, 2 or 5 times a power of ten that cuts the span into at most `count` pieces.
double round_step(double span, int count) {
  const double power = std::pow(10, std::floor(std::log10(span / count)));
  for (const double factor : {1., 2., 5.})
    if (span / (factor * power) <= count) return factor * power;
  return 10 * power;
}

/// ` name="value"`
std::string attribute(const char* name, const std::string& value) {
  return str(" ", name, "=\"", value, "\"");
}
std::string attribute(const char* name, double value) { return attribute(name, pixels(value)); }

std::string frame(double width, double height) {
  return str(" role=\"img\" viewBox=\"0 0 ", pixels(width), " ", pixels(height),
             "\" xmlns=\"http://www.w3.org/2000/svg\"");
}

std::string listed(const Svg::Points& points) {
  std::string text;
  for (const auto& [x, y] : points) text += str(text.empty() ? "" : " ", pixels(x), ",", pixels(y));
  return attribute("points", text);
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) safe += escaped(c);
  return safe;
}

std::string pixels(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", std::isfinite(value) ? value : 0.0);
  return text;
}

std::vector<double> round_ticks(double low, double high, int count, double least) {
  constexpr double kRounding = 1e-9;  // of a step: 0.3 / 0.1 is a little less than 3
  const double step = std::max(round_step(high - low, count), least);
  const double first = std::floor(low / step + kRounding), last = std::ceil(high / step - kRounding);
  std::vector<double> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

Svg Svg::file(double width, double height, const std::string& style) {
  return Svg(str("<svg", attribute("width", width), attribute("height", height), frame(width, height),
                 ">\n<style>", style, "</style>\n"));
}

Svg Svg::in_page(double width, double height, const std::string& title) {
  return Svg(
      str("<svg class=\"chart\"", frame(width, height), attribute("aria-label", escaped(title)), ">\n"));
}

void Svg::shape(const char* element, const std::string& geometry, const Mark& mark) {
  text_ += str("<", element, attribute("class", mark.kind), geometry);
  if (mark.stroke_width > 0) text_ += attribute("stroke-width", mark.stroke_width);
  if (mark.opacity < 1) text_ += attribute("opacity", str(mark.opacity));
  if (!mark.colour.empty()) text_ += attribute("style", "--mark:" + mark.colour);
  text_ += mark.hover.empty() ? "/>\n" : str("><title>", escaped(mark.hover), "</title></", element, ">\n");
}

void Svg::text(double x, double y, const std::string& words, Anchor anchor, const std::string& kind,
               double degrees) {
  if (words.empty()) return;
  const char* where = anchor == Anchor::start ? "start" : anchor == Anchor::middle ? "middle" : "end";
  text_ += "<text";
  if (!kind.empty()) text_ += attribute("class", kind);
  text_ += attribute("x", x) + attribute("y", y) + attribute("text-anchor", std::string(where));
  if (degrees != 0) text_ += str(" transform=\"rotate(", degrees, " ", pixels(x), " ", pixels(y), ")\"");
  text_ += str(">", escaped(words), "</text>\n");
}

void Svg::line(double x1, double y1, double x2, double y2, const Mark& mark) {
  shape("line", attribute("x1", x1) + attribute("y1", y1) + attribute("x2", x2) + attribute("y2", y2), mark);
}

void Svg::rect(double x, double y, double width, double height, const Mark& mark) {
  shape("rect",
        attribute("x", x) + attribute("y", y) + attribute("width", std::fmax(width, 0)) +
            attribute("height", std::fmax(height, 0)),
        mark);
}

void Svg::circle(double x, double y, double radius, const Mark& mark) {
  shape("circle", attribute("cx", x) + attribute("cy", y) + attribute("r", radius), mark);
}

void Svg::lines(const Points& points, const Mark& mark) { shape("polyline", listed(points), mark); }

void Svg::polygon(const Points& points, const Mark& mark) { shape("polygon", listed(points), mark); }

std::string Svg::finish() const { return text_ + "</svg>\n"; }

}  // namespace tandem::io
