// A matrix product as the kernels see it, and what can compute it.
#pragma once

#include <compare>
#include <cstdint>

#include "tandem/core/implementations.h"
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
  bool wide_out = false;  // out is f32 where the factors are narrower
};

struct ProductProblem {
  int device, capability, multiprocessors;  // the capability's major number
  bool tf32;                                // f32 factors may be rounded to it
  DType dtype;
  int64_t batches, m, n, k;
  friend auto operator<=>(const ProductProblem&, const ProductProblem&) = default;
};
/// No matrix is empty.
struct ProductCall {
  const KernelArgs& args;
  ProductProblem problem;
  const Product& product;
  void* workspace = nullptr;  // of a product inside another op: kProductWorkspace bytes
};
/// matmul.cu has the list of these.
using ProductImplementation = Implementation<ProductProblem, ProductCall>;

/// Bytes that a product may need beside its matrices, copies of them apart: for cuBLASLt, and for parts of long sums.
inline constexpr size_t kLibraryWorkspace = size_t{16} << 20, kPartsWorkspace = size_t{8} << 20,
                        kProductWorkspace = kLibraryWorkspace + kPartsWorkspace;
/// A product inside another op, by rule: no matrix is empty, each is row-major or its transpose, and there is no bias.
void inner_product(const KernelArgs& args, const Product& p, void* workspace);

/// By cuBLASLt. workspace: kLibraryWorkspace bytes, or null, where it takes that of the call and may copy matrices.
void library_product(const KernelArgs& args, const Product& p, void* workspace);
/// Whether cuBLASLt can read it only as a copy.
bool needs_copy(const Matrix& matrix);

}  // namespace tandem::cuda
