// A conditional node has a handle, whose value a kernel before it (and, of a loop, one at the end of each run) sets from
// device memory, and graphs of its own, into which its branches or its run are captured, on a stream of their own and one
// kernel after the other. They take the scratch and the counters of the step's lane: they run in that step's place.
#include "tandem/backends/cuda/control.h"

#include <algorithm>
#include <array>

#include "tandem/backends/cuda/capture.h"

namespace tandem::cuda {
namespace {

constexpr int kVersion = 12080;  // of the driver: a conditional node has two branches since CUDA 12.8
constexpr int kThreads = 256;
constexpr int kCopies = 32;  // in one kernel
constexpr int64_t kMostBlocks = 1024;

/// One thread. A fault that has been reported ends a loop; null where none can be.
__global__ void decide_kernel(cudaGraphConditionalHandle handle, const bool* first, const bool* second,
                              const volatile IndexReport* faults) {
  const bool holds = *first && (!second || *second) && (!faults || faults->op == 0);
  cudaGraphSetConditional(handle, holds ? 1 : 0);
}

/// One thread.
__global__ void begin_kernel(LoopState* state, const LoopStart start) {
  state->run = 0;
  state->count = start.count_in ? *start.count_in : start.count;
  state->is_within = state->count > 0;
  const uint64_t blocks = start.random_blocks;
  state->random[0] = start.random ? start.random[0] : 0;
  state->random[1] = start.random ? start.random[1] + start.random_offset : 0;
  if (start.goes_back) state->random[1] += blocks * static_cast<uint64_t>(state->count - 1);
  state->random_step = start.goes_back ? 0 - blocks : blocks;
}

/// One thread.
__global__ void advance_kernel(LoopState* state) {
  state->run += 1;
  state->is_within = state->run < state->count;
  state->random[1] += state->random_step;
}

struct Copies {
  SliceCopy list[kCopies];
};

/// blockIdx.y is the copy; its threads go over it in steps of the grid, by 16 bytes where both ends allow it.
__global__ void __launch_bounds__(kThreads)
    copy_slices_kernel(const LoopState* state, const Copies copies, bool from_end) {
  const SliceCopy& copy = copies.list[blockIdx.y];
  const int64_t slice = from_end ? state->count - 1 - state->run : state->run;
  char* const to = copy.to + (copy.to_step ? copy.to_step * slice : 0);
  const char* const from = copy.from + (copy.from_step ? copy.from_step * slice : 0);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t done = 0;
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % sizeof(uint4) == 0) {
    const int64_t wide = copy.bytes / static_cast<int64_t>(sizeof(uint4));
    for (int64_t i = first; i < wide; i += step)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    done = wide * static_cast<int64_t>(sizeof(uint4));
  }
  for (int64_t i = done + first; i < copy.bytes; i += step) to[i] = from[i];
}

class ControlNodes final : public RecordedControl {
 public:
  explicit ControlNodes(DeviceState& state) : state_(state) {}

  bool is_recording() const override { return state_.current_stream() != state_.queue; }

  void branch(const bool* condition, const std::function<void()>& if_true,
              const std::function<void()>& if_false) override {
    const Conditional node(state_.current_stream(), cudaGraphCondTypeIf, if_false ? 2 : 1, condition, nullptr,
                           nullptr);
    capture(node.bodies[0], if_true);
    if (if_false) capture(node.bodies[1], if_false);
  }

  void repeat(const bool* is_within, const bool* condition, bool stops_at_fault,
              const std::function<void()>& run) override {
    const IndexReport* const faults = stops_at_fault ? state_.device_report : nullptr;
    const Conditional node(state_.current_stream(), cudaGraphCondTypeWhile, 1, is_within, condition, faults);
    capture(node.bodies[0], [&] {
      run();
      decide(state_.current_stream(), node.handle, is_within, condition, faults);
    });
  }

  void begin(LoopState* state, const LoopStart& start) override {
    begin_kernel<<<1, 1, 0, state_.current_stream()>>>(state, start);
    launched("begin_kernel");
  }
  void advance(LoopState* state) override {
    advance_kernel<<<1, 1, 0, state_.current_stream()>>>(state);
    launched("advance_kernel");
  }

  void copy(const LoopState* state, std::span<const SliceCopy> copies, bool from_end) override {
    Copies group{};
    int count = 0;
    int64_t most = 0;
    const auto launch = [&] {
      if (count == 0) return;
      const int64_t per_block = kThreads * static_cast<int64_t>(sizeof(uint4));
      const int64_t blocks = std::min((most + per_block - 1) / per_block, kMostBlocks);
      const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
      copy_slices_kernel<<<grid, kThreads, 0, state_.current_stream()>>>(state, group, from_end);
      launched("copy_slices_kernel");
      count = 0;
      most = 0;
    };
    for (const SliceCopy& each : copies) {
      if (each.bytes == 0) continue;
      group.list[count++] = each;
      most = std::max(most, each.bytes);
      if (count == kCopies) launch();
    }
    launch();
  }

 private:
  static void decide(cudaStream_t stream, cudaGraphConditionalHandle handle, const bool* first,
                     const bool* second, const IndexReport* faults) {
    decide_kernel<<<1, 1, 0, stream>>>(handle, first, second, faults);
    launched("decide_kernel");
  }

  /// A node in the graph that a stream is capturing, behind all that the stream waits for; the stream then waits for it.
  struct Conditional {
    cudaGraphConditionalHandle handle = 0;
    std::array<cudaGraph_t, 2> bodies{};  // the node's own

    Conditional(cudaStream_t stream, cudaGraphConditionalNodeType type, unsigned count, const bool* first,
                const bool* second, const IndexReport* faults) {
      cudaGraph_t graph = nullptr;
      (void)waiting_for(stream, &graph);
      check(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0), "cudaGraphConditionalHandleCreate");
      decide(stream, handle, first, second, faults);
      const std::vector<cudaGraphNode_t> behind = waiting_for(stream);
      cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
      params.conditional.handle = handle;
      params.conditional.type = type;
      params.conditional.size = count;
      cudaGraphNode_t node = nullptr;
      check(cudaGraphAddNode(&node, graph, behind.data(), nullptr, behind.size(), &params),
            "cudaGraphAddNode of a conditional node");
      std::copy_n(params.conditional.phGraph_out, count, bodies.begin());
      wait_for(stream, {node});
    }
  };

  /// What a function queues becomes the graph `body`, which belongs to its node.
  void capture(cudaGraph_t body, const std::function<void()>& function) {
    CaptureStream stream;
    check(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed),
          "cudaStreamBeginCaptureToGraph");
    cudaGraph_t captured = nullptr;
    try {
      const ContextScope scope(state_, {current_thread_context(state_).scratch, stream});
      function();
      TD_CHECK(!stream.is_invalidated(), "cuda: the driver gave up capturing a branch or a loop.");
    } catch (const Error& error) {
      if (dynamic_cast<const AbandonedCapture*>(&error) || stream.is_invalidated()) {
        stream.abandon();
        throw AbandonedCapture(error.what(), ErrorKind::device);
      }
      (void)stream.end_failed();  // the graph is the node's
      throw;
    } catch (...) {
      (void)stream.end_failed();  // the graph is the node's
      throw;
    }
    check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture of a branch or a loop");
  }

  DeviceState& state_;
};

}  // namespace

std::unique_ptr<RecordedControl> make_recorded_control(DeviceState& state) {
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  return version >= kVersion ? std::make_unique<ControlNodes>(state) : nullptr;
}

}  // namespace tandem::cuda
