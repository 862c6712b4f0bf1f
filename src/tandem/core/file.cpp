#include "tandem/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tandem {

namespace {

/// What a user can do about an errno.
const char* remedy(int error) {
  switch (error) {
    case ENOENT:
      return "Check the path.";
    case ENOTDIR:
      return "A part of the path is a file, not a folder: choose another path.";
    case EISDIR:
      return "The path is a folder: name a file.";
    case EACCES:
    case EPERM:
      return "Change its permissions or choose another path.";
    case EROFS:
      return "The file system is read-only: choose another path.";
    case ENOSPC:
    case EDQUOT:
      return "Free some space or choose another folder.";
    case EFBIG:
      return "Raise the file size limit (ulimit -f) or choose another folder.";
    case EMFILE:
    case ENFILE:
      return "Raise the limit of open files (ulimit -n).";
    case ENAMETOOLONG:
      return "Choose a shorter path.";
    default:
      return "Check the path and the disk.";
  }
}

}  // namespace

std::string one_line(std::string_view text, size_t limit) {
  std::string out;
  for (char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    } else {
      out += c;
    }
  }
  if (text.size() > limit) out += "…";
  return out;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Error file_error(std::string_view what, const std::string& path, const char* step, int error) {
  return resource_error(what, " '", one_line(path), "': ", step, ": ", std::strerror(error), ". ",
                        remedy(error));
}

Descriptor open_file(const std::string& what, const std::string& path, int flags, int mode) {
  // O_NONBLOCK: opening a pipe must not wait for its other end. Regular files do not know it.
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
  const int error = errno;
  struct stat status {};
  // ENXIO: a pipe without a reader, a socket, or a device that is not there.
  const bool has_status = file ? ::fstat(file.fd(), &status) == 0
                               : (error == ENXIO || error == EISDIR) && ::stat(path.c_str(), &status) == 0;
  if (!file && !has_status) throw file_error(what, path, "cannot open the file", error);
  if (!has_status) throw file_error(what, path, "cannot ask for the file's state", errno);
  TD_CHECK(S_ISREG(status.st_mode), what, " '", one_line(path), "': must be a regular file; got ",
           S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe", ". Name a file.");
  if (!file) throw file_error(what, path, "cannot open the file", error);
  return file;
}

void write_all(const Descriptor& file, std::string_view what, const std::string& path,
               std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file.fd(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw file_error(what, path, "cannot write", errno);
    text.remove_prefix(static_cast<size_t>(put));
  }
}

InputFile::InputFile(const std::string& what, const std::string& path)
    : what_(what), path_(path), file_(open_file(what, path, O_RDONLY)) {
  struct stat status {};
  if (::fstat(file_.fd(), &status) != 0)
    throw file_error(what_, path_, "cannot ask for the file's size", errno);
  bytes_ = status.st_size;
}

void InputFile::read(void* to, size_t bytes) {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(file_.fd(), out, std::min(bytes, size_t{1} << 30));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw file_error(what_, path_, "cannot read", errno);
    TD_CHECK(got > 0, what_, " '", one_line(path_), "': the file must hold ", bytes,
             " bytes more; it ended. It is cut off: write or fetch it again.");
    out += got;
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace tandem
