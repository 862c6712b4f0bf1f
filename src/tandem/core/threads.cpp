// The thread pool behind parallel_for. One job runs at a time; its chunks are claimed with an atomic counter
// by the calling thread and by workers that joined in time. A caller that finds the pool busy, and a body
// that calls parallel_for again, run their chunks inline: chunk sizes never depend on threads, so the results
// are the same.
//
// A job is published in one atomic word, `state_` = generation | open bit | number of workers inside. A
// worker joins by compare-and-swap while the bit is set; the caller clears the bit and waits for the count to
// reach zero, so a late worker can never touch the next job.
#include "tandem/core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/mutex.h"

namespace tandem {
namespace {

constexpr int kMaxThreads = 4096;
constexpr uint64_t kInside = 0xffff;       // mask of the worker count
constexpr uint64_t kOpen = 0x10000;        // workers may join
constexpr uint64_t kGeneration = 0x20000;  // one more with every job
constexpr auto kSpin = std::chrono::microseconds(50);

/// True on a thread that is running a chunk: parallel_for is then inline.
constinit thread_local bool inside_chunk = false;

int cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    if (const int count = CPU_COUNT(&set); count > 0) return std::min(count, kMaxThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{cores()};
  return count;
}

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

/// Spins until ready() or until kSpin has passed; returns ready().
template <class F>
bool spin_until(F&& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Runs the job on this thread and the workers; false where another thread has the pool.
  bool try_run(int64_t chunks, detail::ChunkFn run, void* context) {
    std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
    if (!owner) return false;
    start(threads() - 1);
    run_ = run;
    context_ = context;
    chunks_ = chunks;
    error_ = nullptr;
    next_.store(0, std::memory_order_relaxed);
    const uint64_t open = (state_.load(std::memory_order_relaxed) & ~(kInside | kOpen)) + kGeneration + kOpen;
    state_.store(open);  // sequentially consistent, as is the read of sleepers_: see sleep()
    if (sleepers_.load() > 0) wake();
    const uint64_t forks = fork_count();
    claim();
    TD_CHECK(
        fork_count() == forks,
        "parallel_for: a child that was forked inside a body must not return from it, as the other threads "
        "are not there to do their part; got one that did. Fork outside, or end the child inside.");
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto quiet = [&] { return (state_.load(std::memory_order_acquire) & kInside) == 0; };
    if (!spin_until(quiet))
      while (!quiet()) std::this_thread::yield();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return true;
  }

  Pool* abandoned_before = nullptr;  // in a forked child: keeps them in reach

  /// Ends the workers; the next job starts as many as are then wanted.
  void stop() {
    std::lock_guard<std::mutex> owner(owner_);
    {
      std::lock_guard<std::mutex> lock(sleep_);
      stopping_.store(true);
    }
    awake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_.store(false);
  }

 private:
  void start(int wanted) {
    while (static_cast<int>(workers_.size()) < wanted) {
      try {
        const uint64_t seen = state_.load(std::memory_order_relaxed) / kGeneration;
        workers_.emplace_back([this, seen] { work(seen); });
      } catch (const std::system_error&) {
        break;  // the system has no more threads to give: those that there are do the work
      }
    }
  }

  void wake() {
    std::lock_guard<std::mutex> lock(sleep_);
    awake_.notify_all();
  }

  /// A worker's life. `seen` is the last generation that it must not join (again).
  void work(uint64_t seen) {
    inside_chunk = true;
    const auto ready = [&] {
      const uint64_t state = state_.load(std::memory_order_relaxed);
      return stopping_.load(std::memory_order_relaxed) || ((state & kOpen) && state / kGeneration != seen);
    };
    for (;;) {
      if (!spin_until(ready)) {
        // Registering as a sleeper before looking again, while the caller publishes before looking for
        // sleepers: one of the two sees the other.
        std::unique_lock<std::mutex> lock(sleep_);
        sleepers_.fetch_add(1);
        awake_.wait(lock, [&] {
          const uint64_t state = state_.load();
          return stopping_.load() || ((state & kOpen) && state / kGeneration != seen);
        });
        sleepers_.fetch_sub(1);
      }
      if (stopping_.load()) return;
      uint64_t state = state_.load(std::memory_order_relaxed);
      if (!(state & kOpen) || state / kGeneration == seen) continue;
      if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel)) continue;
      seen = state / kGeneration;
      claim();
      state_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  /// Runs chunks until none is left. After an exception the chunks not yet begun are dropped.
  void claim() {
    const bool was_inside = std::exchange(inside_chunk, true);
    try {
      for (int64_t chunk; (chunk = next_.fetch_add(1, std::memory_order_relaxed)) < chunks_;)
        run_(context_, chunk);
    } catch (...) {
      next_.store(chunks_, std::memory_order_relaxed);
      std::lock_guard<std::mutex> lock(sleep_);
      if (!error_) error_ = std::current_exception();
    }
    inside_chunk = was_inside;
  }

  std::mutex owner_;  // held by the thread whose job runs, and while workers start or stop
  std::vector<std::thread> workers_;
  detail::ChunkFn run_ = nullptr;
  void* context_ = nullptr;
  int64_t chunks_ = 0;
  std::exception_ptr error_;  // under sleep_ while workers are inside

  std::mutex sleep_;
  std::condition_variable awake_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
};

// The pool is never destroyed: threads may compute until the process has ended. In a forked child the workers are gone
// and the locks may be held by threads that no longer exist, so the child abandons the pool and makes itself a new one.
constinit std::atomic<Pool*> g_pool{nullptr};
constinit std::atomic<Pool*> g_abandoned{nullptr};

Pool& pool() {
  Pool* made = g_pool.load(std::memory_order_acquire);
  if (made) [[likely]]
    return *made;
  Pool* const fresh = new Pool;
  if (g_pool.compare_exchange_strong(made, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *made;
}

const bool g_registered = [] {
  on_fork_in_child([] {
    if (Pool* const old = g_pool.exchange(nullptr)) {
      old->abandoned_before = g_abandoned.load();
      g_abandoned.store(old);
    }
  });
  return true;
}();

}  // namespace

int threads() { return thread_count().load(std::memory_order_relaxed); }

void set_threads(int count) {
  TD_CHECK(count >= 1, "threads: must be at least 1; got ", count, ".");
  TD_CHECK(count <= kMaxThreads, "threads: must be at most ", kMaxThreads, "; got ", count, ".");
  TD_CHECK(!inside_chunk, "threads: must not be changed from inside a parallel computation.");
  if (thread_count().exchange(count) == count) return;
  pool().stop();
}

void detail::run_chunks(int64_t chunks, ChunkFn run, void* context) {
  if (threads() > 1 && chunks > 1 && !inside_chunk && pool().try_run(chunks, run, context)) return;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) run(context, chunk);
}

}  // namespace tandem
