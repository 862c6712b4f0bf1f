// Normalisation of row-major tensors, seen as (samples, groups, channels, inner). A segment is the `inner` elements of
// one channel of one sample. Layer and group norm take rows of neighbouring segments, batch norm the segments of one
// channel in all samples. Sums run in the order of sums.h within a row or segment, and over segments in order in f64.
// loops: short
#include "tandem/ops/norm.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/backends/cpu/kernels/sums.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {

namespace {

template <class T>
using Compute = typename ComputeType<T>::type;

template <class C>
C reciprocal_root(C variance, double eps) {
  return static_cast<C>(1 / sqrt_(static_cast<double>(variance) + eps));
}

/// A parameter, or a constant where it is not given.
template <class C>
void spread(const Buffer* parameter, C otherwise, C* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = parameter ? parameter->as<C>()[i] : otherwise;
}

struct Moments {
  double mean, squares;  // squares: the sum of squared distances from the mean
};
/// Of nothing both are 0: gradients of weights then are too.
/// Two passes: distances from the mean, rather than squares of x, keep their bits where the mean is large.
template <class C, class T>
Moments moments_of(const T* x, int64_t n) {
  if (n == 0) return {0, 0};
  const double mean = sum_of<C>(
                          n, [](auto v) { return v; }, x) /
                      static_cast<double>(n);
  const C center = static_cast<C>(mean);
  const double squares = sum_of<C>(
      n,
      [center](auto v) {
        const auto away = v - center;
        return away * away;
      },
      x);
  return {mean, squares};
}

template <class C, class T>
void scale_segment(const T* __restrict x, T* __restrict y, int64_t n, C mean, C scale, C shift) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>((static_cast<C>(x[i]) - mean) * scale + shift);
}

/// The same with a weight and a bias for each element.
template <class C, class T>
void scale_row(const T* __restrict x, T* __restrict y, int64_t n, C mean, C root, const C* __restrict weight,
               const C* __restrict bias) {
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<T>((static_cast<C>(x[i]) - mean) * root * weight[i] + bias[i]);
}

/// The gradient of scale_row, with what the mean and the root lose (b and d), and the row's part of dweight and dbias.
template <class C, class T>
void gradient_row(const T* __restrict g, const T* __restrict x, T* __restrict dx, int64_t n, C mean, C root,
                  const C* __restrict weight, C b, C d, C* __restrict dweight, C* __restrict dbias) {
  for (int64_t i = 0; i < n; ++i) {
    const C away = static_cast<C>(x[i]) - mean, gi = static_cast<C>(g[i]);
    dx[i] = static_cast<T>(gi * weight[i] * root - b - away * d);
    dweight[i] += gi * away * root;
    dbias[i] += gi;
  }
}

/// dx = g · a - b - (x - mean) · d
template <class C, class T>
void gradient_segment(const T* __restrict g, const T* __restrict x, T* __restrict dx, int64_t n, C mean, C a,
                      C b, C d) {
  for (int64_t i = 0; i < n; ++i)
    dx[i] = static_cast<T>(static_cast<C>(g[i]) * a - b - (static_cast<C>(x[i]) - mean) * d);
}

// ---- layer and group norm: rows of channels · inner elements

template <class T>
void norm_rows(const KernelArgs& args) {
  using C = Compute<T>;
  const auto& a = args.attributes<NormAttrs>();
  const int64_t rows = a.rows(false), n = a.count(false), all = a.groups * a.channels;
  C *mean = args.out[1].as<C>(), *variance = args.out[2].as<C>();
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  C* weight = static_cast<C*>(args.workspace(static_cast<size_t>(2 * all) * sizeof(C)));
  C* bias = weight + all;
  spread(a.has_weight ? &args.in[1] : nullptr, C(1), weight, all);
  spread(a.has_bias ? &args.in[1 + a.has_weight] : nullptr, C(0), bias, all);
  parallel_ranges(rows, kGrain / (n + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * n;
      const Moments m = moments_of<C>(row, n);
      mean[r] = static_cast<C>(m.mean);
      variance[r] = static_cast<C>(n ? m.squares / static_cast<double>(n) : 0);
      const C root = reciprocal_root(variance[r], a.eps), center = mean[r];
      const C *w = weight + r % a.groups * a.channels, *b = bias + r % a.groups * a.channels;
      T* to = y + r * n;
      if (a.inner == 1)
        scale_row(row, to, n, center, root, w, b);
      else
        for (int64_t c = 0; c < a.channels; ++c)
          scale_segment(row + c * a.inner, to + c * a.inner, a.inner, center, root * w[c], b[c]);
    }
  });
}

/// Adds up parts (count, n) over the first axis in order.
template <class C>
void add_parts(const C* parts, int64_t count, int64_t n, C* out) {
  parallel_ranges(n, kTile, [&](int64_t begin, int64_t end) {
    double totals[kTile] = {};
    for (int64_t p = 0; p < count; ++p)
      for (int64_t i = begin; i < end; ++i) totals[i - begin] += parts[p * n + i];
    for (int64_t i = begin; i < end; ++i) out[i] = static_cast<C>(totals[i - begin]);
  });
}

struct GradientBuffers {
  const Buffer *weight, *dweight, *dbias;
};
GradientBuffers gradient_buffers(const KernelArgs& args, const NormAttrs& a) {
  return {a.has_weight ? &args.in[4] : nullptr, a.has_weight ? &args.out[1] : nullptr,
          a.has_bias ? &args.out[1 + a.has_weight] : nullptr};
}

/// dx = root · (g w - mean(g w) - (x - mean) · root² · mean(g w (x - mean))). A task takes samples; the sums of a row
/// are its own, and parts of dweight and dbias belong to runs of samples that the shape fixes.
template <class T>
void norm_rows_gradient(const KernelArgs& args) {
  using C = Compute<T>;
  const auto& a = args.attributes<NormAttrs>();
  const int64_t n = a.count(false), all = a.groups * a.channels;
  const T *g = args.in[0].as<T>(), *x = args.in[1].as<T>();
  const C *mean = args.in[2].as<C>(), *variance = args.in[3].as<C>();
  T* dx = args.out[0].as<T>();
  const GradientBuffers buffers = gradient_buffers(args, a);
  // The parts of dweight and dbias: of runs of samples where a segment is one element, else of every sample.
  const int64_t least = kGrain / (all * a.inner + 1) + 1, even = (a.samples + 31) / 32;
  const int64_t most = even < 512 ? even : 512, run = a.inner > 1 ? 1 : least > most ? least : most;
  const int64_t runs = (a.samples + run - 1) / run;
  C* weight_parts = static_cast<C*>(args.workspace(static_cast<size_t>((2 * runs + 1) * all) * sizeof(C)));
  C *bias_parts = weight_parts + runs * all, *weight = bias_parts + runs * all;
  spread(buffers.weight, C(1), weight, all);
  const C inverse_n = static_cast<C>(1 / static_cast<double>(n));
  parallel_ranges(a.samples, a.inner > 1 ? least : run, [&](int64_t begin, int64_t end) {
    // Ranges begin at multiples of `run`: a run belongs to one task, and first / run is its part.
    for (int64_t first = begin; first < end; first += run) {
      C *dweight = weight_parts + first / run * all, *dbias = bias_parts + first / run * all;
      for (int64_t c = 0; c < all; ++c) dweight[c] = dbias[c] = 0;
      const int64_t last = first + run < end ? first + run : end;
      for (int64_t r = first * a.groups; r < last * a.groups; ++r) {
        const int64_t group = r % a.groups * a.channels;
        const T *gr = g + r * n, *xr = x + r * n;
        T* to = dx + r * n;
        const C center = mean[r], root = reciprocal_root(variance[r], a.eps);
        const C* w = weight + group;
        if (a.inner == 1) {
          const C total = static_cast<C>(sum_of<C>(
              n, [](auto gi, auto wi) { return gi * wi; }, gr, w));
          const C along = static_cast<C>(sum_of<C>(
              n, [center](auto gi, auto xi, auto wi) { return gi * wi * (xi - center); }, gr, xr, w));
          const C b = root * total * inverse_n, d = root * root * root * along * inverse_n;
          gradient_row(gr, xr, to, n, center, root, w, b, d, dweight + group, dbias + group);
          continue;
        }
        double total = 0, along = 0;
        for (int64_t c = 0; c < a.channels; ++c) {
          const T *gs = gr + c * a.inner, *xs = xr + c * a.inner;
          const double sum = sum_of<C>(
              a.inner, [](auto gi) { return gi; }, gs);
          const double moment = sum_of<C>(
              a.inner, [center](auto gi, auto xi) { return gi * (xi - center); }, gs, xs);
          total += sum * w[c];
          along += moment * w[c];
          dweight[group + c] = static_cast<C>(moment) * root;
          dbias[group + c] = static_cast<C>(sum);
        }
        const C b = root * static_cast<C>(total) * inverse_n;
        const C d = root * root * root * static_cast<C>(along) * inverse_n;
        for (int64_t c = 0; c < a.channels; ++c)
          gradient_segment(gr + c * a.inner, xr + c * a.inner, to + c * a.inner, a.inner, center, root * w[c],
                           b, d);
      }
    }
  });
  if (buffers.dweight) add_parts(weight_parts, runs, all, buffers.dweight->as<C>());
  if (buffers.dbias) add_parts(bias_parts, runs, all, buffers.dbias->as<C>());
}

// ---- batch norm: the segments of a channel in all samples

constexpr int64_t kSide = 64;  // channels side by side, where a segment is one element

/// Calls body(first channel, how many) over strips of channels.
template <class F>
void for_strips(int64_t channels, F&& body) {
  parallel_ranges(channels, kSide, [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

/// Mean and variance of each channel.
template <class T, class C>
void channel_moments(const KernelArgs& args, const NormAttrs& a, const T* x, C* mean, C* variance) {
  const double count = a.count(true) ? static_cast<double>(a.count(true)) : 1;
  if (a.inner == 1) {
    for_strips(a.channels, [&](int64_t first, int64_t width) {
      double totals[kSide] = {};
      for (int64_t s = 0; s < a.samples; ++s)
        for (int64_t c = 0; c < width; ++c) totals[c] += static_cast<C>(x[s * a.channels + first + c]);
      for (int64_t c = 0; c < width; ++c) mean[first + c] = static_cast<C>(totals[c] / count), totals[c] = 0;
      for (int64_t s = 0; s < a.samples; ++s)
        for (int64_t c = 0; c < width; ++c) {
          const C away = static_cast<C>(x[s * a.channels + first + c]) - mean[first + c];
          totals[c] += away * away;
        }
      for (int64_t c = 0; c < width; ++c) variance[first + c] = static_cast<C>(totals[c] / count);
    });
    return;
  }
  // Every segment on its own, then joined: Σ (x - mean)² = Σ own squares + inner · Σ (own mean - mean)².
  const int64_t segments = a.samples * a.channels;
  auto* parts = static_cast<Moments*>(args.workspace(static_cast<size_t>(segments) * sizeof(Moments)));
  parallel_ranges(segments, kGrain / (a.inner + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) parts[s] = moments_of<C>(x + s * a.inner, a.inner);
  });
  for_strips(a.channels, [&](int64_t first, int64_t width) {
    double means[kSide] = {}, squares[kSide] = {};
    for (int64_t s = 0; s < a.samples; ++s)
      for (int64_t c = 0; c < width; ++c) means[c] += parts[s * a.channels + first + c].mean;
    for (int64_t c = 0; c < width; ++c) means[c] /= a.samples ? static_cast<double>(a.samples) : 1;
    for (int64_t s = 0; s < a.samples; ++s)
      for (int64_t c = 0; c < width; ++c) {
        const Moments& part = parts[s * a.channels + first + c];
        const double away = part.mean - means[c];
        squares[c] += part.squares + static_cast<double>(a.inner) * away * away;
      }
    for (int64_t c = 0; c < width; ++c) {
      mean[first + c] = static_cast<C>(means[c]);
      variance[first + c] = static_cast<C>(squares[c] / count);
    }
  });
}

/// Calls row(offset) for every sample where a segment is one element, else segment(offset, channel).
template <class Row, class Segment>
void for_segments(const NormAttrs& a, Row&& row, Segment&& segment) {
  if (a.inner == 1)
    parallel_ranges(a.samples, kGrain / (a.channels + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) row(s * a.channels);
    });
  else
    parallel_ranges(a.samples * a.channels, kGrain / (a.inner + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) segment(s * a.inner, s % a.channels);
    });
}

template <class T>
void norm_channels(const KernelArgs& args) {
  using C = Compute<T>;
  const auto& a = args.attributes<NormAttrs>();
  C *mean = args.out[1].as<C>(), *variance = args.out[2].as<C>();
  const T* x = args.in[0].as<T>();
  T* y = args.out[0].as<T>();
  channel_moments(args, a, x, mean, variance);
  C* scale = static_cast<C*>(args.workspace(static_cast<size_t>(2 * a.channels) * sizeof(C)));
  C* bias = scale + a.channels;
  spread(a.has_weight ? &args.in[1] : nullptr, C(1), scale, a.channels);
  spread(a.has_bias ? &args.in[1 + a.has_weight] : nullptr, C(0), bias, a.channels);
  for (int64_t c = 0; c < a.channels; ++c) scale[c] *= reciprocal_root(variance[c], a.eps);
  for_segments(
      a,
      [&](int64_t at) {
        const T* from = x + at;
        T* __restrict to = y + at;
        for (int64_t c = 0; c < a.channels; ++c)
          to[c] = static_cast<T>((static_cast<C>(from[c]) - mean[c]) * scale[c] + bias[c]);
      },
      [&](int64_t at, int64_t c) { scale_segment(x + at, y + at, a.inner, mean[c], scale[c], bias[c]); });
}

/// In three steps: sums of every segment in parallel, sums of a channel over the samples in order in f64, then all
/// elements with the channel's three factors.
template <class T>
void norm_channels_gradient(const KernelArgs& args) {
  using C = Compute<T>;
  const auto& a = args.attributes<NormAttrs>();
  const T *g = args.in[0].as<T>(), *x = args.in[1].as<T>();
  const C *mean = args.in[2].as<C>(), *variance = args.in[3].as<C>();
  T* dx = args.out[0].as<T>();
  const GradientBuffers buffers = gradient_buffers(args, a);
  // Per channel: Σ g and Σ g (x - mean), then the factors of gradient_segment; and these sums of every segment.
  const int64_t segments = a.inner == 1 ? 0 : a.samples * a.channels;
  double* sum =
      static_cast<double*>(args.workspace(static_cast<size_t>(2 * (segments + a.channels)) * sizeof(double) +
                                          static_cast<size_t>(3 * a.channels) * sizeof(C)));
  double *moment = sum + a.channels, *parts = moment + a.channels;
  C *fa = reinterpret_cast<C*>(parts + 2 * segments), *fb = fa + a.channels, *fd = fb + a.channels;
  if (a.inner > 1)
    parallel_ranges(segments, kGrain / (a.inner + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        const C center = mean[s % a.channels];
        parts[2 * s] = sum_of<C>(
            a.inner, [](auto gi) { return gi; }, g + s * a.inner);
        parts[2 * s + 1] = sum_of<C>(
            a.inner, [center](auto gi, auto xi) { return gi * (xi - center); }, g + s * a.inner,
            x + s * a.inner);
      }
    });
  for_strips(a.channels, [&](int64_t first, int64_t width) {
    double totals[2][kSide] = {};
    for (int64_t s = 0; s < a.samples; ++s)
      for (int64_t c = 0; c < width; ++c) {
        const int64_t at = s * a.channels + first + c;
        if (a.inner > 1) {
          totals[0][c] += parts[2 * at];
          totals[1][c] += parts[2 * at + 1];
        } else {
          const C gi = static_cast<C>(g[at]);
          totals[0][c] += gi;
          totals[1][c] += gi * (static_cast<C>(x[at]) - mean[first + c]);
        }
      }
    for (int64_t c = 0; c < width; ++c) sum[first + c] = totals[0][c], moment[first + c] = totals[1][c];
  });
  spread(buffers.weight, C(1), fa, a.channels);
  const double count = static_cast<double>(a.count(true));
  for (int64_t c = 0; c < a.channels; ++c) {
    const C root = reciprocal_root(variance[c], a.eps);
    if (buffers.dweight) buffers.dweight->as<C>()[c] = static_cast<C>(moment[c]) * root;
    if (buffers.dbias) buffers.dbias->as<C>()[c] = static_cast<C>(sum[c]);
    fa[c] *= root;
    fb[c] = fa[c] * static_cast<C>(sum[c] / count);
    fd[c] = fa[c] * root * root * static_cast<C>(moment[c] / count);
  }
  for_segments(
      a,
      [&](int64_t at) {
        const T *gr = g + at, *xr = x + at;
        T* __restrict to = dx + at;
        for (int64_t c = 0; c < a.channels; ++c)
          to[c] = static_cast<T>(static_cast<C>(gr[c]) * fa[c] - fb[c] -
                                 (static_cast<C>(xr[c]) - mean[c]) * fd[c]);
      },
      [&](int64_t at, int64_t c) {
        gradient_segment(g + at, x + at, dx + at, a.inner, mean[c], fa[c], fb[c], fd[c]);
      });
}

#define TD_FLOATING(name) \
  [](const KernelArgs& args) { \
    visit_floating(args.in[0].dtype, [&](auto zero) { name<decltype(zero)>(args); }); \
  }

}  // namespace

void register_norm_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_layer_norm().kernels[cpu] = op_group_norm().kernels[cpu] = TD_FLOATING(norm_rows);
  op_layer_norm_gradient().kernels[cpu] = op_group_norm_gradient().kernels[cpu] =
      TD_FLOATING(norm_rows_gradient);
  op_batch_norm().kernels[cpu] = TD_FLOATING(norm_channels);
  op_batch_norm_gradient().kernels[cpu] = TD_FLOATING(norm_channels_gradient);
}

#undef TD_FLOATING

}  // namespace tandem::cpu::TD_ISA
