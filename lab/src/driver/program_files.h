#pragma once

#include <string>
#include <vector>

namespace tandem::lab {

/// The files that a driver's command runs, with the modules that a Python script imports from its own folder, and those that they
/// import from it. Of a package these are all files.
std::vector<std::string> program_files(const std::vector<std::string>& command);

}  // namespace tandem::lab
