// levels: two
#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

void register_narrow() {
#define TD_LISTED(family) family();
#include "lists/narrow_kernels.inc"
#undef TD_LISTED
}

}  // namespace tandem::cpu::TD_ISA
