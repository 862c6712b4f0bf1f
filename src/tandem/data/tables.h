// The data set of the user's own tables: a CSV file, or train.csv and test.csv (table_set.h).
#pragma once

#include <optional>
#include <string>

#include "tandem/data/registry.h"

namespace tandem::data {

std::optional<std::string> locate_csv(const DatasetInfo& info, const std::string& data_dir);
/// data_dir may be a .csv file, or a folder with train.csv (and test.csv) or one .csv file.
Splits open_csv(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
