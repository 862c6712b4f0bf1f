// "bf16 products": matrix products by the processor's bf16 instructions (gemm_bf16.h).
#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/kernels/gemm.h"

namespace tandem::cpu::TD_ISA {
namespace {

class Bf16Gemm final : public GemmImplementation {
 public:
  std::string name() const override { return "bf16 products"; }
  const char* can(const GemmProblem& p) const override {
    if (p.dtype != DType::bf16) return "it computes in bf16 only.";
    return bf16_kernel() ? nullptr
                         : "it needs a processor with bf16 instructions, and TANDEM_BF16 that allows them.";
  }
  bool pays(const GemmProblem& p) const override { return p.k >= kShallowestBf16; }
  void run(const GemmCall& call) const override {
    const auto matrix = [](const AnyMatrix& m) {
      return Bf16Matrix{static_cast<const BFloat16*>(m.data), m.row, m.column};
    };
    const Bias<BFloat16> bias = call.bias<BFloat16>();
    gemm_bf16(*bf16_kernel(), call.problem.m, call.problem.n, call.problem.k, matrix(call.a), matrix(call.b),
              {static_cast<BFloat16*>(call.c), nullptr, call.leading, false, bias.row, bias.column});
  }
};

}  // namespace

const GemmImplementation& bf16_gemm() {
  static constexpr Bf16Gemm row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
