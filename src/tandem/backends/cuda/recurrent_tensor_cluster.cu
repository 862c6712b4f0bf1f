// "tensor clusters": f32 LSTMs and GRUs of 16 to 256 units in TF32, one kernel for all steps. A cluster of four or eight blocks has up to
// 16 samples to itself and shares out the units; the weight stays in the blocks' registers, as factors of the matrix units (tf32.cuh).
//
// Forward a block multiplies all states with the rows of its units' gates: each half of its warps takes half of the terms, and a thread
// comes to have all gates of one unit for two samples. It sends the new states to every block. Backward a block multiplies the gradients of
// its own gates with what every unit of the cluster takes of them, and sends each block the sums of its units, which adds up what
// came from all. So little is sent either way, two numbers at a time, and device memory is waited for by nobody.
//
// Two buffers take turns: a block sends what step i + 2 reads only after all others have sent what step i + 1 does, and so have read
// what step i did; for that every block must have a unit. Sums depend on sizes alone.
#include <algorithm>

#include "tandem/backends/cuda/cluster.cuh"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/recurrent.cuh"
#include "tandem/backends/cuda/tf32.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kUnits = 32;                                 // places of a block for units
constexpr int kMostTiles = 2, kMostRows = 8 * kMostTiles;  // samples of a cluster: so many tiles of 8
constexpr int kLeastUnits = 16, kMostUnits = 8 * kUnits;

/// How the work is shared out. No blocks: it can't be.
struct Layout {
  int blocks = 0;  // of a cluster
  int units = 0;   // of a block
  int rows = 0;    // samples of a cluster
};

struct Sequence : RecurrentCall<float> {
  Layout layout;
};

/// Numbers in shared memory: what a product takes, (tiles, terms, 8 samples), and sums on their way; of each two buffers.
template <int kBlocks, int kTiles, bool backward>
struct Room {
  static constexpr int kTerms = kUnits * (backward ? 4 : kBlocks);
  static constexpr int kLeft = kTiles * kTerms * 8;
  static constexpr int kSums = backward ? kBlocks * kTiles * kUnits * 8 : kWarps * 8 * 32;
  static constexpr size_t kBytes = 2 * (kLeft + kSums) * sizeof(float);
};

template <int kBlocks, int kTiles, bool backward, bool kLstm>
__global__ void __launch_bounds__(kThreads, 1) tensor_cluster_kernel(const Sequence s) {
#if __CUDA_ARCH__ >= 900
  using Shared = Room<kBlocks, kTiles, backward>;
  constexpr int kTerms = Shared::kTerms, kLeft = Shared::kLeft, kSums = Shared::kSums;
  constexpr int kRowTiles = backward ? kBlocks / 4 : 2, kSteps = backward ? kTerms / 8 : kTerms / 16;
  extern __shared__ __align__(16) float shared[];
  __shared__ Mailbox boxes[2];
  auto* const left = reinterpret_cast<unsigned*>(shared);
  float* const sums = shared + 2 * kLeft;

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, quad = lane % 4;
  const int rank = block_of_cluster(), units = s.layout.units;
  const int gates = kLstm ? 4 : s.gates, hidden = static_cast<int>(s.hidden);
  const int first_unit = rank * units, own_units = min(units, hidden - first_unit);
  const int64_t first_sample = static_cast<int64_t>(blockIdx.x) / kBlocks * s.layout.rows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(s.layout.rows), s.samples - first_sample));
  // By place: kUnits for each block, the last of which may be empty. Negative: no unit.
  const auto unit_at = [&](int place) {
    const int u = place / kUnits * units + place % kUnits;
    return place % kUnits < units && u < hidden ? u : -1;
  };

  // Forward rows of two tiles are the gates of eight units, backward they are places of units.
  unsigned weights[kSteps][kRowTiles][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
      for (int a = 0; a < 4; ++a) {
        const int term = step * 8 + quad + a / 2 * 4;
        int gate, from, to;  // units: whose gate it is, and whose state it multiplies
        if constexpr (backward) {
          gate = term / kUnits, from = term % kUnits < own_units ? first_unit + term % kUnits : -1;
          to = unit_at((warp * kRowTiles + tile) * 16 + group + a % 2 * 8);
        } else {
          gate = 2 * tile + a % 2, from = warp % 4 * 8 + group;
          from = from < own_units ? first_unit + from : -1;
          to = unit_at(warp / 4 * (kTerms / 2) + term);
        }
        const bool is_there = gate < gates && from >= 0 && to >= 0;
        weights[step][tile][a] = is_there ? to_tf32(s.weight[(gate * s.hidden + from) * s.hidden + to]) : 0u;
      }

  // This thread's unit and two samples.
  const int own = warp % 4 * 8 + group, tile = warp / 4, column = 2 * quad;
  const bool has[2] = {tile < kTiles && own < own_units && tile * 8 + column < rows,
                       tile < kTiles && own < own_units && tile * 8 + column + 1 < rows};
  const int64_t u = has[0] ? first_unit + own : 0;
  const int64_t n[2] = {has[0] ? first_sample + tile * 8 + column : 0,
                        has[1] ? first_sample + tile * 8 + column + 1 : 0};
  float own_h[2] = {}, own_c[2] = {}, mask[2] = {1, 1};  // backward h and c: the gradients that go on
  for (int e = threadIdx.x; e < 2 * kLeft; e += kThreads) left[e] = 0;
  __syncthreads();
  if constexpr (!backward) {
    const auto masked = [&](int64_t at) { return s.state_mask ? s.h[at] * s.state_mask[at] : s.h[at]; };
    for (int e = threadIdx.x; e < rows * hidden; e += kThreads) {
      const int row = e / hidden, of = e % hidden, place = of / units * kUnits + of % units;
      left[(row / 8 * kTerms + place) * 8 + row % 8] = to_tf32(masked((first_sample + row) * s.hidden + of));
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (!has[j]) continue;
      own_h[j] = s.h[n[j] * s.hidden + u];
      if (kLstm || s.kind == Recurrence::lstm) own_c[j] = s.c[n[j] * s.hidden + u];
      if (s.state_mask) mask[j] = s.state_mask[n[j] * s.hidden + u];
    }
  }
  if (threadIdx.x == 0) boxes[0].init(), boxes[1].init();
  wait_for_cluster();

  // products = this warp's weights · what lies there. One tile alone would wait for each sum before the next: it has two of them.
  const auto multiply = [&](const unsigned* from, float(&products)[kRowTiles][kTiles][4]) {
    constexpr int kAtOnce = kTiles == 1 ? 2 : 1;
    float parts[kAtOnce][kRowTiles][kTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const unsigned* const at = from + (t * kTerms + step * 8 + quad) * 8 + group;
        const unsigned terms[2] = {at[0], at[4 * 8]};
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
          multiply_add_tf32(parts[step % kAtOnce][m][t], weights[step][m], terms);
      }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          products[m][t][e] =
              kAtOnce == 1 ? parts[0][m][t][e] : parts[0][m][t][e] + parts[kAtOnce - 1][m][t][e];
  };

  const unsigned incoming =
      static_cast<unsigned>((rows + 1) / 2 * (backward ? own_units * kBlocks : hidden)) * 2 *
      static_cast<unsigned>(sizeof(float));
  const int64_t steps = backward ? s.steps + 1 : s.steps;
  using Unit = std::conditional_t<backward, BackwardUnit<float, kLstm>, ForwardUnit<float, kLstm>>;
  const int64_t first = backward ? s.steps - 1 : 0;
  Unit read_ahead[2] = {Unit(s, first, n[0], u), Unit(s, first, n[1], u)};
  for (int64_t done = 0; done < steps; ++done) {
    const int64_t i = backward ? s.steps - 1 - done : done;
    const bool goes_on = done + 1 < steps;
    const int turn = static_cast<int>(done % 2);
    Mailbox* const box = boxes + turn;
    if (goes_on && threadIdx.x == 0) box->expect(incoming);

    if constexpr (backward) {
      float product[2] = {};
      if (done > 0 && has[0]) {
        const float* const from = sums + (turn ^ 1) * kSums + (tile * kUnits + own) * 8 + column;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          const float2 of = *reinterpret_cast<const float2*>(from + block * kTiles * kUnits * 8);
          product[0] += of.x, product[1] += of.y;
        }
      }
      unsigned* const to = left + turn * kLeft + (tile * kTerms + own) * 8 + column;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!has[j]) continue;
        read_ahead[j].step(s, done > 0, product[j], own_h[j], own_c[j]);
        if (!goes_on) continue;
#pragma unroll
        for (int g = 0; g < 4; ++g)
          if (g < gates) to[g * kUnits * 8 + j] = to_tf32(read_ahead[j].of_products[g]);
      }
      if (!goes_on) break;
      __syncthreads();
      float products[kRowTiles][kTiles][4];
      multiply(left + turn * kLeft, products);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int place = (warp * kRowTiles + m) * 16 + group + half * 8;
          if (unit_at(place) < 0) continue;
          const unsigned their_box = address_in(box, place / kUnits);
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
            if (t * 8 + column < rows)
              send(address_in(
                       sums + turn * kSums + ((rank * kTiles + t) * kUnits + place % kUnits) * 8 + column,
                       place / kUnits),
                   products[m][t][2 * half], products[m][t][2 * half + 1], their_box);
        }
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (has[j]) read_ahead[j].store(s);
    } else {
      float products[kRowTiles][kTiles][4];
      multiply(left + turn * kLeft + tile * (kTerms / 2) * 8, products);
      // Each half of the warps gives the other what it has of that one's tile.
      float* const given = sums + turn * kSums + lane;
      if (kTiles == 2 || tile == 1)
#pragma unroll
        for (int e = 0; e < 8; ++e)
          given[(warp * 8 + e) * 32] =
              tile == 1 ? products[e / 4][0][e % 4] : products[e / 4][kTiles - 1][e % 4];
      __syncthreads();
      if (has[0]) {
        const auto product = [&](int g, int j) {
          const int e = g * 2 + j;
          return (tile == 0 ? products[e / 4][0][e % 4] : products[e / 4][kTiles - 1][e % 4]) +
                 given[((warp ^ 4) * 8 + e) * 32];
        };
        float next[2] = {};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (!has[j]) continue;
          read_ahead[j].step(
              s, [&](int g) { return product(g, j); }, own_h[j], own_c[j]);
          next[j] = __uint_as_float(to_tf32(own_h[j] * mask[j]));
        }
        if (goes_on) {
          const unsigned* const at =
              left + (turn ^ 1) * kLeft + (tile * kTerms + rank * kUnits + own) * 8 + column;
#pragma unroll
          for (int block = 0; block < kBlocks; ++block)
            send(address_in(at, block), next[0], next[1], address_in(box, block));
        }
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (has[j]) read_ahead[j].store(s, own_h[j], own_c[j]);
      }
      if (!goes_on) break;
    }
    const int64_t after = backward ? i - 1 : i + 1;
#pragma unroll
    for (int j = 0; j < 2; ++j) read_ahead[j] = Unit(s, after, n[j], u);
    box->wait(static_cast<unsigned>(done / 2));
  }
#endif
}

Layout lay_out(const RecurrentProblem& p) {
  Layout l;
  if (p.hidden < kLeastUnits || p.hidden > kMostUnits) return l;
  l.blocks = p.hidden > 4 * kUnits ? 8 : 4;
  l.units = (static_cast<int>(p.hidden) + l.blocks - 1) / l.blocks;
  const int64_t at_once = std::max(1, p.clusters * 8 / l.blocks);
  const int64_t rounds = (p.samples + at_once * kMostRows - 1) / (at_once * kMostRows);
  l.rows = static_cast<int>((p.samples + rounds * at_once - 1) / (rounds * at_once));
  return l;
}

template <int kBlocks, int kTiles, bool backward>
void launch(const Sequence& s, cudaStream_t stream) {
  const auto kernel = s.kind == Recurrence::lstm ? &tensor_cluster_kernel<kBlocks, kTiles, backward, true>
                                                 : &tensor_cluster_kernel<kBlocks, kTiles, backward, false>;
  launch_clusters(kernel, s, (s.samples + s.layout.rows - 1) / s.layout.rows, kBlocks, kThreads,
                  Room<kBlocks, kTiles, backward>::kBytes, stream);
}

template <bool backward>
void run(const RecurrentCallArgs& call) {
  Sequence s{};
  s.fill(call.args, backward);
  s.layout = lay_out(call.problem);
  const cudaStream_t stream = stream_of(call.args);
  const bool two = s.layout.rows > 8;
  if (s.layout.blocks == 4)
    two ? launch<4, 2, backward>(s, stream) : launch<4, 1, backward>(s, stream);
  else
    two ? launch<8, 2, backward>(s, stream) : launch<8, 1, backward>(s, stream);
}

class RecurrenceInTensorClusters final : public RecurrentImplementation {
 public:
  std::string name() const override { return "tensor clusters"; }
  const char* can(const RecurrentProblem& p) const override {
    if (p.needs_rows) return "it takes neither layer norm nor projections.";
    if (p.gates < 3) return "it takes LSTMs and GRUs only.";
    if (p.dtype != DType::f32 || !p.tf32) return "it takes f32 only, and only where TF32 is allowed.";
    if (p.capability < 9) return "it takes devices of compute capability 9.0 and later only.";
    if (p.samples >= int64_t{1} << 24) return "it takes fewer than 2^24 samples.";
    return lay_out(p).blocks ? nullptr : "it takes 16 to 256 units only.";
  }
  /// One step alone reads the whole weight anyway.
  bool pays(const RecurrentProblem& p) const override { return p.steps > 1; }
  void run(const RecurrentCallArgs& call) const override {
    call.problem.backward ? cuda::run<true>(call) : cuda::run<false>(call);
  }
};

}  // namespace

const RecurrentImplementation& recurrence_in_tensor_clusters() {
  static constexpr RecurrenceInTensorClusters row;
  return row;
}

}  // namespace tandem::cuda
