// resample and its adjoint: one thread per output element, which sums what it reads in a fixed order. The adjoint
// looks for the places that read its element, so nothing is added with atomics.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

struct Maps {
  ResampleAxis axis[3];  // depth, height, width
};

/// Places are split off the end of i, which is then the image (n · c). Not transposed: output `at` reads the inputs
/// of its range. Transposed: input `at` is read by the outputs from first_after(at, false) to first_after(at, true).
/// The sums run as on the CPU: a column over depth and height first, then the columns in order.
template <class T, bool transposed>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(const Maps maps, int64_t size, const T* __restrict__ x, T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  T* to = y + i;
  long long at[3], begin[3], end[3], from_size[3];
  for (int a = 2; a >= 0; --a) {
    const ResampleAxis& axis = maps.axis[a];
    const int64_t to_size = transposed ? axis.in : axis.out;
    from_size[a] = transposed ? axis.out : axis.in;
    at[a] = i % to_size;
    i /= to_size;
    if (transposed) {
      begin[a] = axis.first_after(at[a], false);
      end[a] = axis.first_after(at[a], true);
    } else {
      const AxisRange r = axis.range(at[a]);
      begin[a] = r.begin;
      end[a] = r.end;
    }
  }
  const auto weight = [&](int a, long long j) {
    return static_cast<C>(transposed ? maps.axis[a].weight(j, at[a]) : maps.axis[a].weight(at[a], j));
  };
  C sum = 0;
  for (long long w = begin[2]; w < end[2]; ++w) {
    C column = 0;
    for (long long d = begin[0]; d < end[0]; ++d)
      for (long long h = begin[1]; h < end[1]; ++h)
        column += weight(0, d) * weight(1, h) *
                  static_cast<C>(x[((i * from_size[0] + d) * from_size[1] + h) * from_size[2] + w]);
    sum += weight(2, w) * column;
  }
  *to = static_cast<T>(sum);
}

template <bool transposed>
void resample(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  if (y.size() == 0) return;
  const auto& attrs = args.attributes<ResampleAttrs>();
  const auto size = [](const Buffer& b, int axis) {
    const int at = b.rank - 3 + axis;
    return at < 2 ? int64_t{1} : b.shape[at];
  };
  Maps maps;
  for (int i = 0; i < 3; ++i)
    maps.axis[i] = transposed ? attrs.axis(i, size(y, i), size(x, i)) : attrs.axis(i, size(x, i), size(y, i));
  const auto blocks = static_cast<unsigned>((y.size() + kThreads - 1) / kThreads);
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    resample_kernel<T, transposed>
        <<<blocks, kThreads, 0, stream_of(args)>>>(maps, y.size(), x.as<const T>(), y.as<T>());
  });
  launched("resample_kernel");
}

}  // namespace

void register_resample_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_resample().kernels[kCuda] = &resample<false>;
  op_resample_adjoint().kernels[kCuda] = &resample<true>;
}

}  // namespace tandem::cuda
