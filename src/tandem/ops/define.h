// How the families put their records in place, and the few pieces that they share. Not part of the public surface.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// Defines every op and gives core the ones it needs. Called once, by backends/start.cpp.
void define_all_ops();

void define_pointwise_ops();
void define_shape_ops();

/// The usual record. saves_in and saves_out: bit i says that the gradient rule reads that input, that output.
OpDef& define_op(const char* name, void (*infer)(InferArgs&), GradRule gradient, uint32_t saves_in,
                 uint32_t saves_out, Cost cost = Cost::expensive);

/// Whether two tensors may share memory, in either engine.
bool share_memory(const Tensor& a, const Tensor& b);
/// y, made of x, which reads as a part of it: marked where it is a copy.
Tensor part_of(const Tensor& x, const Tensor& y, const CopyMark& mark);
/// y, made of x, which reads as a new tensor: a copy where it would be x itself or a view of it.
Tensor apart_from(const Tensor& x, const Tensor& y);

/// A 0-d constant: the number as it is written, exact for integers too.
Tensor full_number(double value, int64_t integer, DType dtype, Device device);
/// An operand as a tensor of a type, for the public function `op`. Tensors and floating numbers become what cast() makes of
/// them (to integers: truncated, beyond the range its nearest end, NaN 0); a whole number must fit.
class Operand;
Tensor as_tensor(const char* op, const Operand& operand, DType dtype, Device device);

}  // namespace tandem
