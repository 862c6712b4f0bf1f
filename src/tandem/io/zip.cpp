// The zip format: files one after the other, then a directory, then its place.
#include "tandem/io/zip.h"

#include <zlib.h>

#include <algorithm>

#include "tandem/io/byte_reader.h"

namespace tandem::io {

namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kDirectoryMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr size_t kEndBytes = 22, kMaxComment = 65535;
constexpr uint64_t kMax32 = 0xffffffff;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kVersion = 20;           // 2.0: what deflate needs
constexpr uint32_t kDate1980 = 0x00210000;  // the first day of the format's calendar, so that bytes repeat

uint32_t crc_of(uint32_t crc, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t take = std::min(bytes.size(), size_t{1} << 30);
    crc = static_cast<uint32_t>(crc32(crc, bytes.data(), static_cast<uInt>(take)));
    bytes = bytes.subspan(take);
  }
  return crc;
}

std::vector<uint8_t> deflated(const std::vector<std::span<const uint8_t>>& pieces) {
  z_stream stream{};
  TD_ASSERT(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK,
            "zlib did not start");
  struct Ending {
    z_stream* stream;
    ~Ending() { deflateEnd(stream); }
  } ending{&stream};
  std::vector<uint8_t> out, buffer(size_t{1} << 18);
  const auto run = [&](int flush) {
    do {
      stream.next_out = buffer.data();
      stream.avail_out = static_cast<uInt>(buffer.size());
      ::deflate(&stream, flush);
      out.insert(out.end(), buffer.data(), buffer.data() + (buffer.size() - stream.avail_out));
    } while (stream.avail_out == 0);
  };
  for (std::span<const uint8_t> piece : pieces)
    while (!piece.empty()) {
      const size_t take = std::min(piece.size(), size_t{1} << 30);
      stream.next_in = const_cast<Bytef*>(piece.data());
      stream.avail_in = static_cast<uInt>(take);
      run(Z_NO_FLUSH);
      piece = piece.subspan(take);
    }
  run(Z_FINISH);
  return out;
}

/// Appends little-endian numbers.
class Fields {
 public:
  template <class T>
  Fields& operator()(T value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof(T));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

ZipReader::ZipReader(const std::string& what, const std::string& path, int64_t max_bytes)
    : where_(str(what, " '", one_line(path), "': ")), archive_(read_file(what, path, max_bytes)) {
  ByteReader reader(where_, archive_);
  if (archive_.size() < kEndBytes)
    reader.fail("a zip archive must take at least ", kEndBytes, " bytes; it holds ", archive_.size());
  // The end record is the last thing in the file, but for a comment.
  size_t end_at = archive_.size() - kEndBytes;
  const size_t lowest = end_at > kMaxComment ? end_at - kMaxComment : 0;
  const auto is_end = [&](size_t at) {
    uint32_t mark;
    uint16_t comment;
    std::memcpy(&mark, archive_.data() + at, sizeof(mark));
    std::memcpy(&comment, archive_.data() + at + 20, sizeof(comment));
    return mark == kEndMark && at + kEndBytes + comment == archive_.size();
  };
  while (!is_end(end_at)) {
    if (end_at == lowest) reader.fail("a zip archive must end with its directory's place; it does not");
    --end_at;
  }
  reader.seek(end_at + 4, "the end record");
  const auto disk = reader.number<uint16_t>("a disk"), first_disk = reader.number<uint16_t>("a disk");
  const auto here = reader.number<uint16_t>("a count"), count = reader.number<uint16_t>("a count");
  const auto directory_bytes = reader.number<uint32_t>("a size");
  const auto directory_at = reader.number<uint32_t>("a place");
  TD_CHECK(count != 0xffff && directory_at != kMax32 && directory_bytes != kMax32, where_,
           "must be a plain zip archive; it is zip64 (over 4 GiB or 65534 files). Split it.");
  if (disk != 0 || first_disk != 0 || here != count)
    reader.fail("a zip archive must be one file; it is a part");
  if (uint64_t{directory_at} + directory_bytes > end_at)
    reader.fail("the directory must lie before its end record; it says to take ", directory_bytes,
                " bytes from byte ", directory_at);

  reader.seek(directory_at, "the directory");
  uint64_t total = 0;
  for (int i = 0; i < count; ++i) {
    if (reader.number<uint32_t>("a directory entry") != kDirectoryMark)
      reader.fail("the directory must hold ", count, " entries; entry ", i, " is not one");
    Entry entry;
    reader.take(4, "versions");
    const auto flags = reader.number<uint16_t>("flags"), method = reader.number<uint16_t>("a method");
    reader.take(4, "a date");
    entry.crc = reader.number<uint32_t>("a checksum");
    entry.packed_bytes = reader.number<uint32_t>("a size");
    entry.bytes = reader.number<uint32_t>("a size");
    const auto name_bytes = reader.number<uint16_t>("a length"),
               extra_bytes = reader.number<uint16_t>("a length"),
               comment_bytes = reader.number<uint16_t>("a length");
    reader.take(8, "attributes");
    entry.header_at = reader.number<uint32_t>("a place");
    const std::span<const uint8_t> name = reader.take(name_bytes, "a name");
    entry.name.assign(name.begin(), name.end());
    reader.take(extra_bytes, "an extra field");
    reader.take(comment_bytes, "a comment");
    const std::string shown = one_line(entry.name, 100);
    TD_CHECK(entry.packed_bytes != kMax32 && entry.bytes != kMax32 && entry.header_at != kMax32, where_, "'",
             shown, "' must be a plain zip entry; it is zip64 (over 4 GiB). Split it.");
    TD_CHECK((flags & 1) == 0, where_, "'", shown,
             "' must not be encrypted. Unpack it with its password first.");
    TD_CHECK(method == kStored || method == kDeflated, where_, "'", shown,
             "' must be stored or deflated; its method is ", method, ". Pack it again with deflate.");
    entry.deflated = method == kDeflated;
    if (!entry.deflated && entry.bytes != entry.packed_bytes)
      reader.fail("'", shown, "' is stored, so that its two sizes must be equal; got ", entry.packed_bytes,
                  " and ", entry.bytes);
    total += entry.bytes;
    entries_.push_back(std::move(entry));
  }
  // Entries may share bytes of the archive: what counts is what they are together.
  check_unpacked(where_, "the archive", archive_.size(), total, max_bytes);
}

std::vector<uint8_t> ZipReader::read(const Entry& entry) const {
  ByteReader reader(where_, archive_);
  reader.seek(entry.header_at, "a file in the archive");
  if (reader.number<uint32_t>("a file's header") != kLocalMark)
    reader.fail("a file's header must begin at byte ", entry.header_at, "; there is none");
  reader.take(22, "a file's header");
  const auto name_bytes = reader.number<uint16_t>("a length"),
             extra_bytes = reader.number<uint16_t>("a length");
  reader.take(name_bytes, "a name");
  reader.take(extra_bytes, "an extra field");
  const std::span<const uint8_t> packed = reader.take(entry.packed_bytes, "a file in the archive");
  std::vector<uint8_t> bytes = entry.deflated
                                   ? unpack(where_, packed, Packing::raw, static_cast<int64_t>(entry.bytes),
                                            static_cast<int64_t>(entry.bytes), archive_.size())
                                   : std::vector<uint8_t>(packed.begin(), packed.end());
  if (bytes.size() != entry.bytes || crc_of(0, bytes) != entry.crc)
    reader.fail("'", one_line(entry.name, 100), "' must have ", entry.bytes,
                " bytes and the checksum of the directory; it has not");
  return bytes;
}

void write_zip(const std::string& path, const std::vector<ZipItem>& items, bool deflate) {
  const std::string where = str("save '", one_line(path), "': ");
  TD_CHECK(items.size() < 0xffff, where, "must hold fewer than 65535 files; got ", items.size(), ".");
  write_atomically(path, [&](OutputFile& out) {
    std::string directory;
    uint64_t at = 0;
    const auto write = [&](std::span<const uint8_t> bytes) {
      out.write(bytes.data(), bytes.size());
      at += bytes.size();
    };
    const auto write_text = [&](const std::string& text) {
      out.write(text);
      at += text.size();
    };
    for (const ZipItem& item : items) {
      uint64_t bytes = 0;
      uint32_t crc = 0;
      for (std::span<const uint8_t> piece : item.pieces) bytes += piece.size(), crc = crc_of(crc, piece);
      std::vector<uint8_t> packed;
      if (deflate) packed = deflated(item.pieces);
      const uint64_t packed_bytes = deflate ? packed.size() : bytes;
      TD_CHECK(at + std::max(bytes, packed_bytes) < kMax32 && item.name.size() < 0xffff, where,
               "must stay below 4 GiB, as zip64 is not written; '", one_line(item.name, 100), "' ends at ",
               at + packed_bytes, " bytes. Save fewer arrays a file, or save safetensors.");
      const uint16_t method = deflate ? kDeflated : kStored;
      const auto name_bytes = static_cast<uint16_t>(item.name.size());
      Fields shared;  // what the file's header and the directory's entry have in common
      shared(kVersion)(uint16_t{0})(method)(kDate1980)(crc)(static_cast<uint32_t>(packed_bytes))(
          static_cast<uint32_t>(bytes))(name_bytes)(uint16_t{0});
      directory +=
          Fields()(kDirectoryMark)(kVersion).text() + shared.text() +
          Fields()(uint16_t{0})(uint16_t{0})(uint16_t{0})(uint32_t{0})(static_cast<uint32_t>(at)).text() +
          item.name;
      write_text(Fields()(kLocalMark).text() + shared.text() + item.name);
      if (deflate)
        write(packed);
      else
        for (std::span<const uint8_t> piece : item.pieces) write(piece);
    }
    const auto count = static_cast<uint16_t>(items.size());
    const auto directory_at = static_cast<uint32_t>(at);
    TD_CHECK(at + directory.size() < kMax32, where, "must stay below 4 GiB. Save fewer arrays a file.");
    write_text(directory);
    write_text(Fields()(kEndMark)(uint16_t{0})(uint16_t{0})(
                   count)(count)(static_cast<uint32_t>(directory.size()))(directory_at)(uint16_t{0})
                   .text());
  });
}

}  // namespace tandem::io
