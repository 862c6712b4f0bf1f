// A data set of the user's own arrays: NumPy files.
#pragma once

#include <optional>
#include <string>

#include "tandem/data/registry.h"

namespace tandem::data {

std::optional<std::string> locate_arrays(const DatasetInfo& info, const std::string& data_dir);

/// train_x, train_y, test_x, test_y (or x_train …) as .npy files of a folder or as arrays of its .npz file; without the
/// two of testing, or with x and y alone, the samples for testing are split off. data_dir may be the .npz file itself.
/// x is (n, …): u8 is divided by 255, other numbers are taken as they are, all as f32. y of whole numbers is n classes
/// from 0, and those for testing are among those for training; y of floating numbers is regression: (n,) or (n, k), taken as it is. options.task overrides that.
Splits open_arrays(const DatasetInfo& info, const OpenOptions& options);

/// An array (n, …) of inputs as open_arrays makes them: f32, u8 divided by 255. Refuses, by row, what is not finite.
/// `where` begins messages.
Tensor array_inputs(const Tensor& values, const std::string& where);

}  // namespace tandem::data
