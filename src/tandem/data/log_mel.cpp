// Log spectrograms and log-mel features.
#include "tandem/data/log_mel.h"

#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/tape.h"
#include "tandem/io/audio.h"
#include "tandem/io/file.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::data {
namespace {

constexpr int64_t kMostFft = 1 << 20, kMostBands = 4096;

void check(const LogMelOptions& o) {
  TD_CHECK(o.n_fft >= 2 && o.n_fft <= kMostFft, "log_mel: n_fft must be 2 to ", kMostFft, "; got ", o.n_fft,
           ".");
  TD_CHECK(o.window >= 0 && o.window <= o.n_fft,
           "log_mel: the window must be 0 (n_fft) or up to n_fft = ", o.n_fft, " samples; got ", o.window,
           ".");
  TD_CHECK(o.hop >= 1, "log_mel: hop must be at least 1; got ", o.hop, ".");
  TD_CHECK(o.sample_rate >= 1, "log_mel: the sample rate must be at least 1 Hz; got ", o.sample_rate, ".");
  TD_CHECK(o.mels >= 0 && o.mels <= kMostBands, "log_mel: there must be 0 (the frequencies themselves) to ",
           kMostBands, " bands; got ", o.mels, ".");
  TD_CHECK(std::isfinite(o.power) && o.power > 0, "log_mel: power must be above 0; got ", o.power, ".");
  TD_CHECK(std::isfinite(o.floor) && o.floor > 0, "log_mel: floor must be above 0; got ", o.floor, ".");
}

void check_count(int64_t samples, const LogMelOptions& o) {
  TD_CHECK(samples > o.n_fft / 2, "log_mel: the sound must have more than n_fft / 2 = ", o.n_fft / 2,
           " samples (", static_cast<double>(o.n_fft / 2) / static_cast<double>(o.sample_rate), " s); got ",
           samples, ". Give a longer piece.");
}

/// In double precision, in order: the same on every machine.
Tensor standardised(const Tensor& x) {
  const float* in = x.data<float>();
  const auto count = static_cast<double>(x.size());
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += static_cast<double>(in[i]);
  const double mean = sum / count;
  for (int64_t i = 0; i < x.size(); ++i)
    squares += (static_cast<double>(in[i]) - mean) * (static_cast<double>(in[i]) - mean);
  const double deviation = std::sqrt(squares / count),
               scale = deviation > 0 ? 1 / deviation : 0;  // silence is all alike
  const Tensor out = empty(x.shape(), DType::f32);
  auto* to = out.data<float>();
  for (int64_t i = 0; i < x.size(); ++i)
    to[i] = static_cast<float>((static_cast<double>(in[i]) - mean) * scale);
  return out;
}

}  // namespace

LogMelOptions deepspeech2_sound() {
  return {.sample_rate = 16000,
          .n_fft = 320,
          .hop = 160,
          .hamming = true,
          .power = 1,
          .mels = 0,
          .standardise = true};
}

LogMelOptions tacotron2_sound() {
  return {.sample_rate = 22050,
          .n_fft = 1024,
          .hop = 256,
          .power = 1,
          .mels = 80,
          .high = 8000,
          .slaney_scale = true,
          .slaney_norm = true};
}

int64_t frames_of(int64_t samples, const LogMelOptions& options) {
  check(options);
  check_count(samples, options);
  return 1 + samples / options.hop;
}

Tensor log_mel(const Tensor& samples, const LogMelOptions& o) {
  check(o);
  TD_CHECK(
      samples.defined() && samples.rank() == 1 && samples.dtype() == DType::f32 && samples.device().is_cpu(),
      "log_mel: takes samples f32 (count) on the CPU; got ",
      samples.defined() ? describe(samples) : "nothing", ".");
  check_count(samples.size(0), o);
  const NoGrad off;
  const int64_t width = o.window > 0 ? o.window : o.n_fft;
  const Tensor window = o.hamming ? hamming_window(width) : hann_window(width);
  Tensor bins =
      transpose(spectrogram(samples, {.n_fft = o.n_fft, .hop = o.hop, .window = window}, o.power), 0, 1);
  if (o.mels > 0)
    bins = matmul(bins, mel_filter_bank(o.n_fft / 2 + 1, {.bands = o.mels,
                                                          .sample_rate = static_cast<double>(o.sample_rate),
                                                          .low = o.low,
                                                          .high = o.high,
                                                          .slaney = o.slaney_scale,
                                                          .area = o.slaney_norm}));
  const Tensor logs = contiguous(log(maximum(bins, o.floor)));
  return o.standardise ? standardised(logs) : logs;
}

Tensor read_log_mel(const std::string& path, const LogMelOptions& options) {
  const io::Audio audio = io::read_audio(path);
  try {
    return log_mel(io::resample_audio(audio.samples, audio.sample_rate, options.sample_rate), options);
  } catch (Error& error) {
    error.prepend(str("read '", io::one_line(path), "': "));
    throw;
  }
}

int64_t frames_in(const std::string& path, const LogMelOptions& options) {
  const io::AudioInfo info = io::audio_info(path);
  const int64_t samples = (info.frames * options.sample_rate + info.sample_rate - 1) / info.sample_rate;
  try {
    return frames_of(samples, options);
  } catch (Error& error) {
    error.prepend(str("read '", io::one_line(path), "': "));
    throw;
  }
}

}  // namespace tandem::data
