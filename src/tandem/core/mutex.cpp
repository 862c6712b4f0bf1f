#include "tandem/core/mutex.h"

#include <pthread.h>

#include <array>

#include "tandem/core/error.h"

namespace tandem {

/// `word` is 0 where the lock is free, else the owner's number · 2, + 1 where threads may be waiting.
struct Mutex::Slot {
  std::atomic<uint32_t> word{0};
  bool taken_for_fork = false;  // its owner's alone
  LockOrder order = LockOrder::turn;
  const char* what = "";
  Slot* next = nullptr;       // of the same order; set once
  Slot* next_free = nullptr;  // under g_unused_lock

  bool try_lock(uint32_t me) {
    uint32_t free = 0;
    return word.compare_exchange_strong(free, me << 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock(uint32_t me);
  void unlock() {
    if (word.exchange(0, std::memory_order_release) & 1) word.notify_one();
  }
};

namespace {

using Slot = Mutex::Slot;

// Slots are never freed, and stay in their list: fork() walks the lists without a lock. One whose Mutex is gone serves
// the next Mutex of its order.
constexpr size_t kOrders = static_cast<size_t>(LockOrder::count) + 1;
constinit std::array<std::atomic<Slot*>, kOrders> g_slots{};
constinit std::array<Slot*, kOrders> g_unused{};
constinit Slot g_unused_lock{};                   // the last that fork() takes
constinit std::atomic<uint64_t> g_slots_made{0};  // changed under g_unused_lock

constinit std::atomic<uint32_t> g_threads{0};
constinit thread_local uint32_t t_number = 0;
uint32_t my_number() {
  if (t_number == 0) [[unlikely]]
    t_number = g_threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return t_number;
}

// In a forked child: threads with numbers up to the first are gone, but for the second.
constinit std::atomic<uint32_t> g_last_gone{0}, g_survivor{0};
constinit std::atomic<uint64_t> g_forks{0};
bool is_gone(uint32_t thread) {
  return thread <= g_last_gone.load(std::memory_order_relaxed) &&
         thread != g_survivor.load(std::memory_order_relaxed);
}

constexpr size_t kMostHooks = 8;
constinit std::array<std::atomic<void (*)()>, kMostHooks> g_hooks{};

template <class F>
void each_slot(F&& f) {
  for (size_t order = 0; order < static_cast<size_t>(LockOrder::count); ++order)
    for (Slot* slot = g_slots[order].load(std::memory_order_acquire); slot; slot = slot->next) f(*slot);
}

void after_fork();

void before_fork() {
  const uint32_t me = my_number();
  for (;;) {
    const uint64_t made = g_slots_made.load(std::memory_order_acquire);
    each_slot([&](Slot& slot) {
      if (slot.word.load(std::memory_order_relaxed) >> 1 == me)
        return;  // held by the caller of fork() itself
      slot.lock(me);
      slot.taken_for_fork = true;
    });
    g_unused_lock.lock(me);
    if (g_slots_made.load(std::memory_order_relaxed) == made) return;
    after_fork();  // another lock was made meanwhile: all again, as it has its place in the order
  }
}

void after_fork() {
  g_unused_lock.unlock();
  const uint32_t me = my_number();
  each_slot([&](Slot& slot) {
    if (slot.word.load(std::memory_order_relaxed) >> 1 != me || !slot.taken_for_fork) return;
    slot.taken_for_fork = false;
    slot.unlock();
  });
}

void after_fork_in_child() {
  g_last_gone.store(g_threads.load(std::memory_order_relaxed), std::memory_order_relaxed);
  g_survivor.store(my_number(), std::memory_order_relaxed);
  g_forks.fetch_add(1, std::memory_order_relaxed);
  after_fork();
  for (const auto& hook : g_hooks)
    if (const auto function = hook.load()) function();
}

[[maybe_unused]] const int g_registered = pthread_atfork(before_fork, after_fork, after_fork_in_child);

Slot* make_slot(LockOrder order) {
  const auto at = static_cast<size_t>(order);
  g_unused_lock.lock(my_number());
  Slot* slot = g_unused[at];
  if (slot) g_unused[at] = slot->next_free;
  g_unused_lock.unlock();
  if (slot) return slot;
  slot = new Slot;
  slot->order = order;
  g_unused_lock.lock(my_number());
  slot->next = g_slots[at].load(std::memory_order_relaxed);
  g_slots[at].store(slot, std::memory_order_release);
  g_slots_made.fetch_add(1, std::memory_order_release);
  g_unused_lock.unlock();
  return slot;
}

}  // namespace

void Mutex::Slot::lock(uint32_t me) {
  if (try_lock(me)) [[likely]]
    return;
  for (;;) {
    uint32_t seen = word.load(std::memory_order_relaxed);
    if (seen == 0) {
      // With the mark of waiters, as there may be others.
      if (word.compare_exchange_weak(seen, me << 1 | 1, std::memory_order_acquire)) return;
      continue;
    }
    TD_CHECK(!is_gone(seen >> 1), "fork: a ", what,
             " that another thread was using when the process forked must not be used in the child; got one. "
             "Make a new one there.");
    if (!(seen & 1) && !word.compare_exchange_weak(seen, seen | 1, std::memory_order_relaxed)) continue;
    word.wait(seen | 1, std::memory_order_relaxed);
  }
}

Mutex::Mutex(LockOrder order, const char* what) : slot_(make_slot(order)) { slot_->what = what; }

Mutex::~Mutex() {
  const auto at = static_cast<size_t>(slot_->order);
  g_unused_lock.lock(my_number());
  // One that a thread left locked which is gone, or that fork() holds right now, is not used again.
  if (slot_->word.load(std::memory_order_relaxed) == 0) {
    slot_->next_free = g_unused[at];
    g_unused[at] = slot_;
  }
  g_unused_lock.unlock();
}

void Mutex::lock() {
  const uint32_t me = my_number();
  if (slot_->word.load(std::memory_order_relaxed) >> 1 == me) [[unlikely]]
    throw Error(str(slot_->what,
                    ": must not be used from within its own call, which holds it. Use another one there."));
  slot_->lock(me);
}
bool Mutex::try_lock() { return slot_->try_lock(my_number()); }
void Mutex::unlock() { slot_->unlock(); }

uint64_t fork_count() { return g_forks.load(std::memory_order_relaxed); }

void on_fork_in_child(void (*function)()) {
  for (auto& hook : g_hooks) {
    void (*none)() = nullptr;
    if (hook.compare_exchange_strong(none, function)) return;
  }
  throw InternalError("too many functions for forked children");
}

}  // namespace tandem
