// The binary Netpbm formats, PGM (P5) and PPM (P6): a few words of header, then the bytes.
#include <cctype>

#include "tandem/io/image.h"

namespace tandem::io::detail {

Tensor decode_pnm(std::span<const uint8_t> bytes, const DecodeOptions& options, const std::string& where) {
  size_t at = 2;
  const auto number = [&] {
    while (at < bytes.size() && (std::isspace(bytes[at]) || bytes[at] == '#')) {
      if (bytes[at] == '#')
        while (at < bytes.size() && bytes[at] != '\n') ++at;
      else
        ++at;
    }
    uint64_t value = 0, digits = 0;
    for (; at < bytes.size() && std::isdigit(bytes[at]) && digits < 9; ++at, ++digits)
      value = value * 10 + bytes[at] - '0';
    TD_CHECK(digits > 0, where, "its header is damaged. Write it again.");
    return value;
  };
  const int channels = bytes[1] == '5' ? 1 : 3;
  const uint64_t width = number(), height = number(), largest = number();
  TD_CHECK(at < bytes.size() && std::isspace(bytes[at]), where, "its header is damaged. Write it again.");
  ++at;
  TD_CHECK(largest == 255, where, "must have values up to 255; got ", largest, ". Convert it to 8 bits.");
  check_pixels(height, width, static_cast<uint64_t>(channels), bytes.size(), options, where);
  const uint64_t plane = width * height, needed = plane * static_cast<uint64_t>(channels);
  TD_CHECK(bytes.size() - at >= needed, where, "must hold ", needed, " bytes of pixels; got ",
           bytes.size() - at, ". It is cut off.");
  const auto pixels = static_cast<int64_t>(plane);
  const Dim h = static_cast<Dim>(height), w = static_cast<Dim>(width);
  Tensor image = empty({channels, h, w}, DType::u8);
  deinterleave(bytes.data() + at, pixels, channels, channels, image.data<uint8_t>(), pixels);
  if (options.channels == Channels::gray && channels == 3) {
    Tensor gray = empty({1, h, w}, DType::u8);
    rgb_to_gray(image.data<uint8_t>(), pixels, gray.data<uint8_t>());
    return gray;
  }
  if (options.channels == Channels::rgb && channels == 1) {
    Tensor rgb = empty({3, h, w}, DType::u8);
    for (int c = 0; c < 3; ++c)
      deinterleave(image.data<uint8_t>(), pixels, 1, 1, rgb.data<uint8_t>() + c * pixels, pixels);
    return rgb;
  }
  return image;
}

}  // namespace tandem::io::detail
