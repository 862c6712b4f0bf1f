// "pointwise 1x1": a convolution whose kernel is one pixel is a matrix product over the pixels of each image.
#include "tandem/backends/cpu/kernels/conv.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

template <class S>
void forward(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  const int64_t cg = s.group_in(), og = s.group_out(), pixels = s.h * s.w;
  parallel_for(s.n * s.groups, [&](int64_t i) {
    const int64_t g = i % s.groups;
    gemm<S>(og, pixels, cg, {weight + g * og * cg, cg, 1}, {x + i * cg * pixels, pixels, 1},
            y + i * og * pixels, pixels, {bias ? bias + g * og : nullptr, nullptr});
  });
}

template <class S>
void input_gradient(const ConvShape& s, const S* g, const S* weight, S* dx) {
  const int64_t cg = s.group_in(), og = s.group_out(), pixels = s.h * s.w;
  parallel_for(s.n * s.groups, [&](int64_t i) {
    gemm<S>(cg, pixels, og, {weight + i % s.groups * og * cg, 1, cg}, {g + i * og * pixels, pixels, 1},
            dx + i * cg * pixels, pixels, {});
  });
}

class PointwiseConv final : public ConvImplementation {
 public:
  std::string name() const override { return "pointwise 1x1"; }
  const char* can(const ConvProblem& p) const override {
    if (p.op == ConvOp::weight_gradient) return "it computes the forward pass and the input gradient only.";
    if (!p.shape.is_pointwise())
      return "it takes 1x1 kernels with stride 1, no padding and 4 or more channels per group only.";
    return nullptr;
  }
  void run(const ConvCall& call) const override {
    const ConvShape& s = call.problem.shape;
    visit_floating(call.problem.dtype, [&](auto zero) {
      using S = decltype(zero);
      const S *a = static_cast<const S*>(call.a), *b = static_cast<const S*>(call.b);
      if (call.problem.op == ConvOp::forward)
        forward(s, a, b, static_cast<const S*>(call.bias), static_cast<S*>(call.out));
      else
        input_gradient(s, a, b, static_cast<S*>(call.out));
    });
  }
};

}  // namespace

const ConvImplementation& pointwise_conv() {
  static constexpr PointwiseConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
