// The two passes of resizing with antialiasing, on planes in memory.
#pragma once

#include <cstdint>

#include "tandem/core/standard.h"

namespace tandem::data {

/// Bilinear with antialiasing: u8 in 22-bit fixed point with a rounding between the passes (Pillow's arithmetic), f32
/// in floats. `in` holds `planes` planes of (height, width); `out` gets as many of (out_height, out_width).
template <class Pixel>
void resample_bilinear(const Pixel* in, int64_t planes, int64_t height, int64_t width, Pixel* out,
                       int64_t out_height, int64_t out_width);

}  // namespace tandem::data
