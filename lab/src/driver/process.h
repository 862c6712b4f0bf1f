// One driver's process: started with pipes in a process group of its own, spoken to by lines, and gone at the end
// whatever happened, with all that it started, also where the lab itself is killed (guard.h). Only the guard, the lab's own
// child, is waited for, so other children of the program and a handler of SIGCHLD are left alone.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::lab {

/// CLOCK_MONOTONIC in nanoseconds: the clock of the protocol.
int64_t now_ns();

struct ProcessOptions {
  std::vector<std::string>
      command;  // program and arguments; the program is looked up in PATH where it has no slash
  std::vector<std::pair<std::string, std::string>> environment = {};  // set over the lab's own
  std::vector<int> cpus = {};               // the processor cores it is pinned to; empty: those of the lab
  size_t line_limit = size_t{64} << 20;     // a longer line of output is refused
  const std::atomic<bool>* stop = nullptr;  // turned true: waiting ends at once
};

/// The variables by which every framework is told the same number of threads.
std::vector<std::pair<std::string, std::string>> thread_environment(int64_t threads);
/// The first so many cores of those that this program may use; all where it has fewer.
std::vector<int> first_cpus(int64_t count);

/// How a process ended.
struct Ending {
  std::optional<int> status;   // exit status
  int signal = 0;              // or the signal that ended it
  bool ended_by_lab = false;   // the lab killed it
  bool out_of_memory = false;  // the system killed it for memory
  std::string text() const;    // "exit status 3", "signal 11 (Segmentation fault)"
};

/// How often the system has killed for want of memory, from /proc/vmstat and this program's control group. A difference
/// tells a SIGKILL for memory from another.
int64_t out_of_memory_kills();

class Process {
 public:
  /// Throws Error where the program cannot be started.
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  enum class Io { done, closed, late, too_long, stopped };
  /// Writes the text and a newline. `closed`: the process reads no more.
  Io write_line(const std::string& text, int64_t deadline_ns);
  /// The next line, without its newline. `closed`: the process will write no more (a last line without a newline is
  /// left in `line`); `too_long`: the beginning of the line is left in `line`.
  Io read_line(std::string& line, int64_t deadline_ns);

  /// Closes the process's input and waits until it ends, at most `grace_s`; then kills it and all that it started, and waits
  /// until they are gone. May be called more than once.
  const Ending& finish(double grace_s);
  const std::optional<Ending>& ending() const { return ending_; }

  /// The end of what it wrote to standard error, at most 8 KiB.
  std::string last_words();

 private:
  Io pump(int64_t deadline_ns, bool want_output, const char* input, size_t bytes, size_t* written);
  bool read_some(int& fd, std::string& into, size_t limit);
  void note_errors(const char* data, size_t bytes);
  bool reap(bool wait);
  void end_all();
  void kill_marked();

  pid_t pid_ = -1, guard_ = -1;  // the driver; the lab's child, whose child it is
  int input_ = -1, output_ = -1, errors_ = -1;
  int control_ = -1,
      report_ = -1;  // of the guard: closed, it ends the driver; where it tells the driver's end
  size_t line_limit_;
  const std::atomic<bool>* stop_;
  std::string pending_;  // output that is not yet a line
  size_t searched_ = 0;  // of it, already looked through for a newline
  std::string error_tail_;
  std::string mark_;          // NAME=VALUE in the environment of all that it starts
  int64_t memory_kills_ = 0;  // when it started
  bool killed_ = false;
  std::optional<Ending> ending_;
};

}  // namespace tandem::lab
