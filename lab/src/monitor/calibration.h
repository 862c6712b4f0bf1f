// A fixed piece of arithmetic on every core that drivers get, at the same time. It takes the same time whenever the machine does
// nothing else, so that a neighbour shows which no counter of this system counts: another virtual machine, a clock that was lowered.
#pragma once

#include <vector>

namespace tandem::lab {

struct Calibration {
  double seconds = 0;     // that the slowest core took for the loop
  double core_share = 1;  // of that time, what the worst served core gave to the loop
};

/// Takes some hundredths of a second. `cores` empty: one loop, wherever it runs.
Calibration calibrate(const std::vector<int>& cores);

}  // namespace tandem::lab
