#include "tandem/core/activity.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string_view>

#include "tandem/core/mutex.h"
#include "tandem/core/op.h"
#include "tandem/core/trace.h"

namespace tandem {
namespace {

struct Watch {
  Mutex one{LockOrder::turn, "watch"};  // who watches
  Mutex mutex{LockOrder::activity};     // of the list
  std::vector<DeviceActivity> list;
  Device device;  // that is watched
  std::atomic<LaunchListener*> listener = nullptr;
};

struct Recorder {
  Mutex one{LockOrder::turn, "profile"};  // who profiles
  Mutex mutex{LockOrder::activity};       // of all below
  HostRecord record;
  std::map<std::string, size_t, std::less<>> places;  // of ops in record.ops
  size_t most = 0;
  std::atomic<WorkOf> work_of = nullptr;
  std::atomic<uint64_t> turn = 0;  // counts profiles
  std::atomic<int> threads = 0;    // that were seen in this one
};

// Kernels may run until the process has ended.
Watch& watch_state() {
  static Watch& all = *new Watch;
  return all;
}
Recorder& recorder() {
  static Recorder& all = *new Recorder;
  return all;
}
[[maybe_unused]] const auto& g_watch_made_at_start = watch_state();  // in no fork's way
[[maybe_unused]] const auto& g_recorder_made_at_start = recorder();

constinit thread_local int t_depth = 0;        // of kernels within each other
constinit thread_local uint64_t t_copies = 0;  // so far
constinit thread_local bool t_watches = false, t_profiles = false, t_paused = false;
thread_local ScopeChain t_scope;

/// The number of this thread in the profile under way.
int thread_number(Recorder& r) {
  constinit thread_local uint64_t t_turn = 0;
  constinit thread_local int t_number = 0;
  if (const uint64_t turn = r.turn.load(std::memory_order_relaxed); turn != t_turn) {
    t_turn = turn;
    t_number = r.threads.fetch_add(1, std::memory_order_relaxed);
  }
  return t_number;
}

bool is_profiled() { return detail::g_profiled.load(std::memory_order_relaxed) && !t_paused; }

/// Keeps an event, or counts it as dropped. What outlives the profile is not kept.
void keep(HostEvent&& event) noexcept {
  Recorder& r = recorder();
  event.thread = thread_number(r);
  const std::lock_guard lock(r.mutex);
  if (!detail::g_profiled.load(std::memory_order_relaxed)) return;
  try {
    if (event.kind == HostEvent::Kind::op) {
      auto at = r.places.find(std::string_view(event.name));
      if (at == r.places.end()) {
        at = r.places.emplace(event.name, r.record.ops.size()).first;
        r.record.ops.push_back({event.name, 0, {}});
      }
      HostRecord::Sum& sum = r.record.ops[at->second];
      ++sum.count;
      sum.work += event.work;
    }
    if (r.record.events.size() < r.most) {
      r.record.events.push_back(std::move(event));
      return;
    }
  } catch (const std::bad_alloc&) {
  }
  ++r.record.dropped;
}

std::string types_and_shapes(const KernelArgs& args) {
  std::string text;
  const auto add = [&](const Buffer* buffers, int count) {
    for (int i = 0; i < count; ++i) {
      text += str(i > 0 ? ", " : "", buffers[i].dtype, " (");
      for (int axis = 0; axis < buffers[i].rank; ++axis)
        text += str(axis > 0 ? ", " : "", buffers[i].shape[axis]);
      text += ")";
    }
  };
  constexpr int kMostShown = 8;
  add(args.in, std::min(args.n_in, kMostShown));
  if (args.n_in > kMostShown) text += ", …";
  text += text.empty() ? "-> " : " -> ";
  add(args.out, std::min(args.n_out, kMostShown));
  return text;
}

}  // namespace

int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// --- kernels and copies

namespace detail {

constinit std::atomic<bool> g_watched = false, g_profiled = false;
constinit std::atomic<int> g_scope_users = 0;

Activity::Activity(Device device, const char* name, bool is_copy, int64_t bytes)
    : device_(device), name_(name), is_copy_(is_copy), bytes_(bytes), copies_(t_copies) {
  if (!is_copy) ++t_depth;
  if (device.is_cpu()) {
    begin_ns_ = steady_now_ns();
  } else if (LaunchListener* listener = watch_state().listener.load(std::memory_order_acquire);
             listener && !t_paused) {
    begun_ = listener->before(device);
  }
}

Activity::~Activity() {
  const int64_t end = device_.is_cpu() ? steady_now_ns() : 0;
  if (is_copy_)
    ++t_copies;
  else if (--t_depth > 0 || t_copies != copies_)
    return;
  Watch& w = watch_state();
  LaunchListener* const listener = w.listener.load(std::memory_order_acquire);
  if (begun_ && listener) listener->after(begun_, name_, is_copy_, bytes_);
  if (!device_.is_cpu() || listener) return;
  const std::lock_guard lock(w.mutex);
  // Of a kernel that outlives the watch, nothing is kept.
  if (g_watched.load(std::memory_order_relaxed) && device_ == w.device)
    w.list.push_back({name_, is_copy_, begin_ns_, end, bytes_});
}

}  // namespace detail

namespace {
const bool g_registered = [] {
  on_fork_in_child([] {  // where those that watched and profiled are gone
    if (!t_watches) {
      detail::g_watched.store(false, std::memory_order_relaxed);
      watch_state().listener.store(nullptr, std::memory_order_relaxed);
    }
    if (!t_profiles) detail::g_profiled.store(false, std::memory_order_relaxed);
  });
  return true;
}();

/// Calls `leave` at the end of a scope.
template <class Leave>
struct AtEnd {
  Leave leave;
  explicit AtEnd(Leave l) : leave(std::move(l)) {}
  ~AtEnd() { leave(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
};

void turn_watch(bool on, LaunchListener* listener) {
  Watch& w = watch_state();
  const std::lock_guard lock(w.mutex);
  t_watches = on;
  w.listener.store(on ? listener : nullptr, std::memory_order_release);
  detail::g_watched.store(on, std::memory_order_relaxed);
}
}  // namespace

std::vector<DeviceActivity> watch_kernels(const std::function<void()>& work, Device device) {
  Watch& w = watch_state();
  const std::lock_guard one(w.one);
  const auto take = [&] {
    const std::lock_guard lock(w.mutex);
    w.device = device;
    return std::exchange(w.list, {});
  };
  (void)take();
  {
    turn_watch(true, nullptr);
    const AtEnd off([] { turn_watch(false, nullptr); });
    work();
  }
  std::vector<DeviceActivity> list = take();
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return list;
}

void listen_to_launches(LaunchListener& listener, const std::function<void()>& work) {
  const std::lock_guard one(watch_state().one);
  turn_watch(true, &listener);
  const AtEnd off([] { turn_watch(false, nullptr); });
  work();
}

// --- ops

void NotedOp::begin(const char* name, Device device) {
  if (t_paused) return;
  event_ = std::make_unique<HostEvent>();
  event_->name = name;
  event_->device = device;
  event_->begin_ns = steady_now_ns();
}

void NotedOp::describe(const OpDef& op, const KernelArgs& args) {
  const WorkOf work_of = recorder().work_of.load(std::memory_order_relaxed);
  describe(work_of ? work_of(op, args) : Work{}, types_and_shapes(args));
}
void NotedOp::describe(Work work, std::string detail) {
  event_->work = work;
  event_->detail = std::move(detail);
}

void NotedOp::end() noexcept {
  event_->end_ns = steady_now_ns();
  try {
    event_->memory = backend(event_->device).memory(event_->device).in_use;
  } catch (const std::exception&) {  // a device that has failed
  }
  keep(std::move(*event_));
}

NotesPaused::NotesPaused() : previous_(std::exchange(t_paused, true)) {}
NotesPaused::~NotesPaused() { t_paused = previous_; }

// --- scopes

namespace {
constexpr int kDeepest = 64;  // scopes within each other that are told apart: chains are freed by recursion

ScopeChain within(const ScopeChain& outer, std::string_view name) {
  if (outer && outer->depth >= kDeepest) return outer;
  return std::make_shared<const ScopeName>(ScopeName{std::string(name), outer, outer ? outer->depth + 1 : 1});
}
void keep_scope(const std::string& name, int64_t begin_ns, int64_t end_ns) noexcept {
  try {
    keep({.kind = HostEvent::Kind::scope, .name = name, .begin_ns = begin_ns, .end_ns = end_ns});
  } catch (const std::bad_alloc&) {  // for the copy of the name
  }
}
}  // namespace

bool scopes_are_noted() {
  return detail::g_scope_users.load(std::memory_order_relaxed) != 0 && (current_tracer() || is_profiled());
}
const ScopeChain& current_scope() { return t_scope; }

ScopeChain common_scope(const ScopeChain& a, const ScopeChain& b) {
  const ScopeChain *x = &a, *y = &b;
  const auto depth = [](const ScopeChain& chain) { return chain ? chain->depth : 0; };
  while (depth(*x) > depth(*y)) x = &(*x)->outer;
  while (depth(*y) > depth(*x)) y = &(*y)->outer;
  while (*x != *y) x = &(*x)->outer, y = &(*y)->outer;
  return *x;
}

void Scope::open(std::string_view name) {
  if (!scopes_are_noted()) return;
  ScopeChain inner = within(t_scope, name);
  begin_ns_ = steady_now_ns();
  previous_ = std::exchange(t_scope, std::move(inner));
  is_open_ = true;
}

void Scope::close() noexcept {
  // What is traced does not run now: a replay shows the scope.
  if (is_profiled() && !current_tracer() && t_scope != previous_)
    keep_scope(t_scope->name, begin_ns_, steady_now_ns());
  t_scope = std::move(previous_);
}

NoScopes::NoScopes() : hidden_(std::exchange(t_scope, nullptr)) {}
NoScopes::~NoScopes() { t_scope = std::move(hidden_); }

constinit thread_local ReplayedScopes* ReplayedScopes::current_ = nullptr;
ReplayedScopes::ReplayedScopes() : previous_(std::exchange(current_, this)) {}
ReplayedScopes::~ReplayedScopes() {
  close_down_to(0);
  current_ = previous_;
}

void ReplayedScopes::go_to(const ScopeChain& scopes) {
  const size_t depth = scopes ? static_cast<size_t>(scopes->depth) : 0;
  std::vector<const ScopeName*> wanted(depth);
  const ScopeName* scope = scopes.get();
  for (size_t i = depth; i-- > 0; scope = scope->outer.get()) wanted[i] = scope;
  size_t same = 0;
  while (same < depth && same < open_.size() && open_[same].scope == wanted[same]) ++same;
  close_down_to(same);
  const int64_t now = steady_now_ns();
  for (size_t i = same; i < depth; ++i) open_.push_back({wanted[i], now});
}

void ReplayedScopes::close_down_to(size_t count) noexcept {
  for (; open_.size() > count; open_.pop_back())
    if (is_profiled()) keep_scope(open_.back().scope->name, open_.back().begin_ns, steady_now_ns());
}

HostRecord record_host(const std::function<void()>& work, WorkOf work_of, size_t most) {
  Recorder& r = recorder();
  const std::lock_guard one(r.one);
  const auto turn = [&r, most](bool on) {
    const std::lock_guard lock(r.mutex);
    t_profiles = on;
    detail::g_profiled.store(on, std::memory_order_relaxed);
    detail::g_scope_users.fetch_add(on ? 1 : -1, std::memory_order_relaxed);
    r.most = most;
    r.places.clear();
    return std::exchange(r.record, {});
  };
  r.threads.store(0, std::memory_order_relaxed);
  r.turn.fetch_add(1, std::memory_order_relaxed);
  (void)thread_number(r);
  r.work_of.store(work_of, std::memory_order_relaxed);
  bool is_on = true;
  turn(true);
  const AtEnd off([&] {
    if (is_on) turn(false);
  });
  work();
  is_on = false;
  return turn(false);
}

}  // namespace tandem
