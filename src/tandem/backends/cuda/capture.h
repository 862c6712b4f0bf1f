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
  ~CaptureStream() {
    if (stream_) (void)cudaStreamDestroy(stream_);
  }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  operator cudaStream_t() const { return stream_; }
  bool is_invalidated() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream_, &status) != cudaSuccess ||
           status == cudaStreamCaptureStatusInvalidated;
  }
  /// Ends a capture that failed, before the stream goes, and gives what it captured, or null. Its error is taken off, so
  /// that no later call reports it.
  cudaGraph_t end_failed() {
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream_, &graph);
    (void)cudaGetLastError();
    return graph;
  }
  /// Leaves the stream and what it captures to the end of the process.
  void abandon() {
    stream_ = nullptr;
    (void)cudaGetLastError();
  }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The driver has given up capturing the graph of a conditional node. Drivers have been seen to crash where that capture, or
/// one around it, is then ended: all of them are abandoned.
struct AbandonedCapture : Error {
  using Error::Error;
};

/// The nodes that the stream's next launch would wait for; and the graph that is captured.
inline std::vector<cudaGraphNode_t> waiting_for(cudaStream_t stream, cudaGraph_t* graph = nullptr) {
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, graph, &nodes, &edges, &count),
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
