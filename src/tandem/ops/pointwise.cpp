#include "tandem/ops/pointwise.h"

#include <cmath>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/ops/define.h"
#include "tandem/ops/random.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

// ---- inference: one template for all rows of the table

enum class Types { every, number, floating, integer, bits };
constexpr const char* describe_types(Types types) {
  return types == Types::floating  ? "f64, f32, bf16 or f16"
         : types == Types::integer ? "an integer type"
         : types == Types::bits    ? "an integer type or bool"
                                   : "a number type (not bool)";
}
bool allowed(Types types, DType dtype) {
  switch (types) {
    case Types::every:
      return true;
    case Types::number:
      return dtype != DType::boolean;
    case Types::floating:
      return is_floating(dtype);
    case Types::integer:
      return is_integer(dtype);
    case Types::bits:
      break;
  }
  return !is_floating(dtype);
}

template <class F, class T, int inputs>
constexpr bool returns_bool() {
  if constexpr (inputs == 1)
    return std::is_same_v<decltype(F{}(T{})), bool>;
  else if constexpr (inputs == 2)
    return std::is_same_v<decltype(F{}(T{}, T{})), bool>;
  else
    return false;
}

template <class Row>
void infer_pointwise(InferArgs& args) {
  constexpr int first = Row::takes_condition ? 1 : 0;
  Dims shape = args.in[0].shape();
  const DType dtype = args.in[first].dtype();
  for (int i = 0; i < Row::inputs.most; ++i) {
    const Tensor& t = args.in[static_cast<size_t>(i)];
    if (i && !(t.shape() == shape)) shape = broadcast_shapes(Row::name, shape, t.shape());
    if (i < first)
      TD_CHECK(t.dtype() == DType::boolean, Row::name, ": the condition must be bool; got ", describe(t),
               ". Compare it with something, for example not_equal(c, 0).");
    else
      TD_CHECK(t.dtype() == dtype, Row::name, ": all types must be equal; got ", args.in[first].dtype(),
               " and ", t.dtype(), ".");
  }
  TD_CHECK(allowed(Row::types, dtype), Row::name, ": the element type must be ", describe_types(Row::types),
           "; got ", dtype, ". cast() it first.");
  args.add(shape, Row::result_is_bool ? DType::boolean : dtype);
}

// ---- gradients, in the order of the table

/// The fields of OpDef that differ from row to row, the rule itself last.
struct Rule {
  const char* not_differentiable = nullptr;
  uint32_t saves_inputs = 0;
  uint32_t saves_outputs = 0;
  Precision precision = Precision::as_given;
  bool commutative = false;
  GradRule gradient = nullptr;
};

constexpr Rule rule_add{.commutative = true, .gradient = [](const GradArgs& a) {
                          return Tensors{a.grad[0], a.grad[0]};
                        }};
constexpr Rule rule_sub{.gradient = [](const GradArgs& a) {
  return Tensors{a.grad[0], a.needs[1] ? neg(a.grad[0]) : Tensor()};
}};
constexpr Rule rule_mul{.saves_inputs = 0b11, .commutative = true, .gradient = [](const GradArgs& a) {
                          return Tensors{a.needs[0] ? a.grad[0] * a.in[1] : Tensor(),
                                         a.needs[1] ? a.grad[0] * a.in[0] : Tensor()};
                        }};
constexpr Rule rule_div{.saves_inputs = 2, .saves_outputs = 1, .gradient = [](const GradArgs& a) {
                          const Tensor da = a.grad[0] / a.in[1];
                          return Tensors{da, a.needs[1] ? neg(da * a.out[0]) : Tensor()};
                        }};
constexpr Rule rule_pow{.saves_inputs = 0b11,
                        .saves_outputs = 1,
                        .precision = Precision::full,
                        .gradient = [](const GradArgs& a) {
                          const Tensor &x = a.in[0], &y = a.in[1], &g = a.grad[0];
                          // Where a factor would be infinite beside a 0, the gradient is 0, and so are those after it.
                          const auto by_x = [&] {
                            const Tensor lost = logical_and(equal(y, 0), logical_not(isfinite(1.0 / x)));
                            return where(lost, 0, g * y * pow(where(lost, 1, x), y - 1));
                          };
                          const auto by_y = [&] {
                            const Tensor lost = logical_and(equal(x, 0), greater_equal(y, 0));
                            return where(lost, 0, g * a.out[0] * log(where(lost, 1, x)));
                          };
                          return Tensors{a.needs[0] ? by_x() : Tensor(), a.needs[1] ? by_y() : Tensor()};
                        }};
constexpr Rule rule_remainder{
    .saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
      return Tensors{a.grad[0], a.needs[1] ? neg(a.grad[0] * floor_divide(a.in[0], a.in[1])) : Tensor()};
    }};
constexpr Rule rule_fmod{
    .saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
      return Tensors{a.grad[0], a.needs[1] ? neg(a.grad[0] * trunc(a.in[0] / a.in[1])) : Tensor()};
    }};
constexpr Rule rule_gamma_slope{.not_differentiable = "no second derivative is offered"};
constexpr Rule rule_floor_divide{.not_differentiable = "its result is a whole number"};
/// The winner takes the gradient; equals share it.
Tensors share_by(const GradArgs& a, Tensor (*beats)(const Operand&, const Operand&)) {
  const Tensor &x = a.in[0], &y = a.in[1], &g = a.grad[0];
  const Tensor tie = where(equal(x, y), g * 0.5, 0);
  return {where(beats(x, y), g, tie), where(beats(y, x), g, tie)};
}
constexpr Rule rule_maximum{.saves_inputs = 0b11,
                            .gradient = [](const GradArgs& a) { return share_by(a, greater); }};
constexpr Rule rule_minimum{.saves_inputs = 0b11,
                            .gradient = [](const GradArgs& a) { return share_by(a, less); }};
constexpr const char* kBool = "its result is bool";
constexpr Rule rule_equal{.not_differentiable = kBool, .commutative = true};
constexpr Rule rule_not_equal{.not_differentiable = kBool, .commutative = true};
constexpr Rule rule_less{.not_differentiable = kBool};
constexpr Rule rule_less_equal{.not_differentiable = kBool};
constexpr Rule rule_greater{.not_differentiable = kBool};
constexpr Rule rule_greater_equal{.not_differentiable = kBool};
constexpr Rule rule_logical_and{.not_differentiable = kBool, .commutative = true};
constexpr Rule rule_logical_or{.not_differentiable = kBool, .commutative = true};
constexpr Rule rule_logical_xor{.not_differentiable = kBool, .commutative = true};
constexpr Rule rule_logical_not{.not_differentiable = kBool};
constexpr const char* kBits = "it works on bits";
constexpr Rule rule_bitwise_and{.not_differentiable = kBits, .commutative = true};
constexpr Rule rule_bitwise_or{.not_differentiable = kBits, .commutative = true};
constexpr Rule rule_bitwise_xor{.not_differentiable = kBits, .commutative = true};
constexpr Rule rule_bitwise_not{.not_differentiable = kBits};
constexpr Rule rule_bitwise_left_shift{.not_differentiable = kBits};
constexpr Rule rule_bitwise_right_shift{.not_differentiable = kBits};
constexpr Rule rule_neg{.gradient = [](const GradArgs& a) { return Tensors{neg(a.grad[0])}; }};
constexpr Rule rule_abs{.saves_inputs = 1,
                        .gradient = [](const GradArgs& a) { return Tensors{a.grad[0] * sign(a.in[0])}; }};
constexpr Rule rule_sign{.gradient = [](const GradArgs& a) { return Tensors{zeros_like(a.grad[0])}; }};
constexpr Rule rule_floor = rule_sign;
constexpr Rule rule_ceil = rule_sign;
constexpr Rule rule_round = rule_sign;
constexpr Rule rule_trunc = rule_sign;
constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;
constexpr Rule rule_exp2{.saves_outputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] * a.out[0] * kLn2};
                         }};
constexpr Rule rule_expm1{
    .saves_outputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
      return Tensors{a.grad[0] * (a.out[0] + 1.0)};
    }};
constexpr Rule rule_log2{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] / (a.in[0] * kLn2)};
                         }};
constexpr Rule rule_log10{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                            return Tensors{a.grad[0] / (a.in[0] * kLn10)};
                          }};
constexpr Rule rule_log1p{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                            return Tensors{a.grad[0] / (a.in[0] + 1.0)};
                          }};
constexpr Rule rule_exp{.saves_outputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                          return Tensors{a.grad[0] * a.out[0]};
                        }};
constexpr Rule rule_log{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                          return Tensors{a.grad[0] / a.in[0]};
                        }};
constexpr Rule rule_sqrt{.saves_outputs = 1,
                         .gradient = [](const GradArgs& a) { return Tensors{a.grad[0] * 0.5 / a.out[0]}; }};
constexpr Rule rule_rsqrt{
    .saves_outputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
      return Tensors{a.grad[0] * -0.5 * a.out[0] * a.out[0] * a.out[0]};
    }};
constexpr Rule rule_sin{.saves_inputs = 1,
                        .gradient = [](const GradArgs& a) { return Tensors{a.grad[0] * cos(a.in[0])}; }};
constexpr Rule rule_cos{.saves_inputs = 1,
                        .gradient = [](const GradArgs& a) { return Tensors{neg(a.grad[0] * sin(a.in[0]))}; }};
constexpr Rule rule_tan{.saves_outputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                          return Tensors{a.grad[0] * (a.out[0] * a.out[0] + 1.0)};
                        }};
constexpr Rule rule_asin{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] * rsqrt(1.0 - a.in[0] * a.in[0])};
                         }};
constexpr Rule rule_acos{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                           return Tensors{neg(a.grad[0] * rsqrt(1.0 - a.in[0] * a.in[0]))};
                         }};
constexpr Rule rule_atan{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] / (a.in[0] * a.in[0] + 1.0)};
                         }};
/// At the point (0, 0), where there is no angle, 0.
constexpr Rule rule_atan2{.saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
                            const Tensor &y = a.in[0], &x = a.in[1];
                            const Tensor far = hypot(x, y), none = equal(far, 0), safe = where(none, 1, far);
                            const Tensor scaled = where(none, 0, a.grad[0] / safe);
                            return Tensors{a.needs[0] ? scaled * (x / safe) : Tensor(),
                                           a.needs[1] ? neg(scaled * (y / safe)) : Tensor()};
                          }};
/// 0 at (0, 0), where the slope has no direction.
constexpr Rule rule_hypot{
    .saves_inputs = 0b11, .saves_outputs = 1, .commutative = true, .gradient = [](const GradArgs& a) {
      const Tensor none = equal(a.out[0], 0);
      const Tensor scaled = where(none, 0, a.grad[0] / where(none, 1, a.out[0]));
      return Tensors{a.needs[0] ? scaled * a.in[0] : Tensor(), a.needs[1] ? scaled * a.in[1] : Tensor()};
    }};
constexpr Rule rule_sinh{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] * cosh(a.in[0])};
                         }};
constexpr Rule rule_cosh{.saves_inputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] * sinh(a.in[0])};
                         }};
constexpr Rule rule_asinh{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                            return Tensors{a.grad[0] * rsqrt(a.in[0] * a.in[0] + 1.0)};
                          }};
constexpr Rule rule_acosh{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                            return Tensors{a.grad[0] * rsqrt(a.in[0] * a.in[0] - 1.0)};
                          }};
constexpr Rule rule_atanh{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                            return Tensors{a.grad[0] / (1.0 - a.in[0] * a.in[0])};
                          }};
constexpr Rule rule_tanh{.saves_outputs = 1, .gradient = [](const GradArgs& a) {
                           return Tensors{a.grad[0] * (1.0 - a.out[0] * a.out[0])};
                         }};
constexpr Rule rule_erf{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                          const double two_over_root_pi = 1.1283791670955126;
                          return Tensors{a.grad[0] * two_over_root_pi * exp(neg(a.in[0] * a.in[0]))};
                        }};
constexpr Rule rule_erfc{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                           const double two_over_root_pi = 1.1283791670955126;
                           return Tensors{a.grad[0] * -two_over_root_pi * exp(neg(a.in[0] * a.in[0]))};
                         }};
constexpr Rule rule_erfinv{
    .saves_outputs = 1, .precision = Precision::full, .gradient = [](const GradArgs& a) {
      const double half_root_pi = 0.88622692545275801365;
      return Tensors{a.grad[0] * half_root_pi * exp(a.out[0] * a.out[0])};
    }};
constexpr Rule rule_lgamma{
    .saves_inputs = 1, .gradient = [](const GradArgs& a) { return Tensors{a.grad[0] * digamma(a.in[0])}; }};
constexpr Rule rule_digamma{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                              return Tensors{a.grad[0] * polygamma(1, a.in[0])};
                            }};
Tensor polygamma_by(const Tensor& x, const Tensor& n);
constexpr Rule rule_polygamma{.saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
                                return Tensors{a.grad[0] * polygamma_by(a.in[0], a.in[1] + 1), Tensor()};
                              }};
/// The two shares, which add up to 1; halves where both are the same infinity, whose difference is NaN.
constexpr Rule rule_logaddexp{.saves_inputs = 0b11, .commutative = true, .gradient = [](const GradArgs& a) {
                                const Tensor &x = a.in[0], &y = a.in[1], &g = a.grad[0];
                                const Tensor both = logical_and(equal(x, y), isinf(x)),
                                             away = where(both, 0, x - y);
                                return Tensors{a.needs[0] ? g * sigmoid(away) : Tensor(),
                                               a.needs[1] ? g * sigmoid(neg(away)) : Tensor()};
                              }};
constexpr Rule rule_sigmoid{.saves_outputs = 1, .gradient = [](const GradArgs& a) {
                              return Tensors{a.grad[0] * a.out[0] * (1.0 - a.out[0])};
                            }};
constexpr Rule rule_softplus{
    .saves_inputs = 1, .gradient = [](const GradArgs& a) { return Tensors{a.grad[0] * sigmoid(a.in[0])}; }};

// Activations have their gradients as ops of their own, in one pass; the rules of those are for the second order.
Tensor relu_gradient(const Tensor& g, const Tensor& out);
Tensor gelu_gradient(const Tensor& g, const Tensor& x);
Tensor gelu_tanh_gradient(const Tensor& g, const Tensor& x);
Tensor silu_gradient(const Tensor& g, const Tensor& x);
Tensor leaky_relu_gradient(const Tensor& g, const Tensor& x, const Tensor& slope);
Tensor elu_gradient(const Tensor& g, const Tensor& x, const Tensor& alpha);

constexpr Rule rule_relu{.saves_outputs = 1, .gradient = [](const GradArgs& a) {
                           return Tensors{relu_gradient(a.grad[0], a.out[0])};
                         }};
constexpr Rule rule_gelu{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                           return Tensors{gelu_gradient(a.grad[0], a.in[0])};
                         }};
constexpr Rule rule_gelu_tanh{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                                return Tensors{gelu_tanh_gradient(a.grad[0], a.in[0])};
                              }};
constexpr Rule rule_silu{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                           return Tensors{silu_gradient(a.grad[0], a.in[0])};
                         }};
constexpr Rule rule_leaky_relu{.saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
                                 const Tensor &x = a.in[0], &slope = a.in[1], &g = a.grad[0];
                                 return Tensors{a.needs[0] ? leaky_relu_gradient(g, x, slope) : Tensor(),
                                                a.needs[1] ? g * minimum(x, 0) : Tensor()};
                               }};
constexpr Rule rule_elu{.saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
                          const Tensor &x = a.in[0], &alpha = a.in[1], &g = a.grad[0];
                          return Tensors{a.needs[0] ? elu_gradient(g, x, alpha) : Tensor(),
                                         a.needs[1] ? g * expm1(minimum(x, 0)) : Tensor()};
                        }};
constexpr Rule rule_relu_gradient{
    .saves_inputs = 2, .gradient = [](const GradArgs& a) {
      return Tensors{relu_gradient(a.grad[0], a.in[1]), a.needs[1] ? zeros_like(a.grad[0]) : Tensor()};
    }};
constexpr Rule rule_gelu_gradient{
    .saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
      const Tensor &g = a.in[0], &x = a.in[1], &h = a.grad[0];
      const auto slope = [&] {
        const Tensor square = x * x;
        return exp(square * -0.5) * 0.39894228040143267794 * (2.0 - square);
      };
      return Tensors{a.needs[0] ? gelu_gradient(h, x) : Tensor(), a.needs[1] ? h * g * slope() : Tensor()};
    }};
constexpr Rule rule_gelu_tanh_gradient{
    .saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
      const Tensor &g = a.in[0], &x = a.in[1], &h = a.grad[0];
      // x · s(w), w = A x + B x³: the second derivative by the chain rule.
      const auto slope = [&] {
        const Tensor square = x * x;
        const Tensor s = sigmoid(x * (square * 0.07135481627260025 + 1.5957691216057308));
        const Tensor w1 = square * 0.21406444881780076 + 1.5957691216057308, w2 = x * 0.4281288976356015;
        return s * (1.0 - s) * (w1 * 2.0 + x * ((1.0 - s * 2.0) * w1 * w1 + w2));
      };
      return Tensors{a.needs[0] ? gelu_tanh_gradient(h, x) : Tensor(),
                     a.needs[1] ? h * g * slope() : Tensor()};
    }};
constexpr Rule rule_silu_gradient{
    .saves_inputs = 0b11, .gradient = [](const GradArgs& a) {
      const Tensor &g = a.in[0], &x = a.in[1], &h = a.grad[0];
      const auto slope = [&] {
        const Tensor s = sigmoid(x);
        return s * (1.0 - s) * (x * (1.0 - s * 2.0) + 2.0);
      };
      return Tensors{a.needs[0] ? silu_gradient(h, x) : Tensor(), a.needs[1] ? h * g * slope() : Tensor()};
    }};
constexpr Rule rule_leaky_relu_gradient{
    .saves_inputs = 0b111, .gradient = [](const GradArgs& a) {
      const Tensor &g = a.in[0], &x = a.in[1], &slope = a.in[2], &h = a.grad[0];
      return Tensors{a.needs[0] ? leaky_relu_gradient(h, x, slope) : Tensor(),
                     a.needs[1] ? zeros_like(h) : Tensor(),
                     a.needs[2] ? where(greater(x, 0), 0, h * g) : Tensor()};
    }};
constexpr Rule rule_elu_gradient{
    .saves_inputs = 0b111, .gradient = [](const GradArgs& a) {
      const Tensor &g = a.in[0], &x = a.in[1], &alpha = a.in[2], &h = a.grad[0];
      const auto below = [&] { return where(greater(x, 0), 0, h * g * exp(minimum(x, 0))); };
      return Tensors{a.needs[0] ? elu_gradient(h, x, alpha) : Tensor(),
                     a.needs[1] ? below() * alpha : Tensor(), a.needs[2] ? below() : Tensor()};
    }};
constexpr Rule rule_clamp{
    .saves_inputs = 0b111, .gradient = [](const GradArgs& a) {
      const Tensor &x = a.in[0], &low = a.in[1], &high = a.in[2], &g = a.grad[0];
      const auto gate = [&](const Tensor& open) { return where(open, g, 0); };
      return Tensors{a.needs[0] ? gate(logical_and(greater_equal(x, low), less_equal(x, high))) : Tensor(),
                     a.needs[1] ? gate(logical_and(less(x, low), less(low, high))) : Tensor(),
                     a.needs[2] ? gate(logical_or(greater(x, high), less(high, low))) : Tensor()};
    }};
/// Nothing passes at the corners; a NaN does, as it goes through.
constexpr Rule rule_hardtanh{
    .saves_inputs = 0b111, .gradient = [](const GradArgs& a) {
      const Tensor &x = a.in[0], &low = a.in[1], &high = a.in[2], &g = a.grad[0];
      return Tensors{
          a.needs[0] ? where(logical_or(less_equal(x, low), greater_equal(x, high)), 0, g) : Tensor(),
          a.needs[1] ? where(less_equal(x, low), g, 0) : Tensor(),
          a.needs[2] ? where(greater_equal(x, high), g, 0) : Tensor()};
    }};
constexpr Rule rule_lerp{.saves_inputs = 0b111, .gradient = [](const GradArgs& a) {
                           const Tensor &from = a.in[0], &to = a.in[1], &weight = a.in[2], &g = a.grad[0];
                           return Tensors{a.needs[0] ? g * (1.0 - weight) : Tensor(),
                                          a.needs[1] ? g * weight : Tensor(),
                                          a.needs[2] ? g * (to - from) : Tensor()};
                         }};
constexpr Rule rule_where{.saves_inputs = 1, .gradient = [](const GradArgs& a) {
                            return Tensors{Tensor(), a.needs[1] ? where(a.in[0], a.grad[0], 0) : Tensor(),
                                           a.needs[2] ? where(a.in[0], 0, a.grad[0]) : Tensor()};
                          }};

void infer_cast(InferArgs& a) { a.add(a.in[0].shape(), a.attributes<CastAttrs>().dtype); }
Tensors grad_cast(const GradArgs& a) { return {cast(a.grad[0], a.in_meta[0].dtype)}; }

// ---- the records, made from the table

struct PointwiseOps {
#define TD_ROW(op_name, Functor, n, types, ...) OpDef* op_name = nullptr;
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
};
PointwiseOps g_ops;

#define TD_ROW(op_name, Functor, n, element_types, input_names, what) \
  struct Row_##op_name { \
    static constexpr const char *name = #op_name, *about = what; \
    static constexpr OpInputs inputs = OpInputs input_names; \
    static_assert(inputs.least == n && inputs.most == n); \
    static constexpr Types types = Types::element_types; \
    static constexpr bool takes_condition = std::is_same_v<Functor, Where>; \
    using Sample = std::conditional_t<types == Types::integer || types == Types::bits, int, float>; \
    static constexpr bool result_is_bool = returns_bool<Functor, Sample, n>(); \
  };
TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW

template <class Row>
OpDef record_of(const char* functor, const Rule& rule) {
  return {.name = Row::name,
          .about = Row::about,
          .function = std::string_view(Row::name).ends_with("_gradient") ? "" : nullptr,
          .inputs = Row::inputs,
          .outputs = {"y"},
          .infer = infer_pointwise<Row>,
          .gradient = rule.gradient,
          .not_differentiable = rule.not_differentiable,
          .saves_inputs = rule.saves_inputs,
          .saves_outputs = rule.saves_outputs,
          .functor = functor,
          .precision = rule.precision,
          .commutative = rule.commutative,
          .takes_strided = true,
          .cost = Cost::cheap};
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

/// Refuses a whole number beyond what the integers that it meets can hold: cut off it would be another number.
void check_fits(const char* op, const Operand& operand, DType dtype) {
  if (!is_integer(dtype) || operand.number_kind() != DTypeClass::integer) return;
  const bool is_signed = dtype <= DType::i64;
  const int bits = 8 * static_cast<int>(bytes_of(dtype)) - (is_signed ? 1 : 0);
  const double least = is_signed ? -std::exp2(bits) : 0;
  const bool is_low_enough = bits == 64   ? true
                             : bits == 63 ? operand.number() < 0x1p63 || operand.integer() >= 0
                                          : operand.number() < std::exp2(bits);
  TD_CHECK(operand.number() >= least && is_low_enough, op,
           ": a number must fit the integers that it meets; got ", operand.number(), " for ", dtype,
           ". cast() the tensor to a wider type first.");
}

}  // namespace

Tensor as_tensor(const char* op, const Operand& operand, DType dtype, Device device) {
  if (const Tensor* t = operand.tensor()) return t->dtype() == dtype ? *t : cast(*t, dtype);
  if (operand.number_kind() == DTypeClass::floating) return full({}, operand.number(), dtype, device);
  check_fits(op, operand, dtype);
  return full_number(operand.number(), operand.integer(), dtype, device);
}

Operand factor_for(const char* op, const char* what, const Operand& factor, const Tensor& x) {
  TD_CHECK(!factor.tensor(), op, ": ", what,
           " must be a number; got a tensor. Multiply by it before or after.");
  if (is_floating(x.dtype()) || factor.number_kind() != DTypeClass::floating) return factor;
  const double value = factor.number();
  TD_CHECK(std::abs(value) < 0x1p63 && value == std::trunc(value), op, ": ", what,
           " must be whole for a tensor of integers; got ", value, " for ", describe(x), ".");
  return static_cast<int64_t>(value);
}

namespace {

Tensor relu_gradient(const Tensor& g, const Tensor& out) { return apply1(*g_ops.relu_gradient, {g, out}); }
Tensor gelu_gradient(const Tensor& g, const Tensor& x) { return apply1(*g_ops.gelu_gradient, {g, x}); }
Tensor gelu_tanh_gradient(const Tensor& g, const Tensor& x) {
  return apply1(*g_ops.gelu_tanh_gradient, {g, x});
}
Tensor silu_gradient(const Tensor& g, const Tensor& x) { return apply1(*g_ops.silu_gradient, {g, x}); }
Tensor leaky_relu_gradient(const Tensor& g, const Tensor& x, const Tensor& slope) {
  return apply1(*g_ops.leaky_relu_gradient, {g, x, slope});
}
Tensor elu_gradient(const Tensor& g, const Tensor& x, const Tensor& alpha) {
  return apply1(*g_ops.elu_gradient, {g, x, alpha});
}

Tensor polygamma_by(const Tensor& x, const Tensor& n) { return apply1(*g_ops.polygamma, {x, n}); }

/// Two inputs of an op. References that the caller holds are not counted again: for a small tensor that takes long.
class TwoInputs {
 public:
  TwoInputs(const char* op, const Operand& a, const Operand& b, DType dtype, Device device)
      : owns_a_(take(&in_[0], op, a, dtype, device)) {
    try {
      owns_b_ = take(&in_[1], op, b, dtype, device);
    } catch (...) {
      if (owns_a_) in_[0].~Tensor();
      throw;
    }
  }
  ~TwoInputs() {
    if (owns_a_) in_[0].~Tensor();
    if (owns_b_) in_[1].~Tensor();
  }
  TwoInputs(const TwoInputs&) = delete;
  TwoInputs& operator=(const TwoInputs&) = delete;
  operator std::span<const Tensor>() const { return in_; }

 private:
  static bool take(Tensor* place, const char* op, const Operand& x, DType dtype, Device device) {
    const bool owns = !x.tensor() || x.tensor()->dtype() != dtype;
    new (place)
        Tensor(owns ? as_tensor(op, x, dtype, device) : Tensor(Ref<TensorImpl>::borrowed(x.tensor()->ref())));
    return owns;
  }
  union {
    Tensor in_[2];
  };
  bool owns_a_, owns_b_ = false;
};

/// real: for functions of real numbers. of_bools: what takes the place of op where both operands are bool.
Tensor binary(const OpDef& op, const Operand& a, const Operand& b, bool real = false,
              const OpDef* of_bools = nullptr) {
  if (a.tensor()) TD_CHECK(a.tensor()->defined(), op.name, ": a must be a tensor; got an undefined handle.");
  if (b.tensor()) TD_CHECK(b.tensor()->defined(), op.name, ": b must be a tensor; got an undefined handle.");
  DType dtype = result_type(a, b);
  if (real && !is_floating(dtype)) dtype = DType::f32;
  if (op.precision == Precision::full && bytes_of(dtype) == 2 && is_floating(dtype) && autocast_is_on())
    dtype = DType::f32;  // a number is not rounded to 16 bits first
  const Device device = a.tensor() ? a.tensor()->device() : b.tensor()->device();
  const TwoInputs in(op.name, a, b, dtype, device);
  return std::move(apply(of_bools && dtype == DType::boolean ? *of_bools : op, in)[0]);
}

Tensor unary(const OpDef& op, const Tensor& x) { return std::move(apply(op, {&x, 1})[0]); }

/// For functions of real numbers.
Tensor real_unary(const OpDef& op, const Tensor& x) {
  if (x.defined() && !is_floating(x.dtype())) return unary(op, cast(x, DType::f32));
  return unary(op, x);
}

/// A copy where the values are whole already.
Tensor rounding(const OpDef& op, const Tensor& x) {
  return x.defined() && is_integer(x.dtype()) ? clone(x) : unary(op, x);
}

/// A parameter of a function of x, as a 0-d tensor.
Tensor parameter(const char* op, const Tensor& x, double value) {
  TD_CHECK(x.defined(), op, ": x must be a tensor; got an undefined handle.");
  return full_number(value, 0, x.dtype(), x.device());
}

}  // namespace

void define_pointwise_ops() {
#define TD_ROW(op_name, Functor, n, types, ...) \
  g_ops.op_name = &define(record_of<Row_##op_name>(#Functor, rule_##op_name));
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
  op_cast();
}

OpDef& op_cast() {
  static OpDef& op = define(OpDef{.name = "cast",
                                  .about = "the same values in another type",
                                  .inputs = {"x"},
                                  .outputs = {"y"},
                                  .infer = infer_cast,
                                  .gradient = grad_cast,
                                  .functor = "CastTo",
                                  .takes_strided = true,
                                  .cost = Cost::cheap,
                                  .flops = no_flops});
  return op;
}

Tensor add(const Operand& a, const Operand& b) { return binary(*g_ops.add, a, b, false, g_ops.logical_or); }
Tensor sub(const Operand& a, const Operand& b) { return binary(*g_ops.sub, a, b); }
Tensor mul(const Operand& a, const Operand& b) { return binary(*g_ops.mul, a, b, false, g_ops.logical_and); }
Tensor div(const Operand& a, const Operand& b) { return binary(*g_ops.div, a, b, true); }
Tensor pow(const Operand& a, const Operand& b) { return binary(*g_ops.pow, a, b); }
namespace {
const Tensor& change(const char* name, Tensor (*function)(const Operand&, const Operand&), const Tensor& a,
                     const Operand& b) {
  TD_CHECK(a.defined(), name, ": the target must be a tensor; got an undefined handle.");
  const Tensor in[2] = {a, b.tensor() && b.tensor()->defined() ? *b.tensor() : a};
  check_in_place(name, in);
  const Tensor value = function(a, b);
  TD_CHECK(value.shape() == a.shape(), name, ": the result must have the target's shape; got ", value.shape(),
           " for ", describe(a), ". Make a new tensor instead: a = a + b.");
  TD_CHECK(info(value.dtype()).kind <= info(a.dtype()).kind, name,
           ": the result must be of the target's kind of type; got ", value.dtype(), " for ", describe(a),
           ". cast() the other operand, or make a new tensor: a = a + b.");
  assign(a, value);
  return a;
}
}  // namespace
const Tensor& operator+=(const Tensor& a, const Operand& b) { return change("+=", add, a, b); }
const Tensor& operator-=(const Tensor& a, const Operand& b) { return change("-=", sub, a, b); }
const Tensor& operator*=(const Tensor& a, const Operand& b) { return change("*=", mul, a, b); }
const Tensor& operator/=(const Tensor& a, const Operand& b) { return change("/=", div, a, b); }

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
Tensor logical_xor(const Operand& a, const Operand& b) { return binary(*g_ops.logical_xor, a, b); }
Tensor remainder(const Operand& a, const Operand& b) { return binary(*g_ops.remainder, a, b); }
Tensor fmod(const Operand& a, const Operand& b) { return binary(*g_ops.fmod, a, b); }
Tensor floor_divide(const Operand& a, const Operand& b) { return binary(*g_ops.floor_divide, a, b); }
Tensor bitwise_and(const Operand& a, const Operand& b) { return binary(*g_ops.bitwise_and, a, b); }
Tensor bitwise_or(const Operand& a, const Operand& b) { return binary(*g_ops.bitwise_or, a, b); }
Tensor bitwise_xor(const Operand& a, const Operand& b) { return binary(*g_ops.bitwise_xor, a, b); }
Tensor bitwise_not(const Tensor& x) {
  return x.defined() && x.dtype() == DType::boolean ? logical_not(x) : unary(*g_ops.bitwise_not, x);
}
Tensor bitwise_left_shift(const Operand& a, const Operand& b) {
  return binary(*g_ops.bitwise_left_shift, a, b);
}
Tensor bitwise_right_shift(const Operand& a, const Operand& b) {
  return binary(*g_ops.bitwise_right_shift, a, b);
}
Tensor isnan(const Tensor& x) { return not_equal(x, x); }
Tensor isinf(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) ? equal(abs(x), HUGE_VAL) : not_equal(x, x);
}
Tensor isfinite(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) ? less(abs(x), HUGE_VAL) : equal(x, x);
}
Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  TD_CHECK(a.defined() && b.defined(), "isclose: a and b must be tensors; got an undefined handle.");
  TD_CHECK(rtol >= 0 && atol >= 0, "isclose: rtol and atol must not be negative; got ", rtol, " and ", atol,
           ".");
  broadcast_shapes("isclose", a.shape(), b.shape());
  const NoGrad off;
  const DType dtype = result_type(a, b), measured = is_floating(dtype) ? dtype : DType::f64;
  const Tensor x = cast(a, measured), y = cast(b, measured);
  const auto apart = [&] {  // of integers of 64 bits exact: modulo 2^64 it is the true one
    const auto word = [&](const Tensor& t) { return cast(cast(t, dtype), DType::u64); };
    const Tensor larger = greater(a, b);
    return cast(where(larger, word(a) - word(b), word(b) - word(a)), DType::f64);
  };
  const Tensor distance = dtype == DType::i64 || dtype == DType::u64 ? apart() : abs(x - y);
  const Tensor near = logical_and(isfinite(distance), less_equal(distance, abs(y) * rtol + atol)),
               close = logical_or(equal(a, b), near);
  return equal_nan ? logical_or(close, logical_and(isnan(x), isnan(y))) : close;
}
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> up, std::optional<double> down) {
  TD_CHECK(x.defined(), "nan_to_num: x must be a tensor; got an undefined handle.");
  if (!is_floating(x.dtype())) return clone(x);
  const double most = largest_of(x.dtype());
  const Tensor upper = where(equal(x, HUGE_VAL), up.value_or(most), x);
  return where(isnan(x), nan, where(equal(x, -HUGE_VAL), down.value_or(-most), upper));
}
Tensor logical_not(const Tensor& x) { return unary(*g_ops.logical_not, x); }
Tensor neg(const Tensor& x) { return unary(*g_ops.neg, x); }
Tensor abs(const Tensor& x) { return unary(*g_ops.abs, x); }
Tensor sign(const Tensor& x) { return unary(*g_ops.sign, x); }
Tensor floor(const Tensor& x) { return rounding(*g_ops.floor, x); }
Tensor ceil(const Tensor& x) { return rounding(*g_ops.ceil, x); }
Tensor round(const Tensor& x) { return rounding(*g_ops.round, x); }
Tensor trunc(const Tensor& x) { return rounding(*g_ops.trunc, x); }
Tensor frac(const Tensor& x) { return x - trunc(x); }
Tensor square(const Tensor& x) { return x * x; }
Tensor reciprocal(const Tensor& x) { return 1.0 / x; }
Tensor exp2(const Tensor& x) { return real_unary(*g_ops.exp2, x); }
Tensor expm1(const Tensor& x) { return real_unary(*g_ops.expm1, x); }
Tensor log2(const Tensor& x) { return real_unary(*g_ops.log2, x); }
Tensor log10(const Tensor& x) { return real_unary(*g_ops.log10, x); }
Tensor log1p(const Tensor& x) { return real_unary(*g_ops.log1p, x); }
Tensor tan(const Tensor& x) { return real_unary(*g_ops.tan, x); }
Tensor asin(const Tensor& x) { return real_unary(*g_ops.asin, x); }
Tensor acos(const Tensor& x) { return real_unary(*g_ops.acos, x); }
Tensor atan(const Tensor& x) { return real_unary(*g_ops.atan, x); }
Tensor atan2(const Operand& y, const Operand& x) { return binary(*g_ops.atan2, y, x, true); }
Tensor hypot(const Operand& a, const Operand& b) { return binary(*g_ops.hypot, a, b, true); }
Tensor sinh(const Tensor& x) { return real_unary(*g_ops.sinh, x); }
Tensor cosh(const Tensor& x) { return real_unary(*g_ops.cosh, x); }
Tensor asinh(const Tensor& x) { return real_unary(*g_ops.asinh, x); }
Tensor acosh(const Tensor& x) { return real_unary(*g_ops.acosh, x); }
Tensor atanh(const Tensor& x) { return real_unary(*g_ops.atanh, x); }
Tensor erfinv(const Tensor& x) { return real_unary(*g_ops.erfinv, x); }
Tensor lgamma(const Tensor& x) { return real_unary(*g_ops.lgamma, x); }
Tensor digamma(const Tensor& x) { return real_unary(*g_ops.digamma, x); }
Tensor polygamma(int64_t n, const Tensor& x) {
  TD_CHECK(n >= 0 && n <= 170, "polygamma: the order must lie in 0..170; got ", n, ".");
  TD_CHECK(x.defined(), "polygamma: x must be a tensor; got an undefined handle.");
  if (n == 0) return digamma(x);
  const Tensor real = is_floating(x.dtype()) ? x : cast(x, DType::f32);
  return polygamma_by(real, full_number(static_cast<double>(n), 0, real.dtype(), real.device()));
}
Tensor logaddexp(const Operand& a, const Operand& b) { return binary(*g_ops.logaddexp, a, b, true); }
Tensor gamma_slope(const Operand& a, const Operand& x) { return binary(*g_ops.gamma_slope, a, x, true); }
Tensor erfc(const Tensor& x) { return real_unary(*g_ops.erfc, x); }
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
Tensor gelu_tanh(const Tensor& x) { return unary(*g_ops.gelu_tanh, x); }
Tensor silu(const Tensor& x) { return unary(*g_ops.silu, x); }
Tensor mish(const Tensor& x) { return x * tanh(unary(*g_ops.softplus, x)); }
Tensor logsigmoid(const Tensor& x) { return neg(unary(*g_ops.softplus, neg(x))); }
Tensor softsign(const Tensor& x) { return x / (abs(x) + 1.0); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return softplus(x, beta, threshold); }, x);
  if (beta == 1.0) {
    const Tensor y = unary(*g_ops.softplus, x);
    return where(greater(x, threshold), x, y);
  }
  TD_CHECK(beta != 0, "softplus: beta must not be 0; got 0.");
  const Tensor scaled = x * beta;
  return where(greater(scaled, threshold), x, unary(*g_ops.softplus, scaled) / beta);
}
Tensor leaky_relu(const Tensor& x, double slope) {
  return apply1(*g_ops.leaky_relu, {x, parameter("leaky_relu", x, slope)});
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  TD_CHECK(x.defined() && weight.defined(), "prelu: x and weight must be tensors; got an undefined handle.");
  const int64_t count = size_of(weight.shape());
  TD_CHECK(weight.rank() <= 1 && (count == 1 || (x.rank() >= 2 && count == x.shape()[1])),
           "prelu: weight must hold one number, or one for each index of x's axis 1; got x ", describe(x),
           " and weight ", describe(weight), ".");
  Dims shape;
  if (count != 1) {
    shape = Dims::filled(x.rank() - 1, 1);
    shape[0] = count;
  }
  return apply1(*g_ops.leaky_relu, {x, reshape(weight, shape)});
}
Tensor elu(const Tensor& x, double alpha) { return apply1(*g_ops.elu, {x, parameter("elu", x, alpha)}); }
Tensor selu(const Tensor& x) { return elu(x, 1.6732632423543772848) * 1.0507009873554804934; }
Tensor celu(const Tensor& x, double alpha) {
  TD_CHECK(alpha != 0, "celu: alpha must not be 0; got 0.");
  return elu(x / alpha, 1.0) * alpha;
}
Tensor hardtanh(const Tensor& x, const Operand& low, const Operand& high) {
  TD_CHECK(!low.tensor() && !high.tensor(),
           "hardtanh: low and high must be numbers; got a tensor. clamp() takes them.");
  TD_CHECK(low.number() <= high.number(), "hardtanh: low must not be above high; got ", low.number(), " and ",
           high.number(), ".");
  TD_CHECK(x.defined(), "hardtanh: x must be a tensor; got an undefined handle.");
  const DType dtype = promote(result_type(x, low), result_type(x, high));
  return apply1(*g_ops.hardtanh,
                {as_tensor("hardtanh", x, dtype, x.device()), as_tensor("hardtanh", low, dtype, x.device()),
                 as_tensor("hardtanh", high, dtype, x.device())});
}
/// Between whole numbers, so that integers stay integers.
Tensor hard_between(const char* op, const Tensor& x, int low, int high) {
  TD_CHECK(x.defined(), op, ": x must be a tensor; got an undefined handle.");
  const DType dtype = result_type(x, low);
  return apply1(*g_ops.hardtanh, {as_tensor(op, x, dtype, x.device()), as_tensor(op, low, dtype, x.device()),
                                  as_tensor(op, high, dtype, x.device())});
}
Tensor relu6(const Tensor& x) { return hard_between("relu6", x, 0, 6); }
Tensor hardsigmoid(const Tensor& x) { return hard_between("hardsigmoid", x + 3, 0, 6) / 6; }
Tensor hardswish(const Tensor& x) { return x * hardsigmoid(x); }
Tensor threshold(const Tensor& x, const Operand& limit, const Operand& value) {
  TD_CHECK(!limit.tensor() && !value.tensor(),
           "threshold: limit and value must be numbers; got a tensor. where() takes them.");
  return where(less_equal(x, limit), value, x);  // a NaN stays
}
Tensor glu(const Tensor& x, int64_t axis) {
  TD_CHECK(x.defined(), "glu: x must be a tensor; got an undefined handle.");
  const int at = normal_axis("glu", axis, x.rank());
  const int64_t size = x.shape()[at];
  TD_CHECK(size % 2 == 0, "glu: the size along the axis must be even; got ", describe(x), ", axis ", axis,
           ".");
  return slice(x, at, 0, size / 2) * sigmoid(slice(x, at, size / 2, size));
}

Tensor clamp(const Tensor& x, const std::optional<Operand>& low, const std::optional<Operand>& high) {
  TD_CHECK(low || high, "clamp: a lower or an upper bound must be given; got neither.");
  for (const std::optional<Operand>* t : {&low, &high})
    TD_CHECK(!*t || !(*t)->tensor() || (*t)->tensor()->defined(),
             "clamp: a bound must be a number or a tensor; got an undefined handle.");
  TD_CHECK(x.defined(), "clamp: x must be a tensor; got an undefined handle.");
  const DType dtype =
      low && high ? promote(result_type(x, *low), result_type(x, *high)) : result_type(x, low ? *low : *high);
  if (!is_floating(dtype) && !high) return maximum(x, *low);
  if (!is_floating(dtype) && !low) return minimum(x, *high);
  const Operand bottom = low ? *low : Operand(-HUGE_VAL), top = high ? *high : Operand(HUGE_VAL);
  return apply1(*g_ops.clamp,
                {as_tensor("clamp", x, dtype, x.device()), as_tensor("clamp", bottom, dtype, x.device()),
                 as_tensor("clamp", top, dtype, x.device())});
}

Tensor lerp(const Tensor& a, const Tensor& b, const Operand& weight) {
  TD_CHECK(a.defined() && b.defined() && (!weight.tensor() || weight.tensor()->defined()),
           "lerp: a and b must be tensors; got an undefined handle.");
  const DType dtype = result_type(a, b);
  return apply1(*g_ops.lerp,
                {as_tensor("lerp", a, dtype, a.device()), as_tensor("lerp", b, dtype, a.device()),
                 as_tensor("lerp", weight, dtype, a.device())});
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  const DType dtype = result_type(a, b);
  const Tensor in[3] = {condition, as_tensor("where", a, dtype, condition.device()),
                        as_tensor("where", b, dtype, condition.device())};
  return apply(*g_ops.where, in)[0];
}

Tensor cast(const Tensor& x, DType dtype) {
  TD_CHECK(x.defined(), "cast: x must be a tensor; got an undefined handle.");
  return x.dtype() == dtype ? x : apply1(op_cast(), {x}, CastAttrs{dtype});
}

}  // namespace tandem
