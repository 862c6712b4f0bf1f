// The implementations of matrix products: one row each, the most wanted first; each is a function that its file defines.
#include "tandem/backends/cpu/kernels/gemm.h"

// clang-format off
#define TD_GEMM_IMPLEMENTATIONS(row) \
  row(bf16_gemm)                     \
  row(thin_gemm)                     \
  row(panels_gemm)                   \
  row(integer_gemm)
// clang-format on

namespace tandem::cpu::TD_ISA {

#define TD_ROW(implementation) const GemmImplementation& implementation();
TD_GEMM_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW

std::span<const GemmImplementation* const> gemm_rows() {
  static const GemmImplementation* const rows[] = {
#define TD_ROW(implementation) &implementation(),
      TD_GEMM_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW
  };
  return rows;
}

}  // namespace tandem::cpu::TD_ISA
