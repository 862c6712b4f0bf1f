#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

void register_all() {
#define TD_LISTED(family) family();
#include "lists/kernels.inc"
#undef TD_LISTED
}

}  // namespace tandem::cpu::TD_ISA
