// Throws thousands of damaged files of every format that is read at the readers. Each must load cleanly or be refused
// with an Error; anything else (a crash, another exception, a sanitizer's report) is a bug. TANDEM_FUZZ_CASES and
// TANDEM_FUZZ_SEED set how many and which; a failure prints both.
// ctest: asan
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "tandem/core/error.h"
#include "tandem/data/idx.h"
#include "tandem/data/registry.h"
#include "tandem/data/svhn.h"
#include "tandem/data/table_set.h"
#include "tandem/io/audio.h"
#include "tandem/io/image.h"
#include "tandem/io/json.h"
#include "tandem/io/mat.h"
#include "tandem/io/npy.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/torch_file.h"
#include "tandem/io/zip.h"
#include "tests/support/foreign_files.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"
#include "tests/support/wav.h"

namespace tandem {
namespace {

using testing::gzip;
using testing::TempFolder;
using testing::write_text;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(random_() % n); }

  /// One to four changes of the kinds that broken disks, broken programs and malice make.
  std::string operator()(std::string text) {
    for (size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

 private:
  void change(std::string& text) {
    static const unsigned char kBytes[] = {0, 1, 2, 3, 8, 9, 10, 13, 0x1f, 0x7f, 0x80, 0x8b, 0xff};
    static const char* kNumbers[] = {"0",
                                     "1",
                                     "4",
                                     "-1",
                                     "3.5",
                                     "1e30",
                                     "9223372036854775807",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "4294967296",
                                     "\"x\"",
                                     "[]",
                                     "{}"};
    const size_t at = below(text.size()), length = below(1 + std::min<size_t>(16, text.size() - at));
    switch (below(9)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 1:
        if (!text.empty()) text[at] = static_cast<char>(kBytes[below(std::size(kBytes))]);
        break;
      case 2:
        text.resize(at);
        break;
      case 3:
        text.append(1 + below(40), static_cast<char>(random_()));
        break;
      case 4:
        text.erase(at, length);
        break;
      case 5:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 6:  // a number in JSON becomes another
        if (const size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
          const size_t end = text.find_first_not_of("0123456789", digit);
          text.replace(digit, end - digit, kNumbers[below(std::size(kNumbers))]);
        }
        break;
      case 7:  // a byte of the header, where the sizes are
        if (!text.empty())
          text[below(std::min<size_t>(text.size(), 20))] =
              static_cast<char>(kBytes[below(std::size(kBytes))]);
        break;
      default:
        if (text.size() > 8) std::swap(text[at], text[below(text.size())]);
    }
  }

  std::mt19937_64 random_;
};

/// Runs `load` on damaged versions of `valid`, written to `path`. At least one in `refused_in` must be refused: most
/// changes of pixels or digits give another valid file.
void fuzz(const std::string& path, const std::string& valid, const std::function<void()>& load,
          const std::function<std::string(const std::string&)>& pack = nullptr, uint64_t refused_in = 4) {
  const uint64_t cases = number_from("TANDEM_FUZZ_CASES", 500), seed = number_from("TANDEM_FUZZ_SEED", 1);
  std::printf("TANDEM_FUZZ_CASES=%llu TANDEM_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(seed));
  const auto finish = [&](const std::string& text) { return pack ? pack(text) : text; };
  write_text(path, finish(valid));
  ASSERT_NO_THROW(load()) << "the undamaged file must load";
  Mutator mutate(seed);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < cases; ++i) {
    write_text(path, finish(mutate(valid)));
    try {
      load();
    } catch (const Error& error) {
      ++refused;
      const std::string message = error.what();
      ASSERT_EQ(message.find('\n'), std::string::npos) << "case " << i << ": more than one line: " << message;
      ASSERT_NE(message.find(path), std::string::npos)
          << "case " << i << ": does not name the file: " << message;
    } catch (const std::exception& error) {
      FAIL() << "case " << i << " of seed " << seed << ": not an Error: " << error.what();
    }
  }
  EXPECT_GE(refused, cases / refused_in) << "a reader that accepts most damaged files does not check them";
}

std::string valid_idx() {
  std::string text{0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3};
  for (int i = 0; i < 60; ++i) text += static_cast<char>(i * 5);
  return text;
}

void load_idx(const std::string& path) {
  const data::IdxArray array = data::read_idx(path, 3);
  EXPECT_EQ(static_cast<int64_t>(array.values.size()), array.sizes[0] * array.sizes[1] * array.sizes[2]);
}

TEST(FuzzReaders, PlainIdxFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "idx";
  fuzz(path, valid_idx(), [&] { load_idx(path); });
}

TEST(FuzzReaders, GzipFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "idx.gz";
  fuzz(path, gzip(valid_idx()), [&] { load_idx(path); });
}

TEST(FuzzReaders, DamagedIdxInsideSoundGzipLoadsOrIsRefused) {
  TempFolder folder;
  const std::string path = folder / "idx.gz";
  fuzz(
      path, valid_idx(), [&] { load_idx(path); }, gzip);
}

TEST(FuzzReaders, LabelFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string images = folder / "set-images", labels = folder / "set-labels";
  write_text(images, std::string{0, 0, 8, 3, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0, 0, 2} + std::string(24, 'x'));
  const data::ImageFormat format{1, 2, 2, {0.0f}, {1.0f}};
  fuzz(labels, std::string{0, 0, 8, 1, 0, 0, 0, 6, 0, 1, 2, 9, 5, 4},
       [&] { data::read_idx_images("set", images, labels, format, 10); });
}

TEST(FuzzReaders, SafetensorsFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "t.safetensors";
  io::save_safetensors(path,
                       {{"w", from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
                        {"b", from_vector<int64_t>({1, 2}, {2})},
                        {"m", from_vector<bool>({true, false}, {2})},
                        {"s", from_vector<double>({}, {0, 3})}},
                       {{"format", "pt"}});
  fuzz(path, testing::read_text(path), [&] {
    const io::SafetensorsFile file = io::load_safetensors(path);
    io::weights_sha256(file.tensors);  // touches every byte
  });
}

TEST(FuzzReaders, JsonTextsGiveTheValuesOfTheLibrarysOwnParserOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "x.json";
  fuzz(
      path,
      R"({"model":"mlp","sizes":[1,-2,3.5e2,{"a":null,"b":[true,false,[]]}],"n":18446744073709551615,"é":"\u00e9\n"})",
      [&] {
        const std::string text = testing::read_text(path), where = "read '" + path + "': ";
        const auto value = io::parse_json<nlohmann::json>(where, text);
        const auto ordered = io::parse_json<nlohmann::ordered_json>(where, text);
        EXPECT_EQ(value, nlohmann::json::parse(text));
        EXPECT_EQ(ordered, nlohmann::ordered_json::parse(text));
      });
}

std::string image_file(const char* name) {
  return testing::read_text((testing::source_dir() / "tests/golden/images" / name).string());
}

/// Sets the checksums of a PNG's chunks right, so that damage gets past them.
std::string with_checksums(std::string png) {
  size_t at = 8;
  while (at + 12 <= png.size()) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(png[at + i]);
    if (length > png.size() - at - 12) break;
    const auto crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(png.data()) + at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += length + 12;
  }
  return png;
}

void touch(const Tensor& tensor) {
  volatile uint8_t sum = 0;
  for (std::byte byte : host_bytes(tensor)) sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(byte));
}

TEST(FuzzReaders, PngFilesLoadOrAreRefused) {
  if (!io::has_png()) GTEST_SKIP() << "built without libpng";
  TempFolder folder;
  const std::string path = folder / "x.png";
  const auto load = [&] { touch(io::read_image(path, {.channels = io::Channels::rgb})); };
  fuzz(path, image_file("rgba.png"), load);
  for (const char* name : {"palette.png", "gray16.png", "interlaced.png", "bilevel.png"})
    fuzz(path, image_file(name), load, with_checksums);
}

TEST(FuzzReaders, JpegFilesLoadOrAreRefused) {
  if (!io::has_jpeg()) GTEST_SKIP() << "built without libjpeg";
  TempFolder folder;
  const std::string path = folder / "x.jpg";
  const auto load = [&] { touch(io::read_image(path)); };
  for (const char* name : {"rgb420.jpg", "progressive.jpg", "gray.jpg", "cmyk.jpg"})
    fuzz(path, image_file(name), load, nullptr, 20);
}

TEST(FuzzReaders, SoundFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "x.wav";
  const auto load = [&] {
    io::audio_info(path);
    touch(io::read_audio(path).samples);
  };
  const std::string wav =
      testing::wav_bytes({.channels = 2}, std::string(40, '\3') + std::string(20, '\x80'));
  fuzz(path, wav, load, nullptr, 10);
  if (!io::has_sndfile()) return;
  fuzz(path, testing::read_text((testing::source_dir() / "tests/golden/sound/stereo.flac").string()), load);
  std::string packed = wav;
  packed[20] = 7;  // logarithms in 8 bits, which the library reads
  packed[34] = 8;
  packed[32] = 2;
  fuzz(path, packed, load, nullptr, 10);
}

TEST(FuzzReaders, NpyAndNpzFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string npy = folder / "x.npy", npz = folder / "x.npz";
  const Tensor tensor = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  io::save_npy(npy, tensor);
  fuzz(npy, testing::read_text(npy), [&] { touch(io::load_npy(npy)); });
  for (bool compressed : {false, true}) {
    io::save_npz(npz, {{"a", tensor}, {"b", from_vector<bool>({true}, {1})}}, compressed);
    fuzz(npz, testing::read_text(npz), [&] {
      for (const auto& [name, array] : io::load_npz(npz)) touch(array);
    });
  }
}

TEST(FuzzReaders, TorchFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "x.pt";
  const auto load = [&] {
    for (const auto& [name, tensor] : io::load_torch(path)) touch(tensor);
  };
  for (const char* name : {"state_dict.pt", "protocol4.pth", "dtypes.pt", "views.pt", "checkpoint.pt"}) {
    const std::string golden = (testing::source_dir() / "tests/golden/torch" / name).string();
    fuzz(path, testing::read_text(golden), load, nullptr, 20);  // padding and dates are not checked
    // The pickle alone is damaged, and its checksum right.
    const io::ZipReader zip("read", golden);
    std::string pickle;
    std::vector<std::pair<std::string, std::vector<uint8_t>>> others;
    for (const io::ZipReader::Entry& entry : zip.entries()) {
      std::vector<uint8_t> bytes = zip.read(entry);
      if (entry.name.ends_with("/data.pkl"))
        pickle = std::string(bytes.begin(), bytes.end());
      else
        others.emplace_back(entry.name.substr(entry.name.find('/')), std::move(bytes));
    }
    fuzz(path, pickle, load, [&](const std::string& damaged) {
      std::vector<io::ZipItem> items = {
          {"x/data.pkl", {{reinterpret_cast<const uint8_t*>(damaged.data()), damaged.size()}}}};
      for (const auto& [other, bytes] : others) items.push_back({"x" + other, {bytes}});
      const std::string packed = folder / "packed";
      io::write_zip(packed, items);
      return testing::read_text(packed);
    });
  }
}

TEST(FuzzReaders, MatFilesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "x.mat";
  const std::string x = testing::mat_array("X", 9, 2, {4, 3, 2}, "abcdefghijklmnopqrstuvwx"),
                    y = testing::mat_array("y", 6, 9, {2, 1},
                                           std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\x40", 16));
  const auto load = [&] {
    for (const io::MatArray& array : io::load_mat(path))
      for (int64_t i = 0; i < array.count(); ++i) array.number(i);
  };
  fuzz(path, testing::mat_header() + x + y, load, nullptr, 20);
  fuzz(path, testing::mat_header() + testing::mat_packed(x) + testing::mat_packed(y), load);
  fuzz(
      path, x, load,
      [](const std::string& text) { return testing::mat_header() + testing::mat_packed(text); }, 20);
  std::string pixels(32 * 32 * 3 * 2, 'x');
  fuzz(path,
       testing::mat_header() + testing::mat_packed(testing::mat_array("X", 9, 2, {32, 32, 3, 2}, pixels)) +
           testing::mat_packed(testing::mat_array("y", 9, 2, {2, 1}, {1, 10})),
       [&] { data::read_svhn("x", path)->get(1); });
}

const char* const kTable =
    "size,when,\"the kind\",note,y\r\n1.5,2020-02-29,cat,a,0.5\r\n,2021-03-01 12:00,\"dog, "
    "\"\"big\"\"\",b,4\r\n"
    "-7,,cat,\"ü\n\",0.25\r\n3e2,2019-12-31,NA,a,1\r\n";

TEST(FuzzReaders, TablesAreReadLearnedAndSplitOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "x.csv";
  fuzz(
      path, kTable,
      [&] {
        const data::Table table = data::read_table(path);
        const data::TableEncoder encoder(table, {.target = table.names.back()});
        touch(data::TableSet(table, encoder).get(0)[0]);
        EXPECT_EQ(data::TableEncoder::from_json(encoder.to_json()).feature_names(), encoder.feature_names());
        EXPECT_EQ(data::split(table, 0.5, 1).test->columns.size(), table.columns.size());
      },
      nullptr, 20);
}

TEST(FuzzReaders, TableEncodersInJsonLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "x.json";
  const data::Table table = data::parse_table(kTable);
  for (const char* target : {"y", "note"}) {
    const std::string json = data::TableEncoder(table, {.target = target}).to_json();
    fuzz(path, json, [&] {
      const auto encoder = data::TableEncoder::from_json(testing::read_text(path), "load '" + path + "': ");
      EXPECT_EQ(data::TableEncoder::from_json(encoder.to_json()).to_json(), encoder.to_json());
      try {
        touch(encoder.encode(table).features);
      } catch (const Error&) {  // columns have other names or types now
      }
    });
  }
}

TEST(FuzzReaders, CifarArchivesLoadOrAreRefused) {
  TempFolder folder;
  const std::string path = folder / "cifar-10-binary.tar.gz";
  const std::string tar = testing::tar_file("b/data_batch_1.bin", std::string(3073, 3)) +
                          testing::tar_file("b/test_batch.bin", std::string(3073, 4)) +
                          std::string(1024, '\0');
  const auto load = [&] {
    touch(data::open_dataset("cifar10", {.data_dir = folder.path()}).train->get(0)[0]);
  };
  fuzz(path, gzip(tar), load);
  fuzz(path, tar, load, gzip, 20);
  fuzz(path, tar, load, nullptr, 20);
}

}  // namespace
}  // namespace tandem
