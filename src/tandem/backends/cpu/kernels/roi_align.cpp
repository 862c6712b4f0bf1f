// CPU kernel of roi_align. The points of a box are found once for some channels; a bin adds up its points in order.
// levels: one
#include <algorithm>
#include <vector>

#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/error.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kChannels = 32;  // of one task

/// A point of an axis: the two pixels that it lies between, and how much they count.
template <class C>
struct Point {
  int64_t low = -1, high = 0;  // -1: further than a pixel outside of the image; reads nothing
  C low_part = 0, high_part = 0;
};

template <class C>
std::vector<Point<C>> points_along(C begin, C end, int64_t bins, int64_t pixels, const RoiAlignAttrs& a) {
  const C scale = static_cast<C>(a.scale), first = begin * scale - (a.aligned ? C(0.5) : C(0));
  C length = (end - begin) * scale;
  if (!a.aligned && length < C(1)) length = C(1);
  const int64_t count = bins * a.samples;
  std::vector<Point<C>> points(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const C at = first + length * ((static_cast<C>(i) + C(0.5)) / static_cast<C>(count));
    if (!(at >= C(-1) && at <= static_cast<C>(pixels))) continue;
    const C place = std::clamp(at, C(0), static_cast<C>(pixels - 1)), low = floor_(place);
    Point<C>& point = points[static_cast<size_t>(i)];
    point.low = std::min(static_cast<int64_t>(low), pixels - 1);  // a large size is none of f32's numbers
    point.high = std::min(point.low + 1, pixels - 1);
    point.high_part = place - low;
    point.low_part = C(1) - point.high_part;
  }
  return points;
}

template <class C, class T>
C value_at(const T* plane, int64_t width, const Point<C>& y, const Point<C>& x) {
  if (y.low < 0 || x.low < 0) return 0;
  const T *above = plane + y.low * width, *below = plane + y.high * width;
  return static_cast<C>(above[x.low]) * (y.low_part * x.low_part) +
         static_cast<C>(above[x.high]) * (y.low_part * x.high_part) +
         static_cast<C>(below[x.low]) * (y.high_part * x.low_part) +
         static_cast<C>(below[x.high]) * (y.high_part * x.high_part);
}

void roi_align(const KernelArgs& args) {
  const Buffer &x = args.in[0], &boxes = args.in[1], &out = args.out[0];
  const auto& a = args.attributes<RoiAlignAttrs>();
  const int64_t* images = args.in[2].as<int64_t>();
  const int64_t count = out.shape[0], channels = out.shape[1], height = x.shape[2], width = x.shape[3];
  TD_CHECK(count == 0 || x.shape[0] > 0, "roi_align: x must have an image for each of the ", count,
           " boxes; it has none.");
  for (int64_t i = 0; i < count; ++i)
    TD_CHECK(images[i] >= 0 && images[i] < x.shape[0], "roi_align: each number of an image must lie in 0..",
             x.shape[0] - 1, "; got ", images[i], " at box ", i, ".");
  if (out.size() == 0) return;
  const int64_t parts = (channels + kChannels - 1) / kChannels;
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    parallel_for(count * parts, [&](int64_t task) {
      const int64_t box = task / parts, begin = task % parts * kChannels;
      const T* corners = boxes.as<T>() + 4 * box;
      const auto corner = [&](int i) { return static_cast<C>(corners[i]); };
      const std::vector<Point<C>> across = points_along(corner(0), corner(2), a.width, width, a),
                                  down = points_along(corner(1), corner(3), a.height, height, a);
      for (int64_t c = begin; c < std::min(channels, begin + kChannels); ++c) {
        const T* plane = x.as<T>() + (images[box] * channels + c) * height * width;
        T* to = out.as<T>() + (box * channels + c) * a.height * a.width;
        for (int64_t bin = 0; bin < a.height * a.width; ++bin) {
          const Point<C>*ys = &down[static_cast<size_t>(bin / a.width * a.samples)],
                *xs = &across[static_cast<size_t>(bin % a.width * a.samples)];
          C sum = 0;
          for (int64_t i = 0; i < a.samples; ++i)
            for (int64_t k = 0; k < a.samples; ++k) sum += value_at(plane, width, ys[i], xs[k]);
          to[bin] = static_cast<T>(sum / static_cast<C>(a.samples * a.samples));
        }
      }
    });
  });
}

}  // namespace

void register_roi_align_kernels() { op_roi_align().kernels[static_cast<int>(DeviceKind::cpu)] = roi_align; }

}  // namespace tandem::cpu::TD_ISA
