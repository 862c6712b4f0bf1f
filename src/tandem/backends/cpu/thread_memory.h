// Memory that kernels keep between calls, one set of blocks per host thread.
#pragma once

#include <cstddef>

namespace tandem::cpu {

enum class ScratchSlot {
  workspace,  // KernelArgs::workspace
  fused_tiles,
  gemm_a,
  gemm_b,
  gemm_c,
  conv_source,
  conv_tile,
  conv_weights,
  count
};

/// Memory of the calling thread that lives until its next request for the same slot; 64-byte aligned. A thread that
/// waits in parallel_for may share its scratch with the bodies. It can be had at any time, also in the destructor of a
/// static or thread_local object.
void* thread_scratch(ScratchSlot slot, size_t bytes);

}  // namespace tandem::cpu
