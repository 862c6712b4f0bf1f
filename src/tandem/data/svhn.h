// SVHN (cropped digits): train_32x32.mat and test_32x32.mat, MATLAB files with the arrays X and y.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tandem/data/image_set.h"
#include "tandem/data/registry.h"

namespace tandem::data {

/// Reads one file: X is u8 (32, 32, 3, n), y holds n labels 1 … 10, where 10 is the digit 0.
std::shared_ptr<const ImageSet> read_svhn(const std::string& name, const std::string& path);

std::optional<std::string> locate_svhn(const DatasetInfo& info, const std::string& data_dir);
Splits open_svhn(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
