// A matrix product as the kernels see it.
#pragma once

#include <cstdint>

#include "tandem/core/kernel.h"

namespace tandem::cuda {

/// A batch of logical (rows, columns) matrices with any strides, in elements.
struct Matrix {
  const void* data;
  int64_t rows, columns, row_stride, column_stride, batch_stride;
};

/// out (batches, m, n), row-major = a (batches, m, k) · b (batches, k, n) [+ bias (n)].
struct Product {
  Matrix a, b;
  void* out;
  const void* bias;
  int64_t bias_stride;
  int64_t batches, m, n, k;
  DType dtype;
};

/// Runs small f32 products by a kernel of our own, or returns false: a choice by shape alone.
bool small_product(const KernelArgs& args, const Product& product);

}  // namespace tandem::cuda
