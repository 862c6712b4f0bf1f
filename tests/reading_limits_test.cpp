// What small files may cost, and what is no file at all: refused by one line, before the memory is taken, the work is done
// or somebody waits for ever. The files are made here; ordinary ones of the same formats load beside them.
// ctest: asan
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "tandem/core/implementations.h"
#include "tandem/data/idx.h"
#include "tandem/data/table.h"
#include "tandem/io/file.h"
#include "tandem/io/image.h"
#include "tandem/io/json.h"
#include "tandem/io/mat.h"
#include "tandem/io/npy.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/tensorboard.h"
#include "tests/support/foreign_files.h"
#include "tests/support/growth.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using testing::read_text;
using testing::refusal;
using testing::TempFolder;
using testing::write_text;

/// Other limits until the end of the scope.
struct WithLimits {
  const ReadingLimits before = reading_limits();
  explicit WithLimits(const ReadingLimits& limits) { set_reading_limits(limits); }
  ~WithLimits() { set_reading_limits(before); }
};

// --- JSON

template <class Json>
std::string why_not(const std::string& text) {
  std::string why;
  EXPECT_TRUE(try_parse_json<Json>(text, why).is_discarded()) << text.substr(0, 100);
  return why;
}

std::string nested(const std::string& open, const std::string& close, int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  text += "1";
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(JsonText, IsReadAsItStands) {
  for (const char* text : {"{\"b\":1,\"a\":[1,-2,2.5,{\"x\":null}],\"c\":true}", "3", "\"text\"",
                           "[[],{},[[1]]]", "[-9223372036854775808,18446744073709551615,1e300]"}) {
    EXPECT_EQ(parse_json<json>("test: ", text), json::parse(text)) << text;
    EXPECT_EQ(parse_json<ordered_json>("test: ", text).dump(), ordered_json::parse(text).dump()) << text;
  }
}

TEST(JsonText, NestedTooDeepIsRefusedBeforeItOverflowsTheStack) {
  for (const auto& [open, close] : {std::pair{"[", "]"}, std::pair{"{\"a\":", "}"}}) {
    EXPECT_FALSE(parse_json<json>("test: ", nested(open, close, kMaxJsonDepth)).is_discarded());
    EXPECT_FALSE(parse_json<ordered_json>("test: ", nested(open, close, kMaxJsonDepth)).is_discarded());
    for (const int levels : {kMaxJsonDepth + 1, 100'000}) {
      EXPECT_HAS(why_not<json>(nested(open, close, levels)), "at most 100 levels");
      EXPECT_HAS(why_not<ordered_json>(nested(open, close, levels)), "at most 100 levels");
      EXPECT_HAS(why_not<json>(nested(open, "", levels)), "at most 100 levels");
    }
  }
}

TEST(JsonText, ThatMisleadsIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a":1,"b":{"c":1,"c":2}})", "'c' stands twice"},
      {R"({"a":1,"b":2,"a":1})", "'a' stands twice"},
      {"[18446744073709551616]", "must fit 64 bits; got 18446744073709551616"},
      {"[-9223372036854775809]", "must fit 64 bits"},
      {"[1e999]", "within the range of f64"},
      {"\"\xff\"", "UTF-8; it breaks at byte 2"},
      {R"("\ud800")", "must be JSON in UTF-8"},
      {"{} {}", "must be JSON"},
      {"", "must be JSON"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_HAS(why_not<json>(text), expected);
    EXPECT_HAS(why_not<ordered_json>(text), expected);
  }
  EXPECT_EQ(refusal([] { parse_json<json>("read 'x': ", "{\"a\":", "Write it again."); }),
            "read 'x': must be JSON in UTF-8; it breaks at byte 6. Write it again.");
}

TEST(JsonText, TakesTimeInProportionToItsLength) {
  const auto wide = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += (i ? ",\"key" : "\"key") + std::to_string(i) + "\":{\"a\":[0]}";
    return text + "}";
  };
  EXPECT_TRUE(testing::in_proportion(2'000, [&](int keys) { parse_json<json>("", wide(keys)); }));
  EXPECT_TRUE(testing::in_proportion(2'000, [&](int keys) { parse_json<ordered_json>("", wide(keys)); }));
}

// --- what files unpack to

TEST(ReadingLimits, CanBeSetByTheProgramAndTheEnvironment) {
  const ReadingLimits limits = parse_reading_limits("pixels=1000,ratio=7");
  EXPECT_EQ(limits.pixels, 1000);
  EXPECT_EQ(limits.ratio, 7);
  EXPECT_EQ(limits.bytes, ReadingLimits().bytes);
  for (const char* text : {"pixels", "pixels=", "pixels=0", "pixels=-1", "pixels=1e9", "pictures=5",
                           "ratio=9223372036854775808", "=5", "pixels=5,,ratio=1", "pixels=5,pixels=6"})
    EXPECT_HAS(refusal([&] { parse_reading_limits(text); }), "TANDEM_READING_LIMITS");
  EXPECT_HAS(refusal([] { set_reading_limits({.ratio = 0}); }), "ratio must be at least 1; got 0");
  const WithLimits other({.header_bytes = 4096});
  EXPECT_EQ(reading_limits().header_bytes, 4096);
}

void append_big(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

std::string png_chunk(const std::string& kind, const std::string& bytes) {
  std::string out;
  append_big(out, static_cast<uint32_t>(bytes.size()));
  out += kind + bytes;
  append_big(out, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(out.data()) + 4,
                                              static_cast<uInt>(bytes.size() + 4))));
  return out;
}

/// An image of one colour: `bits` a pixel, as palette (kind 3) or grey (kind 0).
std::string plain_png(uint32_t side, int bits, int kind, const std::string& before_pixels = "") {
  std::string header;
  append_big(header, side);
  append_big(header, side);
  header += {static_cast<char>(bits), static_cast<char>(kind), 0, 0, 0};
  std::string rows((side * static_cast<size_t>(bits) / 8 + 1) * side, '\0');
  std::string packed(compressBound(rows.size()), '\0');
  uLongf bytes = packed.size();
  compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(rows.data()),
            rows.size(), 9);
  packed.resize(bytes);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) +
         (kind == 3 ? png_chunk("PLTE", std::string("\x10\x20\x30", 3)) : "") + before_pixels +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

TEST(ReadingLimits, HoldForASmallPngOfAHugeImage) {
  if (!has_png()) GTEST_SKIP() << "built without libpng";
  TempFolder folder;
  const std::string path = folder / "x.png", bomb = plain_png(16384, 1, 3);
  EXPECT_LT(bomb.size(), 50'000u);  // and 805 MB as RGB
  write_text(path, bomb);
  EXPECT_HAS(refusal([&] { read_image(path); }), "must unpack to at most 100 times its size");
  // A large plain image is nothing out of the ordinary.
  write_text(path, plain_png(4096, 1, 3));
  const Tensor image = read_image(path);
  EXPECT_EQ(image.shape(), Dims({3, 4096, 4096}));
  EXPECT_EQ(image.data<uint8_t>()[4096 * 4096], 0x20);
  {
    const WithLimits small({.pixels = 1 << 20});
    EXPECT_HAS(refusal([&] { read_image(path); }), "at most 1048576 pixels; got 4096 by 4096");
  }
  const WithLimits tight({.ratio = 10, .free_bytes = 1 << 20});
  EXPECT_HAS(refusal([&] { read_image(path); }), "at most 10 times");
}

TEST(ReadingLimits, PackedTextsInAPngAreNotUnpacked) {
  if (!has_png()) GTEST_SKIP() << "built without libpng";
  const std::string text(15 << 20, 'x');
  std::string packed(compressBound(text.size()), '\0');
  uLongf bytes = packed.size();
  compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(text.data()),
            text.size(), 9);
  packed.resize(bytes);
  const std::string chunk = png_chunk("zTXt", std::string("Comment\0\0", 9) + packed);
  std::string chunks;
  for (int i = 0; i < 60; ++i) chunks += chunk;  // 900 MB of text
  const std::string file = plain_png(8, 8, 0, chunks);
  Tensor image;
  const double decoding = testing::cpu_seconds([&] {
    image = decode_image({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  });
  EXPECT_EQ(image.shape(), Dims({1, 8, 8}));
  const double unpacking_a_third = testing::cpu_seconds([&] {
    std::string out(text.size(), '\0');
    for (int i = 0; i < 20; ++i) {
      uLongf length = out.size();
      uncompress(reinterpret_cast<Bytef*>(out.data()), &length, reinterpret_cast<const Bytef*>(packed.data()),
                 packed.size());
    }
  });
  EXPECT_LT(decoding, unpacking_a_third);
}

/// A grey progressive JPEG of one colour whose blocks of 8 by 8 cost a bit in the first scan and next to nothing in each
/// of the others, which all visit the whole image.
std::string progressive_jpeg(uint32_t side, int scans) {
  const auto segment = [](char mark, const std::string& bytes) {
    const size_t length = bytes.size() + 2;
    return std::string("\xff") + mark + static_cast<char>(length >> 8) + static_cast<char>(length) + bytes;
  };
  const auto two = [](uint32_t value) {
    return std::string{static_cast<char>(value >> 8), static_cast<char>(value)};
  };
  // One code of one bit in each table: "no difference", and "the next 32767 blocks end here".
  const std::string one_code = std::string(1, 1) + std::string(15, '\0');
  std::string out = "\xff\xd8" + segment('\xdb', std::string(1, '\0') + std::string(64, 1)) +
                    segment('\xc2', "\x08" + two(side) + two(side) + std::string("\x01\x01\x11\x00", 4)) +
                    segment('\xc4', std::string(1, '\0') + one_code + std::string(1, '\0')) +
                    segment('\xc4', "\x10" + one_code + "\xe0");
  const size_t blocks = static_cast<size_t>((side + 7) / 8) * ((side + 7) / 8);
  out += segment('\xda', std::string("\x01\x01\x00\x00\x00\x00", 6)) + std::string(blocks / 8 + 1, '\0');
  std::string run;
  uint32_t held = 0;
  int bits = 0;
  for (size_t done = 0; done < blocks; done += 32767) {
    held = held << 15 | 0x3fff;  // the code 0, then 14 bits of ones
    for (bits += 15; bits >= 8; bits -= 8) {
      run += static_cast<char>(held >> (bits - 8));
      if (run.back() == '\xff') run += '\0';
    }
  }
  run += static_cast<char>(held << (8 - bits) | 0x7fu >> bits);
  if (run.back() == '\xff') run += '\0';
  for (int i = 1; i < scans; ++i) out += segment('\xda', std::string("\x01\x01\x00\x01\x3f\x00", 6)) + run;
  return out + "\xff\xd9";
}

TEST(ReadingLimits, HoldForASmallJpegOfManyScans) {
  if (!has_jpeg()) GTEST_SKIP() << "built without libjpeg";
  const auto decode = [](const std::string& file) {
    return decode_image({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  };
  Tensor image;
  const double decoding_12_million =
      testing::cpu_seconds([&] { image = decode(progressive_jpeg(1024, 12)); });
  EXPECT_EQ(image.shape(), Dims({1, 1024, 1024}));
  EXPECT_EQ(image.data<uint8_t>()[1024 * 1024 - 1], 128);
  EXPECT_HAS(refusal([&] { decode(progressive_jpeg(1024, 101)); }), "more than the 100 scans");
  {
    const WithLimits small({.pixels = 1024 * 1024});
    EXPECT_EQ(decode(progressive_jpeg(1024, 16)).size(), 1024 * 1024);
    EXPECT_HAS(refusal([&] { decode(progressive_jpeg(1024, 17)); }), "more than the 16 scans");
  }
  const std::string huge = progressive_jpeg(16000, 500);  // 256 million pixels
  EXPECT_LT(huge.size(), 700'000u);
  std::string why;
  const double refusing = testing::cpu_seconds([&] { why = refusal([&] { decode(huge); }); });
  EXPECT_HAS(why, "must unpack to at most 100 times its size");
  EXPECT_LT(refusing, decoding_12_million) << "of 128,000 million pixels that its scans visit";
}

TEST(ReadingLimits, HoldForZipArchivesAsAWhole) {
  TempFolder folder;
  const std::string path = folder / "x.npz";
  const Tensor zeros = from_vector<uint8_t>(std::vector<uint8_t>(2 << 20), {2 << 20});
  save_npz(path, {{"a", zeros}, {"b", zeros}, {"c", zeros}}, true);
  EXPECT_EQ(load_npz(path).size(), 3u);
  const WithLimits tight({.ratio = 20, .free_bytes = 4 << 20});  // each entry alone is within them
  EXPECT_HAS(refusal([&] { load_npz(path); }), "the archive must unpack to at most 20 times its size");
  // One entry may be beyond the ratio where the archive is not.
  std::vector<uint8_t> noise(2 << 20);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * i * 2654435761u >> 13);
  save_npz(path, {{"a", zeros}, {"b", from_vector(noise, {2 << 20})}, {"c", zeros}}, true);
  EXPECT_EQ(load_npz(path).size(), 3u);
  save_npz(path, {{"a", zeros}, {"b", zeros}, {"c", zeros}}, false);
  EXPECT_EQ(load_npz(path).size(), 3u);
}

TEST(ReadingLimits, HoldForGzipFiles) {
  TempFolder folder;
  const std::string path = folder / "idx.gz";
  const std::string idx = std::string{0, 0, 8, 1, 0, 64, 0, 0} + std::string(4 << 20, '\0');
  write_text(path, testing::gzip(idx));
  EXPECT_EQ(data::read_idx(path, 1).sizes[0], 4 << 20);
  {
    const WithLimits tight({.ratio = 100, .free_bytes = 1 << 20});
    EXPECT_HAS(refusal([&] { data::read_idx(path, 1); }), "must unpack to at most 100 times its size");
    write_text(path, testing::gzip(idx) + testing::gzip(idx));  // whose last length says less
    EXPECT_HAS(refusal([&] { data::read_idx(path, 1); }), "must unpack to at most 100 times its size");
  }
  const WithLimits few({.bytes = 1 << 20});
  EXPECT_HAS(refusal([&] { data::read_idx(path, 1); }), "must unpack to at most 1048576 bytes");
  write_text(path, idx);
  EXPECT_HAS(refusal([&] { data::read_idx(path, 1); }), "must hold at most 1048576 bytes");
}

TEST(ReadingLimits, CountWhatAMatFileUnpacksAndDoesNotKeep) {
  TempFolder folder;
  const std::string path = folder / "x.mat";
  // Class 1 is a cell array, which is passed over.
  const std::string cell = testing::mat_packed(
      testing::mat_element(14, testing::mat_element(6, testing::little32(1) + testing::little32(0)) +
                                   testing::mat_element(1, std::string(16 << 20, '\0'))));
  const std::string kept = testing::mat_packed(testing::mat_array("k", 9, 2, {3, 1}, "abc"));
  std::string file = testing::mat_header() + kept;
  for (int i = 0; i < 4; ++i) file += cell;
  write_text(path, file);
  ASSERT_EQ(load_mat(path).size(), 1u);
  for (int i = 0; i < 8; ++i) file += cell;
  write_text(path, file);
  EXPECT_HAS(refusal([&] { load_mat(path); }), "must unpack to at most 100 times its size");
  // Values stored in a small type and held in a large one count as what they become.
  write_text(path,
             testing::mat_header() + testing::mat_array("d", 6, 2, {1 << 20, 1}, std::string(1 << 20, 1)));
  EXPECT_EQ(load_mat(path).at(0).number(0), 1);
  const WithLimits tight({.ratio = 4, .free_bytes = 1 << 20});
  EXPECT_HAS(refusal([&] { load_mat(path); }), "must unpack to at most 4 times its size");
}

TEST(ReadingLimits, HoldForTheHeaderOfSafetensorsReadOrWritten) {
  TempFolder folder;
  const std::string path = folder / "x.safetensors";
  const uint64_t length = 95'000'000;
  write_text(path, std::string(reinterpret_cast<const char*>(&length), 8) + "{");
  fs::resize_file(path, length + 8);
  EXPECT_HAS(refusal([&] { load_safetensors(path); }), "the header must take at most 33554432 bytes");
  const WithLimits small({.header_bytes = 200});
  const Tensor one = from_vector<float>({1}, {1});
  EXPECT_HAS(refusal([&] {
               save_safetensors(path, {{"a", one}}, {{"k", std::string(200, 'x')}});
             }),
             "the header must take at most 200 bytes");
  save_safetensors(path, {{"a", one}});
  EXPECT_EQ(load_safetensors(path).tensors.size(), 1u);
}

// --- what is no file

/// Calls use(path, what) with a folder, a pipe, and links to a device that is always full and to one without end.
void with_strange_files(const std::function<void(const std::string&, const std::string&)>& use) {
  TempFolder folder;
  fs::create_directory(folder / "folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0666), 0);
  ASSERT_EQ(::symlink("/dev/full", (folder / "full").c_str()), 0);
  ASSERT_EQ(::symlink("/dev/zero", (folder / "zero").c_str()), 0);
  for (const char* name : {"folder", "pipe", "full", "zero"}) use(folder / name, name);
  // A pipe that somebody reads can be opened at once: it is no file all the same.
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  use(folder / "pipe", "pipe");
  ::close(reader);
}

TEST(WhatIsNoFile, IsRefusedByEveryReader) {
  with_strange_files([](const std::string& path, const std::string&) {
    for (const std::function<void()>& read : std::vector<std::function<void()>>{
             [&] { load_safetensors(path); }, [&] { load_npy(path); }, [&] { load_npz(path); },
             [&] { load_mat(path); }, [&] { data::read_table(path); }, [&] { read_image(path); },
             [&] { data::read_idx(path, 1); }, [&] { open_file("save", path, O_WRONLY | O_CREAT); }})
      EXPECT_HAS(refusal(read), "must be a regular file");
  });
}

TEST(WhatIsNoFile, IsRefusedAsATargetAndRemovedAsATemporaryFile) {
  with_strange_files([](const std::string& path, const std::string& what) {
    const auto save = [](const std::string& to) {
      write_atomically(to, [](OutputFile& out) { out.write("new"); });
    };
    EXPECT_HAS(refusal([&] { save(path); }), "must be a regular file or not exist");
    TempFolder folder;
    const std::string target = folder / "file";
    if (what == "folder") {
      fs::create_directory(target + ".tmp");
      EXPECT_HAS(refusal([&] { save(target); }),
                 "'" + target + ".tmp' must be a file or not exist; got a folder");
      return;
    }
    if (what == "pipe")
      ASSERT_EQ(::mkfifo((target + ".tmp").c_str(), 0666), 0);
    else
      fs::create_symlink(path, target + ".tmp");
    save(target);
    EXPECT_EQ(read_text(target), "new");
    EXPECT_FALSE(fs::is_symlink(target));
    EXPECT_FALSE(fs::exists(fs::symlink_status(target + ".tmp")));
  });
}

TEST(WhatIsNoFile, NorAnotherFileIsWrittenThroughATemporaryName) {
  TempFolder folder;
  write_text(folder / "other", "precious");
  for (const bool hard : {true, false}) {
    if (hard)
      fs::create_hard_link(folder / "other", folder / "file.tmp");
    else
      fs::create_symlink(folder / "other", folder / "file.tmp");
    write_atomically(folder / "file", [](OutputFile& out) { out.write("new"); });
    EXPECT_EQ(read_text(folder / "other"), "precious");
    EXPECT_EQ(read_text(folder / "file"), "new");
  }
}

TEST(WhatIsNoFile, InThePlaceOfTheTableOfChoicesCostsATimingAndNoMore) {
  const char* before = std::getenv("TANDEM_CACHE");
  const std::string kept = before ? before : "";
  int calls = 0;
  with_strange_files([&](const std::string& path, const std::string& what) {
    TempFolder cache;
    const std::string table = cache / "algorithms.tsv";
    if (what == "folder")
      fs::create_directory(table);
    else if (what == "pipe")
      ASSERT_EQ(::mkfifo(table.c_str(), 0666), 0);
    else
      fs::create_symlink(path, table);
    setenv("TANDEM_CACHE", cache.path().c_str(), 1);
    set_convolution_choice({.mode = ChoiceMode::profile});
    int runs = 0;
    const size_t chosen = choose_by_time(str("call ", ++calls), {"slow", "fast"}, true, [&](size_t i) {
      ++runs;
      return i == 0 ? 2.0 : 1.0;
    });
    EXPECT_EQ(chosen, 1u);
    EXPECT_GT(runs, 0);
  });
  set_convolution_choice({});
  before ? setenv("TANDEM_CACHE", kept.c_str(), 1) : unsetenv("TANDEM_CACHE");
}

TEST(WhatIsNoFile, IsKeptOutByOneFunctionThatOpensFiles) {
  // Where else a file may be opened: the system's own files, folders, and what a child process does.
  const std::map<std::string, int> allowed = {
      {"src/tandem/core/file.cpp", 1},                  // the function itself
      {"src/tandem/core/device.cpp", 1},                // /proc/cpuinfo
      {"src/tandem/backends/cpu/memory_limit.cpp", 2},  // /proc and /sys
      {"src/tandem/io/file.cpp", 2},                    // the temporary file, its folder
      {"src/tandem/data/download.cpp", 2},              // /dev/null, the folder's lock
      {"lab/src/record/folder.cpp", 1}};                // the folder
  const std::regex opens(R"(\b(std::[io]?fstream|fopen|freopen|creat|openat)\b|(^|\W)::open\()");
  for (const char* part : {"src/tandem", "src/cli", "lab/src/record"})
    for (const auto& entry : fs::recursive_directory_iterator(testing::source_dir() / part)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".cpp" && ending != ".h" && ending != ".cu") continue;
      const std::string text = read_text(entry.path().string()),
                        name = fs::relative(entry.path(), testing::source_dir()).string();
      const auto found = std::distance(std::sregex_iterator(text.begin(), text.end(), opens), {});
      const auto place = allowed.find(name);
      EXPECT_EQ(found, place == allowed.end() ? 0 : place->second)
          << name << " opens files by itself: use open_file or InputFile (core/file.h)";
    }
}

TEST(JsonText, IsParsedInOnePlace) {
  const std::regex parses(R"((json|Json)::(parse|sax_parse)\()");
  for (const auto& entry : fs::recursive_directory_iterator(testing::source_dir() / "src")) {
    const std::string ending = entry.path().extension().string();
    if ((ending != ".cpp" && ending != ".h") || entry.path().filename() == "json.cpp") continue;
    EXPECT_FALSE(std::regex_search(read_text(entry.path().string()), parses))
        << entry.path() << " parses JSON by itself: use io::parse_json (io/json.h)";
  }
}

}  // namespace
}  // namespace tandem::io
