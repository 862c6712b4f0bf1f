// Small files of foreign formats, for the tests of their readers.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace tandem::testing {

inline std::string little32(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }

// --- MATLAB's level-5 files

inline std::string mat_header() {
  std::string text = "MATLAB 5.0 MAT-file, made by a test";
  text.resize(124, ' ');
  return text + std::string("\x00\x01IM", 4);
}

inline std::string mat_element(uint32_t type, std::string bytes) {
  const auto length = static_cast<uint32_t>(bytes.size());
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return little32(type) + little32(length) + bytes;
}

/// An array of bytes. Class 9 is u8, 6 double; type 2 stores unsigned bytes.
inline std::string mat_array(const std::string& name, uint32_t mat_class, uint32_t type,
                             const std::vector<int32_t>& sizes, const std::string& values) {
  std::string dims;
  for (int32_t size : sizes) dims += little32(static_cast<uint32_t>(size));
  return mat_element(14, mat_element(6, little32(mat_class) + little32(0)) + mat_element(5, dims) +
                             mat_element(1, name) + mat_element(type, values));
}

inline std::string mat_packed(const std::string& element) {
  std::string packed(compressBound(element.size()), '\0');
  uLongf bytes = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(element.data()),
           element.size());
  packed.resize(bytes);
  return little32(15) + little32(static_cast<uint32_t>(bytes)) + packed;
}

// --- tar

inline std::string tar_file(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  std::copy(name.begin(), name.end(), header.begin());
  char number[16];
  std::snprintf(number, sizeof(number), "%011lo", static_cast<unsigned long>(content.size()));
  header.replace(124, 11, number);
  header[156] = '0';
  header.replace(257, 5, "ustar");
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(number, sizeof(number), "%06o", sum);
  std::copy(number, number + 7, header.begin() + 148);
  std::string padded = content;
  padded.resize((content.size() + 511) / 512 * 512);
  return header + padded;
}

inline std::string gzip(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace tandem::testing
