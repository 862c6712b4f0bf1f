// SHA-256 (FIPS 180-4), fed piece by piece: the sum that names a set of weights or a file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem::io {

class Sha256 {
 public:
  Sha256();
  void update(const void* data, size_t bytes);
  /// The sum of everything fed so far, as 64 lower-case hex digits. The object may be fed further.
  std::string hex() const;

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_{};  // the first `length_ % 64` bytes wait for a full block
  uint64_t length_ = 0;                // bytes fed
};

std::string sha256(std::string_view bytes);

}  // namespace tandem::io
