// Cases of the Fourier transforms and of what is made of them, against sums written out.
#include "tandem/ops/fft.h"

#include <cmath>
#include <complex>

#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

using In = std::span<const Tensor>;
using Arrays = std::span<const Array>;
using Signal = std::vector<std::complex<double>>;

/// n values of the sum over x[j] · exp(sign · 2πi jk / n); x is cut or filled up with zeros.
Signal dft(const Signal& x, int64_t n, int sign) {
  Signal y(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < std::min<int64_t>(n, static_cast<int64_t>(x.size())); ++j)
      y[static_cast<size_t>(k)] +=
          x[static_cast<size_t>(j)] *
          std::polar(1., sign * 2 * M_PI * static_cast<double>(j * k % n) / static_cast<double>(n));
  return y;
}

double factor(FftNorm norm, bool inverse, int64_t n) {
  const double whole = 1 / static_cast<double>(n);
  if (norm == FftNorm::ortho) return std::sqrt(whole);
  return (norm == FftNorm::backward) == inverse ? whole : 1;
}

/// Applies f to every line along an axis. The axis of (re, im), where there is one, is the last and not counted.
Array along(const Array& x, bool complex_in, bool complex_out, int64_t wanted, int64_t size,
            const std::function<Signal(const Signal&)>& f) {
  const int rank = x.shape.rank() - (complex_in ? 1 : 0);
  const int axis = static_cast<int>(wanted < 0 ? wanted + rank : wanted);
  Dims lines(std::span<const Dim>(x.shape.data(), static_cast<size_t>(rank)));
  Dims shape = lines;
  const Dim found = lines[axis];
  lines[axis] = 1;
  shape[axis] = size;
  if (complex_out) shape.push_back(2);
  Array out(shape);
  if (size_of(lines) == 0) return out;
  each_index(lines, [&](const Dims& line) {
    Signal values;
    Dims at = line;
    if (complex_in) at.push_back(0);
    for (Dim i = 0; i < found; ++i) {
      at[axis] = i;
      double re = 0, im = 0;
      if (complex_in) at[rank] = 0;
      re = x.at(at);
      if (complex_in) {
        at[rank] = 1;
        im = x.at(at);
      }
      values.emplace_back(re, im);
    }
    const Signal result = f(values);
    Dims to = line;
    if (complex_out) to.push_back(0);
    for (Dim i = 0; i < size; ++i) {
      to[axis] = i;
      if (complex_out) to[rank] = 0;
      out.at(to) = result[static_cast<size_t>(i)].real();
      if (!complex_out) continue;
      to[rank] = 1;
      out.at(to) = result[static_cast<size_t>(i)].imag();
    }
  });
  return out;
}

Signal scaled(Signal x, double by) {
  for (auto& v : x) v *= by;
  return x;
}

Array reference_fft(const Array& x, bool inverse, FftOptions o = {}) {
  const int rank = x.shape.rank() - 1;
  const int64_t n = o.n ? o.n : x.shape[static_cast<int>(o.axis < 0 ? o.axis + rank : o.axis)];
  return along(x, true, true, o.axis, n, [&](const Signal& s) {
    return scaled(dft(s, n, inverse ? 1 : -1), factor(o.norm, inverse, n));
  });
}
Array reference_rfft(const Array& x, FftOptions o = {}) {
  const int rank = x.shape.rank();
  const int64_t n = o.n ? o.n : x.shape[static_cast<int>(o.axis < 0 ? o.axis + rank : o.axis)];
  return along(x, false, true, o.axis, n / 2 + 1,
               [&](const Signal& s) { return scaled(dft(s, n, -1), factor(o.norm, false, n)); });
}
Array reference_irfft(const Array& x, FftOptions o = {}) {
  const int rank = x.shape.rank() - 1;
  const int64_t found = x.shape[static_cast<int>(o.axis < 0 ? o.axis + rank : o.axis)];
  const int64_t n = o.n ? o.n : 2 * (found - 1);
  return along(x, true, false, o.axis, n, [&](const Signal& s) {
    Signal whole(static_cast<size_t>(n));
    for (int64_t k = 0; k <= n / 2; ++k) {
      std::complex<double> v = k < found ? s[static_cast<size_t>(k)] : 0;
      if (k == 0 || 2 * k == n) v = v.real();
      whole[static_cast<size_t>(k)] = v;
      if (k) whole[static_cast<size_t>(n - k)] = std::conj(v);
    }
    return scaled(dft(whole, n, 1), factor(o.norm, true, n));
  });
}

/// x (rows, time) -> (rows, bins, frames, 2).
Array reference_stft(const Array& x, int64_t n, int64_t hop, const std::vector<double>& window, bool center) {
  const Dim rows = x.shape[0], time = x.shape[1], pad = center ? n / 2 : 0;
  const Dim frames = (time + 2 * pad - n) / hop + 1;
  Array out({rows, n / 2 + 1, frames, 2});
  for (Dim r = 0; r < rows; ++r)
    for (Dim f = 0; f < frames; ++f) {
      Signal s;
      for (Dim j = 0; j < n; ++j) {
        Dim t = f * hop + j - pad;
        if (t < 0) t = -t;
        if (t >= time) t = 2 * time - 2 - t;
        s.push_back(x.at({r, t}) * (window.empty() ? 1 : window[static_cast<size_t>(j)]));
      }
      const Signal y = dft(s, n, -1);
      for (Dim k = 0; k <= n / 2; ++k) {
        out.at({r, k, f, 0}) = y[static_cast<size_t>(k)].real();
        out.at({r, k, f, 1}) = y[static_cast<size_t>(k)].imag();
      }
    }
  return out;
}
std::vector<double> plain_hann(int64_t n) {
  std::vector<double> w;
  for (int64_t i = 0; i < n; ++i)
    w.push_back(0.5 - 0.5 * std::cos(2 * M_PI * static_cast<double>(i) / static_cast<double>(n)));
  return w;
}

OpCase make(const std::string& name, const std::vector<Dims>& shapes, CaseCall call,
            CaseReference reference) {
  OpCase op_case;
  op_case.name = name;
  for (const Dims& shape : shapes) op_case.inputs.push_back({shape});
  op_case.call = std::move(call);
  op_case.reference = std::move(reference);
  op_case.dtypes = {};
  op_case.tolerance = 4e-6;
  return op_case;
}

Tensor of(const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }

}  // namespace

void add_fft_cases(std::vector<OpCase>& cases) {
  struct Way {
    const char* name;
    Dims shape;  // of the complex input
    FftOptions options;
  };
  const Way ways[] = {
      {"", {3, 8, 2}, {}},
      {"/five", {2, 5, 2}, {}},
      {"/seven", {2, 7, 2}, {}},
      {"/thirty", {20, 30, 2}, {}},
      {"/one", {3, 1, 2}, {}},
      {"/first_axis", {6, 3, 2}, {.axis = 0}},
      {"/longer", {2, 5, 2}, {.n = 8}},
      {"/shorter", {2, 7, 2}, {.n = 4}},
      {"/ortho", {2, 6, 2}, {.norm = FftNorm::ortho}},
      {"/forward", {2, 6, 2}, {.norm = FftNorm::forward}},
      {"/vector", {9, 2}, {}},
      {"/empty", {0, 4, 2}, {}},
  };
  for (const Way& w : ways) {
    const FftOptions o = w.options;
    cases.push_back(make(
        str("fft", w.name), {w.shape}, [=](In in) { return fft(in[0], o); },
        [=](Arrays in) { return reference_fft(in[0], false, o); }));
    cases.push_back(make(
        str("ifft", w.name), {w.shape}, [=](In in) { return ifft(in[0], o); },
        [=](Arrays in) { return reference_fft(in[0], true, o); }));
    Dims real_shape = w.shape;
    real_shape.erase(real_shape.rank() - 1);
    cases.push_back(make(
        str("rfft", w.name), {real_shape}, [=](In in) { return rfft(in[0], o); },
        [=](Arrays in) { return reference_rfft(in[0], o); }));
    if (std::string(w.name) == "/one") continue;  // 2 · (1 - 1) = 0 values
    cases.push_back(make(
        str("irfft", w.name), {w.shape}, [=](In in) { return irfft(in[0], o); },
        [=](Arrays in) { return reference_irfft(in[0], o); }));
  }
  cases.push_back(make(
      "irfft/odd", {{2, 4, 2}}, [](In in) { return irfft(in[0], {.n = 7}); },
      [](Arrays in) { return reference_irfft(in[0], {.n = 7}); }));
  cases.push_back(make(
      "fft2", {{2, 3, 4, 2}}, [](In in) { return fft2(in[0]); },
      [](Arrays in) { return reference_fft(reference_fft(in[0], false), false, {.axis = 1}); }));
  cases.push_back(make(
      "ifft2", {{3, 4, 2}}, [](In in) { return ifft2(in[0]); },
      [](Arrays in) { return reference_fft(reference_fft(in[0], true), true, {.axis = 0}); }));
  cases.push_back(make(
      "rfft2", {{3, 5}}, [](In in) { return rfft2(in[0]); },
      [](Arrays in) { return reference_fft(reference_rfft(in[0]), false, {.axis = 0}); }));
  cases.push_back(make(
      "irfft2", {{3, 4, 2}}, [](In in) { return irfft2(in[0], 7); },
      [](Arrays in) { return reference_irfft(reference_fft(in[0], true, {.axis = 0}), {.n = 7}); }));
  for (const bool back : {false, true})
    for (const Dim n : {5, 6})
      cases.push_back(make(
          str(back ? "ifftshift" : "fftshift", n == 5 ? "" : "/even"), {{n, 2}},
          [=](In in) { return back ? ifftshift(in[0], 0) : fftshift(in[0], 0); },
          [=](Arrays in) {
            Array out(in[0].shape);
            for (Dim i = 0; i < n; ++i)
              for (Dim c = 0; c < 2; ++c)
                out.at({(i + (back ? n - n / 2 : n / 2)) % n, c}) = in[0].at({i, c});
            return out;
          }));

  cases.push_back(make(
      "complex_mul", {{3, 2}, {3, 2}}, [](In in) { return complex_mul(in[0], in[1]); },
      [](Arrays in) {
        Array out = in[0];
        for (Dim i = 0; i < 3; ++i) {
          out[2 * i] = in[0][2 * i] * in[1][2 * i] - in[0][2 * i + 1] * in[1][2 * i + 1];
          out[2 * i + 1] = in[0][2 * i] * in[1][2 * i + 1] + in[0][2 * i + 1] * in[1][2 * i];
        }
        return out;
      }));
  cases.push_back(make(
      "complex_conj", {{3, 2}}, [](In in) { return complex_conj(in[0]); },
      [](Arrays in) {
        Array out = in[0];
        for (Dim i = 0; i < 3; ++i) out[2 * i + 1] = -out[2 * i + 1];
        return out;
      }));
  cases.push_back(make(
      "complex_abs", {{3, 2}}, [](In in) { return complex_abs(in[0]); },
      [](Arrays in) {
        Array out(Dims{3});
        for (Dim i = 0; i < 3; ++i) out[i] = std::hypot(in[0][2 * i], in[0][2 * i + 1]);
        return out;
      }));

  struct Frames {
    const char* name;
    Dims shape;
    int64_t n, hop;
    bool center, window;
  };
  const Frames framings[] = {{"", {2, 30}, 8, 3, true, true},       {"/plain", {1, 30}, 8, 5, false, false},
                             {"/odd", {2, 17}, 7, 2, true, true},   {"/gaps", {1, 29}, 6, 9, true, false},
                             {"/empty", {0, 30}, 8, 4, true, true}, {"/mirrored", {1, 5}, 8, 1, true, true}};
  for (const Frames& f : framings) {
    const auto options = [f](const Tensor& x) {
      return StftOptions{.n_fft = f.n,
                         .hop = f.hop,
                         .window = f.window ? hann_window(f.n, true, x.dtype(), x.device()) : Tensor(),
                         .center = f.center};
    };
    const auto transformed = [f](Arrays in) {
      return reference_stft(in[0], f.n, f.hop, f.window ? plain_hann(f.n) : std::vector<double>(), f.center);
    };
    cases.push_back(make(
        str("stft", f.name), {f.shape}, [=](In in) { return stft(in[0], options(in[0])); }, transformed));
    if (f.shape[0] == 0 || std::string(f.name) != "") continue;
    cases.push_back(make(
        "spectrogram", {f.shape}, [=](In in) { return spectrogram(in[0], options(in[0])); },
        [=](Arrays in) {
          const Array z = transformed(in);
          Array out({z.shape[0], z.shape[1], z.shape[2]});
          for (int64_t i = 0; i < out.size(); ++i) out[i] = z[2 * i] * z[2 * i] + z[2 * i + 1] * z[2 * i + 1];
          return out;
        }));
  }
  for (const Dim rows :
       {2, 0})  // the inverse of the transform of something: that thing, where windows overlap
    cases.push_back(make(
        rows ? "istft" : "istft/empty", {{rows, 24}},
        [](In in) {
          const StftOptions o{
              .n_fft = 8, .hop = 2, .window = hamming_window(8, true, in[0].dtype(), in[0].device())};
          return istft(stft(in[0], o), o, 24);
        },
        [](Arrays in) { return in[0]; }));
  OpCase window = make(
      "hann_window", {{7}},
      [](In in) { return hann_window(in[0].size(), true, in[0].dtype(), in[0].device()); },
      [](Arrays in) { return Array(in[0].shape, plain_hann(in[0].size())); });
  window.gradient = window.second_order = false;
  window.tolerance64 = 1e-13;
  cases.push_back(window);
  window.name = "hamming_window";
  window.call = [](In in) { return hamming_window(in[0].size(), false, in[0].dtype(), in[0].device()); };
  window.reference = [](Arrays in) {
    Array out(in[0].shape);
    for (int64_t i = 0; i < out.size(); ++i)
      out[i] =
          0.54 - 0.46 * std::cos(2 * M_PI * static_cast<double>(i) / static_cast<double>(out.size() - 1));
    return out;
  };
  cases.push_back(window);
  for (const bool slaney : {false, true}) {
    OpCase mel = make(
        slaney ? "mel_filter_bank/slaney" : "mel_filter_bank", {{17, 6}},
        [=](In in) {
          const MelOptions o{.bands = in[0].size(1), .sample_rate = 8000, .low = 40, .slaney = slaney};
          return mel_filter_bank(in[0].size(0), o, in[0].dtype(), in[0].device());
        },
        [=](Arrays in) {
          const auto mel_of = [=](double f) {
            if (!slaney) return 1127.0104805595 * std::log1p(f / 700);  // 2595 / ln 10
            return f <= 1000 ? f / (200 / 3.) : 15 + std::log(f / 1000) * 27 / std::log(6.4);
          };
          Array out(in[0].shape);
          // A triangle is linear in Hz between its edges: found here by bisection over the scale.
          const auto hertz_of = [&](double m) {
            double low = 0, high = 4000;
            for (int i = 0; i < 200; ++i) (mel_of((low + high) / 2) < m ? low : high) = (low + high) / 2;
            return low;
          };
          for (Dim b = 0; b < 6; ++b) {
            double edge[3];
            for (int i = 0; i < 3; ++i)
              edge[i] = hertz_of(mel_of(40) + (mel_of(4000) - mel_of(40)) * static_cast<double>(b + i) / 7);
            for (Dim f = 0; f < 17; ++f) {
              const double hz = 250. * static_cast<double>(f);
              double height =
                  hz <= edge[1] ? (hz - edge[0]) / (edge[1] - edge[0]) : (edge[2] - hz) / (edge[2] - edge[1]);
              if (height < 0) height = 0;
              out.at({f, b}) = slaney ? height * 2 / (edge[2] - edge[0]) : height;
            }
          }
          return out;
        });
    mel.gradient = mel.second_order = false;
    mel.tolerance64 = 1e-9;
    cases.push_back(mel);
  }
}

void add_fft_errors(std::vector<ErrorCase>& errors) {
  for (const auto& [name, call] : {std::pair<std::string, Tensor (*)(const Tensor&, FftOptions)>{"fft", fft},
                                   {"ifft", ifft},
                                   {"irfft", irfft}}) {
    errors.push_back({name + "/real",
                      [call = call] {
                        call(of({4, 3}), {});
                      },
                      {name + ": ", "(4, 3)", "complex("}});
    errors.push_back({name + "/axis", [call = call] { call(of({4, 2}), {.axis = 1}); }, {name + ": ", "1"}});
    errors.push_back({name + "/n", [call = call] { call(of({4, 2}), {.n = -3}); }, {name + ": ", "-3"}});
    errors.push_back({name + "/type",
                      [call = call] {
                        call(of({4, 2}, DType::bf16), {});
                      },
                      {name + ": ", "bf16", "f32 or f64"}});
  }
  errors.push_back({"fft/nothing", [] { fft(of({0, 2})); }, {"fft: ", "at least 1", "(0, 2)"}});
  errors.push_back({"rfft/scalar", [] { rfft(of({})); }, {"rfft: ", "()"}});
  errors.push_back({"irfft/one", [] { irfft(of({1, 2})); }, {"irfft: ", "at least 1"}});
  errors.push_back({"fft2/rank", [] { fft2(of({4, 2})); }, {"fft2: ", "(4, 2)"}});
  errors.push_back({"stft/short", [] { stft(of({3}), {.n_fft = 8}); }, {"stft: ", "3 values", "n_fft 8"}});
  errors.push_back(
      {"stft/frame", [] { stft(of({3}), {.n_fft = 8, .center = false}); }, {"stft: ", "3 values"}});
  errors.push_back({"stft/hop", [] { stft(of({30}), {.n_fft = 8, .hop = -1}); }, {"stft: ", "-1"}});
  errors.push_back({"stft/window",
                    [] { stft(of({30}), {.n_fft = 8, .window = of({9})}); },
                    {"stft: ", "(9,)", "n_fft 8"}});
  errors.push_back({"istft/bins", [] { istft(of({4, 3, 2}), {.n_fft = 8}); }, {"istft: ", "(4, 3, 2)"}});
  errors.push_back({"istft/length", [] { istft(of({5, 3, 2}), {.n_fft = 8}, 99); }, {"istft: ", "99"}});
  errors.push_back(
      {"mel_filter_bank/range", [] { mel_filter_bank(9, {.low = 9000}); }, {"mel_filter_bank: ", "9000"}});
  errors.push_back({"complex/shapes", [] { complex(of({2}), of({3})); }, {"complex: ", "(2,)", "(3,)"}});
  errors.push_back({"hann_window/size", [] { hann_window(-1); }, {"hann_window: ", "-1"}});
}

}  // namespace tandem::testing
