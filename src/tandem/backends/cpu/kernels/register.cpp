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
#ifndef TD_ISA_avx512  // wider vectors would gain little (CMakeLists.txt, two_level_kernels)
  register_fft_kernels();
  register_linalg_kernels();
  register_resample_kernels();
#endif
#ifdef TD_ISA_baseline  // they move elements rather than compute, or are seldom called (CMakeLists.txt, one_level_kernels)
  register_ctc_kernels();
  register_grid_sample_kernels();
  register_index_kernels();
  register_recurrent_layer_kernels();
  register_scan_kernels();
  register_shape_kernels();
  register_sort_kernels();
  register_unfold_kernels();
#endif
}

}  // namespace tandem::cpu::TD_ISA
