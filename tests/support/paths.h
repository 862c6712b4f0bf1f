// Where the tests find the repository and the built command.
#pragma once

#include <filesystem>

namespace tandem::testing {

/// The root of the repository.
std::filesystem::path source_dir();

/// The built command, bin/tandem, beside the program of the tests.
std::filesystem::path command_path();

}  // namespace tandem::testing
