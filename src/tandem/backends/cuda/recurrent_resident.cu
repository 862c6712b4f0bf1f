// "resident": one kernel that stays on the device for all steps, and the weight with it. Its blocks stand in a grid of groups of
// rows (samples) by groups of units. A block keeps its part of the weight in shared memory, reads the state of its rows at each
// step, and computes products, gates and new states of its units; then the blocks of the same rows wait for each other. There are
// never more blocks than multiprocessors, and they are launched to run together, so that waiting cannot last.
//
// Products: a warp takes tiles of 4 rows by 8 columns (a column is a gate of a unit), lane l the terms l, l + 32, …; a tree of
// shuffles adds the lanes. Sums depend on sizes, and on how many multiprocessors there are: by which the tiles are shared out to parts.
#include <algorithm>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/recurrent.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kTileRows = 4, kTileColumns = 8;
constexpr int kMostRows = 32;  // of a block

__host__ __device__ constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }

/// How the work is shared out.
struct Layout {
  int rows, units;  // of a block; rows a multiple of kTileRows
  int row_groups, unit_groups;
  int pass_units;  // units that a block computes at a time
  int passes;
  int columns;  // of a pass: gates · pass_units forward, pass_units backward; a multiple of kTileColumns
  int depth;    // terms of a product
  int stride;   // from one column of the weight in shared memory to the next
  int tiles_per_warp, parts;  // where there are fewer tiles than warps, each is shared by so many
  int chunk;  // terms of the products whose left factors are in shared memory at a time: a multiple of 32
  size_t shared_bytes;
};

/// Reads what other blocks wrote, past this multiprocessor's own cache.
template <class S>
__device__ S load_fresh(const S* from) {
  if constexpr (sizeof(S) == 2) {
    S value;
    value.bits = __ldcg(reinterpret_cast<const unsigned short*>(from));
    return value;
  } else {
    return __ldcg(from);
  }
}

/// All that a launch knows.
template <class S>
struct Sequence : RecurrentCall<S> {
  using C = typename RecurrentCall<S>::C;
  unsigned* arrived;  // by group of rows: how many blocks have ended how many steps
  int first, end;     // the samples of this launch
  Layout layout;
};

/// Adds the lanes' sums of a tile: lane l gets that of row l / 8, column l % 8. At each halving a lane keeps one half of what it
/// has and takes its partner's sums for it.
template <class C>
__device__ C join_lanes(C (&sums)[kTileRows * kTileColumns]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    const bool upper = lane & half;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const C give = upper ? sums[k] : sums[k + half];
      const C keep = upper ? sums[k + half] : sums[k];
      sums[k] = keep + __shfl_xor_sync(0xffffffffu, give, half);
    }
  }
  return sums[0];
}

/// The products of one pass: results[part][row][column] in shared memory.
template <class S, int kTiles, bool backward>
__device__ void multiply(const Sequence<S>& s, int64_t i, int first_row, int first_unit,
                         typename Sequence<S>::C* weights, typename Sequence<S>::C* chunk,
                         typename Sequence<S>::C* results, bool fill) {
  using C = typename Sequence<S>::C;
  const Layout& l = s.layout;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = l.parts > 1 ? warp % l.parts : 0, slot = l.parts > 1 ? warp / l.parts : warp;
  const int slots = l.parts > 1 ? kWarps / l.parts : kWarps;
  const int tile_columns = l.columns / kTileColumns, tiles = l.rows / kTileRows * tile_columns;
  C sums[kTiles][kTileRows * kTileColumns] = {};
  for (int k0 = 0; k0 < l.depth; k0 += l.chunk) {
    const int width = min(l.chunk, round_up(l.depth - k0, 32));
    // The state of the rows, or the gradients of the products of the step after; zeros beyond. A warp reads whole rows.
    for (int r = warp; r < l.rows; r += kWarps) {
      const int64_t n = first_row + r;
      const S* from;
      if constexpr (backward)
        from = s.grad_products + (s.at(i + 1) * s.samples + n) * s.gates * s.hidden;
      else
        from = s.before(s.h, s.output, i, n);
      const S* const mask = !backward && s.state_mask ? s.state_mask + n * s.hidden : nullptr;
#pragma unroll 8
      for (int k = lane; k < width; k += 32) {
        const bool is_there = n < s.end && k0 + k < l.depth;
        C value = is_there ? static_cast<C>(load_fresh(from + k0 + k)) : C(0);
        if (mask && is_there) value *= static_cast<C>(mask[k0 + k]);
        chunk[r * l.chunk + k] = value;
      }
    }
    if (fill) {
      const int units = l.pass_units;
      for (int e = threadIdx.x; e < l.columns * width; e += kThreads) {
        // Neighbouring threads read neighbouring elements of the weight.
        const int column = backward ? e % l.columns : e / width,
                  k = k0 + (backward ? e / l.columns : e % width);
        const int gate = backward ? 0 : column / units, unit = backward ? column : column % units;
        const int64_t u = first_unit + unit;
        C value = 0;
        if (k < l.depth && unit < units && gate < s.gates && u < s.hidden)
          value = static_cast<C>(backward ? s.weight[k * s.hidden + u]
                                          : s.weight[(gate * s.hidden + u) * s.hidden + k]);
        weights[column * l.stride + k] = value;
      }
    }
    __syncthreads();
    const C* const from = weights + k0;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int index = slot + tile * slots;
      if (index >= tiles) break;
      const C* const a = chunk + index / tile_columns * kTileRows * l.chunk;
      const C* const b = from + index % tile_columns * kTileColumns * l.stride;
      for (int k = part * 32 + lane; k < width; k += l.parts * 32) {
        C rows[kTileRows], columns[kTileColumns];
#pragma unroll
        for (int r = 0; r < kTileRows; ++r) rows[r] = a[r * l.chunk + k];
#pragma unroll
        for (int c = 0; c < kTileColumns; ++c) columns[c] = b[c * l.stride + k];
#pragma unroll
        for (int r = 0; r < kTileRows; ++r)
#pragma unroll
          for (int c = 0; c < kTileColumns; ++c)
            sums[tile][r * kTileColumns + c] = fma(rows[r], columns[c], sums[tile][r * kTileColumns + c]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int index = slot + tile * slots;
    if (index >= tiles) break;
    const C sum = join_lanes(sums[tile]);
    const int row = index / tile_columns * kTileRows + lane / kTileColumns;
    const int column = index % tile_columns * kTileColumns + lane % kTileColumns;
    results[(part * l.rows + row) * l.columns + column] = sum;
  }
  __syncthreads();
}

/// Waits until `target` blocks of the same rows have come here, counted over all steps. What any thread of theirs wrote before
/// is then seen.
__device__ void wait_for_others(unsigned* arrived, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    unsigned now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    while (now < target);
  }
  __syncthreads();
}

template <class S, int kTiles, bool backward>
__global__ void __launch_bounds__(kThreads) recurrent_kernel(const Sequence<S> s) {
  using C = typename Sequence<S>::C;
  extern __shared__ __align__(16) unsigned char shared[];
  const Layout& l = s.layout;
  C* const chunk = reinterpret_cast<C*>(shared);
  C* const results = chunk + l.rows * l.chunk;
  C* const weights = results + l.parts * l.rows * l.columns;
  const int first_row = s.first + static_cast<int>(blockIdx.y) * l.rows;
  const int first_unit = static_cast<int>(blockIdx.x) * l.units;
  const int64_t steps = backward ? s.steps + 1 : s.steps;
  for (int64_t done = 0; done < steps; ++done) {
    const int64_t i = backward ? s.steps - 1 - done : done;
    const bool has_product = !backward || done > 0;
    for (int pass = 0; pass < l.passes; ++pass) {
      const int unit = first_unit + pass * l.pass_units;
      C* const mine = weights + pass * l.columns * l.stride;
      if (!backward && threadIdx.x < l.rows * l.pass_units) {  // will be wanted soon
        const int64_t n = first_row + threadIdx.x / l.pass_units, u = unit + threadIdx.x % l.pass_units;
        if (n < s.end && u < s.hidden)
          for (int g = 0; g < s.gates; ++g)
            asm volatile("prefetch.global.L1 [%0];" ::"l"(
                s.x + (s.at(i) * s.samples + n) * s.gates * s.hidden + g * s.hidden + u));
      }
      if (has_product)
        multiply<S, kTiles, backward>(s, i, first_row, unit, mine, chunk, results,
                                      done == (backward ? 1 : 0));
      const int count = min(l.pass_units, l.units - pass * l.pass_units);
      for (int e = threadIdx.x; e < l.rows * count; e += kThreads) {
        const int r = e / count, k = e % count;
        const int64_t n = first_row + r, u = unit + k;
        if (n >= s.end || u >= s.hidden) continue;
        const auto product = [&](int g) {
          C sum = results[r * l.columns + g * l.pass_units + k];
          for (int part = 1; part < l.parts; ++part)
            sum += results[(part * l.rows + r) * l.columns + g * l.pass_units + k];
          return sum;
        };
        if constexpr (backward)
          step_backward(s, i, n, u, has_product, has_product ? product(0) : C(0));
        else
          step_forward(s, i, n, u, product);
      }
      __syncthreads();
    }
    if (done + 1 < steps)
      wait_for_others(s.arrived + blockIdx.y, static_cast<unsigned>(done + 1) * gridDim.x);
  }
}

/// Shares the work out: as many groups of rows as leave a block's weights room in shared memory, since blocks of the same rows
/// read the same state and wait for each other. No rows: there is none.
Layout lay_out(const RecurrentProblem& p) {
  const size_t element = p.dtype == DType::f64 ? 8 : 4;
  const int most_tiles = element == 8 ? 2 * kWarps : 4 * kWarps;
  Layout l{};
  if (p.hidden >= int64_t{1} << 20) return l;
  const int all_rows = round_up(static_cast<int>(std::min<int64_t>(p.samples, kMostRows)), kTileRows);
  for (int rows = kTileRows; rows <= all_rows; rows += kTileRows) {
    l.rows = rows;
    l.row_groups = static_cast<int>(std::min<int64_t>((p.samples + rows - 1) / rows, p.multiprocessors));
    const int64_t groups = std::min<int64_t>(p.hidden, p.multiprocessors / l.row_groups);
    l.units = static_cast<int>((p.hidden + groups - 1) / groups);
    l.unit_groups = static_cast<int>((p.hidden + l.units - 1) / l.units);
    const int per_unit = p.backward ? 1 : p.gates;
    const int most_columns = most_tiles / (rows / kTileRows) * kTileColumns;
    l.pass_units = std::max(1, std::min(l.units, most_columns / per_unit));
    l.passes = (l.units + l.pass_units - 1) / l.pass_units;
    l.columns = round_up(l.pass_units * per_unit, kTileColumns);
    l.depth = static_cast<int>(p.hidden * (p.backward ? p.gates : 1));
    const int tiles = rows / kTileRows * (l.columns / kTileColumns);
    l.parts = tiles < kWarps ? kWarps / tiles : 1;
    l.tiles_per_warp = (tiles + kWarps - 1) / kWarps;
    const size_t results = static_cast<size_t>(l.parts) * rows * l.columns * element;
    l.stride = round_up(l.depth, 32);
    const size_t weights = static_cast<size_t>(l.passes) * l.columns * l.stride * element;
    for (const int chunk : {l.stride, 1024, 512, 256, 128}) {
      l.chunk = std::min(chunk, l.stride);
      l.shared_bytes = results + static_cast<size_t>(rows) * l.chunk * element + weights;
      if (l.shared_bytes <= p.shared_bytes) return l;
    }
  }
  return {};
}

template <class S, int kTiles, bool backward>
void launch(const Sequence<S>& s, cudaStream_t stream) {
  const auto kernel = &recurrent_kernel<S, kTiles, backward>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(s.layout.shared_bytes)),
        "cudaFuncSetAttribute");
  void* arguments[] = {const_cast<Sequence<S>*>(&s)};
  const dim3 grid(static_cast<unsigned>(s.layout.unit_groups), static_cast<unsigned>(s.layout.row_groups));
  check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), arguments,
                                    s.layout.shared_bytes, stream),
        "cudaLaunchCooperativeKernel");
}

template <class S, bool backward>
void run(const RecurrentCallArgs& call) {
  using C = typename ComputeType<S>::type;
  const KernelArgs& args = call.args;
  Sequence<S> s{};
  s.fill(args, backward);
  const int64_t state = s.samples * s.hidden;
  const bool lstm = s.kind == Recurrence::lstm;
  const size_t counters = static_cast<size_t>(call.problem.multiprocessors) * sizeof(unsigned);
  const size_t reserved = (counters + 63) / 64 * 64;
  char* const memory = static_cast<char*>(
      args.workspace(reserved + (backward ? static_cast<size_t>(state) * (lstm ? 2 : 1) * sizeof(C) : 0)));
  s.arrived = reinterpret_cast<unsigned*>(memory);
  if constexpr (backward) {
    s.to_h = reinterpret_cast<C*>(memory + reserved);
    s.to_c = lstm ? s.to_h + state : nullptr;
  }
  // Samples do not see each other: more than fit at once follow in further launches.
  s.layout = lay_out(call.problem);
  int64_t done = 0;
  while (done < s.samples) {
    const int64_t count = std::min<int64_t>(s.samples - done, int64_t{s.layout.row_groups} * s.layout.rows);
    s.first = static_cast<int>(done), s.end = static_cast<int>(done + count);
    check(cudaMemsetAsync(memory, 0, counters, stream_of(args)), "cudaMemsetAsync");
    if (s.layout.tiles_per_warp == 1)
      launch<S, 1, backward>(s, stream_of(args));
    else if (s.layout.tiles_per_warp == 2)
      launch<S, 2, backward>(s, stream_of(args));
    else
      launch<S, sizeof(C) == 8 ? 2 : 4, backward>(s, stream_of(args));
    done += count;
  }
}

class ResidentRecurrence final : public RecurrentImplementation {
 public:
  std::string name() const override { return "resident"; }
  const char* can(const RecurrentProblem& p) const override {
    if (p.needs_rows) return "it takes neither layer norm nor projections.";
    if (p.samples >= int64_t{1} << 30) return "it takes fewer than 2^30 samples.";
    return lay_out(p).rows ? nullptr
                           : "it takes only weights that fit into the shared memory of all multiprocessors.";
  }
  /// One step alone reads the whole weight anyway, and a library's products win where there is much to compute: on an H200 from
  /// about 200,000 terms a step and multiprocessor on.
  bool pays(const RecurrentProblem& p) const override {
    const auto h = static_cast<double>(p.hidden), n = static_cast<double>(p.samples);
    return p.steps > 1 && n * p.gates * h * h < 2e5 * p.multiprocessors;
  }
  void run(const RecurrentCallArgs& call) const override {
    visit_floating(call.problem.dtype, [&](auto zero) {
      using S = decltype(zero);
      call.problem.backward ? cuda::run<S, true>(call) : cuda::run<S, false>(call);
    });
  }
};

}  // namespace

const RecurrentImplementation& resident_recurrence() {
  static constexpr ResidentRecurrence row;
  return row;
}

}  // namespace tandem::cuda
