// Fourier transforms and what sound needs of them. A complex tensor is a real one whose last axis holds (re, im); axes are
// counted without it. f32 and f64.
#pragma once

#include <optional>

#include "tandem/core/op.h"

namespace tandem {

/// Where the factor 1/n stands: at the inverse, half at each, or at the forward transform.
enum class FftNorm { backward, ortho, forward };

struct FftOptions {
  int64_t n = 0;      ///< size of the transform: the axis is cut or filled up with zeros. 0: as it is
  int64_t axis = -1;  ///< not counting the axis of (re, im)
  FftNorm norm = FftNorm::backward;
};
/// Complex (…, 2) -> complex: y[k] = sum of x[j] · exp(-2πi jk / n), and its inverse.
Tensor fft(const Tensor& x, FftOptions options = {});
Tensor ifft(const Tensor& x, FftOptions options = {});
/// Real -> the first n / 2 + 1 values, complex; the others are their conjugates.
Tensor rfft(const Tensor& x, FftOptions options = {});
/// The inverse of rfft. n = 0 means 2 · (size - 1): the size of an odd signal must be given.
Tensor irfft(const Tensor& x, FftOptions options = {});
/// The same over the last two axes.
Tensor fft2(const Tensor& x, FftNorm norm = FftNorm::backward);
Tensor ifft2(const Tensor& x, FftNorm norm = FftNorm::backward);
Tensor rfft2(const Tensor& x, FftNorm norm = FftNorm::backward);
Tensor irfft2(const Tensor& x, int64_t columns = 0, FftNorm norm = FftNorm::backward);
/// Moves frequency 0 to the middle of an axis of a tensor (every axis is counted), and back.
Tensor fftshift(const Tensor& x, int64_t axis = -1);
Tensor ifftshift(const Tensor& x, int64_t axis = -1);

// Complex numbers.
Tensor complex(const Tensor& re, const Tensor& im);
Tensor real(const Tensor& x);
Tensor imag(const Tensor& x);
Tensor complex_mul(const Tensor& a, const Tensor& b);
Tensor complex_conj(const Tensor& x);
Tensor complex_abs(const Tensor& x);  ///< its gradient at 0 is 0

// Windows: periodic ones repeat after n, others are symmetric.
Tensor hann_window(int64_t n, bool periodic = true, DType dtype = DType::f32, Device device = {});
Tensor hamming_window(int64_t n, bool periodic = true, DType dtype = DType::f32, Device device = {});

struct StftOptions {
  int64_t n_fft = 400;
  int64_t hop = 0;                   ///< 0: n_fft / 4
  Tensor window = {};                ///< up to n_fft values, put in the middle; undefined: ones
  bool center = true;                ///< frame t is centred at t · hop: the signal is mirrored at its ends
  FftNorm norm = FftNorm::backward;  ///< ortho is PyTorch's normalized
};
/// x (…, time) -> (…, n_fft / 2 + 1, frames, 2).
Tensor stft(const Tensor& x, const StftOptions& options);
/// The signal (…, time) whose stft is z: frames are added up and divided by the windows' squares. length 0: all that the
/// frames tell. A place that no window covers comes out as NaN.
Tensor istft(const Tensor& z, const StftOptions& options, int64_t length = 0);
/// |stft|^power: (…, n_fft / 2 + 1, frames).
Tensor spectrogram(const Tensor& x, const StftOptions& options, double power = 2);

struct MelOptions {
  int64_t bands = 80;
  double sample_rate = 16000;
  double low = 0, high = 0;       ///< in Hz; high 0: half the sample rate
  bool slaney = false;            ///< Slaney's scale and area 1 a band, else HTK's scale and height 1
  std::optional<bool> area = {};  ///< area 1 a band, or height 1, whatever the scale
};
/// (frequencies, bands): triangles, evenly spaced on the mel scale; matmul(transpose(spectrogram), bank) gives mel bands.
Tensor mel_filter_bank(int64_t frequencies, MelOptions options, DType dtype = DType::f32, Device device = {});

struct FftAttrs {  // fft: n and inverse; rfft, irfft: n. The result is multiplied by scale.
  int64_t n = 0;
  double scale = 1;
  bool inverse = false;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("n", &FftAttrs::n), field("scale", &FftAttrs::scale),
                 field("inverse", &FftAttrs::inverse));
  }
};
OpDef& op_fft();    // in (…, n, 2); out the same shape
OpDef& op_rfft();   // in (…, n); out (…, n / 2 + 1, 2)
OpDef& op_irfft();  // in (…, n / 2 + 1, 2), the imaginary parts that must be 0 are not read; out (…, n)

/// Frames of a signal: out[f][j] = x[f · hop + j - pad], mirrored at both ends.
struct FrameAttrs {
  int64_t time = 0, size = 1, hop = 1, pad = 0, frames = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("time", &FrameAttrs::time), field("size", &FrameAttrs::size),
                 field("hop", &FrameAttrs::hop), field("pad", &FrameAttrs::pad),
                 field("frames", &FrameAttrs::frames));
  }
  /// Where padded place p lies in the signal. pad < time.
  TD_HD int64_t source(int64_t p) const {
    const int64_t t = p - pad;
    return t < 0 ? -t : t >= time ? 2 * (time - 1) - t : t;
  }
  /// The sum of what frames (frames, size) hold for place t of the signal: the frames over t itself, then over its
  /// mirror images.
  template <class T>
  TD_HD T gathered(const T* framed, int64_t t) const {
    const int64_t length = (frames - 1) * hop + size;  // of the padded signal that is covered
    const int64_t places[3] = {pad + t, t > 0 ? pad - t : -1, t < time - 1 ? pad + 2 * (time - 1) - t : -1};
    T total = 0;
    for (int i = 0; i < 3; ++i) {
      const int64_t p = places[i];
      if (p < 0 || p >= length) continue;
      int64_t f = p < size ? 0 : (p - size) / hop + 1;
      for (; f < frames && f * hop <= p; ++f) total += framed[f * size + (p - f * hop)];
    }
    return total;
  }
};
OpDef& op_frames();       // in (…, time); out (…, frames, size)
OpDef& op_overlap_add();  // in (…, frames, size); out (…, time): the adjoint of frames

}  // namespace tandem
