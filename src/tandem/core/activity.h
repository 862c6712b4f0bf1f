// The CPU's kernels as they run, for Backend::watch. Unless somebody watches, a kernel costs one look at a flag more.
#pragma once

#include <atomic>
#include <vector>

#include "tandem/core/backend.h"

namespace tandem {

namespace detail {
extern std::atomic<bool> g_watched;
/// Notes what goes on from its making to its end. A kernel that runs another one counts once.
class Activity {
 public:
  explicit Activity(const char* name);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  const char* name_;
  int64_t begin_;
};
}  // namespace detail

/// Runs a kernel of the CPU.
template <class Run>
void run_noted(const char* name, Run&& run) {
  if (!detail::g_watched.load(std::memory_order_relaxed)) [[likely]]
    return run();
  const detail::Activity activity(name);
  run();
}

/// What run_noted() ran, in all threads, while `work` did; one at a time.
std::vector<DeviceActivity> watch_kernels(const std::function<void()>& work);

}  // namespace tandem
