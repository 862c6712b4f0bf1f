// Random integers and choices: the same draws as on the CPU. The order of keys comes from a stable radix sort.
#include <cub/device/device_radix_sort.cuh>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/random.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

/// The 64 bits of element i. In a replayed graph seed and offset are in device memory: every replay draws anew.
__device__ uint64_t word_of(const RngPosition& rng, int64_t i) {
  return random_word64(rng.base ? rng.base[0] : rng.seed, rng.offset + (rng.base ? rng.base[1] : 0), i);
}

__global__ void __launch_bounds__(kThreads)
    randint_kernel(int64_t size, const RngPosition rng, int64_t low, uint64_t range, int64_t* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size)
    out[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + scaled_word(word_of(rng, i), range));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(int64_t n, const T* __restrict__ in, uint64_t* __restrict__ keys,
                int64_t* __restrict__ indices) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  keys[i] = ordered_key(in[i]);
  indices[i] = i;
}

/// One block per row: a thread adds the weights up in order, as the CPU does, then all search. -1 where a row has no
/// finite sum above 0 or a weight below 0.
__global__ void __launch_bounds__(kThreads)
    multinomial_kernel(int64_t n, int64_t count, const RngPosition rng, const double* __restrict__ weights,
                       double* sums, int64_t* __restrict__ out) {
  const int64_t row = blockIdx.x;
  const double* w = weights + row * n;
  double* upto = sums + row * n;
  __shared__ double total;
  __shared__ long long last;
  if (threadIdx.x == 0) {
    double sum = 0;
    bool right = true;
    last = 0;
    for (int64_t i = 0; i < n; ++i) {
      right = right && w[i] >= 0;
      sum += w[i];
      upto[i] = sum;
      if (w[i] > 0) last = i;
    }
    // The last comparison also refuses infinity and NaN.
    total = right && sum > 0 && sum <= 1.7976931348623157e308 ? sum : -1.;
  }
  // The sums, `total` and `last` are written by thread 0 and read by all.
  __syncthreads();
  for (int64_t k = threadIdx.x; k < count; k += kThreads) {
    const double target = static_cast<double>(word_of(rng, row * count + k) >> 11) * 0x1p-53 * total;
    int64_t begin = 0, end = n;  // the first place whose sum is above the target
    while (begin < end) {
      const int64_t middle = begin + (end - begin) / 2;
      if (upto[middle] > target)
        end = middle;
      else
        begin = middle + 1;
    }
    // A rounded target may reach the last sum, and places of weight 0 must never come out: `last` is the last place
    // with a weight above 0.
    out[row * count + k] = total < 0 ? -1 : begin < last ? begin : last;
  }
}

void randint(const KernelArgs& args) {
  const auto& a = args.attributes<RandintAttrs>();
  const int64_t size = args.out[0].size();
  if (size == 0) return;
  randint_kernel<<<blocks(size), kThreads, 0, stream_of(args)>>>(
      size, args.rng, a.low, static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low),
      args.out[0].as<int64_t>());
  launched("randint_kernel");
}

/// Row after row through one set of buffers: the queue runs them in order. The indices go in ascending and the sort
/// is stable, so equal keys keep the order of their places, as on the CPU.
void random_order(const KernelArgs& args) {
  const Buffer& in = args.in[0];
  const int64_t rows = in.shape[0], n = in.shape[1];
  if (rows * n == 0) return;
  const cudaStream_t stream = stream_of(args);
  size_t sort_bytes = 0;
  uint64_t* none = nullptr;
  int64_t* out = args.out[0].as<int64_t>();
  check(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, none, none, out, out, n, 0, 64, stream),
        "DeviceRadixSort::SortPairs");
  const size_t array = (static_cast<size_t>(n) * 8 + 255) / 256 * 256;
  char* memory = static_cast<char*>(args.workspace(3 * array + sort_bytes + 1));
  auto *keys = reinterpret_cast<uint64_t*>(memory), *sorted = reinterpret_cast<uint64_t*>(memory + array);
  auto* indices = reinterpret_cast<int64_t*>(memory + 2 * array);
  for (int64_t row = 0; row < rows; ++row) {
    if (in.dtype == DType::i64)
      keys_kernel<<<blocks(n), kThreads, 0, stream>>>(n, in.as<int64_t>() + row * n, keys, indices);
    else
      keys_kernel<<<blocks(n), kThreads, 0, stream>>>(n, in.as<double>() + row * n, keys, indices);
    launched("keys_kernel");
    check(cub::DeviceRadixSort::SortPairs(memory + 3 * array, sort_bytes, keys, sorted, indices,
                                          out + row * n, n, 0, 64, stream),
          "DeviceRadixSort::SortPairs");
  }
}

void multinomial(const KernelArgs& args) {
  const Buffer& weights = args.in[0];
  const int64_t rows = weights.shape[0], n = weights.shape[1];
  if (args.out[0].size() == 0) return;
  double* sums = static_cast<double*>(args.workspace(static_cast<size_t>(rows * n) * sizeof(double)));
  multinomial_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream_of(args)>>>(
      n, args.attributes<MultinomialAttrs>().count, args.rng, weights.as<double>(), sums,
      args.out[0].as<int64_t>());
  launched("multinomial_kernel");
}

}  // namespace

void register_random_choice_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_randint().kernels[kCuda] = &randint;
  op_random_order().kernels[kCuda] = &random_order;
  op_multinomial().kernels[kCuda] = &multinomial;
}

}  // namespace tandem::cuda
