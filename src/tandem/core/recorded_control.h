// Branches and loops within a recording: what decides lies in device memory, and the host never sees it. Everything that a
// branch or a loop runs is recorded once, so its addresses are the same in every run; what differs from run to run of a
// loop (which slice of a stack it reads, where it draws random numbers) is computed on the device from a LoopState.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tandem/core/standard.h"

namespace tandem {

/// Of a loop that is recorded, in device memory.
struct LoopState {
  int64_t run;           // how many have ended: the number of the present one
  int64_t count;         // of runs; with a condition: the most
  uint64_t random[2];    // seed and offset of the present run, as in RngPosition::base
  uint64_t random_step;  // from a run's offset to that of the next (modulo 2^64)
  bool is_within;        // run < count
};

/// How one begins.
struct LoopStart {
  int64_t count = 0;
  const int64_t* count_in = nullptr;  // device memory that says the count instead
  const uint64_t* random = nullptr;   // seed and offset around the loop; null: nothing is drawn
  uint64_t random_offset = 0;         // of the first run from there on; of the last one where it goes back
  uint64_t random_blocks = 0;         // each run draws so far behind the one before
  bool goes_back = false;             // each run draws so far before the one before
};

/// A copy whose ends may be slices of stacks: the slice of the present run, so many bytes from one to the next; 0: always
/// the same place.
struct SliceCopy {
  char* to = nullptr;
  const char* from = nullptr;
  int64_t bytes = 0;
  int64_t to_step = 0, from_step = 0;
};

/// All but the first function are called while a step is being recorded, by the thread that records it, and take part in
/// that step: what they are given is device memory that stays in place.
class RecordedControl {
 public:
  virtual ~RecordedControl() = default;
  /// Whether the calling thread is recording a step.
  virtual bool is_recording() const = 0;

  /// Of what the two functions queue, the first is run where the condition holds, else the second (which may be empty).
  virtual void branch(const bool* condition, const std::function<void()>& if_true,
                      const std::function<void()>& if_false) = 0;
  /// What the function queues is run as long as both hold (`condition` may be null); they are looked at before each run.
  /// stops_at_fault: what it queues may refuse a value; no further run begins then, since it might never end.
  virtual void repeat(const bool* is_within, const bool* condition, bool stops_at_fault,
                      const std::function<void()>& run) = 0;

  virtual void begin(LoopState* state, const LoopStart& start) = 0;
  /// At the end of a run.
  virtual void advance(LoopState* state) = 0;
  /// None overlaps another. from_end: the first run has the last slice.
  virtual void copy(const LoopState* state, std::span<const SliceCopy> copies, bool from_end) = 0;
};

}  // namespace tandem
