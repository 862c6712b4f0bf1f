// Virtual environments for the drivers: `tandem lab setup`. Everything is looked at first, and pip is called only where
// something is missing, so that a machine without a network can run setup as long as the packages are there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/src/driver/catalogue.h"

namespace tandem::lab {

struct SetupOptions {
  bool build = true;     // also make what the driver needs built (libtorch), where it is not there
  bool rebuild = false;  // or even where it is
  std::vector<std::string> interpreters;  // to try for a new environment, in this order; empty: python3, then
                                          // python3.13 … python3.8 of PATH
  std::function<void(const std::string&)> say;  // gets each step, one line; empty: nobody hears
};

enum class SetupResult { ready, was_ready, impossible };

/// Makes the driver's environment, installs what is missing and builds what it needs. `impossible`: this platform cannot
/// have it, and the reason has been said. Throws Error of one line, with cause and fix, where a step fails; the log of
/// a failed step stays in the environment's folder.
SetupResult setup(const DriverInfo& info, const Machine& machine, const std::vector<DriverInfo>& drivers,
                  const SetupOptions& options);

}  // namespace tandem::lab
