// NumPy's files: .npy (one array) and .npz (a zip of them). Every numeric type is read, in either byte order and in
// C or Fortran order; arrays of objects, strings, records and complex numbers are refused by name.
#pragma once

#include <string>

#include "tandem/core/tensor.h"
#include "tandem/io/safetensors.h"

namespace tandem::io {

/// One array, on the CPU.
Tensor load_npy(const std::string& path);
/// All arrays of an archive, sorted by name; ".npy" is taken off the names.
NamedTensors load_npz(const std::string& path);

/// Replaces the file at `path`. bf16, which NumPy does not have, is refused.
void save_npy(const std::string& path, const Tensor& tensor);
void save_npz(const std::string& path, const NamedTensors& tensors, bool compressed = false);

}  // namespace tandem::io
