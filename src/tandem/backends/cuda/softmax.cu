// softmax, log-softmax and their gradients along one axis of a contiguous tensor. A row of n elements is shared by `lanes`
// threads of a warp (or, for long rows, by a whole block): lane l takes elements l, l + lanes … in order, and a
// butterfly joins the lanes. The order depends on n alone.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

template <class C>
__device__ C join_max(C a, C b) {
  return Maximum{}(a, b);
}
template <class C>
__device__ C join_sum(C a, C b) {
  return a + b;
}

/// Joins over `lanes` neighbouring threads; every one of them gets the result. lanes is a power of two up to
/// 32, or kThreads.
template <class C, C (*kJoin)(C, C)>
__device__ C join_lanes(C mine, int lanes, C* shared) {
  const int width = lanes < 32 ? lanes : 32;
  for (int step = width / 2; step > 0; step /= 2)
    mine = kJoin(mine, __shfl_xor_sync(0xffffffffu, mine, step));
  // The butterfly joins the same pairs for every lane, so that all of them hold the same bits. The first barrier
  // below keeps the values of the join before, which slower threads may still read.
  if (lanes <= 32) return mine;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  C all = shared[0];
  for (int w = 1; w < kThreads / 32; ++w) all = kJoin(all, shared[w]);
  return all;
}

/// The most bytes of a row that is copied to shared memory first, by a block that has it to itself.
constexpr int64_t kMostStaged = 48000;
using Piece = uint4;  // of such a copy

/// Where to read a row of n neighbouring elements: its copy, or (not kStaged) itself.
template <bool kStaged, class T>
__device__ const T* stage(const T* row, int64_t n) {
  if constexpr (!kStaged) return row;
  extern __shared__ Piece staged[];
  const auto* const from = reinterpret_cast<const Piece*>(row);
  for (int64_t i = threadIdx.x; i < n * static_cast<int64_t>(sizeof(T)) / static_cast<int64_t>(sizeof(Piece));
       i += kThreads)
    staged[i] = from[i];
  __syncthreads();
  return reinterpret_cast<const T*>(staged);
}

/// Row r begins at (r / inner) · n · inner + r % inner and steps by inner.
/// Three passes over the row: the largest, the sum of exp(x - largest), the results. A row may be longer than
/// registers hold, so that softmax computes its exponentials twice.
template <class T, bool kLog, bool kStaged>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const T* __restrict__ in, T* __restrict__ out, int64_t rows, int64_t n, int64_t inner,
                   int lanes) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads / 32];
  const int lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes;
  const bool used = row < rows;  // threads of no row still take part in the joins
  const int64_t base = used ? row / inner * n * inner + row % inner : 0;
  const int64_t count = used ? n : 0;
  const T* const given = stage<kStaged>(in + base, n);
  C largest = -static_cast<C>(float_from_bits(0x7f800000u));
  for (int64_t i = lane; i < count; i += lanes)
    largest = Maximum{}(largest, static_cast<C>(given[i * inner]));
  largest = join_lanes<C, join_max<C>>(largest, lanes, shared);
  C sum = 0;
  for (int64_t i = lane; i < count; i += lanes) sum += exp_(static_cast<C>(given[i * inner]) - largest);
  sum = join_lanes<C, join_sum<C>>(sum, lanes, shared);
  const C log_sum = kLog ? log_(sum) : C(0);
  for (int64_t i = lane; i < count; i += lanes) {
    const C x = static_cast<C>(given[i * inner]) - largest;
    out[base + i * inner] = static_cast<T>(kLog ? x - log_sum : exp_(x) / sum);
  }
}

/// softmax: y · (g - Σ g y); log-softmax: g - exp(y) Σ g.
template <class T, bool kLog, bool kStaged>
__global__ void __launch_bounds__(kThreads)
    softmax_gradient_kernel(const T* __restrict__ g, const T* __restrict__ y, T* __restrict__ out,
                            int64_t rows, int64_t n, int64_t inner, int lanes) {
  using C = typename ComputeType<T>::type;
  __shared__ C shared[kThreads / 32];
  const int lane = threadIdx.x % lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes;
  const bool used = row < rows;
  const int64_t base = used ? row / inner * n * inner + row % inner : 0;
  const int64_t count = used ? n : 0;
  const T* const given = stage<kStaged>(g + base, n);
  C sum = 0;
  for (int64_t i = lane; i < count; i += lanes) {
    const C value = static_cast<C>(given[i * inner]);
    sum += kLog ? value : value * static_cast<C>(y[base + i * inner]);
  }
  sum = join_lanes<C, join_sum<C>>(sum, lanes, shared);
  for (int64_t i = lane; i < count; i += lanes) {
    const C a = static_cast<C>(given[i * inner]), b = static_cast<C>(y[base + i * inner]);
    out[base + i * inner] = static_cast<T>(kLog ? a - exp_(b) * sum : b * (a - sum));
  }
}

template <bool kLog, bool kGradient>
void softmax_any(const KernelArgs& args) {
  const Buffer &in = args.in[0], &out = args.out[0];
  const int axis = static_cast<int>(args.attributes<AxisAttrs>().axis);
  const int64_t n = in.rank == 0 ? 1 : in.shape[axis];
  int64_t inner = 1;
  for (int d = axis + 1; d < in.rank; ++d) inner *= in.shape[d];
  const int64_t size = in.size();
  if (size == 0) return;
  const int64_t rows = size / n;
  // The smallest power of two that is not below n, up to a warp; a whole block for long rows.
  int lanes = n > 1024 ? kThreads : 32;
  while (lanes > 1 && lanes / 2 >= n) lanes /= 2;
  const int64_t per_block = kThreads / lanes;
  visit_floating(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const unsigned blocks = static_cast<unsigned>((rows + per_block - 1) / per_block);
    const int64_t row_bytes = n * static_cast<int64_t>(sizeof(T));
    const auto is_aligned = [](const void* at) {
      return reinterpret_cast<uintptr_t>(at) % sizeof(Piece) == 0;
    };
    const bool staged = lanes == kThreads && inner == 1 && row_bytes <= kMostStaged &&
                        row_bytes % static_cast<int64_t>(sizeof(Piece)) == 0 && is_aligned(in.as<T>());
    const auto launch = [&](auto kernel, auto... operands) {
      kernel<<<blocks, kThreads, staged ? row_bytes : 0, stream_of(args)>>>(operands..., out.as<T>(), rows, n,
                                                                            inner, lanes);
    };
    if constexpr (kGradient)
      launch(staged ? &softmax_gradient_kernel<T, kLog, true> : &softmax_gradient_kernel<T, kLog, false>,
             in.as<T>(), args.in[1].as<T>());
    else
      launch(staged ? &softmax_kernel<T, kLog, true> : &softmax_kernel<T, kLog, false>, in.as<T>());
    launched("softmax_kernel");
  });
}

}  // namespace

void register_softmax_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_softmax().kernels[kCuda] = &softmax_any<false, false>;
  op_log_softmax().kernels[kCuda] = &softmax_any<true, false>;
  op_softmax_gradient().kernels[kCuda] = &softmax_any<false, true>;
  op_log_softmax_gradient().kernels[kCuda] = &softmax_any<true, true>;
}

}  // namespace tandem::cuda
