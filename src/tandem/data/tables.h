// Data sets of the user's own arrays: NumPy files and CSV tables.
#pragma once

#include <optional>
#include <string>

#include "tandem/data/registry.h"

namespace tandem::data {

/// train_x, train_y, test_x, test_y (or x_train …): four .npy files, or the arrays of the folder's .npz file. x is
/// (n, …): u8 is divided by 255, other numbers are taken as they are, all as f32. y holds n labels from 0.
std::optional<std::string> locate_arrays(const DatasetInfo& info, const std::string& data_dir);
Splits open_arrays(const DatasetInfo& info, const OpenOptions& options);

/// train.csv and test.csv: numbers, and the label in the column "label", or else in the last.
std::optional<std::string> locate_csv(const DatasetInfo& info, const std::string& data_dir);
Splits open_csv(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
