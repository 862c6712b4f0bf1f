// The readers of foreign files: npy, npz, MAT, CSV, tar, PNG, JPEG. Files that lie are refused by what they must hold.
// ctest: asan
#include <gtest/gtest.h>
#include <zlib.h>

#include "tandem/io/file.h"
#include "tandem/io/image.h"
#include "tandem/io/mat.h"
#include "tandem/io/md5.h"
#include "tandem/io/npy.h"
#include "tandem/io/tar.h"
#include "tandem/io/zip.h"
#include "tests/support/foreign_files.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_folder.h"

namespace tandem::io {
namespace {

using testing::message_of;
using testing::TempFolder;
using testing::write_text;

std::span<const uint8_t> bytes_in(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string golden(const char* name) {
  return testing::read_text((testing::source_dir() / "tests/golden/images" / name).string());
}

TEST(Md5, GivesTheSumsOfTheStandard) {
  EXPECT_EQ(md5(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
  const std::string digits =
      "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
  EXPECT_EQ(md5(digits), "57edf4a22be3c955ac49da2e2107b67a");
  for (size_t cut : {1u, 55u, 63u, 64u, 65u}) {
    Md5 sum;
    sum.update(digits.data(), cut);
    sum.update(digits.data() + cut, digits.size() - cut);
    EXPECT_EQ(sum.hex(), md5(digits)) << "fed in two pieces at " << cut;
  }
}

// --- npy and npz

std::string npy(const std::string& header, const std::string& values, char version = 1) {
  std::string text = "\x93NUMPY";
  text += version;
  text += '\0';
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  if (version > 1) text += std::string(2, '\0');
  return text + header + values;
}

TEST(Npy, EveryTypeComesBackAsItWas) {
  TempFolder folder;
  const std::string path = folder / "a.npy";
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<uint8_t> raw(6 * bytes_of(dtype));
    for (size_t k = 0; k < raw.size(); ++k)
      raw[k] = dtype == DType::boolean ? k % 2 : static_cast<uint8_t>(k + 1);
    const Tensor tensor = from_host(raw.data(), {2, 3}, dtype);
    if (dtype == DType::bf16) {
      EXPECT_HAS(message_of<Error>([&] { save_npy(path, tensor); }), "bf16. Cast it to f32");
      continue;
    }
    save_npy(path, tensor);
    const Tensor back = load_npy(path);
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.shape(), (Dims{2, 3}));
    EXPECT_EQ(host_bytes(back), host_bytes(tensor));
  }
  for (const Dims& shape : {Dims{}, Dims{1}, Dims{0, 3}, Dims{2, 0}}) {
    save_npy(path, from_vector(std::vector<float>(static_cast<size_t>(size_of(shape))), shape));
    EXPECT_EQ(load_npy(path).shape(), shape);
  }
}

TEST(Npy, FortranOrderOtherByteOrderAndOtherVersionsAreRead) {
  TempFolder folder;
  const std::string path = folder / "a.npy";
  write_text(path,
             npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", {1, 4, 2, 5, 3, 6}, 2));
  EXPECT_EQ(load_npy(path).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  write_text(path, npy("{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\">i2\"}", {1, 2, 3, 4}));
  EXPECT_EQ(load_npy(path).to_vector<int16_t>(), (std::vector<int16_t>{0x102, 0x304}));
}

TEST(Npy, FilesThatLieAreRefused) {
  TempFolder folder;
  const std::string path = folder / "a.npy";
  const auto header = [](const std::string& type, const std::string& shape) {
    return "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  };
  const struct {
    std::string content;
    const char* expected;
  } cases[] = {
      {"", "the magic number must take 6 bytes"},
      {"\x93NUMPZ0000", "must begin as npy files do"},
      {npy(header("<f4", "(2,)"), "1234567"), "takes 8 bytes; there are 7"},
      {npy(header("<f4", "(4294967296, 4294967296)"), ""), "must fit 63 bits"},
      {npy(header("<f4", "(99999999999999999999,)"), ""), "must fit 63 bits"},
      {npy(header("<f4", "(-1,)"), ""), "tuple of sizes of at least 0"},
      {npy(header("<f4", "(1,1,1,1,1,1,1,1,1)"), "1234"), "at most 8 axes"},
      {npy(header("|O", "(1,)"), "12345678"), "Python objects"},
      {npy(header("<c8", "(1,)"), "12345678"), "complex numbers"},
      {npy(header("<U3", "(1,)"), "123456789012"), "strings"},
      {npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"), "records"},
      {npy(header("|b1", "(2,)"), {1, 2}), "booleans must be 0 or 1"},
      {npy("{'descr': '<f4', 'shape': (1,)}", "1234"), "some are missing"},
  };
  for (const auto& c : cases) {
    write_text(path, c.content);
    const std::string message = message_of<Error>([&] { load_npy(path); });
    EXPECT_HAS(message, path);
    EXPECT_HAS(message, c.expected);
  }
}

TEST(Npz, ComesBackStoredAndPacked) {
  TempFolder folder;
  const std::string path = folder / "a.npz";
  const NamedTensors tensors = {{"w", from_vector<float>({1, 2, 3}, {3})},
                                {"b", from_vector<int64_t>({7}, {})}};
  for (bool compressed : {false, true}) {
    save_npz(path, tensors, compressed);
    const NamedTensors back = load_npz(path);
    ASSERT_EQ(back.size(), 2u);
    EXPECT_EQ(back[0].first, "b");
    EXPECT_EQ(back[0].second.item<int64_t>(), 7);
    EXPECT_EQ(back[1].second.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  }
  EXPECT_HAS(message_of<Error>([&] { save_npz(path, {tensors[0], tensors[0]}); }), "unique");
}

TEST(Npz, ArchivesThatLieAreRefused) {
  TempFolder folder;
  const std::string path = folder / "a.npz";
  save_npz(path, {{"w", from_vector<float>({1, 2, 3}, {3})}}, true);
  const std::string valid = testing::read_text(path);
  const size_t directory = valid.find("PK\x01\x02");
  const auto changed = [&](size_t at, const std::string& bytes) {
    std::string text = valid;
    text.replace(at, bytes.size(), bytes);
    write_text(path, text);
    return message_of<Error>([&] { load_npz(path); });
  };
  EXPECT_HAS(changed(directory + 24, {'\xff', '\xff', '\xff', '\x7f'}), "must unpack to at most 100 times");
  EXPECT_HAS(changed(directory + 24, {'\xff', '\xff', '\xff', 0}), "must have 16777215 bytes");
  EXPECT_HAS(changed(directory + 24, {1, 0, 0, 0}), "must unpack to at most 1 bytes");
  EXPECT_HAS(changed(directory + 24, std::string(4, '\xff')), "zip64");
  EXPECT_HAS(changed(directory + 8, {1}), "encrypted");
  EXPECT_HAS(changed(directory + 10, {12}), "its method is 12");
  EXPECT_HAS(changed(directory + 16, {0, 0, 0, 0}), "checksum");
  EXPECT_HAS(changed(directory + 42, std::string(3, '\x7f')), "must begin within");
  EXPECT_HAS(changed(valid.size() - 12, std::string(2, '\xff')), "zip64");
  EXPECT_HAS(changed(valid.size() - 22, {0}), "must end with its directory's place");
}

// --- MAT

TEST(Mat, NumericArraysAreReadPackedAndPlain) {
  TempFolder folder;
  const std::string path = folder / "a.mat";
  for (bool packed : {false, true}) {
    const std::string x = testing::mat_array("X", 9, 2, {2, 3}, {1, 2, 3, 4, 5, 6});  // u8 in u8
    const std::string y = testing::mat_array("label", 6, 2, {1, 2}, {10, 3});         // doubles kept as bytes
    write_text(path,
               testing::mat_header() + (packed ? testing::mat_packed(x) + testing::mat_packed(y) : x + y));
    const std::vector<MatArray> arrays = load_mat(path);
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(arrays[0].name, "X");
    EXPECT_EQ(arrays[0].dtype, DType::u8);
    EXPECT_EQ(arrays[0].sizes, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(arrays[0].values, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(arrays[1].dtype, DType::f64);
    EXPECT_EQ(arrays[1].number(0), 10.0);
    EXPECT_EQ(arrays[1].number(1), 3.0);
  }
}

TEST(Mat, FilesThatLieAreRefused) {
  TempFolder folder;
  const std::string path = folder / "a.mat";
  const auto refusal = [&](const std::string& content) {
    write_text(path, content);
    return message_of<Error>([&] { load_mat(path); });
  };
  std::string hdf5 = testing::mat_header();
  hdf5.replace(0, 19, "MATLAB 7.3 MAT-file");
  EXPECT_HAS(refusal(hdf5), "version 7.3, which is HDF5");
  EXPECT_HAS(refusal("short"), "must take 116 bytes");
  EXPECT_HAS(refusal(std::string(200, 'x')), "level-5");
  const std::string head = testing::mat_header();
  EXPECT_HAS(refusal(head + testing::mat_array("X", 9, 2, {2, -3}, {1})), "at least 0");
  EXPECT_HAS(refusal(head + testing::mat_array("X", 9, 2, {2147483647, 2147483647, 2147483647}, {1})),
             "63 bits");
  EXPECT_HAS(refusal(head + testing::mat_array("X", 9, 2, {2, 3}, {1, 2})), "must have 6 values");
  EXPECT_HAS(refusal(head + testing::mat_array("X", 9, 2, {2, 3}, {1, 2, 3, 4, 5, 6}).substr(0, 40)),
             "are left");
  EXPECT_HAS(refusal(head + testing::mat_packed("not a matrix at all").substr(0, 20)), "are left");
}

// --- tar

TEST(Tar, NamesAndFilesAreReadAndDamageIsFound) {
  const std::string tar = testing::tar_file("folder/a.bin", "hello") +
                          testing::tar_file("b", std::string(600, 'x')) + std::string(1024, '\0');
  const std::vector<TarEntry> entries = read_tar("read 't': ", bytes_in(tar));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "folder/a.bin");
  EXPECT_EQ(std::string(entries[0].bytes.begin(), entries[0].bytes.end()), "hello");
  EXPECT_EQ(entries[1].bytes.size(), 600u);
  std::string wrong = tar;
  wrong[3] ^= 1;
  EXPECT_HAS(message_of<Error>([&] { read_tar("read 't': ", bytes_in(wrong)); }), "checksum");
  EXPECT_HAS(message_of<Error>([&] { read_tar("read 't': ", bytes_in(tar).first(515)); }),
             "must take 5 bytes");
}

// --- Images

Tensor pattern(Dim channels, Dim height, Dim width) {
  std::vector<uint8_t> values(static_cast<size_t>(channels * height * width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>((i * 37 + i / 7 * 11) & 255);
  return from_vector(values, {channels, height, width});
}

TEST(Png, WhatIsWrittenIsReadBack) {
  if (!has_png()) GTEST_SKIP() << "built without libpng";
  for (Dim channels = 1; channels <= 4; ++channels) {
    const Tensor image = pattern(channels, 5, 7), back = decode_image(encode_png(image));
    EXPECT_EQ(back.shape(), image.shape());
    EXPECT_EQ(back.to_vector<uint8_t>(), image.to_vector<uint8_t>());
  }
  const Tensor rgba = pattern(4, 2, 2);
  const std::vector<uint8_t> all = rgba.to_vector<uint8_t>(),
                             rgb = decode_image(encode_png(rgba), {.channels = Channels::rgb})
                                       .to_vector<uint8_t>();
  EXPECT_EQ(rgb, (std::vector<uint8_t>(all.begin(), all.begin() + 12)));
  const Tensor gray = pattern(1, 2, 2);
  EXPECT_EQ(decode_image(encode_png(gray), {.channels = Channels::rgb}).shape(), (Dims{3, 2, 2}));
  EXPECT_EQ(decode_image(encode_png(rgba), {.channels = Channels::gray}).shape(), (Dims{1, 2, 2}));
  EXPECT_THROW(encode_png(pattern(5, 2, 2)), Error);
  EXPECT_THROW(encode_png(from_vector<float>({1}, {1, 1, 1})), Error);
}

TEST(Images, FilesOfEveryKindHaveTheBytesThatPillowReads) {
  if (!has_png() || !has_jpeg()) GTEST_SKIP() << "built without libpng or libjpeg";
  // Each file lies beside an npy with what Pillow makes of it in RGB (tests/golden/make_images.py).
  for (const char* name : {"palette.png", "gray16.png", "bilevel.png", "interlaced.png", "rgba.png",
                           "gray.jpg", "rgb420.jpg", "progressive.jpg", "cmyk.jpg"}) {
    const std::string path = (testing::source_dir() / "tests/golden/images" / name).string();
    const Tensor image = read_image(path, {.channels = Channels::rgb}), wanted = load_npy(path + ".npy");
    ASSERT_EQ(image.shape(), wanted.shape()) << name;
    const std::vector<uint8_t> got = image.to_vector<uint8_t>(), expected = wanted.to_vector<uint8_t>();
    int worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(int{got[i]} - int{expected[i]}));
    EXPECT_LE(worst, std::string(name) == "cmyk.jpg" ? 2 : 0) << name;
  }
}

TEST(Jpeg, IsWrittenReadAndShrunk) {
  if (!has_jpeg()) GTEST_SKIP() << "built without libjpeg";
  std::vector<uint8_t> values(3 * 64 * 48);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i / 48 * 2 + i % 48);
  const Tensor image = from_vector(values, {3, 64, 48});
  const std::vector<uint8_t> file = encode_jpeg(image, 95);
  EXPECT_EQ(decode_image(file).shape(), (Dims{3, 64, 48}));
  EXPECT_EQ(decode_image(file, {.channels = Channels::gray}).shape(), (Dims{1, 64, 48}));
  EXPECT_EQ(decode_image(file, {.shrink_to = 20}).shape(), (Dims{3, 32, 24}));
  EXPECT_EQ(decode_image(file, {.shrink_to = 6}).shape(), (Dims{3, 8, 6}));
  EXPECT_EQ(decode_image(encode_jpeg(pattern(1, 9, 9))).shape(), (Dims{1, 9, 9}));
  EXPECT_THROW(encode_jpeg(pattern(2, 9, 9)), Error);
  EXPECT_THROW(encode_jpeg(pattern(1, 9, 9), 0), Error);
}

TEST(Images, DamagedCutOffAndOversizedFilesAreRefused) {
  if (!has_png() || !has_jpeg()) GTEST_SKIP() << "built without libpng or libjpeg";
  const auto refusal = [](const std::string& text, const DecodeOptions& options = {}) {
    return message_of<Error>([&] { decode_image(bytes_in(text), options, "read 'x': "); });
  };
  EXPECT_HAS(refusal("GIF89a"), "must be a JPEG, PNG, PGM or PPM image");
  EXPECT_HAS(refusal(""), "must be a JPEG, PNG, PGM or PPM image");
  for (const char* name : {"rgb420.jpg", "rgba.png"}) {
    const std::string valid = golden(name);
    EXPECT_EQ(refusal(valid), "");
    EXPECT_NE(refusal(valid.substr(0, valid.size() * 2 / 3)), "") << name << ", cut off";
    EXPECT_HAS(refusal(valid, {.max_pixels = 10}), "at most 10 pixels");
  }
  std::string bomb = golden("rgba.png");  // says to be 2^31-1 by 2^31-1
  bomb.replace(16, 8, std::string("\x7f\xff\xff\xff\x7f\xff\xff\xff", 8));
  const auto crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bomb.data()) + 12, 17));
  for (int i = 0; i < 4; ++i) bomb[29 + static_cast<size_t>(i)] = static_cast<char>(crc >> (24 - 8 * i));
  EXPECT_HAS(refusal(bomb), "at most 268435456 pixels");
  std::string large = golden("rgb420.jpg");  // says to be 16000 by 16000 in a few hundred bytes
  const size_t frame = large.find("\xff\xc0");
  large.replace(frame + 5, 4, "\x3e\x80\x3e\x80");
  EXPECT_HAS(refusal(large), "must unpack to at most 100 times its size");
}

}  // namespace
}  // namespace tandem::io
