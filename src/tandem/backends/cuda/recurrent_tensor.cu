// "tensor cores": f32 layers in TF32, one kernel for all steps, the weight in registers (some of it in shared memory, where it is a bit too
// large for them). Clusters of eight blocks share out the units, the blocks of a cluster the terms of its products: a block reads an
// eighth of the state (backward, of the gradients of the gates) and multiplies it with what its cluster's units take of it. The
// cluster then adds up: a block takes the sums of its own units from the shared memory of all eight, computes their gates, and
// writes what the next step multiplies, rounded to TF32, to device memory, where the blocks that multiply it wait for it. So a
// state is read once by every cluster, not by every block.
//
// Two buffers take turns there: a block writes what step i + 1 reads after its cluster has read what step i does, so after every cluster
// has ended step i - 1. Sums depend on sizes, and on how many clusters run at once.
#include <algorithm>
#include <atomic>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/cluster.cuh"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/recurrent.cuh"
#include "tandem/backends/cuda/tf32.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kBlocks = 8;  // of a cluster
// What a warp has of the weight at most: so many tiles of 16 rows, and so many pairs of tiles of 8 terms.
constexpr int kRowTiles = 2, kPairs = 8;
constexpr int kWarpRows = 16 * kRowTiles, kWarpDepth = 16 * kPairs;
constexpr int kMostTiles = 4, kMostExtraTiles = 2;

__host__ __device__ constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }

/// How the work is shared out. A row is one of a product's results of a sample: forward a gate of a unit, backward a unit.
struct Layout {
  int clusters;
  int units;                     // of a block: those whose gates it computes
  int own_rows;                  // of a block; its cluster has kBlocks times as many
  int part;                      // units whose states a block reads
  int depth;                     // and their terms
  int row_groups, parts;         // warps share out rows, then terms: row_groups · parts = kWarps
  int warp_depth;                // terms of a warp, padded
  int main_rows;                 // of a cluster, in registers; others are in shared memory
  int extra_tiles, extra_depth;  // tiles of 16 of these, and terms of a warp there: all warps share them
  int stride, row_stride;        // from the terms, and from the sums, of one sample to those of the next
  int tiles;                     // of 8 samples, that a warp computes at a time
  int chunk, buffers;            // samples that are in shared memory at a time, and how often
  int samples, padded;           // of a launch, at most
  size_t shared_bytes;

  // floats of shared memory
  __host__ __device__ int staged() const { return buffers * chunk * stride; }
  __host__ __device__ int sums() const { return parts * padded * row_stride; }
  __host__ __device__ int extra_weights() const { return extra_tiles * 16 * kWarps * extra_depth; }
  __host__ __device__ int extra_pitch() const { return 8 * tiles + 2; }
  __host__ __device__ int extra_sums() const { return kWarps * extra_tiles * 16 * extra_pitch(); }
  __host__ __device__ int states() const { return samples * units; }  // twice
};

/// All that a launch knows.
struct Sequence : RecurrentCall<float> {
  unsigned* exchange;  // (2, kBlocks, samples of the launch, stride)
  unsigned* arrived;   // by eighth of the units: how many blocks have ended how many steps
  int first, count;    // the samples of this launch
  Layout layout;
};

#if __CUDA_ARCH__ >= 900
/// Starts to copy 16 bytes at a time to shared memory, past this multiprocessor's own cache.
__device__ void begin_copy(unsigned* to, const unsigned* from, int count) {
  for (int e = 4 * static_cast<int>(threadIdx.x); e < count; e += 4 * kThreads)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to + e))),
                 "l"(from + e)
                 : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Adds kValues neighbouring sums of every block of the cluster, of kParts parts that are `apart` from each other. All are on their
/// way before the first is added, and every block begins with itself.
template <int kValues, int kParts>
__device__ void gather(float (&sums)[4], const float* here, int apart, int rank) {
  float all[kParts * kBlocks][kValues];
#pragma unroll
  for (int k = 0; k < kParts * kBlocks; ++k) {
    const unsigned there = address_in(here + k / kBlocks * apart, (rank + k) % kBlocks);
    if constexpr (kValues == 4)
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(all[k][0]), "=f"(all[k][1]), "=f"(all[k][2]), "=f"(all[k][3])
                   : "r"(there)
                   : "memory");
    else
#pragma unroll
      for (int v = 0; v < kValues; ++v)
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(all[k][v]) : "r"(there + 4u * v) : "memory");
  }
#pragma unroll
  for (int k = 0; k < kParts * kBlocks; ++k)
#pragma unroll
    for (int v = 0; v < kValues; ++v) sums[v] += all[k][v];
}
#endif

template <int kTiles, bool backward, bool kLstm>
__global__ void __launch_bounds__(kThreads, 1) tensor_kernel(const Sequence s) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float shared[];

  const Layout& l = s.layout;
  const int rank = block_of_cluster(), cluster = static_cast<int>(blockIdx.x) / kBlocks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, quad = lane % 4;
  const int row_group = warp / l.parts, part = warp % l.parts;
  const int gates = kLstm ? 4 : s.gates, per_unit = backward ? gates : 1, per_row = backward ? 1 : gates;
  const int hidden = static_cast<int>(s.hidden), rows = kBlocks * l.own_rows;
  auto* const staged = reinterpret_cast<unsigned*>(shared);
  float* const sums = shared + l.staged();
  auto* const extra_weights = reinterpret_cast<unsigned*>(sums + l.sums());
  float *const extra_sums = reinterpret_cast<float*>(extra_weights) + l.extra_weights(),
               *const own_h = extra_sums + l.extra_sums(), *const own_c = own_h + l.states();

  // Within a tile the terms are in an order of their own: a lane's four for two tiles lie side by side in a sample's row.
  const auto weight = [&](int row, int k) {
    const int of = cluster * kBlocks * l.units + row / per_row, by = rank * l.part + k / per_unit;
    if (row >= rows || k >= l.depth || of >= hidden || by >= hidden) return 0u;
    const int64_t gate = backward ? k % gates : row % gates;
    return to_tf32(
        s.weight[backward ? (gate * hidden + by) * hidden + of : (gate * hidden + of) * hidden + by]);
  };
  unsigned weights[kRowTiles][kPairs][2][4];
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int a = 0; a < 4; ++a) {
          const int k = pair * 16 + 4 * quad + 2 * half + a / 2;
          weights[tile][pair][half][a] =
              k < l.warp_depth
                  ? weight(row_group * kWarpRows + tile * 16 + group + a % 2 * 8, part * l.warp_depth + k)
                  : 0u;
        }
  // By tile, warp, pair of tiles of terms, half of it and lane.
  for (int e = threadIdx.x; e < l.extra_weights(); e += kThreads) {
    const int a = e % 4, of_lane = e / 4 % 32, half = e / 128 % 2, pairs = l.extra_depth / 16,
              pair = e / 256 % pairs;
    const int of_warp = e / 256 / pairs % kWarps, tile = e / 256 / pairs / kWarps;
    extra_weights[e] = weight(l.main_rows + tile * 16 + of_lane / 4 + a % 2 * 8,
                              of_warp * l.extra_depth + pair * 16 + of_lane % 4 * 4 + 2 * half + a / 2);
  }
  // The units whose gates this block computes, and how many blocks compute those whose states it reads.
  const int first_unit = (cluster * kBlocks + rank) * l.units, states = s.count * l.units;
  const int first_read = rank * l.part, end_read = min(first_read + l.part, hidden);
  const int writers = first_read < end_read ? (end_read - 1) / l.units - first_read / l.units + 1 : 0;
  const int64_t buffer = static_cast<int64_t>(kBlocks) * s.count * l.stride;
  const auto masked = [&](float h, int64_t n, int64_t u) {
    return s.state_mask ? h * s.state_mask[n * s.hidden + u] : h;
  };
  // A unit of a sample: divisions take long, so that a thread has that of its first one ready.
  struct Place {
    int sample, unit;  // sample: of this launch
    int row;           // of the cluster's sums
    int64_t term;      // where what it gives goes in the exchange
  };
  const auto place_of = [&](int e) {
    const int n = e / l.units, k = e % l.units, u = first_unit + k, eighth = u / l.part;
    return Place{n, u, (rank * l.units + k) * per_row,
                 (static_cast<int64_t>(eighth) * s.count + n) * l.stride + (u - eighth * l.part) * per_unit};
  };
  // All of this block's states are written: says so to those who wait for them.
  const auto hand_over = [&] {
    __syncthreads();
    if (threadIdx.x > 0 || first_unit >= hidden) return;
    const int eighth = first_unit / l.part, last = min(first_unit + l.units, hidden) - 1;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(s.arrived + eighth) : "memory");
    if (last / l.part != eighth)
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(s.arrived + eighth + 1) : "memory");
  };
  if constexpr (!backward) {
    for (int e = threadIdx.x; e < states; e += kThreads) {
      const Place at = place_of(e);
      if (at.unit >= hidden) continue;
      const int64_t n = s.first + at.sample, place = n * s.hidden + at.unit;
      own_h[e] = s.h[place];
      own_c[e] = kLstm || s.kind == Recurrence::lstm ? s.c[place] : 0.f;
      s.exchange[at.term] = to_tf32(masked(own_h[e], n, at.unit));
    }
    hand_over();
  }
  __syncthreads();

  const int mine = threadIdx.x;
  const Place my_place = place_of(mine);
  const bool has_one = mine < states && my_place.unit < hidden;
  const int64_t my_sample = s.first + (has_one ? my_place.sample : 0), my_unit = has_one ? my_place.unit : 0;
  const int64_t steps = backward ? s.steps + 1 : s.steps;
  using Unit = std::conditional_t<backward, BackwardUnit<float, kLstm>, ForwardUnit<float, kLstm>>;
  Unit read_ahead(s, backward ? s.steps - 1 : 0, my_sample, my_unit);
  bool were_read = false;  // this block's sums of the step before, by the others
  for (int64_t done = 0; done < steps; ++done) {
    const int64_t i = backward ? s.steps - 1 - done : done;
    const bool has_product = !backward || done > 0, goes_on = done + 1 < steps;
    if (has_product) {
      if (threadIdx.x == 0) {
        const auto target = static_cast<unsigned>((backward ? done : done + 1) * writers);
        unsigned now;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(s.arrived + rank) : "memory");
        while (now < target);
      }
      __syncthreads();
      const unsigned* const from =
          s.exchange + (done % 2 ? buffer : 0) + static_cast<int64_t>(rank) * s.count * l.stride;
      const auto copy = [&](int at, int turn) {
        begin_copy(staged + turn * l.chunk * l.stride, from + static_cast<int64_t>(at) * l.stride,
                   min(l.chunk, s.count - at) * l.stride);
      };
      copy(0, 0);
      for (int at = 0, turn = 0; at < s.count; at += l.chunk, turn ^= 1) {
        unsigned* const chunk = staged + (l.buffers > 1 ? turn * l.chunk * l.stride : 0);
        const int end = min(l.chunk, s.count - at), after = at + l.chunk;
        if (after < s.count) {
          copy(after, turn ^ 1);
          asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
          asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        for (int n0 = 0; n0 < end; n0 += 8 * kTiles) {
          const unsigned* const left = chunk + (n0 + group) * l.stride + 4 * quad;
          {
            float products[kRowTiles][kTiles][4] = {};
#pragma unroll
            for (int pair = 0; pair < kPairs; ++pair) {
              if (pair * 16 >= l.warp_depth) break;
              uint4 terms[kTiles];
#pragma unroll
              for (int t = 0; t < kTiles; ++t)
                terms[t] = *reinterpret_cast<const uint4*>(left + t * 8 * l.stride + part * l.warp_depth +
                                                           pair * 16);
#pragma unroll
              for (int t = 0; t < kTiles; ++t)
#pragma unroll
                for (int tile = 0; tile < kRowTiles; ++tile)
                  multiply_add_tf32(products[tile][t], weights[tile][pair][0], {terms[t].x, terms[t].y});
#pragma unroll
              for (int t = 0; t < kTiles; ++t)
#pragma unroll
                for (int tile = 0; tile < kRowTiles; ++tile)
                  multiply_add_tf32(products[tile][t], weights[tile][pair][1], {terms[t].z, terms[t].w});
            }
            if (were_read) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
            were_read = false;
            float* const to =
                sums + (part * l.padded + at + n0) * l.row_stride + row_group * kWarpRows + group;
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
#pragma unroll
              for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                  to[(t * 8 + 2 * quad + c % 2) * l.row_stride + tile * 16 + c / 2 * 8] =
                      products[tile][t][c];
          }
          if (l.extra_tiles == 0) continue;
          for (int tile = 0; tile < l.extra_tiles; ++tile) {
            float products[kTiles][4] = {};
            for (int pair = 0; pair < l.extra_depth / 16; ++pair) {
              const unsigned* const from =
                  extra_weights + ((tile * kWarps + warp) * (l.extra_depth / 16) + pair) * 256 + 4 * lane;
              const uint4 w0 = *reinterpret_cast<const uint4*>(from),
                          w1 = *reinterpret_cast<const uint4*>(from + 128);
              const unsigned first[4] = {w0.x, w0.y, w0.z, w0.w}, second[4] = {w1.x, w1.y, w1.z, w1.w};
#pragma unroll
              for (int t = 0; t < kTiles; ++t) {
                const uint4 terms = *reinterpret_cast<const uint4*>(left + t * 8 * l.stride +
                                                                    warp * l.extra_depth + pair * 16);
                multiply_add_tf32(products[t], first, {terms.x, terms.y});
                multiply_add_tf32(products[t], second, {terms.z, terms.w});
              }
            }
            float* const to =
                extra_sums + ((warp * l.extra_tiles + tile) * 16 + group) * l.extra_pitch() + 2 * quad;
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
#pragma unroll
              for (int c = 0; c < 4; ++c) to[c / 2 * 8 * l.extra_pitch() + t * 8 + c % 2] = products[t][c];
          }
          __syncthreads();
          for (int e = threadIdx.x; e < l.extra_tiles * 16 * 8 * kTiles; e += kThreads) {
            const int row = e % (l.extra_tiles * 16), n = e / (l.extra_tiles * 16);
            float sum = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w)
              sum += extra_sums[(w * l.extra_tiles * 16 + row) * l.extra_pitch() + n];
            sums[(at + n0 + n) * l.row_stride + l.main_rows + row] = sum;
          }
          __syncthreads();  // others may write their sums again
        }
        if (l.buffers > 1) __syncthreads();  // this buffer has been read
      }
      wait_for_cluster();
    }

    const auto compute = [&](Unit& of, int e, const Place& at) {
      const int slots = at.row < l.main_rows ? l.parts : 1;
      float products[4] = {};
      if (has_product) {
        constexpr int kValues = backward ? 1 : kLstm ? 4 : 3;  // one more or two than there are do no harm
        const float* here = sums + at.sample * l.row_stride + at.row;
        const int apart = l.padded * l.row_stride;
        if (backward && slots == 4)
          gather<kValues, backward ? 4 : 1>(products, here, apart, rank);
        else
#pragma unroll 1
          for (int slot = 0; slot < slots; ++slot, here += apart)
            gather<kValues, 1>(products, here, apart, rank);
      }
      unsigned* const to = s.exchange + (done % 2 ? 0 : buffer) + at.term;
      if constexpr (backward) {
        of.step(s, has_product, products[0], own_h[e], own_c[e]);
        if (!goes_on) return;
#pragma unroll
        for (int g = 0; g < 4; ++g)
          if (g < gates) to[g] = to_tf32(of.of_products[g]);
      } else {
        of.step(
            s, [&](int g) { return products[g]; }, own_h[e], own_c[e]);
        if (goes_on) *to = to_tf32(masked(own_h[e], of.n, of.u));
      }
    };
    const auto store = [&](const Unit& of, int e) {
      if constexpr (backward)
        of.store(s);
      else
        of.store(s, own_h[e], own_c[e]);
    };
    for (int e = mine; e < states; e += kThreads) {
      const Place at = e == mine ? my_place : place_of(e);
      if (at.unit >= hidden) continue;
      if (e != mine) read_ahead = Unit(s, i, s.first + at.sample, at.unit);
      compute(read_ahead, e, at);
      if (states > kThreads) store(read_ahead, e);
    }
    if (goes_on) hand_over();
    if (has_product) {  // this thread has read the others' sums
      asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
      were_read = true;
    }
    if (states <= kThreads && has_one) store(read_ahead, mine);  // nobody waits for these
    if (goes_on) read_ahead = Unit(s, backward ? i - 1 : i + 1, my_sample, my_unit);
  }
  if (were_read)
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // nobody reads this block's sums any more
#endif
}

cudaLaunchConfig_t configure(const Layout& l, cudaLaunchAttribute (&attributes)[2], cudaStream_t stream) {
  attributes[0] = {}, attributes[1] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kBlocks;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeCooperative;  // clusters wait for each other
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(l.clusters * kBlocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = l.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return config;
}

/// Fills in what depends on the samples of a launch. False: they are too many.
bool fit_samples(Layout& l, int samples, size_t shared_bytes) {
  l.samples = samples;
  for (const bool all_at_once : {true, false}) {
    double least = 0;
    Layout best = l;
    for (l.tiles = kMostTiles; l.tiles > 0; --l.tiles) {
      l.padded = round_up(samples, 8 * l.tiles);
      l.chunk = all_at_once ? l.padded : 8 * l.tiles;
      l.buffers = all_at_once ? 1 : 2;
      l.shared_bytes =
          sizeof(float) * (static_cast<size_t>(l.staged()) + static_cast<size_t>(l.sums()) +
                           static_cast<size_t>(l.extra_weights()) + static_cast<size_t>(l.extra_sums()) +
                           2 * static_cast<size_t>(l.states()));
      if (l.shared_bytes > shared_bytes) continue;
      const double cost = l.padded * (1 + .3 / l.tiles);  // fewer tiles at a time wait longer for each other
      if (least > 0 && cost >= least) continue;
      least = cost;
      best = l;
    }
    l = best;
    if (least > 0) return true;
  }
  return false;
}

/// No clusters: there is none.
Layout lay_out(const RecurrentProblem& p) {
  Layout l{};
  if (p.clusters == 0 || p.hidden > kBlocks * kWarpDepth * kWarps || p.samples >= 4096) return l;
  const int hidden = static_cast<int>(p.hidden), per_row = p.backward ? 1 : p.gates,
            per_unit = p.backward ? p.gates : 1;
  l.units = (hidden + p.clusters * kBlocks - 1) / (p.clusters * kBlocks);
  l.clusters = (hidden + kBlocks * l.units - 1) / (kBlocks * l.units);
  l.own_rows = l.units * per_row;
  l.part = (hidden + kBlocks - 1) / kBlocks;
  l.depth = l.part * per_unit;
  const int rows = kBlocks * l.own_rows;
  const auto share_out = [&](int most_extra_tiles) {
    for (l.row_groups = 1; l.row_groups <= kWarps; l.row_groups *= 2) {
      l.parts = kWarps / l.row_groups;
      l.warp_depth = round_up((l.depth + l.parts - 1) / l.parts, 16);
      l.main_rows = std::min(rows, l.row_groups * kWarpRows);
      l.extra_tiles = (rows - l.main_rows + 15) / 16;
      if (l.extra_tiles <= most_extra_tiles)
        return l.warp_depth <= kWarpDepth && (l.extra_tiles == 0 || l.main_rows % per_row == 0);
    }
    return false;
  };
  if (!share_out(0) && !share_out(kMostExtraTiles)) return {};
  l.extra_depth = l.extra_tiles ? round_up((l.depth + kWarps - 1) / kWarps, 16) : 0;
  // Sixteen more than a multiple of 32: two neighbouring samples' terms lie in different banks.
  const int width = std::max(l.parts * l.warp_depth, kWarps * l.extra_depth);
  l.stride = width % 32 ? width : width + 16;
  l.row_stride = l.row_groups * kWarpRows + l.extra_tiles * 16 + 4;

  for (int64_t launches = 1;; launches *= 2) {
    const auto samples = static_cast<int>((p.samples + launches - 1) / launches);
    if (fit_samples(l, samples, p.shared_bytes)) return l;
    if (samples == 1) return {};
  }
}

template <int kTiles, bool backward>
void launch(const Sequence& s, cudaStream_t stream) {
  const auto kernel = s.kind == Recurrence::lstm ? &tensor_kernel<kTiles, backward, true>
                                                 : &tensor_kernel<kTiles, backward, false>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(s.layout.shared_bytes)),
        "cudaFuncSetAttribute");
  cudaLaunchAttribute attributes[2];
  const cudaLaunchConfig_t config = configure(s.layout, attributes, stream);
  check(cudaLaunchKernelEx(&config, kernel, s), "cudaLaunchKernelEx");
}

template <bool backward>
void run(const RecurrentCallArgs& call) {
  Sequence s{};
  s.fill(call.args, backward);
  const Layout l = s.layout = lay_out(call.problem);
  constexpr size_t counters = 256;  // bytes
  const size_t bytes = counters + sizeof(unsigned) * 2 * kBlocks * static_cast<size_t>(l.samples) *
                                      static_cast<size_t>(l.stride);
  char* const memory = static_cast<char*>(call.args.workspace(bytes));
  s.arrived = reinterpret_cast<unsigned*>(memory);
  s.exchange = reinterpret_cast<unsigned*>(memory + counters);
  const cudaStream_t stream = stream_of(call.args);
  for (int64_t done = 0; done < s.samples; done += l.samples) {
    s.first = static_cast<int>(done),
    s.count = static_cast<int>(std::min<int64_t>(l.samples, s.samples - done));
    check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");  // terms that pad are zeros
    switch (l.tiles) {
      case 1:
        launch<1, backward>(s, stream);
        break;
      case 2:
        launch<2, backward>(s, stream);
        break;
      case 3:
        launch<3, backward>(s, stream);
        break;
      default:
        launch<4, backward>(s, stream);
    }
  }
}

class RecurrenceOnTensorCores final : public RecurrentImplementation {
 public:
  std::string name() const override { return "tensor cores"; }
  const char* can(const RecurrentProblem& p) const override {
    if (p.needs_rows) return "it takes neither layer norm nor projections.";
    if (p.dtype != DType::f32 || !p.tf32) return "it takes f32 only, and only where TF32 is allowed.";
    if (p.capability < 9) return "it takes devices of compute capability 9.0 and later only.";
    return lay_out(p).clusters ? nullptr
                               : "it takes only weights that fit into the registers of all multiprocessors.";
  }
  /// One step alone reads the whole weight anyway. Little to compute waits less for each other in fewer blocks; many samples take the
  /// blocks, which have a few units of each, longer than kernels that share them out to all. Both from measurements on an H200.
  bool pays(const RecurrentProblem& p) const override {
    const auto h = static_cast<double>(p.hidden), n = static_cast<double>(p.samples);
    return p.steps > 1 && n * p.gates * h * h >= 9e4 * p.multiprocessors &&
           p.samples * lay_out(p).units <= 320;
  }
  void run(const RecurrentCallArgs& call) const override {
    call.problem.backward ? cuda::run<true>(call) : cuda::run<false>(call);
  }
};

}  // namespace

int clusters_at_once(const DeviceState& state) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];  // and one more; 0: not asked yet
  if (state.properties.major < 9 || state.index >= kDevices) return 0;
  std::atomic<int>& here = known[state.index];
  if (here.load(std::memory_order_relaxed) == 0) {
    const auto kernel = &tensor_kernel<kMostTiles, true, true>;
    Layout l{};
    l.clusters = 1, l.shared_bytes = state.properties.sharedMemPerBlockOptin;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(l.shared_bytes)),
          "cudaFuncSetAttribute");
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = configure(l, attributes, nullptr);
    config.numAttrs = 1;  // the size of a cluster alone
    int count = 0;
    check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), "cudaOccupancyMaxActiveClusters");
    here.store(count + 1, std::memory_order_relaxed);
  }
  return here.load(std::memory_order_relaxed) - 1;
}

const RecurrentImplementation& recurrence_on_tensor_cores() {
  static constexpr RecurrenceOnTensorCores row;
  return row;
}

}  // namespace tandem::cuda
