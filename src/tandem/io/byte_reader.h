// Reads numbers and pieces out of foreign bytes; every read is checked against the end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/standard.h"

namespace tandem::io {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

inline constexpr const char* kDamaged =
    ". The file is damaged or not what its name says: write or fetch it again.";

/// The same number with its bytes the other way round.
template <class T>
T swapped(T value) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  for (size_t i = 0; i < sizeof(T) / 2; ++i) std::swap(bytes[i], bytes[sizeof(T) - 1 - i]);
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

class ByteReader {
 public:
  /// `where` is what messages begin with: "read 'file': ". It must outlive the reader.
  ByteReader(const std::string& where, std::span<const uint8_t> bytes, bool big_endian = false)
      : where_(where), bytes_(bytes), big_endian_(big_endian) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  void seek(size_t at, const char* what) {
    if (at > bytes_.size())
      fail(what, " must begin within its ", bytes_.size(), " bytes; it says to begin at ", at);
    at_ = at;
  }
  std::span<const uint8_t> take(uint64_t bytes, const char* what) {
    if (bytes > left()) fail(what, " must take ", bytes, " bytes; ", left(), " are left");
    const std::span<const uint8_t> piece = bytes_.subspan(at_, static_cast<size_t>(bytes));
    at_ += static_cast<size_t>(bytes);
    return piece;
  }
  template <class T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return big_endian_ ? swapped(value) : value;
  }
  void set_big_endian(bool value) { big_endian_ = value; }
  bool big_endian() const { return big_endian_; }
  const std::string& where() const { return where_; }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(str(where_, parts..., kDamaged));
  }

 private:
  const std::string& where_;
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool big_endian_;
};

}  // namespace tandem::io
