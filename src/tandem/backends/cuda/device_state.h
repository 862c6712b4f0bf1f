// What the backend keeps for each GPU: its queue, memory, scratch, library handles and the flag through which
// kernels report an index out of range. Kernels reach it through KernelArgs (state_of).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/backends/cuda/staging.h"
#include "tandem/core/backend.h"
#include "tandem/core/block_cache.h"
#include "tandem/core/kernel.h"
#include "tandem/core/mutex.h"
#include "tandem/core/recorded_control.h"

namespace tandem::cuda {

/// Written by kernels into host memory that the GPU can reach, read after a synchronisation.
struct IndexReport {
  int op;           // an IndexUse (ops/index.h); 0 = none
  int padding;      // keeps the next ones aligned
  long long index;  // the offending value
  long long low;    // it should have been in [low, limit)
  long long limit;
};

struct DeviceState;

/// Keeps freed blocks, so that a training loop asks the driver for memory only in its first steps. A block is handed out
/// again for use in the device's own queue, where all that used it has been queued before; what other queues do with it
/// is held by events.
class Allocator {
 public:
  explicit Allocator(DeviceState& state) : state_(state) {}
  void* allocate(size_t bytes);
  void free(void* data, size_t bytes) noexcept;
  void hold_until(void* data, std::shared_ptr<const Event> event);
  MemoryStats stats() { return cache_.stats(); }
  void reset_peak() { cache_.reset_peak(); }
  /// Gives all cached blocks back to the driver (after the work in flight has ended).
  void release_cached();
  /// The size that a request is rounded to.
  static size_t rounded(size_t bytes) { return Cache::size_class(bytes).bytes; }

 private:
  struct Rules {
    static constexpr size_t kUnit = 512;
    static constexpr int kSteps = 8;
    static constexpr size_t kSlack = size_t{512} << 20;
    static size_t limit() { return SIZE_MAX; }  // the driver says when there is no more
  };
  using Cache = BlockCache<Rules>;
  void give_to_driver(const std::vector<Cache::Block>& blocks);

  DeviceState& state_;
  Cache cache_;
  Mutex mutex_{LockOrder::memory};
  std::unordered_map<void*, std::vector<std::shared_ptr<const Event>>> held_;
  std::atomic<size_t> held_count_{0};  // looked at by every free()
};

struct DeviceState final : DeviceContext {
  int index = 0;
  cudaDeviceProp properties{};
  cudaStream_t queue = nullptr;  // the device's own
  Allocator memory{*this};
  Staging staging;
  std::unique_ptr<RecordedControl> control;  // null: the driver is too old for it
  IndexReport* report = nullptr;             // host address
  IndexReport* device_report = nullptr;      // the same memory, seen from the GPU
  unsigned* counters = nullptr;  // kLanes × kCounters zeros in device memory; a kernel leaves them zero
  cublasLtHandle_t blas = nullptr;
  cudnnHandle_t dnn = nullptr;        // created at the first use; guarded by dnn_mutex, as is the next
  cudaStream_t dnn_stream = nullptr;  // that it was last told to use
  Mutex dnn_mutex{LockOrder::libraries};

  /// The queue that the calling thread's kernels go to: the device's own, or the one of a recording that is being made.
  cudaStream_t current_stream();
  void* stream() override { return current_stream(); }
  void* workspace(size_t bytes) override;

  /// Waits for the device's queue, then throws Error if a kernel reported an index out of range.
  void synchronize();
  void raise_index_fault();
};

/// Block counters for kernels whose last block finishes the sum of all blocks.
inline constexpr int kCounters = 4096;
/// Kernels that run at the same time (in a recording) stand on different lanes, each with its own scratch and counters.
inline constexpr int kLanes = 8;

/// The state of GPU `index`, made on first use, with that GPU current for this thread.
DeviceState& device_state(int index);
/// The same without making it current; null where it was never used.
DeviceState* find_device_state(int index) noexcept;
int visible_devices();

/// The state behind a kernel call.
inline DeviceState& state_of(const KernelArgs& args) { return static_cast<DeviceState&>(*args.device); }
inline cudaStream_t stream_of(const KernelArgs& args) { return state_of(args).current_stream(); }

/// Scratch memory of one host thread on one device: a block that grows. While a recording is made the thread
/// has a fresh Scratch, which the recording then keeps, since the recorded kernels hold its addresses.
class Scratch {
 public:
  explicit Scratch(DeviceState* state, int lane = 0) : state_(state), lane_(lane) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get(size_t bytes);
  size_t bytes() const { return blocks_.empty() ? 0 : blocks_.back().bytes; }
  unsigned* counters() const { return state_->counters + lane_ * kCounters; }
  /// Old blocks are kept rather than given back when the scratch grows.
  void keep_old_blocks() { keep_old_ = true; }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  DeviceState* state_;
  int lane_;
  std::vector<Block> blocks_;  // the last one is in use
  bool keep_old_ = false;
};

/// What a host thread works with on a device.
struct ThreadContext {
  std::shared_ptr<Scratch> scratch;
  cudaStream_t stream = nullptr;
};
Scratch& thread_scratch(DeviceState& state);
ThreadContext current_thread_context(DeviceState& state);
/// Puts another in place for this thread; returns the previous one.
ThreadContext exchange_thread_context(DeviceState& state, ThreadContext context);

/// Whether f32 products may round their inputs to tf32 (10 mantissa bits): core/choices.h, set_tf32.
bool allow_tf32();

}  // namespace tandem::cuda
