// Shape operations made of those in shape.h and index.h, and tensors made by a rule. What can be a view is one: split,
// chunk, unbind, narrow, movedim, unfold_axis, and unflatten and diagonal where strides allow; where these copy, and for
// flip and rot90, the copy is marked (CopyMark). The rest gives new tensors, also where there is nothing to do.
#pragma once

#include <optional>
#include <vector>

#include "tandem/core/op.h"
#include "tandem/ops/pointwise.h"

namespace tandem {

// Joining and cutting
/// Tensors of one shape along a new axis.
Tensor stack(const std::vector<Tensor>& parts, int64_t axis = 0);
/// Parts of `size` along an axis, the last one perhaps smaller; or parts of these sizes.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t axis = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t axis = 0);
/// At most `count` parts of equal size, the last one perhaps smaller.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t axis = 0);
/// The slices of an axis, without it.
std::vector<Tensor> unbind(const Tensor& x, int64_t axis = 0);
/// `length` elements from start (negative: from the end).
Tensor narrow(const Tensor& x, int64_t axis, int64_t start, int64_t length);

// Axes
/// Axis from[i] becomes axis to[i]; the others keep their order.
Tensor movedim(const Tensor& x, const Dims& from, const Dims& to);
Tensor movedim(const Tensor& x, int64_t from, int64_t to);
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b);
/// One axis becomes several; one size may be -1.
Tensor unflatten(const Tensor& x, int64_t axis, const Dims& sizes);
Tensor broadcast_to(const Tensor& x, const Dims& shape);
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// Windows of `size` elements, `step` apart, along an axis: x (…, n, …) -> (…, (n - size) / step + 1, …, size). A view.
Tensor unfold_axis(const Tensor& x, int64_t axis, int64_t size, int64_t step);

// Moving and repeating
Tensor flip(const Tensor& x, const Dims& axes);
/// Elements move by shifts[i] along axes[i]; those that leave come in at the other end. No axes: over all elements.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& axes = {});
/// By `times` quarter turns from axis a to axis b.
Tensor rot90(const Tensor& x, int64_t times = 1, int64_t a = 0, int64_t b = 1);
/// The whole tensor times[i] times along axis i. repeat needs a number for each axis; tile takes missing ones as 1.
Tensor repeat(const Tensor& x, const Dims& times);
Tensor tile(const Tensor& x, const Dims& times);
/// Each element `times` times, or its own number of times: then the size depends on the data.
Tensor repeat_interleave(const Tensor& x, int64_t times, int64_t axis);
Tensor repeat_interleave(const Tensor& x, const Tensor& times, int64_t axis);

enum class PadMode : uint8_t { constant, reflect, replicate, circular };
struct PadOptions {
  PadMode mode = PadMode::constant;
  Operand value = 0;  ///< constant: a number
};
/// widths: {before, after} of the last axis, then of the one before, and so on, as in PyTorch. A negative width cuts
/// (constant only).
Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, const PadOptions& options = {});

// Matrices
/// Elements (i, i + offset) of axes a and b, as the last axis.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t a = 0, int64_t b = 1);
/// Zeros but for x on a diagonal of the two last axes: (…, n) -> (…, n + |offset|, n + |offset|).
Tensor diag_embed(const Tensor& x, int64_t offset = 0);
/// diag_embed of a vector, diagonal of a matrix.
Tensor diag(const Tensor& x, int64_t offset = 0);
/// The two last axes with zeros above, or below, a diagonal.
Tensor tril(const Tensor& x, int64_t offset = 0);
Tensor triu(const Tensor& x, int64_t offset = 0);

// Made by a rule
/// One tensor an input (each with one axis), all of the shape that they span; xy swaps the first two axes.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& lines, bool xy = false);

struct WindowAttrs {
  int64_t axis = 0, size = 1, step = 1;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axis", &WindowAttrs::axis), field("size", &WindowAttrs::size),
                 field("step", &WindowAttrs::step));
  }
};
struct FlipAttrs {
  Dims axes;  // each once
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("axes", &FlipAttrs::axes));
  }
};
OpDef& op_unfold_axis();  // a view
OpDef& op_flip();         // in x (any strides); out row-major

}  // namespace tandem
