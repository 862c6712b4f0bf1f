// Names of a file of weights beside those of a model: what load_state says where they do not fit.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::nn::detail {

/// What stands before the model's names in the file, "module." of one that DistributedDataParallel wrote. Empty where no one
/// text does for all of them.
std::string prefix_in(const std::vector<std::string>& file, const std::vector<std::string>& model);

/// " The file holds: a, b, c and 4 more." `what`: "The file holds".
std::string few_names(const char* what, const std::vector<std::string>& names);

/// What helps with names of the model that the file has not: `missing`. `alone`: those of the file that the model has not.
std::string missing_hint(const std::vector<std::string>& file, const std::vector<std::string>& alone,
                         const std::vector<std::string>& missing);

}  // namespace tandem::nn::detail
