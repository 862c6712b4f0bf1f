// "clusters": f32 layers of up to about 256 units, one kernel for all steps. A cluster of up to eight blocks has some samples to
// itself and shares out the units. The weight stays in the blocks' registers; what the next product takes (forward the state,
// backward the gradients of the gates) lies in the shared memory of every block, where all blocks of the cluster write what they
// computed. Clusters know nothing of each other, so that a step waits for seven other blocks at most, and device memory is waited
// for by nobody: what a step reads there is on its way before the product begins.
//
// Products: a thread has one column (a gate of a unit) and `kWeights` of its terms; neighbouring lanes have the same column, and a
// tree of shuffles adds them. Sums depend on sizes alone.
#include <algorithm>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/recurrent.cuh"

namespace tandem::cuda {
namespace {

constexpr int kMostThreads = 512, kMostRows = 16, kMostBlocks = 8;
constexpr int kMostWeights = 64;

/// How the work is shared out.
struct Layout {
  int blocks;   // of a cluster
  int units;    // of a block
  int columns;  // of a block: gates · units forward, units backward
  int splits;   // threads of a column, a power of two up to 32
  int weights;  // of a thread
  int stride;   // from the terms of one thread of a column to those of the next, in shared memory
  int threads;
  int rows;  // samples of a cluster
  size_t shared_bytes;

  __host__ __device__ int row_stride() const { return splits * stride; }
  /// Where term k of a row lies.
  __device__ int place(int k) const { return k / weights * stride + k % weights; }
};

struct Sequence : RecurrentCall<float> {
  Layout layout;
};

__device__ unsigned block_of_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Every thread of the cluster comes to both, in turn: what was written before the first is seen after the second. Between them is
/// the time for what nobody waits for: writes to device memory before the first would have to arrive there first.
__device__ void arrive(bool is_alone) {
  if (!is_alone) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ void wait_for_others(bool is_alone) {
  if (is_alone)
    __syncthreads();
  else
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
/// Writes a number of shared memory in each block of the cluster, at the place that it has in this one.
__device__ void write_everywhere(float* at, float value, int blocks) {
  if (blocks == 1) {
    *at = value;
    return;
  }
  const auto here = static_cast<unsigned>(__cvta_generic_to_shared(at));
  for (int block = 0; block < blocks; ++block) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
  }
}

/// One column's part of kRows products, and all parts added up.
template <int kWeights, int kRows>
__device__ void multiply(const float (&weights)[kWeights], const float* left, const Layout& l, int column,
                         int split, float* results) {
  float sums[kRows] = {};
#pragma unroll
  for (int k = 0; k < kWeights; k += 4) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 four = *reinterpret_cast<const float4*>(left + r * l.row_stride() + k);
      sums[r] = fmaf(weights[k], four.x, sums[r]);
      sums[r] = fmaf(weights[k + 1], four.y, sums[r]);
      sums[r] = fmaf(weights[k + 2], four.z, sums[r]);
      sums[r] = fmaf(weights[k + 3], four.w, sums[r]);
    }
  }
  for (int half = 1; half < l.splits; half *= 2)
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], half);
  if (split == 0 && column < l.columns)
#pragma unroll
    for (int r = 0; r < kRows; ++r) results[r * l.columns + column] = sums[r];
}

template <int kWeights, bool backward>
__global__ void __launch_bounds__(kMostThreads) cluster_kernel(const Sequence s) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float shared[];
  const Layout& l = s.layout;
  const bool is_alone = l.blocks == 1;
  const int depth = static_cast<int>(s.hidden) * (backward ? s.gates : 1);
  const int size = l.rows * l.row_stride(), states = l.rows * l.units;
  float *const results = shared + 2 * size, *const own_h = results + l.rows * l.columns,
               *const own_c = own_h + states;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) / l.blocks * l.rows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(l.rows), s.samples - first_row));
  const int first_unit = static_cast<int>(is_alone ? 0 : block_of_cluster()) * l.units;
  const int split = static_cast<int>(threadIdx.x) % l.splits,
            column = static_cast<int>(threadIdx.x) / l.splits;

  float weights[kWeights];
#pragma unroll
  for (int k = 0; k < kWeights; ++k) {
    const int term = split * kWeights + k, gate = backward ? 0 : column / l.units;
    const int64_t u = first_unit + (backward ? column : column % l.units);
    const bool is_there = column < l.columns && term < depth && u < s.hidden;
    weights[k] = !is_there  ? 0.f
                 : backward ? s.weight[term * s.hidden + u]
                            : s.weight[(gate * s.hidden + u) * s.hidden + term];
  }
  for (int e = threadIdx.x; e < 2 * size; e += blockDim.x) shared[e] = 0;
  __syncthreads();
  if constexpr (!backward) {
    for (int e = threadIdx.x; e < rows * depth; e += blockDim.x) {
      const int64_t at = (first_row + e / depth) * s.hidden + e % depth;
      shared[e / depth * l.row_stride() + l.place(e % depth)] =
          s.state_mask ? s.h[at] * s.state_mask[at] : s.h[at];
    }
    for (int e = threadIdx.x; e < states; e += blockDim.x) {
      const int64_t n = first_row + e / l.units, u = first_unit + e % l.units;
      if (n >= s.samples || u >= s.hidden) continue;
      own_h[e] = s.h[n * s.hidden + u];
      own_c[e] = s.kind == Recurrence::lstm ? s.c[n * s.hidden + u] : 0.f;
    }
  }
  arrive(is_alone);
  wait_for_others(is_alone);  // every block is there

  // The first unit of this thread is read ahead.
  const int mine = threadIdx.x;
  const auto sample = [&](int e) { return first_row + e / l.units; };
  const auto unit = [&](int e) { return static_cast<int64_t>(first_unit + e % l.units); };
  const auto exists = [&](int e) { return e < states && sample(e) < s.samples && unit(e) < s.hidden; };
  const bool has_one = exists(mine);
  const int64_t my_sample = has_one ? sample(mine) : 0, my_unit = has_one ? unit(mine) : 0;

  const int64_t steps = backward ? s.steps + 1 : s.steps;
  for (int64_t done = 0; done < steps; ++done) {
    const int64_t i = backward ? s.steps - 1 - done : done;
    const bool has_product = !backward || done > 0, goes_on = done + 1 < steps;
    const float* const now = shared + (done % 2 ? size : 0);
    float* const next = shared + (done % 2 ? 0 : size);
    using Unit = std::conditional_t<backward, BackwardUnit<float>, ForwardUnit<float>>;
    Unit read_ahead(s, i, my_sample, my_unit);
    if (has_product) {
      int r = 0;
      for (; r + 4 <= rows; r += 4)
        multiply<kWeights, 4>(weights, now + r * l.row_stride() + split * l.stride, l, column, split,
                              results + r * l.columns);
      for (; r < rows; ++r)
        multiply<kWeights, 1>(weights, now + r * l.row_stride() + split * l.stride, l, column, split,
                              results + r * l.columns);
      __syncthreads();
    }
    const auto compute = [&](Unit& of, int e) {
      const int r = e / l.units, k = e % l.units;
      float* const to = next + r * l.row_stride();
      if constexpr (backward) {
        of.step(s, has_product, has_product ? results[r * l.columns + k] : 0.f, own_h[e], own_c[e]);
        if (!goes_on) return;
#pragma unroll
        for (int g = 0; g < 4; ++g)
          if (g < s.gates)
            write_everywhere(to + l.place(static_cast<int>(g * s.hidden + of.u)), of.of_products[g],
                             l.blocks);
      } else {
        of.step(
            s, [&](int g) { return results[r * l.columns + g * l.units + k]; }, own_h[e], own_c[e]);
        if (!goes_on) return;
        const float h = own_h[e];
        write_everywhere(to + l.place(static_cast<int>(of.u)),
                         s.state_mask ? h * s.state_mask[of.n * s.hidden + of.u] : h, l.blocks);
      }
    };
    const auto store = [&](const Unit& of, int e) {
      if constexpr (backward)
        of.store(s);
      else
        of.store(s, own_h[e], own_c[e]);
    };
    if (has_one) compute(read_ahead, mine);
    for (int e = mine + static_cast<int>(blockDim.x); e < states; e += static_cast<int>(blockDim.x)) {
      if (!exists(e)) continue;
      Unit of(s, i, sample(e), unit(e));
      compute(of, e);
      store(of, e);
    }
    if (goes_on) arrive(is_alone);
    if (has_one) store(read_ahead, mine);
    if (goes_on) wait_for_others(is_alone);
  }
#endif
}

/// As few clocks a step as a simple count gives. No blocks: there is none.
Layout lay_out(const RecurrentProblem& p) {
  Layout best{};
  double least = 0;
  if (p.hidden > kMostBlocks * kMostThreads) return best;
  const int hidden = static_cast<int>(p.hidden), depth = hidden * (p.backward ? p.gates : 1);
  for (int blocks = 1; blocks <= kMostBlocks; blocks *= 2) {
    Layout l{};
    l.blocks = blocks;
    l.units = (hidden + blocks - 1) / blocks;
    l.columns = l.units * (p.backward ? 1 : p.gates);
    for (l.splits = 1; l.splits < 32 && l.columns * l.splits * 2 <= kMostThreads;) l.splits *= 2;
    l.weights = ((depth + l.splits - 1) / l.splits + 15) / 16 * 16;
    if (l.columns * l.splits > kMostThreads || l.weights > kMostWeights) continue;
    l.threads = (l.columns * l.splits + 31) / 32 * 32;
    // An odd number of fours: eight neighbouring lanes read from eight groups of banks.
    l.stride = l.weights + 4;
    const int clusters = std::max(1, p.multiprocessors / blocks);
    l.rows = static_cast<int>(std::min<int64_t>((p.samples + clusters - 1) / clusters, kMostRows));
    const auto bytes = [&] {
      return (2 * static_cast<size_t>(l.rows * l.row_stride()) + static_cast<size_t>(l.rows * l.columns) +
              2 * static_cast<size_t>(l.rows * l.units)) *
             sizeof(float);
    };
    while (l.rows > 1 && bytes() > p.shared_bytes) --l.rows;
    l.shared_bytes = bytes();
    if (l.shared_bytes > p.shared_bytes) continue;
    const auto rounds = static_cast<double>(((p.samples + l.rows - 1) / l.rows + clusters - 1) / clusters);
    const double clocks = rounds * (l.rows * l.threads * l.weights / 100. + (blocks > 1 ? 900 : 500));
    if (best.blocks && clocks >= least) continue;
    best = l;
    least = clocks;
  }
  return best;
}

template <int kWeights, bool backward>
void launch(const Sequence& s, cudaStream_t stream) {
  const auto kernel = &cluster_kernel<kWeights, backward>;
  const Layout& l = s.layout;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(l.shared_bytes)),
        "cudaFuncSetAttribute");
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(l.blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((s.samples + l.rows - 1) / l.rows * l.blocks));
  config.blockDim = dim3(static_cast<unsigned>(l.threads));
  config.dynamicSmemBytes = l.shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, s), "cudaLaunchKernelEx");
}

template <bool backward>
void run(const RecurrentCallArgs& call) {
  Sequence s{};
  s.fill(call.args, backward);
  s.layout = lay_out(call.problem);
  const cudaStream_t stream = stream_of(call.args);
  switch (s.layout.weights) {
    case 16:
      return launch<16, backward>(s, stream);
    case 32:
      return launch<32, backward>(s, stream);
    case 48:
      return launch<48, backward>(s, stream);
    default:
      return launch<64, backward>(s, stream);
  }
}

class RecurrenceInClusters final : public RecurrentImplementation {
 public:
  std::string name() const override { return "clusters"; }
  const char* can(const RecurrentProblem& p) const override {
    if (p.needs_rows) return "it takes neither layer norm nor projections.";
    if (p.dtype != DType::f32) return "it takes f32 only.";
    if (p.capability < 9) return "it takes devices of compute capability 9.0 and later only.";
    if (p.samples >= int64_t{1} << 24) return "it takes fewer than 2^24 samples.";
    return lay_out(p).blocks ? nullptr : "it takes only weights that fit into the registers of eight blocks.";
  }
  /// One step alone reads the whole weight anyway. Where there is much to compute, a library's products win: on an H200 from about
  /// 150,000 terms a step and multiprocessor on.
  bool pays(const RecurrentProblem& p) const override {
    const auto h = static_cast<double>(p.hidden), n = static_cast<double>(p.samples);
    return p.steps > 1 && n * p.gates * h * h < 1.5e5 * p.multiprocessors;
  }
  void run(const RecurrentCallArgs& call) const override {
    call.problem.backward ? cuda::run<true>(call) : cuda::run<false>(call);
  }
};

}  // namespace

const RecurrentImplementation& recurrence_in_clusters() {
  static constexpr RecurrenceInClusters row;
  return row;
}

}  // namespace tandem::cuda
