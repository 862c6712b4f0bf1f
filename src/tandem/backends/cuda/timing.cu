#include "tandem/backends/cuda/timing.h"

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"

namespace tandem::cuda {
namespace {

constexpr int kRuns = 3;
constexpr int64_t kHeldNanoseconds = 300'000;

/// Keeps the stream busy for so long, and nothing else.
__global__ void hold_kernel(int64_t nanoseconds) {
  const auto now = [] {
    int64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const int64_t begin = now();
  while (now() - begin < nanoseconds) __nanosleep(1000);
}

struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event); }
};

}  // namespace

double device_seconds(const KernelArgs& args, const std::function<void()>& run) {
  Event begin, end;
  const cudaStream_t stream = stream_of(args);
  hold_kernel<<<1, 1, 0, stream>>>(kHeldNanoseconds);
  launched("hold_kernel");
  check(cudaEventRecord(begin.event, stream), "cudaEventRecord");
  for (int i = 0; i < kRuns; ++i) run();
  check(cudaEventRecord(end.event, stream), "cudaEventRecord");
  check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.event, end.event), "cudaEventElapsedTime");
  return milliseconds / 1e3 / kRuns;
}

bool is_recording(const KernelArgs& args) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_of(args), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace tandem::cuda
