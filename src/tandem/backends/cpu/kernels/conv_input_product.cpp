// "columns": the input gradient as one matrix product, g (pixels of all outputs, o) times the weight (o, taps), whose columns are
// then added up where they belong. For images of few positions, deep in a network.
#include "tandem/backends/cpu/kernels/conv.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/shape.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kMostColumns = int64_t{1} << 24;  // elements between the product and the sums: 64 MB of f32

/// The left operand: row r is an output's pixel (all images, one after the other), column k is output channel k of the group.
template <class T>
struct GradientPixels {
  const ConvShape& s;
  const T* g;  // the group's first channel of the first image

  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    constexpr int kWidth = Tile<T>::rows;
    const auto& self = *static_cast<const GradientPixels*>(context);
    const int64_t plane = self.s.oh * self.s.ow, pixels = self.s.n * plane;
    for (int r = 0; r < kWidth; ++r) {
      const int64_t at = first + r;
      const T* from = self.g + (at / plane * self.s.o + k0) * plane + at % plane;
      for (int64_t k = 0; k < kc; ++k) to[k * kWidth + r] = at < pixels ? from[k * plane] : T(0);
    }
  }
};

/// The right operand: the group's weights as they lie, (o, taps).
template <class T>
struct WeightRows {
  const T* weight;
  int64_t taps;

  static void pack(const void* context, T* to, int64_t first, int64_t k0, int64_t kc) {
    constexpr int kWidth = Tile<T>::columns;
    const auto& self = *static_cast<const WeightRows*>(context);
    const int64_t there = self.taps - first < kWidth ? self.taps - first : kWidth;
    for (int64_t k = 0; k < kc; ++k) {
      const T* row = self.weight + (k0 + k) * self.taps + first;
      for (int64_t q = 0; q < kWidth; ++q) to[k * kWidth + q] = q < there ? row[q] : T(0);
    }
  }
};

/// One channel of one image: each element is the sum of its columns, in the order of the taps.
template <class T>
void add_columns(const ConvShape& s, const T* columns, int64_t image, int64_t channel, T* dx) {
  for (int64_t h = 0; h < s.h; ++h)
    for (int64_t w = 0; w < s.w; ++w) {
      T sum = 0;
      for (int64_t a = 0; a < s.kh; ++a) {
        const int64_t down = h + s.padding_h - a * s.dilation_h, i = down / s.stride_h;
        if (down < 0 || down % s.stride_h != 0 || i >= s.oh) continue;
        for (int64_t b = 0; b < s.kw; ++b) {
          const int64_t right = w + s.padding_w - b * s.dilation_w, j = right / s.stride_w;
          if (right < 0 || right % s.stride_w != 0 || j >= s.ow) continue;
          sum += columns[((image * s.oh + i) * s.ow + j) * s.taps() + (channel * s.kh + a) * s.kw + b];
        }
      }
      dx[h * s.w + w] = sum;
    }
}

template <class T>
void input_gradient(const ConvShape& s, const T* g, const T* weight, T* dx) {
  const int64_t pixels = s.n * s.oh * s.ow;
  // Groups one after the other through the same columns; within one, a task owns a channel of an image.
  T* columns = scratch_of<T>(ScratchSlot::conv_source, pixels * s.taps());
  for (int64_t group = 0; group < s.groups; ++group) {
    const GradientPixels<T> left{s, g + group * s.group_out() * s.oh * s.ow};
    const WeightRows<T> right{weight + group * s.group_out() * s.taps(), s.taps()};
    gemm_panels<T>(pixels, s.taps(), s.group_out(), PanelSource<T>{&GradientPixels<T>::pack, &left},
                   PanelSource<T>{&WeightRows<T>::pack, &right}, columns, s.taps());
    parallel_for(s.n * s.group_in(), [&](int64_t chunk) {
      const int64_t image = chunk / s.group_in(), channel = chunk % s.group_in();
      add_columns(s, columns, image, channel,
                  dx + ((image * s.groups + group) * s.group_in() + channel) * s.h * s.w);
    });
  }
}

class InputProductConv final : public ConvImplementation {
 public:
  std::string name() const override { return "columns"; }
  const char* can(const ConvProblem& p) const override {
    if (p.op != ConvOp::input_gradient) return "it computes the input gradient only.";
    if (p.dtype != DType::f32 && p.dtype != DType::f64) return "it takes f32 and f64 only.";
    const ConvShape& s = p.shape;
    const int64_t pixels = times_capped(times_capped(s.n, s.oh), s.ow);
    return times_capped(pixels, s.taps()) <= kMostColumns ? nullptr
                                                          : "its columns would take more than 2^24 elements.";
  }
  /// The direct kernel spends whole vectors on each row of the image: where most lanes would idle it was 20 to 50 times
  /// slower than this.
  bool pays(const ConvProblem& p) const override {
    const int64_t lanes = ceil_div(p.shape.w, kLanes<float>) * kLanes<float>;
    return 8 * p.shape.w < 5 * lanes && p.shape.group_out() >= 16;
  }
  void run(const ConvCall& call) const override {
    const ConvShape& s = call.problem.shape;
    if (call.problem.dtype == DType::f64)
      input_gradient(s, static_cast<const double*>(call.a), static_cast<const double*>(call.b),
                     static_cast<double*>(call.out));
    else
      input_gradient(s, static_cast<const float*>(call.a), static_cast<const float*>(call.b),
                     static_cast<float*>(call.out));
  }
};

}  // namespace

const ConvImplementation& input_product_conv() {
  static constexpr InputProductConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
