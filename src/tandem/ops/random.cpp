#include "tandem/ops/random.h"

#include <cmath>
#include <utility>

#include "tandem/core/tape.h"
#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scalar_functions.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

const RandomAttrs& infer_random(InferArgs& args, bool may_be_bool = false) {
  const auto& a = args.attributes<RandomAttrs>();
  TD_CHECK(is_floating(a.dtype) || (may_be_bool && a.dtype == DType::boolean), args.op,
           ": the element type must be floating; got ", a.dtype, ". cast() the result instead.");
  infer_made<RandomAttrs>(args);
  return a;
}

void infer_uniform(InferArgs& args) {
  const auto& [shape, low, high, dtype, kind, index] = infer_random(args);
  const double most = largest_of(dtype);
  TD_CHECK(low <= high && low >= -most && high <= most && high - low <= most,
           "uniform: low must not be above high, and both and their distance must be within ", dtype,
           "'s range; got ", low, " and ", high, ".");
  const UniformDraw draw = uniform_draw(low, high, dtype);
  TD_CHECK(draw.first <= draw.last, "uniform: ", dtype, " must have a number in low <= x < high; got ", low,
           " and ", high, ". Draw in a wider type and cast() the result.");
}
void infer_normal(InferArgs& args) { infer_random(args); }
void infer_bernoulli(InferArgs& args) {
  const double p = infer_random(args, true).a;
  TD_CHECK(p >= 0 && p <= 1, "bernoulli: the probability must lie in 0..1; got ", p, ".");
}
void infer_exponential(InferArgs& args) {
  const double rate = infer_random(args).a;
  TD_CHECK(rate > 0, "exponential: the rate must be above 0; got ", rate, ".");
}

void infer_randint(InferArgs& args) {
  const auto& a = args.attributes<RandintAttrs>();
  args.device = checked_device(args.op, a.device_kind, a.device_index);
  TD_CHECK(a.low < a.high || (a.low == 0 && a.high == 0), "randint: low must be below high; got ", a.low,
           " and ", a.high, ".");
  size_of(a.shape);
  args.add(a.shape, DType::i64);
}
/// On the CPU perhaps with the weights that multinomial wants checked.
void infer_random_order(InferArgs& args) {
  const Tensor& keys = args.in[0];
  TD_CHECK(keys.rank() == 2 && (keys.dtype() == DType::i64 || keys.dtype() == DType::f64),
           "random_order: the keys must be (rows, n) of i64 or f64; got ", describe(keys), ".");
  if (args.in.size() == 2) {
    TD_CHECK(args.in[1].shape() == keys.shape() && args.in[1].dtype() == DType::f64,
             "random_order: the weights must have the keys' shape, in f64; got ", describe(args.in[1]),
             " for ", describe(keys), ".");
    args.attributes<MultinomialAttrs>();
  }
  args.add(keys.shape(), DType::i64);
}
void infer_multinomial(InferArgs& args) {
  const Tensor& weights = args.in[0];
  const int64_t count = args.attributes<MultinomialAttrs>().count;
  TD_CHECK(weights.rank() == 2 && weights.dtype() == DType::f64 && weights.shape()[1] >= 1,
           "multinomial: the weights must be (rows, n) of f64, n at least 1; got ", describe(weights), ".");
  TD_CHECK(count >= 1, "multinomial: the count must be at least 1; got ", count, ".");
  args.add({weights.shape()[0], count}, DType::i64);
}

/// What the records of ops that only draw share.
OpDef drawn(OpDef d) {
  d.effects = Effects::random();
  return without_inputs(d);
}

Tensor random(OpDef& op, const Dims& shape, double a, double b, DType dtype, Device device) {
  return apply1(op, {}, RandomAttrs{shape, a, b, dtype, static_cast<uint8_t>(device.kind), device.index});
}

/// The next number of a type, upwards or downwards.
double neighbour(double x, bool up) { return std::nextafter(x, up ? HUGE_VAL : -HUGE_VAL); }
float neighbour(float x, bool up) { return std::nextafter(x, up ? HUGE_VALF : -HUGE_VALF); }
template <class Half>
Half neighbour(Half x, bool up) {
  const bool negative = x.bits >> 15;
  if ((x.bits & 0x7fffu) == 0)
    x.bits = up ? 0x0001u : 0x8001u;
  else
    x.bits = static_cast<unsigned short>(negative == up ? x.bits - 1 : x.bits + 1);
  return x;
}
/// The first number of T from `bound` on, or the last one below it.
template <class T>
double next_within(double bound, bool from_bound_on) {
  using C = typename ComputeType<T>::type;
  const auto value = [](T x) { return static_cast<double>(static_cast<C>(x)); };
  T x = T(static_cast<C>(bound));
  if (from_bound_on) {
    while (value(neighbour(x, false)) >= bound) x = neighbour(x, false);
    while (value(x) < bound) x = neighbour(x, true);
  } else {
    while (value(neighbour(x, true)) < bound) x = neighbour(x, true);
    while (value(x) >= bound) x = neighbour(x, false);
  }
  return value(x);
}

/// Whether a floating or integer type holds every whole number from low to high.
bool holds(DType dtype, int64_t low, int64_t high) {
  if (is_floating(dtype)) {
    const int digits = dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
    const int64_t most = int64_t{1} << digits;
    return low >= -most && high <= most;
  }
  return visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return std::in_range<T>(low) && std::in_range<T>(high);
    else
      return false;
  });
}

void check_can_be_drawn(const char* op, const Tensor& x, const char* instead) {
  TD_CHECK(x.defined(), op, ": x must be a tensor; got an undefined handle.");
  TD_CHECK(is_floating(x.dtype()), op, ": the element type of x must be floating; got ", describe(x),
           ". Use ", instead, "(x.shape()), in f32.");
}

}  // namespace

OpDef& op_uniform() {
  static OpDef& op = define(drawn({.name = "uniform",
                                   .about = "random numbers, evenly from low to high",
                                   .outputs = {"y"},
                                   .infer = infer_uniform,
                                   .flops = no_flops}));
  return op;
}
OpDef& op_normal() {
  static OpDef& op = define(drawn({.name = "normal",
                                   .about = "random numbers of a normal distribution",
                                   .outputs = {"y"},
                                   .infer = infer_normal,
                                   .flops = no_flops}));
  return op;
}
OpDef& op_bernoulli() {
  static OpDef& op = define(drawn({.name = "bernoulli",
                                   .about = "1 with a probability, else 0",
                                   .outputs = {"y"},
                                   .infer = infer_bernoulli,
                                   .flops = no_flops}));
  return op;
}
OpDef& op_exponential() {
  static OpDef& op = define(drawn({.name = "exponential",
                                   .about = "random numbers of an exponential distribution",
                                   .outputs = {"y"},
                                   .infer = infer_exponential}));
  return op;
}
OpDef& op_randint() {
  static OpDef& op = define(
      drawn({.name = "randint", .about = "random whole numbers", .outputs = {"y"}, .infer = infer_randint}));
  return op;
}
OpDef& op_random_order() {
  static OpDef& op = define(OpDef{.name = "random_order",
                                  .about = "the order of random keys, row by row",
                                  .function = "randperm",
                                  .inputs = {"keys", "weights?"},
                                  .outputs = {"order"},
                                  .infer = infer_random_order,
                                  .not_differentiable = "an order is whole numbers",
                                  .effects = {.refuses = true}});  // those weights
  return op;
}
OpDef& op_multinomial() {
  static OpDef& op = define(OpDef{.name = "multinomial",
                                  .about = "random places, as likely as their weights",
                                  .inputs = {"weights"},
                                  .outputs = {"y"},
                                  .infer = infer_multinomial,
                                  .not_differentiable = "its results are indices",
                                  .effects = {.resources = static_cast<uint8_t>(Resource::generator),
                                              .refuses = true}});  // weights that are no weights
  return op;
}

UniformDraw uniform_draw(double low, double high, DType dtype) {
  return visit_floating(dtype, [&](auto zero) -> UniformDraw {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const UniformDraw draw{static_cast<C>(low), static_cast<C>(high) - static_cast<C>(low), low, high};
    if (low == high) return {draw.low, 0, CastTo<C, T>::apply(T(static_cast<C>(low))), HUGE_VAL};
    return {draw.low, draw.range, next_within<T>(low, true), next_within<T>(high, false)};
  });
}

Tensor uniform(const Dims& shape, double low, double high, DType dtype, Device device) {
  return random(op_uniform(), shape, low, high, dtype, device);
}
Tensor normal(const Dims& shape, double mean, double deviation, DType dtype, Device device) {
  return random(op_normal(), shape, mean, deviation, dtype, device);
}
Tensor rand(const Dims& shape, DType dtype, Device device) { return uniform(shape, 0, 1, dtype, device); }
Tensor randn(const Dims& shape, DType dtype, Device device) { return normal(shape, 0, 1, dtype, device); }
Tensor rand_like(const Tensor& x) {
  check_can_be_drawn("rand_like", x, "rand");
  return rand(x.shape(), x.dtype(), x.device());
}
Tensor randn_like(const Tensor& x) {
  check_can_be_drawn("randn_like", x, "randn");
  return randn(x.shape(), x.dtype(), x.device());
}
Tensor bernoulli(const Dims& shape, double p, DType dtype, Device device) {
  return random(op_bernoulli(), shape, p, 0, dtype, device);
}

Tensor exponential(const Dims& shape, double rate, DType dtype, Device device) {
  return random(op_exponential(), shape, rate, 0, dtype, device);
}

Tensor randint(int64_t low, int64_t high, const Dims& shape, DType dtype, Device device) {
  TD_CHECK(low < high, "randint: low must be below high; got ", low, " and ", high, ".");
  TD_CHECK(dtype != DType::boolean, "randint: the element type must be a number; got bool. Use bernoulli().");
  TD_CHECK(holds(dtype, low, high - 1), "randint: the type must hold every number from low to high - 1; got ",
           low, " to ", high - 1, " for ", dtype, ".");
  const Tensor draws = apply1(
      op_randint(), {}, RandintAttrs{shape, low, high, static_cast<uint8_t>(device.kind), device.index});
  return dtype == DType::i64 ? draws : cast(draws, dtype);
}

Tensor randperm(int64_t n, Device device) {
  TD_CHECK(n >= 0, "randperm: the size must not be negative; got ", n, ".");
  const Tensor keys =
      apply1(op_randint(), {}, RandintAttrs{{1, n}, 0, 0, static_cast<uint8_t>(device.kind), device.index});
  return reshape(apply1(op_random_order(), {keys}), {n});
}

Tensor multinomial(const Tensor& weights, int64_t count, bool replacement) {
  TD_CHECK(weights.defined() && (weights.rank() == 1 || weights.rank() == 2) && is_floating(weights.dtype()),
           "multinomial: the weights must be floating of shape (n) or (rows, n); got ",
           weights.defined() ? describe(weights) : std::string("an undefined handle"), ".");
  const Dim n = weights.shape().back();
  TD_CHECK(count >= 1 && n >= 1 && (replacement || count <= n),
           "multinomial: the count must be at least 1 and, without replacement, at most the number of "
           "weights; got ",
           count, " of ", n, ".");
  const NoGrad off;
  const Tensor wide = cast(weights.rank() == 1 ? unsqueeze(weights, 0) : weights, DType::f64);
  Tensor drawn;
  if (replacement) {
    drawn = apply1(op_multinomial(), {wide}, MultinomialAttrs{count});
  } else {  // the element whose exponential clock, running at the speed of its weight, rings first
    const Tensor rings = exponential(wide.shape(), 1, DType::f64, wide.device()) / wide;
    if (wide.device().is_cpu()) {  // its kernel looks at the weights
      drawn = slice(apply1(op_random_order(), {rings, wide}, MultinomialAttrs{count}), 1, 0, count);
    } else {
      const Tensor weighed = logical_and(greater_equal(count_nonzero(wide, {1}, true), count),
                                         isfinite(sum(wide, {1}, true))),
                   sound = logical_and(all(greater_equal(wide, 0), {1}, true), weighed);
      drawn = where(sound, slice(apply1(op_random_order(), {rings}), 1, 0, count), -1);
    }
  }
  return weights.rank() == 1 ? squeeze(drawn, 0) : drawn;
}

}  // namespace tandem
