// Wav files for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace tandem::testing {

template <class T>
void put_number(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

struct WavHead {
  uint16_t format = 1;  // whole numbers; 3: floats
  uint16_t channels = 1, bits = 16;
  uint32_t rate = 16000;
};

/// A wav file of these bytes of samples.
inline std::string wav_bytes(const WavHead& head, const std::string& samples) {
  std::string out = "RIFF";
  put_number(out, static_cast<uint32_t>(36 + samples.size()));
  out += "WAVEfmt ";
  put_number<uint32_t>(out, 16);
  put_number(out, head.format);
  put_number(out, head.channels);
  put_number(out, head.rate);
  put_number<uint32_t>(out, head.rate * head.channels * head.bits / 8);
  put_number<uint16_t>(out, static_cast<uint16_t>(head.channels * head.bits / 8));
  put_number(out, head.bits);
  out += "data";
  put_number(out, static_cast<uint32_t>(samples.size()));
  return out + samples;
}

/// One channel of 16 bits.
inline std::string wav_of(const std::vector<int16_t>& samples, uint32_t rate = 16000) {
  std::string bytes;
  for (const int16_t sample : samples) put_number(bytes, sample);
  return wav_bytes({.rate = rate}, bytes);
}

/// Sound in which each letter of a text has a tone of its own, 120 ms long: for a network to learn.
inline void write_spoken(const std::string& path, const std::string& text, uint32_t rate = 16000) {
  std::vector<int16_t> samples;
  const double step = 0.12;
  const auto count = static_cast<size_t>(step * rate * static_cast<double>(text.size()));
  for (size_t i = 0; i < count; ++i) {
    const double seconds = static_cast<double>(i) / rate, at = seconds / step;
    const auto letter = std::min(static_cast<size_t>(at), text.size() - 1);
    const double hertz = 300 + 110.0 * (text[letter] % 32), inside = at - std::floor(at);
    samples.push_back(static_cast<int16_t>(9000 * std::sin(3.14159265358979 * inside) *
                                           std::sin(2 * 3.14159265358979 * hertz * seconds)));
  }
  write_text(path, wav_of(samples, rate));
}

}  // namespace tandem::testing
