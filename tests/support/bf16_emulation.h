// What the processors' bf16 instructions compute, operation by operation, as kernels for the same panels. They say how
// sums are rounded, stand in for instructions that the machine lacks, and are compared with those that it has.
//   BFMMLA (Arm ARM, BFDotAdd): sum + (a0 b0 + a1 b1) for two pairs, every addition rounded to odd
//   VDPBF16PS (Intel SDM): fma(a0, b0, fma(a1, b1, sum)), to nearest even
//   TDPBF16PS (Intel SDM): the even and the odd k of 32 each in a chain of fmas from zero, these added, then the sum
// In all of them subnormal operands and results are zeros with their sign.
#pragma once

#include <vector>

#include "tandem/backends/cpu/gemm_bf16.h"

namespace tandem::testing {

extern const cpu::Bf16Kernel kEmulatedBfmmla, kEmulatedAvx512, kEmulatedAmx;

/// The kernels that can run here: the emulated ones, then those that the processor has.
std::vector<const cpu::Bf16Kernel*> bf16_kernels();
/// The emulation of a kernel of the same name.
const cpu::Bf16Kernel& emulation_of(const cpu::Bf16Kernel& kernel);

/// Uses a kernel as long as it lives.
class WithBf16Kernel {
 public:
  explicit WithBf16Kernel(const cpu::Bf16Kernel* kernel) : before_(cpu::use_bf16_kernel(kernel)) {}
  ~WithBf16Kernel() { cpu::use_bf16_kernel(before_); }
  WithBf16Kernel(const WithBf16Kernel&) = delete;
  WithBf16Kernel& operator=(const WithBf16Kernel&) = delete;

 private:
  const cpu::Bf16Kernel* before_;
};

}  // namespace tandem::testing
