// Reading idx files and checking every number in them before it is used.
#include "tandem/data/idx.h"

#include <algorithm>

#include "tandem/io/file.h"

namespace tandem::data {

namespace {

constexpr const char* kMend = ". The file is damaged or not what its name says: fetch it again.";

const char* type_name(uint8_t code) {
  switch (code) {
    case 0x08:
      return "unsigned bytes";
    case 0x09:
      return "signed bytes";
    case 0x0b:
      return "16-bit integers";
    case 0x0c:
      return "32-bit integers";
    case 0x0d:
      return "32-bit floats";
    case 0x0e:
      return "64-bit floats";
    default:
      return "an unknown type";
  }
}

}  // namespace

IdxArray read_idx(const std::string& path, int axes) {
  std::vector<uint8_t> bytes = io::read_maybe_gzip("read", path);
  const std::string what = str("read '", io::one_line(path), "': ");
  TD_CHECK(bytes.size() >= 4, what, "an idx file must begin with a magic number of 4 bytes; it holds ",
           bytes.size(), " bytes", kMend);
  TD_CHECK(bytes[0] == 0 && bytes[1] == 0, what, "an idx file must begin with two zero bytes; got ",
           int{bytes[0]}, " and ", int{bytes[1]}, kMend);
  TD_CHECK(bytes[2] == 0x08, what, "must hold unsigned bytes (type 8); got ", type_name(bytes[2]), " (type ",
           int{bytes[2]}, ")", kMend);
  TD_CHECK(bytes[3] == axes, what, "must have ", axes, axes == 1 ? " axis" : " axes", "; got ", int{bytes[3]},
           axes == 3   ? ". Images have 3 axes and labels 1: are the files swapped?"
           : axes == 1 ? ". Labels have 1 axis and images 3: are the files swapped?"
                       : kMend);
  const size_t header = 4 + 4 * static_cast<size_t>(axes);
  TD_CHECK(bytes.size() >= header, what, "the header must take ", header, " bytes; the file holds ",
           bytes.size(), kMend);
  IdxArray array;
  Dims shown;
  int64_t expected = 1;
  bool fits = true;
  for (size_t at = 4; at < header; at += 4) {
    const int64_t size = int64_t{bytes[at]} << 24 | int64_t{bytes[at + 1]} << 16 |
                         int64_t{bytes[at + 2]} << 8 | int64_t{bytes[at + 3]};
    array.sizes.push_back(size);
    shown.push_back(size);
    fits = fits && !__builtin_mul_overflow(expected, size, &expected);
  }
  const auto found = static_cast<int64_t>(bytes.size() - header);
  TD_CHECK(fits && expected == found, what, "its sizes are ", shown, ", so that it must hold ",
           fits ? str(expected) : "more than 2^63", " values; it holds ", found, kMend);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  array.values = std::move(bytes);
  return array;
}

std::shared_ptr<const ImageSet> read_idx_images(const std::string& name, const std::string& images_path,
                                                const std::string& labels_path, const ImageFormat& format,
                                                int classes) {
  IdxArray images = read_idx(images_path, 3), labels = read_idx(labels_path, 1);
  const std::string what = str("read '", io::one_line(images_path), "': ");
  TD_CHECK(images.sizes[1] == format.height && images.sizes[2] == format.width, what, "images must be ",
           format.height, " by ", format.width, "; got ", images.sizes[1], " by ", images.sizes[2], kMend);
  TD_CHECK(images.sizes[0] > 0, what, "must hold at least one image; got none", kMend);
  TD_CHECK(images.sizes[0] == labels.sizes[0], what, "there must be one label per image; got ",
           images.sizes[0], " images and ", labels.sizes[0], " labels in '", io::one_line(labels_path),
           "'. The two files do not belong together: fetch both again.");
  const auto bad = std::find_if(labels.values.begin(), labels.values.end(),
                                [&](uint8_t label) { return label >= classes; });
  TD_CHECK(bad == labels.values.end(), "read '", io::one_line(labels_path), "': labels must be 0 to ",
           classes - 1, "; label ", bad - labels.values.begin(), " is ",
           bad == labels.values.end() ? 0 : int{*bad}, kMend);
  return std::make_shared<ImageSet>(name, format, std::move(images.values), std::move(labels.values));
}

}  // namespace tandem::data
