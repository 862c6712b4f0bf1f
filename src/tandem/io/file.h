// Files: reading them whole (plain or gzip), and replacing them so that no crash, full disk or power cut leaves half a
// file. Every failure is an Error of one line with its cause and what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/io/limits.h"

namespace tandem::io {

using tandem::InputFile;
using tandem::one_line;

/// The whole file. Throws Error where it is larger than max_bytes.
std::vector<uint8_t> read_file(const std::string& what, const std::string& path,
                               int64_t max_bytes = reading_limits().bytes);

/// The whole content of a plain or gzip file (told apart by its first two bytes, not by its name). A file
/// that unpacks to more than max_bytes or than the limits allow, is cut off, fails its checksum or has bytes after its
/// end is refused.
std::vector<uint8_t> read_maybe_gzip(const std::string& what, const std::string& path,
                                     int64_t max_bytes = reading_limits().bytes);

/// How deflated bytes are framed.
enum class Packing : uint8_t { gzip, zlib, raw };

/// Unpacks all of `packed`: one stream, or gzip members one after the other. `where` is what messages begin with,
/// e.g. "read 'file': ". Data that unpacks to more than max_bytes or than the limits allow, is cut off, fails its
/// checksum or has bytes after its end is refused. Where the caller knows how much it will be, `expected` saves memory
/// while it grows; where `packed` is a part of a file, the ratio is that to `file_bytes`.
std::vector<uint8_t> unpack(const std::string& where, std::span<const uint8_t> packed, Packing packing,
                            int64_t max_bytes, int64_t expected = 0, uint64_t file_bytes = 0);
/// The bytes as gzip packs them, as small as it can; the same for the same bytes.
std::vector<uint8_t> pack_gzip(std::span<const uint8_t> bytes);
/// The first bytes of what `packed` unpacks to; fewer where it is shorter or damaged.
std::vector<uint8_t> unpack_start(std::span<const uint8_t> packed, Packing packing, size_t bytes);

/// Whether a write waits for the disk.
enum class Sync : uint8_t { yes, no };

/// What write_atomically hands to its writer. Buffered; every write is checked.
class OutputFile {
 public:
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

 private:
  friend void write_atomically(const std::string&, const std::function<void(OutputFile&)>&, Sync);
  OutputFile(const std::string& path, const Descriptor& file) : path_(path), file_(file) {}
  void flush();

  const std::string& path_;
  const Descriptor& file_;
  std::string buffer_;
};

/// Replaces the file at `path` by what `writer` writes: to a temporary file in the same folder (`path`.tmp), fsync,
/// rename, fsync of the folder. Where anything fails, the writer included, the temporary file is removed, the
/// old file stays as it was, and the error reaches the caller. With Sync::no a power cut may leave an empty file.
void write_atomically(const std::string& path, const std::function<void(OutputFile&)>& writer,
                      Sync sync = Sync::yes);

/// Keeps a folder for one owner, by a lock on its file `.lock` (made where it is missing, and left there: it is empty).
/// The lock goes with this object or with the process, however that ends. On a file system that has no locks nobody is
/// kept away.
class FolderLock {
 public:
  /// Throws Error where another has it. `what` begins messages, `owner` is what the folder belongs to: "run".
  FolderLock(const char* what, const std::string& folder, const char* owner);

  /// Throws Error where the folder is no longer the one that was locked: removed, moved away or replaced.
  void check() const;

 private:
  std::string what_, folder_;
  Descriptor file_;
};

}  // namespace tandem::io
