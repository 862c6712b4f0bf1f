// How the families put their records in place, and the few pieces that they share. Not part of the public surface.
#pragma once

#include "tandem/core/op.h"

namespace tandem {

/// Defines every op and gives core the ones it needs. Called once, by backends/start.cpp.
void define_all_ops();

void define_pointwise_ops();
void define_shape_ops();

// ---- records
//
// Every op is put in place the same way, with a record that names its fields:
//
//   OpDef& op_linear() {
//     static OpDef& op = define(OpDef{.name = "linear", .inputs = {2, 3}, .infer = infer_linear, …});
//     return op;
//   }
//
// Where the ops of a family share fields, a function of the family fills them in: define(reduction({.name = "sum", …})).
// define_pointwise_ops() and define_shape_ops() do so for the rows of the pointwise table and for the views.

/// What the records of ops without inputs share.
OpDef without_inputs(OpDef d);

// ---- what inference refuses, with a message of `op`

/// The axis of an op's attributes, which count from 0.
int checked_axis(const char* op, int64_t axis, int rank);
/// The device of an op's attributes.
Device checked_device(const char* op, uint8_t kind, uint8_t index);
/// Inference of an op without inputs, by attributes with a shape, a type and a device.
template <class A>
void infer_made(InferArgs& args) {
  const auto& a = args.template attributes<A>();
  args.device = checked_device(args.op, a.device_kind, a.device_index);
  size_of(a.shape);  // refuses negative and overflowing sizes
  args.add(a.shape, a.dtype);
}
/// f64, f32, bf16 or f16.
void check_floating(const char* op, const Tensor& x);
/// Same shape and type. `what` names the tensor.
void check_like(const char* op, const char* what, const Tensor& x, const Tensor& like);
/// The distance from 1 to the next number of a floating type, and its smallest normal number.
double spacing_at_1(DType dtype);
double least_normal(DType dtype);
/// One of the spatial sizes of an image, or their product: at least 1 and below 2^31.
constexpr bool is_image_size(int64_t size) { return size >= 1 && size < (int64_t{1} << 31); }

// ---- work

/// Of x (…) with a weight (out, …): a multiplication and an addition for each element of the weight that goes into one of the
/// output, and an addition of the bias.
int64_t linear_flops(const KernelArgs& args);
/// Elements of a weight (out, …) that go into one element of the output.
int64_t terms_of(const Buffer& weight);

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
/// A number that elements of x are multiplied by without changing their type: of integers it must be whole. `what` names it.
Operand factor_for(const char* op, const char* what, const Operand& factor, const Tensor& x);

}  // namespace tandem
