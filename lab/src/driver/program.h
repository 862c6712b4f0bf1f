// Programs that the lab runs to their end: interpreters, pip, compilers. A driver's process is process.h's matter.
#pragma once

#include <string>
#include <vector>

namespace tandem::lab {

/// Runs a program (looked up in PATH where it has no slash) with nothing on its input, and adds what it prints to the file
/// `log`. Returns its exit status: 127 where it could not be started, 128 + n where signal n ended it.
int run_program(const std::vector<std::string>& words, const std::string& log);

/// What a program prints on standard output, at most 1 MiB, and its exit status. Standard error is dropped.
struct Printed {
  int status = 127;
  std::string text;
};
Printed run_and_read(const std::vector<std::string>& words);

}  // namespace tandem::lab
