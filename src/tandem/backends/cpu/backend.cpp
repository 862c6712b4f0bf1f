#include "tandem/backends/cpu/backend.h"

#include <cstdlib>
#include <cstring>

#include "tandem/backends/cpu/allocator.h"
#include "tandem/backends/cpu/fused.h"
#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/stream.h"
#include "tandem/backends/cpu/thread_memory.h"
#include "tandem/core/activity.h"
#include "tandem/core/error.h"
#include "tandem/core/threads.h"

// The levels that this build holds; each comes from the files under kernels/, compiled for it.
namespace tandem::cpu::baseline {
void register_kernels();
}
#ifdef TANDEM_HAS_AVX2
namespace tandem::cpu::avx2 {
void register_kernels();
}
namespace tandem::cpu::avx512 {
void register_kernels();
}
#endif

namespace tandem::cpu {

namespace {

const char* g_level = "baseline";

/// How bf16 matrices are multiplied, after what else there is to say.
std::string bf16_products() {
  const Bf16Kernel* kernel = bf16_kernel();
  return kernel ? str(", bf16 products by ", kernel->name) : "";
}

class CpuContext final : public DeviceContext {
 public:
  void* stream() override { return nullptr; }
  void* workspace(size_t bytes) override { return thread_scratch(ScratchSlot::workspace, bytes); }
};
CpuContext g_context;  // of every device: a kernel runs in the thread that calls it

class CpuBackend : public Backend {
 public:
  int device_count() const override { return kDevices; }
  std::string describe(Device) const override {
    return str(threads(), " threads, ", g_level, " kernels", bf16_products());
  }
  std::string arithmetic()
      const override {  // levels sum in other orders, and the lowest has no fused multiply-add
#ifdef __aarch64__
    return str("cpu neon", bf16_products());
#else
    return str("cpu ", g_level, bf16_products());
#endif
  }
  void* allocate(Device device, size_t bytes) override { return cpu::allocate(device.index, bytes); }
  void free(Device device, void* data, size_t bytes) noexcept override { release(device.index, data, bytes); }
  MemoryStats memory(Device device) const override { return memory_stats(device.index); }
  void reset_peak(Device device) override { cpu::reset_peak(device.index); }
  void empty_cache(Device device) override { cpu::empty_cache(device.index); }
  void* allocate_pinned(size_t bytes) override { return cpu::allocate(0, bytes); }
  void free_pinned(void* data, size_t bytes) noexcept override { release(0, data, bytes); }
  std::unique_ptr<Stream> make_stream(Device) override { return cpu::make_stream(); }
  std::shared_ptr<const Event> mark(Device) override { return passed_event(); }
  void wait(Device, const Event& event) override { event.wait(); }
  void hold_until(Device, void* data, std::shared_ptr<const Event> event) override {
    cpu::hold_until(data, std::move(event));
  }
  void copy_from_host(Device device, void* to, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy from host", bytes);
    copy(to, from, bytes);
  }
  void copy_to_host(Device device, void* to, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy to host", bytes);
    copy(to, from, bytes);
  }
  void copy_within(Device device, void* to, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy within", bytes);
    copy(to, from, bytes);
  }
  void copy_between(Device device, void* to, Device, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy between", bytes);
    copy(to, from, bytes);
  }
  void synchronize(Device) override {}
  DeviceContext& context(Device) override { return g_context; }
  std::unique_ptr<FusedKernel> compile_fused(Device, const std::vector<FusedProgram>& programs) override {
    return cpu::compile_fused(programs);
  }
  std::vector<DeviceActivity> watch(Device device, const std::function<void()>& work) override {
    return watch_kernels(work, device);
  }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes) std::memcpy(to, from, bytes);
  }
};

/// Every level that the processor has, from the lowest: each puts its kernels over those of the one below. TANDEM_ISA
/// names the level to stop at, for tests. The instructions for bf16 belong to the highest.
void register_levels() {
  baseline::register_kernels();
#ifndef TANDEM_HAS_AVX2
  choose_bf16_kernel(true);
#endif
#ifdef TANDEM_HAS_AVX2
  const char* wanted = std::getenv("TANDEM_ISA");
  const auto add = [&](const char* level, bool has, void (*register_kernels)()) {
    if (!has || (wanted && !std::strcmp(wanted, g_level))) return false;
    g_level = level;
    register_kernels();
    return true;
  };
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (add("avx2", has_avx2, avx2::register_kernels)) add("avx512", has_avx512, avx512::register_kernels);
  choose_bf16_kernel(!std::strcmp(g_level, "avx512"));
#endif
}

}  // namespace

void start() {
  register_backend(DeviceKind::cpu, std::make_unique<CpuBackend>());
  register_levels();
}

std::string isa_level() { return g_level; }

}  // namespace tandem::cpu
