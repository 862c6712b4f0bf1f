// DLPack: tensors of other frameworks in and out, without a copy. The structures are DLPack's own (dlpack.h, version
// 0.8); this header only names the one that is passed around.
#pragma once

#include "tandem/core/tensor.h"

struct DLManagedTensor;

namespace tandem::io {

/// A tensor over the same memory, for another framework (at::fromDLPack, a PyCapsule named "dltensor" …). Whoever takes
/// it calls its deleter once. Work on the device has ended when this returns.
DLManagedTensor* to_dlpack(const Tensor& tensor);

/// A tensor over the memory of another framework, which is given back (the deleter called) when the last view is gone.
/// Memory that is not aligned to 64 bytes is copied, as from_blob() does. Where it is refused, it stays the caller's.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace tandem::io
