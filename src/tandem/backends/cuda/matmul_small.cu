// Small f32 products in tf32: the layers of a small network, whose time in a library is mostly latency. A block
// of eight warps makes a 16×16 tile: it brings whole rows of a and columns of b into shared memory at once, each
// warp multiplies an eighth of the inner dimension, and the eight sums are added in order.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/matrix.h"
#include "tandem/backends/cuda/tf32.cuh"

namespace tandem::cuda {
namespace {

constexpr int kTile = 16, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kMaxInner = 784;  // two panels of 16 rows then fit the 99 KB that every chip since sm_86 offers
constexpr int kMaxTiles = 1024;

/// Row length of a panel in shared memory: the inner dimension in steps of 8 with a gap of 4, which spreads
/// the rows that a warp reads over all banks.
constexpr int panel_length(int k) { return (k + 7) / 8 * 8 + 4; }

/// Brings 16 rows of `count` elements in; rows from `limit` on and the tail are zero. Neighbouring threads read
/// neighbouring memory, along the rows or across them.
__device__ void load_panel(float* panel, int length, const float* from, int64_t row_stride,
                           int64_t inner_stride, int limit, int count) {
  const int padded = length - 4;
  const bool along = inner_stride <= row_stride;
  for (int i = threadIdx.x; i < kTile * padded; i += kThreads) {
    const int row = along ? i / padded : i % kTile;
    const int k = along ? i - row * padded : i / kTile;
    const bool used = row < limit && k < count;
    copy_async(panel + row * length + k, from + (used ? row * row_stride + k * inner_stride : 0), used);
  }
}

__global__ void __launch_bounds__(kThreads) small_product_kernel(const Product p) {
  extern __shared__ float shared[];
  const int k = static_cast<int>(p.k), length = panel_length(k);
  float *a_panel = shared, *b_panel = shared + kTile * length;  // [row][k], [column][k]
  const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
  const int rows = static_cast<int>(p.m) - m0, columns = static_cast<int>(p.n) - n0;
  const float* a = static_cast<const float*>(p.a.data) + blockIdx.z * p.a.batch_stride + m0 * p.a.row_stride;
  const float* b =
      static_cast<const float*>(p.b.data) + blockIdx.z * p.b.batch_stride + n0 * p.b.column_stride;
  load_panel(a_panel, length, a, p.a.row_stride, p.a.column_stride, rows, k);
  load_panel(b_panel, length, b, p.b.column_stride, p.b.row_stride, columns, k);
  wait_for_copies();
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float sum[2][4] = {};  // columns 0 … 7 and 8 … 15
  const int steps = (length - 4) / 8;
#pragma unroll 4
  for (int step = warp; step < steps; step += kWarps) {
    const int at = step * 8 + t;
    const unsigned fragment[4] = {to_tf32(a_panel[g * length + at]), to_tf32(a_panel[(g + 8) * length + at]),
                                  to_tf32(a_panel[g * length + at + 4]),
                                  to_tf32(a_panel[(g + 8) * length + at + 4])};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float* column = b_panel + (8 * j + g) * length + at;
      const unsigned other[2] = {to_tf32(column[0]), to_tf32(column[4])};
      multiply_add(sum[j], fragment, other);
    }
  }
  __syncthreads();  // the panels are read: their place takes the warps' sums
  float* mine = shared + warp * kTile * kTile;
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) mine[(g + 8 * (e / 2)) * kTile + 8 * j + 2 * t + e % 2] = sum[j][e];
  __syncthreads();
  const int row = threadIdx.x / kTile, column = threadIdx.x % kTile;
  if (row >= rows || column >= columns) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += shared[w * kTile * kTile + threadIdx.x];
  if (p.bias) total += static_cast<const float*>(p.bias)[(n0 + column) * p.bias_stride];
  static_cast<float*>(p.out)[(blockIdx.z * p.m + m0 + row) * p.n + n0 + column] = total;
}

}  // namespace

bool small_product(const KernelArgs& args, const Product& p) {
  const DeviceState& state = state_of(args);
  if (p.dtype != DType::f32 || !allow_tf32() || state.properties.major < 8 || p.k > kMaxInner) return false;
  const int64_t tiles_m = (p.m + kTile - 1) / kTile, tiles_n = (p.n + kTile - 1) / kTile;
  if (p.batches > 1024 || p.m > 1 << 18 || p.n > 1 << 18 || tiles_m * tiles_n * p.batches > kMaxTiles)
    return false;
  int bytes = 2 * kTile * panel_length(static_cast<int>(p.k)) * 4;
  const int sums = kWarps * kTile * kTile * 4;
  if (bytes < sums) bytes = sums;
  if (bytes > 48 << 10)
    check(cudaFuncSetAttribute(small_product_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>(tiles_n), static_cast<unsigned>(tiles_m),
                  static_cast<unsigned>(p.batches));
  small_product_kernel<<<grid, kThreads, static_cast<size_t>(bytes), stream_of(args)>>>(p);
  launched("small_product_kernel");
  return true;
}

}  // namespace tandem::cuda
