// The families of CUDA kernels: each call fills the CUDA rows of its ops.
#pragma once

namespace tandem::cuda {

void register_pointwise_number_kernels();
void register_pointwise_every_kernels();
void register_pointwise_floating_kernels();
void register_cast_kernels();
void register_reduce_kernels();
void register_scan_kernels();
void register_norm_kernels();
void register_matmul_kernels();
void register_recurrent_kernels();
void register_recurrent_layer_kernels();
void register_ctc_kernels();
void register_conv_kernels();
void register_pool_kernels();
void register_resample_kernels();
void register_grid_sample_kernels();
void register_unfold_kernels();
void register_softmax_kernels();
void register_index_kernels();
void register_sort_kernels();
void register_shape_kernels();
void register_random_kernels();
void register_random_choice_kernels();
void register_linalg_kernels();
void register_fft_kernels();

}  // namespace tandem::cuda
