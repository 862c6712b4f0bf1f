// CPU kernels of unfold, which copies elements, and fold, which adds them up in the order of the window's
// elements.
// levels: one
#include "tandem/ops/unfold.h"

#include <algorithm>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

/// Calls f(column offset, image offset, count, step) for runs of elements of one row of the columns (window
/// element k) that lie in the image: column offset + i stands for image offset + i * step.
template <class F>
void each_run(const UnfoldAttrs& a, int64_t k, F&& f) {
  const int64_t at[3] = {k / (a.kernel[2] * a.kernel[1]), k / a.kernel[2] % a.kernel[1], k % a.kernel[2]};
  int64_t shift[3];  // output place o reads o * stride + shift
  for (int i = 0; i < 3; ++i) shift[i] = at[i] * a.dilation[i] - a.padding[i];
  const int64_t width = a.outputs(2), stride = a.stride[2];
  const int64_t first = shift[2] < 0 ? std::min(width, (-shift[2] + stride - 1) / stride) : 0;
  const int64_t inside = a.size[2] > shift[2] ? (a.size[2] - shift[2] + stride - 1) / stride : 0;
  const int64_t last = std::min(inside, width);
  if (first >= last) return;
  for (int64_t od = 0; od < a.outputs(0); ++od)
    for (int64_t oh = 0; oh < a.outputs(1); ++oh) {
      const int64_t d = od * a.stride[0] + shift[0], h = oh * a.stride[1] + shift[1];
      if (d < 0 || d >= a.size[0] || h < 0 || h >= a.size[1]) continue;
      f((od * a.outputs(1) + oh) * width + first, (d * a.size[1] + h) * a.size[2] + first * stride + shift[2],
        last - first, stride);
    }
}

struct Sizes {
  int64_t window, windows, image;
  explicit Sizes(const UnfoldAttrs& a)
      : window(a.kernel[0] * a.kernel[1] * a.kernel[2]),
        windows(a.outputs(0) * a.outputs(1) * a.outputs(2)),
        image(a.size[0] * a.size[1] * a.size[2]) {}
};

void unfold(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  const auto& a = args.attributes<UnfoldAttrs>();
  const Sizes s(a);
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    parallel_for(y.size() / s.windows, [&](int64_t row) {
      S* to = y.as<S>() + row * s.windows;
      const S* from = x.as<const S>() + row / s.window * s.image;
      std::fill_n(to, s.windows, S());
      each_run(a, row % s.window, [&](int64_t column, int64_t place, int64_t count, int64_t step) {
        for (int64_t i = 0; i < count; ++i) to[column + i] = from[place + i * step];
      });
    });
  });
}

void fold(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  const auto& a = args.attributes<UnfoldAttrs>();
  const Sizes s(a);
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Accumulator<S>;
    parallel_for(y.size() / s.image, [&](int64_t plane) {
      T* sums = scratch_of<T>(ScratchSlot::conv_tile, s.image);
      std::fill_n(sums, s.image, T());
      for (int64_t k = 0; k < s.window; ++k) {
        const S* from = x.as<const S>() + (plane * s.window + k) * s.windows;
        each_run(a, k, [&](int64_t column, int64_t place, int64_t count, int64_t step) {
          for (int64_t i = 0; i < count; ++i) sums[place + i * step] += static_cast<T>(from[column + i]);
        });
      }
      convert(y.as<S>() + plane * s.image, sums, s.image);
    });
  });
}

}  // namespace

void register_unfold_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_unfold().kernels[kCpu] = &unfold;
  op_fold().kernels[kCpu] = &fold;
}

}  // namespace tandem::cpu::TD_ISA
