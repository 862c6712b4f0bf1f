// Pointwise ops on every element type (comparison, logic, maximum, where …) and on bits.
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/pointwise.cuh"

namespace tandem::cuda {

#define TD_KERNEL(name, functor, inputs, floats, integers) \
  find_op(#name)->kernels[static_cast<int>(DeviceKind::cuda)] = &pointwise<functor, inputs, floats, integers>;
#define TD_ROW_every(name, functor, inputs) TD_KERNEL(name, functor, inputs, true, true)
#define TD_ROW_number(name, functor, inputs)
#define TD_ROW_floating(name, functor, inputs)
#define TD_ROW_integer(name, functor, inputs) TD_KERNEL(name, functor, inputs, false, true)
#define TD_ROW_bits(name, functor, inputs) TD_KERNEL(name, functor, inputs, false, true)
#define TD_ROW(name, functor, inputs, types, ...) TD_ROW_##types(name, functor, inputs)

void register_pointwise_every_kernels() { TD_POINTWISE_OPS(TD_ROW) }

}  // namespace tandem::cuda
