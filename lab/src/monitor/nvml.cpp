// Opening NVML and reading a GPU.
#include "lab/src/monitor/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

// Numbers of NVML's interface.
constexpr int kInsufficientSize = 7, kFunctionNotFound = 13;
constexpr int kTemperatureOfGpu = 0, kGraphicsClock = 0, kMemoryClock = 2;
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr size_t kTextBytes = 96;

/// Fills one function of the table; a null stays where the library has none of that name.
template <class Function>
void load(void* library, Function& function, const char* name, const char* older = nullptr) {
  void* symbol = dlsym(library, name);
  if (!symbol && older) symbol = dlsym(library, older);
  function = reinterpret_cast<Function>(symbol);
}

NvmlFunctions load_functions(void* library) {
  NvmlFunctions table;
#define LOAD(function) load(library, table.function, "nvml" #function)
  LOAD(Init_v2);
  LOAD(Shutdown);
  LOAD(ErrorString);
  LOAD(SystemGetDriverVersion);
  LOAD(DeviceGetCount_v2);
  LOAD(DeviceGetHandleByIndex_v2);
  LOAD(DeviceGetUUID);
  LOAD(DeviceGetName);
  LOAD(DeviceGetUtilizationRates);
  LOAD(DeviceGetMemoryInfo);
  LOAD(DeviceGetMemoryInfo_v2);
  LOAD(DeviceGetTemperature);
  LOAD(DeviceGetPowerUsage);
  LOAD(DeviceGetTotalEnergyConsumption);
  LOAD(DeviceGetClockInfo);
  LOAD(DeviceGetMaxClockInfo);
  LOAD(DeviceGetEnforcedPowerLimit);
  LOAD(DeviceGetPersistenceMode);
#undef LOAD
  // The same structure under both names, and the same bits.
  load(library, table.DeviceGetComputeRunningProcesses_v3, "nvmlDeviceGetComputeRunningProcesses_v3",
       "nvmlDeviceGetComputeRunningProcesses_v2");
  load(library, table.DeviceGetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons",
       "nvmlDeviceGetCurrentClocksEventReasons");
  return table;
}

template <class Function, class... Arguments>
int call(Function function, Arguments... arguments) {
  return function ? function(arguments...) : kFunctionNotFound;
}

}  // namespace

std::shared_ptr<const Nvml> Nvml::open(const std::string& library, std::string& why) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* const reason = dlerror();
    why = str(library, " is not there or cannot be opened (", reason ? reason : "no reason given", ")");
    return nullptr;
  }
  auto nvml = start(load_functions(handle), why);
  if (!nvml) {
    dlclose(handle);
    return nullptr;
  }
  std::const_pointer_cast<Nvml>(nvml)->library_ = handle;
  return nvml;
}

std::shared_ptr<const Nvml> Nvml::start(const NvmlFunctions& functions, std::string& why) {
  const std::shared_ptr<Nvml> nvml(new Nvml);
  nvml->functions_ = functions;
  if (const int error = call(functions.Init_v2); error != 0) {
    why = nvml->failure("nvmlInit_v2", error);
    return nullptr;
  }
  nvml->started_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (started_) call(functions_.Shutdown);
  if (library_) dlclose(library_);
}

std::string Nvml::failure(const char* name, int error) const {
  if (error == kFunctionNotFound) return str(name, ": this version of NVML does not have it");
  const char* const text = functions_.ErrorString ? functions_.ErrorString(error) : nullptr;
  return text ? str(name, ": ", text) : str(name, ": error ", error);
}

std::string Nvml::driver_version() const {
  char text[kTextBytes] = {};
  return call(functions_.SystemGetDriverVersion, text, unsigned{kTextBytes - 1}) == 0 ? text : "";
}

unsigned Nvml::device_count() const {
  unsigned count = 0;
  return call(functions_.DeviceGetCount_v2, &count) == 0 ? count : 0;
}

std::unique_ptr<Gpu> Gpu::find(std::shared_ptr<const Nvml> nvml, int index, const char* visible,
                               std::string& why) {
  const NvmlFunctions& functions = nvml->functions();
  std::string wanted = std::to_string(index);
  if (visible) {
    std::string_view list = visible;
    for (int i = 0; i < index && !list.empty(); ++i) {
      const size_t comma = list.find(',');
      list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    }
    wanted = list.substr(0, list.find(','));
    if (wanted.empty()) {
      why = str("CUDA_VISIBLE_DEVICES is '", visible, "', which shows no GPU ", index);
      return nullptr;
    }
  }
  NvmlFunctions::Handle handle = nullptr;
  unsigned number = 0;
  const auto [end, failure] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  if (failure == std::errc() && end == wanted.data() + wanted.size()) {
    if (const int error = call(functions.DeviceGetHandleByIndex_v2, number, &handle); error != 0) {
      why = str(nvml->failure("nvmlDeviceGetHandleByIndex_v2", error), " (GPU ", number, " of ",
                nvml->device_count(), ")");
      return nullptr;
    }
    return std::unique_ptr<Gpu>(new Gpu(std::move(nvml), handle));
  }
  // CUDA takes the first letters of a name such as GPU-8932f937-… too.
  for (unsigned i = 0; i < nvml->device_count(); ++i) {
    char uuid[kTextBytes] = {};
    if (call(functions.DeviceGetHandleByIndex_v2, i, &handle) == 0 &&
        call(functions.DeviceGetUUID, handle, uuid, unsigned{kTextBytes - 1}) == 0 &&
        std::string_view(uuid).starts_with(wanted))
      return std::unique_ptr<Gpu>(new Gpu(std::move(nvml), handle));
  }
  why = str("NVML has no GPU '", wanted, "', which CUDA_VISIBLE_DEVICES names");
  return nullptr;
}

GpuValue Gpu::unavailable(const char* name, int error) const {
  return {std::nullopt, name, nvml_->failure(name, error)};
}

GpuValue Gpu::percent() const {
  const char* const name = "nvmlDeviceGetUtilizationRates";
  NvmlFunctions::Utilization rates{};
  const int error = call(nvml_->functions().DeviceGetUtilizationRates, handle_, &rates);
  return error ? unavailable(name, error) : GpuValue{static_cast<double>(rates.gpu), name, ""};
}

GpuValue Gpu::memory_bytes() const {
  const char* const name = "nvmlDeviceGetMemoryInfo_v2";
  NvmlFunctions::Memory_v2 memory{};
  memory.version = static_cast<unsigned>(sizeof(memory)) | (2u << 24);
  if (call(nvml_->functions().DeviceGetMemoryInfo_v2, handle_, &memory) == 0)
    return {static_cast<double>(memory.used), name, ""};
  const char* const older = "nvmlDeviceGetMemoryInfo";
  NvmlFunctions::Memory all{};
  const int error = call(nvml_->functions().DeviceGetMemoryInfo, handle_, &all);
  return error ? unavailable(older, error) : GpuValue{static_cast<double>(all.used), older, ""};
}

GpuValue Gpu::temperature_c() const {
  const char* const name = "nvmlDeviceGetTemperature";
  unsigned degrees = 0;
  const int error = call(nvml_->functions().DeviceGetTemperature, handle_, kTemperatureOfGpu, &degrees);
  return error ? unavailable(name, error) : GpuValue{static_cast<double>(degrees), name, ""};
}

GpuValue Gpu::power_w() const {
  const char* const name = "nvmlDeviceGetPowerUsage";
  unsigned milliwatts = 0;
  const int error = call(nvml_->functions().DeviceGetPowerUsage, handle_, &milliwatts);
  return error ? unavailable(name, error) : GpuValue{1e-3 * milliwatts, name, ""};
}

GpuValue Gpu::energy_j() const {
  const char* const name = "nvmlDeviceGetTotalEnergyConsumption";
  unsigned long long millijoules = 0;
  const int error = call(nvml_->functions().DeviceGetTotalEnergyConsumption, handle_, &millijoules);
  return error ? unavailable(name, error) : GpuValue{1e-3 * static_cast<double>(millijoules), name, ""};
}

GpuValue Gpu::memory_bytes(const std::vector<pid_t>& pids) const {
  const char* const name = "nvmlDeviceGetComputeRunningProcesses_v3";
  std::vector<NvmlFunctions::Process> processes(32);
  int error = kInsufficientSize;
  unsigned count = 0;
  // Processes may come between the two calls.
  for (int attempt = 0; attempt < 4 && error == kInsufficientSize; ++attempt) {
    count = static_cast<unsigned>(processes.size());
    error = call(nvml_->functions().DeviceGetComputeRunningProcesses_v3, handle_, &count, processes.data());
    if (error == kInsufficientSize) processes.resize(std::max<size_t>(count, processes.size()) + 16);
  }
  if (error) return unavailable(name, error);
  GpuValue sum{std::nullopt, name, ""};
  for (unsigned i = 0; i < std::min<size_t>(count, processes.size()); ++i) {
    const NvmlFunctions::Process& process = processes[i];
    if (std::find(pids.begin(), pids.end(), static_cast<pid_t>(process.pid)) == pids.end()) continue;
    if (process.memory == kNotAvailable)
      return {std::nullopt, name, str(name, ": memory by process is not known here")};
    sum.value = sum.value.value_or(0) + static_cast<double>(process.memory);
  }
  if (!sum.value)
    sum.why = str(name, ": none of the ", count, " processes that it lists is of the tree (",
                  "none uses the GPU, or the container numbers processes in its own way)");
  return sum;
}

std::vector<std::string> Gpu::throttling() const {
  static constexpr struct {
    unsigned long long bit;
    const char* name;
  } kReasons[] = {{0x4, "sw_power_cap"},         {0x8, "hw_slowdown"},     {0x20, "sw_thermal_slowdown"},
                  {0x40, "hw_thermal_slowdown"}, {0x80, "hw_power_brake"}, {0x10, "sync_boost"}};
  unsigned long long bits = 0;
  std::vector<std::string> names;
  if (call(nvml_->functions().DeviceGetCurrentClocksThrottleReasons, handle_, &bits) != 0) return names;
  for (const auto& reason : kReasons)
    if (bits & reason.bit) names.emplace_back(reason.name);
  return names;
}

std::string Gpu::name() const {
  char text[kTextBytes] = {};
  return call(nvml_->functions().DeviceGetName, handle_, text, unsigned{kTextBytes - 1}) == 0 ? text : "";
}

std::optional<unsigned> Gpu::clock_mhz(bool memory) const {
  unsigned mhz = 0;
  const int error =
      call(nvml_->functions().DeviceGetClockInfo, handle_, memory ? kMemoryClock : kGraphicsClock, &mhz);
  return error ? std::nullopt : std::optional(mhz);
}

std::optional<unsigned> Gpu::max_clock_mhz(bool memory) const {
  unsigned mhz = 0;
  const int error =
      call(nvml_->functions().DeviceGetMaxClockInfo, handle_, memory ? kMemoryClock : kGraphicsClock, &mhz);
  return error ? std::nullopt : std::optional(mhz);
}

std::optional<double> Gpu::power_limit_w() const {
  unsigned milliwatts = 0;
  if (call(nvml_->functions().DeviceGetEnforcedPowerLimit, handle_, &milliwatts) != 0) return std::nullopt;
  return 1e-3 * milliwatts;
}

std::optional<bool> Gpu::persistence() const {
  int mode = 0;
  if (call(nvml_->functions().DeviceGetPersistenceMode, handle_, &mode) != 0) return std::nullopt;
  return mode != 0;
}

}  // namespace tandem::lab
