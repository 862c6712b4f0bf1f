// Operations on one image.
#include "tandem/data/image_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/data/resample.h"

namespace tandem::data::image {

namespace {

constexpr int64_t kMaxSide = int64_t{1} << 20;
constexpr int64_t kMaxPixels = int64_t{1} << 28;

/// The image, contiguous.
Tensor checked(const char* what, const Tensor& image) {
  TD_CHECK(image.defined() && image.rank() == 3 && image.device().is_cpu() &&
               (image.dtype() == DType::u8 || image.dtype() == DType::f32),
           what, ": must be u8 or f32 (channels, height, width) on the CPU; got ",
           image.defined() ? tandem::describe(image) : "nothing", ".");
  TD_CHECK(image.size() > 0, what, ": the image must have at least one pixel; got ", image.shape(), ".");
  return image.is_contiguous() ? image : from_host(host_bytes(image).data(), image.shape(), image.dtype());
}

void check_size(const char* what, int64_t height, int64_t width) {
  TD_CHECK(
      height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide && height * width <= kMaxPixels,
      what, ": the new size must be at least 1 by 1 and at most 2^28 pixels; got ", height, " by ", width,
      ".");
}

/// Calls f(pointer to the image's elements, zero of their type).
template <class F>
void with_pixels(const Tensor& image, F&& f) {
  if (image.dtype() == DType::u8)
    f(static_cast<const uint8_t*>(image.data<uint8_t>()));
  else
    f(static_cast<const float*>(image.data<float>()));
}

template <class Pixel>
Pixel* pixels_of(const Tensor& image) {
  return static_cast<Pixel*>(image.raw());
}

template <class Pixel>
using PixelOf = std::remove_cv_t<std::remove_pointer_t<Pixel>>;

/// The value of a fill colour in the image's type.
template <class Pixel>
Pixel fill_value(double fill) {
  if constexpr (std::is_same_v<Pixel, uint8_t>)
    return static_cast<uint8_t>(std::clamp(fill, 0.0, 255.0));
  else
    return static_cast<float>(fill);
}

/// What torchvision makes of a colour computed in floats: cut to the range; bytes lose their fraction.
template <class Pixel>
Pixel colour(float value) {
  if constexpr (std::is_same_v<Pixel, uint8_t>)
    return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
  else
    return std::clamp(value, 0.0f, 1.0f);
}

Tensor checked_colour(const char* what, const Tensor& image) {
  Tensor in = checked(what, image);
  TD_CHECK(in.size(0) == 1 || in.size(0) == 3, what, ": the image must have 1 or 3 channels; got ",
           in.size(0), ".");
  return in;
}

void check_factor(const char* what, double factor) {
  TD_CHECK(std::isfinite(factor) && factor >= 0, what, ": the factor must be at least 0; got ", factor, ".");
}

/// The grey of three planes by torchvision's weights. Bytes lose their fraction.
template <class Pixel>
void gray_plane(const Pixel* in, int64_t plane, Pixel* out) {
  for (int64_t i = 0; i < plane; ++i)
    out[i] =
        static_cast<Pixel>(0.2989f * static_cast<float>(in[i]) + 0.587f * static_cast<float>(in[plane + i]) +
                           0.114f * static_cast<float>(in[2 * plane + i]));
}

}  // namespace

Tensor resize(const Tensor& image, int64_t height, int64_t width, Interpolation interpolation) {
  const Tensor in = checked("resize", image);
  check_size("resize", height, width);
  if (height == in.size(1) && width == in.size(2)) return in;
  Tensor out = empty({in.size(0), height, width}, in.dtype());
  const int64_t in_height = in.size(1), in_width = in.size(2);
  with_pixels(in, [&](auto* from) {
    using Pixel = PixelOf<decltype(from)>;
    Pixel* to = pixels_of<Pixel>(out);
    if (interpolation == Interpolation::bilinear)
      return resample_bilinear(from, in.size(0), in_height, in_width, to, height, width);
    std::vector<int64_t> columns(static_cast<size_t>(width));
    const auto source = [](int64_t i, int64_t from_size, int64_t to_size) {
      const auto at = static_cast<int64_t>((static_cast<double>(i) + 0.5) * static_cast<double>(from_size) /
                                           static_cast<double>(to_size));
      return std::min(at, from_size - 1);
    };
    for (int64_t x = 0; x < width; ++x) columns[static_cast<size_t>(x)] = source(x, in_width, width);
    for (int64_t c = 0; c < in.size(0); ++c)
      for (int64_t y = 0; y < height; ++y) {
        const Pixel* row = from + (c * in_height + source(y, in_height, height)) * in_width;
        for (int64_t x = 0; x < width; ++x) *to++ = row[columns[static_cast<size_t>(x)]];
      }
  });
  return out;
}

Tensor resize_short_side(const Tensor& image, int64_t side, Interpolation interpolation) {
  const Tensor in = checked("resize", image);
  const int64_t height = in.size(1), width = in.size(2);
  TD_CHECK(side >= 1 && side <= kMaxSide, "resize: the side must be 1 to ", kMaxSide, "; got ", side, ".");
  const auto longer = [&](int64_t of, int64_t shorter) {
    return static_cast<int64_t>(static_cast<double>(side) * static_cast<double>(of) /
                                static_cast<double>(shorter));
  };
  return height <= width ? resize(in, side, longer(width, height), interpolation)
                         : resize(in, longer(height, width), side, interpolation);
}

Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  const Tensor in = checked("crop", image);
  TD_CHECK(top >= 0 && left >= 0 && height >= 1 && width >= 1 && top <= in.size(1) - height &&
               left <= in.size(2) - width,
           "crop: the part must lie within the image of ", in.size(1), " by ", in.size(2), "; got ", height,
           " by ", width, " from (", top, ", ", left, "). Resize or pad it first.");
  Tensor out = empty({in.size(0), height, width}, in.dtype());
  const auto bytes = static_cast<int64_t>(bytes_of(in.dtype()));
  const auto* from = static_cast<const std::byte*>(in.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  for (int64_t c = 0; c < in.size(0); ++c)
    for (int64_t y = 0; y < height; ++y, to += width * bytes)
      std::memcpy(to, from + ((c * in.size(1) + top + y) * in.size(2) + left) * bytes,
                  static_cast<size_t>(width * bytes));
  return out;
}

Tensor center_crop(const Tensor& image, int64_t height, int64_t width, double fill) {
  check_size("center_crop", height, width);
  Tensor in = checked("center_crop", image);
  const int64_t lack_x = std::max<int64_t>(width - in.size(2), 0),
                lack_y = std::max<int64_t>(height - in.size(1), 0);
  if (lack_x > 0 || lack_y > 0)
    in = pad(in, {lack_x / 2, lack_y / 2, (lack_x + 1) / 2, (lack_y + 1) / 2}, fill);
  // Half pixels go to the even side, as Python rounds.
  const auto middle = [](int64_t whole, int64_t part) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(whole - part) / 2));
  };
  return crop(in, middle(in.size(1), height), middle(in.size(2), width), height, width);
}

Tensor pad(const Tensor& image, const Padding& padding, double fill) {
  const Tensor in = checked("pad", image);
  for (int64_t side : {padding.left, padding.top, padding.right, padding.bottom})
    TD_CHECK(side >= 0 && side <= kMaxSide, "pad: a border must be 0 to ", kMaxSide, " pixels; got ", side,
             ".");
  const int64_t height = in.size(1) + padding.top + padding.bottom,
                width = in.size(2) + padding.left + padding.right;
  check_size("pad", height, width);
  Tensor out = empty({in.size(0), height, width}, in.dtype());
  with_pixels(in, [&](auto* from) {
    using Pixel = PixelOf<decltype(from)>;
    Pixel* to = pixels_of<Pixel>(out);
    std::fill_n(to, out.size(), fill_value<Pixel>(fill));
    for (int64_t c = 0; c < in.size(0); ++c)
      for (int64_t y = 0; y < in.size(1); ++y)
        std::copy_n(from + (c * in.size(1) + y) * in.size(2), in.size(2),
                    to + (c * height + y + padding.top) * width + padding.left);
  });
  return out;
}

Tensor flip_horizontal(const Tensor& image) {
  const Tensor in = checked("flip_horizontal", image);
  Tensor out = empty(in.shape(), in.dtype());
  with_pixels(in, [&](auto* from) {
    auto* to = pixels_of<PixelOf<decltype(from)>>(out);
    const int64_t width = in.size(2);
    for (int64_t row = 0; row < in.size(0) * in.size(1); ++row)
      for (int64_t x = 0; x < width; ++x) to[row * width + x] = from[row * width + width - 1 - x];
  });
  return out;
}

Tensor flip_vertical(const Tensor& image) {
  const Tensor in = checked("flip_vertical", image);
  Tensor out = empty(in.shape(), in.dtype());
  with_pixels(in, [&](auto* from) {
    auto* to = pixels_of<PixelOf<decltype(from)>>(out);
    const int64_t height = in.size(1), width = in.size(2);
    for (int64_t c = 0; c < in.size(0); ++c)
      for (int64_t y = 0; y < height; ++y)
        std::copy_n(from + (c * height + height - 1 - y) * width, width, to + (c * height + y) * width);
  });
  return out;
}

Tensor rotate(const Tensor& image, double degrees, Interpolation interpolation, double fill) {
  const Tensor in = checked("rotate", image);
  TD_CHECK(std::isfinite(degrees), "rotate: the angle must be a number; got ", degrees, ".");
  Tensor out = empty(in.shape(), in.dtype());
  const int64_t height = in.size(1), width = in.size(2), plane = height * width;
  const double angle = degrees * (3.14159265358979323846 / 180);
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const double middle_x = static_cast<double>(width - 1) / 2, middle_y = static_cast<double>(height - 1) / 2;
  with_pixels(in, [&](auto* from) {
    using Pixel = PixelOf<decltype(from)>;
    Pixel* to = pixels_of<Pixel>(out);
    const Pixel outside = fill_value<Pixel>(fill);
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x, ++to) {
        // Where this pixel comes from: the inverse turn. y points down, so that the signs look swapped.
        const double dx = static_cast<double>(x) - middle_x, dy = static_cast<double>(y) - middle_y;
        const double sx = cosine * dx - sine * dy + middle_x, sy = sine * dx + cosine * dy + middle_y;
        const auto value_at = [&](int64_t c, int64_t py, int64_t px) {
          return py >= 0 && py < height && px >= 0 && px < width ? from[c * plane + py * width + px]
                                                                 : outside;
        };
        if (interpolation == Interpolation::nearest) {
          const auto px = static_cast<int64_t>(std::nearbyint(sx)),
                     py = static_cast<int64_t>(std::nearbyint(sy));
          for (int64_t c = 0; c < in.size(0); ++c) to[c * plane] = value_at(c, py, px);
          continue;
        }
        const auto px = static_cast<int64_t>(std::floor(sx)), py = static_cast<int64_t>(std::floor(sy));
        const double right = sx - static_cast<double>(px), below = sy - static_cast<double>(py);
        for (int64_t c = 0; c < in.size(0); ++c) {
          const double value =
              (1 - below) * ((1 - right) * value_at(c, py, px) + right * value_at(c, py, px + 1)) +
              below * ((1 - right) * value_at(c, py + 1, px) + right * value_at(c, py + 1, px + 1));
          if constexpr (std::is_same_v<Pixel, uint8_t>)
            to[c * plane] = static_cast<uint8_t>(std::nearbyint(value));
          else
            to[c * plane] = static_cast<float>(value);
        }
      }
  });
  return out;
}

namespace {

/// ratio · a + (1 - ratio) · b(i), cut to the range.
template <class Pixel, class Other>
void blend(const Pixel* a, Other&& b, double ratio, int64_t n, Pixel* out) {
  const auto one = static_cast<float>(ratio), two = static_cast<float>(1 - ratio);
  for (int64_t i = 0; i < n; ++i) out[i] = colour<Pixel>(one * static_cast<float>(a[i]) + two * b(i));
}

}  // namespace

Tensor adjust_brightness(const Tensor& image, double factor) {
  const Tensor in = checked_colour("adjust_brightness", image);
  check_factor("adjust_brightness", factor);
  Tensor out = empty(in.shape(), in.dtype());
  with_pixels(in, [&](auto* from) {
    blend(
        from, [](int64_t) { return 0.0f; }, factor, in.size(), pixels_of<PixelOf<decltype(from)>>(out));
  });
  return out;
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  const Tensor in = checked_colour("adjust_contrast", image);
  check_factor("adjust_contrast", factor);
  Tensor out = empty(in.shape(), in.dtype());
  const int64_t plane = in.size(1) * in.size(2);
  with_pixels(in, [&](auto* from) {
    using Pixel = PixelOf<decltype(from)>;
    std::vector<Pixel> gray(static_cast<size_t>(plane));
    if (in.size(0) == 3)
      gray_plane(from, plane, gray.data());
    else
      std::copy_n(from, plane, gray.data());
    double sum = 0;
    for (Pixel value : gray) sum += static_cast<double>(value);
    const auto mean = static_cast<float>(sum / static_cast<double>(plane));
    blend(
        from, [mean](int64_t) { return mean; }, factor, in.size(), pixels_of<Pixel>(out));
  });
  return out;
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  const Tensor in = checked_colour("adjust_saturation", image);
  check_factor("adjust_saturation", factor);
  if (in.size(0) == 1) return in;
  Tensor out = empty(in.shape(), in.dtype());
  const int64_t plane = in.size(1) * in.size(2);
  with_pixels(in, [&](auto* from) {
    using Pixel = PixelOf<decltype(from)>;
    std::vector<Pixel> gray(static_cast<size_t>(plane));
    gray_plane(from, plane, gray.data());
    for (int64_t c = 0; c < 3; ++c)
      blend(
          from + c * plane, [&](int64_t i) { return static_cast<float>(gray[static_cast<size_t>(i)]); },
          factor, plane, pixels_of<Pixel>(out) + c * plane);
  });
  return out;
}

Tensor adjust_hue(const Tensor& image, double shift) {
  const Tensor in = checked_colour("adjust_hue", image);
  TD_CHECK(shift >= -0.5 && shift <= 0.5, "adjust_hue: the shift must be -0.5 to 0.5; got ", shift, ".");
  if (in.size(0) == 1) return in;
  Tensor out = empty(in.shape(), in.dtype());
  const int64_t plane = in.size(1) * in.size(2);
  const auto turn = static_cast<float>(shift);
  with_pixels(in, [&](auto* from) {
    using Pixel = PixelOf<decltype(from)>;
    constexpr bool kBytes = std::is_same_v<Pixel, uint8_t>;
    Pixel* to = pixels_of<Pixel>(out);
    for (int64_t i = 0; i < plane; ++i) {
      float rgb[3];
      for (int c = 0; c < 3; ++c)
        rgb[c] = kBytes ? static_cast<float>(from[c * plane + i]) / 255.0f
                        : static_cast<float>(from[c * plane + i]);
      // To hue, saturation and value.
      const float high = std::max({rgb[0], rgb[1], rgb[2]}), low = std::min({rgb[0], rgb[1], rgb[2]});
      const float range = high - low;
      float hue = 0, saturation = 0;
      if (range != 0) {
        saturation = range / high;
        const float rc = (high - rgb[0]) / range, gc = (high - rgb[1]) / range, bc = (high - rgb[2]) / range;
        hue = rgb[0] == high ? bc - gc : rgb[1] == high ? 2.0f + rc - bc : 4.0f + gc - rc;
        hue = hue / 6.0f + 1.0f;
        hue -= std::floor(hue);
      }
      hue += turn;
      hue -= std::floor(hue);
      // And back, by the sixth of the circle.
      const float scaled = hue * 6.0f, floor = std::floor(scaled), part = scaled - floor;
      const auto clamped = [](float value) { return std::clamp(value, 0.0f, 1.0f); };
      const float p = clamped(high * (1.0f - saturation)), q = clamped(high * (1.0f - saturation * part)),
                  t = clamped(high * (1.0f - saturation * (1.0f - part)));
      const float table[6][3] = {{high, t, p}, {q, high, p}, {p, high, t},
                                 {p, q, high}, {t, p, high}, {high, p, q}};
      const float* made = table[static_cast<int>(floor) % 6];
      for (int c = 0; c < 3; ++c) {
        if constexpr (kBytes)
          to[c * plane + i] = static_cast<uint8_t>(made[c] * (256.0f - 1e-3f));
        else
          to[c * plane + i] = made[c];
      }
    }
  });
  return out;
}

Tensor grayscale(const Tensor& image, int64_t channels) {
  const Tensor in = checked_colour("grayscale", image);
  TD_CHECK(channels == 1 || channels == 3, "grayscale: must be to 1 or 3 channels; got ", channels, ".");
  Tensor out = empty({channels, in.size(1), in.size(2)}, in.dtype());
  const int64_t plane = in.size(1) * in.size(2);
  with_pixels(in, [&](auto* from) {
    auto* to = pixels_of<PixelOf<decltype(from)>>(out);
    if (in.size(0) == 3)
      gray_plane(from, plane, to);
    else
      std::copy_n(from, plane, to);
    for (int64_t c = 1; c < channels; ++c) std::copy_n(to, plane, to + c * plane);
  });
  return out;
}

Tensor to_float(const Tensor& image) {
  const Tensor in = checked("to_float", image);
  if (in.dtype() == DType::f32) return in;
  Tensor out = empty(in.shape(), DType::f32);
  const uint8_t* from = in.data<uint8_t>();
  float* to = out.data<float>();
  for (int64_t i = 0, n = in.size(); i < n; ++i) to[i] = static_cast<float>(from[i]) / 255.0f;
  return out;
}

Tensor normalise(const Tensor& image, const std::vector<float>& mean, const std::vector<float>& deviation) {
  const Tensor in = checked("normalise", image);
  const auto channels = static_cast<size_t>(in.size(0));
  TD_CHECK(mean.size() == channels && deviation.size() == channels,
           "normalise: mean and deviation must be given for each of the ", channels, " channels; got ",
           mean.size(), " and ", deviation.size(), ".");
  for (float value : deviation)
    TD_CHECK(value > 0, "normalise: the deviation must be more than 0; got ", value, ".");
  Tensor out = empty(in.shape(), DType::f32);
  const int64_t plane = in.size(1) * in.size(2);
  for (size_t c = 0; c < channels; ++c) {
    const float m = mean[c], d = deviation[c];
    float* to = out.data<float>() + static_cast<int64_t>(c) * plane;
    with_pixels(in, [&](auto* pixels) {
      const auto* from = pixels + static_cast<int64_t>(c) * plane;
      if constexpr (std::is_same_v<PixelOf<decltype(pixels)>, uint8_t>)
        for (int64_t i = 0; i < plane; ++i) to[i] = (static_cast<float>(from[i]) / 255.0f - m) / d;
      else
        for (int64_t i = 0; i < plane; ++i) to[i] = (from[i] - m) / d;
    });
  }
  return out;
}

}  // namespace tandem::data::image
