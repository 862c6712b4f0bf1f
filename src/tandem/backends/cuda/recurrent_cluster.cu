// "clusters": f32 layers of up to about 256 units, one kernel for all steps. A cluster of up to eight blocks has some samples to
// itself and shares out the units. The weight stays in the blocks' registers; what the next product takes (forward the state,
// backward the gradients of the gates) lies in the shared memory of every block, where all blocks of the cluster write what they
// computed. Clusters know nothing of each other, so that a step waits for seven other blocks at most, and device memory is waited
// for by nobody: what a step reads there is on its way before it waits for the others.
//
// Products: a thread has a few columns (gates of units) and `kTerms` terms of them; neighbouring lanes have the same columns, and a
// tree of shuffles adds them. Sums depend on sizes alone.
#include <algorithm>

#include "tandem/backends/cuda/cluster.cuh"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/recurrent.cuh"

namespace tandem::cuda {
namespace {

constexpr int kMostThreads = 512, kMostRows = 16, kMostBlocks = 8;
/// Columns of a thread, and how many of its weights fit into its registers.
constexpr int columns_of(bool backward) { return backward ? 2 : 4; }
constexpr int kMostWeights = 64;

/// How the work is shared out.
struct Layout {
  int blocks;   // of a cluster
  int units;    // of a block
  int columns;  // of a block: gates · units forward, units backward; padded
  int splits;   // threads that share the terms of columns, a power of two up to 32
  int terms;    // of a thread
  int stride;   // from the terms of one thread to those of the next, in shared memory
  int threads;
  int rows;  // samples of a cluster
  size_t shared_bytes;

  __host__ __device__ int row_stride() const { return splits * stride; }
  /// Where term k of a row lies.
  __device__ int place(int k) const { return k / terms * stride + k % terms; }
};

struct Sequence : RecurrentCall<float> {
  Layout layout;
};

#if __CUDA_ARCH__ >= 900
/// Writes a number of shared memory in each block of the cluster, at the place that it has in this one.
__device__ void write_everywhere(float* at, float value, int blocks, Mailbox* box) {
  if (blocks == 1) {
    *at = value;
    return;
  }
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) send(address_in(at, block), value, address_in(box, block));
}
#endif

/// A thread's part of kRows products, and all parts added up: at each halving a lane keeps one half of its columns and takes its
/// partner's sums for them, as long as there are any to share.
template <int kColumns, int kTerms, int kRows>
__device__ void multiply(const float (&weights)[kColumns][kTerms], const float* left, const Layout& l,
                         int column, int split, float* results) {
  float sums[kRows][kColumns] = {};
#pragma unroll
  for (int k = 0; k < kTerms; k += 4) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 four = *reinterpret_cast<const float4*>(left + r * l.row_stride() + k);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        sums[r][c] = fmaf(weights[c][k], four.x, sums[r][c]);
        sums[r][c] = fmaf(weights[c][k + 1], four.y, sums[r][c]);
        sums[r][c] = fmaf(weights[c][k + 2], four.z, sums[r][c]);
        sums[r][c] = fmaf(weights[c][k + 3], four.w, sums[r][c]);
      }
    }
  }
  int count = kColumns;  // that this lane still has
#pragma unroll
  for (int half = 1; half < kColumns; half *= 2) {
    if (half >= l.splits) break;
    const bool upper = split & half;
    const int kept = kColumns / 2 / half;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kept; ++c) {
        const float give = upper ? sums[r][c] : sums[r][c + kept];
        const float keep = upper ? sums[r][c + kept] : sums[r][c];
        sums[r][c] = keep + __shfl_xor_sync(0xffffffffu, give, half);
      }
    if (upper) column += kept;
    count = kept;
  }
  for (int half = kColumns; half < l.splits; half *= 2)
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r][0] += __shfl_xor_sync(0xffffffffu, sums[r][0], half);
  if (split >= kColumns || column >= l.columns) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (c < count) results[r * l.columns + column + c] = sums[r][c];
}

template <int kWeights, bool backward, bool kLstm>
__global__ void __launch_bounds__(kMostThreads) cluster_kernel(const Sequence s) {
#if __CUDA_ARCH__ >= 900
  constexpr int kColumns = columns_of(backward), kTerms = kWeights / kColumns;
  extern __shared__ __align__(16) float shared[];
  const Layout& l = s.layout;
  const bool is_alone = l.blocks == 1;
  const int gates = kLstm ? 4 : s.gates, depth = static_cast<int>(s.hidden) * (backward ? gates : 1);
  const int size = l.rows * l.row_stride(), states = l.rows * l.units;
  float *const results = shared + 2 * size, *const own_h = results + l.rows * l.columns,
               *const own_c = own_h + states;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) / l.blocks * l.rows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(l.rows), s.samples - first_row));
  const int first_unit = (is_alone ? 0 : block_of_cluster()) * l.units;
  const int split = static_cast<int>(threadIdx.x) % l.splits,
            column = static_cast<int>(threadIdx.x) / l.splits * kColumns;

  float weights[kColumns][kTerms];
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
      const int term = split * kTerms + k, gate = backward ? 0 : (column + c) / l.units;
      const int64_t u = first_unit + (backward ? column + c : (column + c) % l.units);
      const bool is_there =
          term < depth && gate < gates && u < s.hidden && (!backward || column + c < l.units);
      weights[c][k] = !is_there  ? 0.f
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
      own_c[e] = kLstm || s.kind == Recurrence::lstm ? s.c[n * s.hidden + u] : 0.f;
    }
  }
  __shared__ Mailbox boxes[2];  // a faster block may send what the step after the next one takes
  if (threadIdx.x == 0) boxes[0].init(), boxes[1].init();
  if (is_alone)
    __syncthreads();
  else
    wait_for_cluster();

  // The first unit of this thread is read ahead.
  const int mine = threadIdx.x;
  const auto sample = [&](int e) { return first_row + e / l.units; };
  const auto unit = [&](int e) { return static_cast<int64_t>(first_unit + e % l.units); };
  const auto exists = [&](int e) { return e < states && sample(e) < s.samples && unit(e) < s.hidden; };
  const bool has_one = exists(mine);
  // Where the values of a unit go that the next step takes, by gate backward: divisions take long, so that those of the first are ready.
  struct Places {
    int at[backward ? 4 : 1];
  };
  const auto places_of = [&](int e) {
    Places places;
#pragma unroll
    for (int g = 0; g < (backward ? 4 : 1); ++g)
      places.at[g] = e / l.units * l.row_stride() + l.place(static_cast<int>(g * s.hidden + unit(e)));
    return places;
  };
  const Places my_places = places_of(mine);
  const int my_result = mine / l.units * l.columns + mine % l.units;
  const int64_t my_sample = has_one ? sample(mine) : 0, my_unit = has_one ? unit(mine) : 0;

  const int64_t steps = backward ? s.steps + 1 : s.steps;
  using Unit = std::conditional_t<backward, BackwardUnit<float, kLstm>, ForwardUnit<float, kLstm>>;
  Unit read_ahead(s, backward ? s.steps - 1 : 0, my_sample, my_unit);
  for (int64_t done = 0; done < steps; ++done) {
    const int64_t i = backward ? s.steps - 1 - done : done;
    const bool has_product = !backward || done > 0, goes_on = done + 1 < steps;
    const float* const now = shared + (done % 2 ? size : 0);
    float* const next = shared + (done % 2 ? 0 : size);
    Mailbox* const box = boxes + done % 2;
    if (goes_on && !is_alone && threadIdx.x == 0)
      box->expect(static_cast<unsigned>(rows * depth) * static_cast<unsigned>(sizeof(float)));
    if (has_product) {
      int r = 0;
      for (; r + 4 <= rows; r += 4)
        multiply<kColumns, kTerms, 4>(weights, now + r * l.row_stride() + split * l.stride, l, column, split,
                                      results + r * l.columns);
      for (; r < rows; ++r)
        multiply<kColumns, kTerms, 1>(weights, now + r * l.row_stride() + split * l.stride, l, column, split,
                                      results + r * l.columns);
      __syncthreads();
    }
    const auto compute = [&](Unit& of, int e, const Places& places, int result) {
      if constexpr (backward) {
        of.step(s, has_product, has_product ? results[result] : 0.f, own_h[e], own_c[e]);
        if (!goes_on) return;
#pragma unroll
        for (int g = 0; g < 4; ++g)
          if (g < gates) write_everywhere(next + places.at[g], of.of_products[g], l.blocks, box);
      } else {
        of.step(
            s, [&](int g) { return results[result + g * l.units]; }, own_h[e], own_c[e]);
        if (!goes_on) return;
        const float h = own_h[e];
        write_everywhere(next + places.at[0], s.state_mask ? h * s.state_mask[of.n * s.hidden + of.u] : h,
                         l.blocks, box);
      }
    };
    const auto store = [&](const Unit& of, int e) {
      if constexpr (backward)
        of.store(s);
      else
        of.store(s, own_h[e], own_c[e]);
    };
    if (has_one) {
      compute(read_ahead, mine, my_places, my_result);
      store(read_ahead, mine);
    }
#pragma unroll 1
    for (int e = mine + static_cast<int>(blockDim.x); e < states; e += static_cast<int>(blockDim.x)) {
      if (!exists(e)) continue;
      Unit of(s, i, sample(e), unit(e));
      compute(of, e, places_of(e), e / l.units * l.columns + e % l.units);
      store(of, e);
    }
    if (!goes_on) break;
    read_ahead = Unit(s, backward ? i - 1 : i + 1, my_sample, my_unit);
    if (is_alone)
      __syncthreads();
    else
      box->wait(static_cast<unsigned>(done / 2));
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
    const int at_once = columns_of(p.backward);
    l.columns = (l.units * (p.backward ? 1 : p.gates) + at_once - 1) / at_once * at_once;
    const int groups = l.columns / at_once, unit_of_terms = 16 / at_once;
    for (l.splits = 1; l.splits < 32 && groups * l.splits * 2 <= kMostThreads;) l.splits *= 2;
    l.terms = ((depth + l.splits - 1) / l.splits + unit_of_terms - 1) / unit_of_terms * unit_of_terms;
    if (groups * l.splits > kMostThreads || at_once * l.terms > kMostWeights) continue;
    l.threads = (groups * l.splits + 31) / 32 * 32;
    // An odd number of fours: eight neighbouring lanes read from eight groups of banks.
    l.stride = l.terms / 4 % 2 ? l.terms : l.terms + 4;
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
    const double clocks = rounds * (l.rows * l.threads * at_once * l.terms / 100. + (blocks > 1 ? 900 : 500));
    if (best.blocks && clocks >= least) continue;
    best = l;
    least = clocks;
  }
  return best;
}

template <int kWeights, bool backward>
void launch(const Sequence& s, cudaStream_t stream) {
  const auto kernel = s.kind == Recurrence::lstm ? &cluster_kernel<kWeights, backward, true>
                                                 : &cluster_kernel<kWeights, backward, false>;
  const Layout& l = s.layout;
  launch_clusters(kernel, s, (s.samples + l.rows - 1) / l.rows, l.blocks, l.threads, l.shared_bytes, stream);
}

template <bool backward>
void run(const RecurrentCallArgs& call) {
  Sequence s{};
  s.fill(call.args, backward);
  s.layout = lay_out(call.problem);
  const cudaStream_t stream = stream_of(call.args);
  switch (s.layout.terms * columns_of(backward)) {
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
