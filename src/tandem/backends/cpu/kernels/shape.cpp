// Copies: copy, assign, concat, flip, slice_into_zeros. Elements are moved, never computed with.
// levels: one
#include "tandem/ops/shape.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/arrange.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// Writes `from` (a walk over n places) to the places of `to`.
void move_elements(const Walk& from, const Walk& to, int64_t n) {
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) char tile[kTile * 8];
    const int64_t piece = from.is_contiguous() ? end - begin : kTile;
    for (int64_t at = begin; at < end; at += piece) {
      const int64_t count = end - at < piece ? end - at : piece;
      if (to.is_contiguous())
        load_run(from, at, count, to.data + at * to.width);
      else
        store_run(to, at, count, run_of(from, at, count, tile));
    }
  });
}

void copy(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  move_elements(walk_over(args.in[0], out.shape, out.rank), walk_over(out, out.shape, out.rank), out.size());
}

/// Read from the last element of each flipped axis on, backwards.
void flip(const KernelArgs& args) {
  Buffer in = args.in[0];
  const Buffer& out = args.out[0];
  if (out.size() == 0) return;
  int64_t strides[kMaxRank];
  for (int i = 0; i < in.rank; ++i) strides[i] = in.strides[i];
  for (const Dim axis : args.attributes<FlipAttrs>().axes) {
    const int i = static_cast<int>(axis);
    in.data = in.as<char>() + (in.shape[i] - 1) * strides[i] * static_cast<int64_t>(bytes_of(in.dtype));
    strides[i] = -strides[i];
  }
  in.strides = strides;
  move_elements(walk_over(in, out.shape, out.rank), walk_over(out, out.shape, out.rank), out.size());
}

void assign(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  if (args.in[1].data == out.data && out.rank == args.in[1].rank) {
    bool same = true;  // assigned to itself
    for (int i = 0; i < out.rank; ++i) same = same && out.strides[i] == args.in[1].strides[i];
    if (same) return;
  }
  move_elements(walk_over(args.in[1], out.shape, out.rank), walk_over(out, out.shape, out.rank), out.size());
}

/// The part of `out` that starts at `start` along an axis, in steps, with `shape`.
Buffer part_of(const Buffer& out, int axis, int64_t start, int64_t step, const int64_t* shape,
               int64_t* strides) {
  Buffer part = out;
  for (int i = 0; i < out.rank; ++i) strides[i] = out.strides[i];
  strides[axis] *= step;
  part.data = out.as<char>() + start * out.strides[axis] * static_cast<int64_t>(bytes_of(out.dtype));
  part.shape = shape;
  part.strides = strides;
  return part;
}

void concat(const KernelArgs& args) {
  const int axis = static_cast<int>(args.attributes<AxisAttrs>().axis);
  int64_t at = 0;
  for (int i = 0; i < args.n_in; ++i) {
    const Buffer& in = args.in[i];
    int64_t strides[kMaxRank];
    const Buffer part = part_of(args.out[0], axis, at, 1, in.shape, strides);
    move_elements(walk_over(in, in.shape, in.rank), walk_over(part, in.shape, in.rank), in.size());
    at += in.shape[axis];
  }
}

void slice_into_zeros(const KernelArgs& args) {
  const auto& s = args.attributes<SliceAttrs>();
  const Buffer &in = args.in[0], &out = args.out[0];
  std::memset(out.data, 0, static_cast<size_t>(out.size()) * bytes_of(out.dtype));
  int64_t strides[kMaxRank];
  const Buffer part = part_of(out, static_cast<int>(s.axis), s.start, s.step, in.shape, strides);
  move_elements(walk_over(in, in.shape, in.rank), walk_over(part, in.shape, in.rank), in.size());
}

}  // namespace

void register_shape_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_copy().kernels[cpu] = copy;
  op_assign().kernels[cpu] = assign;
  op_flip().kernels[cpu] = flip;
  op_concat().kernels[cpu] = concat;
  op_slice_into_zeros().kernels[cpu] = slice_into_zeros;
}

}  // namespace tandem::cpu::TD_ISA
