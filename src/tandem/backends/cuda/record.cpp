#include "tandem/backends/cuda/record.h"

#include "tandem/backends/cuda/check.h"

namespace tandem::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  GraphRecording(DeviceState& state, cudaGraphExec_t executable, std::shared_ptr<Scratch> scratch)
      : state_(state), executable_(executable), scratch_(std::move(scratch)) {}
  ~GraphRecording() override {
    // Launches in flight keep what they need; a failure here (process exit) has nobody to go to.
    (void)cudaGraphExecDestroy(executable_);
  }
  void replay() override {
    check(cudaSetDevice(state_.index), "cudaSetDevice");
    check(cudaGraphLaunch(executable_, state_.stream), "cudaGraphLaunch");
  }

 private:
  DeviceState& state_;
  cudaGraphExec_t executable_;
  std::shared_ptr<Scratch> scratch_;  // the recorded kernels hold its addresses
};

/// Gives the thread a scratch of its own for a scope.
class ScratchScope {
 public:
  ScratchScope(DeviceState& state, std::shared_ptr<Scratch> scratch)
      : state_(state), previous_(exchange_thread_scratch(state, std::move(scratch))) {}
  ~ScratchScope() { exchange_thread_scratch(state_, std::move(previous_)); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  DeviceState& state_;
  std::shared_ptr<Scratch> previous_;
};

}  // namespace

std::unique_ptr<Recording> record(DeviceState& state, const std::function<void()>& launch) {
  // The work ran once before on this thread as a rule, so its scratch has the size that it needs; where not,
  // it grows during the capture, and the old blocks stay for the kernels already recorded.
  auto scratch = std::make_shared<Scratch>(&state);
  scratch->keep_old_blocks();
  if (const size_t bytes = thread_scratch(state).bytes()) scratch->get(bytes);
  cudaGraph_t graph = nullptr;
  {
    ScratchScope scope(state, scratch);
    // Relaxed: other calls of this thread, such as an allocation, are let through and are not recorded.
    check(cudaStreamBeginCapture(state.stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    try {
      launch();
    } catch (...) {
      (void)cudaStreamEndCapture(state.stream, &graph);
      if (graph) (void)cudaGraphDestroy(graph);
      (void)cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(state.stream, &graph), "cudaStreamEndCapture");
  }
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  auto recording = std::make_unique<GraphRecording>(state, executable, std::move(scratch));
  check(cudaGraphUpload(executable, state.stream), "cudaGraphUpload");
  return recording;
}

}  // namespace tandem::cuda
