// Copies between strided buffers: copy, assign, concat, flip, slice_into_zeros. Elements are moved as bytes, one
// kernel a width.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/backends/cuda/strided_copy.h"
#include "tandem/core/op.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/shape.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128, kPerThread = 4;

template <class T>
__global__ void __launch_bounds__(kThreads) copy_kernel(const Layout<2> layout, const T* in, T* out) {
  const uint32_t first = blockIdx.x * (kThreads * kPerThread) + threadIdx.x;
  T value[kPerThread];
  int64_t place[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const uint32_t i = first + j * kThreads;
    if (i >= layout.size) break;
    int64_t at[2];
    layout.offsets(i, at);
    value[j] = in[at[0]];
    place[j] = at[1];
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j)
    if (first + j * kThreads < layout.size) out[place[j]] = value[j];
}

/// Operand 0 walks over x with stride 0 along the cut axis, operand 1 over the output.
template <class T>
__global__ void __launch_bounds__(kThreads)
    slice_into_zeros_kernel(int64_t size, int64_t inner, int64_t length, int64_t start, int64_t step,
                            int64_t count, const Layout<1> layout, const T* in, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  // i = (outer · length + c) · inner + rest
  const int64_t row = i / inner, rest = i - row * inner, outer = row / length, c = row - outer * length;
  const int64_t from_start = c - start, j = from_start / step;
  T value{};
  if (from_start >= 0 && j * step == from_start && j < count)
    value = in[layout.offset(static_cast<uint32_t>((outer * count + j) * inner + rest))];
  out[i] = value;
}

void copy_any(const KernelArgs& args) {
  const Buffer &in = args.in[0], &out = args.out[0];
  strided_copy(stream_of(args), out.rank, out.shape, out.dtype, in.data, in.strides, out.data, out.strides);
}

void assign_any(const KernelArgs& args) {
  const Buffer &source = args.in[1], &target = args.out[0];
  strided_copy(stream_of(args), target.rank, target.shape, target.dtype, source.data, source.strides,
               target.data, target.strides);
}

/// Read from the last element of each flipped axis on, backwards.
void flip_any(const KernelArgs& args) {
  const Buffer &in = args.in[0], &out = args.out[0];
  if (out.size() == 0) return;
  const char* from = in.as<char>();
  int64_t strides[kMaxRank];
  for (int i = 0; i < in.rank; ++i) strides[i] = in.strides[i];
  for (const Dim axis : args.attributes<FlipAttrs>().axes) {
    const int i = static_cast<int>(axis);
    from += (in.shape[i] - 1) * strides[i] * static_cast<int64_t>(bytes_of(in.dtype));
    strides[i] = -strides[i];
  }
  strided_copy(stream_of(args), out.rank, out.shape, out.dtype, from, strides, out.data, out.strides);
}

void concat_any(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  const int axis = static_cast<int>(args.attributes<AxisAttrs>().axis);
  char* to = out.as<char>();
  for (int n = 0; n < args.n_in; ++n) {
    const Buffer& in = args.in[n];
    strided_copy(stream_of(args), in.rank, in.shape, in.dtype, in.data, in.strides, to, out.strides);
    to += in.shape[axis] * out.strides[axis] * static_cast<int64_t>(bytes_of(out.dtype));
  }
}

void slice_into_zeros_any(const KernelArgs& args) {
  const Buffer &in = args.in[0], &out = args.out[0];
  const SliceAttrs& a = args.attributes<SliceAttrs>();
  const int64_t size = out.size();
  if (size == 0) return;
  const int axis = static_cast<int>(a.axis);
  int64_t inner = 1;
  for (int d = axis + 1; d < out.rank; ++d) inner *= out.shape[d];
  TD_CHECK(in.size() < (int64_t{1} << 31),
           "slice_into_zeros: on a GPU the slice has fewer than 2^31 elements; got ", in.size(), ".");
  Layout<1> layout;
  if (in.size() > 0) layout = make_layout<1>(in.rank, in.shape, {in.strides});
  visit_width(bytes_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    slice_into_zeros_kernel<T>
        <<<static_cast<unsigned>((size + kThreads - 1) / kThreads), kThreads, 0, stream_of(args)>>>(
            size, inner, out.shape[axis], a.start, a.step, in.shape[axis], layout, in.as<T>(), out.as<T>());
  });
  launched("slice_into_zeros_kernel");
}

}  // namespace

void strided_copy(cudaStream_t stream, int rank, const int64_t* shape, DType dtype, const void* from,
                  const int64_t* from_strides, void* to, const int64_t* to_strides) {
  visit_width(bytes_of(dtype), [&](auto zero) {
    using T = decltype(zero);
    in_pieces<2>(rank, shape, {from_strides, to_strides},
                 [&](const Layout<2>& layout, const int64_t(&at)[2]) {
                   constexpr uint32_t kPerBlock = kThreads * kPerThread;
                   copy_kernel<T><<<(layout.size + kPerBlock - 1) / kPerBlock, kThreads, 0, stream>>>(
                       layout, static_cast<const T*>(from) + at[0], static_cast<T*>(to) + at[1]);
                   launched("copy_kernel");
                 });
  });
}

void register_shape_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_copy().kernels[kCuda] = &copy_any;
  op_assign().kernels[kCuda] = &assign_any;
  op_flip().kernels[kCuda] = &flip_any;
  op_concat().kernels[kCuda] = &concat_any;
  op_slice_into_zeros().kernels[kCuda] = &slice_into_zeros_any;
}

}  // namespace tandem::cuda
