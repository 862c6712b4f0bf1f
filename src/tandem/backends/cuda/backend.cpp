// The CUDA backend: memory and copies of each GPU, and the start-up call that puts it in place.
#include <cuda_runtime.h>
#include <nvrtc.h>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/fused.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/record.h"
#include "tandem/backends/cuda/stream.h"
#include "tandem/backends/cuda/watch.h"
#include "tandem/core/activity.h"

namespace tandem::cuda {
namespace {

constexpr size_t kStagedBytes = size_t{64}
                                << 10;  // copies to the device from here on go through pinned buffers

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int count) : count_(count) {}

  int device_count() const override { return count_; }

  std::string describe(Device device) const override {
    cudaDeviceProp p{};  // not device_state(): a look at the machine should not set up streams and libraries
    check(cudaGetDeviceProperties(&p, device.index), "cudaGetDeviceProperties");
    int runtime = 0, nvrtc_major = 0, nvrtc_minor = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    (void)nvrtcVersion(&nvrtc_major, &nvrtc_minor);
    const size_t dnn = cudnnGetVersion(), blas = cublasLtGetVersion();
    return str(p.name, ", compute capability ", p.major, ".", p.minor, ", ", p.multiProcessorCount,
               " multiprocessors, ", p.totalGlobalMem >> 20, " MiB; CUDA ", runtime / 1000, ".",
               runtime % 1000 / 10, ", cuBLASLt ", blas / 10000, ".", blas / 100 % 100, ", cuDNN ",
               dnn / 10000, ".", dnn / 100 % 100, ".", dnn % 100, ", NVRTC ", nvrtc_major, ".", nvrtc_minor,
               ", tf32 ", allow_tf32() ? "on" : "off");
  }
  std::string arithmetic() const override { return allow_tf32() ? "cuda with tf32" : "cuda without tf32"; }

  void* allocate(Device device, size_t bytes) override {
    return device_state(device.index).memory.allocate(bytes);
  }
  void free(Device device, void* data, size_t bytes) noexcept override {
    // No CUDA call: this may run while the process ends, after the driver has gone.
    if (DeviceState* state = find_device_state(device.index)) state->memory.free(data, bytes);
  }
  MemoryStats memory(Device device) const override { return device_state(device.index).memory.stats(); }
  void reset_peak(Device device) override { device_state(device.index).memory.reset_peak(); }
  void empty_cache(Device device) override { device_state(device.index).memory.release_cached(); }

  void* allocate_pinned(size_t bytes) override { return cuda::allocate_pinned(bytes); }
  void free_pinned(void* data, size_t bytes) noexcept override { cuda::free_pinned(data, bytes); }
  std::unique_ptr<Stream> make_stream(Device device) override {
    return cuda::make_stream(device_state(device.index));
  }
  std::shared_ptr<const Event> mark(Device device) override {
    return cuda::mark(device_state(device.index).queue);
  }
  void wait(Device device, const Event& event) override {
    queue_behind(device_state(device.index).queue, event);
  }
  void hold_until(Device device, void* data, std::shared_ptr<const Event> event) override {
    device_state(device.index).memory.hold_until(data, std::move(event));
  }

  void copy_from_host(Device device, void* to, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy from host", bytes);
    if (bytes == 0) return;
    DeviceState& state = device_state(device.index);
    if (bytes >= kStagedBytes) return state.staging.copy(to, from, bytes, state.queue);
    // Of few bytes the driver takes a copy at once. Unless they are in pinned memory, which it reads later: wait, since
    // the caller may change it as soon as this returns.
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state.queue), "cudaMemcpyAsync to device");
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, from), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeHost)
      check(cudaStreamSynchronize(state.queue), "cudaStreamSynchronize");
  }
  void copy_to_host(Device device, void* to, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy to host", bytes);
    DeviceState& state = device_state(device.index);
    if (bytes != 0)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, state.queue), "cudaMemcpyAsync to host");
    state.synchronize();
  }
  void copy_within(Device device, void* to, const void* from, size_t bytes) override {
    const NotedCopy note(device, "copy within", bytes);
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                          device_state(device.index).current_stream()),
          "cudaMemcpyAsync within the device");
  }
  void copy_between(Device to_device, void* to, Device from_device, const void* from, size_t bytes) override {
    if (to_device == from_device) return copy_within(to_device, to, from, bytes);
    const NotedCopy note(to_device, "copy between", bytes);
    if (bytes == 0) return;
    const std::shared_ptr<const Event> ready = mark(from_device);
    DeviceState& target = device_state(to_device.index);
    queue_behind(target.queue, *ready);
    check(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, target.queue),
          "cudaMemcpyPeerAsync");
    const std::shared_ptr<const Event> done = cuda::mark(target.queue);
    queue_behind(device_state(from_device.index).queue, *done);
  }
  void synchronize(Device device) override { device_state(device.index).synchronize(); }

  DeviceContext& context(Device device) override { return device_state(device.index); }

  std::unique_ptr<FusedKernel> compile_fused(Device device,
                                             const std::vector<FusedProgram>& programs) override {
    return cuda::compile_fused(device_state(device.index), programs);
  }
  std::unique_ptr<Recording> record(Device device, const std::vector<RecordStep>& steps) override {
    return cuda::record(device_state(device.index), steps);
  }
  bool records() const override { return true; }
  RecordedControl* recorded_control(Device device) override {
    return device_state(device.index).control.get();
  }
  std::vector<DeviceActivity> watch(Device device, const std::function<void()>& work) override {
    return cuda::watch(device_state(device.index), work);
  }
  std::vector<DeviceActivity> watch_by_events(Device device, const std::function<void()>& work) override {
    return cuda::watch_by_events(device_state(device.index), work);
  }

 private:
  int count_;
};

/// The reason why no GPU can be used, or empty.
std::string start() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess)
    return str("no usable GPU: ", cudaGetErrorString(status));
  if (count == 0) return "no GPU is visible to this process";
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  if (properties.major * 10 + properties.minor < 75)
    return str("GPU ", properties.name, " has compute capability ", properties.major, ".", properties.minor,
               "; 7.5 or above is needed");
#define TD_LISTED(family) family();
#include "lists/cuda_kernels.inc"
#undef TD_LISTED
  register_backend(DeviceKind::cuda, std::make_unique<CudaBackend>(count));
  return "";
}

}  // namespace
}  // namespace tandem::cuda

/// Puts the CUDA backend in place: null where that worked, else the reason why not (valid for ever).
extern "C" __attribute__((visibility("default"))) const char* tandem_cuda_start() {
  static const std::string& reason = *new std::string([] {
    try {
      return tandem::cuda::start();
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  }());
  return reason.empty() ? nullptr : reason.c_str();
}
