// Curves that are thinned while they grow.
#include "lab/src/monitor/series.h"

#include <algorithm>
#include <utility>

namespace tandem::lab {

void Series::add(double seconds, double value) {
  if (readings_ == 0) {
    first_seconds_ = seconds;
    peak_ = value;
  } else {
    area_ += 0.5 * (value + last_value_) * (seconds - last_seconds_);
    peak_ = std::max(peak_, value);
  }
  ++readings_;
  sum_ += value;
  last_seconds_ = seconds;
  last_value_ = value;

  const Point one{seconds, value, 1};
  if (!points_.empty() && points_.back().count < stride_) {
    points_.back() = merged(points_.back(), one);
    return;
  }
  if (points_.size() == 2 * kTracePoints) {
    for (size_t i = 0; i < kTracePoints; ++i) points_[i] = merged(points_[2 * i], points_[2 * i + 1]);
    points_.resize(kTracePoints);
    stride_ *= 2;
  }
  points_.push_back(one);
}

double Series::mean() const {
  const double span = last_seconds_ - first_seconds_;
  if (span > 0) return area_ / span;
  return readings_ ? sum_ / static_cast<double>(readings_) : 0;
}

Series::Point Series::merged(const Point& a, const Point& b) const {
  return {a.seconds + b.seconds, thin_ == Thin::peak ? std::max(a.value, b.value) : a.value + b.value,
          a.count + b.count};
}

Trace Series::trace(std::string metric, std::string unit, std::string source, size_t limit) const {
  Trace trace;
  trace.metric = std::move(metric);
  trace.unit = std::move(unit);
  trace.source = std::move(source);
  limit = std::clamp<size_t>(limit, 1, kTracePoints);
  const size_t group = (points_.size() + limit - 1) / limit;
  for (size_t i = 0; i < points_.size(); i += group) {
    Point point = points_[i];
    for (size_t j = i + 1; j < std::min(i + group, points_.size()); ++j) point = merged(point, points_[j]);
    const auto count = static_cast<double>(point.count);
    trace.seconds.push_back(point.seconds / count);
    trace.values.push_back(thin_ == Thin::peak ? point.value : point.value / count);
  }
  return trace;
}

}  // namespace tandem::lab
