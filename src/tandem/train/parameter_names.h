// Names of parameters as --freeze and --no-decay take them. A name is that of a layer, with all that is in it, or of a
// parameter, part by part from the start: "layer1" is layer1.0.conv1.weight and its like, "conv1" is conv1.weight and not
// layer1.0.conv1.weight. In a part, * stands for any letters; a part that is * alone for one part or more: "*.bias".
#pragma once

#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

/// Whether `name`, such as "layer1.0.conv1.weight", is meant by `pattern`.
bool is_named_by(const std::string& pattern, const std::string& name);
bool is_named_by_any(const std::vector<std::string>& patterns, const std::string& name);

/// Throws Error for the first pattern that names none of the parameters, with some that there are. `setting` begins it.
void check_patterns(const char* setting, const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names);

/// "a, b and 3 more".
std::string listed(const std::vector<std::string>& names, size_t most = 5);

}  // namespace tandem
