// CPU kernels of max_pool, its scatter (the gradient) and its gather (the gradient's gradient). Planes are
// independent; a chunk takes a fixed number of them.
#include "tandem/ops/pool.h"

#include <cstring>
#include <utility>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"
#include "tandem/ops/windows.h"

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
  PoolAxis axis[3];  // depth, height, width

  int64_t in() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t out() const { return axis[0].out * axis[1].out * axis[2].out; }
  bool is_2x2() const {
    bool is = axis[0].in == 1 && axis[0].kernel == 1 && axis[0].padding == 0;
    for (const PoolAxis& a : {axis[1], axis[2]})
      is = is && a.kernel == 2 && a.stride == 2 && a.padding == 0 && a.dilation == 1 && 2 * a.out <= a.in;
    return is;
  }
};

/// Spatial size `axis` of a buffer of rank 3 to 5.
int64_t size_of(const Buffer& b, int axis) {
  const int at = b.rank - 3 + axis;
  return at < 2 ? 1 : b.shape[at];
}

PoolShape pool_shape(const Buffer& large, const Buffer& pooled, const PoolAttrs& a) {
  PoolShape p;
  for (int i = 0; i < 3; ++i)
    p.axis[i] = {size_of(large, i), size_of(pooled, i), a.kernel[i],
                 a.stride[i],       a.padding[i],       a.dilation[i]};
  return p;
}

/// The larger of the winner so far and the next in order: strictly larger wins, a NaN wins over numbers.
template <class T>
[[gnu::always_inline]] inline bool beats(T next, T winner) {
  return next > winner || (next != next && winner == winner);
}

/// The winner begins as the first of the window and is compared with itself once, which it does not beat.
template <class S>
void pool_plane(const PoolShape& p, const S* x, S* y, int32_t* position) {
  using T = Accumulator<S>;
  const int64_t width = p.axis[2].in, plane = p.axis[1].in * width;
  for (int64_t od = 0; od < p.axis[0].out; ++od)
    for (int64_t oh = 0; oh < p.axis[1].out; ++oh) {
      const AxisRange depth = p.axis[0].range(od), row = p.axis[1].range(oh);
      for (int64_t ow = 0; ow < p.axis[2].out; ++ow) {
        const AxisRange column = p.axis[2].range(ow);
        int64_t at = depth.begin * plane + row.begin * width + column.begin;
        T winner = static_cast<T>(x[at]);
        for (int64_t d = depth.begin; d < depth.end; d += depth.step)
          for (int64_t h = row.begin; h < row.end; h += row.step)
            for (int64_t w = column.begin; w < column.end; w += column.step) {
              const T next = static_cast<T>(x[d * plane + h * width + w]);
              if (beats(next, winner)) {
                winner = next;
                at = d * plane + h * width + w;
              }
            }
        *y++ = x[at];
        *position++ = static_cast<int32_t>(at);
      }
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
  const int64_t rows = p.axis[1].out, columns = p.axis[2].out, width = p.axis[2].in;
  for (int64_t oh = 0; oh < rows; ++oh, y += columns, position += columns) {
    const int64_t corner = 2 * oh * width;
    if constexpr (std::is_same_v<S, T>) {
      pool_row_2x2(x + corner, x + corner + width, columns, width, corner, y, position);
    } else {
      T* widened = scratch_of<T>(ScratchSlot::conv_tile, 2 * width + columns);
      convert(widened, x + corner, 2 * width);
      pool_row_2x2(widened, widened + width, columns, width, corner, widened + 2 * width, position);
      convert(y, widened + 2 * width, columns);
    }
  }
}

void max_pool(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  const PoolShape p = pool_shape(x, y, args.attributes<PoolAttrs>());
  if (y.size() == 0) return;
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = p.is_2x2() ? &pool_plane_2x2<S> : &pool_plane<S>;
    for_planes(x.shape[0] * x.shape[1], p.in(), [&](int64_t i) {
      run(p, x.as<const S>() + i * p.in(), y.as<S>() + i * p.out(), args.out[1].as<int32_t>() + i * p.out());
    });
  });
}

/// Places come from max_pool, or from anybody who calls the ops: one outside of the plane reads as zero and writes nothing.
/// One comparison for both ends: as an unsigned number, a negative place is beyond every plane.
bool is_inside(int32_t place, int64_t plane) {
  return static_cast<uint64_t>(int64_t{place}) < static_cast<uint64_t>(plane);
}

/// Where windows overlap, sums run in the order of the windows. 16-bit types sum in float and round once, so
/// they go through a plane of float.
void max_pool_scatter(const KernelArgs& args) {
  const Buffer &g = args.in[0], &out = args.out[0];
  const PoolShape p = pool_shape(out, g, args.attributes<PoolAttrs>());
  // Windows that do not overlap give an element at most one number: nothing is summed, and 16-bit types need no plane
  // of float.
  bool overlap = false;
  for (const PoolAxis& a : p.axis)
    overlap = overlap || a.dilation * (a.kernel - 1) >= a.stride || (a.kernel == 0 && a.in % a.out != 0);
  const int64_t pooled = p.out(), plane = p.in();
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
          if (is_inside(position[j], plane)) [[likely]]
            to[position[j]] = static_cast<S>(static_cast<T>(to[position[j]]) + static_cast<T>(from[j]));
        return;
      }
      T* sums = scratch_of<T>(ScratchSlot::conv_tile, plane);
      for (int64_t j = 0; j < plane; ++j) sums[j] = T(0);
      for (int64_t j = 0; j < pooled; ++j)
        if (is_inside(position[j], plane)) [[likely]]
          sums[position[j]] += static_cast<T>(from[j]);
      convert(to, sums, plane);
    });
  });
}

void max_pool_gather(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  if (y.size() == 0) return;
  const int64_t planes = y.shape[0] * y.shape[1], plane = x.size() / planes, pooled = y.size() / planes;
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    for_planes(planes, pooled, [&](int64_t i) {
      const S* from = x.as<const S>() + i * plane;
      const int32_t* position = args.in[1].as<const int32_t>() + i * pooled;
      S* to = y.as<S>() + i * pooled;
      for (int64_t j = 0; j < pooled; ++j) to[j] = is_inside(position[j], plane) ? from[position[j]] : S();
    });
  });
}

}  // namespace

void register_pool_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_max_pool().kernels[kCpu] = &max_pool;
  op_max_pool_scatter().kernels[kCpu] = &max_pool_scatter;
  op_max_pool_gather().kernels[kCpu] = &max_pool_gather;
}

}  // namespace tandem::cpu::TD_ISA
