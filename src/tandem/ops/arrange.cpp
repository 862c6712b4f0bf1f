#include "tandem/ops/arrange.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

/// (axes before, axis, axes after) as three sizes.
struct Around {
  Around(const Tensor& x, int axis) {
    for (int i = 0; i < x.rank(); ++i) (i < axis ? outer : i == axis ? length : inner) *= x.shape()[i];
  }
  Dim outer = 1, length = 1, inner = 1;
};

Tensor number_of(const Tensor& x, double value) { return full({}, value, x.dtype(), x.device()); }

/// The numbers of the windows' elements, one window after the other.
Tensor window_elements(Dim windows, const WindowAttrs& w, Device device) {
  const Tensor starts = mul(arange(windows, DType::i64, device), w.step);
  return reshape(add(unsqueeze(starts, 1), arange(w.size, DType::i64, device)), {windows * w.size});
}

void infer_unfold_axis(InferArgs& a) {
  const auto& w = a.attributes<WindowAttrs>();
  Meta m = a.in[0].meta();
  const int axis = checked_axis(a.op, w.axis, m.shape.rank());
  TD_CHECK(w.size >= 0 && w.size <= m.shape[axis] && w.step >= 1,
           "unfold_axis: the size must fit the axis and the step be at least 1; got size ", w.size,
           " and step ", w.step, " for axis ", axis, " of ", m.shape, ".");
  const Dim windows = (m.shape[axis] - w.size) / w.step + 1;
  m.shape.push_back(w.size);
  m.strides.push_back(m.strides[axis]);
  m.shape[axis] = windows;
  if (windows > 1) m.strides[axis] *= w.step;  // else the step, which may be any number, leads nowhere
  size_of(m.shape);
  a.out.push_back(m);
}

Tensors grad_unfold_axis(const GradArgs& a) {
  const auto& w = a.attributes.as<WindowAttrs>();
  const int axis = static_cast<int>(w.axis);
  const Dim windows = a.grad[0].shape()[axis];
  const Tensor parts = movedim(a.grad[0], -1, axis + 1);
  Dims merged = a.in_meta[0].shape;
  merged[axis] = windows * w.size;
  const Tensor zero = full(a.in_meta[0].shape, 0, a.in_meta[0].dtype, a.in_meta[0].device);
  return {index_add(zero, axis, window_elements(windows, w, a.in_meta[0].device), reshape(parts, merged))};
}

void infer_flip(InferArgs& a) {
  const Dims& axes = a.attributes<FlipAttrs>().axes;
  const int rank = a.in[0].rank();
  unsigned seen = 0;
  for (const Dim wanted : axes) {
    const int axis = checked_axis(a.op, wanted, rank);
    TD_CHECK(!(seen >> axis & 1), "flip: each axis of the op must appear once; got ", axes, ".");
    seen |= 1u << axis;
  }
  a.add(a.in[0].shape(), a.in[0].dtype());
}

Tensors grad_flip(const GradArgs& a) {
  return {apply1(op_flip(), {a.grad[0]}, a.attributes.as<FlipAttrs>())};
}

}  // namespace

OpDef& op_unfold_axis() {
  static OpDef& op = define(OpDef{.name = "unfold_axis",
                                  .about = "windows along an axis, as another look at x",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_unfold_axis,
                                  .gradient = grad_unfold_axis,
                                  .effects = Effects::view(),
                                  .takes_strided = true,
                                  .cost = Cost::no_op});
  return op;
}

Tensor stack(const std::vector<Tensor>& parts, int64_t axis) {
  TD_CHECK(!parts.empty(), "stack: at least one tensor is needed; got none.");
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) {
    TD_CHECK(part.defined() && part.shape() == parts[0].shape(), "stack: all shapes must be equal; got ",
             parts[0].shape(), " and ", part.defined() ? part.shape() : Dims{}, ".");
    raised.push_back(unsqueeze(part, normal_axis("stack", axis, part.rank() + 1)));
  }
  return raised.size() == 1 ? clone(raised[0])
                            : concat(raised, normal_axis("stack", axis, parts[0].rank() + 1));
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t wanted_axis) {
  const int axis = normal_axis("split", wanted_axis, x.rank());
  const Dim n = x.shape()[axis];
  TD_CHECK(size >= 1 || (size == 0 && n == 0), "split: the size must be at least 1; got ", size, " for axis ",
           axis, " of ", x.shape(), ".");
  std::vector<Tensor> parts;
  for (Dim at = 0; at < n; at += std::min(size, n - at))
    parts.push_back(slice(x, axis, at, at + std::min(size, n - at)));
  if (parts.empty()) parts.push_back(x);
  return parts;
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t wanted_axis) {
  const int axis = normal_axis("split", wanted_axis, x.rank());
  const Dim n = x.shape()[axis];
  Dim left = n;
  std::vector<Tensor> parts;
  for (const int64_t size : sizes) {
    TD_CHECK(size >= 0 && size <= left, "split: the sizes must add up to that of the axis; got a size of ",
             size, " where ", left, " are left of axis ", axis, " of ", x.shape(), ".");
    parts.push_back(slice(x, axis, n - left, n - left + size));
    left -= size;
  }
  TD_CHECK(left == 0, "split: the sizes must add up to that of the axis; got ", n - left, " for axis ", axis,
           " of ", x.shape(), ".");
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t wanted_axis) {
  const int axis = normal_axis("chunk", wanted_axis, x.rank());
  TD_CHECK(count >= 1, "chunk: the number of parts must be at least 1; got ", count, ".");
  const Dim n = x.shape()[axis];
  return n == 0 ? std::vector<Tensor>{x} : split(x, n / count + (n % count != 0), axis);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t wanted_axis) {
  const int axis = normal_axis("unbind", wanted_axis, x.rank());
  std::vector<Tensor> parts;
  for (Dim i = 0; i < x.shape()[axis]; ++i) parts.push_back(select(x, axis, i));
  return parts;
}

Tensor narrow(const Tensor& x, int64_t wanted_axis, int64_t start, int64_t length) {
  const int axis = normal_axis("narrow", wanted_axis, x.rank());
  const Dim n = x.shape()[axis], from = start < 0 ? start + n : start;
  TD_CHECK(from >= 0 && from <= n && length >= 0 && length <= n - from,
           "narrow: start and length must lie within the axis; got start ", start, " and length ", length,
           " for axis ", axis, " of ", x.shape(), ".");
  return slice(x, axis, from, from + length);
}

Tensor movedim(const Tensor& x, const Dims& from, const Dims& to) {
  TD_CHECK(from.rank() == to.rank(), "movedim: one new place is needed for each axis; got ", from, " to ", to,
           ".");
  Dims order = Dims::filled(x.rank(), -1);
  unsigned moved = 0;
  for (int i = 0; i < from.rank(); ++i) {
    const int source = normal_axis("movedim", from[i], x.rank()),
              target = normal_axis("movedim", to[i], x.rank());
    TD_CHECK(!(moved >> source & 1) && order[target] < 0, "movedim: each axis must appear once; got ", from,
             " to ", to, ".");
    moved |= 1u << source;
    order[target] = source;
  }
  int next = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (order[i] >= 0) continue;
    while (moved >> next & 1) ++next;
    order[i] = next++;
  }
  return permute(x, order);
}
Tensor movedim(const Tensor& x, int64_t from, int64_t to) { return movedim(x, Dims{from}, Dims{to}); }

Tensor swapaxes(const Tensor& x, int64_t a, int64_t b) {
  return transpose(x, normal_axis("swapaxes", a, x.rank()), normal_axis("swapaxes", b, x.rank()));
}

Tensor unflatten(const Tensor& x, int64_t wanted_axis, const Dims& sizes) {
  const int axis = normal_axis("unflatten", wanted_axis, x.rank());
  const Dim n = x.shape()[axis];
  Dim known = 1;
  int open = -1;
  for (int i = 0; i < sizes.rank(); ++i) {
    TD_CHECK(sizes[i] >= 0 || (sizes[i] == -1 && open < 0),
             "unflatten: sizes must not be negative (one may be -1); got ", sizes, ".");
    if (sizes[i] < 0)
      open = i;
    else
      known = times_capped(known, sizes[i]);
  }
  TD_CHECK(open < 0 ? known == n : known > 0 && n % known == 0,
           "unflatten: the sizes must multiply to that of axis ", axis, "; got ", sizes, " for ", x.shape(),
           ".");
  Dims shape = x.shape();
  shape.erase(axis);
  for (int i = 0; i < sizes.rank(); ++i) shape.insert(axis + i, i == open ? n / known : sizes[i]);
  static constexpr CopyMark kMark{"unflatten",
                                  "Write into the tensor before unflatten(), with values in its shape."};
  return part_of(x, reshape(x, shape), kMark);
}

Tensor broadcast_to(const Tensor& x, const Dims& shape) {
  TD_CHECK(x.rank() <= shape.rank() && broadcast_shapes("broadcast_to", x.shape(), shape) == shape,
           "broadcast_to: only axes of size 1 can be stretched; got ", x.shape(), " to ", shape, ".");
  return expand(x, shape);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  Dims shape;
  for (const Tensor& t : tensors) shape = broadcast_shapes("broadcast_tensors", shape, t.shape());
  std::vector<Tensor> stretched;
  for (const Tensor& t : tensors) stretched.push_back(expand(t, shape));
  return stretched;
}

Tensor unfold_axis(const Tensor& x, int64_t wanted_axis, int64_t size, int64_t step) {
  const int axis = normal_axis("unfold_axis", wanted_axis, x.rank());
  step = std::min(step, std::max<int64_t>(x.shape()[axis], 1));  // a longer one reaches no further
  return apply1(op_unfold_axis(), {x}, WindowAttrs{axis, size, step});
}

OpDef& op_flip() {
  static OpDef& op = define(OpDef{.name = "flip",
                                  .about = "the elements of some axes in reverse order",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_flip,
                                  .gradient = grad_flip,
                                  .takes_strided = true,
                                  .cost = Cost::cheap});
  return op;
}

Tensor flip(const Tensor& x, const Dims& axes) {
  TD_CHECK(x.defined(), "flip: x must be a tensor; got an undefined handle.");
  FlipAttrs attrs;
  unsigned seen = 0;
  for (const Dim wanted : axes) {
    const int axis = normal_axis("flip", wanted, x.rank());
    TD_CHECK(!(seen >> axis & 1), "flip: each axis must appear once; got ", axes, ".");
    seen |= 1u << axis;
    if (x.shape()[axis] > 1) attrs.axes.push_back(axis);
  }
  static constexpr CopyMark kMark{"flip", "Write into the tensor before flip(), with flipped values."};
  return part_of(x, attrs.axes.rank() == 0 ? clone(x) : apply1(op_flip(), {x}, attrs), kMark);
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& axes) {
  if (axes.rank() == 0 && shifts.rank() == 1)
    return apart_from(x, reshape(roll(reshape(x, {x.size()}), shifts, {0}), x.shape()));
  TD_CHECK(shifts.rank() == axes.rank() && axes.rank() > 0, "roll: one shift is needed for each axis; got ",
           shifts, " for axes ", axes, ".");
  Tensor y = x;
  for (int i = 0; i < axes.rank(); ++i) {
    const int axis = normal_axis("roll", axes[i], x.rank());
    const Dim n = x.shape()[axis];
    if (n == 0) continue;
    const Dim shift = (shifts[i] % n + n) % n;
    if (shift != 0) y = concat({slice(y, axis, n - shift, n), slice(y, axis, 0, n - shift)}, axis);
  }
  return apart_from(x, y);
}

Tensor rot90(const Tensor& x, int64_t times, int64_t wanted_a, int64_t wanted_b) {
  const int a = normal_axis("rot90", wanted_a, x.rank()), b = normal_axis("rot90", wanted_b, x.rank());
  TD_CHECK(a != b, "rot90: the axes must differ; got ", wanted_a, " and ", wanted_b, " for shape ", x.shape(),
           ".");
  const int64_t turns = (times % 4 + 4) % 4;
  const Tensor y = turns % 2 ? flip(transpose(x, a, b), {turns == 1 ? a : b})
                   : turns   ? flip(x, {a, b})
                             : clone(x);
  static constexpr CopyMark kMark{"rot90", "Write into the tensor before rot90(), with turned values."};
  return part_of(x, y, kMark);
}

Tensor repeat(const Tensor& x, const Dims& times) {
  TD_CHECK(times.rank() >= x.rank(), "repeat: one number is needed for each axis; got ", times, " for shape ",
           x.shape(), ".");
  Dims shape = x.shape();
  while (shape.rank() < times.rank()) shape.insert(0, 1);
  Tensor y = reshape(x, shape);
  for (int i = 0; i < times.rank(); ++i) {
    TD_CHECK(times[i] >= 0, "repeat: the numbers must not be negative; got ", times, ".");
    if (times[i] == 1) continue;
    const Around at(y, i);
    shape[i] = times_capped(shape[i], times[i]);
    size_of(shape);
    y = reshape(
        expand(reshape(y, {at.outer, 1, at.length * at.inner}), {at.outer, times[i], at.length * at.inner}),
        shape);
  }
  return apart_from(x, y);
}

Tensor tile(const Tensor& x, const Dims& times) {
  Dims all = times;
  while (all.rank() < x.rank()) all.insert(0, 1);
  for (const Dim count : times)
    TD_CHECK(count >= 0, "tile: the numbers must not be negative; got ", times, ".");
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t times, int64_t wanted_axis) {
  const int axis = normal_axis("repeat_interleave", wanted_axis, x.rank());
  TD_CHECK(times >= 0, "repeat_interleave: the number must not be negative; got ", times, ".");
  const Around at(x, axis);
  Dims shape = x.shape();
  shape[axis] = times_capped(shape[axis], times);
  size_of(shape);
  const Dim rows = at.outer * at.length;
  return apart_from(x, reshape(expand(reshape(x, {rows, 1, at.inner}), {rows, times, at.inner}), shape));
}

Tensor repeat_interleave(const Tensor& x, const Tensor& times, int64_t wanted_axis) {
  refuse_tracing("repeat_interleave", "One number for all elements keeps the size known.");
  const int axis = normal_axis("repeat_interleave", wanted_axis, x.rank());
  TD_CHECK(times.rank() == 1 && times.size() == x.shape()[axis] && times.dtype() == DType::i64,
           "repeat_interleave: one i64 number is needed for each element of axis ", axis, "; got ",
           describe(times), " for shape ", x.shape(), ".");
  const std::vector<int64_t> counts = times.to_vector<int64_t>();
  Dim total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    TD_CHECK(counts[i] >= 0, "repeat_interleave: the numbers must not be negative; got ", counts[i],
             " at element ", i, ".");
    total = plus_capped(total, counts[i]);
  }
  const Tensor elements = empty({total}, DType::i64);
  int64_t* place = elements.data<int64_t>();
  for (size_t i = 0; i < counts.size(); ++i) place = std::fill_n(place, counts[i], static_cast<int64_t>(i));
  return apart_from(x, index_select(x, axis, to(elements, x.device())));
}

namespace {

Tensor pad_axis(const Tensor& x, int axis, Dim before, Dim after, const PadOptions& options) {
  const Dim n = x.shape()[axis];
  if (options.mode == PadMode::constant) {
    TD_CHECK(std::min<Dim>(before, 0) + std::min<Dim>(after, 0) >= -n,
             "pad: negative widths must not cut more than there is; got ", before, " and ", after,
             " for axis ", axis, " of ", x.shape(), ".");
    const Tensor kept = slice(x, axis, std::max<Dim>(-before, 0), n - std::max<Dim>(-after, 0));
    before = std::max<Dim>(before, 0);
    after = std::max<Dim>(after, 0);
    if (before == 0 && after == 0) return kept;
    Dims shape = kept.shape();
    if (options.value.number() == 0) {
      shape[axis] += before + after;
      size_of(shape);
      return slice_into_zeros(kept, axis, before, 1, shape[axis]);
    }
    const auto filling = [&](Dim size) {
      shape[axis] = size;
      return expand(full({}, options.value, x.dtype(), x.device()), shape);
    };
    return concat({filling(before), kept, filling(after)}, axis);
  }
  TD_CHECK(before >= 0 && after >= 0, "pad: widths must not be negative unless the padding is constant; got ",
           before, " and ", after, ".");
  if (before == 0 && after == 0) return x;
  const auto part = [&](Dim from, Dim upto) { return slice(x, axis, from, upto); };
  switch (options.mode) {
    case PadMode::reflect:
      TD_CHECK(before < n && after < n, "pad: a reflection must be smaller than the axis; got ", before,
               " and ", after, " for axis ", axis, " of ", x.shape(), ".");
      return concat({flip(part(1, before + 1), {axis}), x, flip(part(n - after - 1, n - 1), {axis})}, axis);
    case PadMode::replicate: {
      TD_CHECK(n > 0, "pad: there must be an edge to replicate; got axis ", axis, " of ", x.shape(), ".");
      Dims first = x.shape(), last = x.shape();
      first[axis] = before;
      last[axis] = after;
      return concat({expand(part(0, 1), first), x, expand(part(n - 1, n), last)}, axis);
    }
    default:
      TD_CHECK(before <= n && after <= n, "pad: circular padding must not be larger than the axis; got ",
               before, " and ", after, " for axis ", axis, " of ", x.shape(), ".");
      return concat({part(n - before, n), x, part(0, after)}, axis);
  }
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, const PadOptions& options) {
  TD_CHECK(widths.size() % 2 == 0 && static_cast<int>(widths.size()) <= 2 * x.rank(),
           "pad: two widths are needed for each axis from the last; got ", widths.size(),
           " widths for shape ", x.shape(), ".");
  TD_CHECK(!options.value.tensor(), "pad: the value must be a number; got a tensor.");
  constexpr int64_t kMost = int64_t{1} << 61;
  for (const int64_t width : widths)
    TD_CHECK(width > -kMost && width < kMost, "pad: the widths must fit a tensor; got ", width, ".");
  Tensor y = x;
  for (size_t i = 0; i < widths.size(); i += 2)
    y = pad_axis(y, x.rank() - 1 - static_cast<int>(i / 2), widths[i], widths[i + 1], options);
  return apart_from(x, y);
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t wanted_a, int64_t wanted_b) {
  const int a = normal_axis("diagonal", wanted_a, x.rank()), b = normal_axis("diagonal", wanted_b, x.rank());
  TD_CHECK(a != b, "diagonal: the axes must differ; got ", wanted_a, " and ", wanted_b, " for shape ",
           x.shape(), ".");
  const Dim rows = x.shape()[a], columns = x.shape()[b];
  // Along the flattened matrix, one row and one column on is columns + 1 elements.
  const Tensor matrices = movedim(x, {a, b}, {-2, -1});
  Dims shape = matrices.shape();
  shape.erase(shape.rank() - 1);
  shape[shape.rank() - 1] = rows * columns;
  const bool inside = offset > -rows && offset < columns;
  const Dim start = !inside ? 0 : offset >= 0 ? offset : -offset * columns;
  const Dim count = !inside       ? 0
                    : offset >= 0 ? std::min(rows, columns - offset)
                                  : std::min(rows + offset, columns);
  static constexpr CopyMark kMark{"diagonal", "The diagonal of a row-major tensor is a view."};
  return part_of(x,
                 slice(reshape(matrices, shape), -1, start,
                       count ? start + (count - 1) * (columns + 1) + 1 : start, columns + 1),
                 kMark);
}

Tensor diag_embed(const Tensor& x, int64_t offset) {
  TD_CHECK(x.rank() >= 1, "diag_embed: x must have an axis; got shape ", x.shape(), ".");
  TD_CHECK(offset > -(int64_t{1} << 31) && offset < int64_t{1} << 31,
           "diag_embed: the offset must lie within 2^31; got ", offset, ".");
  const Dim n = x.shape().back() + std::abs(offset);
  Dims shape = x.shape();
  shape[shape.rank() - 1] = n;
  shape.push_back(n);
  size_of(shape);
  const Dim start = x.shape().back() == 0 ? 0 : offset >= 0 ? offset : -offset * n;
  return reshape(slice_into_zeros(x, -1, start, n + 1, n * n), shape);
}

Tensor diag(const Tensor& x, int64_t offset) {
  TD_CHECK(x.rank() == 1 || x.rank() == 2, "diag: x must be a vector or a matrix; got shape ", x.shape(),
           ". Use diag_embed() or diagonal().");
  return x.rank() == 1 ? diag_embed(x, offset) : diagonal(x, offset);
}

namespace {
/// x where column - row <= offset (or >=), else 0.
Tensor triangle(const char* op, const Tensor& x, int64_t offset, bool lower) {
  TD_CHECK(x.rank() >= 2, op, ": x must have at least two axes; got shape ", x.shape(), ".");
  const Tensor rows = unsqueeze(arange(x.size(-2), DType::i64, x.device()), 1);
  const Tensor columns = arange(x.size(-1), DType::i64, x.device());
  // Compared at once: a matrix of distances would have 8 bytes for each element of x.
  const Tensor edge = rows + std::clamp(offset, -x.size(-2), x.size(-1));
  return where(lower ? less_equal(columns, edge) : greater_equal(columns, edge), x, number_of(x, 0));
}
}  // namespace

Tensor tril(const Tensor& x, int64_t offset) { return triangle("tril", x, offset, true); }
Tensor triu(const Tensor& x, int64_t offset) { return triangle("triu", x, offset, false); }

std::vector<Tensor> meshgrid(const std::vector<Tensor>& lines, bool xy) {
  Dims shape;
  for (const Tensor& line : lines) {
    TD_CHECK(line.rank() == 1, "meshgrid: every tensor must have one axis; got shape ", line.shape(), ".");
    shape.push_back(line.size());
  }
  const bool swaps = xy && lines.size() >= 2;
  std::vector<Tensor> grids;
  for (size_t i = 0; i < lines.size(); ++i) {
    Dims own = Dims::filled(shape.rank(), 1);
    own[static_cast<int>(i)] = shape[static_cast<int>(i)];
    const Tensor grid = expand(reshape(lines[i], own), shape);
    grids.push_back(swaps ? transpose(grid, 0, 1) : grid);
  }
  return grids;
}

}  // namespace tandem
