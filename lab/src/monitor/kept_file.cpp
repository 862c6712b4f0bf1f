// Reading small files of /proc and /sys.
#include "lab/src/monitor/kept_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr size_t kFirstBuffer = size_t{1} << 14;
constexpr size_t kMaxContent = size_t{1} << 26;  // no file of /proc or /sys that is read here comes near

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Orders "core2" before "core10".
bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const size_t from_a = i, from_b = j;
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
      if (i - from_a != j - from_b) return i - from_a < j - from_b;
      if (const int order = a.compare(from_a, i - from_a, b, from_b, j - from_b); order != 0)
        return order < 0;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

KeptFile::KeptFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) error_ = errno;
}

KeptFile::~KeptFile() {
  if (fd_ >= 0) ::close(fd_);
}

KeptFile::KeptFile(KeptFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), error_(other.error_) {}

KeptFile& KeptFile::operator=(KeptFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(error_, other.error_);
  return *this;
}

std::optional<std::string_view> KeptFile::read(ReadBuffer& buffer, int* error) const {
  if (fd_ < 0) {
    if (error) *error = error_ ? error_ : EBADF;
    return std::nullopt;
  }
  if (buffer.empty()) buffer.resize(kFirstBuffer);
  size_t filled = 0;
  for (;;) {
    if (filled == buffer.size()) {
      if (filled >= kMaxContent) break;
      buffer.resize(2 * filled);
    }
    const ssize_t got =
        ::pread(fd_, buffer.data() + filled, buffer.size() - filled, static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      if (error) *error = errno;
      return std::nullopt;
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  return std::string_view(buffer.data(), filled);
}

std::string read_small(const std::string& path) {
  ReadBuffer buffer;
  return std::string(trimmed(KeptFile(path).read(buffer).value_or("")));
}

std::optional<int64_t> read_number(const std::string& path) {
  ReadBuffer buffer;
  std::string_view text = KeptFile(path).read(buffer).value_or("");
  return take_number(text);
}

std::string why_unreadable(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) return str("the file '", path, "' is not there");
  return str("'", path, "' cannot be read: ", std::strerror(error));
}

std::optional<int64_t> take_number(std::string_view& text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data() + start, end, value);
  if (failure != std::errc()) return std::nullopt;
  text = std::string_view(stop, static_cast<size_t>(end - stop));
  return value;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view trimmed(std::string_view text) {
  const char* const blanks = " \t\r\n";
  const size_t start = text.find_first_not_of(blanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(blanks) - start + 1);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const open_folder = ::opendir(folder.c_str());
  if (!open_folder) return names;
  while (const dirent* entry = ::readdir(open_folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(open_folder);
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

double now_s() { return seconds_of(CLOCK_MONOTONIC); }
double thread_cpu_s() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace tandem::lab
