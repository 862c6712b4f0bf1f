// The CPU backend: a caching allocator, and the choice of the best instruction-set level at start-up.
#pragma once

#include <string>

namespace tandem::cpu {

/// Registers the CPU backend and its kernels. Called once, by backends/start.cpp, after the ops are defined.
void start();

/// The instruction-set level in use: "baseline" (NEON on ARM), "avx2" or "avx512".
std::string isa_level();

}  // namespace tandem::cpu
