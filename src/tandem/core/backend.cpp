#include "tandem/core/backend.h"

#include <atomic>
#include <mutex>

#include "tandem/core/error.h"
#include "tandem/core/mutex.h"

namespace tandem {

namespace {
constinit std::atomic<Backend*> g_backends[kDeviceKinds] = {};
struct Slot {
  BackendLoader loader = nullptr;
  bool tried = false;
  std::string reason = "no backend is built in";
};
Mutex& mutex() {
  static Mutex& one = *new Mutex(LockOrder::backend);
  return one;
}
[[maybe_unused]] const auto& g_made_at_start = mutex();  // in no fork's way
// Made on first use: the start-up file may run before this one's statics would be made.
Slot& slot(DeviceKind kind) {
  static Slot* slots = new Slot[kDeviceKinds];
  return slots[static_cast<int>(kind)];
}
}  // namespace

namespace {
Backend* opened(DeviceKind kind) {
  return g_backends[static_cast<int>(kind)].load(std::memory_order_acquire);
}

[[gnu::noinline]] Backend* open(DeviceKind kind) {
  std::lock_guard lock(mutex());
  Slot& s = slot(kind);
  if (s.loader && !s.tried) {
    s.tried = true;
    s.reason = s.loader();
  }
  return opened(kind);
}
[[noreturn, gnu::noinline]] void refuse(DeviceKind kind) {
  std::lock_guard lock(mutex());
  throw device_error("device: ", name(kind), " is not available here: ", slot(kind).reason,
                     ". Use `device` cpu, or fix that.");
}
}  // namespace

// Asked several times by each operation.
Backend* find_backend(DeviceKind kind) {
  Backend* found = opened(kind);
  return found ? found : open(kind);
}

Backend& backend(DeviceKind kind) {
  if (Backend* found = opened(kind)) [[likely]]
    return *found;
  if (Backend* found = open(kind)) return *found;
  refuse(kind);
}

void throw_out_of_memory(Device device, size_t asked, const MemoryStats& held, size_t free, size_t total) {
  const auto mib = [](size_t bytes) { return str((bytes >> 20) + (bytes % (1 << 20) != 0), " MiB"); };
  const size_t others = total > free + held.reserved ? total - free - held.reserved : 0;
  throw OutOfMemory(str("memory: ", device, " must have ", asked, " bytes (", mib(asked),
                        ") for a tensor; it has ", mib(free), " free of ", mib(total), ": tensors hold ",
                        mib(held.in_use), " (at most ", mib(held.peak), " so far), the cache keeps ",
                        mib(held.cached()), ", ", mib(others),
                        " are taken by others. Use a smaller batch, checkpoint() parts of the model, compute "
                        "in bf16, or end what else runs there."));
}

void register_backend(DeviceKind kind, std::unique_ptr<Backend> implementation) {
  // Lives until the process ends: tensors in static storage may outlive any destruction order.
  g_backends[static_cast<int>(kind)].store(implementation.release(), std::memory_order_release);
}

void set_backend_loader(DeviceKind kind, BackendLoader loader) {
  std::lock_guard lock(mutex());
  slot(kind).loader = loader;
}

void refuse_without_kernel(const char* op, Device device) {
  if (const std::string why = backend(device).missing_kernels(); !why.empty())
    throw device_error(op, ": there must be kernels for ", device, "; ", why);
  throw Error(str(op, ": has no kernel for ", device, ". Move its inputs to another device first."));
}

}  // namespace tandem
