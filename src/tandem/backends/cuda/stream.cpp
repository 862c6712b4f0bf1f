#include "tandem/backends/cuda/stream.h"

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/core/block_cache.h"

namespace tandem::cuda {
namespace {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaStream_t stream) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    if (const cudaError_t status = cudaEventRecord(event_, stream); status != cudaSuccess) {
      (void)cudaEventDestroy(event_);
      check(status, "cudaEventRecord");
    }
  }
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool has_passed() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery");
    return true;
  }
  void wait() const override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(DeviceState& state) : state_(state) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~CudaStream() override {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync on a stream");
  }
  std::shared_ptr<const Event> mark() override {
    make_current();
    return cuda::mark(stream_);
  }
  void wait(const Event& event) override { queue_behind(stream_, event); }

 private:
  void make_current() const { check(cudaSetDevice(state_.index), "cudaSetDevice"); }
  DeviceState& state_;
  cudaStream_t stream_ = nullptr;
};

struct PinnedRules {
  static constexpr size_t kUnit = 512;
  static constexpr int kSteps = 8;
  static constexpr size_t kSlack = size_t{64} << 20;
  static size_t limit() { return SIZE_MAX; }  // the driver says when there is no more
};
using PinnedCache = BlockCache<PinnedRules>;
PinnedCache& pinned() {
  static PinnedCache& one = *new PinnedCache;
  return one;
}
[[maybe_unused]] const auto& g_made_at_start = pinned();  // in no fork's way

void unpin(const std::vector<PinnedCache::Block>& blocks) {
  for (const PinnedCache::Block& block : blocks) {
    check(cudaFreeHost(block.data), "cudaFreeHost");
    pinned().count_returned(block.bytes);
  }
}

}  // namespace

std::unique_ptr<Stream> make_stream(DeviceState& state) { return std::make_unique<CudaStream>(state); }

std::shared_ptr<const Event> mark(cudaStream_t stream) { return std::make_shared<CudaEvent>(stream); }

void queue_behind(cudaStream_t stream, const Event& event) {
  check(cudaStreamWaitEvent(stream, static_cast<const CudaEvent&>(event).handle(), 0), "cudaStreamWaitEvent");
}

void* allocate_pinned(size_t bytes) {
  const PinnedCache::SizeClass c = PinnedCache::size_class(bytes);
  std::vector<PinnedCache::Block> surplus;
  void* data = pinned().take(c, &surplus);
  if (!surplus.empty()) unpin(surplus);
  if (!data) {
    const cudaError_t status = cudaHostAlloc(&data, c.bytes, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw OutOfMemory(str("memory: the system must have ", bytes,
                            " bytes that it can lock for copies to the GPU; it "
                            "has not. Use a smaller batch or fewer batches made ahead."));
    }
    check(status, "cudaHostAlloc");
    pinned().count_reserved(c.bytes);
  }
  pinned().count_used(c.bytes);
  return data;
}

void free_pinned(void* data, size_t bytes) noexcept {
  if (!data) return;
  const PinnedCache::SizeClass c = PinnedCache::size_class(bytes);
  pinned().count_freed(c.bytes);
  try {
    pinned().put(c, data);
  } catch (const std::bad_alloc&) {  // the block is lost until the process ends
  }
}

}  // namespace tandem::cuda
