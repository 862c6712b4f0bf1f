#include "tandem/backends/cpu/backend.h"

#include <cstdlib>
#include <cstring>

#include "tandem/backends/cpu/allocator.h"
#include "tandem/backends/cpu/fused.h"
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

/// Scratch memory of one host thread, kept between kernels.
struct Scratch {
  void* data = nullptr;
  size_t bytes = 0;
  ~Scratch() { release(data, bytes); }
};

void* scratch(void*, size_t bytes) {
  thread_local Scratch memory;
  if (memory.bytes < bytes || !memory.data) {
    release(memory.data, memory.bytes);
    memory = {nullptr, 0};
    memory.data = allocate(bytes);
    memory.bytes = bytes;
  }
  return memory.data;
}

class CpuBackend : public Backend {
 public:
  int device_count() const override { return 1; }
  std::string describe(Device) const override { return cat(threads(), " threads, ", g_level, " kernels"); }
  void* allocate(Device, size_t bytes) override { return cpu::allocate(bytes); }
  void free(Device, void* data, size_t bytes) noexcept override { release(data, bytes); }
  MemoryStats memory(Device) const override { return memory_stats(); }
  void reset_peak(Device) override { cpu::reset_peak(); }
  void copy_from_host(Device, void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void copy_to_host(Device, void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void copy_within(Device, void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void synchronize(Device) override {}
  void prepare(Device, KernelArgs& args) override { args.scratch = scratch; }
  std::unique_ptr<FusedKernel> compile_fused(Device, const std::vector<FusedProgram>& programs) override {
    return cpu::compile_fused(programs);
  }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes) std::memcpy(to, from, bytes);
  }
};

/// The best level that the processor has; TANDEM_ISA names a lower one, for tests.
void register_best_level() {
#ifdef TANDEM_HAS_AVX2
  const char* wanted = std::getenv("TANDEM_ISA");
  const auto allowed = [&](const char* level) { return !wanted || !std::strcmp(wanted, level); };
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && allowed("avx512")) {
    g_level = "avx512";
    return avx512::register_kernels();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && allowed("avx2")) {
    g_level = "avx2";
    return avx2::register_kernels();
  }
#endif
  baseline::register_kernels();
}

}  // namespace

void start() {
  register_backend(DeviceKind::cpu, std::make_unique<CpuBackend>());
  register_best_level();
}

std::string isa_level() { return g_level; }

}  // namespace tandem::cpu
