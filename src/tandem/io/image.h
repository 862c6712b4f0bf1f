// Image files: JPEG, PNG, PGM and PPM to u8 tensors (channels, height, width), JPEG and PNG back. The decoders are
// libjpeg and libpng, where the build found them; PNG is written with zlib alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/io/limits.h"

namespace tandem::io {

/// The channels that a decoded image has.
enum class Channels : uint8_t {
  unchanged,  // 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha, as in the file (palettes become RGB)
  gray,       // 1
  rgb,        // 3: grey is repeated, alpha is dropped
};

struct DecodeOptions {
  Channels channels = Channels::unchanged;
  int64_t max_pixels = reading_limits().pixels;  ///< height times width; larger images are refused
  /// JPEG only: decode at 1/2, 1/4 or 1/8 of the size as long as both sides stay at least this long. Several
  /// times faster for large photographs, and not the same bytes as decoding whole and resizing. 0: whole.
  int64_t shrink_to = 0;
};

/// Decodes by the first bytes. `where` is what messages begin with, e.g. "read 'cat.jpg': ". 16-bit samples are
/// scaled to 8; CMYK becomes RGB; a JPEG whose Exif part tells how the camera was held is turned upright. Throws Error for damaged, cut-off or oversized
/// images, and for a format whose library this build lacks.
Tensor decode_image(std::span<const uint8_t> bytes, const DecodeOptions& options = {},
                    const std::string& where = "decode_image: ");
Tensor read_image(const std::string& path, const DecodeOptions& options = {});

/// u8 (channels, height, width) with 1 to 4 channels (JPEG: 1 or 3) to a file's bytes.
std::vector<uint8_t> encode_png(const Tensor& image);
std::vector<uint8_t> encode_jpeg(const Tensor& image, int quality = 75);

/// Whether this build can read them.
bool has_jpeg();
bool has_png();

namespace detail {
Tensor decode_jpeg(std::span<const uint8_t> bytes, const DecodeOptions& options, const std::string& where);
Tensor decode_png(std::span<const uint8_t> bytes, const DecodeOptions& options, const std::string& where);
Tensor decode_pnm(std::span<const uint8_t> bytes, const DecodeOptions& options, const std::string& where);
/// The orientation (1 to 8) that a JPEG file's Exif part tells; 1, which is upright, where it tells none or is damaged.
int jpeg_orientation(std::span<const uint8_t> bytes);
/// A u8 image as it is meant to be seen, by the orientation that its file tells.
Tensor turn_upright(const Tensor& image, int orientation);
/// Refuses sizes beyond max_pixels, and beyond what an image of `packed_bytes` may unpack to with that many bytes per pixel.
void check_pixels(uint64_t height, uint64_t width, uint64_t pixel_bytes, uint64_t packed_bytes,
                  const DecodeOptions& options, const std::string& where);
/// Rows of interleaved samples to planes: `rows` rows of `width` pixels of `from` channels, of which the first `to`
/// are kept. The planes begin at out, out + plane …
void deinterleave(const uint8_t* in, int64_t count, int from, int to, uint8_t* out, int64_t plane);
/// Three planes to one, by the weights of ITU-R 601 in 16-bit fixed point, rounded (as PIL does).
void rgb_to_gray(const uint8_t* rgb, int64_t plane, uint8_t* out);
}  // namespace detail

}  // namespace tandem::io
