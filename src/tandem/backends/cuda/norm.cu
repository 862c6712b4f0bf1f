// Normalisation of contiguous tensors, seen as (samples, groups, channels, inner). Sums: a block of threads takes one
// group of elements, thread t every kThreads-th in order, and a binary tree joins the threads. The order depends on the
// shape alone.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

/// Where things lie. over_batch: statistics of a channel over all samples, else of a row of channels.
struct View {
  int64_t samples, groups, channels, inner;
  bool over_batch;
  double eps;

  __host__ __device__ int64_t count() const { return (over_batch ? samples : channels) * inner; }
  /// Element i of statistic r.
  __device__ int64_t place(int64_t r, int64_t i) const {
    return over_batch ? (i / inner * channels + r) * inner + i % inner : r * channels * inner + i;
  }
  /// The weight, and the statistic, of the element at a place.
  __device__ int64_t channel_of(int64_t at) const { return at / inner % (groups * channels); }
  __device__ int64_t row_of(int64_t at) const {
    return over_batch ? at / inner % channels : at / (inner * channels);
  }
};

template <class C>
__device__ C reciprocal_root(C variance, double eps) {
  return static_cast<C>(1 / sqrt_(static_cast<double>(variance) + eps));
}

/// The sum over the block, for every thread.
template <class C>
__device__ C join_block(C mine, C* shared) {
  __syncthreads();
  shared[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(const View v, const T* __restrict__ x, typename ComputeType<T>::type* mean,
                   typename ComputeType<T>::type* variance) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads];
  const int64_t r = blockIdx.x, n = v.count();
  C sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += static_cast<C>(x[v.place(r, i)]);
  const C count = static_cast<C>(n > 0 ? n : 1);  // of nothing both are 0
  const C center = join_block(sum, shared) / count;
  C squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const C away = static_cast<C>(x[v.place(r, i)]) - center;
    squares += away * away;
  }
  squares = join_block(squares, shared);
  if (threadIdx.x == 0) {
    mean[r] = center;
    variance[r] = squares / count;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const View v, int64_t size, const T* __restrict__ x, const T* weight, const T* bias,
                 const typename ComputeType<T>::type* mean, const typename ComputeType<T>::type* variance,
                 T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < size; at += step) {
    const int64_t c = v.channel_of(at), r = v.row_of(at);
    C value = (static_cast<C>(x[at]) - mean[r]) * reciprocal_root(variance[r], v.eps);
    if (weight) value = value * static_cast<C>(weight[c]);
    if (bias) value = value + static_cast<C>(bias[c]);
    y[at] = static_cast<T>(value);
  }
}

/// sums[2r] = Σ w g, sums[2r + 1] = Σ w g (x - mean) over statistic r, each over the count.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_sums_kernel(const View v, const T* __restrict__ g, const T* __restrict__ x, const T* weight,
                         const typename ComputeType<T>::type* mean, typename ComputeType<T>::type* sums) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads];
  const int64_t r = blockIdx.x, n = v.count();
  const C center = mean[r];
  C sum = 0, moment = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const int64_t at = v.place(r, i);
    const C value = static_cast<C>(g[at]) * (weight ? static_cast<C>(weight[v.channel_of(at)]) : C(1));
    sum += value;
    moment += value * (static_cast<C>(x[at]) - center);
  }
  sum = join_block(sum, shared);
  moment = join_block(moment, shared);
  if (threadIdx.x == 0) {
    sums[2 * r] = sum / static_cast<C>(n);
    sums[2 * r + 1] = moment / static_cast<C>(n);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const View v, int64_t size, const T* __restrict__ g, const T* __restrict__ x,
                    const T* weight, const typename ComputeType<T>::type* mean,
                    const typename ComputeType<T>::type* variance, const typename ComputeType<T>::type* sums,
                    T* __restrict__ dx) {
  using C = typename ComputeType<T>::type;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < size; at += step) {
    const int64_t c = v.channel_of(at), r = v.row_of(at);
    const C root = reciprocal_root(variance[r], v.eps);
    const C value = static_cast<C>(g[at]) * (weight ? static_cast<C>(weight[c]) : C(1));
    const C away = static_cast<C>(x[at]) - mean[r];
    dx[at] = static_cast<T>(root * (value - sums[2 * r] - away * root * root * sums[2 * r + 1]));
  }
}

/// dweight and dbias: 32 neighbouring channels a block, eight rows of threads share the elements of a channel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    affine_gradient_kernel(const View v, const T* __restrict__ g, const T* __restrict__ x,
                           const typename ComputeType<T>::type* mean,
                           const typename ComputeType<T>::type* variance, T* dweight, T* dbias) {
  using C = typename ComputeType<T>::type;
  constexpr int kRows = kThreads / 32;
  __shared__ C shared[2][kRows][32];
  const int64_t all = v.groups * v.channels, n = v.samples * v.inner;
  const int column = threadIdx.x % 32, row = threadIdx.x / 32;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + column;
  C sum = 0, moment = 0;
  if (c < all)
    for (int64_t i = row; i < n; i += kRows) {
      const int64_t at = (i / v.inner * all + c) * v.inner + i % v.inner, r = v.row_of(at);
      const C value = static_cast<C>(g[at]);
      sum += value;
      moment += value * (static_cast<C>(x[at]) - mean[r]) * reciprocal_root(variance[r], v.eps);
    }
  shared[0][row][column] = sum;
  shared[1][row][column] = moment;
  __syncthreads();
  if (row != 0 || c >= all) return;
  for (int i = 1; i < kRows; ++i) {
    sum += shared[0][i][column];
    moment += shared[1][i][column];
  }
  if (dweight) dweight[c] = static_cast<T>(moment);
  if (dbias) dbias[c] = static_cast<T>(sum);
}

View view_of(const KernelArgs& args, bool over_batch) {
  const auto& a = args.attributes<NormAttrs>();
  TD_CHECK(a.rows(over_batch) < (int64_t{1} << 31) && a.groups * a.channels < (int64_t{1} << 31),
           "norm: on a GPU there may be at most 2^31 - 1 means and channels; got ", a.rows(over_batch),
           " and ", a.groups * a.channels, ".");
  return {a.samples, a.groups, a.channels, a.inner, over_batch, a.eps};
}

unsigned blocks_for(int64_t size) {
  const int64_t blocks = (size + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
}

template <bool kOverBatch>
void norm(const KernelArgs& args) {
  const auto& a = args.attributes<NormAttrs>();
  const View v = view_of(args, kOverBatch);
  const int64_t size = args.in[0].size(), rows = a.rows(kOverBatch);
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const T* weight = a.has_weight ? args.in[1].as<T>() : nullptr;
    const T* bias = a.has_bias ? args.in[1 + a.has_weight].as<T>() : nullptr;
    if (rows > 0) {
      moments_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, stream_of(args)>>>(
          v, args.in[0].as<T>(), args.out[1].as<C>(), args.out[2].as<C>());
      launched("moments_kernel");
    }
    if (size == 0) return;
    scale_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
        v, size, args.in[0].as<T>(), weight, bias, args.out[1].as<C>(), args.out[2].as<C>(),
        args.out[0].as<T>());
    launched("scale_kernel");
  });
}

template <bool kOverBatch>
void norm_gradient(const KernelArgs& args) {
  const auto& a = args.attributes<NormAttrs>();
  const View v = view_of(args, kOverBatch);
  const int64_t size = args.in[1].size(), rows = a.rows(kOverBatch), all = a.groups * a.channels;
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const T *g = args.in[0].as<T>(), *x = args.in[1].as<T>();
    const C *mean = args.in[2].as<C>(), *variance = args.in[3].as<C>();
    const T* weight = a.has_weight ? args.in[4].as<T>() : nullptr;
    if (size > 0) {
      C* sums = static_cast<C*>(args.workspace(sizeof(C) * 2 * static_cast<size_t>(rows)));
      gradient_sums_kernel<T>
          <<<static_cast<unsigned>(rows), kThreads, 0, stream_of(args)>>>(v, g, x, weight, mean, sums);
      launched("gradient_sums_kernel");
      gradient_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
          v, size, g, x, weight, mean, variance, sums, args.out[0].as<T>());
      launched("gradient_kernel");
    }
    if (all == 0 || !(a.has_weight || a.has_bias)) return;
    affine_gradient_kernel<T><<<static_cast<unsigned>((all + 31) / 32), kThreads, 0, stream_of(args)>>>(
        v, g, x, mean, variance, a.has_weight ? args.out[1].as<T>() : nullptr,
        a.has_bias ? args.out[1 + a.has_weight].as<T>() : nullptr);
    launched("affine_gradient_kernel");
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
