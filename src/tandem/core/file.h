// The one way in which files are opened: regular files only, and never waiting for anybody. A pipe, a device, a socket
// or a folder in a file's place is refused before it can hang or flood the process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/standard.h"

namespace tandem {

/// The text with control characters made visible, cut after `limit` bytes: for file names and foreign text in
/// messages.
std::string one_line(std::string_view text, size_t limit = 4096);

/// An open file; closes it at the end of its life.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// "what 'path': step: the system's reason. What to do.", of kind resource.
Error file_error(std::string_view what, const std::string& path, const char* step, int error);

/// Opens a regular file, with `flags` of open(2). `what` is the operation that messages begin with, e.g. "load".
Descriptor open_file(const std::string& what, const std::string& path, int flags, int mode = 0666);

/// Writes all of it; `what` and `path` are for the message.
void write_all(const Descriptor& file, std::string_view what, const std::string& path, std::string_view text);

/// A file open for reading.
class InputFile {
 public:
  InputFile(const std::string& what, const std::string& path);

  /// Bytes in the file when it was opened.
  int64_t bytes() const { return bytes_; }
  /// Reads exactly that many bytes; throws Error where the file ends earlier.
  void read(void* to, size_t bytes);

 private:
  std::string what_, path_;
  Descriptor file_;
  int64_t bytes_ = 0;
};

}  // namespace tandem
