// levels: one
#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

void register_common() {
#define TD_LISTED(family) family();
#include "lists/common_kernels.inc"
#undef TD_LISTED
}

}  // namespace tandem::cpu::TD_ISA
