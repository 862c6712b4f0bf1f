#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

void register_kernels() {
  register_pointwise_kernels();
  register_reduce_kernels();
  register_norm_kernels();
  register_softmax_kernels();
  register_matmul_kernels();
  register_recurrent_kernels();
  register_conv_kernels();
  register_pool_kernels();
  register_random_kernels();
  register_linalg_kernels();
}

}  // namespace tandem::cpu::TD_ISA
