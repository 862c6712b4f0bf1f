#include "tandem/backends/cpu/stream.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/core/mutex.h"

namespace tandem::cpu {
namespace {

/// What the thread and its users share. A forked child has no such thread: there, all that was queued counts as done, as
/// nobody will do it, and the stream that is used next starts another thread.
struct Queue {
  Mutex mutex{LockOrder::streams};
  std::condition_variable_any changed;
  std::deque<std::function<void()>> work;
  uint64_t queued = 0, done = 0;
  bool stopping = false;
  const uint64_t forks = fork_count();

  bool is_here() const { return forks == fork_count(); }
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      next();
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }
};

class QueueEvent final : public Event {
 public:
  QueueEvent(std::shared_ptr<Queue> queue, uint64_t place) : queue_(std::move(queue)), place_(place) {}
  bool has_passed() const override {
    if (!queue_->is_here()) return true;
    const std::lock_guard lock(queue_->mutex);
    return queue_->done >= place_;
  }
  void wait() const override {
    if (!queue_->is_here()) return;
    std::unique_lock lock(queue_->mutex);
    queue_->changed.wait(lock, [&] { return queue_->done >= place_; });
  }

 private:
  std::shared_ptr<Queue> queue_;
  uint64_t place_;
};

class PassedEvent final : public Event {
 public:
  bool has_passed() const override { return true; }
  void wait() const override {}
};

class CpuStream final : public Stream {
 public:
  CpuStream() { begin(); }
  ~CpuStream() override {
    if (!queue_->is_here()) {
      abandon();
      return;
    }
    {
      const std::lock_guard lock(queue_->mutex);
      queue_->stopping = true;
    }
    queue_->changed.notify_all();
    thread_.join();
  }

  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes) put([=] { std::memcpy(to, from, bytes); });
  }
  std::shared_ptr<const Event> mark() override {
    Queue& queue = here();
    const std::lock_guard lock(queue.mutex);
    return std::make_shared<QueueEvent>(queue_, queue.queued);
  }
  void wait(const Event& event) override {
    if (event.has_passed()) return;
    // Only events of other streams get here, which are QueueEvents: a copy keeps what it waits for alive.
    put([copy = static_cast<const QueueEvent&>(event)] { copy.wait(); });
  }

 private:
  void begin() {
    queue_ = std::make_shared<Queue>();
    try {
      thread_ = std::thread([queue = queue_] { queue->run(); });
    } catch (const std::system_error& error) {
      throw resource_error("stream: the system must grant a thread; it does not (", error.what(), ").");
    }
  }
  /// In a forked child: the thread cannot be joined, nor can what it waited for be destroyed.
  void abandon() noexcept {
    new std::thread(std::move(thread_));
    new std::shared_ptr<Queue>(std::move(queue_));
  }
  Queue& here() {
    if (!queue_->is_here()) [[unlikely]] {
      abandon();
      begin();
    }
    return *queue_;
  }
  void put(std::function<void()> work) {
    Queue& queue = here();
    {
      const std::lock_guard lock(queue.mutex);
      queue.work.push_back(std::move(work));
      ++queue.queued;
    }
    queue.changed.notify_all();
  }

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_stream() { return std::make_unique<CpuStream>(); }

std::shared_ptr<const Event> passed_event() {
  static const auto& event = *new std::shared_ptr<const Event>(std::make_shared<PassedEvent>());
  return event;
}

}  // namespace tandem::cpu
