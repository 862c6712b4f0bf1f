#include "tandem/ops/index.h"

#include "tandem/ops/shape.h"

namespace tandem {

namespace {

void check_index(const char* op, const Tensor& index) {
  TD_CHECK(index.dtype() == DType::i64 || index.dtype() == DType::i32, op,
           ": the index must be i64 or i32; got ", describe(index), ". cast() it first.");
}

void infer_gather(InferArgs& a) {
  const int axis = static_cast<int>(a.attributes<AxisAttrs>().axis);
  const Dims &x = a.in[0].shape(), &index = a.in[1].shape();
  check_index("gather", a.in[1]);
  bool fits = x.rank() == index.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index[i] <= x[i];
  TD_CHECK(fits, "gather: the index must have x's rank and must not exceed its sizes off axis ", axis,
           "; got x ", x, " and index ", index, ".");
  a.add(index, a.in[0].dtype());
}

void infer_scatter(InferArgs& a) {
  const auto& s = a.attributes<ScatterAttrs>();
  const Dims& source = a.in[0].shape();
  check_index("scatter_add_zeros", a.in[1]);
  bool fits = source == a.in[1].shape() && source.rank() == s.shape.rank();
  for (int i = 0; fits && i < source.rank(); ++i) fits = i == s.axis || source[i] <= s.shape[i];
  TD_CHECK(fits, "scatter_add_zeros: source and index must have equal shapes that fit the output off axis ",
           s.axis, "; got source ", source, ", index ", a.in[1].shape(), " and output ", s.shape, ".");
  TD_CHECK(a.in[0].dtype() != DType::boolean,
           "scatter_add_zeros: the element type must be a number; got bool.");
  a.add(s.shape, a.in[0].dtype());
}

void infer_one_hot(InferArgs& a) {
  const int64_t classes = a.attributes<OneHotAttrs>().classes;
  check_index("one_hot", a.in[0]);
  TD_CHECK(classes >= 1, "one_hot: there must be at least one class; got ", classes, ".");
  Dims shape = a.in[0].shape();
  shape.push_back(classes);
  a.add(shape, DType::i64);
}

}  // namespace

OpDef& op_gather() {
  static OpDef& op = [&]() -> OpDef& {
    OpDef d;
    d.name = "gather";
    d.infer = infer_gather;
    d.gradient = [](const GradArgs& a) {
      return Tensors{
          scatter_add_zeros(a.grad[0], a.attributes.as<AxisAttrs>().axis, a.in[1], a.in_meta[0].shape),
          Tensor()};
    };
    d.saves_inputs = 2;
    d.cost = Cost::cheap;
    return define(d);
  }();
  return op;
}

OpDef& op_scatter_add_zeros() {
  static OpDef& op = [&]() -> OpDef& {
    OpDef d;
    d.name = "scatter_add_zeros";
    d.infer = infer_scatter;
    d.gradient = [](const GradArgs& a) {
      return Tensors{gather(a.grad[0], a.attributes.as<ScatterAttrs>().axis, a.in[1]), Tensor()};
    };
    d.saves_inputs = 2;
    d.cost = Cost::cheap;
    return define(d);
  }();
  return op;
}

OpDef& op_one_hot() {
  static OpDef& op = [&]() -> OpDef& {
    OpDef d;
    d.name = "one_hot";
    d.infer = infer_one_hot;
    d.not_differentiable = "it depends on integers only";
    d.cost = Cost::cheap;
    return define(d);
  }();
  return op;
}

Tensor gather(const Tensor& x, int64_t axis, const Tensor& index) {
  return apply1(op_gather(), {x, index}, AxisAttrs{normal_axis("gather", axis, x.rank())});
}
Tensor scatter_add_zeros(const Tensor& source, int64_t axis, const Tensor& index, const Dims& shape) {
  return apply1(op_scatter_add_zeros(), {source, index},
                ScatterAttrs{shape, normal_axis("scatter_add_zeros", axis, shape.rank())});
}
Tensor one_hot(const Tensor& index, int64_t classes) {
  return apply1(op_one_hot(), {index}, OneHotAttrs{classes});
}

}  // namespace tandem
