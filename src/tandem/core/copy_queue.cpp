#include "tandem/core/copy_queue.h"

#include <cstring>
#include <mutex>

namespace tandem {

CopyQueue::CopyQueue(Device device) : device_(device), backend_(backend(device)) {
  TD_CHECK(device.index < backend_.device_count(), "CopyQueue: the device must exist; got ", device, " of ",
           backend_.device_count(), ".");
  stream_ = backend_.make_stream(device);
}

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

CopyQueue::Arriving CopyQueue::send(const std::vector<Tensor>& from) {
  constexpr size_t kAlignment = 256;  // of each tensor in the pinned block
  const auto bytes_of_one = [](const Tensor& t) {
    return static_cast<size_t>(t.size()) * bytes_of(t.dtype());
  };
  size_t bytes = 0;
  for (const Tensor& tensor : from) {
    TD_CHECK(tensor.defined() && tensor.device().is_cpu(), "send: the tensor must be in host memory; got ",
             describe(tensor), ".");
    bytes += (bytes_of_one(tensor) + kAlignment - 1) / kAlignment * kAlignment;
  }
  {
    const std::lock_guard lock(mutex_);
    free_sources(false);
  }
  // Several threads send at once: what takes long, the copy into pinned memory, is made side by side.
  Source source{backend_.allocate_pinned(bytes), bytes, nullptr};
  try {
    Arriving sent;
    std::vector<char*> places;
    char* place = static_cast<char*>(source.data);
    for (const Tensor& tensor : from) {
      const size_t size = bytes_of_one(tensor);
      if (!tensor.is_contiguous())
        std::memcpy(place, host_bytes(tensor).data(), size);
      else if (size)
        std::memcpy(place, tensor.raw(), size);
      sent.tensors.push_back(empty(tensor.shape(), tensor.dtype(), device_));
      places.push_back(place);
      place += (size + kAlignment - 1) / kAlignment * kAlignment;
    }
    const std::lock_guard lock(mutex_);
    stream_->wait(*backend_.mark(device_));  // what used this memory before is behind that
    for (size_t i = 0; i < from.size(); ++i)
      stream_->copy(sent.tensors[i].raw(), places[i], bytes_of_one(from[i]));
    sent.arrived = source.left = stream_->mark();
    for (const Tensor& tensor : sent.tensors) backend_.hold_until(device_, tensor.raw(), source.left);
    sources_.push_back(source);
    return sent;
  } catch (...) {
    if (!source.left) backend_.free_pinned(source.data, bytes);
    throw;
  }
}

std::vector<Tensor> CopyQueue::take(Arriving arriving) {
  TD_CHECK(arriving.arrived, "take: must be given what send() returned; got nothing that is on its way.");
  backend_.wait(device_, *arriving.arrived);
  return std::move(arriving.tensors);
}

}  // namespace tandem
