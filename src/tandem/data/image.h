// Images from files.
#pragma once

#include <string>

#include "tandem/core/tensor.h"

namespace tandem::data {

/// The pixels of a PGM or PPM file (P5, P6), u8 (1 or 3, height, width). Throws Error where the file is something else
/// or damaged.
Tensor read_image(const std::string& path);

}  // namespace tandem::data
