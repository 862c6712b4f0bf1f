// Operations on one image: a CPU tensor (channels, height, width), u8 with values 0…255 or f32 (0…1 where a colour is
// meant). They follow torchvision's definitions; resizing u8 has the very bytes of Pillow.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem::data {

enum class Interpolation : uint8_t {
  nearest,   // the pixel whose area holds the centre (Pillow's NEAREST, torchvision's NEAREST_EXACT)
  bilinear,  // with antialiasing where it makes smaller
};

namespace image {

Tensor resize(const Tensor& image, int64_t height, int64_t width,
              Interpolation interpolation = Interpolation::bilinear);
/// So that the shorter side has `side` pixels and the proportions stay.
Tensor resize_short_side(const Tensor& image, int64_t side,
                         Interpolation interpolation = Interpolation::bilinear);

/// The part with its upper left corner at (top, left), which must lie within the image.
Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// The middle; an image that is smaller gets a border of `fill`.
Tensor center_crop(const Tensor& image, int64_t height, int64_t width, double fill = 0);

struct Padding {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
};
/// A border of `fill`.
Tensor pad(const Tensor& image, const Padding& padding, double fill = 0);

Tensor flip_horizontal(const Tensor& image);
Tensor flip_vertical(const Tensor& image);
/// By degrees, counter-clockwise around the middle; what comes from outside is `fill`. The size stays.
Tensor rotate(const Tensor& image, double degrees, Interpolation interpolation = Interpolation::nearest,
              double fill = 0);

/// Factor 0 gives black, a grey of the mean, the grey image; 1 changes nothing.
Tensor adjust_brightness(const Tensor& image, double factor);
Tensor adjust_contrast(const Tensor& image, double factor);
Tensor adjust_saturation(const Tensor& image, double factor);
/// Turns the hue by `shift` of the circle, -0.5 … 0.5.
Tensor adjust_hue(const Tensor& image, double shift);
/// One channel, or that three times.
Tensor grayscale(const Tensor& image, int64_t channels = 1);

/// u8 to f32 0…1; f32 stays.
Tensor to_float(const Tensor& image);
/// (image - mean) / deviation, per channel. u8 is taken as to_float(image).
Tensor normalise(const Tensor& image, const std::vector<float>& mean, const std::vector<float>& deviation);

}  // namespace image
}  // namespace tandem::data
