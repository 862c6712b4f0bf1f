// Images from files: the Netpbm formats.
#include "tandem/data/image.h"

#include <cctype>

#include "tandem/io/file.h"

namespace tandem::data {

Tensor read_image(const std::string& path) {
  const std::vector<uint8_t> file = io::read_file("read_image", path, int64_t{1} << 30);
  const std::string what = cat("read_image '", io::one_line(path), "': ");
  TD_CHECK(file.size() > 2 && file[0] == 'P' && (file[1] == '5' || file[1] == '6'), what,
           "must be a PGM or PPM image (P5 or P6). Convert it first.");
  size_t at = 2;
  const auto number = [&] {
    while (at < file.size() && (std::isspace(file[at]) || file[at] == '#')) {
      if (file[at] == '#')
        while (at < file.size() && file[at] != '\n') ++at;
      else
        ++at;
    }
    int64_t value = 0, digits = 0;
    for (; at < file.size() && std::isdigit(file[at]) && digits < 9; ++at, ++digits)
      value = value * 10 + file[at] - '0';
    TD_CHECK(digits > 0, what, "its header is damaged. Write it again.");
    return value;
  };
  const int64_t channels = file[1] == '5' ? 1 : 3;
  const int64_t width = number(), height = number(), largest = number();
  TD_CHECK(at < file.size() && std::isspace(file[at]), what, "its header is damaged. Write it again.");
  ++at;
  TD_CHECK(largest == 255, what, "must have values up to 255; got ", largest, ". Convert it to 8 bits.");
  TD_CHECK(width >= 1 && height >= 1 && width <= 65535 && height <= 65535, what,
           "must have sizes of 1 to 65535; got ", width, " by ", height, ".");
  const auto plane = static_cast<size_t>(width * height);
  TD_CHECK(file.size() - at >= plane * static_cast<size_t>(channels), what, "must hold ",
           plane * static_cast<size_t>(channels), " bytes of pixels; got ", file.size() - at,
           ". It is cut off.");
  Tensor image = empty({channels, height, width}, DType::u8);
  auto* out = image.data<uint8_t>();
  for (size_t i = 0; i < plane; ++i)
    for (size_t c = 0; c < static_cast<size_t>(channels); ++c)
      out[c * plane + i] = file[at + i * static_cast<size_t>(channels) + c];
  return image;
}

}  // namespace tandem::data
