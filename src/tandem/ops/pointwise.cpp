#include "tandem/ops/pointwise.h"

#include "tandem/ops/define.h"
#include "tandem/ops/random.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem {

namespace {

// ---- inference: one template for all rows of the table

enum class Types { every, number, floating };
constexpr const char* describe_types(Types types) {
  return types == Types::floating ? "f64, f32, bf16 or f16" : "a number type (not bool)";
}
bool allowed(Types types, DType dtype) {
  return types == Types::every || (types == Types::number ? dtype != DType::boolean : is_floating(dtype));
}

template <class F>
constexpr bool returns_bool(std::integral_constant<int, 1>) {
  return std::is_same_v<decltype(F{}(1.f)), bool>;
}
template <class F>
constexpr bool returns_bool(std::integral_constant<int, 2>) {
  return std::is_same_v<decltype(F{}(1.f, 1.f)), bool>;
}
template <class F>
constexpr bool returns_bool(std::integral_constant<int, 3>) {
  return false;
}

template <class Row>
void infer_pointwise(InferArgs& args) {
  constexpr int first = Row::inputs == 3 ? 1 : 0;  // where: input 0 is the condition
  TD_ASSERT(args.in.size() == Row::inputs, Row::name, " takes ", Row::inputs, " inputs");
  Dims shape = args.in[0].shape();
  const DType dtype = args.in[first].dtype();
  for (int i = 0; i < Row::inputs; ++i) {
    const Tensor& t = args.in[static_cast<size_t>(i)];
    if (i && !(t.shape() == shape)) shape = broadcast_shapes(Row::name, shape, t.shape());
    if (i < first)
      TD_CHECK(t.dtype() == DType::boolean, Row::name, ": the condition must be bool; got ", describe(t),
               ". Compare it with something, for example not_equal(c, 0).");
    else
      TD_CHECK(t.dtype() == dtype, Row::name, ": both types must be equal; got ", args.in[first].dtype(),
               " and ", t.dtype(), ".");
  }
  TD_CHECK(allowed(Row::types, dtype), Row::name, ": the element type must be ", describe_types(Row::types),
           "; got ", dtype, ". cast() it first.");
  args.add(shape, Row::result_is_bool ? DType::boolean : dtype);
}

// ---- gradients, in the order of the table. saves_in / saves_out say which tensors a rule reads.

struct Rule {
  GradRule gradient = nullptr;
  uint32_t saves_in = 0;
  uint32_t saves_out = 0;
  const char* why_not = nullptr;
  bool commutative = false;
};
constexpr Rule no_gradient(const char* why, bool commutative = false) {
  return {nullptr, 0, 0, why, commutative};
}

constexpr Rule rule_add{[](const GradArgs& a) { return Tensors{a.grad[0], a.grad[0]}; }, 0, 0, nullptr, true};
constexpr Rule rule_sub{[](const GradArgs& a) {
  return Tensors{a.grad[0], a.needs[1] ? neg(a.grad[0]) : Tensor()};
}};
constexpr Rule rule_mul{[](const GradArgs& a) {
                          return Tensors{a.needs[0] ? a.grad[0] * a.in[1] : Tensor(),
                                         a.needs[1] ? a.grad[0] * a.in[0] : Tensor()};
                        },
                        3, 0, nullptr, true};
constexpr Rule rule_div{[](const GradArgs& a) {
                          const Tensor da = a.grad[0] / a.in[1];
                          return Tensors{da, a.needs[1] ? neg(da * a.out[0]) : Tensor()};
                        },
                        2, 1};
constexpr Rule rule_pow{[](const GradArgs& a) {
                          const Tensor &x = a.in[0], &y = a.in[1], &g = a.grad[0];
                          return Tensors{a.needs[0] ? where(equal(y, 0), 0, g * y * pow(x, y - 1)) : Tensor(),
                                         a.needs[1] ? where(logical_and(equal(x, 0), greater_equal(y, 0)), 0,
                                                            g * a.out[0] * log(x))
                                                    : Tensor()};
                        },
                        3, 1};
/// The winner takes the gradient; equals share it.
Tensors share_by(const GradArgs& a, Tensor (*beats)(const Operand&, const Operand&)) {
  const Tensor &x = a.in[0], &y = a.in[1], &g = a.grad[0];
  const Tensor tie = where(equal(x, y), g * 0.5, 0);
  return {where(beats(x, y), g, tie), where(beats(y, x), g, tie)};
}
constexpr Rule rule_maximum{[](const GradArgs& a) { return share_by(a, greater); }, 3, 0, nullptr, false};
constexpr Rule rule_minimum{[](const GradArgs& a) { return share_by(a, less); }, 3, 0, nullptr, false};
constexpr const char* kBool = "its result is bool";
constexpr Rule rule_equal = no_gradient(kBool, true);
constexpr Rule rule_not_equal = no_gradient(kBool, true);
constexpr Rule rule_less = no_gradient(kBool);
constexpr Rule rule_less_equal = no_gradient(kBool);
constexpr Rule rule_greater = no_gradient(kBool);
constexpr Rule rule_greater_equal = no_gradient(kBool);
constexpr Rule rule_logical_and = no_gradient(kBool, true);
constexpr Rule rule_logical_or = no_gradient(kBool, true);
constexpr Rule rule_logical_not = no_gradient(kBool);
constexpr Rule rule_neg{[](const GradArgs& a) { return Tensors{neg(a.grad[0])}; }};
constexpr Rule rule_abs{[](const GradArgs& a) { return Tensors{a.grad[0] * sign(a.in[0])}; }, 1};
constexpr Rule rule_sign{[](const GradArgs& a) { return Tensors{zeros_like(a.grad[0])}; }};
constexpr Rule rule_floor = rule_sign;
constexpr Rule rule_exp{[](const GradArgs& a) { return Tensors{a.grad[0] * a.out[0]}; }, 0, 1};
constexpr Rule rule_log{[](const GradArgs& a) { return Tensors{a.grad[0] / a.in[0]}; }, 1};
constexpr Rule rule_sqrt{[](const GradArgs& a) { return Tensors{a.grad[0] * 0.5 / a.out[0]}; }, 0, 1};
constexpr Rule rule_rsqrt{
    [](const GradArgs& a) { return Tensors{a.grad[0] * -0.5 * a.out[0] * a.out[0] * a.out[0]}; }, 0, 1};
constexpr Rule rule_sin{[](const GradArgs& a) { return Tensors{a.grad[0] * cos(a.in[0])}; }, 1};
constexpr Rule rule_cos{[](const GradArgs& a) { return Tensors{neg(a.grad[0] * sin(a.in[0]))}; }, 1};
constexpr Rule rule_tanh{[](const GradArgs& a) { return Tensors{a.grad[0] * (1.0 - a.out[0] * a.out[0])}; },
                         0, 1};
constexpr Rule rule_erf{[](const GradArgs& a) {
                          const double two_over_root_pi = 1.1283791670955126;
                          return Tensors{a.grad[0] * two_over_root_pi * exp(neg(a.in[0] * a.in[0]))};
                        },
                        1};
constexpr Rule rule_sigmoid{
    [](const GradArgs& a) { return Tensors{a.grad[0] * a.out[0] * (1.0 - a.out[0])}; }, 0, 1};
Tensor relu_gradient(const Tensor& g, const Tensor& out) {
  static const OpDef& op = *find_op("relu_gradient");
  return apply1(op, {g, out});
}
constexpr Rule rule_relu{[](const GradArgs& a) { return Tensors{relu_gradient(a.grad[0], a.out[0])}; }, 0, 1};
constexpr Rule rule_gelu{[](const GradArgs& a) {
                           const Tensor& x = a.in[0];
                           const Tensor cdf = (erf(x * 0.70710678118654752440) + 1.0) * 0.5;
                           const Tensor pdf = exp(x * x * -0.5) * 0.39894228040143267794;
                           return Tensors{a.grad[0] * (cdf + x * pdf)};
                         },
                         1};
constexpr Rule rule_relu_gradient{
    [](const GradArgs& a) {
      return Tensors{relu_gradient(a.grad[0], a.in[1]), a.needs[1] ? zeros_like(a.grad[0]) : Tensor()};
    },
    2};
constexpr Rule rule_where{[](const GradArgs& a) {
                            return Tensors{Tensor(), a.needs[1] ? where(a.in[0], a.grad[0], 0) : Tensor(),
                                           a.needs[2] ? where(a.in[0], 0, a.grad[0]) : Tensor()};
                          },
                          1};

// ---- the records, made from the table

struct PointwiseOps {
#define TD_ROW(op_name, Functor, n, types) OpDef* op_name = nullptr;
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
};
PointwiseOps g_ops;

#define TD_ROW(op_name, Functor, n, element_types) \
  struct Row_##op_name { \
    static constexpr const char* name = #op_name; \
    static constexpr int inputs = n; \
    static constexpr Types types = Types::element_types; \
    static constexpr bool result_is_bool = returns_bool<Functor>(std::integral_constant<int, n>{}); \
  };
TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW

template <class Row>
OpDef* define_row(const char* functor, const Rule& rule) {
  OpDef op;
  op.name = Row::name;
  op.infer = infer_pointwise<Row>;
  op.gradient = rule.gradient;
  op.not_differentiable = rule.why_not;
  op.saves_inputs = rule.saves_in;
  op.saves_outputs = rule.saves_out;
  op.commutative = rule.commutative;
  op.functor = functor;
  op.takes_strided = true;
  op.cost = Cost::cheap;
  return &define(op);
}

// ---- types of mixed operands

DType default_type(DTypeClass kind) {
  return kind == DTypeClass::floating  ? DType::f32
         : kind == DTypeClass::integer ? DType::i64
                                       : DType::boolean;
}

/// Tensors with axes come before 0-d tensors, which come before plain numbers: the later only count where their kind
/// of number is higher.
DType result_type(const Operand& a, const Operand& b) {
  const Tensor *x = a.tensor(), *y = b.tensor();
  if (x && y) {
    if ((x->rank() == 0) == (y->rank() == 0) || x->dtype() == y->dtype())
      return promote(x->dtype(), y->dtype());
    const DType with_axes = x->rank() ? x->dtype() : y->dtype(),
                without = x->rank() ? y->dtype() : x->dtype();
    return info(without).kind > info(with_axes).kind ? promote(with_axes, without) : with_axes;
  }
  TD_CHECK(x || y, "pointwise: one of the two operands must be a tensor; got two numbers.");
  const DType dtype = x ? x->dtype() : y->dtype();
  const DTypeClass number = x ? b.number_kind() : a.number_kind();
  return number > info(dtype).kind ? default_type(number) : dtype;
}

Tensor as_tensor(const Operand& operand, DType dtype, Device device) {
  if (const Tensor* t = operand.tensor()) return t->dtype() == dtype ? *t : cast(*t, dtype);
  return full_number(operand.number(), operand.integer(), dtype, device);
}

Tensor binary(const OpDef& op, const Operand& a, const Operand& b, bool real = false) {
  if (a.tensor()) TD_CHECK(a.tensor()->defined(), op.name, ": a must be a tensor; got an undefined handle.");
  if (b.tensor()) TD_CHECK(b.tensor()->defined(), op.name, ": b must be a tensor; got an undefined handle.");
  DType dtype = result_type(a, b);
  if (real && !is_floating(dtype)) dtype = DType::f32;
  const Device device = a.tensor() ? a.tensor()->device() : b.tensor()->device();
  const Tensor in[2] = {as_tensor(a, dtype, device), as_tensor(b, dtype, device)};
  return std::move(apply(op, in)[0]);
}

Tensor unary(const OpDef& op, const Tensor& x) { return std::move(apply(op, {&x, 1})[0]); }

/// For functions of real numbers.
Tensor real_unary(const OpDef& op, const Tensor& x) {
  if (x.defined() && !is_floating(x.dtype())) return unary(op, cast(x, DType::f32));
  return unary(op, x);
}

}  // namespace

void define_pointwise_ops() {
#define TD_ROW(op_name, Functor, n, types) \
  g_ops.op_name = define_row<Row_##op_name>(#Functor, rule_##op_name);
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
  op_cast();
}

OpDef& op_cast() {
  static OpDef& op = [&]() -> OpDef& {
    OpDef d;
    d.name = "cast";
    d.infer = [](InferArgs& a) { a.add(a.in[0].shape(), a.attributes<CastAttrs>().dtype); };
    d.gradient = [](const GradArgs& a) { return Tensors{cast(a.grad[0], a.in_meta[0].dtype)}; };
    d.functor = "CastTo";
    d.takes_strided = true;
    d.cost = Cost::cheap;
    return define(d);
  }();
  return op;
}

Tensor add(const Operand& a, const Operand& b) { return binary(*g_ops.add, a, b); }
Tensor sub(const Operand& a, const Operand& b) { return binary(*g_ops.sub, a, b); }
Tensor mul(const Operand& a, const Operand& b) { return binary(*g_ops.mul, a, b); }
Tensor div(const Operand& a, const Operand& b) { return binary(*g_ops.div, a, b, true); }
Tensor pow(const Operand& a, const Operand& b) { return binary(*g_ops.pow, a, b); }
Tensor maximum(const Operand& a, const Operand& b) { return binary(*g_ops.maximum, a, b); }
Tensor minimum(const Operand& a, const Operand& b) { return binary(*g_ops.minimum, a, b); }
Tensor equal(const Operand& a, const Operand& b) { return binary(*g_ops.equal, a, b); }
Tensor not_equal(const Operand& a, const Operand& b) { return binary(*g_ops.not_equal, a, b); }
Tensor less(const Operand& a, const Operand& b) { return binary(*g_ops.less, a, b); }
Tensor less_equal(const Operand& a, const Operand& b) { return binary(*g_ops.less_equal, a, b); }
Tensor greater(const Operand& a, const Operand& b) { return binary(*g_ops.greater, a, b); }
Tensor greater_equal(const Operand& a, const Operand& b) { return binary(*g_ops.greater_equal, a, b); }
Tensor logical_and(const Operand& a, const Operand& b) { return binary(*g_ops.logical_and, a, b); }
Tensor logical_or(const Operand& a, const Operand& b) { return binary(*g_ops.logical_or, a, b); }
Tensor logical_not(const Tensor& x) { return unary(*g_ops.logical_not, x); }
Tensor neg(const Tensor& x) { return unary(*g_ops.neg, x); }
Tensor abs(const Tensor& x) { return unary(*g_ops.abs, x); }
Tensor sign(const Tensor& x) { return unary(*g_ops.sign, x); }
Tensor floor(const Tensor& x) { return x.defined() && is_integer(x.dtype()) ? x : unary(*g_ops.floor, x); }
Tensor exp(const Tensor& x) { return real_unary(*g_ops.exp, x); }
Tensor log(const Tensor& x) { return real_unary(*g_ops.log, x); }
Tensor sqrt(const Tensor& x) { return real_unary(*g_ops.sqrt, x); }
Tensor rsqrt(const Tensor& x) { return real_unary(*g_ops.rsqrt, x); }
Tensor sin(const Tensor& x) { return real_unary(*g_ops.sin, x); }
Tensor cos(const Tensor& x) { return real_unary(*g_ops.cos, x); }
Tensor tanh(const Tensor& x) { return real_unary(*g_ops.tanh, x); }
Tensor erf(const Tensor& x) { return real_unary(*g_ops.erf, x); }
Tensor sigmoid(const Tensor& x) { return real_unary(*g_ops.sigmoid, x); }
Tensor relu(const Tensor& x) { return unary(*g_ops.relu, x); }
Tensor gelu(const Tensor& x) { return unary(*g_ops.gelu, x); }

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  const DType dtype = result_type(a, b);
  const Tensor in[3] = {condition, as_tensor(a, dtype, condition.device()),
                        as_tensor(b, dtype, condition.device())};
  return apply(*g_ops.where, in)[0];
}

Tensor cast(const Tensor& x, DType dtype) {
  TD_CHECK(x.defined(), "cast: x must be a tensor; got an undefined handle.");
  return x.dtype() == dtype ? x : apply1(op_cast(), {x}, CastAttrs{dtype});
}

}  // namespace tandem
