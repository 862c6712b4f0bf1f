#include "lab/src/driver/program_files.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

TEST(ProgramFiles, AreThoseOfTheCommandAndWhatAScriptImportsFromItsFolder) {
  testing::TempFolder folder;
  using testing::write_text;
  write_text(folder / "jax_.py",
             "import os, sys\nimport frame  # the frame\nif True:\n    from jax_network import net\n");
  write_text(folder / "frame.py", "import calls\nimport jax_\n");
  for (const char* file : {"calls.py", "jax_network.py", "pytorch.py"}) write_text(folder / file, "");
  std::vector<std::string> names;
  for (const std::string& file : program_files({"no such program", folder / "jax_.py", "driver"}))
    names.push_back(file.substr(file.rfind('/') + 1));
  EXPECT_EQ(names, (std::vector<std::string>{"jax_.py", "frame.py", "jax_network.py", "calls.py"}));
}

}  // namespace
}  // namespace tandem::lab
