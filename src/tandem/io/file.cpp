// Whole files, atomic replacement, and gzip through zlib.
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

/// Opens `path`.tmp, empty and locked. One fixed name, so that a killed program leaves at most one such file
/// and the next save takes it over; the lock keeps two live writers apart. The name is ours: a pipe, a device, a link or
/// another name of some file in its place is removed, never written to.
Descriptor open_temporary(const std::string& path, const std::string& temporary) {
  while (true) {
    Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666));
    const int error = errno;
    struct stat mine {
    }, there{};
    const bool is_there = ::lstat(temporary.c_str(), &there) == 0;
    TD_CHECK(!is_there || !S_ISDIR(there.st_mode), "save '", one_line(path), "': its temporary file '",
             one_line(temporary), "' must be a file or not exist; got a folder. Remove it.");
    if (is_there && (!S_ISREG(there.st_mode) || there.st_nlink > 1)) {
      if (::unlink(temporary.c_str()) != 0 && errno != ENOENT)
        throw file_error("save", path, "cannot remove what is in its temporary file's place", errno);
      continue;
    }
    if (!file) throw file_error("save", path, "cannot create a file in its folder", error);
    while (::flock(file.fd(), LOCK_EX) != 0)
      if (errno != EINTR) break;  // a file system without locks: go on without
    // While this writer waited, the other one may have renamed or removed the file: then it is not ours.
    if (::fstat(file.fd(), &mine) != 0)
      throw file_error("save", path, "cannot ask for a file's state", errno);
    if (::lstat(temporary.c_str(), &there) != 0 || mine.st_ino != there.st_ino || mine.st_dev != there.st_dev)
      continue;
    if (::ftruncate(file.fd(), 0) != 0)
      throw file_error("save", path, "cannot empty its temporary file", errno);
    return file;
  }
}

int window_of(Packing packing) {
  return packing == Packing::gzip ? 15 + 16 : packing == Packing::zlib ? 15 : -15;
}

struct Inflating {
  z_stream stream{};
  explicit Inflating(Packing packing) {
    TD_ASSERT(inflateInit2(&stream, window_of(packing)) == Z_OK, "zlib did not start");
  }
  ~Inflating() { inflateEnd(&stream); }
};

}  // namespace

std::vector<uint8_t> read_file(const std::string& what, const std::string& path, int64_t max_bytes) {
  InputFile file(what, path);
  TD_CHECK(file.bytes() <= max_bytes, what, " '", one_line(path), "': the file must hold at most ", max_bytes,
           " bytes; it holds ", file.bytes(),
           ". It may not be what its name says: fetch it again, or raise the limit "
           "(TANDEM_READING_LIMITS=bytes=…).");
  std::vector<uint8_t> content(static_cast<size_t>(file.bytes()));
  file.read(content.data(), content.size());
  return content;
}

std::vector<uint8_t> unpack(const std::string& where, std::span<const uint8_t> packed, Packing packing,
                            int64_t max_bytes, int64_t expected, uint64_t file_bytes) {
  const char* name = packing == Packing::gzip ? "gzip" : packing == Packing::zlib ? "zlib" : "deflate";
  const auto bad = [&](const auto&... parts) {
    return Error(str(where, parts..., ". Fetch the file again."));
  };
  if (file_bytes == 0) file_bytes = packed.size();
  const auto check_size = [&](uint64_t bytes) {
    check_unpacked(where, "the file", file_bytes, bytes, max_bytes);
  };
  check_size(static_cast<uint64_t>(expected));
  const auto limit = static_cast<size_t>(unpacked_limit(file_bytes, max_bytes));
  // One byte more than the limit may be unpacked: that byte is the proof that the limit is exceeded. One more than is
  // expected, too, so that the end is found without growing.
  const size_t guess = expected > 0 ? static_cast<size_t>(expected) + 1 : 4 * packed.size() + 1024;
  std::vector<uint8_t> out(std::min(limit + 1, guess));
  Inflating inflating(packing);
  z_stream& stream = inflating.stream;

  size_t read = 0, written = 0;
  while (true) {
    if (written == out.size()) {
      check_size(written);
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
    if (status == Z_MEM_ERROR) throw OutOfMemory(where + "out of memory. Free some memory.");
    if (status != Z_OK && status != Z_BUF_ERROR)
      throw bad("the ", name, " data ", status == Z_DATA_ERROR ? "is damaged" : "asks for a dictionary");
    if (read == packed.size() && stream.avail_out != 0)
      throw bad("the ", name, " data is cut off before its end");
  }
  check_size(written);
  out.resize(written);
  return out;
}

std::vector<uint8_t> pack_gzip(std::span<const uint8_t> bytes) {
  z_stream stream{};
  TD_ASSERT(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, window_of(Packing::gzip), 8,
                         Z_DEFAULT_STRATEGY) == Z_OK,
            "zlib did not start");
  std::vector<uint8_t> out;
  std::vector<uint8_t> piece(size_t{1} << 20);
  size_t read = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    const size_t given = std::min(bytes.size() - read, kPiece);
    stream.next_in = const_cast<Bytef*>(bytes.data() + read);
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = piece.data();
    stream.avail_out = static_cast<uInt>(piece.size());
    status = deflate(&stream, read + given == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    read += given - stream.avail_in;
    out.insert(out.end(), piece.begin(), piece.end() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

std::vector<uint8_t> unpack_start(std::span<const uint8_t> packed, Packing packing, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  Inflating inflating(packing);
  z_stream& stream = inflating.stream;
  stream.next_in = const_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(std::min(packed.size(), kPiece));
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(bytes);
  inflate(&stream, Z_SYNC_FLUSH);
  out.resize(bytes - stream.avail_out);
  return out;
}

std::vector<uint8_t> read_maybe_gzip(const std::string& what, const std::string& path, int64_t max_bytes) {
  std::vector<uint8_t> content = read_file(what, path, max_bytes);
  if (content.size() < 2 || content[0] != 0x1f || content[1] != 0x8b) return content;
  // The last four bytes say how long the (last) content is: a hint, no more.
  uint32_t expected = 0;
  if (content.size() >= 18) std::memcpy(&expected, content.data() + content.size() - 4, sizeof(expected));
  const int64_t most = unpacked_limit(content.size(), max_bytes);
  return unpack(str(what, " '", one_line(path), "': "), content, Packing::gzip, max_bytes,
                expected <= most ? int64_t{expected} : 0);
}

void OutputFile::flush() {
  write_all(file_, "save", path_, buffer_);
  buffer_.clear();
}

void OutputFile::write(const void* data, size_t bytes) {
  const auto* in = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t take = std::min(bytes, kPiece - buffer_.size());
    buffer_.append(in, take);
    in += take;
    bytes -= take;
    if (buffer_.size() == kPiece) flush();
  }
}

void write_atomically(const std::string& path, const std::function<void(OutputFile&)>& writer, Sync sync) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0)
    TD_CHECK(S_ISREG(status.st_mode), "save '", one_line(path),
             "': must be a regular file or not exist; got ",
             S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe", ". Name a file.");
  // The folder is opened first, since it must be synced at the end, when failing would come too late.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const Descriptor dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) throw file_error("save", path, "cannot open its folder", errno);

  const std::string temporary = path + ".tmp";
  const Descriptor file = open_temporary(path, temporary);
  try {
    OutputFile out(path, file);
    writer(out);
    out.flush();
    if (sync == Sync::yes && ::fsync(file.fd()) != 0)
      throw file_error("save", path, "cannot write to the disk", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw file_error("save", path, "cannot replace the file", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // EINVAL: a file system that cannot sync folders (some network ones); the file itself is safe.
  if (sync == Sync::yes && ::fsync(dir.fd()) != 0 && errno != EINVAL)
    throw file_error("save", path, "cannot write its folder to the disk", errno);
}

FolderLock::FolderLock(const char* what, const std::string& folder, const char* owner)
    : what_(what), folder_(folder), file_(open_file(what, folder + "/.lock", O_RDWR | O_CREAT)) {
  while (::flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    TD_CHECK(errno != EWOULDBLOCK, what, ": the folder '", one_line(folder), "' must belong to one ", owner,
             " at a time; got one that another ", owner,
             " is writing to. Wait for its end, or choose another `out`.");
    break;  // a file system without locks
  }
}

void FolderLock::check() const {
  struct stat mine {
  }, there{};
  const bool same = ::fstat(file_.fd(), &mine) == 0 && ::stat((folder_ + "/.lock").c_str(), &there) == 0 &&
                    mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  TD_CHECK(same, what_, ": the folder '", one_line(folder_),
           "' must stay where it is while it is written to; got one that was removed, moved or replaced. "
           "Begin again.");
}

}  // namespace tandem::io
