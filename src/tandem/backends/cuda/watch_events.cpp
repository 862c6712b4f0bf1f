// Watching without CUPTI: a pair of events around what each op, copy or replay puts into the queue. The time between two
// events includes that in which the GPU waited for the host.
#include <algorithm>
#include <mutex>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/watch.h"
#include "tandem/core/activity.h"

namespace tandem::cuda {
namespace {

/// A point in the queue.
class Point {
 public:
  Point() = default;
  ~Point() {
    if (event_) (void)cudaEventDestroy(event_);
  }
  Point(Point&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Point& operator=(Point&& other) noexcept {
    std::swap(event_, other.event_);  // the temporary destroys the old one
    return *this;
  }
  /// Puts it into the queue, now.
  bool record(cudaStream_t stream) noexcept {
    return (event_ || cudaEventCreate(&event_) == cudaSuccess) &&
           cudaEventRecord(event_, stream) == cudaSuccess;
  }
  int64_t ns_after(const Point& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Mark {
  Point begin, end;
  DeviceActivity activity;
  bool is_complete = false;
};

class EventMarks final : public LaunchListener {
 public:
  /// The device's queue is empty.
  void start(DeviceState& state) {
    const std::lock_guard lock(mutex_);
    marks_.clear();
    ++turn_;
    TD_CHECK(base_.record(state.queue), "watch: an event could not be put into the queue of the GPU.");
    base_ns_ = steady_now_ns();
    state_ = &state;
  }
  void drop() noexcept {
    const std::lock_guard lock(mutex_);
    state_ = nullptr;
    marks_.clear();
    base_ = Point();
  }
  /// What was marked; the work has ended.
  std::vector<DeviceActivity> stop() {
    const std::lock_guard lock(mutex_);
    state_ = nullptr;
    const std::vector<Mark> marks = std::exchange(marks_, {});
    const Point base = std::move(base_);  // events belong to their device: the next watch may be of another
    std::vector<DeviceActivity> seen;
    for (const Mark& mark : marks) {
      if (!mark.is_complete) continue;
      seen.push_back(mark.activity);
      seen.back().begin_ns = base_ns_ + mark.begin.ns_after(base);
      seen.back().end_ns = seen.back().begin_ns + mark.end.ns_after(mark.begin);
    }
    return seen;
  }

  void* before(Device device) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!state_ || device.is_cpu() || device.index != state_->index) return nullptr;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaSetDevice(state_->index) != cudaSuccess ||
        cudaStreamIsCapturing(state_->queue, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone)
      return nullptr;
    try {
      marks_.emplace_back();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    if (!marks_.back().begin.record(state_->queue)) return nullptr;
    return reinterpret_cast<void*>((turn_ << 32) +
                                   marks_.size());  // places move: a number stands for the mark
  }

  void after(void* begun, const char* name, bool is_copy, int64_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto token = reinterpret_cast<uintptr_t>(begun);
    if (!state_ || token >> 32 != turn_) return;  // it outlived the watch
    Mark& mark = marks_[(token & 0xffffffff) - 1];
    try {
      mark.activity.name = name;
    } catch (const std::bad_alloc&) {
      return;
    }
    mark.activity.is_copy = is_copy;
    mark.activity.bytes = bytes;
    mark.is_complete = mark.end.record(state_->queue);
  }

 private:
  Mutex mutex_{LockOrder::activity};
  DeviceState* state_ = nullptr;  // null: nobody watches
  uintptr_t turn_ = 0;
  std::vector<Mark> marks_;
  Point base_;
  int64_t base_ns_ = 0;
};

}  // namespace

std::vector<DeviceActivity> watch_by_events(DeviceState& state, const std::function<void()>& work) {
  static EventMarks& marks = *new EventMarks;  // late launches may still call it
  std::vector<DeviceActivity> seen;
  listen_to_launches(marks, [&] {
    state.synchronize();
    marks.start(state);
    try {
      work();
      state.synchronize();
    } catch (...) {
      marks.drop();
      throw;
    }
    seen = marks.stop();
  });
  std::stable_sort(seen.begin(), seen.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return seen;
}

}  // namespace tandem::cuda
