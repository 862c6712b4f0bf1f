#include "tandem/core/activity.h"

#include <algorithm>
#include <chrono>
#include <mutex>

namespace tandem {
namespace {

std::mutex g_one;    // who watches
std::mutex g_mutex;  // of the list
std::vector<DeviceActivity> g_list;
thread_local int t_depth = 0;

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
  const std::lock_guard lock(g_mutex);
  // Of a kernel that outlives the watch, nothing is kept.
  if (g_watched.load(std::memory_order_relaxed)) g_list.push_back({name_, false, begin_, end});
}

}  // namespace detail

std::vector<DeviceActivity> watch_kernels(const std::function<void()>& work) {
  const std::lock_guard one(g_one);
  const auto turn = [](bool on) {
    const std::lock_guard lock(g_mutex);
    detail::g_watched.store(on, std::memory_order_relaxed);
    std::vector<DeviceActivity> list;
    list.swap(g_list);
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
