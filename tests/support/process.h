// Runs the built command as a user would: a child process, its exit status and what it printed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::testing {

struct ProcessResult {
  int status = -1;  ///< exit status; -1 where a signal ended it
  int signal = 0;   ///< that signal, or 0
  std::string out, err;
};

struct ProcessOptions {
  std::filesystem::path folder = {};          ///< to run in; empty: this one
  long max_file_bytes = -1;                   ///< files cannot grow beyond this (ulimit -f); -1: no limit
  std::vector<std::string> environment = {};  ///< "NAME=value", before the variables of this process
};

/// The command with these arguments, started in the background. Its output goes to files.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();  ///< kills and waits, where still running
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Sends SIGKILL, which no program can catch.
  void kill();
  /// Sends another signal: SIGINT is Ctrl-C.
  void send(int signal);
  ProcessResult wait();

 private:
  pid_t pid_ = -1;
  std::filesystem::path out_, err_;
};

inline ProcessResult run_command(const std::vector<std::string>& arguments,
                                 const ProcessOptions& options = {}) {
  return Process(arguments, options).wait();
}

}  // namespace tandem::testing
