// argsort and searchsorted on keys (ops/sort_key.h): equal keys stay in their order, as on the CPU.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/sorting.h"
#include "tandem/core/op.h"
#include "tandem/ops/index.h"
#include "tandem/ops/sort_key.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;
unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }
size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

/// Called without memory CUB only tells how much it needs.
size_t temporary_bytes(int64_t n) {
  size_t bytes = 0;
  cub::DoubleBuffer<uint64_t> keys(nullptr, nullptr);
  cub::DoubleBuffer<uint32_t> values(nullptr, nullptr);
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, values, static_cast<int>(n)),
        "the size of a radix sort");
  return bytes;
}

/// The lines of x along the axis, one after the other.
/// One thread per element. x is (outer, length, inner); line = outer · inner + i, and place p = line · length + j. A
/// descending key is turned over, and the sort looks at the key's own width alone.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sort_keys_kernel(int64_t size, int64_t length, int64_t inner, bool descending, const T* __restrict__ x,
                     uint64_t* __restrict__ keys, uint32_t* __restrict__ places) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (p >= size) return;
  const int64_t line = p / length, j = p - line * length, outer = line / inner;
  const auto key = sort_key(x[(outer * length + j) * inner + line - outer * inner]);
  keys[p] = descending ? static_cast<decltype(key)>(~key) : key;
  places[p] = static_cast<uint32_t>(p);
}

/// After the sort by value, place / length still names the line of an element. A second sort by line, stable, leaves
/// the order of the values within each line as it is.
__global__ void __launch_bounds__(kThreads)
    line_keys_kernel(int64_t size, int64_t length, const uint32_t* __restrict__ places,
                     uint64_t* __restrict__ keys) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (p < size) keys[p] = places[p] / length;
}

/// One thread per element of out (outer, count, inner): the r-th of its line, counted from the start of the line.
__global__ void __launch_bounds__(kThreads)
    take_order_kernel(int64_t size, int64_t length, int64_t inner, int64_t count,
                      const uint32_t* __restrict__ places, int64_t* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t row = i / inner, outer = row / count, r = row - outer * count;
  const int64_t line = outer * inner + i - row * inner;
  out[i] = places[line * length + r] - line * length;
}

void argsort_any(const KernelArgs& args) {
  const auto& a = args.attributes<SortAttrs>();
  const Buffer &x = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const int64_t size = x.size(), length = x.shape[a.axis], lines = size / length;
  // Places are 32-bit and CUB counts pairs in int.
  TD_CHECK(size < int64_t{1} << 31, "sort: on a GPU a tensor must have fewer than 2^31 elements; got ", size,
           ".");
  int64_t inner = 1;
  for (int d = static_cast<int>(a.axis) + 1; d < x.rank; ++d) inner *= x.shape[d];
  const cudaStream_t stream = stream_of(args);
  SortBuffers buffers = sort_buffers(args.workspace(sort_workspace(size, 0)), size);
  visit_dtype(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    sort_keys_kernel<T><<<blocks_for(size), kThreads, 0, stream>>>(size, length, inner, a.descending,
                                                                   x.as<T>(), buffers.keys, buffers.values);
  });
  launched("sort_keys_kernel");
  sort_pairs(stream, buffers, size, bytes_of(x.dtype) == 8 ? 64 : 32);
  if (lines > 1) {  // all lines were sorted as one: bring each line together again
    line_keys_kernel<<<blocks_for(size), kThreads, 0, stream>>>(size, length, buffers.values, buffers.keys);
    launched("line_keys_kernel");
    sort_pairs(stream, buffers, size, std::bit_width(static_cast<uint64_t>(lines - 1)));
  }
  take_order_kernel<<<blocks_for(out.size()), kThreads, 0, stream>>>(out.size(), length, inner, a.count,
                                                                     buffers.values, out.as<int64_t>());
  launched("take_order_kernel");
}

/// The first place whose key is not below the value's (right: is above it). `row` neighbouring values share one
/// sequence. Keys are compared rather than numbers, so that NaN stands last here as it does in a sort.
template <class T>
__global__ void __launch_bounds__(kThreads)
    search_kernel(int64_t size, int64_t row, int64_t length, bool right, const T* __restrict__ sequence,
                  const T* __restrict__ values, int64_t* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const T* from = sequence + i / row * length;
  const auto key = sort_key(values[i]);
  int64_t low = 0, high = length;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const auto there = sort_key(from[middle]);
    if (there < key || (right && there == key))
      low = middle + 1;
    else
      high = middle;
  }
  out[i] = low;
}

void searchsorted_any(const KernelArgs& args) {
  const Buffer &sequence = args.in[0], &values = args.in[1];
  const int64_t size = values.size(), length = sequence.shape[sequence.rank - 1];
  if (size == 0) return;
  const int64_t row = sequence.rank > 1 ? values.shape[values.rank - 1] : size;
  visit_dtype(values.dtype, [&](auto zero) {
    using T = decltype(zero);
    search_kernel<T><<<blocks_for(size), kThreads, 0, stream_of(args)>>>(
        size, row, length, args.attributes<SearchAttrs>().right, sequence.as<T>(), values.as<T>(),
        args.out[0].as<int64_t>());
  });
  launched("search_kernel");
}

}  // namespace

size_t sort_workspace(int64_t n, size_t rest) {
  const auto count = static_cast<size_t>(n);
  return 2 * aligned(count * 8) + 2 * aligned(count * 4) + aligned(temporary_bytes(n)) + rest;
}

// The pieces follow each other as sort_workspace() counts them; each begins at a multiple of 256 bytes.
SortBuffers sort_buffers(void* workspace, int64_t n) {
  char* at = static_cast<char*>(workspace);
  const auto take = [&](size_t bytes) {
    char* block = at;
    at += aligned(bytes);
    return block;
  };
  SortBuffers b{};
  const auto count = static_cast<size_t>(n);
  b.keys = reinterpret_cast<uint64_t*>(take(count * 8));
  b.other_keys = reinterpret_cast<uint64_t*>(take(count * 8));
  b.values = reinterpret_cast<uint32_t*>(take(count * 4));
  b.other_values = reinterpret_cast<uint32_t*>(take(count * 4));
  b.temporary_bytes = temporary_bytes(n);
  b.temporary = take(b.temporary_bytes);
  b.rest = at;
  return b;
}

void sort_pairs(cudaStream_t stream, SortBuffers& b, int64_t n, int bits) {
  cub::DoubleBuffer<uint64_t> keys(b.keys, b.other_keys);
  cub::DoubleBuffer<uint32_t> values(b.values, b.other_values);
  check(cub::DeviceRadixSort::SortPairs(b.temporary, b.temporary_bytes, keys, values, static_cast<int>(n), 0,
                                        bits, stream),
        "a radix sort");
  // The result may lie in either buffer of a pair, by the number of passes: the first always names it.
  b.keys = keys.Current();
  b.other_keys = keys.Alternate();
  b.values = values.Current();
  b.other_values = values.Alternate();
}

void register_sort_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_argsort().kernels[kCuda] = &argsort_any;
  op_searchsorted().kernels[kCuda] = &searchsorted_any;
}

}  // namespace tandem::cuda
