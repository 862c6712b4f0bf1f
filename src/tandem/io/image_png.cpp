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

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const uint8_t* bytes;
  size_t count, at = 0;
  int passes = 1;
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
    // Chunks beside the pixels (texts, profiles, some of them packed) are passed over unread.
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png, info);
    return true;
  }

  bool set_format() {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_expand(png);    // palettes, small grey depths and transparency by colour
    png_set_scale_16(png);  // to 8 bits, rounded
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return true;
  }

  /// Interlaced images come in several passes over `buffer`, which holds them whole; others row by row, and it is a row.
  bool read_pixels(uint8_t* buffer, int64_t height, int64_t width, int from, int to, uint8_t* out) {
    if (setjmp(png_jmpbuf(png))) return false;
    const int64_t row_bytes = width * from;
    for (int pass = 0; pass < passes; ++pass)
      for (int64_t y = 0; y < height; ++y) {
        uint8_t* row = passes > 1 ? buffer + y * row_bytes : buffer;
        png_read_row(png, row, nullptr);
        if (pass + 1 == passes) detail::deinterleave(row, width, from, to, out + y * width, height * width);
      }
    png_read_end(png, nullptr);
    return true;
  }
};

}  // namespace

bool has_png() { return true; }

Tensor detail::decode_png(std::span<const uint8_t> bytes, const DecodeOptions& options,
                          const std::string& where) {
  Decoder decoder(bytes.data(), bytes.size());
  if (!decoder.info) throw OutOfMemory(where + "out of memory. Free some memory.");
  const auto fail = [&] {
    return Error(str(where, "must be a sound PNG image; ", one_line(decoder.message), kDamaged));
  };
  if (!decoder.read_header()) throw fail();
  const uint64_t height = png_get_image_height(decoder.png, decoder.info),
                 width = png_get_image_width(decoder.png, decoder.info);
  detail::check_pixels(height, width, 1, bytes.size(), options, where);
  if (!decoder.set_format()) throw fail();
  const int from = png_get_channels(decoder.png, decoder.info);
  detail::check_pixels(height, width, static_cast<uint64_t>(from), bytes.size(), options, where);
  const auto row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  TD_ASSERT(row_bytes == width * static_cast<uint64_t>(from), "libpng's rows have 8 bits per sample");
  const auto h = static_cast<Dim>(height), w = static_cast<Dim>(width), plane = h * w;
  const int colours = from >= 3 ? 3 : 1;
  const bool unchanged = options.channels == Channels::unchanged;
  const int to = unchanged ? from : colours;
  Tensor image = empty({to, h, w}, DType::u8);
  std::vector<uint8_t> buffer((decoder.passes > 1 ? height : 1) * row_bytes);
  if (!decoder.read_pixels(buffer.data(), h, w, from, to, image.data<uint8_t>())) throw fail();
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
      str(where,
          "it is a PNG image, and this build has no libpng. Install libpng-dev (Debian, Ubuntu) and build "
          "again."));
}

#endif

}  // namespace tandem::io
