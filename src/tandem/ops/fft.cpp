#include "tandem/ops/fft.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/autocast.h"
#include "tandem/ops/define.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

Dims with_last(Dims shape, Dim size) {
  shape[shape.rank() - 1] = size;
  return shape;
}

Tensor run_fft(const Tensor& x, bool inverse, double scale) {
  return apply1(op_fft(), {x}, FftAttrs{x.size(-2), scale, inverse});
}

/// (n / 2 + 1, 1): 1 where a value of the half spectrum stands for itself alone, `other` where it also stands for its
/// conjugate.
Tensor weights(int64_t n, double other, const Tensor& like) {
  const Tensor k = arange(n / 2 + 1, DType::i64, like.device());
  const Tensor alone = logical_or(equal(k, 0), equal(k * 2, n));
  return unsqueeze(cast(where(alone, full({}, 1, like.dtype(), like.device()), other), like.dtype()), -1);
}

Tensors grad_fft(const GradArgs& a) {
  const auto& f = a.attributes.as<FftAttrs>();
  return {run_fft(a.grad[0], !f.inverse, f.scale)};
}
Tensors grad_rfft(const GradArgs& a) {
  const auto& f = a.attributes.as<FftAttrs>();
  return {apply1(op_irfft(), {a.grad[0] * weights(f.n, 0.5, a.grad[0])}, f)};
}
Tensors grad_irfft(const GradArgs& a) {
  const auto& f = a.attributes.as<FftAttrs>();
  return {apply1(op_rfft(), {a.grad[0]}, f) * weights(f.n, 2, a.grad[0])};
}
Tensors grad_frames(const GradArgs& a) {
  return {apply1(op_overlap_add(), {a.grad[0]}, a.attributes.as<FrameAttrs>())};
}
Tensors grad_overlap_add(const GradArgs& a) {
  return {apply1(op_frames(), {a.grad[0]}, a.attributes.as<FrameAttrs>())};
}

double scale_of(FftNorm norm, bool inverse, int64_t n) {
  if (norm == FftNorm::ortho) return 1 / std::sqrt(static_cast<double>(n));
  return (norm == FftNorm::forward) != inverse ? 1 / static_cast<double>(n) : 1;
}

void check_type(const char* op, const Tensor& x) {
  TD_CHECK(x.defined(), op, ": the input must be a tensor; got an undefined handle.");
  TD_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, op,
           ": the element type must be f32 or f64; got ", x.dtype(), ". cast() it.");
}
void check_complex(const char* op, const Tensor& x, int axes = 1) {
  check_type(op, x);
  TD_CHECK(x.rank() >= axes + 1 && x.shape().back() == 2, op,
           ": a complex tensor has a last axis of 2 (re, im) and ", axes, " before it; got shape ", x.shape(),
           ". complex(x, zeros_like(x)) makes one of a real tensor.");
}

/// The attributes of a transform whose input has `size` values along its axis; `wanted` gives that number of n.
const FftAttrs& checked_transform(const InferArgs& a, Dim size, int64_t (*wanted)(int64_t n)) {
  const auto& f = a.attributes<FftAttrs>();
  TD_CHECK(f.n >= 1 && wanted(f.n) == size, a.op, ": n must be the size of the transform; got ", f.n, " for ",
           describe(a.in[0]), ".");
  return f;
}

/// The attributes of frames, which must lie in the padded signal.
const FrameAttrs& checked_frames(const InferArgs& a) {
  const auto& f = a.attributes<FrameAttrs>();
  check_type(a.op, a.in[0]);
  TD_CHECK(
      f.size >= 1 && f.hop >= 1 && f.frames >= 1 && f.pad >= 0 && (f.pad == 0 || f.pad < f.time) &&
          plus_capped(times_capped(f.frames - 1, f.hop), f.size) <=
              plus_capped(f.time, times_capped(2, f.pad)),
      a.op,
      ": size, hop and frames must be at least 1, the pad shorter than the signal, and the frames within "
      "it; got ",
      a.given.print(), ".");
  return f;
}

/// Cuts an axis or fills it up with zeros.
Tensor resized(const Tensor& x, int axis, int64_t n) {
  if (x.size(axis) > n) return slice(x, axis, 0, n);
  return x.size(axis) < n ? slice_into_zeros(x, axis, 0, 1, n) : x;
}

/// The axis moved to place `to`, and the same swap undone.
Tensor moved(const Tensor& x, int axis, int to) { return axis == to ? x : transpose(x, axis, to); }

int64_t checked_size(const char* op, int64_t n, int64_t found, const Tensor& x) {
  const int64_t size = n ? n : found;
  TD_CHECK(size >= 1, op, ": the size of the transform must be at least 1; got ", size, " for shape ",
           x.shape(), ".");
  return size;
}

Tensor complex_transform(const char* op, const Tensor& x, const FftOptions& options, bool inverse) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return complex_transform(op, x, options, inverse); }, x);
  check_complex(op, x);
  const int last = x.rank() - 2, axis = normal_axis(op, options.axis, x.rank() - 1);
  const int64_t n = checked_size(op, options.n, x.size(axis), x);
  const Tensor y =
      run_fft(moved(resized(x, axis, n), axis, last), inverse, scale_of(options.norm, inverse, n));
  return moved(y, axis, last);
}

Tensor window_of(const char* op, int64_t n, bool periodic, double a, double b, DType dtype, Device device) {
  TD_CHECK(n >= 0, op, ": the size must not be negative; got ", n, ".");
  TD_CHECK(is_floating(dtype), op, ": the element type must be floating; got ", dtype, ".");
  if (n == 1) return ones({1}, dtype, device);
  const double step = 2 * M_PI / static_cast<double>(periodic ? n : n - 1);
  return cast(a - b * cos(arange(n, DType::f64, device) * step), dtype);
}

Tensor shifted(const char* op, const Tensor& x, int64_t wanted, bool back) {
  TD_CHECK(x.defined(), op, ": the input must be a tensor; got an undefined handle.");
  const int axis = normal_axis(op, wanted, x.rank());
  const int64_t n = x.size(axis), cut = back ? n / 2 : n - n / 2;
  return concat({slice(x, axis, cut, n), slice(x, axis, 0, cut)}, axis);
}

void infer_fft(InferArgs& a) {
  check_complex(a.op, a.in[0]);
  checked_transform(a, a.in[0].size(-2), [](int64_t n) { return n; });
  a.add(a.in[0].shape(), a.in[0].dtype());
}
void infer_rfft(InferArgs& a) {
  check_type(a.op, a.in[0]);
  TD_CHECK(a.in[0].rank() >= 1, "rfft: the input must have an axis; got ", describe(a.in[0]), ".");
  const auto& f = checked_transform(a, a.in[0].size(-1), [](int64_t n) { return n; });
  Dims shape = with_last(a.in[0].shape(), f.n / 2 + 1);
  shape.push_back(2);
  a.add(shape, a.in[0].dtype());
}
void infer_irfft(InferArgs& a) {
  check_complex(a.op, a.in[0]);
  const auto& f = checked_transform(a, a.in[0].size(-2), [](int64_t n) { return n / 2 + 1; });
  Dims shape = a.in[0].shape();
  shape.erase(shape.rank() - 1);
  a.add(with_last(shape, f.n), a.in[0].dtype());
}
void infer_frames(InferArgs& a) {
  const auto& f = checked_frames(a);
  TD_CHECK(a.in[0].rank() >= 1 && a.in[0].shape().back() == f.time,
           "frames: the signal must have `time` values; got ", describe(a.in[0]), " for ", f.time, ".");
  Dims shape = with_last(a.in[0].shape(), f.frames);
  shape.push_back(f.size);
  a.add(shape, a.in[0].dtype());
}
void infer_overlap_add(InferArgs& a) {
  const auto& f = checked_frames(a);
  TD_CHECK(a.in[0].rank() >= 2 && a.in[0].size(-2) == f.frames && a.in[0].size(-1) == f.size,
           "overlap_add: the input must be (…, frames, size); got ", describe(a.in[0]), " for ",
           a.given.print(), ".");
  Dims shape = a.in[0].shape();
  shape.erase(shape.rank() - 1);
  a.add(with_last(shape, f.time), a.in[0].dtype());
}

/// What the records of the family share.
OpDef spectral(OpDef d) {
  d.precision = Precision::full;
  return d;
}

}  // namespace

OpDef& op_fft() {
  static OpDef& op =
      define(spectral({.name = "fft",
                       .about = "the discrete Fourier transform of pairs (real, imaginary), or its inverse",
                       .inputs = {"x"},
                       .outputs = {"y"},
                       .infer = infer_fft,
                       .gradient = grad_fft}));
  return op;
}
OpDef& op_rfft() {
  static OpDef& op =
      define(spectral({.name = "rfft",
                       .about = "the Fourier transform of real numbers: the frequencies from 0 up",
                       .inputs = {"x"},
                       .outputs = {"y"},
                       .infer = infer_rfft,
                       .gradient = grad_rfft}));
  return op;
}
OpDef& op_irfft() {
  static OpDef& op = define(spectral({.name = "irfft",
                                      .about = "real numbers from the frequencies that rfft gives",
                                      .inputs = {"x"},
                                      .outputs = {"y"},
                                      .infer = infer_irfft,
                                      .gradient = grad_irfft}));
  return op;
}
OpDef& op_frames() {
  static OpDef& op = define(spectral({.name = "frames",
                                      .about = "overlapping pieces of a signal",
                                      .function = "stft",
                                      .inputs = {"x"},
                                      .outputs = {"y"},
                                      .infer = infer_frames,
                                      .gradient = grad_frames}));
  return op;
}
OpDef& op_overlap_add() {
  static OpDef& op = define(spectral({.name = "overlap_add",
                                      .about = "the sum of overlapping pieces",
                                      .function = "istft",
                                      .inputs = {"x"},
                                      .outputs = {"y"},
                                      .infer = infer_overlap_add,
                                      .gradient = grad_overlap_add}));
  return op;
}

Tensor fft(const Tensor& x, FftOptions options) { return complex_transform("fft", x, options, false); }
Tensor ifft(const Tensor& x, FftOptions options) { return complex_transform("ifft", x, options, true); }

Tensor rfft(const Tensor& x, FftOptions options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return rfft(x, options); }, x);
  check_type("rfft", x);
  TD_CHECK(x.rank() >= 1 && x.rank() < kMaxRank, "rfft: the input must have 1 to ", kMaxRank - 1,
           " axes; got ", x.shape(), ".");
  const int axis = normal_axis("rfft", options.axis, x.rank()), last = x.rank() - 1;
  const int64_t n = checked_size("rfft", options.n, x.size(axis), x);
  const Tensor y = apply1(op_rfft(), {moved(resized(x, axis, n), axis, last)},
                          FftAttrs{n, scale_of(options.norm, false, n), false});
  return moved(y, axis, last);
}

Tensor irfft(const Tensor& x, FftOptions options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return irfft(x, options); }, x);
  check_complex("irfft", x);
  const int axis = normal_axis("irfft", options.axis, x.rank() - 1), last = x.rank() - 2;
  const int64_t n = checked_size("irfft", options.n, 2 * (x.size(axis) - 1), x);
  const Tensor y = apply1(op_irfft(), {moved(resized(x, axis, n / 2 + 1), axis, last)},
                          FftAttrs{n, scale_of(options.norm, true, n), true});
  return moved(y, axis, last);
}

Tensor fft2(const Tensor& x, FftNorm norm) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return fft2(x, norm); }, x);
  check_complex("fft2", x, 2);
  return fft(fft(x, {.axis = -1, .norm = norm}), {.axis = -2, .norm = norm});
}
Tensor ifft2(const Tensor& x, FftNorm norm) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return ifft2(x, norm); }, x);
  check_complex("ifft2", x, 2);
  return ifft(ifft(x, {.axis = -1, .norm = norm}), {.axis = -2, .norm = norm});
}
Tensor rfft2(const Tensor& x, FftNorm norm) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return rfft2(x, norm); }, x);
  check_type("rfft2", x);
  TD_CHECK(x.rank() >= 2, "rfft2: the input must have two axes; got shape ", x.shape(), ".");
  return fft(rfft(x, {.norm = norm}), {.axis = -2, .norm = norm});
}
Tensor irfft2(const Tensor& x, int64_t columns, FftNorm norm) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return irfft2(x, columns, norm); }, x);
  check_complex("irfft2", x, 2);
  return irfft(ifft(x, {.axis = -2, .norm = norm}), {.n = columns, .norm = norm});
}

Tensor fftshift(const Tensor& x, int64_t axis) { return shifted("fftshift", x, axis, false); }
Tensor ifftshift(const Tensor& x, int64_t axis) { return shifted("ifftshift", x, axis, true); }

Tensor complex(const Tensor& re, const Tensor& im) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& re, const Tensor& im) { return complex(re, im); }, re, im);
  TD_CHECK(re.defined() && im.defined(), "complex: both parts must be tensors; got an undefined handle.");
  TD_CHECK(re.shape() == im.shape() && re.dtype() == im.dtype(),
           "complex: both parts must have one shape and type; got ", describe(re), " and ", describe(im),
           ".");
  return concat({unsqueeze(re, -1), unsqueeze(im, -1)}, -1);
}
Tensor real(const Tensor& x) {
  check_complex("real", x, 0);
  return select(x, -1, 0);
}
Tensor imag(const Tensor& x) {
  check_complex("imag", x, 0);
  return select(x, -1, 1);
}
Tensor complex_mul(const Tensor& a, const Tensor& b) {
  check_complex("complex_mul", a, 0);
  check_complex("complex_mul", b, 0);
  const Tensor ar = real(a), ai = imag(a), br = real(b), bi = imag(b);
  return complex(ar * br - ai * bi, ar * bi + ai * br);
}
Tensor complex_conj(const Tensor& x) { return complex(real(x), -imag(x)); }
Tensor complex_abs(const Tensor& x) {
  check_complex("complex_abs", x, 0);
  return hypot(real(x), imag(x));
}

Tensor hann_window(int64_t n, bool periodic, DType dtype, Device device) {
  return window_of("hann_window", n, periodic, 0.5, 0.5, dtype, device);
}
Tensor hamming_window(int64_t n, bool periodic, DType dtype, Device device) {
  return window_of("hamming_window", n, periodic, 0.54, 0.46, dtype, device);
}

namespace {
int64_t checked_hop(const char* op, const StftOptions& o) {
  const int64_t hop = o.hop ? o.hop : o.n_fft / 4;
  TD_CHECK(o.n_fft >= 1 && hop >= 1, op, ": n_fft and hop must be at least 1; got ", o.n_fft, " and ", hop,
           ".");
  return hop;
}

/// The window at its full length of n_fft, or undefined.
Tensor checked_window(const char* op, const StftOptions& o, const Tensor& x) {
  const Tensor& w = o.window;
  if (!w.defined()) return w;
  TD_CHECK(w.rank() == 1 && w.size() >= 1 && w.size() <= o.n_fft && w.dtype() == x.dtype(), op,
           ": the window must be a vector of up to n_fft values of the signal's type; got ", describe(w),
           " for n_fft ", o.n_fft, " and ", x.dtype(), ".");
  return w.size() == o.n_fft ? w : slice_into_zeros(w, 0, (o.n_fft - w.size()) / 2, 1, o.n_fft);
}
}  // namespace

Tensor stft(const Tensor& x, const StftOptions& o) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return stft(x, o); }, x);
  check_type("stft", x);
  const int64_t hop = checked_hop("stft", o);
  TD_CHECK(x.rank() >= 1 && x.rank() + 2 <= kMaxRank, "stft: the signal must have 1 to ", kMaxRank - 2,
           " axes; got shape ", x.shape(), ".");
  const int64_t time = x.shape().back(), pad = o.center ? o.n_fft / 2 : 0;
  TD_CHECK(pad == 0 || pad < time,
           "stft: a centred signal must be longer than n_fft / 2 to be mirrored; got ", time,
           " values for n_fft ", o.n_fft, ". Give a longer signal or center = false.");
  TD_CHECK(time + 2 * pad >= o.n_fft, "stft: the signal must hold a frame; got ", time, " values for n_fft ",
           o.n_fft, ".");
  const int64_t frames = (time + 2 * pad - o.n_fft) / hop + 1;
  const Tensor window = checked_window("stft", o, x);
  const Tensor framed = apply1(op_frames(), {x}, FrameAttrs{time, o.n_fft, hop, pad, frames});
  return transpose(rfft(window.defined() ? framed * window : framed, {.norm = o.norm}), -3, -2);
}

Tensor istft(const Tensor& z, const StftOptions& o, int64_t length) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& z) { return istft(z, o, length); }, z);
  check_complex("istft", z, 2);
  const int64_t hop = checked_hop("istft", o), frames = z.size(-2), bins = z.size(-3);
  TD_CHECK(bins == o.n_fft / 2 + 1 && frames >= 1,
           "istft: z must have n_fft / 2 + 1 rows and at least one frame; got shape ", z.shape(),
           " for n_fft ", o.n_fft, ".");
  const int64_t whole = plus_capped(times_capped(frames - 1, hop), o.n_fft), pad = o.center ? o.n_fft / 2 : 0;
  size_of({whole});
  if (length == 0) length = whole - 2 * pad;
  TD_CHECK(length >= 1 && length <= whole - pad, "istft: the frames must cover the length asked for; got ",
           length, " of ", whole - pad, " values.");
  Tensor framed = irfft(transpose(z, -3, -2), {.n = o.n_fft, .norm = o.norm});
  const Tensor window = checked_window("istft", o, z);
  if (window.defined()) framed = framed * window;
  const FrameAttrs attrs{whole, o.n_fft, hop, 0, frames};
  const Tensor square = window.defined() ? window * window : ones({o.n_fft}, z.dtype(), z.device());
  const Tensor signal = apply1(op_overlap_add(), {framed}, attrs);
  const Tensor weight = apply1(op_overlap_add(), {expand(square, {frames, o.n_fft})}, attrs);
  return slice(signal, -1, pad, pad + length) / slice(weight, -1, pad, pad + length);
}

Tensor spectrogram(const Tensor& x, const StftOptions& options, double power) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return spectrogram(x, options, power); }, x);
  TD_CHECK(power > 0, "spectrogram: the power must be above 0; got ", power, ".");
  const Tensor z = stft(x, options);
  if (power == 2) return sum(z * z, {z.rank() - 1});
  const Tensor size = complex_abs(z);
  return power == 1 ? size : pow(size, power);
}

Tensor mel_filter_bank(int64_t frequencies, MelOptions o, DType dtype, Device device) {
  const double top = o.high > 0 ? o.high : o.sample_rate / 2;
  TD_CHECK(frequencies >= 2 && o.bands >= 1,
           "mel_filter_bank: at least 2 frequencies and 1 band are needed; got ", frequencies, " and ",
           o.bands, ".");
  TD_CHECK(o.sample_rate > 0 && o.low >= 0 && o.low < top,
           "mel_filter_bank: the sample rate must be above 0 and low below high; got a rate of ",
           o.sample_rate, ", low ", o.low, " and high ", top, ".");
  // Slaney's scale is linear up to 1000 Hz (15 mel) and logarithmic above, 27 mel for a factor of 6.4.
  const double knee = 15, step = 27 / std::log(6.4);
  const auto to_mel = [&](double hertz) {
    if (!o.slaney) return 2595 * std::log10(1 + hertz / 700);
    return hertz < 1000 ? hertz * 3 / 200 : knee + step * std::log(hertz / 1000);
  };
  const auto to_hertz = [&](double mel) {
    if (!o.slaney) return 700 * (std::pow(10, mel / 2595) - 1);
    return mel < knee ? mel * 200 / 3 : 1000 * std::exp((mel - knee) / step);
  };
  const bool has_area = o.area.value_or(o.slaney);
  const Tensor on_host = empty({frequencies, o.bands}, DType::f64);
  auto* bank =
      static_cast<double*>(on_host.impl()->storage->data());  // in a compiled callable, too: a constant
  std::vector<double> edges;
  const double from = to_mel(o.low), upto = to_mel(top);
  for (int64_t i = 0; i < o.bands + 2; ++i)
    edges.push_back(
        to_hertz(from + (upto - from) * static_cast<double>(i) / static_cast<double>(o.bands + 1)));
  for (int64_t f = 0; f < frequencies; ++f)
    for (size_t b = 0; b < static_cast<size_t>(o.bands); ++b) {
      const double hertz = o.sample_rate / 2 * static_cast<double>(f) / static_cast<double>(frequencies - 1);
      const double rise = (hertz - edges[b]) / (edges[b + 1] - edges[b]);
      const double fall = (edges[b + 2] - hertz) / (edges[b + 2] - edges[b + 1]);
      const double height = std::max(0., std::min(rise, fall));
      bank[static_cast<size_t>(f * o.bands) + b] = has_area ? height * 2 / (edges[b + 2] - edges[b]) : height;
    }
  // A clone: in a compiled callable what is made of host values must not be changed in place.
  return cast(clone(from_host(bank, on_host.shape(), DType::f64, device)), dtype);
}

}  // namespace tandem
