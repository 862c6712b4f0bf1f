// Normalisation of contiguous tensors, seen as (samples, groups, channels, inner). Many statistics, or short ones: a block
// of threads takes the whole of one. Few and long ones: a block takes a part of one, and a warp joins the parts. Within
// a block thread t takes every kThreads-th element in order, and a binary tree joins the threads. All of this depends on
// the shape alone.
#include <algorithm>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/core/op.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostParts = 32;        // of one statistic: a warp joins them
constexpr int64_t kBlocks = 1024;     // enough to fill a device
constexpr int64_t kLeastPart = 2048;  // elements
constexpr int kTogether = 4;          // neighbouring elements of one channel that a thread scales at once

/// n / divisor: by a multiplication where n fits 31 bits.
struct Divide {
  int64_t divisor;
  FastDivide fast;
  bool small;

  Divide(int64_t d, int64_t most) : divisor(d), small(most < (int64_t{1} << 31) && d < (int64_t{1} << 31)) {
    if (small) fast = FastDivide(static_cast<uint32_t>(d));
  }
  __device__ int64_t operator()(int64_t n) const {
    return small ? fast.divide(static_cast<uint32_t>(n)) : n / divisor;
  }
};

/// Where things lie. over_batch: statistics of a channel over all samples, else of a row of channels. A statistic's
/// elements are runs of `segment` neighbours, `stride` apart.
struct View {
  int64_t samples, groups, channels, inner;
  bool over_batch;
  double eps;
  int64_t rows, count, segment, stride;  // statistics, elements of each
  Divide by_inner, by_channels, by_all;

  View(const NormAttrs& a, bool over_batch)
      : samples(a.samples),
        groups(a.groups),
        channels(a.channels),
        inner(a.inner),
        over_batch(over_batch),
        eps(a.eps),
        rows(a.rows(over_batch)),
        count(a.count(over_batch)),
        segment(over_batch ? inner : channels * inner),
        stride(over_batch ? channels * inner : 0),
        by_inner(std::max<int64_t>(1, inner), size()),
        by_channels(std::max<int64_t>(1, channels), size()),
        by_all(std::max<int64_t>(1, all()), size()) {}

  __host__ __device__ int64_t all() const { return groups * channels; }
  __host__ __device__ int64_t size() const { return samples * groups * channels * inner; }

  /// The weight, and the statistic, of the element at a place.
  __device__ void owners(int64_t at, int64_t& channel, int64_t& row) const {
    const int64_t line = by_inner(at);
    channel = line - by_all(line) * all();
    row = over_batch ? channel : by_channels(line);
  }
};

/// Elements first, first + step … of a row of segments, without a division a step.
struct Walk {
  int64_t segment, run_step, offset_step, run, offset;

  __device__ Walk(int64_t first, int64_t step, int64_t length)
      : segment(length > 0 ? length : 1),
        run_step(step / segment),
        offset_step(step % segment),
        run(first / segment),
        offset(first % segment) {}
  __device__ void next() {
    run += run_step;
    offset += offset_step;
    if (offset >= segment) {
      offset -= segment;
      ++run;
    }
  }
};

/// visit(place, its index in the row) for this thread's elements of [begin, end) of statistic r.
template <class Visit>
__device__ void each_of(const View& v, int64_t r, int64_t begin, int64_t end, Visit visit) {
  Walk walk(begin + threadIdx.x, kThreads, v.segment);
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads, walk.next())
    visit(r * v.segment + walk.run * v.stride + walk.offset, i);
}

template <class C>
__device__ C reciprocal_root(C variance, double eps) {
  return static_cast<C>(1 / sqrt_(static_cast<double>(variance) + eps));
}

/// The sum over the block, for every thread.
template <class C>
__device__ C join_block(C mine, C* shared) {
  // Threads may still read the result of the join before: it is kept until all have passed.
  __syncthreads();
  shared[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

/// Every lane gets the same sum. A row is one whole warp's, so that all 32 lanes are here or none is.
__device__ double join_warp(double mine) {
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, step);
  return mine;
}

/// Two numbers of every part of a statistic: mean and squared distances from it, or Σ g and Σ g (x - mean).
template <class C>
struct Two {
  C a, b;
};

/// How a statistic is cut: part p has the elements from p · length on.
struct Parts {
  int64_t length;
  int count;

  __device__ int64_t begin(int64_t p) const { return p * length; }
  __device__ int64_t end(int64_t p, int64_t n) const { return p + 1 < count ? (p + 1) * length : n; }
};
/// n elements a statistic, of which a block takes `together` statistics.
Parts parts_of(int64_t n, int64_t statistics, int64_t together = 1) {
  const int64_t blocks = std::max<int64_t>(1, (statistics + together - 1) / together);
  const int64_t useful = std::min({int64_t{kMostParts}, kBlocks / blocks, n * together / kLeastPart});
  const int64_t wanted = std::max<int64_t>(1, useful),
                length = std::max<int64_t>(1, (n + wanted - 1) / wanted);
  return {length, static_cast<int>(std::max<int64_t>(1, (n + length - 1) / length))};
}

/// The mean of n elements, and the sum of their squared distances from it; of nothing both are 0.
/// In two passes: squares of what is left after the mean lose nothing where the mean is large.
template <class T, class C>
__device__ Two<C> moments(const View& v, const T* __restrict__ x, int64_t r, int64_t begin, int64_t end,
                          C* shared) {
  C sum = 0;
  each_of(v, r, begin, end, [&](int64_t at, int64_t) { sum += static_cast<C>(x[at]); });
  const C mean = join_block(sum, shared) / static_cast<C>(end > begin ? end - begin : 1);
  C squares = 0;
  each_of(v, r, begin, end, [&](int64_t at, int64_t) {
    const C away = static_cast<C>(x[at]) - mean;
    squares += away * away;
  });
  return {mean, join_block(squares, shared)};
}

/// Σ g w and Σ g w (x - mean).
template <class T, class C>
__device__ Two<C> gradient_sums(const View& v, const T* __restrict__ g, const T* __restrict__ x,
                                const C* weight, C mean, int64_t r, int64_t begin, int64_t end, C* shared) {
  const int64_t first = v.over_batch ? r : r % v.groups * v.channels;
  C sum = 0, moment = 0;
  each_of(v, r, begin, end, [&](int64_t at, int64_t i) {
    C value = static_cast<C>(g[at]);
    if (weight) value *= weight[v.over_batch ? first : first + v.by_inner(i)];
    sum += value;
    moment += value * (static_cast<C>(x[at]) - mean);
  });
  sum = join_block(sum, shared);
  return {sum, join_block(moment, shared)};
}

template <class T, class C>
__device__ T scaled(T x, C mean, C root, const C* weight, const C* bias, int64_t channel) {
  C value = (static_cast<C>(x) - mean) * root;
  if (weight) value = value * weight[channel];
  if (bias) value = value + bias[channel];
  return static_cast<T>(value);
}

/// sums: as gradient_sums, each over the count.
template <class T, class C>
__device__ T scaled_gradient(T g, T x, C mean, C root, const C* weight, int64_t channel, Two<C> sums) {
  const C value = static_cast<C>(g) * (weight ? weight[channel] : C(1));
  const C away = static_cast<C>(x) - mean;
  return static_cast<T>(root * (value - sums.a - away * root * root * sums.b));
}

// ---- a block a statistic

/// Block r owns statistic r: it alone writes mean, variance and the elements of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const View v, const T* __restrict__ x, const typename ComputeType<T>::type* weight,
                const typename ComputeType<T>::type* bias, typename ComputeType<T>::type* mean,
                typename ComputeType<T>::type* variance, T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads];
  const int64_t r = blockIdx.x, first = v.over_batch ? r : r % v.groups * v.channels;
  const Two<C> m = moments(v, x, r, 0, v.count, shared);
  const C spread = m.b / static_cast<C>(v.count > 0 ? v.count : 1), root = reciprocal_root(spread, v.eps);
  if (threadIdx.x == 0) {
    mean[r] = m.a;
    variance[r] = spread;
  }
  each_of(v, r, 0, v.count, [&](int64_t at, int64_t i) {
    y[at] = scaled(x[at], m.a, root, weight, bias, v.over_batch ? first : first + v.by_inner(i));
  });
}

/// dweight and dbias are those of batch norm, or null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    norm_gradient_kernel(const View v, const T* __restrict__ g, const T* __restrict__ x,
                         const typename ComputeType<T>::type* weight,
                         const typename ComputeType<T>::type* mean,
                         const typename ComputeType<T>::type* variance, T* __restrict__ dx,
                         typename ComputeType<T>::type* roots, typename ComputeType<T>::type* dweight,
                         typename ComputeType<T>::type* dbias) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads];
  const int64_t r = blockIdx.x, first = v.over_batch ? r : r % v.groups * v.channels;
  const C center = mean[r], root = reciprocal_root(variance[r], v.eps), n = static_cast<C>(v.count);
  // A channel's weight is a factor of batch norm's sums, which without it are the gradients of weight and bias.
  Two<C> sums = gradient_sums(v, g, x, v.over_batch ? nullptr : weight, center, r, 0, v.count, shared);
  if (threadIdx.x == 0) {
    roots[r] = root;
    if (dweight) dweight[r] = sums.b * root;
    if (dbias) dbias[r] = sums.a;
  }
  const C factor = v.over_batch && weight ? weight[r] : C(1);
  sums = {factor * sums.a / n, factor * sums.b / n};
  each_of(v, r, 0, v.count, [&](int64_t at, int64_t i) {
    dx[at] = scaled_gradient(g[at], x[at], center, root, weight, v.over_batch ? first : first + v.by_inner(i),
                             sums);
  });
}

// ---- several blocks a statistic: grid (rows, parts), then a warp a row, then all elements

template <class T>
__global__ void __launch_bounds__(kThreads) moments_kernel(const View v, Parts parts, const T* __restrict__ x,
                                                           Two<typename ComputeType<T>::type>* out) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads];
  const int64_t r = blockIdx.x, p = blockIdx.y;
  const Two<C> m = moments(v, x, r, parts.begin(p), parts.end(p, v.count), shared);
  if (threadIdx.x == 0) out[r * parts.count + p] = m;
}

/// Lane p holds part p. Σ (x - mean)² = Σ own squares + n · (own mean - mean)² over the parts, in f64.
template <class C>
__global__ void __launch_bounds__(kThreads)
    join_moments_kernel(const View v, Parts parts, const Two<C>* __restrict__ in, C* mean, C* variance,
                        C* roots) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32,
                p = threadIdx.x % 32;
  if (r >= v.rows) return;
  const bool used = p < parts.count;
  const Two<C> mine = used ? in[r * parts.count + p] : Two<C>{0, 0};
  const double n = used ? static_cast<double>(parts.end(p, v.count) - parts.begin(p)) : 0;
  const double center = join_warp(n * static_cast<double>(mine.a)) / static_cast<double>(v.count);
  const double away = static_cast<double>(mine.a) - center;
  const double squares = join_warp(static_cast<double>(mine.b) + n * away * away);
  if (p != 0) return;
  mean[r] = static_cast<C>(center);
  variance[r] = static_cast<C>(squares / static_cast<double>(v.count));
  roots[r] = reciprocal_root(variance[r], v.eps);
}

/// kTogether neighbours, loaded and stored at once where they lie aligned.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

/// A thread takes kCount neighbours at a time. They belong to one channel: by_alignment asks that kCount divide
/// `inner`.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const View v, const T* __restrict__ x, const typename ComputeType<T>::type* weight,
                 const typename ComputeType<T>::type* bias, const typename ComputeType<T>::type* mean,
                 const typename ComputeType<T>::type* roots, T* __restrict__ y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kCount;
  for (int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount; at < v.size();
       at += step) {
    int64_t channel, r;
    v.owners(at, channel, r);
    auto pack = reinterpret_cast<const Pack<T, kCount>*>(x + at)[0];
#pragma unroll
    for (T& value : pack.values) value = scaled(value, mean[r], roots[r], weight, bias, channel);
    reinterpret_cast<Pack<T, kCount>*>(y + at)[0] = pack;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_sums_kernel(const View v, Parts parts, const T* __restrict__ g, const T* __restrict__ x,
                         const typename ComputeType<T>::type* weight,
                         const typename ComputeType<T>::type* mean, Two<typename ComputeType<T>::type>* out) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads];
  const int64_t r = blockIdx.x, p = blockIdx.y;
  const Two<C> sums = gradient_sums(v, g, x, v.over_batch ? nullptr : weight, mean[r], r, parts.begin(p),
                                    parts.end(p, v.count), shared);
  if (threadIdx.x == 0) out[r * parts.count + p] = sums;
}

/// The sums over the count, and the roots; of batch norm also dweight and dbias.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_gradient_sums_kernel(const View v, Parts parts,
                              const Two<typename ComputeType<T>::type>* __restrict__ in,
                              const typename ComputeType<T>::type* weight,
                              const typename ComputeType<T>::type* variance,
                              Two<typename ComputeType<T>::type>* sums, typename ComputeType<T>::type* roots,
                              typename ComputeType<T>::type* dweight, typename ComputeType<T>::type* dbias) {
  using C = typename ComputeType<T>::type;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32,
                p = threadIdx.x % 32;
  if (r >= v.rows) return;
  const Two<C> mine = p < parts.count ? in[r * parts.count + p] : Two<C>{0, 0};
  const double sum = join_warp(static_cast<double>(mine.a)), moment = join_warp(static_cast<double>(mine.b));
  if (p != 0) return;
  const C root = reciprocal_root(variance[r], v.eps);
  if (dweight) dweight[r] = static_cast<C>(moment) * root;
  if (dbias) dbias[r] = static_cast<C>(sum);
  const double n = static_cast<double>(v.count);
  const double factor = v.over_batch && weight ? static_cast<double>(weight[r]) : 1;
  sums[r] = {static_cast<C>(factor * sum / n), static_cast<C>(factor * moment / n)};
  roots[r] = root;
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const View v, const T* __restrict__ g, const T* __restrict__ x,
                    const typename ComputeType<T>::type* weight, const typename ComputeType<T>::type* mean,
                    const typename ComputeType<T>::type* roots,
                    const Two<typename ComputeType<T>::type>* __restrict__ sums, T* __restrict__ dx) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kCount;
  for (int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount; at < v.size();
       at += step) {
    int64_t channel, r;
    v.owners(at, channel, r);
    auto pack = reinterpret_cast<const Pack<T, kCount>*>(g + at)[0];
    const auto given = reinterpret_cast<const Pack<T, kCount>*>(x + at)[0];
    const auto both = sums[r];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      pack.values[i] =
          scaled_gradient(pack.values[i], given.values[i], mean[r], roots[r], weight, channel, both);
    reinterpret_cast<Pack<T, kCount>*>(dx + at)[0] = pack;
  }
}

// ---- dweight and dbias of layer and group norm

/// Blocks of `columns` neighbouring channels (a warp where elements of neighbouring channels are neighbours, else one);
/// the rows of threads share the elements of a channel over all samples. Grid: (channels, parts).
template <class T>
__global__ void __launch_bounds__(kThreads)
    affine_gradient_kernel(const View v, Parts parts, int columns, const T* __restrict__ g,
                           const T* __restrict__ x, const typename ComputeType<T>::type* mean,
                           const typename ComputeType<T>::type* roots,
                           Two<typename ComputeType<T>::type>* out) {
  using C = typename ComputeType<T>::type;
  __shared__ Two<C> shared[kThreads];
  const int column = threadIdx.x % columns, rows = kThreads / columns;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * columns + column, p = blockIdx.y;
  const int64_t first = parts.begin(p) + threadIdx.x / columns, end = parts.end(p, v.samples * v.inner);
  const int64_t group = c / v.channels;
  Two<C> mine{0, 0};
  if (c < v.all()) {
    Walk walk(first, rows, v.inner);
#pragma unroll 4
    for (int64_t i = first; i < end; i += rows, walk.next()) {
      const int64_t at = (walk.run * v.all() + c) * v.inner + walk.offset, r = walk.run * v.groups + group;
      const C value = static_cast<C>(g[at]);
      mine.a += value;
      mine.b += value * (static_cast<C>(x[at]) - mean[r]) * roots[r];
    }
  }
  shared[threadIdx.x] = mine;
  // The rows of threads join in a tree, each column on its own; a barrier before each step reads.
  for (int half = rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) / columns < half) {
      const Two<C> other = shared[threadIdx.x + half * columns];
      mine = {mine.a + other.a, mine.b + other.b};
      shared[threadIdx.x] = mine;
    }
  }
  if (static_cast<int>(threadIdx.x) < columns && c < v.all()) out[c * parts.count + p] = mine;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    join_affine_gradient_kernel(int64_t channels, Parts parts,
                                const Two<typename ComputeType<T>::type>* __restrict__ in,
                                typename ComputeType<T>::type* dweight,
                                typename ComputeType<T>::type* dbias) {
  using C = typename ComputeType<T>::type;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32,
                p = threadIdx.x % 32;
  if (c >= channels) return;
  const Two<C> mine = p < parts.count ? in[c * parts.count + p] : Two<C>{0, 0};
  const double sum = join_warp(static_cast<double>(mine.a)), moment = join_warp(static_cast<double>(mine.b));
  if (p != 0) return;
  if (dweight) dweight[c] = static_cast<C>(moment);
  if (dbias) dbias[c] = static_cast<C>(sum);
}

// ---- launching

View view_of(const KernelArgs& args, bool over_batch) {
  const auto& a = args.attributes<NormAttrs>();
  TD_CHECK(a.rows(over_batch) < (int64_t{1} << 31) && a.groups * a.channels < (int64_t{1} << 31),
           "norm: on a GPU there may be at most 2^31 - 1 means and channels; got ", a.rows(over_batch),
           " and ", a.groups * a.channels, ".");
  return View(a, over_batch);
}

unsigned blocks_of(int64_t work, int64_t a_block) {
  return static_cast<unsigned>(std::min<int64_t>((work + a_block - 1) / a_block, 65536));
}

/// A warp a row.
unsigned warps_for(int64_t rows) {
  return static_cast<unsigned>((rows + kThreads / 32 - 1) / (kThreads / 32));
}

/// launch(a constant: how many neighbours a thread takes).
template <class T, class Launch>
void by_alignment(const View& v, std::initializer_list<const T*> pointers, Launch launch) {
  bool aligned = v.inner % kTogether == 0;
  for (const T* p : pointers) aligned &= reinterpret_cast<uintptr_t>(p) % (sizeof(T) * kTogether) == 0;
  if (aligned)
    launch(std::integral_constant<int, kTogether>());
  else
    launch(std::integral_constant<int, 1>());
}

template <bool kOverBatch>
void norm(const KernelArgs& args) {
  const auto& a = args.attributes<NormAttrs>();
  const View v = view_of(args, kOverBatch);
  if (v.rows == 0) return;
  const unsigned rows = static_cast<unsigned>(v.rows);
  const Parts parts = parts_of(v.count, v.rows);
  const cudaStream_t stream = stream_of(args);
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const T* x = args.in[0].as<T>();
    const C* weight = a.has_weight ? args.in[1].as<C>() : nullptr;
    const C* bias = a.has_bias ? args.in[1 + a.has_weight].as<C>() : nullptr;
    T* y = args.out[0].as<T>();
    C *mean = args.out[1].as<C>(), *variance = args.out[2].as<C>();
    if (parts.count == 1) {
      norm_kernel<T><<<rows, kThreads, 0, stream>>>(v, x, weight, bias, mean, variance, y);
      return launched("norm_kernel");
    }
    const size_t count = static_cast<size_t>(v.rows * parts.count);
    auto* found = static_cast<Two<C>*>(
        args.workspace(sizeof(Two<C>) * count + sizeof(C) * static_cast<size_t>(v.rows)));
    C* roots = reinterpret_cast<C*>(found + count);
    moments_kernel<T>
        <<<dim3(rows, static_cast<unsigned>(parts.count)), kThreads, 0, stream>>>(v, parts, x, found);
    launched("moments_kernel");
    join_moments_kernel<C>
        <<<warps_for(v.rows), kThreads, 0, stream>>>(v, parts, found, mean, variance, roots);
    launched("join_moments_kernel");
    by_alignment<T>(v, {x, y}, [&](auto together) {
      scale_kernel<T, together()><<<blocks_of(v.size(), kThreads * together()), kThreads, 0, stream>>>(
          v, x, weight, bias, mean, roots, y);
      launched("scale_kernel");
    });
  });
}

template <bool kOverBatch>
void norm_gradient(const KernelArgs& args) {
  const auto& a = args.attributes<NormAttrs>();
  const View v = view_of(args, kOverBatch);
  const unsigned rows = static_cast<unsigned>(v.rows);
  const bool affine_apart = !kOverBatch && v.all() > 0 && (a.has_weight || a.has_bias);
  const int columns = v.inner == 1 ? 32 : 1;
  const Parts parts = parts_of(v.count, v.rows), pieces = parts_of(v.samples * v.inner, v.all(), columns);
  const cudaStream_t stream = stream_of(args);
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const T *g = args.in[0].as<T>(), *x = args.in[1].as<T>();
    const C *mean = args.in[2].as<C>(), *variance = args.in[3].as<C>();
    const C* weight = a.has_weight ? args.in[4].as<C>() : nullptr;
    T* dx = args.out[0].as<T>();
    C* dweight = a.has_weight ? args.out[1].as<C>() : nullptr;
    C* dbias = a.has_bias ? args.out[1 + a.has_weight].as<C>() : nullptr;
    // Batch norm finds dweight and dbias on its way to dx; the others sum them over another axis, in kernels of their
    // own, which need the roots that the first ones leave.
    C *own_dweight = kOverBatch ? dweight : nullptr, *own_dbias = kOverBatch ? dbias : nullptr;

    // The workspace: sums of the parts, sums of the rows, sums of the channels' pieces, then the roots. Pairs stand
    // before single numbers, so that all are aligned.
    const size_t each = static_cast<size_t>(v.rows);
    const size_t split = parts.count > 1 ? each * static_cast<size_t>(parts.count) : 0;
    const size_t of_channels = affine_apart ? static_cast<size_t>(v.all() * pieces.count) : 0;
    auto* found = static_cast<Two<C>*>(
        args.workspace(sizeof(Two<C>) * (split + each + of_channels) + sizeof(C) * each));
    Two<C>*sums = found + split, *channel_sums = sums + each;
    C* roots = reinterpret_cast<C*>(channel_sums + of_channels);

    if (v.rows > 0 && parts.count == 1) {
      norm_gradient_kernel<T>
          <<<rows, kThreads, 0, stream>>>(v, g, x, weight, mean, variance, dx, roots, own_dweight, own_dbias);
      launched("norm_gradient_kernel");
    } else if (v.rows > 0) {
      gradient_sums_kernel<T><<<dim3(rows, static_cast<unsigned>(parts.count)), kThreads, 0, stream>>>(
          v, parts, g, x, weight, mean, found);
      launched("gradient_sums_kernel");
      join_gradient_sums_kernel<T><<<warps_for(v.rows), kThreads, 0, stream>>>(
          v, parts, found, weight, variance, sums, roots, own_dweight, own_dbias);
      launched("join_gradient_sums_kernel");
      by_alignment<T>(v, {g, x, dx}, [&](auto together) {
        gradient_kernel<T, together()><<<blocks_of(v.size(), kThreads * together()), kThreads, 0, stream>>>(
            v, g, x, weight, mean, roots, sums, dx);
        launched("gradient_kernel");
      });
    }
    if (!affine_apart) return;
    const unsigned blocks = static_cast<unsigned>((v.all() + columns - 1) / columns);
    affine_gradient_kernel<T><<<dim3(blocks, static_cast<unsigned>(pieces.count)), kThreads, 0, stream>>>(
        v, pieces, columns, g, x, mean, roots, channel_sums);
    launched("affine_gradient_kernel");
    join_affine_gradient_kernel<T>
        <<<warps_for(v.all()), kThreads, 0, stream>>>(v.all(), pieces, channel_sums, dweight, dbias);
    launched("join_affine_gradient_kernel");
  });
}

}  // namespace

void register_norm_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_layer_norm().kernels[kCuda] = op_group_norm().kernels[kCuda] = &norm<false>;
  op_layer_norm_gradient().kernels[kCuda] = op_group_norm_gradient().kernels[kCuda] = &norm_gradient<false>;
  op_batch_norm().kernels[kCuda] = &norm<true>;
  op_batch_norm_gradient().kernels[kCuda] = &norm_gradient<true>;
}

}  // namespace tandem::cuda
