#include "tandem/core/activity.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "tandem/core/mutex.h"

namespace tandem {
namespace {

struct Watch {
  Mutex one{LockOrder::turn, "watch"};  // who watches
  Mutex mutex{LockOrder::activity};     // of the list
  std::vector<DeviceActivity> list;
};
Watch& state() {
  static Watch& all = *new Watch;  // kernels may run until the process has ended
  return all;
}
[[maybe_unused]] const auto& g_made_at_start = state();  // in no fork's way
constinit thread_local int t_depth = 0;
constinit thread_local bool t_watches = false;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

namespace detail {

constinit std::atomic<bool> g_watched = false;

Activity::Activity(const char* name) : name_(name), begin_(now_ns()) { ++t_depth; }

Activity::~Activity() {
  const int64_t end = now_ns();
  if (--t_depth > 0) return;
  Watch& s = state();
  const std::lock_guard lock(s.mutex);
  // Of a kernel that outlives the watch, nothing is kept.
  if (g_watched.load(std::memory_order_relaxed)) s.list.push_back({name_, false, begin_, end});
}

}  // namespace detail

namespace {
const bool g_registered = [] {
  on_fork_in_child([] {  // where the one that watched is gone
    if (!t_watches) detail::g_watched.store(false, std::memory_order_relaxed);
  });
  return true;
}();
}  // namespace

std::vector<DeviceActivity> watch_kernels(const std::function<void()>& work) {
  Watch& s = state();
  const std::lock_guard one(s.one);
  const auto turn = [&s](bool on) {
    const std::lock_guard lock(s.mutex);
    t_watches = on;
    detail::g_watched.store(on, std::memory_order_relaxed);
    std::vector<DeviceActivity> list;
    list.swap(s.list);
    return list;
  };
  struct Off {
    decltype(turn)& turn_off;
    bool armed = true;
    ~Off() {
      if (armed) turn_off(false);
    }
  } off{turn};
  turn(true);
  work();
  off.armed = false;
  std::vector<DeviceActivity> list = turn(false);
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return list;
}

}  // namespace tandem
