#pragma once

#include "tandem/backends/cpu/kernels/simd.h"

namespace tandem::cpu::TD_ISA {

/// While it lives, and is on, numbers too small to be normal ones count as zero in this thread, on x86-64, where each of them costs
/// hundreds of clocks: the gradient of a long sequence is full of them once it has died away (imdb_lstm: three times the time), and
/// so are probabilities of a network that is sure (the gradient of log_softmax: seven times).
class TinyAsZero {
 public:
#if defined(__x86_64__)
  explicit TinyAsZero(bool on = true) : before_(__builtin_ia32_stmxcsr()) {
    if (on) __builtin_ia32_ldmxcsr(before_ | 0x8040u);
  }
  ~TinyAsZero() { __builtin_ia32_ldmxcsr(before_); }
#else
  explicit TinyAsZero(bool = true) {}
#endif
  TinyAsZero(const TinyAsZero&) = delete;
  TinyAsZero& operator=(const TinyAsZero&) = delete;

 private:
  [[maybe_unused]] const unsigned before_ = 0;
};

}  // namespace tandem::cpu::TD_ISA
