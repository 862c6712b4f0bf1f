// "small": small f32 products, the layers of a small network, whose time in a library is mostly latency. A block
// of eight warps makes a 16×16 tile: each warp takes every eighth group of 16 of the inner dimension, reads its
// operands straight into registers, several groups in flight, and the eight sums are added in order.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/matrix.h"
#include "tandem/backends/cuda/tf32.cuh"

namespace tandem::cuda {
namespace {

constexpr int kTile = 16, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kGroup = 16;      // inner elements of two steps of the matrix units
constexpr int kInFlight = 4;    // groups of a warp that are read before the first is multiplied
constexpr int kMaxInner = 784;  // beyond it a library's tiles, which share what they read, are ahead
constexpr int kMaxTiles = 1024;

/// What a thread holds of one operand for a group: inner elements 4t … 4t + 3 of rows g and g + 8 of the tile,
/// with lane = 4g + t. Elements 0 and 1 stand for places t and t + 4 of the first step, 2 and 3 of the second:
/// both operands agree, and four neighbours in memory are one read.
struct Fragment {
  float rows[2][4];
};

/// One operand as a thread sees it: rows of the inner dimension, which for b are its columns. kByFour: four inner
/// neighbours lie together and aligned.
template <bool kByFour>
struct Side {
  const float* rows[2];  // the inner dimension's start; of row 0 where the row lies outside
  bool used[2];
  int64_t stride;  // of the inner dimension

  __device__ Side(const float* from, int64_t row_stride, int64_t inner_stride, int limit, int g)
      : stride(inner_stride) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      used[h] = g + 8 * h < limit;
      rows[h] = from + (used[h] ? (g + 8 * h) * row_stride : 0);
    }
  }
  /// Elements at … at + 3; zero outside the matrix.
  __device__ __forceinline__ void load(Fragment& out, int at, int k) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (kByFour) {
        float4 four = make_float4(0, 0, 0, 0);
        if (used[h] && at < k) four = *reinterpret_cast<const float4*>(rows[h] + at);
        out.rows[h][0] = four.x, out.rows[h][1] = four.y, out.rows[h][2] = four.z, out.rows[h][3] = four.w;
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) out.rows[h][i] = used[h] && at + i < k ? rows[h][(at + i) * stride] : 0.f;
      }
    }
  }
};

/// Grid: (tiles across, tiles down, batch). Which warp sums which group depends on k alone, so that an element's bits
/// depend neither on the other elements nor on how it is read.
template <bool kAByFour, bool kBByFour, bool kExact>
__global__ void __launch_bounds__(kThreads) small_product_kernel(const Product p) {
  __shared__ __align__(16) float sums[kWarps][kTile * kTile];
  const int k = static_cast<int>(p.k);
  const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
  const int rows = static_cast<int>(p.m) - m0, columns = static_cast<int>(p.n) - n0;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Side<kAByFour> a(
      static_cast<const float*>(p.a.data) + blockIdx.z * p.a.batch_stride + m0 * p.a.row_stride,
      p.a.row_stride, p.a.column_stride, rows, g);
  const Side<kBByFour> b(
      static_cast<const float*>(p.b.data) + blockIdx.z * p.b.batch_stride + n0 * p.b.column_stride,
      p.b.column_stride, p.b.row_stride, columns, g);
  const int row = threadIdx.x / kTile,
            column = threadIdx.x % kTile;  // of the element that this thread writes
  const bool writes = row < rows && column < columns;
  const float bias =
      p.bias && writes ? static_cast<const float*>(p.bias)[(n0 + column) * p.bias_stride] : 0.f;

  float sum[2][4] = {};  // columns 0 … 7 and 8 … 15
  for (int first = warp * kGroup; first < k; first += kInFlight * kWarps * kGroup) {
    Fragment left[kInFlight], right[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (first + u * kWarps * kGroup >= k) break;  // the same for the whole warp
      const int at = first + u * kWarps * kGroup + 4 * t;
      a.load(left[u], at, k);
      b.load(right[u], at, k);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (first + u * kWarps * kGroup >= k) break;  // the same for the whole warp
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const unsigned fragment[4] = {factor<kExact>(left[u].rows[0][i]), factor<kExact>(left[u].rows[1][i]),
                                      factor<kExact>(left[u].rows[0][i + 1]),
                                      factor<kExact>(left[u].rows[1][i + 1])};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const unsigned other[2] = {factor<kExact>(right[u].rows[j][i]),
                                     factor<kExact>(right[u].rows[j][i + 1])};
          multiply_add<kExact>(sum[j], fragment, other);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<float2*>(&sums[warp][(g + 8 * h) * kTile + 8 * j + 2 * t]) =
          make_float2(sum[j][2 * h], sum[j][2 * h + 1]);
  // Thread i writes element i of the tile, to which all eight warps have contributed. The bias comes last.
  __syncthreads();
  if (!writes) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w][threadIdx.x];
  if (p.bias) total += bias;
  static_cast<float*>(p.out)[(blockIdx.z * p.m + m0 + row) * p.n + n0 + column] = total;
}

/// Whether four inner neighbours lie together and aligned everywhere. Changes how elements are read, not what is
/// computed.
bool reads_by_four(const Matrix& x, int64_t row_stride, int64_t inner_stride, int64_t inner,
                   int64_t batches) {
  return inner_stride == 1 && inner % 4 == 0 && row_stride % 4 == 0 &&
         (batches == 1 || x.batch_stride % 4 == 0) && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

template <bool kExact>
auto kernel_for(bool a_by_four, bool b_by_four) {
  return a_by_four ? (b_by_four ? small_product_kernel<true, true, kExact>
                                : small_product_kernel<true, false, kExact>)
                   : (b_by_four ? small_product_kernel<false, true, kExact>
                                : small_product_kernel<false, false, kExact>);
}

int64_t tiles(int64_t size) { return (size + kTile - 1) / kTile; }

class SmallProduct final : public ProductImplementation {
 public:
  std::string name() const override { return "small"; }
  const char* can(const ProductProblem& p) const override {
    if (p.dtype != DType::f32) return "it takes f32 only.";
    if (p.capability < 8) return "it takes devices of compute capability 8.0 and later only.";
    if (p.k > kMaxInner) return "it takes sums of up to 784 products only.";
    if (p.batches > 1024 || p.m > 1 << 18 || p.n > 1 << 18 || tiles(p.m) * tiles(p.n) * p.batches > kMaxTiles)
      return "it takes up to 1024 tiles of 16x16 outputs only.";
    return nullptr;
  }
  void run(const ProductCall& call) const override {
    const Product& p = call.product;
    const dim3 grid(static_cast<unsigned>(tiles(p.n)), static_cast<unsigned>(tiles(p.m)),
                    static_cast<unsigned>(p.batches));
    const bool a = reads_by_four(p.a, p.a.row_stride, p.a.column_stride, p.k, p.batches);
    const bool b = reads_by_four(p.b, p.b.column_stride, p.b.row_stride, p.k, p.batches);
    const auto kernel = call.problem.tf32 ? kernel_for<false>(a, b) : kernel_for<true>(a, b);
    kernel<<<grid, kThreads, 0, stream_of(call.args)>>>(p);
    launched("small_product_kernel");
  }
};

}  // namespace

const ProductImplementation& small_product() {
  static constexpr SmallProduct row;
  return row;
}

}  // namespace tandem::cuda
