// Zip archives: reading entries (stored or deflated) and writing whole archives. No zip64 and no encryption:
// both are refused by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/io/file.h"

namespace tandem::io {

/// An archive in memory. Its directory is checked when it is opened, an entry when it is read.
class ZipReader {
 public:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;  // unpacked
    uint64_t packed_bytes = 0, header_at = 0;
    uint32_t crc = 0;
    bool deflated = false;
  };

  /// Throws Error where the entries would unpack to more than max_bytes, or than the limits allow, together.
  ZipReader(const std::string& what, const std::string& path, int64_t max_bytes = reading_limits().bytes);
  const std::vector<Entry>& entries() const { return entries_; }
  uint64_t archive_bytes() const { return archive_.size(); }
  /// The content of an entry; its size and checksum have been compared.
  std::vector<uint8_t> read(const Entry& entry) const;

 private:
  std::string where_;
  std::vector<uint8_t> archive_;
  std::vector<Entry> entries_;
};

/// A file to write: pieces that follow each other, so that large ones need not be joined first.
struct ZipItem {
  std::string name;
  std::vector<std::span<const uint8_t>> pieces;
};

/// Replaces the file at `path` (see write_atomically). The same items give the same bytes.
void write_zip(const std::string& path, const std::vector<ZipItem>& items, bool deflate = false);

}  // namespace tandem::io
