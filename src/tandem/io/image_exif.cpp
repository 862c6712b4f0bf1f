// How a camera was held: the orientation that a JPEG file's Exif part tells, and turning pixels upright by it. Nothing
// of a file is trusted: what does not fit counts as "no orientation", and never stops the reading of the image.
#include <algorithm>
#include <optional>

#include "tandem/io/image.h"

namespace tandem::io::detail {

namespace {

constexpr uint8_t kExifMark[6] = {'E', 'x', 'i', 'f', 0, 0};
constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;

/// Numbers of a block of TIFF, in its byte order. Beyond its end there is nothing.
class Tiff {
 public:
  explicit Tiff(std::span<const uint8_t> bytes) : bytes_(bytes) {
    is_big_ = bytes.size() >= 2 && bytes[0] == 'M' && bytes[1] == 'M';
    is_small_ = bytes.size() >= 2 && bytes[0] == 'I' && bytes[1] == 'I';
  }
  bool is_tiff() const { return (is_big_ || is_small_) && number(2, 2) == 42u; }
  /// `count` bytes (2 or 4) from `at` on.
  std::optional<uint32_t> number(uint64_t at, uint64_t count) const {
    if (at > bytes_.size() || bytes_.size() - at < count) return std::nullopt;
    uint32_t value = 0;
    for (uint64_t i = 0; i < count; ++i)
      value = value << 8 | bytes_[static_cast<size_t>(at + (is_big_ ? i : count - 1 - i))];
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool is_big_ = false, is_small_ = false;
};

int orientation_in(const Tiff& tiff) {
  const std::optional<uint32_t> first = tiff.number(4, 4);
  if (!tiff.is_tiff() || !first) return 1;
  const std::optional<uint32_t> entries = tiff.number(*first, 2);
  for (uint64_t i = 0; entries && i < *entries; ++i) {
    const uint64_t at = *first + 2 + 12 * i;  // tag, type, count, value
    const std::optional<uint32_t> tag = tiff.number(at, 2), type = tiff.number(at + 2, 2),
                                  count = tiff.number(at + 4, 4), value = tiff.number(at + 8, 2);
    if (!value) return 1;
    if (tag != kOrientationTag) continue;
    return type == kShort && count == 1u && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

}  // namespace

int jpeg_orientation(std::span<const uint8_t> bytes) {
  // Segments from the start on: 0xff (once or more), a marker, and where it is no marker alone a length that counts
  // its own two bytes. Exif is in APP1, before the pixels (SOS).
  size_t at = 2;
  while (at + 4 <= bytes.size() && bytes[at] == 0xff) {
    const uint8_t marker = bytes[at + 1];
    if (marker == 0xff) {
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) break;
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
      at += 2;
      continue;
    }
    const size_t length = size_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (length < 2 || bytes.size() - at - 2 < length) break;
    const std::span<const uint8_t> segment = bytes.subspan(at + 4, length - 2);
    if (marker == 0xe1 && segment.size() >= 6 && std::equal(kExifMark, kExifMark + 6, segment.begin()))
      return orientation_in(Tiff(segment.subspan(6)));
    at += 2 + length;
  }
  return 1;
}

Tensor turn_upright(const Tensor& image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const Dim channels = image.size(0), height = image.size(1), width = image.size(2);
  const bool sides_change = orientation >= 5;
  const Dim rows = sides_change ? width : height, columns = sides_change ? height : width;
  // Pixel (y, x) of the result is at first + y * down + x * right of its plane.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
             from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const Dim along_row = from_right ? -1 : 1, along_column = from_bottom ? -width : width;
  const Dim first = (from_right ? width - 1 : 0) + (from_bottom ? (height - 1) * width : 0);
  const Dim down = sides_change ? along_row : along_column, right = sides_change ? along_column : along_row;
  Tensor out = empty({channels, rows, columns}, DType::u8);
  uint8_t* to = out.data<uint8_t>();
  for (Dim c = 0; c < channels; ++c) {
    const uint8_t* plane = image.data<uint8_t>() + c * height * width + first;
    for (Dim y = 0; y < rows; ++y)
      for (Dim x = 0; x < columns; ++x) *to++ = plane[y * down + x * right];
  }
  return out;
}

}  // namespace tandem::io::detail
