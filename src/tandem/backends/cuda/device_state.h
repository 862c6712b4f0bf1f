// What the backend keeps for each GPU: its stream, memory, scratch, library handles and the flag through which
// kernels report an index out of range. Kernels reach it through KernelArgs (state_of).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/backends/cuda/staging.h"
#include "tandem/core/backend.h"
#include "tandem/core/kernel.h"
#include "tandem/core/mutex.h"

namespace tandem::cuda {

/// Written by kernels into host memory that the GPU can reach, read after a synchronisation.
struct IndexReport {
  int op;           // an IndexUse (ops/index.h); 0 = none
  int padding;      // keeps the next ones aligned
  long long index;  // the offending value
  long long low;    // it should have been in [low, limit)
  long long limit;
};

/// Caches blocks by size class, so that a training loop asks the driver for memory only in its first steps.
/// Reuse needs no events: all work of a device runs on one stream, in order.
class Allocator {
 public:
  void* allocate(size_t bytes);
  void free(void* data, size_t bytes) noexcept;
  MemoryStats stats() const;
  void reset_peak();
  /// Gives all cached blocks back to the driver (after the work in flight has ended).
  void release_cached();
  /// The size that a request is rounded to: a multiple of 512 bytes, eight steps an octave above 4 KiB.
  static size_t size_class(size_t bytes);

 private:
  void release_cached_locked();
  mutable Mutex mutex_{LockOrder::memory};
  std::map<size_t, std::vector<void*>> cached_;
  MemoryStats stats_;
};

struct DeviceState {
  int index = 0;
  cudaDeviceProp properties{};
  cudaStream_t stream = nullptr;
  Allocator memory;
  Staging staging;
  IndexReport* report = nullptr;         // host address
  IndexReport* device_report = nullptr;  // the same memory, seen from the GPU
  unsigned* counters = nullptr;  // kLanes × kCounters zeros in device memory; a kernel leaves them zero
  cublasLtHandle_t blas = nullptr;
  cudnnHandle_t dnn = nullptr;  // created at the first convolution; guarded by dnn_mutex
  Mutex dnn_mutex{LockOrder::libraries};

  /// Waits for the stream, then throws Error if a kernel reported an index out of range.
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
inline DeviceState& state_of(const KernelArgs& args) {
  return *static_cast<DeviceState*>(args.scratch_owner);
}
inline cudaStream_t stream_of(const KernelArgs& args) { return static_cast<cudaStream_t>(args.stream); }

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

/// This thread's scratch on a device, and a way to put another in its place (returns the previous one).
Scratch& thread_scratch(DeviceState& state);
std::shared_ptr<Scratch> exchange_thread_scratch(DeviceState& state, std::shared_ptr<Scratch> scratch);

/// Whether f32 products may round their inputs to tf32 (10 mantissa bits): on unless TANDEM_TF32=0.
bool allow_tf32();

}  // namespace tandem::cuda
