// The safetensors format: eight bytes of header length (little-endian), a JSON header that gives every
// tensor's dtype, shape and byte range, then the raw bytes. What is read is checked in full before a tensor
// is made.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem::io {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

/// Replaces the file at `path` (see write_atomically). The same tensors and metadata give the same bytes:
/// names sorted, tensors without gaps in that order, header padded with spaces to a multiple of 8 bytes.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

struct SafetensorsFile {
  NamedTensors tensors;  // on the CPU, sorted by name
  Metadata metadata;

  /// The tensor of that name, or nullptr.
  const Tensor* find(std::string_view name) const;
};

/// Reads a whole file. Throws Error where the file is torn, lies about its sizes or is not safetensors.
SafetensorsFile load_safetensors(const std::string& path);

/// SHA-256 over the raw bytes of the tensors in name order. Names, shapes and dtypes are not hashed.
std::string weights_sha256(const NamedTensors& tensors);

}  // namespace tandem::io
