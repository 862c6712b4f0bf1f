// Reading PNG through libpng. Its errors jump out of C code, so that the functions between setjmp and the library
// hold plain data only.
#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"

#ifdef TANDEM_HAS_PNG
#include <png.h>
#endif

namespace tandem::io {

#ifdef TANDEM_HAS_PNG

namespace {

constexpr uint64_t kMaxInflation = 1040;          // deflate makes at most 1032 bytes of one
constexpr png_alloc_size_t kMaxChunk = 16 << 20;  // of the chunks that are not pixels

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const uint8_t* bytes;
  size_t count, at = 0;
  char message[200] = "it is damaged";

  Decoder(const uint8_t* data, size_t size) : bytes(data), count(size) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, png_const_charp) {});
    if (png) info = png_create_info_struct(png);
  }
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }

  [[noreturn]] static void fail(png_structp png, png_const_charp text) {
    auto* self = static_cast<Decoder*>(png_get_error_ptr(png));
    std::strncpy(self->message, text, sizeof(self->message) - 1);
    png_longjmp(png, 1);
  }
  static void read(png_structp png, png_bytep to, size_t wanted) {
    auto* self = static_cast<Decoder*>(png_get_io_ptr(png));
    if (wanted > self->count - self->at) png_error(png, "it is cut off");
    std::memcpy(to, self->bytes + self->at, wanted);
    self->at += wanted;
  }

  bool read_header() {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_read_fn(png, this, read);
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);  // check_pixels has the say
    png_set_chunk_malloc_max(png, kMaxChunk);
    png_set_chunk_cache_max(png, 64);
    png_read_info(png, info);
    return true;
  }

  bool set_format() {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_expand(png);    // palettes, small grey depths and transparency by colour
    png_set_scale_16(png);  // to 8 bits, rounded
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return true;
  }

  bool read_pixels(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_image(png, rows);
    png_read_end(png, nullptr);
    return true;
  }
};

}  // namespace

bool has_png() { return true; }

Tensor detail::decode_png(std::span<const uint8_t> bytes, const DecodeOptions& options,
                          const std::string& where) {
  Decoder decoder(bytes.data(), bytes.size());
  TD_CHECK(decoder.info, where, "out of memory. Free some memory.");
  const auto fail = [&] {
    return Error(cat(where, "must be a sound PNG image; ", one_line(decoder.message), kDamaged));
  };
  if (!decoder.read_header()) throw fail();
  const uint64_t height = png_get_image_height(decoder.png, decoder.info),
                 width = png_get_image_width(decoder.png, decoder.info);
  detail::check_pixels(height, width, options, where);
  TD_CHECK(height * png_get_rowbytes(decoder.png, decoder.info) / kMaxInflation <= bytes.size(), where,
           "an image of ", height, " by ", width, " must take more than ", bytes.size(), " bytes", kDamaged);
  if (!decoder.set_format()) throw fail();
  const int from = png_get_channels(decoder.png, decoder.info);
  const auto row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  TD_ASSERT(row_bytes == width * static_cast<uint64_t>(from), "libpng's rows have 8 bits a sample");
  std::vector<uint8_t> pixels(height * row_bytes);
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = pixels.data() + y * row_bytes;
  if (!decoder.read_pixels(rows.data())) throw fail();

  const auto h = static_cast<Dim>(height), w = static_cast<Dim>(width), plane = h * w;
  const int colours = from >= 3 ? 3 : 1;
  const bool unchanged = options.channels == Channels::unchanged;
  Tensor image = empty({unchanged ? from : colours, h, w}, DType::u8);
  detail::deinterleave(pixels.data(), plane, from, unchanged ? from : colours, image.data<uint8_t>(), plane);
  if (unchanged || (options.channels == Channels::gray) == (colours == 1)) return image;
  Tensor other = empty({options.channels == Channels::gray ? 1 : 3, h, w}, DType::u8);
  if (colours == 3)
    detail::rgb_to_gray(image.data<uint8_t>(), plane, other.data<uint8_t>());
  else
    for (int c = 0; c < 3; ++c) std::copy_n(image.data<uint8_t>(), plane, other.data<uint8_t>() + c * plane);
  return other;
}

#else

bool has_png() { return false; }

Tensor detail::decode_png(std::span<const uint8_t>, const DecodeOptions&, const std::string& where) {
  throw Error(
      cat(where,
          "it is a PNG image, and this build has no libpng. Install libpng-dev (Debian, Ubuntu) and build "
          "again."));
}

#endif

}  // namespace tandem::io
