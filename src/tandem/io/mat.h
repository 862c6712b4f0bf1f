// MATLAB's level-5 MAT files (the format of MATLAB 5 to 7.2): the full numeric arrays in them, packed or not, in
// either byte order. Version 7.3 files, which are HDF5, are refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/dtype.h"
#include "tandem/io/limits.h"

namespace tandem::io {

struct MatArray {
  std::string name;
  DType dtype = DType::f64;
  std::vector<int64_t> sizes;   // one per axis
  std::vector<uint8_t> values;  // column-major: the first axis runs fastest

  int64_t count() const { return static_cast<int64_t>(values.size() / bytes_of(dtype)); }
  /// Element i in memory order, converted.
  double number(int64_t i) const;
};

/// The numeric arrays of a file, in its order; cells, structs, text and sparse matrices are passed over.
std::vector<MatArray> load_mat(const std::string& path, int64_t max_bytes = reading_limits().bytes);

}  // namespace tandem::io
