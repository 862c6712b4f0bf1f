// A backend serves one kind of device: memory, copies, and (through OpDef's kernel table) kernels. Backends
// register by an explicit call; core and graph reach them only through this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/device.h"
#include "tandem/core/kernel.h"

namespace tandem {

struct FusedProgram;  // ops/fused.h

/// Bytes handed out by a device's allocator.
struct MemoryStats {
  size_t in_use = 0;
  size_t peak = 0;      ///< highest in_use since reset_peak
  size_t reserved = 0;  ///< taken from the system, free blocks in the cache included
};

/// One or more chains of pointwise ops compiled into one kernel. in/out are the inputs and outputs of all programs, one
/// program after the other. An output may be the very memory of an input of its own program that has the same layout
/// (an update in place); programs of one kernel never write what another of them reads.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  virtual void run(const KernelArgs& args) = 0;
};

/// One piece of work to record, and the earlier pieces (by index) that must have ended before it begins.
struct RecordStep {
  std::function<void()> launch;
  std::vector<int> after;
};

/// Recorded launches that replay as one (a CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

/// Something that a device did: a kernel (on the CPU by the name of its operation), or a copy (memory that is set is one
/// too). Nanoseconds of the device's clock.
struct DeviceActivity {
  std::string name;
  bool is_copy = false;
  int64_t begin_ns = 0, end_ns = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int device_count() const = 0;
  virtual std::string describe(Device device) const = 0;  ///< one line for `tandem info`
  /// Which of several roundings this backend computes with, by the processor or by what the environment says: all, besides
  /// the inputs and the choices of algorithms (choices.h), that bits depend on. A run is resumed only under the same.
  virtual std::string arithmetic() const = 0;

  /// At least `bytes` bytes (0 allowed), 64-byte aligned. Throws Error when memory runs out.
  virtual void* allocate(Device device, size_t bytes) = 0;
  virtual void free(Device device, void* data, size_t bytes) noexcept = 0;
  virtual MemoryStats memory(Device device) const = 0;
  virtual void reset_peak(Device device) = 0;
  /// Gives the memory that is kept for later tensors back to the system.
  virtual void empty_cache(Device device) = 0;

  /// Copies between this device and host memory, or within the device. A copy to the host has finished on
  /// return.
  virtual void copy_from_host(Device device, void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(Device device, void* to, const void* from, size_t bytes) = 0;
  virtual void copy_within(Device device, void* to, const void* from, size_t bytes) = 0;
  virtual void synchronize(Device device) = 0;

  /// Fills in stream and scratch of a kernel call.
  virtual void prepare(Device device, KernelArgs& args) = 0;

  virtual std::unique_ptr<FusedKernel> compile_fused(Device device,
                                                     const std::vector<FusedProgram>& programs) = 0;

  /// Records what the steps queue on the device, without running it; steps that do not wait for each other may run at
  /// the same time. Null where this backend does not record: the caller then runs the steps in order each time. The
  /// same work has run once before it is recorded.
  virtual std::unique_ptr<Recording> record(Device, const std::vector<RecordStep>&) { return nullptr; }
  /// Whether record() works here. Buffers of recorded work keep their addresses.
  virtual bool records() const { return false; }

  /// Runs `work`, waits for the device, and tells what it did meanwhile in the order of their beginnings; recorded work
  /// kernel by kernel. Throws Error, before `work` has begun, where this device cannot be watched.
  virtual std::vector<DeviceActivity> watch(Device device, const std::function<void()>& work) = 0;
};

/// The backend of a device kind; throws Error with the reason where there is none ("cuda: …").
Backend& backend(DeviceKind kind);
inline Backend& backend(Device device) { return backend(device.kind); }

/// The backend, or null where this machine has none.
Backend* find_backend(DeviceKind kind);

/// Puts a backend in place. Called once a kind, at start-up (backends/start.cpp) or when a library is opened.
void register_backend(DeviceKind kind, std::unique_ptr<Backend> implementation);

/// Called when a kind without a backend is asked for; may call register_backend, or returns the reason why
/// not.
using BackendLoader = std::string (*)();
void set_backend_loader(DeviceKind kind, BackendLoader loader);

}  // namespace tandem
