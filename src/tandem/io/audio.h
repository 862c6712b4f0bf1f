// Sound files: wav and flac (and what else libsndfile reads) to f32 samples between -1 and 1. Plain wav is read without a library;
// the rest by libsndfile, where the build found it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"
#include "tandem/io/limits.h"

namespace tandem::io {

/// One channel of sound.
struct Audio {
  Tensor samples;           ///< f32 (frames); the mean of the channels of the file
  int64_t sample_rate = 0;  ///< in Hz
};

/// What the head of a file says.
struct AudioInfo {
  int64_t frames = 0, channels = 0, sample_rate = 0;
  double seconds() const { return static_cast<double>(frames) / static_cast<double>(sample_rate); }
};

/// Throws Error for a damaged, cut-off or empty file, and for a format whose library this build lacks.
Audio read_audio(const std::string& path);
AudioInfo audio_info(const std::string& path);
/// The same of a file's bytes. `where` is what messages begin with: "read 'a.wav': ".
Audio decode_audio(std::span<const uint8_t> bytes, const std::string& where = "decode_audio: ");

/// A wav file of 16 bits: samples f32 (frames) in -1 to 1, beyond which they are cut off.
std::vector<uint8_t> encode_wav(const Tensor& samples, int64_t sample_rate);

/// Samples f32 (frames) taken at one rate, as if taken at another: ceil(frames · to / from) of them, by a windowed sinc, which is
/// torchaudio.functional.resample with its defaults. Throws Error for rates out of range.
Tensor resample_audio(const Tensor& samples, int64_t from, int64_t to);

/// Whether this build has libsndfile: without it plain wav files are all that can be read.
bool has_sndfile();

}  // namespace tandem::io
