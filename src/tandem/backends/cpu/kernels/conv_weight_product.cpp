// "one product": the weight gradient as one matrix product, g (o, pixels of all images) times patches (pixels of all images, taps).
// Both are gathered from the images while panels are packed.
#include "tandem/backends/cpu/kernels/conv.h"
#include "tandem/backends/cpu/kernels/gemm.h"

namespace tandem::cpu::TD_ISA {
namespace {

/// The left operand: row r is output channel r of the group, column k is pixel k % plane of image k / plane.
template <class S>
struct GradientRows {
  using T = Accumulator<S>;
  const ConvShape& s;
  const S* g;  // the group's first channel of the first image

  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    constexpr int kWidth = Tile<T>::rows;
    const auto& self = *static_cast<const GradientRows*>(context);
    const ConvShape& s = self.s;
    const int64_t plane = s.oh * s.ow, rows = s.group_out() - first;
    for (int r = 0; r < kWidth; ++r) {
      int64_t image = k0 / plane, pixel = k0 % plane;
      for (int64_t k = 0; k < kc; ++k) {
        to[k * kWidth + r] =
            r < rows ? static_cast<T>(self.g[(image * s.o + first + r) * plane + pixel]) : T(0);
        if (++pixel == plane) pixel = 0, ++image;
      }
    }
  }
};

/// The right operand: row k is a pixel, as above, column q is tap q.
template <class S>
struct Patches {
  using T = Accumulator<S>;
  const ConvShape& s;
  const S* x;  // the group's first channel of the first image

  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    constexpr int kWidth = Tile<T>::columns;
    const auto& self = *static_cast<const Patches*>(context);
    const ConvShape& s = self.s;
    for (int q = 0; q < kWidth; ++q) {
      const int64_t tap = first + q, c = tap / (s.kh * s.kw);
      const int64_t down = tap / s.kw % s.kh * s.dilation_h - s.padding_h;
      const int64_t right = tap % s.kw * s.dilation_w - s.padding_w;
      int64_t image = k0 / (s.oh * s.ow), i = k0 / s.ow % s.oh, j = k0 % s.ow;
      for (int64_t k = 0; k < kc; ++k) {
        const int64_t h = i * s.stride_h + down, w = j * s.stride_w + right;
        const bool inside = tap < s.taps() && h >= 0 && h < s.h && w >= 0 && w < s.w;
        to[k * kWidth + q] = inside ? static_cast<T>(self.x[((image * s.c + c) * s.h + h) * s.w + w]) : T(0);
        if (++j == s.ow) j = 0, ++i;
        if (i == s.oh) i = 0, ++image;
      }
    }
  }
};

class WeightProductConv final : public ConvImplementation {
 public:
  std::string name() const override { return "one product"; }
  const char* can(const ConvProblem& p) const override {
    return p.op == ConvOp::weight_gradient ? nullptr : "it computes the weight gradient only.";
  }
  /// The direct kernel spends whole vectors on each output row: where most lanes would idle (images of few positions, deep
  /// in a network) it was up to 200 times slower than this.
  bool pays(const ConvProblem& p) const override {
    const int64_t lanes = ceil_div(p.shape.ow, kLanes<float>) * kLanes<float>;
    return 8 * p.shape.ow < 5 * lanes && p.shape.group_out() >= 16;
  }
  /// A sum over all pixels of all images is cut into blocks as of any long product (depth_of_block).
  void run(const ConvCall& call) const override {
    const ConvShape& s = call.problem.shape;
    visit_floating(call.problem.dtype, [&](auto zero) {
      using S = decltype(zero);
      using T = Accumulator<S>;
      for (int64_t group = 0; group < s.groups; ++group) {
        const GradientRows<S> g{s, static_cast<const S*>(call.a) + group * s.group_out() * s.oh * s.ow};
        const Patches<S> x{s, static_cast<const S*>(call.b) + group * s.group_in() * s.h * s.w};
        gemm_panels<S>(s.group_out(), s.taps(), s.n * s.oh * s.ow, PanelSource<T>{&GradientRows<S>::pack, &g},
                       PanelSource<T>{&Patches<S>::pack, &x},
                       static_cast<S*>(call.out) + group * s.group_out() * s.taps(), s.taps());
      }
    });
  }
};

}  // namespace

const ConvImplementation& weight_product_conv() {
  static constexpr WeightProductConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
