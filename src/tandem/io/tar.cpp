// Walking a tar archive: blocks of 512 bytes, a header before each file.
#include "tandem/io/tar.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "tandem/io/byte_reader.h"

namespace tandem::io {

namespace {

constexpr size_t kBlock = 512;

std::string text_at(std::span<const uint8_t> header, size_t at, size_t length) {
  const auto* begin = header.data() + at;
  return {begin, std::find(begin, begin + length, uint8_t{0})};
}

/// A number in octal digits, or (first bit set) in binary.
std::optional<uint64_t> number_at(std::span<const uint8_t> header, size_t at, size_t length) {
  uint64_t value = 0;
  if (header[at] & 0x80) {
    for (size_t i = at; i < at + length; ++i) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | (i == at ? header[i] & 0x7f : header[i]);
    }
    return value;
  }
  size_t i = at;
  while (i < at + length && header[i] == ' ') ++i;
  for (; i < at + length && header[i] != 0 && header[i] != ' '; ++i) {
    if (header[i] < '0' || header[i] > '7' || value >> 60) return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(header[i] - '0');
  }
  return value;
}

/// The path of a pax header ("LENGTH path=VALUE\n" among its records), or "".
std::string pax_path(std::span<const uint8_t> records) {
  const std::string_view text(reinterpret_cast<const char*>(records.data()), records.size());
  constexpr std::string_view kKey = " path=";
  const size_t key = text.find(kKey);
  if (key == std::string_view::npos) return "";
  const size_t end = text.find('\n', key);
  return std::string(text.substr(key + kKey.size(), end == text.npos ? end : end - key - kKey.size()));
}

}  // namespace

std::vector<TarEntry> read_tar(const std::string& where, std::span<const uint8_t> archive) {
  ByteReader reader(where, archive);
  std::vector<TarEntry> entries;
  std::string long_name;
  while (reader.left() > 0) {
    const std::span<const uint8_t> header = reader.take(kBlock, "a tar header");
    if (std::all_of(header.begin(), header.end(), [](uint8_t byte) { return byte == 0; })) break;
    uint64_t sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? uint64_t{' '} : header[i];
    const std::optional<uint64_t> wanted = number_at(header, 148, 8), size = number_at(header, 124, 12);
    if (!wanted || *wanted != sum)
      reader.fail("a tar header must have the checksum ", sum, "; the one at byte ", reader.at() - kBlock,
                  " says otherwise");
    if (!size)
      reader.fail("the size in a tar header must be a number; at byte ", reader.at() - kBlock, " it is not");
    const std::span<const uint8_t> bytes = reader.take(*size, "a file in the tar archive");
    reader.take(std::min<uint64_t>((kBlock - *size % kBlock) % kBlock, reader.left()), "padding");
    const char type = static_cast<char>(header[156]);
    if (type == 'L') {
      long_name.assign(bytes.begin(), std::find(bytes.begin(), bytes.end(), uint8_t{0}));
    } else if (type == 'x') {
      long_name = pax_path(bytes);
    } else {
      std::string name = text_at(header, 0, 100);
      const bool is_ustar = text_at(header, 257, 5) == "ustar";
      if (const std::string prefix = text_at(header, 345, 155);
          is_ustar && header[263] == '0' && !prefix.empty())
        name = prefix + "/" + name;
      if (!long_name.empty()) name = std::exchange(long_name, "");
      if (type == '0' || type == 0) entries.push_back({std::move(name), bytes});
    }
  }
  return entries;
}

}  // namespace tandem::io
