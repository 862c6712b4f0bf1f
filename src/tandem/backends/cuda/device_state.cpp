#include "tandem/backends/cuda/device_state.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/control.h"
#include "tandem/backends/cuda/stream.h"
#include "tandem/core/choices.h"
#include "tandem/ops/index.h"

namespace tandem::cuda {

void* Allocator::allocate(size_t bytes) {
  const Cache::SizeClass c = Cache::size_class(bytes);
  std::vector<Cache::Block> surplus;
  // Giving memory back waits for the device, which is not allowed while a recording is made.
  const bool is_recording = state_.current_stream() != state_.queue;
  void* data = cache_.take(c, is_recording ? nullptr : &surplus);
  if (!surplus.empty()) give_to_driver(surplus);
  if (!data) {
    cudaError_t status = cudaMalloc(&data, c.bytes);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      release_cached();
      status = cudaMalloc(&data, c.bytes);
    }
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      size_t free_bytes = 0, total_bytes = 0;
      (void)cudaMemGetInfo(&free_bytes, &total_bytes);
      throw_out_of_memory({DeviceKind::cuda, static_cast<uint8_t>(state_.index)}, bytes, cache_.stats(),
                          free_bytes, total_bytes);
    }
    check(status, "cudaMalloc");
    cache_.count_reserved(c.bytes);
  }
  cache_.count_used(c.bytes);
  return data;
}

void Allocator::free(void* data, size_t bytes) noexcept {
  if (!data) return;
  if (held_count_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    std::vector<std::shared_ptr<const Event>> events;
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = held_.find(data); at != held_.end()) {
        events = std::move(at->second);
        held_.erase(at);
        held_count_.fetch_sub(1);
      }
    }
    for (const auto& event : events) {
      try {
        queue_behind(state_.queue, *event);
      } catch (const std::exception&) {  // the process ends, and the driver has gone
      }
    }
  }
  const Cache::SizeClass c = Cache::size_class(bytes);
  cache_.count_freed(c.bytes);
  try {
    cache_.put(c, data);
  } catch (const std::bad_alloc&) {  // the block is lost until the process ends
  }
}

void Allocator::hold_until(void* data, std::shared_ptr<const Event> event) {
  const std::lock_guard lock(mutex_);
  auto& events = held_[data];
  if (events.empty()) held_count_.fetch_add(1);
  events.push_back(std::move(event));
}

void Allocator::give_to_driver(const std::vector<Cache::Block>& blocks) {
  // cudaFree waits for the work that may still use the block.
  for (const Cache::Block& block : blocks) {
    check(cudaFree(block.data), "cudaFree");
    cache_.count_returned(block.bytes);
  }
}

void Allocator::release_cached() { give_to_driver(cache_.take_all()); }

void DeviceState::synchronize() {
  check(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
  raise_index_fault();
}

void DeviceState::raise_index_fault() {
  volatile IndexReport* seen = report;
  if (seen->op == 0) [[likely]]
    return;
  const auto use = static_cast<IndexUse>(seen->op);
  const long long bad = seen->index, low = seen->low, limit = seen->limit;
  seen->op = 0;
  throw Error(index_fault(use, low, limit, bad, str(" on cuda:", index)));
}

int visible_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

namespace {
DeviceState* make_state(int index) {
  auto state = std::make_unique<DeviceState>();
  state->index = index;
  check(cudaGetDeviceProperties(&state->properties, index), "cudaGetDeviceProperties");
  check(cudaStreamCreateWithFlags(&state->queue, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaHostAlloc(reinterpret_cast<void**>(&state->report), sizeof(IndexReport), cudaHostAllocMapped),
        "cudaHostAlloc");
  std::memset(state->report, 0, sizeof(IndexReport));
  check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&state->device_report), state->report, 0),
        "cudaHostGetDevicePointer");
  check(cudaMalloc(reinterpret_cast<void**>(&state->counters), kLanes * kCounters * sizeof(unsigned)),
        "cudaMalloc");
  check(cudaMemsetAsync(state->counters, 0, kLanes * kCounters * sizeof(unsigned), state->queue),
        "cudaMemsetAsync");
  const cublasStatus_t blas = cublasLtCreate(&state->blas);
  TD_CHECK(blas == CUBLAS_STATUS_SUCCESS, "cuda: cublasLtCreate failed: ", cublasLtGetStatusName(blas), ".");
  state->control = make_recorded_control(*state);
  return state.release();  // lives as long as the process: the driver may be gone when statics are destroyed
}
}  // namespace

namespace {
std::array<std::atomic<DeviceState*>, 256> states{};
}

DeviceState* find_device_state(int index) noexcept { return states[static_cast<size_t>(index)].load(); }

DeviceState& device_state(int index) {
  if (DeviceState* state = find_device_state(index)) [[likely]] {
    check(cudaSetDevice(index), "cudaSetDevice");
    return *state;
  }
  TD_CHECK(index >= 0 && index < visible_devices(), "cuda: the device must be one of the ", visible_devices(),
           " that this machine shows; got cuda:", index, ".");
  static Mutex& mutex = *new Mutex(LockOrder::devices);
  std::lock_guard lock(mutex);
  check(cudaSetDevice(index), "cudaSetDevice");
  if (!find_device_state(index)) states[static_cast<size_t>(index)] = make_state(index);
  return *find_device_state(index);
}

Scratch::~Scratch() {
  for (const Block& block : blocks_) state_->memory.free(block.data, block.bytes);
}

void* Scratch::get(size_t bytes) {
  if (blocks_.empty() || blocks_.back().bytes < bytes) {
    const size_t size = Allocator::rounded(bytes);
    void* data = state_->memory.allocate(size);
    if (!keep_old_) {
      for (const Block& block : blocks_) state_->memory.free(block.data, block.bytes);
      blocks_.clear();
    }
    blocks_.push_back({data, size});
  }
  return blocks_.back().data;
}

namespace {
ThreadContext& thread_context(DeviceState& state) {
  // Without a destructor of its own, so that an operation may still run while the thread's other objects are destroyed;
  // what it takes then is left to the process's end.
  constinit thread_local std::vector<ThreadContext>* all = nullptr;
  if (!all) {
    all = new std::vector<ThreadContext>;
    thread_local struct Keeper {
      ~Keeper() { delete std::exchange(all, nullptr); }
      void begin() {}
    } keeper;
    keeper.begin();
  }
  auto& contexts = *all;
  if (contexts.size() <= static_cast<size_t>(state.index))
    contexts.resize(static_cast<size_t>(state.index) + 1);
  ThreadContext& context = contexts[static_cast<size_t>(state.index)];
  if (!context.scratch) context = {std::make_shared<Scratch>(&state), state.queue};
  return context;
}
}  // namespace

Scratch& thread_scratch(DeviceState& state) { return *thread_context(state).scratch; }
ThreadContext current_thread_context(DeviceState& state) { return thread_context(state); }

ThreadContext exchange_thread_context(DeviceState& state, ThreadContext context) {
  return std::exchange(thread_context(state), std::move(context));
}

cudaStream_t DeviceState::current_stream() { return thread_context(*this).stream; }
void* DeviceState::workspace(size_t bytes) { return thread_scratch(*this).get(bytes); }

bool allow_tf32() { return tf32(); }

}  // namespace tandem::cuda
