// gather, scatter_add_zeros and one_hot. An index out of range reads as zero, writes nothing and leaves a
// report in host memory, which the next synchronisation turns into an Error.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/core/op.h"
#include "tandem/ops/index.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

/// Index tensors of i64 or i32.
struct Indices {
  const void* data;
  bool wide;
  __device__ long long operator[](int64_t i) const {
    return wide ? static_cast<const long long*>(data)[i] : static_cast<const int*>(data)[i];
  }
};

__device__ bool in_range(long long index, long long limit, IndexFault op, IndexReport* report) {
  if (index >= 0 && index < limit) return true;
  report->index = index;
  report->limit = limit;
  report->op = static_cast<int>(op);
  return false;
}

/// The walk over the index tensor: operand 0 is x without its axis (stride 0 there), operand 1 the index
/// tensor, which is contiguous like the output.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const Layout<2> layout, const T* __restrict__ x, const Indices indices, T* __restrict__ out,
                  int64_t axis_stride, int64_t axis_size, int64_t out_base, IndexReport* report) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= layout.size) return;
  int64_t at[2];
  layout.offsets(i, at);
  const int64_t place = out_base + at[1];
  const long long index = indices[place];
  out[place] = in_range(index, axis_size, IndexFault::gather, report) ? x[at[0] + index * axis_stride] : T{};
}

void gather_any(const KernelArgs& args) {
  const Buffer &x = args.in[0], &index = args.in[1], &out = args.out[0];
  const int axis = static_cast<int>(args.attributes<AxisAttrs>().axis);
  const Indices indices{index.data, index.dtype == DType::i64};
  int64_t strides[kMaxRank];
  for (int d = 0; d < x.rank; ++d) strides[d] = d == axis ? 0 : x.strides[d];
  const int64_t axis_stride = x.rank ? x.strides[axis] : 0, axis_size = x.rank ? x.shape[axis] : 1;
  // Bytes are bytes: one kernel a width.
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    in_pieces<2>(
        out.rank, out.shape, {strides, out.strides}, [&](const Layout<2>& layout, const int64_t(&at)[2]) {
          gather_kernel<T><<<(layout.size + kThreads - 1) / kThreads, kThreads, 0, stream_of(args)>>>(
              layout, x.as<T>() + at[0], indices, out.as<T>(), axis_stride, axis_size, at[1],
              state_of(args).device_report);
          launched("gather_kernel");
        });
  };
  switch (bytes_of(x.dtype)) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

struct ScatterShape {
  int64_t size, source_size;  // elements of out and of source
  int rank, axis;
  int64_t out_shape[kMaxRank], source_shape[kMaxRank], source_strides[kMaxRank];
};

/// One thread an output element: it scans the sources along the axis, in order, for those that name it. The
/// same threads check that every index is in range.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_add_kernel(const ScatterShape s, const T* __restrict__ source, const Indices indices,
                       T* __restrict__ out, IndexReport* report) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < s.source_size) in_range(indices[i], s.out_shape[s.axis], IndexFault::scatter_add_zeros, report);
  if (i >= s.size) return;
  int64_t rest = i, base = 0, me = 0;
  bool covered = true;  // places beyond the source's sizes stay zero
  for (int d = s.rank - 1; d >= 0; --d) {
    const int64_t q = rest / s.out_shape[d], c = rest - q * s.out_shape[d];
    rest = q;
    if (d == s.axis) {
      me = c;
    } else {
      covered = covered && c < s.source_shape[d];
      base += c * s.source_strides[d];
    }
  }
  C sum = 0;
  if (covered)
    for (int64_t j = 0; j < s.source_shape[s.axis]; ++j) {
      const int64_t at = base + j * s.source_strides[s.axis];
      if (indices[at] == me) sum = static_cast<C>(sum + static_cast<C>(source[at]));
    }
  out[i] = static_cast<T>(sum);
}

void scatter_add_any(const KernelArgs& args) {
  const Buffer &source = args.in[0], &index = args.in[1], &out = args.out[0];
  ScatterShape s{};
  s.size = out.size();
  s.source_size = source.size();
  s.rank = out.rank;
  s.axis = static_cast<int>(args.attributes<ScatterAttrs>().axis);
  if (out.rank == 0) {
    s.rank = 1;
    s.out_shape[0] = s.source_shape[0] = 1;
  }
  for (int d = 0; d < out.rank; ++d) {
    s.out_shape[d] = out.shape[d];
    s.source_shape[d] = source.shape[d];
    s.source_strides[d] = source.strides[d];
  }
  const int64_t threads = s.size > s.source_size ? s.size : s.source_size;
  if (threads == 0) return;
  const Indices indices{index.data, index.dtype == DType::i64};
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    scatter_add_kernel<T>
        <<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream_of(args)>>>(
            s, source.as<T>(), indices, out.as<T>(), state_of(args).device_report);
  });
  launched("scatter_add_kernel");
}

__global__ void __launch_bounds__(kThreads)
    one_hot_kernel(int64_t size, const Indices indices, int64_t classes, int64_t* __restrict__ out,
                   IndexReport* report) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t row = i / classes, c = i - row * classes;
  const long long index = indices[row];
  if (c == 0) in_range(index, classes, IndexFault::one_hot, report);
  out[i] = index == c ? 1 : 0;
}

void one_hot_any(const KernelArgs& args) {
  const Buffer &index = args.in[0], &out = args.out[0];
  const int64_t size = out.size();
  if (size == 0) return;
  one_hot_kernel<<<static_cast<unsigned>((size + kThreads - 1) / kThreads), kThreads, 0, stream_of(args)>>>(
      size, Indices{index.data, index.dtype == DType::i64}, args.attributes<OneHotAttrs>().classes,
      out.as<int64_t>(), state_of(args).device_report);
  launched("one_hot_kernel");
}

}  // namespace

void register_index_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_gather().kernels[kCuda] = &gather_any;
  op_scatter_add_zeros().kernels[kCuda] = &scatter_add_any;
  op_one_hot().kernels[kCuda] = &one_hot_any;
}

}  // namespace tandem::cuda
