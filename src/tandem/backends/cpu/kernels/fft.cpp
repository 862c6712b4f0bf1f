// Fourier transforms of any size: steps of radix 4, 5, 3 and 2 that leave the result in order (Stockham), and for sizes
// with other factors a convolution with a chirp (Bluestein) of a size that is a power of two. Several transforms of a
// batch run side by side, so that the inner loops are long; every element has the same arithmetic at any place.
// levels: two
#include "tandem/ops/fft.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/mutex.h"
#include "tandem/core/threads.h"
#include "tandem/ops/elementary_functions.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kSideBySide = 16;  // transforms
constexpr int64_t kLongest = 4096;   // beyond this size one at a time
constexpr int64_t kWork = 1 << 15;   // elements a chunk

/// exp(-2πi k / n), k reduced to an eighth of the circle, where the polynomials are best.
void root(int64_t k, int64_t n, double& re, double& im) {
  k %= n;
  const int64_t eighth = 8 * k / n;  // 0 … 7
  const int64_t quarter = (eighth + 1) / 2;
  // 4k - quarter·n lies in -n/2 … n/2: an angle of at most a sixteenth to each side, times 4
  const double angle = 1.5707963267948966 * static_cast<double>(4 * k - quarter * n) / static_cast<double>(n);
  const double c = cos_(angle), s = sin_(angle);
  switch (quarter & 3) {
    case 0:
      re = c, im = -s;
      break;
    case 1:
      re = -s, im = -c;
      break;
    case 2:
      re = -c, im = s;
      break;
    default:
      re = s, im = c;
  }
}

template <class T>
struct Roots {
  std::vector<T> re, im;
  Roots() = default;
  Roots(int64_t count, int64_t n, int64_t step = 1) : re(static_cast<size_t>(count)), im(re.size()) {
    for (int64_t k = 0; k < count; ++k) {
      double x, y;
      root(k * step, n, x, y);
      re[static_cast<size_t>(k)] = static_cast<T>(x);
      im[static_cast<size_t>(k)] = static_cast<T>(y);
    }
  }
};

/// Real and imaginary parts, apart.
template <class T>
struct Split {
  T *re, *im;
  Split operator+(int64_t i) const { return {re + i, im + i}; }
};

/// One step: from (radix, m, s) with `length` = radix · m to (m, radix, s), turned by roots of `length`.
/// Input u of butterfly p lies m · s after input u - 1, output u lies s after output u - 1. The inner loop over s
/// values, which all take the same roots, is long from the start because `count` transforms lie side by side.
template <int kRadix, class T>
void radix_step(Split<const T> from, Split<T> to, int64_t m, int64_t s, const Roots<T>& roots, int64_t step) {
  for (int64_t p = 0; p < m; ++p) {
    T wr[kRadix], wi[kRadix];
    for (int u = 1; u < kRadix; ++u) {
      wr[u] = roots.re[static_cast<size_t>(p * u * step)];
      wi[u] = roots.im[static_cast<size_t>(p * u * step)];
    }
    const Split<const T> in = from + p * s;
    const Split<T> out = to + p * kRadix * s;
    const int64_t gap = m * s;
    const T* __restrict xr = in.re, * __restrict xi = in.im;
    T* __restrict yr = out.re, * __restrict yi = out.im;
    const auto put = [&](int u, int64_t q, T re, T im) {
      yr[u * s + q] = re * wr[u] - im * wi[u];
      yi[u * s + q] = re * wi[u] + im * wr[u];
    };
    for (int64_t q = 0; q < s; ++q) {
      if constexpr (kRadix == 2) {
        const T ar = xr[q], ai = xi[q], br = xr[q + gap], bi = xi[q + gap];
        yr[q] = ar + br;
        yi[q] = ai + bi;
        put(1, q, ar - br, ai - bi);
      } else if constexpr (kRadix == 3) {
        constexpr T kSine = static_cast<T>(0.86602540378443864676);
        const T ar = xr[q], ai = xi[q];
        const T pr = xr[q + gap] + xr[q + 2 * gap], pi = xi[q + gap] + xi[q + 2 * gap];
        const T dr = kSine * (xi[q + gap] - xi[q + 2 * gap]), di = kSine * (xr[q + gap] - xr[q + 2 * gap]);
        const T hr = ar - T(0.5) * pr, hi = ai - T(0.5) * pi;
        yr[q] = ar + pr;
        yi[q] = ai + pi;
        put(1, q, hr + dr, hi - di);
        put(2, q, hr - dr, hi + di);
      } else if constexpr (kRadix == 4) {
        const T ar = xr[q] + xr[q + 2 * gap], ai = xi[q] + xi[q + 2 * gap];
        const T br = xr[q] - xr[q + 2 * gap], bi = xi[q] - xi[q + 2 * gap];
        const T cr = xr[q + gap] + xr[q + 3 * gap], ci = xi[q + gap] + xi[q + 3 * gap];
        const T dr = xr[q + gap] - xr[q + 3 * gap], di = xi[q + gap] - xi[q + 3 * gap];
        yr[q] = ar + cr;
        yi[q] = ai + ci;
        put(1, q, br + di, bi - dr);
        put(2, q, ar - cr, ai - ci);
        put(3, q, br - di, bi + dr);
      } else {
        constexpr T kCos1 = static_cast<T>(0.30901699437494742410),
                    kCos2 = static_cast<T>(-0.80901699437494742410);
        constexpr T kSin1 = static_cast<T>(0.95105651629515357212),
                    kSin2 = static_cast<T>(0.58778525229247312917);
        const T ar = xr[q], ai = xi[q];
        const T p1r = xr[q + gap] + xr[q + 4 * gap], p1i = xi[q + gap] + xi[q + 4 * gap];
        const T m1r = xr[q + gap] - xr[q + 4 * gap], m1i = xi[q + gap] - xi[q + 4 * gap];
        const T p2r = xr[q + 2 * gap] + xr[q + 3 * gap], p2i = xi[q + 2 * gap] + xi[q + 3 * gap];
        const T m2r = xr[q + 2 * gap] - xr[q + 3 * gap], m2i = xi[q + 2 * gap] - xi[q + 3 * gap];
        const T c1r = ar + kCos1 * p1r + kCos2 * p2r, c1i = ai + kCos1 * p1i + kCos2 * p2i;
        const T c2r = ar + kCos2 * p1r + kCos1 * p2r, c2i = ai + kCos2 * p1i + kCos1 * p2i;
        const T s1r = kSin1 * m1r + kSin2 * m2r, s1i = kSin1 * m1i + kSin2 * m2i;
        const T s2r = kSin2 * m1r - kSin1 * m2r, s2i = kSin2 * m1i - kSin1 * m2i;
        yr[q] = ar + p1r + p2r;
        yi[q] = ai + p1i + p2i;
        put(1, q, c1r + s1i, c1i - s1r);
        put(2, q, c2r + s2i, c2i - s2r);
        put(3, q, c2r - s2i, c2i + s2r);
        put(4, q, c1r - s1i, c1i + s1r);
      }
    }
  }
}

/// How to transform n values.
template <class T>
struct Plan {
  int64_t n, size;  // size: of the transforms that are run, a power of two for Bluestein
  std::vector<int> radices;
  Roots<T> roots;                       // of `size`
  Roots<T> chirp;                       // exp(-πi k² / n); empty where n has small factors only
  std::vector<T> filter_re, filter_im;  // transform of the chirp's conjugate, divided by size

  explicit Plan(int64_t count) : n(count), size(count) {
    int64_t rest = n;
    for (int radix : {4, 2, 3, 5})
      for (; rest % radix == 0; rest /= radix) radices.push_back(radix);
    const bool small_factors = rest == 1;
    if (!small_factors) {
      radices.clear();
      // The next power of two that a linear convolution of n with n values fits into.
      while (size < 2 * n - 1 || (size & (size - 1))) size = (size | (size - 1)) + 1;
      for (rest = size; rest % 4 == 0; rest /= 4) radices.push_back(4);
      if (rest == 2) radices.push_back(2);
    }
    roots = Roots<T>(size, size);
    if (!small_factors) make_chirp();
  }

  /// Transforms `count` sequences that lie side by side; a and b hold size · count values each. The result is in the
  /// one that is returned.
  Split<T> run(Split<T> a, Split<T> b, int64_t count) const {
    if (chirp.re.empty()) return steps(a, b, count);
    for (int64_t k = 0; k < n; ++k)
      times(a + k * count, chirp.re[static_cast<size_t>(k)], chirp.im[static_cast<size_t>(k)], count);
    std::fill(a.re + n * count, a.re + size * count, T(0));
    std::fill(a.im + n * count, a.im + size * count, T(0));
    Split<T> x = steps(a, b, count);
    for (int64_t k = 0; k < size; ++k)
      times(x + k * count, filter_re[static_cast<size_t>(k)], filter_im[static_cast<size_t>(k)], count);
    // The inverse is the transform with the parts swapped, before and after.
    const Split<T> other = x.re == a.re ? b : a, y = steps({x.im, x.re}, {other.im, other.re}, count);
    x = {y.im, y.re};
    for (int64_t k = 0; k < n; ++k)
      times(x + k * count, chirp.re[static_cast<size_t>(k)], chirp.im[static_cast<size_t>(k)], count);
    return x;
  }

 private:
  static void times(Split<T> x, T re, T im, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const T a = x.re[i], b = x.im[i];
      x.re[i] = a * re - b * im;
      x.im[i] = a * im + b * re;
    }
  }
  void make_chirp() {
    const size_t length = static_cast<size_t>(n);
    chirp.re.resize(length);
    chirp.im.resize(length);
    // The filter is computed in f64 and rounded once. A size that is a power of two needs no chirp, so this ends.
    const Plan<double>* exact = nullptr;
    std::unique_ptr<Plan<double>> made;
    if constexpr (std::is_same_v<T, double>)
      exact = this;
    else
      exact = (made = std::make_unique<Plan<double>>(size)).get();
    std::vector<double> memory(static_cast<size_t>(4 * size));
    const Split<double> a{memory.data(), memory.data() + size}, b = a + 2 * size;
    for (int64_t k = 0; k < n; ++k) {
      double re, im;
      // k² modulo 2n in integers: the angle stays exact for any k.
      const auto square = static_cast<unsigned __int128>(k) * static_cast<unsigned __int128>(k);
      root(static_cast<int64_t>(square % static_cast<unsigned __int128>(2 * n)), 2 * n, re, im);
      chirp.re[static_cast<size_t>(k)] = static_cast<T>(re);
      chirp.im[static_cast<size_t>(k)] = static_cast<T>(im);
      a.re[k] = a.re[(size - k) % size] = re / static_cast<double>(size);
      a.im[k] = a.im[(size - k) % size] = -im / static_cast<double>(size);
    }
    const Split<double> filter = exact->steps(a, b, 1);
    filter_re.assign(filter.re, filter.re + size);
    filter_im.assign(filter.im, filter.im + size);
  }

 public:
  Split<T> steps(Split<T> a, Split<T> b, int64_t count) const {
    int64_t length = size, side = count;
    for (int radix : radices) {
      const int64_t m = length / radix, step = size / length;
      const Split<const T> from{a.re, a.im};
      if (radix == 4)
        radix_step<4>(from, b, m, side, roots, step);
      else if (radix == 2)
        radix_step<2>(from, b, m, side, roots, step);
      else if (radix == 3)
        radix_step<3>(from, b, m, side, roots, step);
      else
        radix_step<5>(from, b, m, side, roots, step);
      std::swap(a, b);
      length = m;
      side *= radix;
    }
    return a;
  }
};

// Made at start-up: a thread inside a first use while another forks would leave the child waiting for ever.
Mutex& g_plans_mutex = *new Mutex(LockOrder::plans);
template <class T>
auto& g_plans = *new std::map<int64_t, std::shared_ptr<const Plan<T>>>;

/// Plans are kept; when there are many, all are dropped.
template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t n) {
  auto& plans = g_plans<T>;
  const std::lock_guard lock(g_plans_mutex);
  auto& plan = plans[n];
  if (!plan) {
    plan = std::make_shared<const Plan<T>>(n);
    if (plans.size() > 64) {
      auto kept = plan;
      plans.clear();
      return plans[n] = kept;
    }
  }
  return plan;
}

/// Runs `rows` transforms of size n: load(row, place, values …) and store move them between memory and the split
/// arrays, `count` rows at a time.
template <class T, class Load, class Store>
void transform_rows(int64_t rows, int64_t n, const Load& load, const Store& store) {
  if (rows == 0) return;
  const auto plan = plan_of<T>(n);
  const int64_t side = n > kLongest ? 1 : std::min(kSideBySide, rows), size = plan->size;
  const int64_t grain = side * std::max<int64_t>(1, kWork / (size * side));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> memory(static_cast<size_t>(4 * size * side));
    const Split<T> a{memory.data(), memory.data() + size * side}, b = a + 2 * size * side;
    for (int64_t row = begin; row < end; row += side) {
      const int64_t count = std::min(side, end - row);
      for (int64_t i = 0; i < count; ++i) load(row + i, a + i, count);
      const Split<T> result = plan->run(a, b, count);
      for (int64_t i = 0; i < count; ++i) store(row + i, result + i, count);
    }
  });
}

template <class F>
void by_type(DType dtype, F&& f) {
  if (dtype == DType::f32)
    f(float{});
  else
    f(double{});
}

void fft(const KernelArgs& args) {
  if (args.out[0].size() == 0) return;  // no tables for a size that nothing has
  const auto& attrs = args.attributes<FftAttrs>();
  const int64_t n = attrs.n, rows = args.out[0].size() / std::max<int64_t>(1, 2 * n);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    const T scale = static_cast<T>(attrs.scale);
    const int re = attrs.inverse ? 1 : 0, im = 1 - re;  // the inverse: parts swapped on both ways
    transform_rows<T>(
        rows, n,
        [&](int64_t row, Split<T> to, int64_t step) {
          const T* from = in + row * 2 * n;
          for (int64_t i = 0; i < n; ++i)
            to.re[i * step] = from[2 * i + re], to.im[i * step] = from[2 * i + im];
        },
        [&](int64_t row, Split<T> from, int64_t step) {
          T* to = out + row * 2 * n;
          for (int64_t i = 0; i < n; ++i) {
            to[2 * i + re] = from.re[i * step] * scale;
            to[2 * i + im] = from.im[i * step] * scale;
          }
        });
  });
}

/// Even sizes pair neighbours into n / 2 complex values, transform those and take the two halves apart.
void rfft(const KernelArgs& args) {
  if (args.out[0].size() == 0) return;  // no tables for a size that nothing has
  const auto& attrs = args.attributes<FftAttrs>();
  const int64_t n = attrs.n, bins = n / 2 + 1, rows = args.out[0].size() / (2 * bins);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    const T scale = static_cast<T>(attrs.scale);
    if (n % 2) {
      transform_rows<T>(
          rows, n,
          [&](int64_t row, Split<T> to, int64_t step) {
            for (int64_t i = 0; i < n; ++i) to.re[i * step] = in[row * n + i], to.im[i * step] = T(0);
          },
          [&](int64_t row, Split<T> from, int64_t step) {
            T* to = out + row * 2 * bins;
            for (int64_t i = 0; i < bins; ++i) {
              to[2 * i] = from.re[i * step] * scale;
              to[2 * i + 1] = i == 0 ? T(0) : from.im[i * step] * scale;
            }
          });
      return;
    }
    const int64_t half = n / 2;
    const Roots<T> turn(bins, n);
    transform_rows<T>(
        rows, half,
        [&](int64_t row, Split<T> to, int64_t step) {
          const T* from = in + row * n;
          for (int64_t i = 0; i < half; ++i) to.re[i * step] = from[2 * i], to.im[i * step] = from[2 * i + 1];
        },
        [&](int64_t row, Split<T> from, int64_t step) {
          T* to = out + row * 2 * bins;
          for (int64_t k = 0; k < bins; ++k) {
            // With z = even + i · odd samples: E = (Z[k] + conj Z[-k]) / 2, O = (Z[k] - conj Z[-k]) / 2i, X[k] = E +
            // w^k · O.
            const int64_t i = k % half * step, j = (half - k) % half * step;
            const T even_re = (from.re[i] + from.re[j]) * T(0.5),
                    even_im = (from.im[i] - from.im[j]) * T(0.5);
            const T odd_re = (from.im[i] + from.im[j]) * T(0.5), odd_im = (from.re[j] - from.re[i]) * T(0.5);
            const T wr = turn.re[static_cast<size_t>(k)], wi = turn.im[static_cast<size_t>(k)];
            const bool alone = k == 0 || k == half;
            to[2 * k] = (even_re + (odd_re * wr - odd_im * wi)) * scale;
            to[2 * k + 1] = alone ? T(0) : (even_im + (odd_re * wi + odd_im * wr)) * scale;
          }
        });
  });
}

void irfft(const KernelArgs& args) {
  if (args.out[0].size() == 0) return;  // no tables for a size that nothing has
  const auto& attrs = args.attributes<FftAttrs>();
  const int64_t n = attrs.n, bins = n / 2 + 1, rows = args.out[0].size() / n;
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    const T scale = static_cast<T>(attrs.scale);
    if (n % 2) {  // the whole spectrum, its parts swapped: the inverse
      transform_rows<T>(
          rows, n,
          [&](int64_t row, Split<T> to, int64_t step) {
            const T* from = in + row * 2 * bins;
            to.im[0] = from[0];
            to.re[0] = T(0);
            for (int64_t k = 1; k < bins; ++k) {
              to.im[k * step] = to.im[(n - k) * step] = from[2 * k];
              to.re[k * step] = from[2 * k + 1];
              to.re[(n - k) * step] = -from[2 * k + 1];
            }
          },
          [&](int64_t row, Split<T> from, int64_t step) {
            for (int64_t i = 0; i < n; ++i) out[row * n + i] = from.im[i * step] * scale;
          });
      return;
    }
    const int64_t half = n / 2;
    const Roots<T> turn(bins, n);
    transform_rows<T>(
        rows, half,
        [&](int64_t row, Split<T> to, int64_t step) {
          const T* from = in + row * 2 * bins;
          const auto imaginary = [&](int64_t k) { return k == 0 || k == half ? T(0) : from[2 * k + 1]; };
          // The way back, without the halves: twice the values, through an inverse of half the size, is the inverse
          // of size n without its factor 1/n, which is part of `scale`.
          for (int64_t k = 0; k < half; ++k) {
            const int64_t j = half - k;
            const T even_re = from[2 * k] + from[2 * j], even_im = imaginary(k) - imaginary(j);
            const T gap_re = from[2 * k] - from[2 * j], gap_im = imaginary(k) + imaginary(j);
            const T wr = turn.re[static_cast<size_t>(k)], wi = -turn.im[static_cast<size_t>(k)];
            const T odd_re = gap_re * wr - gap_im * wi, odd_im = gap_re * wi + gap_im * wr;
            to.im[k * step] = even_re - odd_im;  // even + i · odd, parts swapped
            to.re[k * step] = even_im + odd_re;
          }
        },
        [&](int64_t row, Split<T> from, int64_t step) {
          T* to = out + row * n;
          for (int64_t i = 0; i < half; ++i) {
            to[2 * i] = from.im[i * step] * scale;
            to[2 * i + 1] = from.re[i * step] * scale;
          }
        });
  });
}

void frames(const KernelArgs& args) {
  const auto f = args.attributes<FrameAttrs>();
  const int64_t count = args.out[0].size() / std::max<int64_t>(1, f.size);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_ranges(count, 1 + kWork / f.size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* from = args.in[0].as<T>() + i / f.frames * f.time;
        T* to = args.out[0].as<T>() + i * f.size;
        for (int64_t j = 0; j < f.size; ++j) to[j] = from[f.source(i % f.frames * f.hop + j)];
      }
    });
  });
}

void overlap_add(const KernelArgs& args) {
  const auto f = args.attributes<FrameAttrs>();
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_ranges(args.out[0].size(), kWork / 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        args.out[0].as<T>()[i] =
            f.gathered(args.in[0].as<const T>() + i / f.time * f.frames * f.size, i % f.time);
    });
  });
}

}  // namespace

void register_fft_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_fft().kernels[cpu] = fft;
  op_rfft().kernels[cpu] = rfft;
  op_irfft().kernels[cpu] = irfft;
  op_frames().kernels[cpu] = frames;
  op_overlap_add().kernels[cpu] = overlap_add;
}

}  // namespace tandem::cpu::TD_ISA
