#include "tandem/core/copy_queue.h"

#include <cstring>
#include <mutex>

namespace tandem {

CopyQueue::CopyQueue(Device device)
    : device_(device), backend_(backend(device)), stream_(backend_.make_stream(device)) {}

CopyQueue::~CopyQueue() {
  stream_.reset();
  try {
    free_sources(true);
  } catch (const std::exception&) {  // a device that no longer answers: the memory stays pinned
  }
}

void CopyQueue::free_sources(bool wait) {
  while (!sources_.empty() && (wait || sources_.front().left->has_passed())) {
    if (wait) sources_.front().left->wait();
    backend_.free_pinned(sources_.front().data, sources_.front().bytes);
    sources_.pop_front();
  }
}

CopyQueue::Arriving CopyQueue::send(const Tensor& from) {
  TD_CHECK(from.defined() && from.device().is_cpu(), "send: the tensor must be in host memory; got ",
           describe(from), ".");
  const size_t bytes = static_cast<size_t>(from.size()) * bytes_of(from.dtype());
  {
    const std::lock_guard lock(mutex_);
    free_sources(false);
  }
  // Several threads send at once: what takes long, the copy into pinned memory, is made side by side.
  Source source{backend_.allocate_pinned(bytes), bytes, nullptr};
  try {
    if (!from.is_contiguous())
      std::memcpy(source.data, host_bytes(from).data(), bytes);
    else if (bytes)
      std::memcpy(source.data, from.raw(), bytes);
    Tensor to = empty(from.shape(), from.dtype(), device_);
    const std::lock_guard lock(mutex_);
    stream_->wait(*backend_.mark(device_));  // what used this memory before is behind that
    stream_->copy(to.raw(), source.data, bytes);
    source.left = stream_->mark();
    backend_.hold_until(device_, to.raw(), source.left);
    sources_.push_back(source);
    return {to, source.left};
  } catch (...) {
    if (!source.left) backend_.free_pinned(source.data, bytes);
    throw;
  }
}

Tensor CopyQueue::take(Arriving arriving) {
  const Device device = arriving.tensor.device();
  backend(device).wait(device, *arriving.arrived);
  return std::move(arriving.tensor);
}

}  // namespace tandem
