// MNIST and Fashion-MNIST: the same four idx files, told apart by their folder.
#pragma once

#include <optional>
#include <string>

#include "tandem/data/registry.h"

namespace tandem::data {

/// The first folder that holds all four files, or nothing.
std::optional<std::string> locate_mnist(const DatasetInfo& info, const std::string& data_dir);
std::optional<std::string> locate_fashion_mnist(const DatasetInfo& info, const std::string& data_dir);

/// Reads the four files. Throws Error that names the missing file, the folders searched and how to get it.
Splits open_mnist(const DatasetInfo& info, const OpenOptions& options);
Splits open_fashion_mnist(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
