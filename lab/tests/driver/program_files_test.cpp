#include "lab/src/driver/program_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace tandem::lab {
namespace {

TEST(ProgramFiles, AreThoseOfTheCommandAndWhatAScriptImportsFromItsFolder) {
  testing::TempFolder folder;
  using testing::write_text;
  write_text(folder / "jax_.py",
             "import os, sys\nimport frame  # the frame\nif True:\n    from jax_network import net\n");
  std::filesystem::create_directories(folder / "frame/__pycache__");
  write_text(folder / "frame/__init__.py", "from .cell import Cell\nimport calls\nimport jax_\n");
  for (const char* file : {"calls.py", "jax_network.py", "pytorch.py", "frame/protocol.json", "frame/cell.py",
                           "frame/pytorch.py", "frame/__pycache__/cell.pyc"})
    write_text(folder / file, "");
  std::vector<std::string> names;
  for (const std::string& file : program_files({"no such program", folder / "jax_.py", "driver"}))
    names.push_back(std::filesystem::relative(file, folder.path()).string());
  EXPECT_EQ(names,
            (std::vector<std::string>{"jax_.py", "frame/__init__.py", "frame/cell.py", "frame/protocol.json",
                                      "frame/pytorch.py", "jax_network.py", "calls.py"}));
}

}  // namespace
}  // namespace tandem::lab
