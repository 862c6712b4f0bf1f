// Steps as a CUDA graph: captured on a stream of its own, their order given by what they read rather than by the
// stream, so that independent steps may run side by side on up to kLanes lanes.
#include "tandem/backends/cuda/record.h"

#include <algorithm>
#include <set>

#include "tandem/backends/cuda/capture.h"

namespace tandem::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  GraphRecording(DeviceState& state, cudaGraphExec_t executable,
                 std::vector<std::shared_ptr<Scratch>> scratch)
      : state_(state), executable_(executable), scratch_(std::move(scratch)) {}
  ~GraphRecording() override {
    // Launches in flight keep what they need; a failure here (process exit) has nobody to go to.
    (void)cudaGraphExecDestroy(executable_);
  }
  void replay() override {
    check(cudaSetDevice(state_.index), "cudaSetDevice");
    check(cudaGraphLaunch(executable_, state_.queue), "cudaGraphLaunch");
  }

 private:
  DeviceState& state_;
  cudaGraphExec_t executable_;
  std::vector<std::shared_ptr<Scratch>> scratch_;  // by lane: the recorded kernels hold their addresses
};

/// The lane of each step: that of a step it waits for where that one is the last of its lane, else the one left alone
/// longest. Steps of one lane follow each other.
struct Lanes {
  int last[kLanes];
  Lanes() { std::fill(last, last + kLanes, -1); }
  int choose(const std::vector<int>& after) const {
    int best = -1;
    for (int lane = 0; lane < kLanes; ++lane)
      if (std::find(after.begin(), after.end(), last[lane]) != after.end() &&
          (best < 0 || last[lane] > last[best]))
        best = lane;
    return best >= 0 ? best : static_cast<int>(std::min_element(last, last + kLanes) - last);
  }
};

/// Launches every step into the capture, each behind the nodes that it must follow.
/// A step waits for the steps it reads from and for the one before it on its lane, whose scratch and counters it
/// shares. In the end the stream waits for every node that nothing follows: a capture must end with all of its
/// branches joined.
void capture_steps(DeviceState& state, cudaStream_t stream, const std::vector<RecordStep>& steps,
                   const std::vector<std::shared_ptr<Scratch>>& scratch) {
  Lanes lanes;
  std::vector<std::vector<cudaGraphNode_t>> ends(steps.size());  // the last nodes of each step
  std::set<cudaGraphNode_t> open;                                // nodes that nothing follows yet
  for (size_t i = 0; i < steps.size(); ++i) {
    const int lane = lanes.choose(steps[i].after);
    std::vector<int> after = steps[i].after;
    if (lanes.last[lane] >= 0) after.push_back(lanes.last[lane]);
    std::set<cudaGraphNode_t> before;
    for (int step : after)
      before.insert(ends[static_cast<size_t>(step)].begin(), ends[static_cast<size_t>(step)].end());
    wait_for(stream, {before.begin(), before.end()});
    {
      const ContextScope scope(state, {scratch[static_cast<size_t>(lane)], stream});
      steps[i].launch();
    }
    ends[i] = waiting_for(stream);
    lanes.last[lane] = static_cast<int>(i);
    for (cudaGraphNode_t node : before) open.erase(node);
    open.insert(ends[i].begin(), ends[i].end());
  }
  wait_for(stream, {open.begin(), open.end()});
}

}  // namespace

std::unique_ptr<Recording> record(DeviceState& state, const std::vector<RecordStep>& steps) {
  // Old blocks stay where a scratch grows during the capture: kernels already recorded hold their addresses.
  std::vector<std::shared_ptr<Scratch>> scratch;
  for (int lane = 0; lane < kLanes; ++lane) {
    scratch.push_back(std::make_shared<Scratch>(&state, lane));
    scratch.back()->keep_old_blocks();
  }
  CaptureStream stream;
  cudaGraph_t graph = nullptr;
  // Relaxed: other calls of this thread, such as an allocation, are let through and are not recorded.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  try {
    capture_steps(state, stream, steps, scratch);
  } catch (const AbandonedCapture&) {
    stream.abandon();
    throw;
  } catch (...) {
    if (cudaGraph_t failed = stream.end_failed()) (void)cudaGraphDestroy(failed);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  // Owned before the upload, which may throw.
  auto recording = std::make_unique<GraphRecording>(state, executable, std::move(scratch));
  check(cudaGraphUpload(executable, state.queue), "cudaGraphUpload");
  return recording;
}

}  // namespace tandem::cuda
