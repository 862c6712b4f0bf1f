// How a signal stops a command, and what the user is told to go on with.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace tandem::cli {

/// From now on the first signal sets what is returned, so that what is under way can end well; the second ends the process
/// at once. A reader of our output that goes away stops it as well, but never at once: it goes together with a terminal
/// that hangs up.
const std::atomic<bool>& stop_on_signals();

/// The command line that goes on with what was stopped, in folder `out`.
std::string resume_command(const std::vector<std::string>& arguments, const std::string& out);

}  // namespace tandem::cli
