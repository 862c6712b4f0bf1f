#include "tandem/backends/cuda/device_state.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tandem/backends/cuda/check.h"
#include "tandem/ops/index.h"

namespace tandem::cuda {

size_t Allocator::size_class(size_t bytes) {
  constexpr size_t kUnit = 512;
  if (bytes == 0) return kUnit;
  size_t step = kUnit;
  if (bytes > 8 * kUnit) step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

void* Allocator::allocate(size_t bytes) {
  const size_t size = size_class(bytes);
  std::lock_guard lock(mutex_);
  void* data = nullptr;
  if (auto& blocks = cached_[size]; !blocks.empty()) {
    data = blocks.back();
    blocks.pop_back();
  } else {
    cudaError_t status = cudaMalloc(&data, size);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      release_cached_locked();
      status = cudaMalloc(&data, size);
    }
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      size_t free_bytes = 0, total_bytes = 0;
      (void)cudaMemGetInfo(&free_bytes, &total_bytes);
      throw OutOfMemory(cat("cuda: the device must have memory for a new tensor; got a request for ", bytes,
                            " bytes with ", stats_.in_use, " in use by Tandem and ", free_bytes, " of ",
                            total_bytes, " free. Use a smaller batch, or end what else runs on the GPU."));
    }
    check(status, "cudaMalloc");
    stats_.reserved += size;
  }
  stats_.in_use += size;
  if (stats_.in_use > stats_.peak) stats_.peak = stats_.in_use;
  return data;
}

void Allocator::free(void* data, size_t bytes) noexcept {
  if (!data) return;
  const size_t size = size_class(bytes);
  std::lock_guard lock(mutex_);
  stats_.in_use -= size;
  cached_[size].push_back(data);
}

MemoryStats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak = stats_.in_use;
}

void Allocator::release_cached() {
  std::lock_guard lock(mutex_);
  release_cached_locked();
}

void Allocator::release_cached_locked() {
  // cudaFree waits for the work that may still use the block.
  for (auto& [size, blocks] : cached_) {
    for (void* block : blocks) {
      check(cudaFree(block), "cudaFree");
      stats_.reserved -= size;
    }
    blocks.clear();
  }
}

void DeviceState::synchronize() {
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  raise_index_fault();
}

void DeviceState::raise_index_fault() {
  volatile IndexReport* seen = report;
  if (seen->op == 0) [[likely]]
    return;
  const auto use = static_cast<IndexUse>(seen->op);
  const long long bad = seen->index, low = seen->low, limit = seen->limit;
  seen->op = 0;
  throw Error(index_fault(use, low, limit, bad, cat(" on cuda:", index)));
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
  check(cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaHostAlloc(reinterpret_cast<void**>(&state->report), sizeof(IndexReport), cudaHostAllocMapped),
        "cudaHostAlloc");
  std::memset(state->report, 0, sizeof(IndexReport));
  check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&state->device_report), state->report, 0),
        "cudaHostGetDevicePointer");
  check(cudaMalloc(reinterpret_cast<void**>(&state->counters), kLanes * kCounters * sizeof(unsigned)),
        "cudaMalloc");
  check(cudaMemsetAsync(state->counters, 0, kLanes * kCounters * sizeof(unsigned), state->stream),
        "cudaMemsetAsync");
  const cublasStatus_t blas = cublasLtCreate(&state->blas);
  TD_CHECK(blas == CUBLAS_STATUS_SUCCESS, "cuda: cublasLtCreate failed: ", cublasLtGetStatusName(blas), ".");
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
    const size_t size = Allocator::size_class(bytes);
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
std::shared_ptr<Scratch>& scratch_slot(DeviceState& state) {
  // Without a destructor of its own, so that an operation may still run while the thread's other objects are destroyed;
  // what it takes then is left to the process's end.
  constinit thread_local std::vector<std::shared_ptr<Scratch>>* all = nullptr;
  if (!all) {
    all = new std::vector<std::shared_ptr<Scratch>>;
    thread_local struct Keeper {
      ~Keeper() { delete std::exchange(all, nullptr); }
      void begin() {}
    } keeper;
    keeper.begin();
  }
  auto& slots = *all;
  if (slots.size() <= static_cast<size_t>(state.index)) slots.resize(static_cast<size_t>(state.index) + 1);
  auto& slot = slots[static_cast<size_t>(state.index)];
  if (!slot) slot = std::make_shared<Scratch>(&state);
  return slot;
}
}  // namespace

Scratch& thread_scratch(DeviceState& state) { return *scratch_slot(state); }

std::shared_ptr<Scratch> exchange_thread_scratch(DeviceState& state, std::shared_ptr<Scratch> scratch) {
  return std::exchange(scratch_slot(state), std::move(scratch));
}

bool allow_tf32() {
  static const bool allowed = [] {
    const char* text = std::getenv("TANDEM_TF32");
    return !text || std::strcmp(text, "0") != 0;
  }();
  return allowed;
}

}  // namespace tandem::cuda
