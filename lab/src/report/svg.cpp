#include "lab/src/report/svg.h"

#include <cmath>
#include <cstdio>

namespace tandem::lab {

std::string escaped(const std::string& text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        // Control characters are not allowed in a page; what a program left in its last words is shown as a dot.
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
          safe += "·";
        else
          safe += c;
    }
  }
  return safe;
}

std::string pixels(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", std::isfinite(value) ? value : 0.0);
  return text;
}

std::string system_colour(size_t place) { return "var(--c" + std::to_string(place % 10) + ")"; }

namespace {
std::string hover_text(const std::string& hover) {
  return hover.empty() ? "" : "<title>" + escaped(hover) + "</title>";
}
}  // namespace

Svg::Svg(double width, double height, const std::string& title) {
  body_ = "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 " + pixels(width) + " " + pixels(height) +
          "\" xmlns=\"http://www.w3.org/2000/svg\" aria-label=\"" + escaped(title) + "\">\n";
}

void Svg::text(double x, double y, const std::string& words, Anchor anchor, const char* kind) {
  if (words.empty()) return;
  const char* where = anchor == Anchor::start ? "start" : anchor == Anchor::middle ? "middle" : "end";
  body_ += "<text class=\"" + std::string(kind) + "\" x=\"" + pixels(x) + "\" y=\"" + pixels(y) +
           "\" text-anchor=\"" + where + "\">" + escaped(words) + "</text>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, const char* kind) {
  body_ += "<line class=\"" + std::string(kind) + "\" x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) +
           "\" x2=\"" + pixels(x2) + "\" y2=\"" + pixels(y2) + "\"/>\n";
}

void Svg::rect(double x, double y, double width, double height, const std::string& colour,
               const std::string& hover, const char* kind) {
  body_ += "<rect class=\"" + std::string(kind) + "\" x=\"" + pixels(x) + "\" y=\"" + pixels(y) +
           "\" width=\"" + pixels(std::fmax(width, 0)) + "\" height=\"" + pixels(std::fmax(height, 0)) +
           "\" style=\"--mark:" + colour + "\">" + hover_text(hover) + "</rect>\n";
}

void Svg::circle(double x, double y, double radius, const std::string& colour, const std::string& hover) {
  body_ += "<circle class=\"dot\" cx=\"" + pixels(x) + "\" cy=\"" + pixels(y) + "\" r=\"" + pixels(radius) +
           "\" style=\"--mark:" + colour + "\">" + hover_text(hover) + "</circle>\n";
}

void Svg::path(const std::string& points, const std::string& colour, const char* kind,
               const std::string& hover) {
  body_ += "<path class=\"" + std::string(kind) + "\" d=\"" + points + "\" style=\"--mark:" + colour + "\">" +
           hover_text(hover) + "</path>\n";
}

void Svg::stroke(double x1, double y1, double x2, double y2, const std::string& colour, double width,
                 const std::string& hover) {
  body_ += "<line class=\"stroke\" x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) +
           "\" y2=\"" + pixels(y2) + "\" stroke-width=\"" + pixels(width) + "\" style=\"--mark:" + colour +
           "\">" + hover_text(hover) + "</line>\n";
}

std::string Svg::finish() { return body_ + "</svg>\n"; }

}  // namespace tandem::lab
