// The process that stands between the lab and a driver, so that nothing a driver starts outlives the lab. It adopts every
// process whose own parent has ended (PR_SET_CHILD_SUBREAPER), so that all that the driver started stays below it, also
// workers that leave the driver's group or session or empty their environment. When the pipe from the lab closes, because
// the lab says so or because the lab is dead, however it died, the guard kills all of them and ends.
#pragma once

#include <sched.h>

namespace tandem::lab {

/// What the guard tells the lab: first `started` or `failed`, later `ended`.
struct GuardMessage {
  enum class What : int { started, failed, ended } what;
  int value;  // the driver's process; the errno that stopped it; its status as waitpid() gives it
};

/// What becomes of the driver. `cpus` may be null.
struct GuardedProgram {
  const char* file;
  char** arguments;
  char** variables;
  const cpu_set_t* cpus;
  int in, out, err;  // its descriptors 0, 1 and 2
};

/// Becomes the guard: to be called in the child of a fork, with all signals blocked. Makes system calls alone, since another
/// thread of the lab may have held any lock at the fork. `control`: the reading end of the pipe whose writing end only the lab
/// has; `report`: where messages go.
[[noreturn]] void guard_driver(const GuardedProgram& program, int control, int report);

}  // namespace tandem::lab
