// NVML, NVIDIA's library of the GPU's readings, opened when the program runs: nothing of it is needed to build, and a machine
// without it has a reason instead of numbers. The few functions that are used are declared here, as NVML's interface
// gives them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem::lab {

/// The functions that are used, by NVML's own names without their first letters. All return 0 or an error's number. Those
/// that the library does not have are null.
struct NvmlFunctions {
  using Handle = void*;
  struct Utilization {
    unsigned gpu, memory;  // percent
  };
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
  };
  struct Process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
  };

  int (*Init_v2)() = nullptr;
  int (*Shutdown)() = nullptr;
  const char* (*ErrorString)(int) = nullptr;
  int (*SystemGetDriverVersion)(char*, unsigned) = nullptr;
  int (*DeviceGetCount_v2)(unsigned*) = nullptr;
  int (*DeviceGetHandleByIndex_v2)(unsigned, Handle*) = nullptr;
  int (*DeviceGetUUID)(Handle, char*, unsigned) = nullptr;
  int (*DeviceGetName)(Handle, char*, unsigned) = nullptr;
  int (*DeviceGetUtilizationRates)(Handle, Utilization*) = nullptr;
  int (*DeviceGetMemoryInfo)(Handle, Memory*) = nullptr;
  int (*DeviceGetMemoryInfo_v2)(Handle, Memory_v2*) = nullptr;
  int (*DeviceGetTemperature)(Handle, int, unsigned*) = nullptr;
  int (*DeviceGetPowerUsage)(Handle, unsigned*) = nullptr;
  int (*DeviceGetTotalEnergyConsumption)(Handle, unsigned long long*) = nullptr;
  int (*DeviceGetComputeRunningProcesses_v3)(Handle, unsigned*, Process*) = nullptr;
  int (*DeviceGetCurrentClocksThrottleReasons)(Handle, unsigned long long*) = nullptr;
  int (*DeviceGetClockInfo)(Handle, int, unsigned*) = nullptr;
  int (*DeviceGetMaxClockInfo)(Handle, int, unsigned*) = nullptr;
  int (*DeviceGetEnforcedPowerLimit)(Handle, unsigned*) = nullptr;
  int (*DeviceGetPersistenceMode)(Handle, int*) = nullptr;
};

/// The library, opened and started; shut down with the last owner.
class Nvml {
 public:
  /// Opens the library, or returns null with the reason.
  static std::shared_ptr<const Nvml> open(const std::string& library, std::string& why);
  /// The same with functions that are there already.
  static std::shared_ptr<const Nvml> start(const NvmlFunctions& functions, std::string& why);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const NvmlFunctions& functions() const { return functions_; }
  /// "nvmlInit_v2: Driver Not Loaded".
  std::string failure(const char* call, int error) const;
  std::string driver_version() const;
  unsigned device_count() const;

 private:
  Nvml() = default;
  NvmlFunctions functions_;
  void* library_ = nullptr;
  bool started_ = false;
};

/// A number, or why there is none. `source` is the library's function.
struct GpuValue {
  std::optional<double> value;
  const char* source = "";
  std::string why;
};

/// One GPU. Its functions may be called from any thread.
class Gpu {
 public:
  /// GPU `index` of those that CUDA shows to a program: `visible` is the value of CUDA_VISIBLE_DEVICES, null where it is not
  /// set. NVML counts in the order of the PCI bus, and so does CUDA among equal GPUs. Returns null with the reason.
  static std::unique_ptr<Gpu> find(std::shared_ptr<const Nvml> nvml, int index, const char* visible,
                                   std::string& why);

  GpuValue percent() const;       // of the time, over the last fraction of a second, in which a kernel ran
  GpuValue memory_bytes() const;  // in use by all processes
  GpuValue temperature_c() const;
  GpuValue power_w() const;
  GpuValue energy_j() const;  // since the driver was loaded
  /// Of these processes alone. No number where NVML lists none of them, as in a container with process numbers of its own.
  GpuValue memory_bytes(const std::vector<pid_t>& pids) const;
  /// Names of what holds the clocks down now, "sw_power_cap" for example; being idle and a clock that the user set are not
  /// among them.
  std::vector<std::string> throttling() const;

  std::string name() const;
  std::optional<unsigned> clock_mhz(bool memory) const, max_clock_mhz(bool memory) const;
  std::optional<double> power_limit_w() const;
  std::optional<bool> persistence() const;

 private:
  Gpu(std::shared_ptr<const Nvml> nvml, NvmlFunctions::Handle handle)
      : nvml_(std::move(nvml)), handle_(handle) {}
  GpuValue unavailable(const char* call, int error) const;

  std::shared_ptr<const Nvml> nvml_;
  NvmlFunctions::Handle handle_;
};

}  // namespace tandem::lab
