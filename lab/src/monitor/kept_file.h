// Small files of /proc and /sys, read many times per second: opened once, read from the start with pread, their numbers
// taken without streams. All of it is to keep the monitor's own share of the processor small.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::lab {

/// Where readings are put; kept between readings so that nothing is allocated.
using ReadBuffer = std::vector<char>;

class KeptFile {
 public:
  KeptFile() = default;
  /// Opens the file. Where that fails, is_open() is false and error() the errno.
  explicit KeptFile(std::string path);
  ~KeptFile();
  KeptFile(KeptFile&& other) noexcept;
  KeptFile& operator=(KeptFile&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  int error() const { return error_; }
  const std::string& path() const { return path_; }
  /// The whole content as it is now, or none where the file can no longer be read (`error` is then the errno). The text
  /// lies in the buffer. Several threads may read one file, each into a buffer of its own.
  std::optional<std::string_view> read(ReadBuffer& buffer, int* error = nullptr) const;

 private:
  std::string path_;
  int fd_ = -1;
  int error_ = 0;
};

/// The file's content, or "" where it is not there or cannot be read; white space at the end is cut.
std::string read_small(const std::string& path);
/// The number that the file holds, or none.
std::optional<int64_t> read_number(const std::string& path);
/// "the file 'PATH' is not there", "'PATH' cannot be read: Permission denied".
std::string why_unreadable(const std::string& path, int error);

/// Takes the next number from the front of the text (blanks before it are skipped), or none.
std::optional<int64_t> take_number(std::string_view& text);
/// Takes the next line, without its end.
std::string_view take_line(std::string_view& text);
std::string_view trimmed(std::string_view text);

/// Names in a folder, sorted so that 2 stands before 10; none where the folder is not there.
std::vector<std::string> names_in(const std::string& folder);

/// CLOCK_MONOTONIC and the calling thread's processor time, in seconds.
double now_s();
double thread_cpu_s();

}  // namespace tandem::lab
