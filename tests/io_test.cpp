// Files, SHA-256 and safetensors: what is written comes back, what is damaged is refused, and a save that fails
// leaves the old file as it was.
// ctest: asan
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/io/file.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/sha256.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::io {
namespace {

using testing::message_of;
using testing::read_text;
using testing::TempFolder;
using testing::write_text;
namespace fs = std::filesystem;

/// A message is one line and ends with a sentence.
void expect_one_line(const std::string& message) {
  EXPECT_FALSE(message.empty()) << "nothing was thrown";
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with('.')) << message;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// --- SHA-256: values from FIPS 180-4's examples and the usual test vectors.

TEST(Sha256, GivesTheSumsOfTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  const std::string whole = sha256(text);
  for (size_t piece : {1u, 3u, 55u, 56u, 63u, 64u, 65u, 128u, 299u}) {
    Sha256 sum;
    for (size_t at = 0; at < text.size(); at += piece)
      sum.update(text.data() + at, std::min(piece, text.size() - at));
    EXPECT_EQ(sum.hex(), whole) << "pieces of " << piece;
    EXPECT_EQ(sum.hex(), whole) << "asked twice";
  }
}

// --- Reading files

TEST(ReadFile, GivesPlainAndGzipContentAlike) {
  TempFolder folder;
  const std::string text(100000, 'x');
  write_text(folder / "plain", text);
  write_text(folder / "packed", gzip(text));
  write_text(folder / "two", gzip("one ") + gzip("two"));
  write_text(folder / "empty", "");
  write_text(folder / "empty.gz", gzip(""));
  EXPECT_EQ(text_of(read_maybe_gzip("read", folder / "plain")), text);
  EXPECT_EQ(text_of(read_maybe_gzip("read", folder / "packed")), text);
  EXPECT_EQ(text_of(read_maybe_gzip("read", folder / "two")), "one two");
  EXPECT_EQ(text_of(read_maybe_gzip("read", folder / "empty")), "");
  EXPECT_EQ(text_of(read_maybe_gzip("read", folder / "empty.gz")), "");
}

TEST(ReadFile, RefusesEveryGzipFileThatIsCutOff) {
  TempFolder folder;
  const std::string packed = gzip("some text that is packed");
  for (size_t length = 2; length < packed.size(); ++length) {
    write_text(folder / "cut", packed.substr(0, length));
    const std::string message = message_of<Error>([&] { read_maybe_gzip("read", folder / "cut"); });
    expect_one_line(message);
    EXPECT_HAS(message, "cut off");
  }
}

TEST(ReadFile, RefusesDamagedGzipDataAndBytesAfterItsEnd) {
  TempFolder folder;
  std::string packed = gzip("some text that is packed");
  write_text(folder / "longer", packed + "more");
  EXPECT_HAS(message_of<Error>([&] { read_maybe_gzip("read", folder / "longer"); }), "more bytes");
  packed[packed.size() - 6] ^= 1;  // the checksum
  write_text(folder / "damaged", packed);
  EXPECT_HAS(message_of<Error>([&] { read_maybe_gzip("read", folder / "damaged"); }), "damaged");
}

TEST(ReadFile, UnpacksNoMoreThanTheLimit) {
  TempFolder folder;
  write_text(folder / "bomb", gzip(std::string(5'000'000, '\0')));
  const std::string message = message_of<Error>([&] { read_maybe_gzip("read", folder / "bomb", 4'999'999); });
  expect_one_line(message);
  EXPECT_HAS(message, "at most 4999999 bytes");
  EXPECT_EQ(read_maybe_gzip("read", folder / "bomb", 5'000'000).size(), 5'000'000u);
  EXPECT_HAS(message_of<Error>([&] { read_file("read", folder / "bomb", 10); }), "at most 10 bytes");
}

TEST(ReadFile, NamesTheFileAndTheCauseWhereItCannotBeRead) {
  TempFolder folder;
  const std::string absent = message_of<Error>([&] { read_file("read", folder / "no\nsuch"); });
  expect_one_line(absent);
  EXPECT_HAS(absent, "no\\x0asuch");
  EXPECT_HAS(absent, "No such file");
  EXPECT_HAS(message_of<Error>([&] { read_file("read", folder.path()); }), "a folder");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_HAS(message_of<Error>([&] { read_file("read", folder / "pipe"); }), "a device or pipe");
}

// --- Atomic writing

TEST(WriteAtomically, ReplacesTheFileAndLeavesNothingElse) {
  TempFolder folder;
  write_text(folder / "file", "old");
  const std::string text(3'000'000, 'n');
  write_atomically(folder / "file", [&](OutputFile& out) {
    EXPECT_EQ(read_text(folder / "file"), "old") << "the old file must stand until the new one is whole";
    out.write(text);
    out.write("end");
  });
  EXPECT_EQ(read_text(folder / "file"), text + "end");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteAtomically, TakesOverWhatAKilledProgramLeft) {
  TempFolder folder;
  write_text(folder / "file.tmp", std::string(1000, 'z'));
  write_atomically(folder / "file", [](OutputFile& out) { out.write("new"); });
  EXPECT_EQ(read_text(folder / "file"), "new");
  EXPECT_FALSE(fs::exists(folder / "file.tmp"));
}

TEST(WriteAtomically, KeepsTheOldFileWhereTheWriterThrows) {
  TempFolder folder;
  write_text(folder / "file", "old");
  EXPECT_THROW(write_atomically(folder / "file",
                                [](OutputFile& out) {
                                  out.write(std::string(2'000'000, 'n'));
                                  throw Error("the writer failed.");
                                }),
               Error);
  EXPECT_EQ(read_text(folder / "file"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

/// While it lives no file of this process can grow beyond `bytes`: writing then fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(WriteAtomically, KeepsTheOldFileWhereTheDiskIsFull) {
  TempFolder folder;
  for (size_t bytes : {size_t{70'000}, size_t{5'000'000}}) {  // fails in the last flush; fails midway
    write_text(folder / "file", "old");
    std::string message;
    {
      FileSizeLimit limit(65536);
      message = message_of<Error>([&] {
        write_atomically(folder / "file", [&](OutputFile& out) { out.write(std::string(bytes, 'n')); });
      });
    }
    expect_one_line(message);
    EXPECT_HAS(message, std::strerror(EFBIG));
    EXPECT_HAS(message, "file");
    EXPECT_EQ(read_text(folder / "file"), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  }
}

TEST(WriteAtomically, SaysWhyAFolderCannotBeWrittenTo) {
  TempFolder folder;
  write_text(folder / "file", "a file");
  const auto save = [](const std::string& path) {
    return message_of<Error>([&] { write_atomically(path, [](OutputFile& out) { out.write("x"); }); });
  };
  for (const std::string& path : {folder / "file/below", folder / "absent/file", folder.path()})
    expect_one_line(save(path));
  EXPECT_HAS(save(folder / "file/below"), "Not a directory");
  EXPECT_HAS(save(folder / "absent/file"), "No such file");
  EXPECT_HAS(save(folder.path()), "a folder");
  EXPECT_HAS(save("/dev/full"), "a device or pipe");
  EXPECT_EQ(read_text(folder / "file"), "a file");
}

TEST(WriteAtomically, SaysThatAFolderIsNotWritable) {
  TempFolder folder;
  fs::create_directory(folder / "closed");
  write_text(folder / "closed/file", "old");
  const auto readable = fs::perms(0555);
  fs::permissions(folder.path(), readable);
  fs::permissions(folder / "closed", readable);
  // Root may write anywhere, so it becomes nobody for the moment.
  const bool was_root = geteuid() == 0;
  if (was_root && seteuid(65534) != 0) GTEST_SKIP() << "root cannot become another user here";
  const std::string message =
      message_of<Error>([&] { write_atomically(folder / "closed/file", [](OutputFile&) {}); });
  ASSERT_EQ(was_root ? seteuid(0) : 0, 0);
  fs::permissions(folder.path(), fs::perms::owner_all);
  fs::permissions(folder / "closed", fs::perms::owner_all);
  expect_one_line(message);
  EXPECT_HAS(message, "Permission denied");
  EXPECT_EQ(read_text(folder / "closed/file"), "old");
}

TEST(WriteAtomically, LeavesAWholeFileWhereTwoThreadsWriteIt) {
  TempFolder folder;
  const auto write_many = [&](char letter) {
    for (int i = 0; i < 20; ++i)
      write_atomically(folder / "file", [&](OutputFile& out) { out.write(std::string(5000, letter)); });
  };
  std::thread other(write_many, 'b');
  write_many('a');
  other.join();
  const std::string text = read_text(folder / "file");
  EXPECT_EQ(text, std::string(5000, text.at(0)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

// --- safetensors

NamedTensors some_tensors() {
  return {{"b.weight", from_vector<float>({1.5f, -2.0f, 3.0f, 0.0f, 5.0f, 6.0f}, {2, 3})},
          {"a", from_vector<int64_t>({-7}, {})},
          {"mask", from_vector<bool>({true, false, true}, {3})},
          {"none", from_vector<double>({}, {0, 4})},
          {"bytes", from_vector<uint8_t>({1, 2, 3}, {3, 1})}};
}

/// A file with that header and so many zero bytes of data.
void write_header(const std::string& path, const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
  write_text(path, text + header + std::string(data_bytes, '\0'));
}

TEST(Safetensors, GiveBackWhatWasSaved) {
  TempFolder folder;
  save_safetensors(folder / "t", some_tensors(), {{"format", "pt"}, {"note", "a \"quote\" and é"}});
  const SafetensorsFile file = load_safetensors(folder / "t");
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.metadata.at("note"), "a \"quote\" and é");
  EXPECT_EQ(file.tensors[0].first, "a");
  for (const auto& [name, saved] : some_tensors()) {
    const Tensor* loaded = file.find(name);
    ASSERT_TRUE(loaded) << name;
    EXPECT_EQ(loaded->shape(), saved.shape()) << name;
    EXPECT_EQ(loaded->dtype(), saved.dtype()) << name;
    EXPECT_EQ(host_bytes(*loaded), host_bytes(saved)) << name;
  }
  EXPECT_EQ(file.find("b"), nullptr);
  EXPECT_EQ(file.find("zz"), nullptr);
}

TEST(Safetensors, HaveTheFormatsBytes) {
  TempFolder folder;
  save_safetensors(folder / "t", {{"w", from_vector<uint8_t>({65, 66}, {2})}}, {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  const size_t padded = (header.size() + 7) / 8 * 8;
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(padded);
  EXPECT_EQ(read_text(folder / "t"), expected + header + std::string(padded - header.size(), ' ') + "AB");
}

TEST(Safetensors, HaveTheSameBytesForAnyOrderOfTheTensors) {
  TempFolder folder;
  NamedTensors tensors = some_tensors();
  save_safetensors(folder / "one", tensors, {{"k", "v"}, {"a", "b"}});
  std::reverse(tensors.begin(), tensors.end());
  save_safetensors(folder / "two", tensors, {{"a", "b"}, {"k", "v"}});
  EXPECT_EQ(read_text(folder / "one"), read_text(folder / "two"));
  EXPECT_EQ(weights_sha256(tensors), weights_sha256(some_tensors()));
}

TEST(Safetensors, MayBeEmptyAndMayStandInAnyOrder) {
  TempFolder folder;
  save_safetensors(folder / "none", {});
  EXPECT_TRUE(load_safetensors(folder / "none").tensors.empty());
  write_header(folder / "order",
               R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[3,5]},)"
               R"("b":{"shape":[3],"dtype":"I8","data_offsets":[0,3]},)"
               R"("c":{"shape":[0],"dtype":"F32","data_offsets":[3,3]}}   )",
               5);
  const SafetensorsFile file = load_safetensors(folder / "order");
  EXPECT_EQ(file.find("a")->shape(), Dims{2});
  EXPECT_EQ(file.find("c")->shape(), Dims{0});
}

TEST(Safetensors, AreRefusedWhereTheHeaderLies) {
  TempFolder folder;
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string f32 = "\"F32\"";
  const struct {
    const char* what;
    std::string header;
    size_t data_bytes;
    const char* expected;
  } cases[] = {
      {"no JSON", "{\"w\":", 4, "must be JSON"},
      {"not an object", "[1]", 4, "must begin with '{'"},
      {"bytes after the JSON", "{} x", 0, "must be JSON"},
      {"broken UTF-8", "{\"\xff\":1}", 0, "UTF-8"},
      {"a huge number", one(f32, "[1e999]", "[0,4]"), 4, "number"},
      {"an unknown dtype", one("\"F8_E4M3\"", "[4]", "[0,4]"), 4, "F8_E4M3"},
      {"a dtype that is a number", one("7", "[4]", "[0,4]"), 4, "must be a string"},
      {"a negative size", one(f32, "[-1]", "[0,4]"), 4, "shape"},
      {"a fraction as size", one(f32, "[1.0]", "[0,4]"), 4, "shape"},
      {"a shape that is a string", one(f32, "\"1\"", "[0,4]"), 4, "shape"},
      {"nine axes", one(f32, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "at most 8 axes"},
      {"an overflowing shape", one(f32, "[4294967296,4294967296,1]", "[0,0]"), 0, "63 bits"},
      {"an overflowing shape of no elements", one(f32, "[0,9223372036854775807,8]", "[0,0]"), 0, "63 bits"},
      {"a shape that does not fit its range", one(f32, "[2]", "[0,4]"), 4, "takes 8 bytes"},
      {"a range that runs backwards", one(f32, "[1]", "[4,0]"), 4, "data_offsets"},
      {"three offsets", one(f32, "[1]", "[0,4,4]"), 4, "two numbers"},
      {"offsets beyond the file", one(f32, "[2]", "[0,8]"), 4, "must lie within"},
      {"bytes that no tensor covers", one(f32, "[1]", "[0,4]"), 8, "must cover the data"},
      {"a gap at the start", one(f32, "[1]", "[4,8]"), 8, "without gap or overlap"},
      {"an overlap",
       R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
       4, "without gap or overlap"},
      {"a missing field", R"({"w":{"dtype":"F32","shape":[1]}})", 4,
       "must have dtype, shape and data_offsets"},
      {"a field too many", R"({"w":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}})", 1,
       "nothing else"},
      {"a name twice",
       R"({"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
       1, "stands twice"},
      {"a field twice", R"({"w":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1,
       "stands twice"},
      {"metadata that is a number", R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
      {"metadata that is a list", R"({"__metadata__":[]})", 0, "must be an object; got array"},
      {"deep nesting", R"({"w":)" + std::string(20000, '[') + std::string(20000, ']') + "}", 0, "nested"},
  };
  for (const auto& c : cases) {
    write_header(folder / "lying", c.header, c.data_bytes);
    const std::string message = message_of<Error>([&] { load_safetensors(folder / "lying"); });
    SCOPED_TRACE(c.what);
    expect_one_line(message);
    EXPECT_HAS(message, "lying");
    EXPECT_HAS(message, c.expected);
  }
}

TEST(Safetensors, AreRefusedWhereTheLengthOfTheHeaderLies) {
  TempFolder folder;
  for (uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{0}}) {
    write_text(folder / "t", std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
    expect_one_line(message_of<Error>([&] { load_safetensors(folder / "t"); }));
  }
  write_text(folder / "t", "short");
  EXPECT_HAS(message_of<Error>([&] { load_safetensors(folder / "t"); }), "5 bytes");
}

TEST(Safetensors, AreRefusedWhereverTheyAreCutOff) {
  TempFolder folder;
  save_safetensors(folder / "whole", some_tensors(), {{"k", "v"}});
  const std::string whole = read_text(folder / "whole");
  for (size_t length = 0; length < whole.size(); ++length) {
    write_text(folder / "torn", whole.substr(0, length));
    EXPECT_THROW(load_safetensors(folder / "torn"), Error) << "cut to " << length;
  }
  write_text(folder / "torn", whole + "x");
  EXPECT_THROW(load_safetensors(folder / "torn"), Error);
}

TEST(Safetensors, HoldOnlyZeroAndOneAsBool) {
  TempFolder folder;
  save_safetensors(folder / "t", {{"m", from_vector<bool>({true}, {1})}});
  std::string text = read_text(folder / "t");
  text.back() = 2;
  write_text(folder / "t", text);
  EXPECT_HAS(message_of<Error>([&] { load_safetensors(folder / "t"); }), "must be 0 or 1");
}

TEST(Safetensors, AreNotSavedWithNamesThatCannotBeRead) {
  TempFolder folder;
  const Tensor x = from_vector<float>({1}, {1});
  const auto save = [&](const NamedTensors& tensors) {
    return message_of<Error>([&] { save_safetensors(folder / "t", tensors); });
  };
  EXPECT_HAS(save({{"x", x}, {"x", x}}), "unique");
  EXPECT_HAS(save({{"__metadata__", x}}), "Rename");
  EXPECT_HAS(save({{"\xff", x}}), "UTF-8");
  EXPECT_HAS(save({{"x", Tensor()}}), "defined");
  EXPECT_FALSE(fs::exists(folder / "t"));
}

TEST(Safetensors, KeepThePreviousFileWhereTheDiskIsFull) {
  TempFolder folder;
  save_safetensors(folder / "t", some_tensors());
  const std::string before = read_text(folder / "t");
  const NamedTensors large = {{"w", from_vector(std::vector<float>(100'000, 1.0f), {100'000})}};
  {
    FileSizeLimit limit(65536);
    EXPECT_THROW(save_safetensors(folder / "t", large), Error);
  }
  EXPECT_EQ(read_text(folder / "t"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(WeightsSha256, IsTheSumOfTheBytesInNameOrder) {
  EXPECT_EQ(
      weights_sha256({{"z", from_vector<uint8_t>({'c'}, {1})}, {"a", from_vector<uint8_t>({'a', 'b'}, {2})}}),
      sha256("abc"));
}

}  // namespace
}  // namespace tandem::io
