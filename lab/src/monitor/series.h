// Readings of one quantity over a window: mean and peak of all of them, and a curve of a bounded number of points, however
// long the window lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lab/src/record/record.h"

namespace tandem::lab {

/// The most points that a curve keeps.
inline constexpr size_t kTracePoints = 300;

class Series {
 public:
  /// Which value stands for several neighbours in the curve: their mean, or their largest.
  enum class Thin : uint8_t { mean, peak };
  explicit Series(Thin thin = Thin::mean) : thin_(thin) {}

  /// Times must not fall.
  void add(double seconds, double value);
  bool empty() const { return readings_ == 0; }
  int64_t readings() const { return readings_; }
  /// Over time: between two readings the quantity is taken to go straight from one to the other.
  double mean() const;
  double peak() const { return peak_; }
  double last() const { return last_value_; }
  double last_seconds() const { return last_seconds_; }
  Trace trace(std::string metric, std::string unit, std::string source, size_t limit = kTracePoints) const;

 private:
  struct Point {
    double seconds = 0, value = 0;  // sums over `count` readings; with Thin::peak, value is the largest
    int64_t count = 0;
  };
  Point merged(const Point& a, const Point& b) const;

  Thin thin_;
  std::vector<Point> points_;
  int64_t stride_ = 1;  // readings a full point
  int64_t readings_ = 0;
  double first_seconds_ = 0, last_seconds_ = 0, last_value_ = 0, area_ = 0, sum_ = 0, peak_ = 0;
};

}  // namespace tandem::lab
