// The idx format of MNIST, plain or gzip: two zero bytes, a type byte, the number of axes, one big-endian 32-bit
// size an axis, then the values. Only unsigned bytes, the type of all these data sets, are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/data/image_set.h"

namespace tandem::data {

struct IdxArray {
  std::vector<int64_t> sizes;   // one per axis
  std::vector<uint8_t> values;  // row-major
};

/// Reads a file with `axes` axes. Throws Error where the magic number, the type, the axes or the number of bytes
/// is not what it must be; the message names the file, what was expected and what was found.
IdxArray read_idx(const std::string& path, int axes);

/// Reads a file of images and a file of labels 0…classes-1 and checks them against each other and `format`.
std::shared_ptr<const ImageSet> read_idx_images(const std::string& name, const std::string& images_path,
                                                const std::string& labels_path, const ImageFormat& format,
                                                int classes);

}  // namespace tandem::data
