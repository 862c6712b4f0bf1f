// MD5 (RFC 1321): the sum that many data sets publish for their files. It finds damage, not malice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem::io {

class Md5 {
 public:
  void update(const void* data, size_t bytes);
  /// The sum of everything fed so far, as 32 lower-case hex digits. The object may be fed further.
  std::string hex() const;

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<uint8_t, 64> pending_{};  // the first `length_ % 64` bytes wait for a full block
  uint64_t length_ = 0;                // bytes fed
};

std::string md5(std::string_view bytes);

}  // namespace tandem::io
