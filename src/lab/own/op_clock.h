// Times the CPU's kernels by operation. While one exists, it stands between the table of operations and their kernels;
// the library itself has no hook for this, and needs none. Graphs that were compiled before keep their kernels; those
// compiled meanwhile are timed, but for chains of pointwise operations that were fused, which no operation owns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::lab::own {

struct OpTime {
  std::string op;
  int64_t calls = 0, ns = 0;
};

class OpClock {
 public:
  OpClock();   // one at a time
  ~OpClock();  // puts the kernels back. Graphs compiled meanwhile still work, and are timed no more
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  void clear();
  /// What ran since clear(), the longest first.
  std::vector<OpTime> times() const;
};

}  // namespace tandem::lab::own
