// A GPU that is not there: NVML's functions, answering from the numbers below.
#pragma once

#include <sys/types.h>

#include <cstring>
#include <vector>

#include "lab/src/monitor/nvml.h"

namespace tandem::lab {

struct FakeGpu {
  int init_error = 0;
  unsigned percent = 73, temperature = 55, power_mw = 250000;
  unsigned long long used = 3ull << 30, energy_mj = 1000000, throttle = 1;
  unsigned long long energy_step_mj = 0;  // added at each reading of the energy
  std::vector<NvmlFunctions::Process> processes;
  int starts = 0, stops = 0;
};
inline FakeGpu g_gpu;

/// All functions that a new driver has. There are two GPUs; the second has a temperature of 20 degrees more.
inline NvmlFunctions fake_nvml() {
  using Handle = NvmlFunctions::Handle;
  NvmlFunctions f;
  f.Init_v2 = [] { return g_gpu.init_error ? g_gpu.init_error : (++g_gpu.starts, 0); };
  f.Shutdown = [] { return ++g_gpu.stops, 0; };
  f.ErrorString = [](int error) {
    return error == 9 ? "Driver Not Loaded" : error == 2 ? "Invalid Argument" : "Oh";
  };
  f.SystemGetDriverVersion = [](char* to, unsigned) { return std::strcpy(to, "570.11"), 0; };
  f.DeviceGetCount_v2 = [](unsigned* count) { return *count = 2, 0; };
  f.DeviceGetHandleByIndex_v2 = [](unsigned index, Handle* handle) {
    if (index > 1) return 2;
    static int devices[2];
    *handle = &devices[index];
    devices[index] = static_cast<int>(index);
    return 0;
  };
  f.DeviceGetUUID = [](Handle handle, char* to, unsigned) {
    return std::strcpy(to, *static_cast<int*>(handle) ? "GPU-bb22" : "GPU-aa11"), 0;
  };
  f.DeviceGetName = [](Handle, char* to, unsigned) { return std::strcpy(to, "Imaginary 3000"), 0; };
  f.DeviceGetUtilizationRates = [](Handle, NvmlFunctions::Utilization* to) {
    return *to = {g_gpu.percent, 5}, 0;
  };
  f.DeviceGetMemoryInfo = [](Handle, NvmlFunctions::Memory* to) {
    return *to = {80ull << 30, 0, g_gpu.used + (1ull << 30)}, 0;
  };
  f.DeviceGetMemoryInfo_v2 = [](Handle, NvmlFunctions::Memory_v2* to) {
    if (to->version != (sizeof(*to) | 2u << 24)) return 25;
    to->used = g_gpu.used;
    return 0;
  };
  f.DeviceGetTemperature = [](Handle handle, int, unsigned* to) {
    return *to = g_gpu.temperature + 20u * static_cast<unsigned>(*static_cast<int*>(handle)), 0;
  };
  f.DeviceGetPowerUsage = [](Handle, unsigned* to) { return *to = g_gpu.power_mw, 0; };
  f.DeviceGetTotalEnergyConsumption = [](Handle, unsigned long long* to) {
    return *to = g_gpu.energy_mj += g_gpu.energy_step_mj, 0;
  };
  f.DeviceGetComputeRunningProcesses_v3 = [](Handle, unsigned* count, NvmlFunctions::Process* to) {
    const auto have = static_cast<unsigned>(g_gpu.processes.size());
    const bool fits = *count >= have;
    *count = have;
    if (fits && have) std::memcpy(to, g_gpu.processes.data(), have * sizeof(*to));
    return fits ? 0 : 7;
  };
  f.DeviceGetCurrentClocksThrottleReasons = [](Handle, unsigned long long* to) {
    return *to = g_gpu.throttle, 0;
  };
  f.DeviceGetClockInfo = [](Handle, int type, unsigned* to) { return *to = type == 2 ? 2619u : 1980u, 0; };
  f.DeviceGetMaxClockInfo = [](Handle, int type, unsigned* to) { return *to = type == 2 ? 2619u : 2100u, 0; };
  f.DeviceGetEnforcedPowerLimit = [](Handle, unsigned* to) { return *to = 700000, 0; };
  f.DeviceGetPersistenceMode = [](Handle, int* to) { return *to = 1, 0; };
  return f;
}

}  // namespace tandem::lab
