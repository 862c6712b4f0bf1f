// What a kernel sees: plain buffers, the op's attributes, a random counter and its device.
// Kernels know nothing of tensors, autograd or graphs. This header is all that a kernel file needs of core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/core/dtype.h"

namespace tandem {

/// A strided block of device memory. Strides count elements; data points at the first element.
struct Buffer {
  void* data = nullptr;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;
  int rank = 0;
  DType dtype = DType::f32;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
};

/// Where a random op stands in the stream of random numbers. Eagerly `base` is null. In a replayed graph
/// `base` points (in device memory) at two numbers, {seed, offset of this call}, and `offset` counts from
/// there.
struct RngPosition {
  uint64_t seed = 0;
  uint64_t offset = 0;
  const uint64_t* base = nullptr;
};

/// The device that a kernel runs on: where it queues its work, and memory for the length of a call. Backends derive from
/// it what else their kernels need.
class DeviceContext {
 public:
  /// The backend's own handle (cudaStream_t) of the queue that the calling thread's kernels go to; null on CPU.
  virtual void* stream() = 0;
  /// See KernelArgs::workspace().
  virtual void* workspace(size_t bytes) = 0;

 protected:
  ~DeviceContext() = default;
};

/// One call of one kernel. in[i].data must not be written; out[i] is contiguous unless the op has a side
/// effect, in which case out[0] is the buffer that it changes (it may be strided).
struct KernelArgs {
  const Buffer* in = nullptr;
  Buffer* out = nullptr;
  int n_in = 0;
  int n_out = 0;
  const void* attrs = nullptr;
  const void* context = nullptr;  // OpDef::context
  RngPosition rng;
  DeviceContext* device = nullptr;
  void (*late_output)(void* owner, int i, const int64_t* shape) = nullptr;  // see allocate_output()
  void* late_owner = nullptr;

  /// Uninitialised device memory, 64-byte aligned, valid until the kernel returns (on a GPU: until the work
  /// that it queued has run). One call a kernel: a second call may hand out the same memory.
  void* workspace(size_t bytes) const { return device->workspace(bytes); }

  /// Data-dependent ops only: makes out[i], of the rank and type that inference gave it, once its shape is known.
  void allocate_output(int i, const int64_t* shape) const { late_output(late_owner, i, shape); }

  template <class A>
  const A& attributes() const {
    return *static_cast<const A*>(attrs);
  }
};

using KernelFn = void (*)(const KernelArgs&);

}  // namespace tandem
