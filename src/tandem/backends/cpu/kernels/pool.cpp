// CPU kernels of max_pool2d, its scatter (the gradient) and its gather (the gradient's gradient). Planes are
// independent; a chunk takes a fixed number of them.
#include "tandem/ops/pool.h"

#include <cstring>

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

/// Windows of 2×2 that tile the plane. Branch-free, so that the compiler can use vectors.
template <class S>
void pool_plane_2x2(const PoolShape& p, const S* x, S* y, int32_t* position) {
  using T = Accumulator<S>;
  const int32_t width = static_cast<int32_t>(p.w);
  for (int64_t oh = 0; oh < p.oh; ++oh, y += p.ow, position += p.ow) {
    const S* __restrict upper = x + 2 * oh * p.w;
    const S* __restrict lower = upper + p.w;
    S* __restrict to = y;
    int32_t* __restrict where = position;
    const int32_t corner = static_cast<int32_t>(2 * oh * p.w);
    for (int32_t ow = 0; ow < static_cast<int32_t>(p.ow); ++ow) {
      T winner = static_cast<T>(upper[2 * ow]);
      int32_t at = 0;
      const auto meet = [&](T next, int32_t place) {
        const bool wins = (next > winner) | ((next != next) & (winner == winner));
        winner = wins ? next : winner;
        at = wins ? place : at;
      };
      meet(static_cast<T>(upper[2 * ow + 1]), 1);
      meet(static_cast<T>(lower[2 * ow]), width);
      meet(static_cast<T>(lower[2 * ow + 1]), width + 1);
      to[ow] = static_cast<S>(winner);
      where[ow] = corner + 2 * ow + at;
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
