// Resizing: every output pixel is a weighted sum of the input pixels under a triangle, first along rows, then along
// columns. Rows are handled sixteen at a time, turned on their side, so that both passes run along memory.
#include "tandem/data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace tandem::data {

namespace {

constexpr int kPrecision = 32 - 8 - 2;  // bits after the point: 8 for a pixel and 2 to spare stay before it
constexpr int64_t kLanes = 16;

/// For each output position: where its input begins, how many there are, and their weights.
template <class Weight>
struct Window {
  int64_t taps;  // room for each position
  std::vector<int64_t> first, count;
  std::vector<Weight> weights;
};

template <class Weight>
Window<Weight> triangle_window(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  Window<Weight> window;
  window.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  window.weights.assign(static_cast<size_t>(out * window.taps), Weight{0});
  std::vector<double> weights(static_cast<size_t>(window.taps));
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in) - first;
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const double distance = std::fabs((static_cast<double>(k + first) - center + 0.5) / support);
      sum += weights[static_cast<size_t>(k)] = std::max(0.0, 1.0 - distance);
    }
    window.first.push_back(first);
    window.count.push_back(count);
    for (int64_t k = 0; k < count; ++k) {
      const double weight =
          sum != 0 ? weights[static_cast<size_t>(k)] / sum : weights[static_cast<size_t>(k)];
      Weight& place = window.weights[static_cast<size_t>(i * window.taps + k)];
      if constexpr (std::is_integral_v<Weight>)
        place = static_cast<Weight>(weight * (1 << kPrecision) + 0.5);
      else
        place = static_cast<Weight>(weight);
    }
  }
  return window;
}

/// Sums and weights: 32-bit integers for bytes, floats for floats.
template <class Pixel>
using Sum = std::conditional_t<std::is_same_v<Pixel, uint8_t>, int32_t, float>;

/// out[0 … n-1] = the weighted sum of `count` rows of `in`, `stride` apart.
template <class Pixel>
void weighted_rows(const Pixel* __restrict in, int64_t stride, int64_t count, const Sum<Pixel>* weights,
                   Pixel* __restrict out, int64_t n, Sum<Pixel>* __restrict sums) {
  constexpr bool kBytes = std::is_same_v<Pixel, uint8_t>;
  const Sum<Pixel> start = kBytes ? Sum<Pixel>(1 << (kPrecision - 1)) : Sum<Pixel>(0);
  for (int64_t i = 0; i < n; ++i) sums[i] = start;
  for (int64_t k = 0; k < count; ++k) {
    const Sum<Pixel> weight = weights[k];
    const Pixel* row = in + k * stride;
    for (int64_t i = 0; i < n; ++i) sums[i] += weight * static_cast<Sum<Pixel>>(row[i]);
  }
  if constexpr (kBytes)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Pixel>(std::clamp(sums[i] >> kPrecision, 0, 255));
  else
    for (int64_t i = 0; i < n; ++i) out[i] = sums[i];
}

/// to[c * kLanes + r] = from[r * stride + c] for `rows` <= kLanes rows.
template <class Pixel>
void turn(const Pixel* from, int64_t stride, int64_t rows, int64_t columns, Pixel* to) {
  if (rows == kLanes) {
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < kLanes; ++r) to[c * kLanes + r] = from[r * stride + c];
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * kLanes + r] = from[r * stride + c];
}

template <class Pixel>
void along_rows(const Pixel* in, int64_t rows, int64_t width, Pixel* out, int64_t out_width) {
  const Window<Sum<Pixel>> window = triangle_window<Sum<Pixel>>(width, out_width);
  std::vector<Pixel> turned(static_cast<size_t>(width * kLanes)),
      made(static_cast<size_t>(out_width * kLanes));
  Sum<Pixel> sums[kLanes];
  for (int64_t row = 0; row < rows; row += kLanes) {
    const int64_t n = std::min(kLanes, rows - row);
    turn(in + row * width, width, n, width, turned.data());
    for (int64_t x = 0; x < out_width; ++x)
      weighted_rows<Pixel>(turned.data() + window.first[static_cast<size_t>(x)] * kLanes, kLanes,
                           window.count[static_cast<size_t>(x)], window.weights.data() + x * window.taps,
                           made.data() + x * kLanes, kLanes, sums);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t x = 0; x < out_width; ++x)
        out[(row + r) * out_width + x] = made[static_cast<size_t>(x * kLanes + r)];
  }
}

template <class Pixel>
void along_columns(const Pixel* in, int64_t planes, int64_t height, int64_t width, Pixel* out,
                   int64_t out_height) {
  const Window<Sum<Pixel>> window = triangle_window<Sum<Pixel>>(height, out_height);
  std::vector<Sum<Pixel>> sums(static_cast<size_t>(width));
  for (int64_t p = 0; p < planes; ++p)
    for (int64_t y = 0; y < out_height; ++y)
      weighted_rows<Pixel>(in + (p * height + window.first[static_cast<size_t>(y)]) * width, width,
                           window.count[static_cast<size_t>(y)], window.weights.data() + y * window.taps,
                           out + (p * out_height + y) * width, width, sums.data());
}

}  // namespace

template <class Pixel>
void resample_bilinear(const Pixel* in, int64_t planes, int64_t height, int64_t width, Pixel* out,
                       int64_t out_height, int64_t out_width) {
  std::vector<Pixel> between;
  if (width != out_width) {
    const bool last = height == out_height;
    if (!last) between.resize(static_cast<size_t>(planes * height * out_width));
    along_rows(in, planes * height, width, last ? out : between.data(), out_width);
    in = between.data();
    if (last) return;
  }
  if (height != out_height)
    along_columns(in, planes, height, out_width, out, out_height);
  else
    std::copy_n(in, planes * height * width, out);
}

template void resample_bilinear(const uint8_t*, int64_t, int64_t, int64_t, uint8_t*, int64_t, int64_t);
template void resample_bilinear(const float*, int64_t, int64_t, int64_t, float*, int64_t, int64_t);

}  // namespace tandem::data
