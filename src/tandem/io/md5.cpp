// MD5, block by block.
#include "tandem/io/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace tandem::io {

namespace {

/// floor(2^32 · |sin(i + 1)|), as the standard defines its constants.
const std::array<uint32_t, 64>& constants() {
  static const std::array<uint32_t, 64> table = [] {
    std::array<uint32_t, 64> made{};
    for (size_t i = 0; i < 64; ++i)
      made[i] =
          static_cast<uint32_t>(std::floor(4294967296.0 * std::fabs(std::sin(static_cast<double>(i + 1)))));
    return made;
  }();
  return table;
}

constexpr int kShifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

}  // namespace

void Md5::compress(const uint8_t* block) {
  uint32_t words[16];
  std::memcpy(words, block, sizeof(words));
  const std::array<uint32_t, 64>& k = constants();
  auto [a, b, c, d] = state_;
  for (uint32_t i = 0; i < 64; ++i) {
    uint32_t mixed, word;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d), word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c), word = (5 * i + 1) % 16;
        break;
      case 2:
        mixed = b ^ c ^ d, word = (3 * i + 5) % 16;
        break;
      default:
        mixed = c ^ (b | ~d), word = 7 * i % 16;
    }
    const uint32_t turned = std::rotl(a + mixed + k[i] + words[word], kShifts[i / 16][i % 4]);
    a = d;
    d = c;
    c = b;
    b += turned;
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::update(const void* data, size_t bytes) {
  const auto* in = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const size_t held = length_ % 64, take = std::min(bytes, 64 - held);
    if (held == 0 && take == 64) {
      compress(in);
    } else {
      std::memcpy(pending_.data() + held, in, take);
      if (held + take == 64) compress(pending_.data());
    }
    in += take;
    bytes -= take;
    length_ += take;
  }
}

std::string Md5::hex() const {
  Md5 last = *this;
  const uint64_t bits = length_ * 8;
  const uint8_t padding[64] = {0x80};
  last.update(padding, 1 + (119 - length_ % 64) % 64);
  last.update(&bits, sizeof(bits));
  std::string text;
  for (uint32_t word : last.state_)
    for (int byte = 0; byte < 4; ++byte, word >>= 8) {
      text += "0123456789abcdef"[word >> 4 & 15];
      text += "0123456789abcdef"[word & 15];
    }
  return text;
}

std::string md5(std::string_view bytes) {
  Md5 sum;
  sum.update(bytes.data(), bytes.size());
  return sum.hex();
}

}  // namespace tandem::io
