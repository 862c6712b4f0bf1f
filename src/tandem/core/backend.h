// A backend serves one kind of device: memory, copies, and (through OpDef's kernel table) kernels. Backends
// register by an explicit call; core and graph reach them only through this interface.
//
// Each device has one queue of its own, in which its kernels and plain copies run in order. Further queues (streams) copy
// beside it. The CPU's kernels run in the thread that calls them; its streams are threads.
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

struct FusedProgram;    // ops/fused.h
class RecordedControl;  // core/recorded_control.h

/// Bytes handed out by a device's allocator.
struct MemoryStats {
  size_t in_use = 0;
  size_t peak = 0;          ///< highest in_use since reset_peak
  size_t reserved = 0;      ///< taken from the system, free blocks in the cache included
  size_t largest_free = 0;  ///< of the blocks in the cache

  size_t cached() const { return reserved > in_use ? reserved - in_use : 0; }
  /// The part of the cache that is not in its largest block: 0 (or nothing cached) to nearly 1.
  double fragmentation() const {
    return cached() ? 1 - static_cast<double>(largest_free) / static_cast<double>(cached()) : 0;
  }
};

/// A place in a queue: what was queued before it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool has_passed() const = 0;
  virtual void wait() const = 0;  ///< until it has passed
};

/// A queue of copies beside the one of a device. Its end waits for all of them. Used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Queues a copy between memory of the device and pinned host memory (plain host memory works, but the caller may have
  /// to wait), or within the device. Both must stay as they are until it has run.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual std::shared_ptr<const Event> mark() = 0;
  /// What is queued from now on begins after an event of any queue of the same backend.
  virtual void wait(const Event& event) = 0;
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
/// too). Nanoseconds of the host's steady clock, against which a device's own clock is set.
struct DeviceActivity {
  std::string name;
  bool is_copy = false;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t bytes = 0;  ///< of a copy
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int device_count() const = 0;
  virtual std::string describe(Device device) const = 0;  ///< one line for `tandem info`
  /// Which of several roundings this backend computes with, by the processor or by what the environment says: all, besides
  /// the inputs and the choices of algorithms (choices.h), that bits depend on. A run is resumed only under the same.
  virtual std::string arithmetic() const = 0;
  /// Why ops lack kernels that they should have here; empty: they have all that there are.
  virtual std::string missing_kernels() const { return {}; }

  /// At least `bytes` bytes (0 allowed), 64-byte aligned. Throws Error when memory runs out.
  virtual void* allocate(Device device, size_t bytes) = 0;
  virtual void free(Device device, void* data, size_t bytes) noexcept = 0;
  virtual MemoryStats memory(Device device) const = 0;
  virtual void reset_peak(Device device) = 0;
  /// Gives the memory that is kept for later tensors back to the system.
  virtual void empty_cache(Device device) = 0;

  /// Host memory that copies on a stream take without a stop.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void free_pinned(void* data, size_t bytes) noexcept = 0;
  virtual std::unique_ptr<Stream> make_stream(Device device) = 0;
  /// The present end of the device's own queue, and what is queued there from now on behind an event.
  virtual std::shared_ptr<const Event> mark(Device device) = 0;
  virtual void wait(Device device, const Event& event) = 0;
  /// `data`, of allocate(), is in use until the event has passed: once it is freed, whoever gets it next waits for that.
  virtual void hold_until(Device device, void* data, std::shared_ptr<const Event> event) = 0;

  /// Copies between this device and host memory, or within the device. A copy to the host has finished on
  /// return.
  virtual void copy_from_host(Device device, void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(Device device, void* to, const void* from, size_t bytes) = 0;
  virtual void copy_within(Device device, void* to, const void* from, size_t bytes) = 0;
  /// Copies from another device of the same kind, behind what both have queued; both go on behind the copy.
  virtual void copy_between(Device to_device, void* to, Device from_device, const void* from,
                            size_t bytes) = 0;
  virtual void synchronize(Device device) = 0;

  /// What kernels of this device get as KernelArgs::device; lives as long as the process.
  virtual DeviceContext& context(Device device) = 0;

  virtual std::unique_ptr<FusedKernel> compile_fused(Device device,
                                                     const std::vector<FusedProgram>& programs) = 0;

  /// Records what the steps queue on the device, without running it; steps that do not wait for each other may run at
  /// the same time. Null where this backend does not record: the caller then runs the steps in order each time. The
  /// same work has run once before it is recorded.
  virtual std::unique_ptr<Recording> record(Device, const std::vector<RecordStep>&) { return nullptr; }
  /// Whether record() works here. Buffers of recorded work keep their addresses.
  virtual bool records() const { return false; }
  /// Branches and loops by values in device memory, within what is recorded; null where there are none, so that the host
  /// waits for each of these values and nothing that does is recorded. Lives as long as the process.
  virtual RecordedControl* recorded_control(Device) { return nullptr; }

  /// Runs `work`, waits for the device, and tells what it did meanwhile in the order of their beginnings; recorded work
  /// kernel by kernel. Throws Error, before `work` has begun, where this device cannot be watched.
  virtual std::vector<DeviceActivity> watch(Device device, const std::function<void()>& work) = 0;
  /// The same as far as marks in the device's queue tell, where watch() cannot: each op (or recording) as one kernel by its
  /// name, with the time that the device waited for the host within it.
  virtual std::vector<DeviceActivity> watch_by_events(Device device, const std::function<void()>& work) {
    return watch(device, work);
  }
};

/// The error of a device that has no memory left. free and total: the system's, of the device.
[[noreturn]] void throw_out_of_memory(Device device, size_t asked, const MemoryStats& held, size_t free,
                                      size_t total);

/// Throws the Error of an op that has no kernel for a device.
[[noreturn]] void refuse_without_kernel(const char* op, Device device);

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
