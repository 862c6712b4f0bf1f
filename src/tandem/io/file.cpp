// POSIX file reading and atomic replacement, and gzip through zlib.
#include "tandem/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::io {

namespace {

constexpr size_t kPiece = size_t{1} << 20;

/// What a user can do about an errno.
const char* mend_for(int error) {
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

[[noreturn]] void fail(std::string_view what, const std::string& path, const char* step, int error) {
  throw Error(
      cat(what, " '", one_line(path), "': ", step, ": ", std::strerror(error), ". ", mend_for(error)));
}

/// Closes a descriptor at the end of its scope.
struct Closing {
  int fd;
  ~Closing() {
    if (fd >= 0) ::close(fd);
  }
};

/// Opens `path`.tmp, empty and locked. One fixed name, so that a killed program leaves at most one such file
/// and the next save takes it over; the lock keeps two live writers apart.
int open_temporary(const std::string& path, const std::string& temporary) {
  while (true) {
    Closing file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)};
    if (file.fd < 0) fail("save", path, "cannot create a file in its folder", errno);
    while (::flock(file.fd, LOCK_EX) != 0)
      if (errno != EINTR) break;  // a file system without locks: go on without
    // While this writer waited, the other one may have renamed or removed the file: then it is not ours.
    struct stat mine {
    }, there{};
    if (::fstat(file.fd, &mine) != 0) fail("save", path, "cannot ask for a file's state", errno);
    if (::stat(temporary.c_str(), &there) != 0 || mine.st_ino != there.st_ino || mine.st_dev != there.st_dev)
      continue;
    if (::ftruncate(file.fd, 0) != 0) fail("save", path, "cannot empty its temporary file", errno);
    return std::exchange(file.fd, -1);
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

InputFile::InputFile(const std::string& what, const std::string& path) : what_(what), path_(path) {
  // O_NONBLOCK: opening a pipe must not hang before it is refused.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail(what_, path_, "cannot open the file", errno);
  Closing closing{fd_};
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail(what_, path_, "cannot ask for the file's size", errno);
  TD_CHECK(S_ISREG(status.st_mode), what_, " '", one_line(path_), "': must be a regular file; got ",
           S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe", ". Name a file.");
  bytes_ = status.st_size;
  closing.fd = -1;
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* to, size_t bytes) {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(fd_, out, std::min(bytes, size_t{1} << 30));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(what_, path_, "cannot read", errno);
    TD_CHECK(got > 0, what_, " '", one_line(path_), "': the file must hold ", bytes,
             " bytes more; it ended. It is cut off: write or fetch it again.");
    out += got;
    bytes -= static_cast<size_t>(got);
  }
}

std::vector<uint8_t> read_file(const std::string& what, const std::string& path, int64_t max_bytes) {
  InputFile file(what, path);
  TD_CHECK(file.bytes() <= max_bytes, what, " '", one_line(path), "': the file must hold at most ", max_bytes,
           " bytes; it holds ", file.bytes(), ". It is not what its name says: fetch it again.");
  std::vector<uint8_t> content(static_cast<size_t>(file.bytes()));
  file.read(content.data(), content.size());
  return content;
}

std::vector<uint8_t> unpack(const std::string& where, std::span<const uint8_t> packed, Packing packing,
                            int64_t max_bytes) {
  const char* name = packing == Packing::gzip ? "gzip" : packing == Packing::zlib ? "zlib" : "deflate";
  const auto bad = [&](const auto&... parts) {
    return Error(cat(where, parts..., ". Fetch the file again."));
  };
  const auto too_much = [&](const auto&... found) {
    return Error(cat(where, "the file must unpack to at most ", max_bytes, " bytes; it holds ", found...,
                     ". It is not what its name says: fetch it again."));
  };
  const size_t limit = static_cast<size_t>(max_bytes);
  std::vector<uint8_t> out(std::min(limit, 4 * packed.size() + 1024));
  z_stream stream{};
  const int window = packing == Packing::gzip ? 15 + 16 : packing == Packing::zlib ? 15 : -15;
  TD_ASSERT(inflateInit2(&stream, window) == Z_OK, "zlib did not start");
  struct Ending {
    z_stream* stream;
    ~Ending() { inflateEnd(stream); }
  } ending{&stream};

  size_t read = 0, written = 0;
  while (true) {
    if (written == out.size()) {
      // One byte more than the limit may be unpacked: that byte is the proof that the limit is exceeded.
      if (out.size() > limit) throw too_much("more");
      out.resize(std::min(2 * out.size() + 1024, limit + 1));
    }
    stream.next_in = const_cast<Bytef*>(packed.data() + read);
    stream.avail_in = static_cast<uInt>(std::min(packed.size() - read, kPiece));
    stream.next_out = out.data() + written;
    stream.avail_out = static_cast<uInt>(std::min(out.size() - written, kPiece));
    const uInt in_before = stream.avail_in, out_before = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    read += in_before - stream.avail_in;
    written += out_before - stream.avail_out;
    if (status == Z_STREAM_END) {
      if (read == packed.size()) break;
      if (packing != Packing::gzip || packed.size() - read < 2 || packed[read] != 0x1f ||
          packed[read + 1] != 0x8b)
        throw bad("the file must end where its ", name, " data ends; there are more bytes");
      TD_ASSERT(inflateReset(&stream) == Z_OK, "zlib did not restart");
      continue;
    }
    if (status == Z_MEM_ERROR) throw Error(cat(where, "out of memory. Free some memory."));
    if (status != Z_OK && status != Z_BUF_ERROR)
      throw bad("the ", name, " data ", status == Z_DATA_ERROR ? "is damaged" : "asks for a dictionary");
    if (read == packed.size() && stream.avail_out != 0)
      throw bad("the ", name, " data is cut off before its end");
  }
  if (written > limit) throw too_much(written);
  out.resize(written);
  return out;
}

std::vector<uint8_t> read_maybe_gzip(const std::string& what, const std::string& path, int64_t max_bytes) {
  std::vector<uint8_t> content = read_file(what, path, max_bytes);
  if (content.size() < 2 || content[0] != 0x1f || content[1] != 0x8b) return content;
  return unpack(cat(what, " '", one_line(path), "': "), content, Packing::gzip, max_bytes);
}

void OutputFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("save", path_, "cannot write", errno);
    done += static_cast<size_t>(put);
  }
  buffer_.clear();
}

void OutputFile::write(const void* data, size_t bytes) {
  const auto* in = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t take = std::min(bytes, kPiece - buffer_.size());
    buffer_.insert(buffer_.end(), in, in + take);
    in += take;
    bytes -= take;
    if (buffer_.size() == kPiece) flush();
  }
}

void write_atomically(const std::string& path, const std::function<void(OutputFile&)>& writer) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0)
    TD_CHECK(S_ISREG(status.st_mode), "save '", one_line(path),
             "': must be a regular file or not exist; got ",
             S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe", ". Name a file.");
  // The folder is opened first, since it must be synced at the end, when failing would come too late.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  Closing dir{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (dir.fd < 0) fail("save", path, "cannot open its folder", errno);

  const std::string temporary = path + ".tmp";
  Closing file{open_temporary(path, temporary)};
  try {
    OutputFile out(path, file.fd);
    writer(out);
    out.flush();
    if (::fsync(file.fd) != 0) fail("save", path, "cannot write to the disk", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail("save", path, "cannot replace the file", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // EINVAL: a file system that cannot sync folders (some network ones); the file itself is safe.
  if (::fsync(dir.fd) != 0 && errno != EINVAL)
    fail("save", path, "cannot write its folder to the disk", errno);
}

}  // namespace tandem::io
