// Telling image formats apart, what they share, and writing PNG.
#include "tandem/io/image.h"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"

namespace tandem::io {

namespace detail {

void check_pixels(uint64_t height, uint64_t width, uint64_t pixel_bytes, uint64_t packed_bytes,
                  const DecodeOptions& options, const std::string& where) {
  TD_CHECK(height >= 1 && width >= 1, where, "an image must have at least one pixel; got ", height, " by ",
           width, kDamaged);
  TD_CHECK(height <= static_cast<uint64_t>(options.max_pixels) / width, where, "an image must have at most ",
           options.max_pixels, " pixels; got ", height, " by ", width,
           ". Make it smaller, or raise max_pixels (TANDEM_READING_LIMITS=pixels=…).");
  check_unpacked(where, "the image", packed_bytes, height * width * pixel_bytes, INT64_MAX);
}

void deinterleave(const uint8_t* in, int64_t count, int from, int to, uint8_t* out, int64_t plane) {
  if (from == 3 && to == 3) {  // spelled out, so that compilers use their de-interleaving loads
    uint8_t *r = out, *g = out + plane, *b = out + 2 * plane;
    for (int64_t i = 0; i < count; ++i) {
      r[i] = in[3 * i];
      g[i] = in[3 * i + 1];
      b[i] = in[3 * i + 2];
    }
    return;
  }
  for (int c = 0; c < to; ++c)
    for (int64_t i = 0; i < count; ++i) out[c * plane + i] = in[from * i + c];
}

void rgb_to_gray(const uint8_t* rgb, int64_t plane, uint8_t* out) {
  const uint8_t *r = rgb, *g = rgb + plane, *b = rgb + 2 * plane;
  for (int64_t i = 0; i < plane; ++i)
    out[i] = static_cast<uint8_t>((r[i] * 19595u + g[i] * 38470u + b[i] * 7471u + 0x8000u) >> 16);
}

}  // namespace detail

namespace {

constexpr uint8_t kPngMark[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

Dims check_image(const char* what, const Tensor& image, int most) {
  TD_CHECK(image.defined() && image.dtype() == DType::u8 && image.rank() == 3 && image.size(0) >= 1 &&
               image.size(0) <= most && image.size() > 0,
           what, ": must be u8 (channels, height, width) with 1 to ", most,
           " channels and at least a pixel; got ", image.defined() ? describe(image) : "nothing", ".");
  return image.shape();
}

void put_big(std::vector<uint8_t>& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}

void put_chunk(std::vector<uint8_t>& out, const char* kind, const std::vector<uint8_t>& bytes) {
  put_big(out, static_cast<uint32_t>(bytes.size()));
  const size_t begin = out.size();
  out.insert(out.end(), kind, kind + 4);
  out.insert(out.end(), bytes.begin(), bytes.end());
  put_big(out, static_cast<uint32_t>(crc32(0, out.data() + begin, static_cast<uInt>(out.size() - begin))));
}

int paeth(int left, int up, int corner) {
  const int guess = left + up - corner;
  const int a = std::abs(guess - left), b = std::abs(guess - up), c = std::abs(guess - corner);
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

/// One row by PNG's filter `kind`: the difference to a guess from the pixels to the left and above.
void filter_row(int kind, const uint8_t* row, const uint8_t* above, size_t bytes, size_t step, uint8_t* out) {
  for (size_t i = 0; i < bytes; ++i) {
    const int left = i >= step ? row[i - step] : 0, up = above[i], corner = i >= step ? above[i - step] : 0;
    const int guess = kind == 0   ? 0
                      : kind == 1 ? left
                      : kind == 2 ? up
                      : kind == 3 ? (left + up) / 2
                                  : paeth(left, up, corner);
    out[i] = static_cast<uint8_t>(row[i] - guess);
  }
}

}  // namespace

Tensor decode_image(std::span<const uint8_t> bytes, const DecodeOptions& options, const std::string& where) {
  TD_CHECK(options.max_pixels >= 1, where, "max_pixels must be at least 1; got ", options.max_pixels, ".");
  if (bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff)
    return detail::turn_upright(detail::decode_jpeg(bytes, options, where), detail::jpeg_orientation(bytes));
  if (bytes.size() >= 8 && std::equal(kPngMark, kPngMark + 8, bytes.begin()))
    return detail::decode_png(bytes, options, where);
  if (bytes.size() >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') && std::isspace(bytes[2]))
    return detail::decode_pnm(bytes, options, where);
  throw Error(
      str(where, "must be a JPEG, PNG, PGM or PPM image; its first bytes say that it is none. Convert it."));
}

Tensor read_image(const std::string& path, const DecodeOptions& options) {
  const std::vector<uint8_t> bytes = read_file("read", path);
  return decode_image(bytes, options, str("read '", one_line(path), "': "));
}

std::vector<uint8_t> encode_png(const Tensor& image) {
  const Dims shape = check_image("encode_png", image, 4);
  const auto channels = static_cast<size_t>(shape[0]), height = static_cast<size_t>(shape[1]),
             width = static_cast<size_t>(shape[2]);
  TD_CHECK(shape[1] <= INT32_MAX && shape[2] <= INT32_MAX / 4,
           "encode_png: the sides must fit the format; got ", shape, ".");
  const std::vector<std::byte> planes = host_bytes(image);
  const auto* pixels = reinterpret_cast<const uint8_t*>(planes.data());
  const size_t row_bytes = channels * width;
  std::vector<uint8_t> row(row_bytes), above(row_bytes), tried(row_bytes), packed_rows;
  packed_rows.reserve(height * (row_bytes + 1));
  for (size_t y = 0; y < height; ++y) {
    for (size_t c = 0; c < channels; ++c)
      for (size_t x = 0; x < width; ++x) row[x * channels + c] = pixels[(c * height + y) * width + x];
    // The filter with the smallest sum of differences: the usual guess at what packs best.
    std::vector<uint8_t> best;
    uint64_t best_sum = UINT64_MAX;
    int best_kind = 0;
    for (int kind = 0; kind <= 4; ++kind) {
      filter_row(kind, row.data(), above.data(), row_bytes, channels, tried.data());
      uint64_t sum = 0;
      for (uint8_t byte : tried) sum += static_cast<uint64_t>(std::abs(static_cast<int8_t>(byte)));
      if (sum < best_sum) best_sum = sum, best = tried, best_kind = kind;
    }
    packed_rows.push_back(static_cast<uint8_t>(best_kind));
    packed_rows.insert(packed_rows.end(), best.begin(), best.end());
    std::swap(row, above);
  }
  std::vector<uint8_t> data(compressBound(packed_rows.size()));
  uLongf data_bytes = data.size();
  TD_ASSERT(compress(data.data(), &data_bytes, packed_rows.data(), packed_rows.size()) == Z_OK,
            "zlib failed");
  TD_CHECK(data_bytes <= INT32_MAX, "encode_png: the image must pack to less than 2 GiB; got ", data_bytes,
           ".");
  data.resize(data_bytes);

  std::vector<uint8_t> header;
  put_big(header, static_cast<uint32_t>(width));
  put_big(header, static_cast<uint32_t>(height));
  const uint8_t kinds[4] = {0, 4, 2, 6};  // by the number of channels
  header.insert(header.end(), {8, kinds[channels - 1], 0, 0, 0});
  std::vector<uint8_t> out(kPngMark, kPngMark + 8);
  put_chunk(out, "IHDR", header);
  put_chunk(out, "IDAT", data);
  put_chunk(out, "IEND", {});
  return out;
}

}  // namespace tandem::io
