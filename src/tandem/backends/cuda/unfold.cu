// unfold and fold: one thread per output element; fold adds what its element was copied to, in the order of the
// window's elements.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/unfold.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

/// By axis: depth, height, width. elements: of a kernel; windows: places that it takes; image: elements of one.
struct Windows {
  int64_t kernel[3], stride[3], padding[3], dilation[3], in[3], out[3];
  int64_t elements, windows, image;
};

/// y (image, element of the kernel, window), x (image, depth, height, width). Thread i makes element i of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    unfold_kernel(const Windows s, int64_t size, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  int64_t window = i % s.windows, element = i / s.windows % s.elements;
  const int64_t image = i / s.windows / s.elements;
  int64_t place = 0, step = 1;
  bool inside = true;
  for (int a = 2; a >= 0; --a) {
    const int64_t at = window % s.out[a] * s.stride[a] - s.padding[a] + element % s.kernel[a] * s.dilation[a];
    window /= s.out[a];
    element /= s.kernel[a];
    inside = inside && at >= 0 && at < s.in[a];
    place += at * step;
    step *= s.in[a];
  }
  y[i] = inside ? x[image * s.image + place] : T(0.f);
}

/// x (image, element of the kernel, window), y (image, depth, height, width). Thread i makes element i of y: for each
/// element of the kernel at most one window lies so that it was copied from here.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const Windows s, int64_t size, const T* __restrict__ x, T* __restrict__ y) {
  using C = typename ComputeType<T>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  int64_t at[3], place = i % s.image;
  for (int a = 2; a >= 0; --a) {
    at[a] = place % s.in[a];
    place /= s.in[a];
  }
  const T* from = x + i / s.image * s.elements * s.windows;
  C sum = 0;
  for (int64_t element = 0; element < s.elements; ++element) {
    int64_t rest = element, window = 0, step = 1;
    bool inside = true;
    for (int a = 2; a >= 0; --a) {
      const int64_t moved = at[a] + s.padding[a] - rest % s.kernel[a] * s.dilation[a];
      const int64_t o = moved / s.stride[a];
      rest /= s.kernel[a];
      inside = inside && moved >= 0 && o * s.stride[a] == moved && o < s.out[a];
      window += o * step;
      step *= s.out[a];
    }
    if (inside) sum += static_cast<C>(from[element * s.windows + window]);
  }
  y[i] = static_cast<T>(sum);
}

template <bool folds>
void run(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  if (y.size() == 0) return;
  const auto& a = args.attributes<UnfoldAttrs>();
  Windows s;
  s.elements = s.windows = s.image = 1;
  for (int i = 0; i < 3; ++i) {
    s.kernel[i] = a.kernel[i];
    s.stride[i] = a.stride[i];
    s.padding[i] = a.padding[i];
    s.dilation[i] = a.dilation[i];
    s.in[i] = a.size[i];
    s.out[i] = a.outputs(i);
    s.elements *= s.kernel[i];
    s.windows *= s.out[i];
    s.image *= s.in[i];
  }
  const auto blocks = static_cast<unsigned>((y.size() + kThreads - 1) / kThreads);
  visit_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (folds)
      fold_kernel<T><<<blocks, kThreads, 0, stream_of(args)>>>(s, y.size(), x.as<const T>(), y.as<T>());
    else
      unfold_kernel<T><<<blocks, kThreads, 0, stream_of(args)>>>(s, y.size(), x.as<const T>(), y.as<T>());
  });
  launched(folds ? "fold_kernel" : "unfold_kernel");
}

}  // namespace

void register_unfold_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_unfold().kernels[kCuda] = &run<false>;
  op_fold().kernels[kCuda] = &run<true>;
}

}  // namespace tandem::cuda
