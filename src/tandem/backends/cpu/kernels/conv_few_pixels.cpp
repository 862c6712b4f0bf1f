// "few pixels": convolution as a matrix product whose weights are read once, where they are. For outputs of few pixels, as deep
// layers have them for one image: the weights are then most of what is read, and packing them would cost more than the product.
#include "tandem/backends/cpu/kernels/conv_columns.h"
#include "tandem/backends/cpu/kernels/row_products.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {

const GemmImplementation& thin_gemm();

namespace {

constexpr int64_t kMostPixels = 64;  // of all images; beyond that the other implementations win
constexpr int64_t kThinPixels = 4;   // up to here a pixel is one vector of taps
constexpr int64_t kGrain = 1 << 16;  // multiply-adds of a task, about
constexpr int64_t kTapsTogether = 256;

/// out (channels, pixels) of a group: each sum is one chain over the taps per block of them, as in gemm.h.
template <class S, int kVectors>
void by_panels(const ConvShape& s, const ConvColumns<S>& columns, const S* weight, S* out, int64_t pixels) {
  constexpr int kWidth = kVectors * kLanes<S>;
  const int64_t taps = s.taps(), og = s.group_out(), panels = blocks_in(pixels, kWidth);
  S* const packed = scratch_of<S>(ScratchSlot::conv_source, panels * taps * kWidth);
  const int64_t pieces = blocks_in(taps, kTapsTogether);
  parallel_for(panels * pieces, [&](int64_t i) {
    const int64_t panel = i / pieces, first = i % pieces * kTapsTogether;
    ConvColumns<S>::template pack<kWidth>(&columns, packed + (panel * taps + first) * kWidth, panel * kWidth,
                                          first, taps - first < kTapsTogether ? taps - first : kTapsTogether);
  });
  constexpr int kRows = kRowsOfTile<kVectors>;
  const int64_t rows = blocks_in(blocks_in(kGrain, taps * kWidth), kRows) * kRows;
  parallel_for(blocks_in(og, rows), [&](int64_t block) {
    const int64_t first = block * rows, count = og - first < rows ? og - first : rows;
    S* const tile = scratch_of<S>(ScratchSlot::gemm_c, count * kWidth);
    for (int64_t panel = 0; panel < panels; ++panel) {
      Rows<S, kVectors>::run(weight + first * taps, taps, count, taps, packed + panel * taps * kWidth, tile,
                             kWidth, kLanes<S>);
      const int64_t width = pixels - panel * kWidth < kWidth ? pixels - panel * kWidth : kWidth;
      for (int64_t r = 0; r < count; ++r)
        for (int64_t q = 0; q < width; ++q)
          out[(first + r) * pixels + panel * kWidth + q] = tile[r * kWidth + q];
    }
  });
}

template <class S>
void forward(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  const int64_t cg = s.group_in(), og = s.group_out(), plane = s.oh * s.ow, pixels = s.n * plane,
                taps = s.taps();
  S* const out = scratch_of<S>(ScratchSlot::conv_tile, og * pixels);
  for (int64_t g = 0; g < s.groups; ++g) {
    const ConvColumns<S> columns{s, x + g * cg * s.h * s.w, s.n};
    const S* const own = weight + g * og * taps;
    if (pixels <= kThinPixels) {
      S* const vectors = scratch_of<S>(ScratchSlot::conv_source, pixels * taps);
      for (int64_t q = 0; q < pixels; ++q)
        ConvColumns<S>::template pack<1>(&columns, vectors + q * taps, q, 0, taps);
      thin_gemm().run({{og, pixels, taps, dtype_of<S>()}, {own, taps, 1}, {vectors, 1, taps}, out, pixels});
    } else if (pixels <= kLanes<S>) {
      by_panels<S, 1>(s, columns, own, out, pixels);
    } else if (pixels <= 2 * kLanes<S>) {
      by_panels<S, 2>(s, columns, own, out, pixels);
    } else {
      by_panels<S, 4>(s, columns, own, out, pixels);
    }
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t o = 0; o < og; ++o)
        for (int64_t q = 0; q < plane; ++q) {
          const S sum = out[o * pixels + n * plane + q];
          y[(n * s.o + g * og + o) * plane + q] = bias ? sum + bias[g * og + o] : sum;
        }
  }
}

class FewPixelsConv final : public ConvImplementation {
 public:
  std::string name() const override { return "few pixels"; }
  const char* can(const ConvProblem& p) const override {
    if (p.op != ConvOp::forward) return "it computes the forward pass only.";
    if (p.dtype != DType::f32 && p.dtype != DType::f64) return "it takes f32 and f64 only.";
    if (p.shape.n * p.shape.oh * p.shape.ow > kMostPixels) return "it takes up to 64 pixels of output only.";
    return nullptr;
  }
  /// Few channels are not worth the gathering.
  bool pays(const ConvProblem& p) const override { return p.shape.group_out() >= 16 && p.shape.taps() >= 64; }
  void run(const ConvCall& call) const override {
    const auto compute = [&](auto zero) {
      using S = decltype(zero);
      forward(call.problem.shape, static_cast<const S*>(call.a), static_cast<const S*>(call.b),
              static_cast<const S*>(call.bias), static_cast<S*>(call.out));
    };
    call.problem.dtype == DType::f64 ? compute(double{}) : compute(float{});
  }
};

}  // namespace

const ConvImplementation& few_pixels_conv() {
  static constexpr FewPixelsConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
