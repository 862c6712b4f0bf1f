// What networks hear: the logarithm of how strong each frequency, or band of frequencies, is in short pieces of sound.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/core/tensor.h"

namespace tandem::data {

/// The settings of torchaudio's Spectrogram and MelSpectrogram, whose results these are, with a logarithm behind them.
struct LogMelOptions {
  int64_t sample_rate = 16000;  ///< in Hz, of the sound
  int64_t n_fft = 400;          ///< samples of a transform
  int64_t hop =
      160;  ///< samples from frame to frame; frame t is centred at t · hop, the sound mirrored at its ends
  int64_t window = 0;         ///< samples under the window, up to n_fft; 0: n_fft
  bool hamming = false;       ///< else a Hann window
  double power = 2;           ///< of the magnitude
  int64_t mels = 80;          ///< bands on the mel scale; 0: the n_fft / 2 + 1 frequencies themselves
  double low = 0, high = 0;   ///< in Hz, of the bands; high 0: half the sample rate
  bool slaney_scale = false;  ///< else HTK's
  bool slaney_norm = false;   ///< area 1 a band, else height 1
  double floor = 1e-5;        ///< the logarithm is of max(x, floor)
  bool standardise = false;   ///< mean 0 and deviation 1 over all of a piece of sound

  bool operator==(const LogMelOptions&) const = default;
  int64_t bins() const { return mels > 0 ? mels : n_fft / 2 + 1; }
};

/// DeepSpeech2's: 16 kHz, 161 frequencies in windows of 20 ms (Hamming), each 10 ms, standardised.
LogMelOptions deepspeech2_sound();
/// Tacotron 2's: 22,050 Hz, n_fft 1024, hop 256, 80 bands from 0 to 8000 Hz, Slaney's.
LogMelOptions tacotron2_sound();

/// samples f32 (count), taken at options.sample_rate -> f32 (frames, bins). Throws Error for settings out of range, and for
/// sound that is too short to be mirrored: it must have more than n_fft / 2 samples.
Tensor log_mel(const Tensor& samples, const LogMelOptions& options);
/// The frames that so many samples give.
int64_t frames_of(int64_t samples, const LogMelOptions& options);

/// The features of a file, resampled where its rate is another, and its frames, which the head of the file tells.
Tensor read_log_mel(const std::string& path, const LogMelOptions& options);
int64_t frames_in(const std::string& path, const LogMelOptions& options);

}  // namespace tandem::data
