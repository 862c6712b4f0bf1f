// Capturing what a thread queues into a CUDA graph: streams for it, and the order of what is captured.
#pragma once

#include <vector>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"

namespace tandem::cuda {

/// Gives the thread a scratch and a stream of its own for a scope.
class ContextScope {
 public:
  ContextScope(DeviceState& state, ThreadContext context)
      : state_(state), previous_(exchange_thread_context(state, std::move(context))) {}
  ~ContextScope() { exchange_thread_context(state_, std::move(previous_)); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  DeviceState& state_;
  ThreadContext previous_;
};

/// A stream for one recording: the device's own queue goes on working for other threads.
class CaptureStream {
 public:
  CaptureStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~CaptureStream() { (void)cudaStreamDestroy(stream_); }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The nodes that the stream's next launch would wait for.
inline std::vector<cudaGraphNode_t> waiting_for(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
        "cudaStreamGetCaptureInfo");
  return {nodes, nodes + count};
}

/// Makes the stream's next launch wait for exactly these nodes, and no longer for what it launched before.
inline void wait_for(cudaStream_t stream, std::vector<cudaGraphNode_t> nodes) {
  check(cudaStreamUpdateCaptureDependencies(stream, nodes.data(), nullptr, nodes.size(),
                                            cudaStreamSetCaptureDependencies),
        "cudaStreamUpdateCaptureDependencies");
}

}  // namespace tandem::cuda
