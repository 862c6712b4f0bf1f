// MNIST and Fashion-MNIST: the same four idx files, told apart by their folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/data/registry.h"

namespace tandem::data {

/// The folders that are searched for a data set's files, in order. With a data_dir: data_dir/name, then data_dir
/// itself (unless its own name is another data set's); nothing else. Without: $TANDEM_DATA/name,
/// ~/.cache/tandem/name, ./data/name, then `system_folder` where there is one.
std::vector<std::string> search_folders(const std::string& name, const std::string& data_dir,
                                        const std::string& system_folder = "");

/// The first folder that holds all four files, or nothing.
std::optional<std::string> locate_mnist(const DatasetInfo& info, const std::string& data_dir);
std::optional<std::string> locate_fashion_mnist(const DatasetInfo& info, const std::string& data_dir);

/// Reads the four files. Throws Error that names the missing file, the folders searched and how to get it.
Splits open_mnist(const DatasetInfo& info, const std::string& data_dir);
Splits open_fashion_mnist(const DatasetInfo& info, const std::string& data_dir);

}  // namespace tandem::data
