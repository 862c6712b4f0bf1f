// Where the tests find the repository and the built command.
#include "tests/support/paths.h"

namespace tandem::testing {

std::filesystem::path source_dir() { return TANDEM_SOURCE_DIR; }

std::filesystem::path command_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tandem";
}

}  // namespace tandem::testing
