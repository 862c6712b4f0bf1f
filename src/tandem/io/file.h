// Files: reading them whole (plain or gzip), reading them piece by piece, and replacing them so that no
// crash, full disk or power cut leaves half a file. Every failure is an Error of one line with its cause and
// its mend.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::io {

/// The text with control characters made visible, cut after `limit` bytes: for file names and foreign text in
/// messages.
std::string one_line(std::string_view text, size_t limit = 4096);

/// A file open for reading. `what` is the operation that messages begin with, e.g. "load".
class InputFile {
 public:
  InputFile(const std::string& what, const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Bytes in the file when it was opened. Regular files only: anything else was refused by the constructor.
  int64_t bytes() const { return bytes_; }
  /// Reads exactly that many bytes; throws Error where the file ends earlier.
  void read(void* to, size_t bytes);

 private:
  std::string what_, path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

inline constexpr int64_t kDefaultMaxBytes = int64_t{1} << 32;

/// The whole file. Throws Error where it is larger than max_bytes.
std::vector<uint8_t> read_file(const std::string& what, const std::string& path,
                               int64_t max_bytes = kDefaultMaxBytes);

/// The whole content of a plain or gzip file (told apart by its first two bytes, not by its name). A file
/// that unpacks to more than max_bytes, is cut off, fails its checksum or has bytes after its end is refused.
std::vector<uint8_t> read_maybe_gzip(const std::string& what, const std::string& path,
                                     int64_t max_bytes = kDefaultMaxBytes);

/// How deflated bytes are framed.
enum class Packing : uint8_t { gzip, zlib, raw };

/// Unpacks all of `packed`: one stream, or gzip members one after the other. `where` is what messages begin with,
/// e.g. "read 'file': ". Data that unpacks to more than max_bytes, is cut off, fails its checksum or has bytes
/// after its end is refused.
std::vector<uint8_t> unpack(const std::string& where, std::span<const uint8_t> packed, Packing packing,
                            int64_t max_bytes);

/// What write_atomically hands to its writer. Buffered; every write is checked.
class OutputFile {
 public:
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

 private:
  friend void write_atomically(const std::string&, const std::function<void(OutputFile&)>&);
  OutputFile(const std::string& path, int fd) : path_(path), fd_(fd) {}
  void flush();

  const std::string& path_;
  int fd_;
  std::vector<char> buffer_;
};

/// Replaces the file at `path` by what `writer` writes: to a temporary file in the same folder, fsync,
/// rename, fsync of the folder. Where anything fails, the writer included, the temporary file is removed, the
/// old file stays as it was, and the error reaches the caller.
void write_atomically(const std::string& path, const std::function<void(OutputFile&)>& writer);

}  // namespace tandem::io
