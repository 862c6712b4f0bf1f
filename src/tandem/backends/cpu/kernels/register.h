// The families of CPU kernels of one instruction-set level. Each defines `void register_NAME_kernels()`, which fills in its ops'
// CPU rows; the build lists them (cmake/list_functions.cmake).
#pragma once

namespace tandem::cpu::TD_ISA {

#define TD_LISTED(family) void family();
#include "lists/common_kernels.inc"
#include "lists/kernels.inc"
#include "lists/narrow_kernels.inc"
#undef TD_LISTED

/// What is compiled for the lowest level alone ("levels: one").
void register_common();
/// What has no version for AVX-512 ("levels: two").
void register_narrow();
/// All others.
void register_all();

}  // namespace tandem::cpu::TD_ISA
