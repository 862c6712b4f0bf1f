// "im2col": convolution as a matrix product, weights (o, taps) times columns (taps, pixels of a block of images), where
// a panel of columns is gathered from the images at the moment it is packed. For shapes whose rows are too
// short for the direct kernel.
#include "tandem/backends/cpu/kernels/conv_columns.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kWantedPixels = 256;  // of one product: images are taken together until there are so many

/// The left operand: the group's weights, row-major.
template <class S>
struct WeightRows {
  using T = Accumulator<S>;
  const S* weight;
  int64_t rows, taps;

  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    constexpr int kWidth = Tile<T>::rows;
    const auto& self = *static_cast<const WeightRows*>(context);
    for (int64_t k = k0; k < k0 + kc; ++k)
      for (int r = 0; r < kWidth; ++r)
        *to++ = first + r < self.rows ? static_cast<T>(self.weight[(first + r) * self.taps + k]) : T(0);
  }
};

/// A task has a block of images and a group to itself. The product comes out as (channel, image, pixel) and is copied
/// to (image, channel, pixel). How many images go together depends on the shape alone, and no sum runs over images.
template <class S>
void forward(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  using T = Accumulator<S>;
  const int64_t cg = s.group_in(), og = s.group_out(), pixels = s.oh * s.ow;
  const int64_t together = ceil_div(kWantedPixels, pixels);
  const int64_t blocks = ceil_div(s.n, together);
  parallel_for(blocks * s.groups, [&](int64_t chunk) {
    const int64_t n = chunk / s.groups * together, g = chunk % s.groups;
    const int64_t images = s.n - n < together ? s.n - n : together;
    const ConvColumns<S> columns{s, x + (n * s.c + g * cg) * s.h * s.w, images};
    const WeightRows<S> weights{weight + g * og * s.taps(), og, s.taps()};
    S* tile = scratch_of<S>(ScratchSlot::conv_tile, og * images * pixels);
    gemm_panels<S>(og, images * pixels, s.taps(), PanelSource<T>{&WeightRows<S>::pack, &weights},
                   PanelSource<T>{&ConvColumns<S>::template pack<Tile<T>::columns>, &columns}, tile,
                   images * pixels, Bias<S>{bias ? bias + g * og : nullptr, nullptr});
    for (int64_t image = 0; image < images; ++image)
      for (int64_t o = 0; o < og; ++o) {
        const S* from = tile + (o * images + image) * pixels;
        S* to = y + ((n + image) * s.o + g * og + o) * pixels;
        for (int64_t i = 0; i < pixels; ++i) to[i] = from[i];
      }
  });
}

class Im2colConv final : public ConvImplementation {
 public:
  std::string name() const override { return "im2col"; }
  const char* can(const ConvProblem& p) const override {
    return p.op == ConvOp::forward ? nullptr : "it computes the forward pass only.";
  }
  /// The direct kernel spends whole vectors on each output row; this gathers every element it reads. It pays where
  /// less than 5 of 8 lanes would do work and enough output channels share what was gathered.
  bool pays(const ConvProblem& p) const override {
    const int64_t lanes = ceil_div(p.shape.ow, kLanes<float>) * kLanes<float>;
    return 8 * p.shape.ow < 5 * lanes && p.shape.group_out() >= 16;
  }
  void run(const ConvCall& call) const override {
    visit_floating(call.problem.dtype, [&](auto zero) {
      using S = decltype(zero);
      forward(call.problem.shape, static_cast<const S*>(call.a), static_cast<const S*>(call.b),
              static_cast<const S*>(call.bias), static_cast<S*>(call.out));
    });
  }
};

}  // namespace

const ConvImplementation& im2col_conv() {
  static constexpr Im2colConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
