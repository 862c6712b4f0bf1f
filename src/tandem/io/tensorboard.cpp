// Event files for TensorBoard. The messages are those of tensorboard/compat/proto: Event, Summary, HistogramProto.
#include "tandem/io/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "tandem/io/file.h"
#include "tandem/io/image.h"

namespace tandem::io {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

void append_little(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 255);
}

/// A protobuf message under construction: fields by number.
class Message {
 public:
  Message& integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int field, double value) {
    key(field, 1);
    append_little(bytes_, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& single(int field, float value) {
    key(field, 5);
    append_little(bytes_, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& reals(int field, const std::vector<double>& values) {  // packed
    std::string packed;
    for (const double value : values) append_little(packed, std::bit_cast<uint64_t>(value), 8);
    return bytes(field, packed);
  }
  operator std::string_view() const { return bytes_; }

 private:
  void key(int field, int wire) { varint(static_cast<uint64_t>(field << 3 | wire)); }
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    table[i] = crc;
  }
  return table;
}();

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 255];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  // A name that no other process and no earlier writer of this one has.
  for (int n = 0;; ++n) {
    path_ = (std::filesystem::path(folder) /
             str("events.out.tfevents.", static_cast<int64_t>(now()), ".", host, ".", ::getpid(), ".", n))
                .string();
    if (!std::filesystem::exists(path_, error)) break;
  }
  file_ = open_file("save", path_, O_WRONLY | O_CREAT | O_EXCL);
  record(Message().real(1, now()).bytes(3, "brain.Event:2"));
}

TensorBoardWriter::~TensorBoardWriter() {
  try {
    flush();
  } catch (const Error&) {  // whoever wants to know calls flush()
  }
}

void TensorBoardWriter::record(std::string_view bytes) {
  std::string length;
  append_little(length, bytes.size(), 8);
  buffer_ += length;
  append_little(buffer_, masked_crc32c(length), 4);
  buffer_ += bytes;
  append_little(buffer_, masked_crc32c(bytes), 4);
  if (buffer_.size() >= kBufferBytes) flush();
}

void TensorBoardWriter::event(int64_t step, std::string_view value) {
  record(Message().real(1, now()).integer(2, step).bytes(5, Message().bytes(1, value)));
}

void TensorBoardWriter::scalar(const std::string& tag, double value, int64_t step) {
  event(step, Message().bytes(1, tag).single(2, static_cast<float>(value)));
}

void TensorBoardWriter::histogram(const std::string& tag, const std::vector<double>& values, int64_t step) {
  constexpr int kBars = 30;
  double low = INFINITY, high = -INFINITY, count = 0, sum = 0, squares = 0;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
    count += 1;
    sum += v;
    squares += v * v;
  }
  if (count == 0) low = high = 0;
  const double width = high > low ? (high - low) / kBars : 1;
  std::vector<double> limits, bars(kBars, 0.0);
  for (int i = 1; i <= kBars; ++i) limits.push_back(i == kBars && high > low ? high : low + i * width);
  for (const double v : values)
    if (std::isfinite(v)) bars[static_cast<size_t>(std::min<double>((v - low) / width, kBars - 1))] += 1;
  const Message histo = Message()
                            .real(1, low)
                            .real(2, high)
                            .real(3, count)
                            .real(4, sum)
                            .real(5, squares)
                            .reals(6, limits)
                            .reals(7, bars);
  event(step, Message().bytes(1, tag).bytes(5, histo));
}

void TensorBoardWriter::image(const std::string& tag, const Tensor& pixels, int64_t step) {
  TD_CHECK(pixels.rank() == 3 && pixels.dtype() == DType::u8 &&
               (pixels.size(0) == 1 || pixels.size(0) == 3) && pixels.size() > 0,
           "tensorboard: an image must be u8 (1 or 3, height, width); got ", pixels.dtype(), " ",
           pixels.shape(), ".");
  const std::vector<uint8_t> png = encode_png(pixels);
  const Message picture = Message()
                              .integer(1, pixels.size(1))
                              .integer(2, pixels.size(2))
                              .integer(3, pixels.size(0))
                              .bytes(4, {reinterpret_cast<const char*>(png.data()), png.size()});
  event(step, Message().bytes(1, tag).bytes(4, picture));
}

void TensorBoardWriter::restart(int64_t step) {
  record(Message().real(1, now()).integer(2, step).bytes(7, Message().integer(1, 1)));  // SessionLog START
}

void TensorBoardWriter::flush() { write_all(file_, "save", path_, std::exchange(buffer_, {})); }

}  // namespace tandem::io
