// What runs, as it runs, for Backend::watch (kernels and copies) and for profiles (ops and scopes of the host, too). Unless
// somebody watches or profiles, an op costs two looks at flags more.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/backend.h"
#include "tandem/core/scope.h"

namespace tandem {

struct OpDef;

/// What an op computes and moves at most: floating-point operations, and bytes read and written (ops/work.h).
struct Work {
  int64_t flops = 0, bytes = 0;
  Work& operator+=(Work other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

/// What a thread of the host went through. Nanoseconds of the steady clock.
struct HostEvent {
  enum class Kind : uint8_t { op, scope };
  Kind kind = Kind::op;
  std::string name = {};
  std::string detail = {};  ///< ops: types and shapes, or what a fused chain consists of
  int thread = 0;           ///< 0: the one that profiles
  int64_t begin_ns = 0, end_ns = 0;
  Device device = {};  ///< ops: where they compute
  Work work = {};      ///< ops
  size_t memory = 0;   ///< ops: bytes in use on the device afterwards
};

int64_t steady_now_ns();

namespace detail {
extern std::atomic<bool> g_watched, g_profiled;

/// Notes a kernel or a copy from its making to its end. A kernel that runs another one counts once; one that calls for a
/// copy (that of the op `to`) counts as the copy.
class Activity {
 public:
  Activity(Device device, const char* name, bool is_copy, int64_t bytes);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  Device device_;
  const char* name_;
  bool is_copy_;
  int64_t bytes_, begin_ns_ = 0;
  uint64_t copies_;        // of this thread before it
  void* begun_ = nullptr;  // of the launch listener
};
}  // namespace detail

/// Runs (or, on a device with a queue, launches) a kernel.
template <class Run>
void run_noted(Device device, const char* name, Run&& run) {
  if (!detail::g_watched.load(std::memory_order_relaxed)) [[likely]]
    return run();
  const detail::Activity activity(device, name, false, 0);
  run();
}
/// The same for a copy, from its making to its end.
class NotedCopy {
 public:
  NotedCopy(Device device, const char* name, size_t bytes) {
    if (detail::g_watched.load(std::memory_order_relaxed) && bytes != 0) [[unlikely]]
      activity_.emplace(device, name, true, static_cast<int64_t>(bytes));
  }

 private:
  std::optional<detail::Activity> activity_;
};

/// What run_noted() and NotedCopy noted on a device of the CPU, in all threads, while `work` ran; one at a time.
std::vector<DeviceActivity> watch_kernels(const std::function<void()>& work, Device device = {});

/// Told around each launch on a device that has a queue: for a backend that cannot see its kernels themselves. Calls come
/// from any thread, and late ones after the end: a listener is never destroyed.
class LaunchListener {
 public:
  /// What it returns is given to after(); null: of no interest.
  virtual void* before(Device device) noexcept = 0;
  virtual void after(void* begun, const char* name, bool is_copy, int64_t bytes) noexcept = 0;

 protected:
  ~LaunchListener() = default;
};
/// Runs `work` with a listener; one at a time, and not while kernels of the CPU are watched.
void listen_to_launches(LaunchListener& listener, const std::function<void()>& work);

/// One op as the host goes through it, from before memory is taken for its results, while somebody profiles.
class NotedOp {
 public:
  NotedOp(const char* name, Device device) {
    if (detail::g_profiled.load(std::memory_order_relaxed)) [[unlikely]]
      begin(name, device);
  }
  ~NotedOp() {
    if (event_) [[unlikely]]
      end();
  }
  NotedOp(const NotedOp&) = delete;
  NotedOp& operator=(const NotedOp&) = delete;

  /// Whether it is noted; then describe it.
  explicit operator bool() const { return event_ != nullptr; }
  void describe(const OpDef& op, const KernelArgs& args);
  void describe(Work work, std::string detail);

 private:
  void begin(const char* name, Device device);
  void end() noexcept;
  std::unique_ptr<HostEvent> event_;
};

/// Leaves out what this thread does for as long as it lives: work that is launched but does not run.
class NotesPaused {
 public:
  NotesPaused();
  ~NotesPaused();
  NotesPaused(const NotesPaused&) = delete;
  NotesPaused& operator=(const NotesPaused&) = delete;

 private:
  bool previous_;
};

/// The scopes that the ops of a replay were traced in: opened and closed as it goes through them.
class ReplayedScopes {
 public:
  ReplayedScopes();
  ~ReplayedScopes();
  ReplayedScopes(const ReplayedScopes&) = delete;
  ReplayedScopes& operator=(const ReplayedScopes&) = delete;

  /// The next op of this thread's replay is of these.
  static void enter(const ScopeChain& scopes) {
    if (detail::g_profiled.load(std::memory_order_relaxed)) [[unlikely]]
      if (current_) current_->go_to(scopes);
  }

 private:
  struct Open {
    const ScopeName* scope;
    int64_t begin_ns;
  };
  void go_to(const ScopeChain& scopes);
  void close_down_to(size_t count) noexcept;
  static constinit thread_local ReplayedScopes* current_;
  ReplayedScopes* previous_;
  std::vector<Open> open_;  // the outermost first
};

/// How the recorder learns what an op costs (core does not know the ops).
using WorkOf = Work (*)(const OpDef&, const KernelArgs&);

struct HostRecord {
  std::vector<HostEvent> events;  // in the order of their ends
  struct Sum {
    std::string name;
    int64_t count = 0;
    Work work;
  };
  std::vector<Sum> ops;  // all, those whose events were dropped included
  int64_t dropped = 0;   // events beyond `most`
};
/// What NotedOp, Scope and ReplayedScopes noted, in all threads, while `work` ran; one at a time.
HostRecord record_host(const std::function<void()>& work, WorkOf work_of, size_t most);

}  // namespace tandem
