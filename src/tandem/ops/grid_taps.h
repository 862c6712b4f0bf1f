// Which pixels of an axis a coordinate of grid_sample reads, and how much each counts: for the CPU and CUDA kernels.
#pragma once

#include "tandem/ops/grid_sample.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem {

/// Up to four pixels of one axis.
template <class C>
struct GridTaps {
  int count = 0;
  long long at[4];  // -1: outside, reads as zero
  C weight[4];      // of the pixel
  C slope[4];       // the derivative of the weight by the grid's coordinate
  C none;  // what a sum over no pixel is: 0, or NaN where the weights of the zeros outside are no numbers
};

/// A coordinate in pixels, and its derivative by what it was before.
template <class C>
struct GridPlace {
  C at, slope;
};

/// Mirrored at low and low + span as often as it takes.
template <class C>
TD_HD GridPlace<C> mirrored(C at, C low, C span) {
  if (!(span > C(0))) return {C(0), C(0)};
  const C away = at - low, distance = abs_(away), extra = fmod_(distance, span);
  const bool turned = fmod_(floor_(distance / span), C(2)) != C(0);
  const C sign = away < C(0) ? C(-1) : C(1);
  return {turned ? span - extra + low : extra + low, turned ? -sign : sign};
}

/// A place brought into the image. A NaN goes to 0.
template <class C>
TD_HD GridPlace<C> padded(GridPadding padding, bool corners, C at, C size) {
  GridPlace<C> place{at, C(1)};
  if (padding == GridPadding::zeros) return place;
  if (padding == GridPadding::reflection)
    place = corners ? mirrored(at, C(0), size - C(1)) : mirrored(at, C(-0.5), size);
  const C last = size - C(1);
  const bool below = !(place.at > C(0)), above = place.at >= last;
  return {below ? C(0) : (above ? last : place.at), below || above ? C(0) : place.slope};
}

/// The derivative of some order of pixel i's weight by t, the place's distance from the pixel before it. Bicubic: Keys' kernel
/// with a = -3/4, a cubic of the distance d within one pixel of the place, another within two.
template <class C>
TD_HD C tap_weight(GridMode mode, int i, C t, long long order) {
  if (mode == GridMode::nearest) return order == 0 ? C(1) : C(0);
  if (mode == GridMode::bilinear) {
    const C weight = i == 0 ? C(1) - t : t, slope = i == 0 ? C(-1) : C(1);
    return order == 0 ? weight : (order == 1 ? slope : C(0));
  }
  const C a = C(-0.75);
  const bool inner = i == 1 || i == 2, right = i >= 2;
  const C d = right ? static_cast<C>(i - 1) - t : t + static_cast<C>(1 - i);
  C y = C(0);
  if (order == 0)
    y = inner ? ((a + C(2)) * d - (a + C(3))) * d * d + C(1)
              : ((a * d - C(5) * a) * d + C(8) * a) * d - C(4) * a;
  else if (order == 1)
    y = inner ? (C(3) * (a + C(2)) * d - C(2) * (a + C(3))) * d : (C(3) * a * d - C(10) * a) * d + C(8) * a;
  else if (order == 2)
    y = inner ? C(6) * (a + C(2)) * d - C(2) * (a + C(3)) : C(6) * a * d - C(10) * a;
  else if (order == 3)
    y = inner ? C(6) * (a + C(2)) : C(6) * a;
  return right && order % 2 ? -y : y;
}

/// order: which derivative of the weights `weight` holds.
template <class C>
TD_HD GridTaps<C> grid_taps(const GridAttrs& attrs, C coordinate, long long pixels, long long order) {
  const auto padding = static_cast<GridPadding>(attrs.padding);
  const auto mode = static_cast<GridMode>(attrs.mode);
  const C size = static_cast<C>(pixels);
  const C scale = (attrs.corners ? size - C(1) : size) / C(2);
  const C plain =
      attrs.corners ? (coordinate + C(1)) / C(2) * (size - C(1)) : ((coordinate + C(1)) * size - C(1)) / C(2);
  GridTaps<C> taps;
  taps.count = mode == GridMode::nearest ? 1 : (mode == GridMode::bilinear ? 2 : 4);
  // A coordinate that is infinite or NaN, less itself, is NaN.
  taps.none = padding == GridPadding::zeros && mode != GridMode::nearest ? coordinate - coordinate : C(0);
  const GridPlace<C> place =
      mode == GridMode::bicubic ? GridPlace<C>{plain, C(1)} : padded(padding, attrs.corners, plain, size);
  const C low = mode == GridMode::nearest ? round_(place.at) : floor_(place.at), t = place.at - low;
  const C first = mode == GridMode::bicubic ? low - C(1) : low, slope = scale * place.slope;
  C factor = C(1);
  for (long long k = 0; k < order && k < 4; ++k) factor = factor * slope;
  for (int i = 0; i < taps.count; ++i) {
    C at = first + static_cast<C>(i);
    if (mode == GridMode::bicubic) at = padded(padding, attrs.corners, at, size).at;
    taps.at[i] = at >= C(0) && at < size ? static_cast<long long>(at) : -1;
    taps.weight[i] = tap_weight(mode, i, t, order) * factor;
    taps.slope[i] = tap_weight(mode, i, t, order + 1) * (factor * slope);
  }
  return taps;
}

}  // namespace tandem
