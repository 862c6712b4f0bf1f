// CPU kernels of max_pool2d, its scatter (the gradient) and its gather (the gradient's gradient). Planes are
// independent; a chunk takes a fixed number of them.
#include "tandem/ops/pool.h"

#include <cstring>
#include <utility>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kGrain = 8192;  // elements of a chunk, about

/// Calls body(plane) for all planes, so many a chunk that about kGrain elements are read.
template <class F>
void for_planes(int64_t planes, int64_t elements, F&& body) {
  parallel_ranges(planes, 1 + kGrain / (elements + 1), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) body(plane);
  });
}

struct PoolShape {
  int64_t h, w, oh, ow, kernel, stride, padding;
};

/// The larger of the winner so far and the next in order: strictly larger wins, a NaN wins over numbers.
template <class T>
[[gnu::always_inline]] inline bool beats(T next, T winner) {
  return next > winner || (next != next && winner == winner);
}

template <class S>
void pool_plane(const PoolShape& p, const S* x, S* y, int32_t* position) {
  using T = Accumulator<S>;
  for (int64_t oh = 0; oh < p.oh; ++oh)
    for (int64_t ow = 0; ow < p.ow; ++ow) {
      const int64_t top = oh * p.stride - p.padding, left = ow * p.stride - p.padding;
      const int64_t h0 = top < 0 ? 0 : top, w0 = left < 0 ? 0 : left;
      const int64_t h1 = top + p.kernel < p.h ? top + p.kernel : p.h;
      const int64_t w1 = left + p.kernel < p.w ? left + p.kernel : p.w;
      int64_t at = h0 * p.w + w0;
      T winner = static_cast<T>(x[at]);
      for (int64_t h = h0; h < h1; ++h)
        for (int64_t w = w0; w < w1; ++w) {
          const T next = static_cast<T>(x[h * p.w + w]);
          if (beats(next, winner)) {
            winner = next;
            at = h * p.w + w;
          }
        }
      *y++ = x[at];
      *position++ = static_cast<int32_t>(at);
    }
}

template <class T>
using IndexOf = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

template <class I, I... i>
constexpr Vec<I> even_numbers(std::integer_sequence<I, i...>) {
  return Vec<I>{(2 * i)...};
}

/// One row of 2×2 windows over two rows of the plane; `corner` is the position of upper[0]. Data decide
/// nothing but lanes: random inputs would defeat branch prediction.
template <class T>
[[gnu::always_inline]] inline void pool_row_2x2(const T* upper, const T* lower, int64_t n, int64_t width,
                                                int64_t corner, T* y, int32_t* position) {
  using I = IndexOf<T>;
  constexpr int kL = kLanes<T>;
  constexpr Vec<I> even = even_numbers<I>(std::make_integer_sequence<I, kL>()), odd = even + 1;
  const auto windows = [&](const T* a, const T* b, I at0, T* out, I* where) __attribute__((always_inline)) {
    const Vec<T> a0 = load(a), a1 = load(a + kL), b0 = load(b), b1 = load(b + kL);
    const Vec<I> at = even + at0, below = at + static_cast<I>(width);
    // The earlier keeps its place unless the later is larger, or is a NaN and the earlier is none.
    const auto loses = [](Vec<T> earlier, Vec<T> later) {
      return (earlier == earlier) & ~(later <= earlier);
    };
    const Vec<T> a_even = __builtin_shuffle(a0, a1, even), a_odd = __builtin_shuffle(a0, a1, odd);
    const Vec<T> b_even = __builtin_shuffle(b0, b1, even), b_odd = __builtin_shuffle(b0, b1, odd);
    const auto a_right = loses(a_even, a_odd), b_right = loses(b_even, b_odd);
    const Vec<T> a_best = a_right ? a_odd : a_even, b_best = b_right ? b_odd : b_even;
    const auto b_wins = loses(a_best, b_best);
    store(out, b_wins ? b_best : a_best);
    store(where, b_wins ? below - b_right : at - a_right);  // a true lane is -1
  };
  if (n < kL) {  // a short row: the same on a copy
    T a[2 * kL] = {}, b[2 * kL] = {}, out[kL];
    I where[kL];
    convert(a, upper, 2 * n);
    convert(b, lower, 2 * n);
    windows(a, b, static_cast<I>(corner), out, where);
    convert(y, out, n);
    convert(position, where, n);
    return;
  }
  for (int64_t step = 0; step < n; step += kL) {
    const int64_t j = step + kL <= n ? step : n - kL;  // the last vector may overlap the one before
    const I at0 = static_cast<I>(corner + 2 * j);
    if constexpr (sizeof(I) == sizeof(int32_t)) {
      windows(upper + 2 * j, lower + 2 * j, at0, y + j, position + j);
    } else {
      I where[kL];
      windows(upper + 2 * j, lower + 2 * j, at0, y + j, where);
      for (int i = 0; i < kL; ++i) position[j + i] = static_cast<int32_t>(where[i]);
    }
  }
}

/// Windows of 2×2, stride 2, unpadded. 16-bit elements are widened row by row.
template <class S>
void pool_plane_2x2(const PoolShape& p, const S* x, S* y, int32_t* position) {
  using T = Accumulator<S>;
  for (int64_t oh = 0; oh < p.oh; ++oh, y += p.ow, position += p.ow) {
    const int64_t corner = 2 * oh * p.w;
    if constexpr (std::is_same_v<S, T>) {
      pool_row_2x2(x + corner, x + corner + p.w, p.ow, p.w, corner, y, position);
    } else {
      T* rows = scratch_of<T>(ScratchSlot::conv_tile, 2 * p.w + p.ow);
      convert(rows, x + corner, 2 * p.w);
      pool_row_2x2(rows, rows + p.w, p.ow, p.w, corner, rows + 2 * p.w, position);
      convert(y, rows + 2 * p.w, p.ow);
    }
  }
}

void max_pool2d(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  const auto& a = args.attributes<PoolAttrs>();
  const PoolShape p{x.shape[2], x.shape[3], y.shape[2], y.shape[3], a.kernel, a.stride, a.padding};
  if (y.size() == 0) return;
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = p.kernel == 2 && p.stride == 2 && p.padding == 0 ? &pool_plane_2x2<S> : &pool_plane<S>;
    for_planes(x.shape[0] * x.shape[1], p.h * p.w, [&](int64_t i) {
      run(p, x.as<const S>() + i * p.h * p.w, y.as<S>() + i * p.oh * p.ow,
          args.out[1].as<int32_t>() + i * p.oh * p.ow);
    });
  });
}

/// Where windows overlap, sums run in the order of the windows. 16-bit types sum in float and round once, so
/// they go through a plane of float.
void max_pool2d_scatter(const KernelArgs& args) {
  const Buffer &g = args.in[0], &out = args.out[0];
  const auto& a = args.attributes<PoolAttrs>();
  const bool overlap = a.kernel > a.stride;
  const int64_t pooled = g.shape[2] * g.shape[3], plane = out.shape[2] * out.shape[3];
  if (out.size() == 0) return;
  visit_floating(g.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Accumulator<S>;
    for_planes(out.shape[0] * out.shape[1], plane, [&](int64_t i) {
      const S* from = g.as<const S>() + i * pooled;
      const int32_t* position = args.in[1].as<const int32_t>() + i * pooled;
      S* to = out.as<S>() + i * plane;
      std::memset(static_cast<void*>(to), 0, static_cast<size_t>(plane) * sizeof(S));
      if (std::is_same_v<S, T> || !overlap) {
        for (int64_t j = 0; j < pooled; ++j)
          to[position[j]] = static_cast<S>(static_cast<T>(to[position[j]]) + static_cast<T>(from[j]));
        return;
      }
      T* sums = scratch_of<T>(ScratchSlot::conv_tile, plane);
      for (int64_t j = 0; j < plane; ++j) sums[j] = T(0);
      for (int64_t j = 0; j < pooled; ++j) sums[position[j]] += static_cast<T>(from[j]);
      convert(to, sums, plane);
    });
  });
}

void max_pool2d_gather(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  const int64_t plane = x.shape[2] * x.shape[3], pooled = y.shape[2] * y.shape[3];
  if (y.size() == 0) return;
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    for_planes(y.shape[0] * y.shape[1], pooled, [&](int64_t i) {
      const S* from = x.as<const S>() + i * plane;
      const int32_t* position = args.in[1].as<const int32_t>() + i * pooled;
      S* to = y.as<S>() + i * pooled;
      for (int64_t j = 0; j < pooled; ++j) to[j] = from[position[j]];
    });
  });
}

}  // namespace

void register_pool_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_max_pool2d().kernels[kCpu] = &max_pool2d;
  op_max_pool2d_scatter().kernels[kCpu] = &max_pool2d_scatter;
  op_max_pool2d_gather().kernels[kCpu] = &max_pool2d_gather;
}

}  // namespace tandem::cpu::TD_ISA
