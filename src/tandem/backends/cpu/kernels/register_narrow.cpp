#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

void register_narrow_kernels() {
  register_fft_kernels();
  register_resample_kernels();
}

}  // namespace tandem::cpu::TD_ISA
