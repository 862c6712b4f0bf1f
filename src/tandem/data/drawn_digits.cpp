// Drawing digits. A stroke is a quadratic B-spline over a few control points; the pixel's brightness follows from
// its distance to the nearest stroke. Only + - * / and square root are used on floats, which IEEE arithmetic
// rounds in one way, and every random number is a Philox word of (seed, index): the bytes depend on nothing else.
#include "tandem/data/drawn_digits.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "tandem/core/rng.h"

namespace tandem::data {

namespace {

constexpr uint64_t kDrawnSeed = 28;
constexpr uint64_t kDrawnStream =
    0x6469676974732121;  // keeps these numbers apart from other streams of a seed
constexpr int kSide = static_cast<int>(kDrawnSide);
constexpr int kPiecesPerCurve = 4;

struct Point {
  float x, y;
};
/// Control points in a box of 100 by 100, y down. The curve starts at the first, ends at the last and bends
/// towards the others; a point that stands twice makes a corner.
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

/// The ways to write each digit.
const std::vector<Glyph>& ways_to_write(int digit) {
  static const std::vector<Glyph>* const table = new std::vector<Glyph>[10] {
    {{{{55, 0}, {8, 0}, {-2, 50}, {8, 100}, {50, 102}, {92, 100}, {102, 50}, {92, 0}, {50, 0}}},
     {{{70, 6}, {20, -8}, {-4, 50}, {6, 104}, {60, 106}, {104, 70}, {100, 4}, {48, 2}}}},
        {{{{50, 0}, {50, 100}}},
         {{{22, 26}, {56, 0}, {56, 0}, {56, 100}}},
         {{{25, 22}, {52, 0}, {52, 0}, {52, 100}}, {{22, 100}, {84, 100}}}},
        {{{{6, 28}, {8, -2}, {52, -2}, {98, 0}, {96, 38}, {70, 62}, {0, 100}, {0, 100}, {100, 100}}},
         {{{6, 22},
           {20, -4},
           {60, -4},
           {100, 8},
           {84, 52},
           {40, 92},
           {2, 106},
           {4, 78},
           {40, 84},
           {70, 104},
           {102, 92}}}},
        {{{{6, 14},
           {24, -4},
           {84, -6},
           {98, 40},
           {38, 47},
           {38, 47},
           {104, 50},
           {104, 100},
           {44, 108},
           {0, 88}}},
         {{{4, 0}, {92, 0}, {92, 0}, {42, 40}, {42, 40}, {100, 44}, {106, 96}, {44, 108}, {0, 90}}}},
        {{{{58, 0}, {0, 66}, {0, 66}, {100, 66}}, {{68, 36}, {68, 100}}},
         {{{72, 100}, {72, 0}, {72, 0}, {0, 68}, {0, 68}, {100, 68}}},
         {{{12, 0}, {6, 54}, {6, 54}, {92, 52}}, {{82, 4}, {76, 100}}}},
        {{{{92, 0}, {16, 0}, {16, 0}, {8, 46}, {8, 46}, {44, 30}, {104, 44}, {102, 100}, {42, 108}, {0, 90}}},
         {{{18, 2}, {8, 46}, {8, 46}, {50, 28}, {106, 48}, {98, 104}, {40, 106}, {2, 88}},
          {{18, 2}, {94, 0}}}},
        {{{{80, 0},
           {28, 10},
           {-4, 62},
           {6, 104},
           {52, 104},
           {104, 100},
           {100, 48},
           {52, 48},
           {10, 52},
           {6, 80}}},
         {{{60, 0}, {10, 40}, {-6, 104}, {50, 102}, {98, 100}, {96, 56}, {48, 54}, {14, 60}, {12, 76}}}},
        {{{{0, 0}, {100, 0}, {100, 0}, {70, 42}, {36, 100}}},
         {{{2, 4}, {98, 0}, {98, 0}, {34, 100}}, {{24, 50}, {84, 48}}},
         {{{0, 18}, {2, 0}, {2, 0}, {96, 0}, {96, 0}, {60, 50}, {52, 100}}}},
        {{{{50, 48},
           {4, 40},
           {2, -2},
           {50, -2},
           {98, -2},
           {96, 40},
           {50, 48},
           {-2, 56},
           {-2, 102},
           {50, 102},
           {102, 102},
           {102, 56},
           {50, 48}}},
         {{{88, 14},
           {60, -8},
           {4, -4},
           {6, 38},
           {50, 48},
           {104, 62},
           {100, 104},
           {50, 104},
           {0, 102},
           {0, 66},
           {50, 46},
           {94, 26},
           {86, 8}}}},
        {{{{94, 26}, {88, -4}, {46, -2}, {-4, 0}, {-2, 52}, {46, 52}, {92, 50}, {96, 16}},
          {{95, 14}, {98, 56}, {78, 100}}},
         {{{92, 24},
           {84, -6},
           {40, -2},
           {-6, 6},
           {2, 54},
           {50, 50},
           {96, 44},
           {92, 10},
           {92, 10},
           {106, 96},
           {52, 108},
           {14, 94}}}},
  };
  return table[digit];
}

/// The random numbers of one sample.
class Draw {
 public:
  Draw(uint64_t seed, int64_t index)
      : seed_(seed ^ kDrawnStream), counter_(static_cast<uint64_t>(index) << 16) {}
  uint32_t word() {
    if (used_ == 4) {
      block_ = philox(seed_, counter_++);
      used_ = 0;
    }
    return block_.x[used_++];
  }
  float between(float low, float high) { return low + (high - low) * uniform_from_bits(word()); }
  /// Around 0, mostly near it, at most ±width: the sum of two uniform numbers.
  float about_zero(float width) {
    const float a = between(-0.5f, 0.5f), b = between(-0.5f, 0.5f);
    return width * (a + b);
  }
  int below(int n) { return static_cast<int>(uint64_t{word()} * static_cast<uint64_t>(n) >> 32); }

 private:
  uint64_t seed_, counter_;
  PhiloxBlock block_{};
  int used_ = 4;
};

/// The squared distance of every pixel's centre to the nearest of the lines drawn so far.
class Canvas {
 public:
  Canvas() { std::fill_n(distance2_, kSide * kSide, kFar); }

  void line(Point a, Point b) {
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float length2 = dx * dx + dy * dy;
    const float scale = length2 > 0 ? 1.0f / length2 : 0.0f;
    const int x0 = pixel(std::min(a.x, b.x) - kReach), x1 = pixel(std::max(a.x, b.x) + kReach);
    const int y0 = pixel(std::min(a.y, b.y) - kReach), y1 = pixel(std::max(a.y, b.y) + kReach);
    for (int y = y0; y <= y1; ++y) {
      float* row = distance2_ + y * kSide;
      const float py = static_cast<float>(y) - a.y;
      for (int x = x0; x <= x1; ++x) {
        const float px = static_cast<float>(x) - a.x;
        const float along = std::clamp((px * dx + py * dy) * scale, 0.0f, 1.0f);
        const float ex = px - along * dx, ey = py - along * dy;
        row[x] = std::min(row[x], ex * ex + ey * ey);
      }
    }
  }

  /// A quadratic B-spline: pieces whose ends are the middles between control points.
  void curve(std::span<const Point> points) {
    const size_t n = points.size();
    if (n == 2) return line(points[0], points[1]);
    Point from = points[0];
    for (size_t i = 1; i + 1 < n; ++i) {
      const Point bend = points[i];
      const Point to = i + 2 == n ? points[n - 1] : middle(bend, points[i + 1]);
      Point last = from;
      for (int k = 1; k <= kPiecesPerCurve; ++k) {
        const float t = static_cast<float>(k) / kPiecesPerCurve, u = 1.0f - t;
        const Point at{u * u * from.x + 2.0f * u * t * bend.x + t * t * to.x,
                       u * u * from.y + 2.0f * u * t * bend.y + t * t * to.y};
        line(last, at);
        last = at;
      }
      from = to;
    }
  }

  /// How much of a pixel a pen of this radius covers, 0 … 1.
  float cover(int pixel, float radius) const {
    return std::clamp(radius + 0.5f - std::sqrt(distance2_[pixel]), 0.0f, 1.0f);
  }

 private:
  static constexpr float kReach = 3.0f;  // farther from a line no pen reaches
  static constexpr float kFar = 1e6f;
  static int pixel(float at) { return static_cast<int>(std::clamp(at, 0.0f, static_cast<float>(kSide - 1))); }
  static Point middle(Point a, Point b) { return {0.5f * (a.x + b.x), 0.5f * (a.y + b.y)}; }
  float distance2_[kSide * kSide];
};

/// From the glyph's box to pixels: size, slant, turn, place.
class Placement {
 public:
  explicit Placement(Draw& draw) {
    const float width = draw.between(8.5f, 15.5f) * 0.01f, height = draw.between(14.0f, 20.5f) * 0.01f;
    const float slant = draw.about_zero(0.45f), half_turn = draw.about_zero(0.17f);
    // Sine and cosine as rational functions of the tangent of half the angle.
    const float norm = 1.0f / (1.0f + half_turn * half_turn);
    const float cosine = (1.0f - half_turn * half_turn) * norm, sine = 2.0f * half_turn * norm;
    xx_ = cosine * width;
    xy_ = (cosine * slant - sine) * height;
    yx_ = sine * width;
    yy_ = (sine * slant + cosine) * height;
    x_ = 13.5f + draw.about_zero(3.5f);
    y_ = 13.5f + draw.about_zero(3.0f);
  }
  Point operator()(Point p) const {
    const float x = p.x - 50.0f, y = p.y - 50.0f;
    return {x_ + xx_ * x + xy_ * y, y_ + yx_ * x + yy_ * y};
  }

 private:
  float xx_, xy_, yx_, yy_, x_, y_;
};

}  // namespace

uint8_t drawn_label(uint64_t seed, int64_t index) {
  return static_cast<uint8_t>(Draw(seed, index).below(10));
}

void draw_digit(uint64_t seed, int64_t index, uint8_t* pixels) {
  Draw draw(seed, index);
  const int digit = draw.below(10);
  const std::vector<Glyph>& ways = ways_to_write(digit);
  const Glyph& glyph = ways[static_cast<size_t>(draw.below(static_cast<int>(ways.size())))];
  const Placement place(draw);
  const float pen = draw.between(0.55f, 1.9f), ink = draw.between(130.0f, 255.0f);
  const float wobble = draw.between(4.0f, 20.0f);

  Canvas digit_canvas, stray_canvas;
  Point moved[16];
  for (const Stroke& stroke : glyph) {
    TD_ASSERT(stroke.size() >= 2 && stroke.size() <= std::size(moved), "a stroke has 2 to 16 points");
    Point last{1e9f, 1e9f}, shift{};
    for (size_t i = 0; i < stroke.size(); ++i) {
      // A corner's two points move together.
      if (stroke[i].x != last.x || stroke[i].y != last.y)
        shift = {draw.about_zero(wobble), draw.about_zero(wobble)};
      last = stroke[i];
      moved[i] = place({last.x + shift.x, last.y + shift.y});
    }
    digit_canvas.curve({moved, stroke.size()});
  }
  // A stray stroke in every third image.
  float stray_ink = 0.0f;
  const float stray_pen = draw.between(0.3f, 0.9f);
  if (draw.below(3) == 0) {
    stray_ink = draw.between(70.0f, 190.0f);
    const Point a{draw.between(0.0f, 27.0f), draw.between(0.0f, 27.0f)};
    stray_canvas.line(a, {a.x + draw.about_zero(12.0f), a.y + draw.about_zero(12.0f)});
  }
  const float noise = draw.between(0.0f, 60.0f);
  for (int k = 0; k < kSide * kSide; k += 4) {
    const uint32_t bits = draw.word();  // four bytes of noise
    for (int byte = 0; byte < 4; ++byte) {
      const float grain =
          static_cast<float>(static_cast<int>(bits >> (8 * byte) & 255) - 128) * (1.0f / 128.0f);
      const float stroke = digit_canvas.cover(k + byte, pen) * ink;
      const float stray = stray_canvas.cover(k + byte, stray_pen) * stray_ink;
      const float value = std::clamp(std::max(stroke, stray) + noise * grain, 0.0f, 255.0f);
      pixels[k + byte] = static_cast<uint8_t>(value + 0.5f);
    }
  }
}

namespace {

// Mean and deviation of the training images, pixels scaled to 0…1.
constexpr float kMean = 0.1349f, kDeviation = 0.2448f;

std::vector<uint8_t> labels_of(uint64_t seed, int64_t first, int64_t size) {
  std::vector<uint8_t> labels(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) labels[static_cast<size_t>(i)] = drawn_label(seed, first + i);
  return labels;
}

}  // namespace

DrawnDigits::DrawnDigits(std::string name, uint64_t seed, int64_t first, int64_t size)
    : ImageDataset(std::move(name), {1, kDrawnSide, kDrawnSide, {kMean}, {kDeviation}},
                   labels_of(seed, first, size)),
      seed_(seed),
      first_(first),
      images_(new uint8_t[static_cast<size_t>(size * format().bytes())]),
      states_(new std::atomic<uint8_t>[static_cast<size_t>(size)] {}) {}

const uint8_t* DrawnDigits::pixels(int64_t i, uint8_t* scratch) const {
  uint8_t* kept = images_.get() + i * format().bytes();
  std::atomic<uint8_t>& state = states_[static_cast<size_t>(i)];
  uint8_t found = state.load(std::memory_order_acquire);
  if (found == kDrawn) return kept;
  if (found == kEmpty && state.compare_exchange_strong(found, kBeingDrawn, std::memory_order_acq_rel)) {
    draw_digit(seed_, first_ + i, kept);
    state.store(kDrawn, std::memory_order_release);
    return kept;
  }
  draw_digit(seed_, first_ + i, scratch);  // another thread is drawing it: rather twice than wait
  return scratch;
}

std::optional<std::string> locate_built_in(const DatasetInfo&, const std::string&) { return kBuiltIn; }

Splits open_drawn_digits(const DatasetInfo& info, const OpenOptions&) {
  return {std::make_shared<DrawnDigits>(info.title + ", train", kDrawnSeed, 0, info.train_size),
          std::make_shared<DrawnDigits>(info.title + ", test", kDrawnSeed, info.train_size, info.test_size),
          info, info.name, kBuiltIn};
}

}  // namespace tandem::data
