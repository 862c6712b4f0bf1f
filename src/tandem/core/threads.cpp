// The thread pool behind parallel_for. One job runs at a time. Its chunks are cut into one share for each thread that is wanted,
// always the same for the same number of chunks, so that a thread finds the memory of its last call in its own cache; who is done
// with its share takes from the others'. A caller that finds the pool busy, and a body that calls parallel_for again, run
// their chunks inline: chunk sizes never depend on threads, so the results are the same.
//
// A job is published in one atomic word, `state_` = generation | workers wanted | open bit | number of workers inside. A
// worker joins by adding itself, and takes that back where the bit was not set; the caller clears the bit and waits for the
// count to reach zero, so a late worker can never touch the next job.
#include "tandem/core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
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
constexpr uint64_t kInside = 0xffff;  // mask of the worker count
constexpr uint64_t kOpen = 0x10000;   // workers may join
constexpr int kWantedShift = 17;      // the first workers are wanted, so many
constexpr uint64_t kWanted = uint64_t{kMaxThreads - 1} << kWantedShift;
constexpr int kGenerationShift = 29;  // one more with every job; that it comes round again does no harm
constexpr int64_t kMostPieces = 256;  // of a share: more chunks go in groups
constexpr int kTakenBits = 16;        // of a Share
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
    const auto most = static_cast<int64_t>(workers_.size()) + 1;
    job_.run = run;
    job_.context = context;
    job_.chunks = chunks;
    job_.shares = std::min(most, chunks);
    job_.group = (chunks - 1) / (job_.shares * kMostPieces) + 1;
    job_.pieces = (chunks - 1) / job_.group + 1;
    ++job_.number;
    error_ = nullptr;
    failed_.store(false, std::memory_order_relaxed);
    const auto wanted = static_cast<uint64_t>(job_.shares - 1);
    // The word is closed, and the caller alone opens it; workers may be adding and taking back meanwhile.
    const uint64_t before = state_.load(std::memory_order_relaxed);
    const uint64_t next =
        ((before >> kGenerationShift) + 1) << kGenerationShift | wanted << kWantedShift | kOpen;
    state_.fetch_add(
        next - (before & ~kInside));  // sequentially consistent, as is the read of first_sleeper_: see work()
    if (first_sleeper_.load() <= static_cast<int>(wanted)) wake();
    const uint64_t forks = fork_count();
    take_part(0);
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
  /// What a share's owner and those who help it have taken of it, and in which job; a share of an earlier job is untouched.
  struct alignas(64) Share {
    std::atomic<uint64_t> taken{0};  // number of the job << kTakenBits | pieces
  };
  struct alignas(64) Job {
    detail::ChunkFn run = nullptr;
    void* context = nullptr;
    int64_t chunks = 0, shares = 0, group = 0, pieces = 0;  // a piece is a group of chunks
    uint64_t number = 0;
  };

  void start(int wanted) {
    if (wanted > most_) {  // no worker is inside of a job, so that none reads these
      shares_ = std::make_unique<Share[]>(static_cast<size_t>(wanted) + 1);
      std::lock_guard<std::mutex> lock(sleep_);
      sleeps_.resize(static_cast<size_t>(wanted) + 1);
      most_ = wanted;
    }
    while (static_cast<int>(workers_.size()) < wanted) {
      try {
        const uint64_t seen = state_.load(std::memory_order_relaxed) >> kGenerationShift;
        const int index = static_cast<int>(workers_.size()) + 1;
        workers_.emplace_back([this, seen, index] { work(seen, index); });
      } catch (const std::system_error&) {
        break;  // the system has no more threads to give: those that there are do the work
      }
    }
  }

  /// Under sleep_.
  void set_sleeps(int index, bool sleeps) {
    sleeps_[static_cast<size_t>(index)] = sleeps;
    const auto first = std::find(sleeps_.begin(), sleeps_.end(), true);
    first_sleeper_.store(first == sleeps_.end() ? kMaxThreads : static_cast<int>(first - sleeps_.begin()));
  }

  void wake() {
    std::lock_guard<std::mutex> lock(sleep_);
    awake_.notify_all();
  }

  /// Worker `index`'s life. `seen` is the last generation that it must not join (again).
  void work(uint64_t seen, int index) {
    inside_chunk = true;
    const auto open = [&](uint64_t state) {
      return (state & kOpen) && state >> kGenerationShift != seen &&
             static_cast<int>((state & kWanted) >> kWantedShift) >= index;
    };
    const auto ready = [&] {
      return open(state_.load(std::memory_order_relaxed)) || stopping_.load(std::memory_order_relaxed);
    };
    for (;;) {
      if (!spin_until(ready)) {
        // Registering as a sleeper before looking again, while the caller publishes before looking for
        // sleepers: one of the two sees the other.
        std::unique_lock<std::mutex> lock(sleep_);
        set_sleeps(index, true);
        awake_.wait(lock, [&] { return stopping_.load() || open(state_.load()); });
        set_sleeps(index, false);
      }
      if (stopping_.load()) return;
      const uint64_t state = state_.fetch_add(1, std::memory_order_acq_rel);
      if (open(state)) {
        seen = state >> kGenerationShift;
        take_part(index);
      }
      state_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  /// Runs chunks until none is left, those of the own share first. After an exception the chunks not yet begun are dropped.
  void take_part(int64_t index) {
    const bool was_inside = std::exchange(inside_chunk, true);
    const Job job = job_;
    try {
      for (int64_t i = 0; i < job.shares; ++i) {
        const int64_t share = index + i < job.shares ? index + i : index + i - job.shares;
        const int64_t begin = share * job.pieces / job.shares, end = (share + 1) * job.pieces / job.shares;
        for (int64_t piece; (piece = take(job, share, begin, end)) >= 0;)
          for (int64_t chunk = piece * job.group; chunk < std::min((piece + 1) * job.group, job.chunks);
               ++chunk)
            job.run(job.context, chunk);
      }
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
      std::lock_guard<std::mutex> lock(sleep_);
      if (!error_) error_ = std::current_exception();
    }
    inside_chunk = was_inside;
  }

  /// A piece of the share, which has those from begin to end, that is now the caller's to run; or -1.
  int64_t take(const Job& job, int64_t share, int64_t begin, int64_t end) {
    std::atomic<uint64_t>& taken = shares_[static_cast<size_t>(share)].taken;
    uint64_t now = taken.load(std::memory_order_relaxed);
    for (;;) {
      const auto count =
          now >> kTakenBits == job.number ? static_cast<int64_t>(now & ((1 << kTakenBits) - 1)) : 0;
      if (begin + count >= end || failed_.load(std::memory_order_relaxed)) return -1;
      if (taken.compare_exchange_weak(now, job.number << kTakenBits | static_cast<uint64_t>(count + 1),
                                      std::memory_order_relaxed))
        return begin + count;
    }
  }

  std::mutex owner_;  // held by the thread whose job runs, and while workers start or stop
  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;
  int most_ = 0;              // workers that there are shares for
  Job job_;                   // written by the caller before it opens the word
  std::exception_ptr error_;  // under sleep_ while workers are inside

  std::mutex sleep_;
  std::condition_variable awake_;
  std::vector<bool> sleeps_;  // by the index of a worker, under sleep_
  std::atomic<int> first_sleeper_{kMaxThreads};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};  // a chunk threw
  alignas(64) std::atomic<uint64_t> state_{0};
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

int threads_here() { return inside_chunk ? 1 : threads(); }

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
