#include "tandem/backends/cpu/pointwise.h"

// The walks of the baseline level are plain data movement: fast enough at any level.
#define TD_ISA pointwise_walks
#include "tandem/backends/cpu/kernels/iterate.h"
#undef TD_ISA
#include "tandem/core/threads.h"
#include "tandem/ops/pointwise.h"

namespace tandem::cpu {

namespace {

using namespace pointwise_walks;

/// Runs a loop over whole (broadcast, strided) buffers.
void run_pointwise(const KernelArgs& args, TileFn tile) {
  constexpr int kMaxInputs = 3;
  const Buffer& out = args.out[0];
  const int64_t n = out.size();
  if (n == 0) return;
  if (n <= kTile) {  // small and plain: no walks
    const void* in[kMaxInputs];
    int64_t step[kMaxInputs];
    bool plain = true;
    for (int i = 0; i < args.n_in && plain; ++i) {
      const Buffer& b = args.in[i];
      in[i] = b.data;
      step[i] = b.rank == 0 ? 0 : 1;
      if (step[i] == 0) continue;
      plain = b.rank == out.rank;
      for (int d = 0; d < b.rank && plain; ++d)
        plain = b.shape[d] == out.shape[d] && b.strides[d] == out.strides[d];
    }
    if (plain) return tile(in, step, out.data, n);
  }
  Walk walks[kMaxInputs];
  bool direct = true;  // every input is one run or one value
  for (int i = 0; i < args.n_in; ++i) {
    walks[i] = walk_over(args.in[i], out.shape, out.rank);
    direct = direct && (walks[i].is_contiguous() || walks[i].is_scalar());
  }
  const int64_t out_width = static_cast<int64_t>(bytes_of(out.dtype));
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) char tiles[kMaxInputs][kTile * 8];
    const int64_t piece = direct ? end - begin : kTile;
    for (int64_t at = begin; at < end; at += piece) {
      const int64_t count = end - at < piece ? end - at : piece;
      const void* in[kMaxInputs];
      int64_t step[kMaxInputs];
      for (int i = 0; i < args.n_in; ++i) {
        step[i] = walks[i].is_scalar() ? 0 : 1;
        in[i] = step[i] ? run_of(walks[i], at, count, tiles[i]) : walks[i].data;
      }
      tile(in, step, out.as<char>() + at * out_width, count);
    }
  });
}

template <int row>
TileFn tile_of(DType in, DType) {
  return pointwise_loops().by_type[row][static_cast<int>(in)];
}

template <int row>
void kernel(const KernelArgs& args) {
  run_pointwise(args, tile_of<row>(args.in[args.n_in - 1].dtype, args.out[0].dtype));
}

TileFn cast_tile(DType from, DType to) {
  return pointwise_loops().cast[static_cast<int>(from)][static_cast<int>(to)];
}

}  // namespace

PointwiseLoops& pointwise_loops() {
  static PointwiseLoops loops{};
  return loops;
}

void register_pointwise() {
#define TD_ROW(name, Functor, inputs, types, ...) \
  { \
    OpDef& op = *find_op(#name); \
    op.kernels[static_cast<int>(DeviceKind::cpu)] = kernel<row_##name>; \
    op.tile = tile_of<row_##name>; \
  }
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
  op_cast().kernels[static_cast<int>(DeviceKind::cpu)] = [](const KernelArgs& args) {
    run_pointwise(args, cast_tile(args.in[0].dtype, args.out[0].dtype));
  };
  op_cast().tile = cast_tile;
}

}  // namespace tandem::cpu
