// The families of CPU kernels of one instruction-set level. Each fills in its ops' CPU rows.
#pragma once

namespace tandem::cpu::TD_ISA {

void register_pointwise_kernels();
void register_integer_pointwise_kernels();
void register_shape_kernels();
void register_reduce_kernels();
void register_scan_kernels();
void register_norm_kernels();
void register_softmax_kernels();
void register_index_kernels();
void register_sort_kernels();
void register_random_kernels();
void register_matmul_kernels();
void register_recurrent_kernels();
void register_recurrent_layer_kernels();
void register_ctc_kernels();
void register_conv_kernels();
void register_pool_kernels();
void register_linalg_kernels();
void register_fft_kernels();
void register_resample_kernels();
void register_grid_sample_kernels();
void register_unfold_kernels();

/// What is compiled once (CMakeLists.txt, one_level_kernels).
void register_common_kernels();
/// What has no version for AVX-512 (CMakeLists.txt, two_level_kernels).
void register_narrow_kernels();
/// All others.
void register_kernels();

}  // namespace tandem::cpu::TD_ISA
