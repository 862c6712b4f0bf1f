// What the ops refuse, and what the message must say: the op as the user spelled it, and the values at fault.
#include <cmath>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tests/support/op_case.h"

namespace tandem::testing {

namespace {
Tensor of(const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }
Tensor indices(const std::vector<int64_t>& values, const Dims& shape) { return from_vector(values, shape); }
}  // namespace

void add_array_errors(std::vector<ErrorCase>& errors) {
  // Pointwise
  const std::pair<const char*, Tensor (*)(const Operand&, const Operand&)> binaries[] = {
      {"add", add},
      {"sub", sub},
      {"mul", mul},
      {"div", div},
      {"pow", pow},
      {"maximum", maximum},
      {"minimum", minimum},
      {"equal", equal},
      {"less", less},
      {"not_equal", not_equal},
      {"greater", greater},
      {"less_equal", less_equal},
      {"logical_or", logical_or},
      {"greater_equal", greater_equal},
      {"logical_and", logical_and},
      {"logical_xor", logical_xor},
      {"remainder", remainder},
      {"fmod", fmod},
      {"floor_divide", floor_divide},
      {"atan2", atan2},
      {"logaddexp", logaddexp},
      {"hypot", hypot}};
  for (const auto& [name, call] : binaries)
    errors.push_back({str(name, "/shapes"),
                      [call = call] {
                        call(of({2, 3}), of({4}));
                      },
                      {str(name, ": "), "; got ", "(2, 3)", "(4,)"}});
  errors.push_back({"where/condition", [] { where(of({2}), of({2}), of({2})); }, {"where: ", "bool", "f32"}});
  errors.push_back({"where/shapes",
                    [] {
                      where(of({2}, DType::boolean), of({3}), of({2, 1}));
                    },
                    {"where: ", "(2,)", "(3,)"}});
  const std::pair<const char*, Tensor (*)(const Operand&, const Operand&)> on_bits[] = {
      {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or},
      {"bitwise_xor", bitwise_xor},
      {"bitwise_left_shift", bitwise_left_shift},
      {"bitwise_right_shift", bitwise_right_shift}};
  for (const auto& [name, call] : on_bits) {
    errors.push_back({str(name, "/float"),
                      [call = call] { call(of({2}), of({2}, DType::i32)); },
                      {str(name, ": "), "integer", "; got f32", "cast()"}});
    errors.push_back({str(name, "/shapes"),
                      [call = call] {
                        call(of({2, 3}, DType::i32), of({4}, DType::i32));
                      },
                      {str(name, ": "), "(2, 3)", "(4,)"}});
  }
  errors.push_back({"bitwise_left_shift/bool",
                    [] { bitwise_left_shift(of({2}, DType::boolean), of({2}, DType::boolean)); },
                    {"bitwise_left_shift: ", "integer", "bool"}});
  errors.push_back({"bitwise_not/float", [] { bitwise_not(of({2})); }, {"bitwise_not: ", "integer", "f32"}});
  errors.push_back({"remainder/bool",
                    [] { remainder(of({2}, DType::boolean), of({2}, DType::boolean)); },
                    {"remainder: ", "bool"}});
  errors.push_back({"clamp/no_bound", [] { clamp(of({2}), {}, {}); }, {"clamp: ", "bound"}});
  errors.push_back({"clamp/shapes", [] { clamp(of({2}), of({3}), 1); }, {"clamp: ", "(2,)", "(3,)"}});
  errors.push_back({"clamp/undefined", [] { clamp(of({2}), Tensor(), 1); }, {"clamp: ", "undefined"}});
  errors.push_back(
      {"lerp/integer", [] { lerp(of({2}, DType::i32), of({2}, DType::i32), 1); }, {"lerp: ", "f32", "i32"}});
  errors.push_back({"lerp/shapes", [] { lerp(of({2}), of({3}), 0.5); }, {"lerp: ", "(2,)", "(3,)"}});
  errors.push_back({"leaky_relu/integer", [] { leaky_relu(of({2}, DType::i32)); }, {"leaky_relu: ", "i32"}});
  errors.push_back({"leaky_relu/undefined", [] { leaky_relu(Tensor()); }, {"leaky_relu: ", "undefined"}});
  errors.push_back({"prelu/weight", [] { prelu(of({2, 3}), of({2})); }, {"prelu: ", "(2, 3)", "(2,)"}});
  errors.push_back({"prelu/rank", [] { prelu(of({3}), of({3})); }, {"prelu: ", "(3,)"}});
  errors.push_back({"glu/odd", [] { glu(of({2, 3})); }, {"glu: ", "even", "(2, 3)"}});
  errors.push_back({"glu/axis", [] { glu(of({2, 3}), 2); }, {"glu: ", "2"}});
  errors.push_back({"hardtanh/bounds", [] { hardtanh(of({2}), 1, -1); }, {"hardtanh: ", "1", "-1"}});
  errors.push_back({"softplus/beta", [] { softplus(of({2}), 0); }, {"softplus: ", "beta", "0"}});
  errors.push_back({"celu/alpha", [] { celu(of({2}), 0); }, {"celu: ", "alpha", "0"}});
  errors.push_back({"silu/integer", [] { silu(of({2}, DType::i32)); }, {"silu: ", "i32"}});
  errors.push_back({"polygamma/order", [] { polygamma(-1, of({2})); }, {"polygamma: ", "0..170", "-1"}});
  errors.push_back({"polygamma/undefined", [] { polygamma(2, Tensor()); }, {"polygamma: ", "undefined"}});
  errors.push_back({"isclose/negative", [] { isclose(of({2}), of({2}), -1); }, {"isclose: ", "-1", "rtol"}});
  errors.push_back({"isclose/nan", [] { isclose(of({2}), of({2}), 0, NAN); }, {"isclose: ", "nan", "atol"}});
  errors.push_back({"isclose/shapes", [] { isclose(of({2}), of({3})); }, {"isclose: ", "(2,)", "(3,)"}});
  errors.push_back({"isclose/undefined", [] { isclose(of({2}), Tensor()); }, {"isclose: ", "undefined"}});
  errors.push_back({"nan_to_num/undefined", [] { nan_to_num(Tensor()); }, {"nan_to_num: ", "undefined"}});
  // Reductions
  errors.push_back({"allclose/negative", [] { allclose(of({2}), of({2}), 0, -1); }, {"allclose: ", "-1"}});
  errors.push_back({"allclose/shapes", [] { allclose(of({2}), of({3})); }, {"allclose: ", "(2,)", "(3,)"}});
  errors.push_back({"sum/axis", [] { sum(of({2, 3}), {2}); }, {"sum: ", "2"}});
  errors.push_back({"sum/axis_twice", [] { sum(of({2, 3}), {0, -2}); }, {"sum: ", "0"}});
  errors.push_back({"mean/dtype", [] { mean(of({2, 3}, DType::i32)); }, {"mean: ", "i32", "; got "}});
  errors.push_back({"max/empty", [] { max(of({2, 0}), {1}); }, {"max: ", "(2, 0)", "; got "}});
  errors.push_back({"min/empty", [] { min(of({0})); }, {"min: ", "(0,)", "; got "}});
  errors.push_back({"argmax/axis", [] { argmax(of({2, 3}), 5); }, {"argmax: ", "5"}});
  errors.push_back({"argmax/empty", [] { argmax(of({2, 0}), 1); }, {"argmax: ", "(2, 0)"}});
  // Shapes
  errors.push_back({"reshape/size", [] { reshape(of({2, 3}), {4}); }, {"reshape: ", "(2, 3)", "(4,)"}});
  errors.push_back({"reshape/two_unknown", [] { reshape(of({2, 3}), {-1, -1}); }, {"reshape: ", "-1"}});
  errors.push_back({"reshape/unknown", [] { reshape(of({2, 3}), {4, -1}); }, {"reshape: ", "(2, 3)"}});
  errors.push_back({"permute/repeated", [] { permute(of({2, 3}), {0, 0}); }, {"permute: ", "(0, 0)"}});
  errors.push_back({"permute/rank", [] { permute(of({2, 3}), {0}); }, {"permute: ", "(0,)"}});
  errors.push_back({"transpose/axis", [] { transpose(of({2, 3}), 0, 2); }, {"transpose: ", "2"}});
  errors.push_back({"expand/size", [] { expand(of({2, 3}), {4, 3}); }, {"expand: ", "(2, 3)", "(4, 3)"}});
  errors.push_back({"expand/rank", [] { expand(of({2, 3}), {3}); }, {"expand: ", "(2, 3)", "(3,)"}});
  errors.push_back({"slice/axis", [] { slice(of({2, 3}), 2, 0, 1); }, {"slice: ", "2"}});
  errors.push_back({"slice/step", [] { slice(of({2, 3}), 0, 0, 1, 0); }, {"slice: ", "step", "0"}});
  errors.push_back({"slice_into_zeros/size",
                    [] {
                      slice_into_zeros(of({1000, 1}), 1, 0, 1, 0);
                    },
                    {"slice_into_zeros: ", "within the size", "size 0"}});
  errors.push_back({"slice_into_zeros/start",
                    [] {
                      slice_into_zeros(of({2, 3}), 1, INT64_MAX, 1, 9);
                    },
                    {"slice_into_zeros: ", "start 9223372036854775807"}});
  errors.push_back({"slice_into_zeros/step",
                    [] {
                      slice_into_zeros(of({2, 3}), 1, 0, INT64_MAX, 9);
                    },
                    {"slice_into_zeros: ", "step 9223372036854775807"}});
  errors.push_back({"expand/negative", [] { expand(of({1}), {-5}); }, {"shape: ", "negative", "(-5,)"}});
  errors.push_back({"expand/overflow",
                    [] {
                      expand(of({1}), {int64_t{1} << 40, int64_t{1} << 40});
                    },
                    {"shape: ", "63 bits", "1099511627776"}});
  errors.push_back({"zeros/an empty shape that overflows",
                    [] {
                      zeros({0, int64_t{1} << 40, int64_t{1} << 40});
                    },
                    {"shape: ", "63 bits", "1099511627776"}});
  errors.push_back({"select/index", [] { select(of({2, 3}), 0, 2); }, {"select: ", "2", "(2, 3)"}});
  errors.push_back({"squeeze/size", [] { squeeze(of({2, 3}), 0); }, {"squeeze: ", "(2, 3)"}});
  errors.push_back({"concat/shapes",
                    [] {
                      concat({of({2, 3}), of({3, 4})}, 1);
                    },
                    {"concat: ", "(2, 3)", "(3, 4)"}});
  errors.push_back({"concat/none", [] { concat({}, 0); }, {"concat: "}});
  errors.push_back({"assign/shapes", [] { assign(of({2, 3}), of({4})); }, {"assign: ", "(2, 3)", "(4,)"}});
  errors.push_back({"shape/negative", [] { zeros({2, -3}); }, {"(2, -3)", "; got "}});
  errors.push_back({"shape/too_many_axes",
                    [] {
                      zeros({1, 1, 1, 1, 1, 1, 1, 1, 1});
                    },
                    {"shape: ", "8", "9"}});
  // Indices
  errors.push_back({"gather/range",
                    [] {
                      gather(of({2, 3}), 1, indices({0, 3}, {2, 1}));
                    },
                    {"gather: ", "3"}});
  errors.push_back({"gather/negative",
                    [] {
                      gather(of({2, 3}), 1, indices({0, -1}, {2, 1}));
                    },
                    {"gather: ", "-1"}});
  errors.push_back({"gather/dtype", [] { gather(of({2, 3}), 1, of({2, 1})); }, {"gather: ", "f32", "i64"}});
  errors.push_back({"gather/rank",
                    [] {
                      gather(of({2, 3}), 1, indices({0}, {1}));
                    },
                    {"gather: ", "(2, 3)", "(1,)"}});
  errors.push_back({"gather/size",
                    [] {
                      gather(of({1, 3}), 1, indices({0, 0}, {2, 1}));
                    },
                    {"gather: ", "(1, 3)", "(2, 1)"}});
  errors.push_back({"scatter/range",
                    [] {
                      scatter_add_zeros(of({2, 1}), 1, indices({0, 3}, {2, 1}), {2, 3});
                    },
                    {"scatter_add_zeros: ", "3"}});
  errors.push_back({"one_hot/range", [] { one_hot(indices({0, 4}, {2}), 4); }, {"one_hot: ", "4"}});
  errors.push_back({"one_hot/classes", [] { one_hot(indices({0}, {1}), 0); }, {"one_hot: ", "0"}});
  errors.push_back({"one_hot/dtype", [] { one_hot(of({2}), 3); }, {"one_hot: ", "f32"}});
  // Random numbers
  errors.push_back({"bernoulli/p", [] { bernoulli({2}, 1.5); }, {"bernoulli: ", "1.5"}});
  errors.push_back({"dropout/p",
                    [] { dropout(of({2}), 1); },
                    {"dropout: the probability must be at least 0 and below 1; got 1."}});
  errors.push_back({"dropout/negative", [] { dropout(of({2}), -0.5); }, {"dropout: ", "-0.5"}});
  errors.push_back({"uniform/dtype", [] { uniform({2}, 0, 1, DType::i32); }, {"uniform: ", "i32"}});
  errors.push_back({"arange/size", [] { arange(-1); }, {"arange: ", "-1"}});
  // Tensors
  errors.push_back({"item/size", [] { of({2}).item<float>(); }, {"item: ", "(2,)"}});
  errors.push_back({"data/dtype", [] { of({2}).data<double>(); }, {"data: ", "f32", "f64"}});
  errors.push_back({"from_vector/size",
                    [] {
                      from_vector<float>({1, 2, 3}, {2});
                    },
                    {"from_vector: ", "3", "(2,)"}});
  errors.push_back(
      {"requires_grad/dtype", [] { of({2}, DType::i64).set_requires_grad(); }, {"i64", "; got "}});
}

void add_network_errors(std::vector<ErrorCase>& errors) {
  errors.push_back({"matmul/sizes",
                    [] {
                      matmul(of({32, 784}), of({10, 784}));
                    },
                    {"matmul: ", "(32, 784)", "(10, 784)", "; got "}});
  errors.push_back({"matmul/batches",
                    [] {
                      matmul(of({2, 3, 4}), of({3, 4, 5}));
                    },
                    {"matmul: ", "(2, 3, 4)", "(3, 4, 5)"}});
  errors.push_back({"matmul/scalar", [] { matmul(of({}), of({2, 2})); }, {"matmul: ", "()"}});
  errors.push_back({"matmul/dtypes",
                    [] {
                      matmul(of({2, 2}), of({2, 2}, DType::i32));
                    },
                    {"matmul: ", "i32"}});
  errors.push_back({"linear/sizes",
                    [] {
                      linear(of({4, 6}), of({5, 7}));
                    },
                    {"linear: ", "(4, 6)", "(5, 7)"}});
  errors.push_back({"linear/bias",
                    [] {
                      linear(of({4, 6}), of({5, 6}), of({4}));
                    },
                    {"linear: ", "(5, 6)", "(4,)"}});
  errors.push_back({"conv2d/channels",
                    [] {
                      conv2d(of({1, 3, 8, 8}), of({4, 2, 3, 3}));
                    },
                    {"conv2d: ", "(1, 3, 8, 8)", "(4, 2, 3, 3)", "; got "}});
  errors.push_back({"conv2d/rank",
                    [] {
                      conv2d(of({3, 8, 8}), of({4, 3, 3, 3}));
                    },
                    {"conv2d: ", "(3, 8, 8)"}});
  errors.push_back({"conv2d/too_small",
                    [] {
                      conv2d(of({1, 1, 2, 2}), of({1, 1, 3, 3}));
                    },
                    {"conv2d: ", "(1, 1, 2, 2)", "(1, 1, 3, 3)"}});
  errors.push_back({"conv2d/bias",
                    [] {
                      conv2d(of({1, 1, 4, 4}), of({2, 1, 3, 3}), of({3}));
                    },
                    {"conv2d: ", "(3,)"}});
  errors.push_back({"conv2d/stride",
                    [] {
                      conv2d(of({1, 1, 4, 4}), of({2, 1, 3, 3}), {}, {.stride = 0});
                    },
                    {"conv2d: ", "stride", "0"}});
  errors.push_back({"conv2d/groups",
                    [] {
                      conv2d(of({1, 4, 4, 4}), of({3, 2, 3, 3}), {}, {.groups = 2});
                    },
                    {"conv2d: ", "groups", "2"}});
  errors.push_back({"max_pool2d/kernel",
                    [] {
                      max_pool2d(of({1, 1, 4, 4}), {.kernel = 0});
                    },
                    {"max_pool2d: ", "kernel", "0"}});
  errors.push_back({"max_pool2d/padding",
                    [] {
                      max_pool2d(of({1, 1, 4, 4}), {.kernel = 2, .padding = 2});
                    },
                    {"max_pool2d: ", "padding", "2"}});
  errors.push_back({"max_pool2d/rank", [] { max_pool2d(of({4, 4})); }, {"max_pool2d: ", "(4, 4)"}});
  errors.push_back({"max_pool2d/too_small",
                    [] {
                      max_pool2d(of({1, 1, 1, 4}));
                    },
                    {"max_pool2d: ", "(1, 1, 1, 4)"}});
  errors.push_back({"softmax/axis", [] { softmax(of({2, 3}), 2); }, {"softmax: ", "2"}});
  errors.push_back({"softmax/dtype", [] { softmax(of({2, 3}, DType::i32)); }, {"softmax: ", "i32"}});
  errors.push_back({"log_softmax/dtype",
                    [] {
                      log_softmax(of({2, 3}, DType::boolean));
                    },
                    {"log_softmax: ", "bool"}});
  errors.push_back({"cross_entropy/rank",
                    [] { cross_entropy(of({3}), of({3}, DType::i64)); },
                    {"cross_entropy: ", "(3,)"}});
  errors.push_back({"cross_entropy/sizes",
                    [] {
                      cross_entropy(of({3, 4}), of({2}, DType::i64));
                    },
                    {"cross_entropy: ", "(3, 4)", "(2,)"}});
  errors.push_back({"cross_entropy/dtype",
                    [] {
                      cross_entropy(of({3, 4}), of({3}));
                    },
                    {"cross_entropy: ", "f32"}});
  errors.push_back({"cross_entropy/target",
                    [] {
                      cross_entropy(of({2, 4}), indices({1, 4}, {2}));
                    },
                    {"cross_entropy: ", "4 classes", "got 4"}});
  errors.push_back({"cross_entropy/ignored_probabilities",
                    [] {
                      cross_entropy(of({2, 4}), of({2, 4}), {.ignore_index = 1});
                    },
                    {"cross_entropy: ", "ignore_index", "got 1"}});
  errors.push_back({"mse_loss/shapes", [] { mse_loss(of({3, 4}), of({2})); }, {"(3, 4)", "(2,)"}});
  errors.push_back({"mse_loss/column",
                    [] {
                      mse_loss(of({4, 1}), of({4}));
                    },
                    {"mse_loss: ", "(4, 1)", "(4,)"}});
}

}  // namespace tandem::testing
