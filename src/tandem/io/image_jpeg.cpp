// JPEG through libjpeg (libjpeg-turbo). Its errors jump out of C code, so that the functions between setjmp and the
// library hold plain data only.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"

#ifdef TANDEM_HAS_JPEG
#include <jerror.h>
#include <jpeglib.h>
#endif

namespace tandem::io {

#ifdef TANDEM_HAS_JPEG

namespace {

// Each scan of a progressive image visits all of its pixels, and costs its writer a few bytes. Files in use have a dozen.
constexpr int kMaxScans = 100;
constexpr int64_t kMaxVisits = 16;  // times the limit of pixels
constexpr int kRowsAtOnce = 16;

struct ErrorManager : jpeg_error_mgr {
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  bool cut_off;
  int max_scans;
};

void leave(j_common_ptr info) {
  auto* manager = static_cast<ErrorManager*>(info->err);
  manager->format_message(info, manager->message);
  std::longjmp(manager->jump, 1);
}

void note(j_common_ptr info, int level) {
  auto* manager = static_cast<ErrorManager*>(info->err);
  if (level < 0) ++manager->num_warnings;
  if (manager->msg_code == JWRN_JPEG_EOF) manager->cut_off = true;
}

void watch_scans(j_common_ptr info) {
  auto* manager = static_cast<ErrorManager*>(info->err);
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= manager->max_scans) return;
  std::snprintf(manager->message, sizeof(manager->message),
                "it has more than the %d scans that its size allows", manager->max_scans);
  std::longjmp(manager->jump, 1);
}

void start(ErrorManager& errors) {
  jpeg_std_error(&errors);
  errors.error_exit = leave;
  errors.emit_message = note;
  errors.output_message = [](j_common_ptr) {};
  errors.message[0] = 0;
  errors.cut_off = false;
  errors.max_scans = kMaxScans;
}

struct Decoder {
  jpeg_decompress_struct info{};
  ErrorManager errors{};
  jpeg_progress_mgr progress{};
  Decoder() { start(errors); }
  ~Decoder() {
    if (created) jpeg_destroy_decompress(&info);
  }
  bool created = false;

  bool read_header(const uint8_t* bytes, size_t count) {
    info.err = &errors;
    if (setjmp(errors.jump)) return false;
    jpeg_create_decompress(&info);
    created = true;
    progress.progress_monitor = watch_scans;
    info.progress = &progress;
    jpeg_mem_src(&info, bytes, static_cast<unsigned long>(count));
    jpeg_read_header(&info, TRUE);
    return true;
  }

  bool set_size() {
    if (setjmp(errors.jump)) return false;
    jpeg_calc_output_dimensions(&info);
    return true;
  }

  /// CMYK, as Adobe writes it (inverted) or plain, to RGB in place.
  static void to_rgb(uint8_t* row, int64_t width, bool inverted) {
    for (int64_t x = 0; x < width; ++x) {
      const uint8_t* in = row + 4 * x;
      const int black = inverted ? in[3] : 255 - in[3];
      uint8_t rgb[3];
      for (int c = 0; c < 3; ++c)
        rgb[c] = static_cast<uint8_t>(((inverted ? in[c] : 255 - in[c]) * black + 127) / 255);
      std::copy_n(rgb, 3, row + 3 * x);
    }
  }

  bool read_pixels(uint8_t* out, int channels, uint8_t* rows) {
    if (setjmp(errors.jump)) return false;
    jpeg_start_decompress(&info);
    const auto width = static_cast<int64_t>(info.output_width),
               height = static_cast<int64_t>(info.output_height);
    const int from = info.output_components;
    JSAMPROW pointers[kRowsAtOnce];
    for (int i = 0; i < kRowsAtOnce; ++i) pointers[i] = rows + i * width * from;
    while (info.output_scanline < info.output_height) {
      const auto y = static_cast<int64_t>(info.output_scanline);
      const auto got = static_cast<int64_t>(jpeg_read_scanlines(&info, pointers, kRowsAtOnce));
      for (int64_t i = 0; i < got; ++i) {
        if (from == 4) to_rgb(pointers[i], width, info.saw_Adobe_marker);
        detail::deinterleave(pointers[i], width, std::min(from, 3), channels, out + (y + i) * width,
                             height * width);
      }
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

struct Encoder {
  jpeg_compress_struct info{};
  ErrorManager errors{};
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  bool created = false;
  Encoder() { start(errors); }
  ~Encoder() {
    if (created) jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  bool run(const uint8_t* planes, int channels, int64_t height, int64_t width, int quality, uint8_t* row) {
    info.err = &errors;
    if (setjmp(errors.jump)) return false;
    jpeg_create_compress(&info);
    created = true;
    jpeg_mem_dest(&info, &bytes, &count);
    info.image_height = static_cast<JDIMENSION>(height);
    info.image_width = static_cast<JDIMENSION>(width);
    info.input_components = channels;
    info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    for (int64_t y = 0; y < height; ++y) {
      for (int c = 0; c < channels; ++c)
        for (int64_t x = 0; x < width; ++x) row[x * channels + c] = planes[(c * height + y) * width + x];
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    return true;
  }
};

}  // namespace

bool has_jpeg() { return true; }

Tensor detail::decode_jpeg(std::span<const uint8_t> bytes, const DecodeOptions& options,
                           const std::string& where) {
  Decoder decoder;
  const auto fail = [&] {
    return Error(str(where, "must be a sound JPEG image; ", one_line(decoder.errors.message), kDamaged));
  };
  if (!decoder.read_header(bytes.data(), bytes.size())) throw fail();
  jpeg_decompress_struct& info = decoder.info;
  detail::check_pixels(info.image_height, info.image_width, static_cast<uint64_t>(info.num_components),
                       bytes.size(), options, where);
  const int64_t pixels = int64_t{info.image_height} * info.image_width;
  decoder.errors.max_scans = static_cast<int>(std::min<int64_t>(
      kMaxScans,
      std::max<int64_t>(1, kMaxVisits * std::min(options.max_pixels, INT64_MAX / kMaxVisits) / pixels)));
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info.out_color_space = options.channels == Channels::rgb ? JCS_RGB : JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info.out_color_space = JCS_CMYK;
      break;
    default:
      info.out_color_space = JCS_RGB;
  }
  for (unsigned shrink = 8; shrink > 1 && options.shrink_to > 0; shrink /= 2)
    if (static_cast<int64_t>(std::min(info.image_height, info.image_width) / shrink) >= options.shrink_to) {
      info.scale_num = 1;
      info.scale_denom = shrink;
      break;
    }
  if (!decoder.set_size()) throw fail();
  const auto height = static_cast<Dim>(info.output_height), width = static_cast<Dim>(info.output_width);
  const int channels = std::min(info.out_color_components, 3);
  Tensor image = empty({channels, height, width}, DType::u8);
  std::vector<uint8_t> rows(static_cast<size_t>(kRowsAtOnce * width * info.out_color_components));
  if (!decoder.read_pixels(image.data<uint8_t>(), channels, rows.data())) throw fail();
  TD_CHECK(!decoder.errors.cut_off, where, "the JPEG image must be whole; it is cut off before its end",
           kDamaged);
  if (options.channels == Channels::gray && channels == 3) {
    Tensor gray = empty({1, height, width}, DType::u8);
    detail::rgb_to_gray(image.data<uint8_t>(), height * width, gray.data<uint8_t>());
    return gray;
  }
  return image;
}

std::vector<uint8_t> encode_jpeg(const Tensor& image, int quality) {
  TD_CHECK(
      image.defined() && image.dtype() == DType::u8 && image.rank() == 3 &&
          (image.size(0) == 1 || image.size(0) == 3) && image.size() > 0,
      "encode_jpeg: must be u8 (channels, height, width) with 1 or 3 channels and at least a pixel; got ",
      image.defined() ? describe(image) : "nothing", ".");
  TD_CHECK(quality >= 1 && quality <= 100, "encode_jpeg: the quality must be 1 to 100; got ", quality, ".");
  TD_CHECK(image.size(1) <= JPEG_MAX_DIMENSION && image.size(2) <= JPEG_MAX_DIMENSION,
           "encode_jpeg: the sides must be at most ", JPEG_MAX_DIMENSION, "; got ", image.shape(), ".");
  const std::vector<std::byte> planes = host_bytes(image);
  std::vector<uint8_t> row(static_cast<size_t>(image.size(0) * image.size(2)));
  Encoder encoder;
  TD_CHECK(encoder.run(reinterpret_cast<const uint8_t*>(planes.data()), static_cast<int>(image.size(0)),
                       image.size(1), image.size(2), quality, row.data()),
           "encode_jpeg: libjpeg refused: ", one_line(encoder.errors.message), ".");
  return {encoder.bytes, encoder.bytes + encoder.count};
}

#else

namespace {
constexpr const char* kMend =
    "this build has no libjpeg. Install libjpeg-dev (Debian, Ubuntu) and build again.";
}

bool has_jpeg() { return false; }

Tensor detail::decode_jpeg(std::span<const uint8_t>, const DecodeOptions&, const std::string& where) {
  throw Error(str(where, "it is a JPEG image, and ", kMend));
}

std::vector<uint8_t> encode_jpeg(const Tensor&, int) { throw Error(str("encode_jpeg: ", kMend)); }

#endif

}  // namespace tandem::io
