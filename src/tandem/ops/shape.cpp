#include "tandem/ops/shape.h"

#include <algorithm>

#include "tandem/core/backend.h"
#include "tandem/core/trace.h"
#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"

namespace tandem {

namespace {

/// Strides of `shape` over the memory of m, or false where no strides can describe it.
bool view_strides(const Meta& m, const Dims& shape, Dims& strides) {
  if (size_of(shape) == 0 || is_contiguous(m.shape, m.strides)) {  // of nothing any strides are right
    strides = contiguous_strides(shape);
    return true;
  }
  strides = shape;
  // Walks both shapes from the back; each run of old axes that lie evenly in memory must hold whole new axes.
  int at = shape.rank() - 1;
  for (int i = m.shape.rank() - 1; i >= 0;) {
    if (m.shape[i] == 1) {
      --i;
      continue;
    }
    Dim run = m.shape[i];
    Dim step = m.strides[i];
    int j = i - 1;
    while (j >= 0 && (m.shape[j] == 1 || m.strides[j] == step * run)) run *= m.shape[j--];
    for (; at >= 0 && (run > 1 || shape[at] == 1); --at) {
      if (run % shape[at] != 0) return false;
      strides[at] = step;
      step *= shape[at];
      run /= shape[at];
    }
    if (run != 1) return false;
    i = j;
  }
  for (; at >= 0; --at) {
    if (shape[at] != 1) return false;
    strides[at] = 1;
  }
  return true;
}

void infer_reshape(InferArgs& a) {
  Meta m = a.in[0].meta();
  const Dims& shape = a.attributes<ShapeAttrs>().shape;
  Dims strides;
  TD_CHECK(size_of(shape) == size_of(m.shape), "reshape: the number of elements must stay; got ", m.shape,
           " (", size_of(m.shape), ") to ", shape, " (", size_of(shape), ").");
  TD_CHECK(view_strides(m, shape, strides),
           "reshape: the elements must lie so that strides can describe the new shape; got ", m.shape,
           " with strides ", m.strides, " to ", shape, ". contiguous() it first.");
  m.shape = shape;
  m.strides = strides;
  a.out.push_back(m);
}

void infer_permute(InferArgs& a) {
  Meta m = a.in[0].meta();
  const Dims& axes = a.attributes<PermuteAttrs>().axes;
  TD_CHECK(axes.rank() == m.shape.rank(), "permute: one axis of the input is needed for each axis; got ",
           axes, " for shape ", m.shape, ".");
  unsigned seen = 0;
  for (int i = 0; i < axes.rank(); ++i) {
    seen |= 1u << checked_axis("permute", axes[i], axes.rank());
    m.shape[i] = a.in[0].shape()[static_cast<int>(axes[i])];
    m.strides[i] = a.in[0].strides()[static_cast<int>(axes[i])];
  }
  TD_CHECK(seen == (1u << axes.rank()) - 1, "permute: each axis must appear once; got ", axes, ".");
  a.out.push_back(m);
}

void infer_expand(InferArgs& a) {
  const Meta& from = a.in[0].meta();
  const Dims& shape = a.attributes<ShapeAttrs>().shape;
  const int lead = shape.rank() - from.shape.rank();
  size_of(shape);  // refuses negative and overflowing sizes
  TD_CHECK(lead >= 0 && broadcast_shapes("expand", from.shape, shape) == shape,
           "expand: only axes of size 1 can be stretched; got ", from.shape, " to ", shape, ".");
  Meta m = from;
  m.shape = shape;
  m.strides = Dims::filled(shape.rank(), 0);
  for (int i = 0; i < from.shape.rank(); ++i)
    if (from.shape[i] == shape[lead + i]) m.strides[lead + i] = from.strides[i];
  a.out.push_back(m);
}

void infer_slice(InferArgs& a) {
  Meta m = a.in[0].meta();
  const auto& s = a.attributes<SliceAttrs>();
  const int axis = checked_axis(a.op, s.axis, m.shape.rank());
  TD_CHECK(s.start >= 0 && s.start <= s.stop && s.stop <= m.shape[axis] && s.step >= 1,
           "slice: start and stop must lie within the axis and the step be at least 1; got ", s.start, " to ",
           s.stop, " by ", s.step, " for axis ", axis, " of ", m.shape, ".");
  const Dim count = s.stop > s.start ? (s.stop - s.start - 1) / s.step + 1 : 0;
  m.offset += count ? s.start * m.strides[axis] : 0;
  m.shape[axis] = count;
  if (count > 1) m.strides[axis] *= s.step;  // else the step, which may be any number, leads nowhere
  a.out.push_back(m);
}

/// One behind the last place that slice_into_zeros writes to: `count` places, `step` apart.
Dim end_of(const SliceAttrs& s, Dim count) {
  return count == 0 ? s.start : plus_capped(plus_capped(s.start, times_capped(count - 1, s.step)), 1);
}

void infer_slice_into_zeros(InferArgs& a) {
  Dims shape = a.in[0].shape();
  const auto& s = a.attributes<SliceAttrs>();
  const int axis = checked_axis(a.op, s.axis, shape.rank());
  TD_CHECK(s.start >= 0 && s.step >= 1 && s.step <= std::max<int64_t>(s.size, 1) && s.size >= 0 &&
               end_of(s, shape[axis]) <= s.size,
           "slice_into_zeros: the places and the step must lie within the size; got start ", s.start,
           ", step ", s.step, " and ", shape[axis], " elements for size ", s.size, ".");
  shape[axis] = s.size;
  a.add(shape, a.in[0].dtype());
}

void infer_concat(InferArgs& a) {
  Dims shape = a.in[0].shape();
  const int axis = checked_axis(a.op, a.attributes<AxisAttrs>().axis, shape.rank());
  for (size_t i = 1; i < a.in.size(); ++i) {
    Dims other = a.in[i].shape();
    TD_CHECK(a.in[i].dtype() == a.in[0].dtype(), "concat: all types must be equal; got ", a.in[0].dtype(),
             " and ", a.in[i].dtype(), ". cast() one of them.");
    const bool same_rank = other.rank() == shape.rank();
    const Dim size = same_rank ? other[axis] : 0;
    if (same_rank) other[axis] = shape[axis];
    TD_CHECK(same_rank && other == shape, "concat: sizes must be equal on all axes but ", axis, "; got ",
             a.in[0].shape(), " and ", a.in[i].shape(), ".");
    shape[axis] = plus_capped(shape[axis], size);
  }
  a.add(shape, a.in[0].dtype());
}

void infer_copy(InferArgs& a) { a.add(a.in[0].shape(), a.in[0].dtype()); }

void infer_assign(InferArgs& a) {
  const Meta &target = a.in[0].meta(), &source = a.in[1].meta();
  TD_CHECK(target.shape == source.shape && target.dtype == source.dtype,
           "assign: source and target must match; got ", describe(a.in[1]), " for ", describe(a.in[0]), ".");
  TD_CHECK(
      (target.offset == source.offset && target.strides == source.strides) || !share_memory(a.in[0], a.in[1]),
      "assign: the op must not be given a source that lies otherwise in the target's memory; got ",
      describe(a.in[1]), ". clone() it first.");
  a.out.push_back(target);
}

Tensors grad_concat(const GradArgs& a) {
  const int axis = static_cast<int>(a.attributes.as<AxisAttrs>().axis);
  Tensors out;
  Dim at = 0;
  for (const Description& m : a.in_meta) {
    out.push_back(slice(a.grad[0], axis, at, at + m.shape[axis]));
    at += m.shape[axis];
  }
  return out;
}

Tensors grad_same(const GradArgs& a) { return {a.grad[0]}; }
Tensors grad_reshape(const GradArgs& a) { return {reshape(a.grad[0], a.in_meta[0].shape)}; }
Tensors grad_slice(const GradArgs& a) {
  const auto& s = a.attributes.as<SliceAttrs>();
  return {slice_into_zeros(a.grad[0], s.axis, s.start, s.step, a.in_meta[0].shape[static_cast<int>(s.axis)])};
}
Tensors grad_slice_into_zeros(const GradArgs& a) {
  const auto& s = a.attributes.as<SliceAttrs>();
  const Dim count = a.in_meta[0].shape[static_cast<int>(s.axis)];
  return {slice(a.grad[0], s.axis, s.start, end_of(s, count), s.step)};
}
Tensors grad_permute(const GradArgs& a) {
  const Dims& axes = a.attributes.as<PermuteAttrs>().axes;
  Dims inverse = axes;
  for (int i = 0; i < axes.rank(); ++i) inverse[static_cast<int>(axes[i])] = i;
  return {permute(a.grad[0], inverse)};
}

struct MoveAttrs {
  uint8_t to_kind = 0, to_index = 0, from_kind = 0, from_index = 0;
  Device target() const { return {static_cast<DeviceKind>(to_kind), to_index}; }
  Device source() const { return {static_cast<DeviceKind>(from_kind), from_index}; }
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("to_kind", &MoveAttrs::to_kind), field("to_index", &MoveAttrs::to_index),
                 field("from_kind", &MoveAttrs::from_kind), field("from_index", &MoveAttrs::from_index));
  }
};

void infer_move(InferArgs& a) {
  const auto& m = a.attributes<MoveAttrs>();
  TD_CHECK(m.source() == a.device, "to: the source must be the device of x; got kind ", int{m.from_kind},
           ", index ", int{m.from_index}, " for ", describe(a.in[0]), ".");
  a.device = checked_device(a.op, m.to_kind, m.to_index);
  a.add(a.in[0].shape(), a.in[0].dtype());
}
Tensors grad_move(const GradArgs& a) { return {to(a.grad[0], a.in_meta[0].device)}; }

/// One kernel for every pair of devices, through the backends' own copies.
void move_kernel(const KernelArgs& args) {
  const auto& a = args.attributes<MoveAttrs>();
  const Device from = a.source(), target = a.target();
  const size_t bytes = static_cast<size_t>(args.in[0].size()) * bytes_of(args.in[0].dtype);
  if (from.kind == target.kind) {
    backend(target).copy_between(target, args.out[0].data, from, args.in[0].data, bytes);
  } else if (from.is_cpu()) {
    backend(target).copy_from_host(target, args.out[0].data, args.in[0].data, bytes);
  } else if (target.is_cpu()) {
    backend(from).copy_to_host(from, args.out[0].data, args.in[0].data, bytes);
  } else {
    std::vector<std::byte> staging(bytes);
    backend(from).copy_to_host(from, staging.data(), args.in[0].data, bytes);
    backend(target).copy_from_host(target, args.out[0].data, staging.data(), bytes);
  }
}

/// What the records of views share.
OpDef view(OpDef d) {
  d.effects = Effects::view();
  d.takes_strided = true;
  d.cost = Cost::no_op;
  return d;
}

struct ViewOps {
  OpDef *reshape, *permute, *expand, *slice, *move;
};
ViewOps g_views;

}  // namespace

void define_shape_ops() {
  g_views.reshape = &define(view({.name = "reshape",
                                  .about = "the same elements in another shape",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_reshape,
                                  .gradient = grad_reshape}));
  g_views.permute = &define(view({.name = "permute",
                                  .about = "the axes in another order",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_permute,
                                  .gradient = grad_permute}));
  g_views.expand = &define(view({.name = "expand",
                                 .about = "axes of size 1 repeated",
                                 .inputs = {"x"},
                                 .outputs = {"y"},
                                 .infer = infer_expand,
                                 .gradient = grad_same}));
  g_views.slice = &define(view({.name = "slice",
                                .about = "every step-th element of an axis from begin to end",
                                .inputs = {"x"},
                                .outputs = {"y"},
                                .infer = infer_slice,
                                .gradient = grad_slice}));
  g_views.move = &define(OpDef{.name = "to",
                               .about = "a copy on another device",
                               .inputs = {"x"},
                               .outputs = {"y"},
                               .infer = infer_move,
                               .gradient = grad_move,
                               .flops = no_flops});
  g_views.move->kernels.fill(move_kernel);
  op_copy();
  op_assign();
  op_concat();
  op_slice_into_zeros();
}

OpDef& op_copy() {
  static OpDef& op = define(OpDef{.name = "copy",
                                  .about = "a row-major copy",
                                  .function = "clone",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_copy,
                                  .gradient = grad_same,
                                  .takes_strided = true,
                                  .cost = Cost::cheap,
                                  .flops = no_flops});
  return op;
}

OpDef& op_assign() {
  static OpDef& op = define(OpDef{.name = "assign",
                                  .about = "writes source over target",
                                  .inputs = {"target", "source"},
                                  .outputs = {"target"},
                                  .infer = infer_assign,
                                  .not_differentiable = "a change in place cannot be differentiated",
                                  .effects = Effects::overwrite(),
                                  .store = true,
                                  .takes_strided = true,
                                  .cost = Cost::cheap,
                                  .flops = no_flops});
  return op;
}

OpDef& op_concat() {
  static OpDef& op = define(OpDef{.name = "concat",
                                  .about = "tensors one after another along an axis",
                                  .inputs = {"parts..."},
                                  .outputs = {"y"},
                                  .infer = infer_concat,
                                  .gradient = grad_concat,
                                  .precision = Precision::widest,
                                  .takes_strided = true,
                                  .cost = Cost::cheap,
                                  .flops = no_flops});
  return op;
}

OpDef& op_slice_into_zeros() {
  static OpDef& op = define(OpDef{.name = "slice_into_zeros",
                                  .about = "zeros with x at the place of a slice",
                                  .function = "",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_slice_into_zeros,
                                  .gradient = grad_slice_into_zeros,
                                  .takes_strided = true,
                                  .cost = Cost::cheap,
                                  .flops = no_flops});
  return op;
}

Tensor reshape(const Tensor& x, const Dims& wanted) {
  Dims shape = wanted;
  int open = -1;
  Dim known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1) {
      TD_CHECK(open < 0, "reshape: at most one size may be -1; got ", wanted, ".");
      open = i;
    } else {
      TD_CHECK(shape[i] >= 0, "reshape: sizes must not be negative (one may be -1); got ", wanted, ".");
      known = times_capped(known, shape[i]);
    }
  }
  const Dim size = x.size();
  if (open >= 0) {
    TD_CHECK(known > 0 && size % known == 0, "reshape: the open size must come out whole; got ", x.shape(),
             " to ", wanted, ".");
    shape[open] = size / known;
  }
  TD_CHECK(size_of(shape) == size, "reshape: the number of elements must stay; got ", x.shape(), " (", size,
           ") to ", wanted, " (", size_of(shape), ").");
  if (shape == x.shape()) return x;
  Dims strides;
  if (view_strides(x.meta(), shape, strides)) return apply1(*g_views.reshape, {x}, ShapeAttrs{shape});
  static constexpr CopyMark kMark{"reshape",
                                  "Write into the tensor before reshape(), with values in its shape."};
  return part_of(x, apply1(*g_views.reshape, {clone(x)}, ShapeAttrs{shape}), kMark);
}

Tensor flatten(const Tensor& x, int64_t first, int64_t last) {
  const int from = normal_axis("flatten", first, x.rank()), upto = normal_axis("flatten", last, x.rank());
  TD_CHECK(from <= upto, "flatten: the first axis must not come after the last; got ", first, " and ", last,
           ".");
  Dims shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i <= from || i > upto)
      shape.push_back(x.shape()[i]);
    else
      shape[from] *= x.shape()[i];
  }
  static constexpr CopyMark kMark{"flatten",
                                  "Write into the tensor before flatten(), with values in its shape."};
  return part_of(x, reshape(x, shape), kMark);
}

Tensor permute(const Tensor& x, const Dims& wanted) {
  Dims axes = wanted;
  for (int i = 0; i < axes.rank(); ++i) axes[i] = normal_axis("permute", wanted[i], x.rank());
  return apply1(*g_views.permute, {x}, PermuteAttrs{axes});
}

Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  const int i = normal_axis("transpose", a, x.rank()), j = normal_axis("transpose", b, x.rank());
  Dims axes = Dims::filled(x.rank(), 0);
  for (int k = 0; k < x.rank(); ++k) axes[k] = k;
  std::swap(axes[i], axes[j]);
  return permute(x, axes);
}

Tensor expand(const Tensor& x, const Dims& shape) {
  return x.shape() == shape ? x : apply1(*g_views.expand, {x}, ShapeAttrs{shape});
}

Tensor slice(const Tensor& x, int64_t wanted_axis, int64_t start, int64_t stop, int64_t step) {
  const int axis = normal_axis("slice", wanted_axis, x.rank());
  TD_CHECK(step >= 1, "slice: the step must be at least 1; got ", step,
           ". index() with a Slice of negative step, and flip(), go backwards.");
  const Dim size = x.shape()[axis];
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  stop = std::clamp<int64_t>(stop < 0 ? stop + size : stop, start, size);
  step = std::min(step, std::max<int64_t>(size, 1));  // a longer one reaches no further
  if (start == 0 && stop == size && step == 1) return x;
  return apply1(*g_views.slice, {x}, SliceAttrs{axis, start, stop, step, 0});
}

Tensor slice_into_zeros(const Tensor& x, int64_t axis, int64_t start, int64_t step, int64_t size) {
  const int at = normal_axis("slice_into_zeros", axis, x.rank());
  if (step > 1 && x.shape()[at] <= 1) step = 1;  // there is no second place
  return apply1(op_slice_into_zeros(), {x}, SliceAttrs{at, start, 0, step, size});
}

Tensor select(const Tensor& x, int64_t wanted_axis, int64_t index) {
  const int axis = normal_axis("select", wanted_axis, x.rank());
  const Dim size = x.shape()[axis];
  TD_CHECK(index >= -size && index < size, "select: the index must lie in ", -size, "..", size - 1, "; got ",
           index, " for axis ", axis, " of ", x.shape(), ".");
  const int64_t at = index < 0 ? index + size : index;
  return squeeze(slice(x, axis, at, at + 1), axis);
}

Tensor Tensor::operator[](int64_t i) const { return select(*this, 0, i); }

Tensor unsqueeze(const Tensor& x, int64_t axis) {
  Dims shape = x.shape();
  shape.insert(normal_axis("unsqueeze", axis, x.rank() + 1), 1);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x) {
  Dims shape;
  for (const Dim size : x.shape())
    if (size != 1) shape.push_back(size);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int64_t wanted_axis) {
  const int axis = normal_axis("squeeze", wanted_axis, x.rank());
  TD_CHECK(x.shape()[axis] == 1, "squeeze: the axis must have size 1; got axis ", axis, " of ", x.shape(),
           ".");
  Dims shape = x.shape();
  shape.erase(axis);
  return reshape(x, shape);
}

Tensor concat(const std::vector<Tensor>& parts, int64_t axis) {
  TD_CHECK(!parts.empty(), "concat: at least one tensor is needed; got none.");
  if (parts.size() == 1) return clone(parts[0]);
  return apply(op_concat(), parts, AxisAttrs{normal_axis("concat", axis, parts[0].rank())})[0];
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  static constexpr CopyMark kMark{"contiguous", "Write into the tensor before contiguous()."};
  return part_of(x, clone(x), kMark);
}
Tensor clone(const Tensor& x) { return apply1(op_copy(), {x}); }

Tensor sum_to(const Tensor& x, const Dims& shape) {
  if (x.shape() == shape) return x;
  const int lead = x.rank() - shape.rank();
  Dims axes;
  for (int i = 0; i < x.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && x.shape()[i] != 1)) axes.push_back(i);
  TD_CHECK(lead >= 0 && broadcast_shapes("sum_to", shape, x.shape()) == x.shape(),
           "sum_to: the shape must broadcast to x's; got ", shape, " for ", x.shape(), ".");
  return reshape(axes.rank() ? sum(x, axes) : x, shape);
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  TD_CHECK(!current_tracer(), "to: a compiled callable runs on one device; got a move of ", describe(x),
           " to ", device, " inside it. Move the tensor before the call.");
  const Device from = x.device();
  return apply1(*g_views.move, {x},
                MoveAttrs{static_cast<uint8_t>(device.kind), device.index, static_cast<uint8_t>(from.kind),
                          from.index});
}

void assign(const Tensor& target, const Tensor& source) {
  TD_CHECK(target.defined() && source.defined(), "assign: both tensors must be defined.");
  TD_CHECK(broadcast_shapes("assign", target.shape(), source.shape()) == target.shape(),
           "assign: the source must broadcast to the target's shape; got ", source.shape(), " for ",
           target.shape(), ".");
  Tensor value = expand(cast(source, target.dtype()), target.shape());
  // A source that lies otherwise in the target's own memory would be overwritten while it is read.
  const Meta &t = target.meta(), &v = value.meta();
  if (share_memory(target, value) && !(t.offset == v.offset && t.strides == v.strides)) value = clone(value);
  apply1(op_assign(), {target, value});
}

}  // namespace tandem
