// How many lines of code a framework asks for to define a workload's network: one of the things that the papers' readers
// want to know. Counted in the drivers' own sources, which are what a user of each framework would write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

/// A source file: its name (the ending tells the language: .py, or C++) and its text.
struct SourceText {
  std::string name, text;
};

/// Lines of the definition called `workload` ("cifar10_cnn" is Cifar10Cnn or cifar10_cnn) and of all top-level definitions
/// of these files that it names, directly or through others. Blank lines, comments and docstrings do not count. None where
/// nothing of that name is defined.
std::optional<int64_t> code_lines(const std::vector<SourceText>& sources, const std::string& workload);

/// The same for files and for all sources of folders; none where one of them cannot be read.
std::optional<int64_t> code_lines_of_files(const std::vector<std::string>& paths,
                                           const std::string& workload);

}  // namespace tandem::lab
