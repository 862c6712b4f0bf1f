// CopyQueue: tensors go from host memory to a device while it computes, by pinned memory and a stream of their own.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tandem/core/backend.h"
#include "tandem/core/mutex.h"
#include "tandem/core/tensor.h"

namespace tandem {

class CopyQueue {
 public:
  explicit CopyQueue(Device device);
  ~CopyQueue();  // waits for what is on its way
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  /// Tensors on their way. They may be dropped at any time.
  struct Arriving {
    std::vector<Tensor> tensors;
    std::shared_ptr<const Event> arrived;  // of all of them
  };
  /// Sends copies of tensors in host memory, which may change as soon as this returns. From any thread. What is sent together
  /// is waited for together: each wait holds up the device's own queue for some microseconds.
  Arriving send(const std::vector<Tensor>& from);
  /// The tensors, for use by the calling thread: what it queues on the device from now on runs after the arrival.
  std::vector<Tensor> take(Arriving arriving);

 private:
  struct Source {
    void* data;
    size_t bytes;
    std::shared_ptr<const Event> left;
  };
  void free_sources(bool wait);

  const Device device_;
  Backend& backend_;
  Mutex mutex_{LockOrder::staging};
  std::unique_ptr<Stream> stream_;
  std::deque<Source> sources_;  // pinned memory, in use until its copy has left
};

}  // namespace tandem
