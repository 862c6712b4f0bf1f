// Mutex: the one kind of lock of the library. It knows its owner, and fork() finds every lock free or sees that it is
// not, so that a child never waits for a thread that only its parent has.
//
// fork() copies one thread and all memory. A lock that another thread holds at that moment stays locked in the child for
// ever, and what it guards may be half changed. So the library takes all its locks before fork() and gives them free
// after it, in parent and child. LockOrder is the order in which it does so, and the order in which a thread that holds
// one may take another: from the first to the last, never back.
//
// Locks that are held while code of the caller runs (LockOrder::turn) cannot be taken so: fork() may be called in that
// code. Where another thread held one, the child's lock() throws Error.
#pragma once

#include <atomic>
#include <cstdint>

#include "tandem/core/standard.h"

namespace tandem {

enum class LockOrder : uint8_t {
  loader,        // batches made ahead
  data,          // what data sets keep
  choice_cache,  // held while algorithms are timed, as is the next
  choices,
  backend,    // while a backend is opened
  compiled,   // kernels compiled at run time
  libraries,  // handles and plans of other libraries; held for the length of a call
  devices,
  staging,
  streams,
  activity,
  ops,     // the list of ops
  names,   // the lists of names
  plans,   // of the CPU's FFT
  memory,  // the allocators
  count,
  turn = count,  // one caller at a time; not taken by fork()
};

class Mutex {
 public:
  /// `what` names the user's object in the message of lock().
  explicit Mutex(LockOrder order, const char* what = "library");
  ~Mutex();
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock();
  bool try_lock();
  void unlock();

  struct Slot;  // the lock itself, which outlives this object: fork() may be looking at it

 private:
  Slot* slot_;
};

/// How many times this process, or one that it was forked from, has been forked off: it differs between a process and
/// its children.
uint64_t fork_count();

/// Calls `function` in every forked child, after the locks are free again. For start-up.
void on_fork_in_child(void (*function)());

}  // namespace tandem
