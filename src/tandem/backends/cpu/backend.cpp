#include "tandem/backends/cpu/backend.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "tandem/backends/cpu/allocator.h"
#include "tandem/backends/cpu/fused.h"
#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/stream.h"
#include "tandem/backends/cpu/thread_memory.h"
#include "tandem/core/activity.h"
#include "tandem/core/error.h"
#include "tandem/core/threads.h"

// The kernels under kernels/: those that are compiled once, and for each level of the instruction set its own and those that end
// at AVX2. Weak: a build for one level (TANDEM_CPU_LEVELS in CMakeLists.txt) does not hold those of the others.
#define TD_IN_THIS_BUILD [[gnu::weak, gnu::visibility("hidden")]]
namespace tandem::cpu::baseline {
void register_common();
TD_IN_THIS_BUILD void register_all();
TD_IN_THIS_BUILD void register_narrow();
}  // namespace tandem::cpu::baseline
namespace tandem::cpu::avx2 {
TD_IN_THIS_BUILD void register_all();
TD_IN_THIS_BUILD void register_narrow();
}  // namespace tandem::cpu::avx2
namespace tandem::cpu::avx512 {
TD_IN_THIS_BUILD void register_all();
}

namespace tandem::cpu {

namespace {

const char* g_level = "baseline";
/// Why this build has no kernels for this processor; empty: it has.
std::string& unfit() {
  static std::string& text = *new std::string;
  return text;
}

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

class CpuBackend final : public Backend {
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
  std::string missing_kernels() const override { return unfit(); }
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

/// A level of the instruction set. Null: this build does not hold its kernels.
struct Level {
  const char* name;
  void (*kernels)();
  void (*narrow_kernels)();
};

/// How many levels, from the lowest, may be used: those that the processor has, up to the one that TANDEM_ISA names (for tests).
size_t usable_levels(std::span<const Level> levels) {
  size_t usable = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable = 2;
  if (usable == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    usable = 3;
#endif
  if (const char* wanted = std::getenv("TANDEM_ISA"))
    for (size_t i = 0; i < usable; ++i)
      if (!std::strcmp(wanted, levels[i].name)) usable = i + 1;
  return usable;
}

/// Each level that may be used, from the lowest, puts its kernels over those of the one below. The instructions for bf16 belong to the
/// highest level that there is.
void register_levels() {
  const Level levels[] = {{"baseline", baseline::register_all, baseline::register_narrow},
                          {"avx2", avx2::register_all, avx2::register_narrow},
                          {"avx512", avx512::register_all, nullptr}};
  const size_t usable = usable_levels(levels);
  const char* highest = nullptr;
  std::string held;
  for (size_t i = 0; i < std::size(levels); ++i) {
    if (!levels[i].kernels) continue;
    held += (held.empty() ? "" : ", ") + std::string(levels[i].name);
    if (i < usable) highest = levels[i].name;
  }
  if (!highest) {
    unfit() = str(
        "this build of Tandem has them for ", held, ", and this process may use ", levels[usable - 1].name,
        " alone. Build it again on this machine, or with -DTANDEM_CPU_LEVELS=all, which runs everywhere.");
    return;
  }
  baseline::register_common();
  for (size_t i = 0; i < usable; ++i) {
    if (levels[i].kernels) levels[i].kernels();
    if (levels[i].narrow_kernels) levels[i].narrow_kernels();
  }
  g_level = highest;
#if defined(__x86_64__)
  choose_bf16_kernel(!std::strcmp(g_level, "avx512"));
#else
  choose_bf16_kernel(true);
#endif
}

}  // namespace

void start() {
  register_backend(DeviceKind::cpu, std::make_unique<CpuBackend>());
  register_levels();
}

std::string isa_level() { return g_level; }

}  // namespace tandem::cpu
