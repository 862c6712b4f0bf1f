#include "tandem/backends/cpu/kernels/register.h"

namespace tandem::cpu::TD_ISA {

void register_common_kernels() {
  register_ctc_kernels();
  register_grid_sample_kernels();
  register_index_kernels();
  register_integer_pointwise_kernels();
  register_recurrent_layer_kernels();
  register_scan_kernels();
  register_shape_kernels();
  register_sort_kernels();
  register_unfold_kernels();
}

}  // namespace tandem::cpu::TD_ISA
