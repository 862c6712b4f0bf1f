// A process and all that descend from it: their processor time, the ended ones' included, and their memory.
//
// Every process is held by its open /proc/PID/stat, which stays bound to that process: when it has ended, reading fails,
// even if another process has its number by then. A process that was once found in the tree stays in it, also when its
// parent ends before it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/src/monitor/kept_file.h"

namespace tandem::lab {

class ProcessTree {
 public:
  /// `proc` is where /proc is mounted. A root that does not exist makes a tree with no process.
  ProcessTree(std::string proc, pid_t root);

  struct Reading {
    double cpu_s = 0;  // user and system time of all processes since their start, the ended ones' included
    double rss_bytes = 0;  // of those that live
  };
  /// Looks for processes that are new. Costs a file per thread of the tree, where the kernel lists children; a file a
  /// process of the whole machine where it does not.
  void find_children();
  /// Reads every known process once; none where all have ended, with the reason in why().
  std::optional<Reading> read();
  const std::string& why() const { return why_; }
  /// Proportional set size in bytes, or none with the reason in `why`. Costs time by the pages that are mapped.
  std::optional<double> pss_bytes(std::string& why);

  /// How many threads of the known processes run or are ready to, now.
  int64_t runnable_threads();

  /// Whether the root lived when it was last read. A zombie does not.
  bool root_lives() const;
  size_t processes() const { return processes_.size(); }
  std::vector<pid_t> pids() const;

 private:
  struct Process {
    pid_t pid = 0, parent = 0;
    KeptFile stat;
    int64_t own = 0, waited = 0;  // ticks: of itself, and of children that ended and that it waited for
    int64_t waited_before = 0;    // at the reading before
    double rss_bytes = 0;
    bool lives = true;  // false: a zombie, or about to be one, or gone
  };
  bool knows(pid_t pid) const;
  bool add(pid_t pid);
  bool read_stat(Process& process);
  void account_for(const std::vector<Process>& ended);
  void find_by_parents();

  std::string proc_;
  pid_t root_;
  std::vector<Process> processes_;  // parents stand before their children
  int64_t lost_ticks_ = 0;          // of ended processes that nobody in the tree waited for
  bool lists_children_ = true;
  ReadBuffer buffer_;
  std::string why_;
};

}  // namespace tandem::lab
