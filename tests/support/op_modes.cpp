// The modes in which an op case runs.
#include <algorithm>
#include <cmath>

#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/op_case.h"
#include "tests/support/refusal.h"

namespace tandem::testing {

namespace {

std::vector<DType> case_dtypes(const OpCase& op_case) {
  std::vector<DType> dtypes;
  if (op_case.floating) dtypes = {DType::f32, DType::f64};
  dtypes.insert(dtypes.end(), op_case.dtypes.begin(), op_case.dtypes.end());
  return dtypes;
}

/// Compares two lists of tensors bit by bit; undefined ones must be undefined in both.
void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << what << ", result " << i;
    if (!got[i].defined()) continue;
    EXPECT_TRUE(same_bits(got[i], want[i])) << what << ", result " << i;
  }
}

std::vector<Tensor> only_defined(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> defined;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(defined),
               [](const Tensor& t) { return t.defined(); });
  return defined;
}

/// One call from wherever the random stream stands, with its gradients.
std::vector<Tensor> forward_and_gradients(const OpCase& op_case, std::span<const Tensor> in) {
  const Tensor y = op_case.call(in);
  std::vector<Tensor> results = only_defined(gradients_of(op_case, y, in));
  results.insert(results.begin(), y.detach());
  return results;
}

/// sum over the inputs of <gradient, v>: a scalar whose gradient is a Hessian-vector product.
Tensor projected_gradient(const OpCase& op_case, std::span<const Tensor> in, bool create_graph) {
  const std::vector<Tensor> gradients = case_gradients(op_case, in, create_graph);
  Tensor total;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Tensor v = to_tensor(hash_array(gradients[i].shape(), 500 + static_cast<uint32_t>(i)), DType::f64);
    const Tensor term = sum(mul(gradients[i], v));
    total = total.defined() ? add(total, term) : term;
  }
  return total;
}

/// Which elements of an input are checked by differences: all of a small one, some of a large one.
std::vector<int64_t> sampled(int64_t size, int64_t most) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < std::min(size, most); ++i)
    places.push_back(size <= most ? i : hash32(static_cast<uint32_t>(i), 3) % size);
  return places;
}

/// Central differences of a scalar function of the case's real inputs, at the sampled places; NaN elsewhere.
std::vector<Array> differences(const OpCase& op_case, double step, int64_t most,
                               const std::function<double(const std::vector<Array>&)>& f) {
  std::vector<Array> values = case_values(op_case, DType::f64), result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (op_case.inputs[i].kind != CaseInput::real) continue;
    result[i] = Array(values[i].shape);
    for (double& v : result[i].values) v = std::nan("");
    for (const int64_t j : sampled(values[i].size(), most)) {
      const double here = values[i][j];
      values[i][j] = here + step;
      const double above = f(values);
      values[i][j] = here - step;
      const double below = f(values);
      values[i][j] = here;
      result[i][j] = (above - below) / (2 * step);
    }
  }
  return result;
}

/// `got` where `want` is known, NaN elsewhere.
Array where_known(Array got, const Array& want) {
  for (int64_t i = 0; i < got.size() && i < want.size(); ++i)
    if (std::isnan(want[i])) got[i] = want[i];
  return got;
}

std::vector<Tensor> as_tensors(const OpCase& op_case, const std::vector<Array>& values, bool leaves) {
  std::vector<Tensor> in = case_tensors(op_case, DType::f64);
  for (size_t i = 0; i < in.size(); ++i) {
    if (op_case.inputs[i].kind != CaseInput::real) continue;
    in[i] = to_tensor(values[i], DType::f64);
    if (leaves) in[i].set_requires_grad();
  }
  return in;
}

/// The same values as `x` behind other strides: 0 = axes stored in reverse order, 1 = every second element of a
/// larger block, 2 = a block that begins one row in.
Tensor strided_twin(const Tensor& x, int way) {
  const NoGrad off;
  if (x.rank() == 0) return x;
  Tensor twin;
  if (way == 0) {
    Dims reversed;
    for (int axis = x.rank() - 1; axis >= 0; --axis) reversed.push_back(axis);
    twin = permute(clone(permute(x, reversed)), reversed);
  } else {
    const int axis = way == 1 ? x.rank() - 1 : 0;
    const int64_t start = way == 1 ? 0 : 1, step = way == 1 ? 2 : 1;
    Dims larger = x.shape();
    larger[axis] = way == 1 ? 2 * larger[axis] : larger[axis] + 2;
    twin = slice(full(larger, 1, x.dtype(), x.device()), axis, start, start + step * x.size(axis), step);
    assign(twin, x);
  }
  return twin.detach();
}

}  // namespace

void check_forward(const OpCase& op_case) {
  for (const DType dtype : case_dtypes(op_case)) {
    SCOPED_TRACE(::testing::Message() << op_case.name << " in " << dtype);
    const Tensor got = run_case(op_case, case_tensors(op_case, dtype));
    const Array want = reference_of(op_case, case_values(op_case, dtype));
    const DType measure = is_floating(dtype) == is_floating(got.dtype()) ? dtype : got.dtype();
    EXPECT_TRUE(near(to_array(got), want, case_tolerance(op_case, measure)));
  }
}

void check_gradient(const OpCase& op_case) {
  const std::vector<Tensor> in = case_tensors(op_case, DType::f64, 0, true);
  const std::vector<Tensor> gradients = case_gradients(op_case, in);
  const auto objective = [&](const std::vector<Array>& values) {
    const NoGrad off;
    const Tensor y = run_case(op_case, as_tensors(op_case, values, false));
    const Array result = to_array(y), weight = hash_array(y.shape(), 77);
    double total = 0;
    for (int64_t i = 0; i < result.size(); ++i) total += result[i] * result[i] * weight[i];
    return total;
  };
  const std::vector<Array> want = differences(op_case, 1e-5, 80, objective);
  for (size_t i = 0; i < in.size(); ++i) {
    if (op_case.inputs[i].kind != CaseInput::real) continue;
    ASSERT_TRUE(gradients[i].defined()) << "input " << i;
    EXPECT_EQ(gradients[i].dtype(), DType::f64) << "input " << i;
    EXPECT_TRUE(near(where_known(to_array(gradients[i]), want[i]), want[i], 1e-6))
        << op_case.name << ", input " << i;
  }
  // f32 may run other kernels: its gradients must be those of f64.
  const std::vector<Tensor> in32 = case_tensors(op_case, DType::f32, 0, true);
  const std::vector<Tensor> gradients32 = case_gradients(op_case, in32);
  for (size_t i = 0; i < in.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const double tolerance = 10 * std::max(op_case.tolerance, 1e-6);
    EXPECT_TRUE(near(to_array(gradients32[i]), to_array(gradients[i]), tolerance))
        << op_case.name << " in f32, input " << i;
  }
}

void check_second_order(const OpCase& op_case) {
  const std::vector<Tensor> in = case_tensors(op_case, DType::f64, 0, true);
  if (op_case.refuses_second_order) {
    EXPECT_HAS(refusal([&] { grad(projected_gradient(op_case, in, true), {in[0]}); }),
               "its gradient must not be differentiated again")
        << op_case.name;
    return;
  }
  const Tensor projection = projected_gradient(op_case, in, true);
  std::vector<Tensor> wanted;
  for (size_t i = 0; i < in.size(); ++i)
    if (op_case.inputs[i].kind == CaseInput::real) wanted.push_back(in[i]);
  // A gradient that is constant is cut off from the tape: its own gradient is zero.
  std::vector<Tensor> second;
  if (projection.requires_grad()) second = grad(projection, wanted, {}, {}, true);
  const std::vector<Array> want = differences(op_case, 1e-5, 40, [&](const std::vector<Array>& values) {
    return projected_gradient(op_case, as_tensors(op_case, values, true), false).item<double>();
  });
  size_t next = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (op_case.inputs[i].kind != CaseInput::real) continue;
    const Array got = second.empty() ? Array(want[i].shape) : to_array(second[next++]);
    EXPECT_TRUE(near(where_known(got, want[i]), want[i], 1e-5)) << op_case.name << ", input " << i;
  }
}

void check_graph(const OpCase& op_case) {
  for (const DType dtype : case_dtypes(op_case)) {
    SCOPED_TRACE(::testing::Message() << op_case.name << " in " << dtype);
    Compiled compiled =
        compile([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{op_case.call(in)}; });
    if (op_case.data_dependent) {
      const std::string refusal = error_of([&] { compiled(case_tensors(op_case, dtype)); });
      EXPECT_NE(refusal.find("must not depend on the data"), std::string::npos) << refusal;
      continue;
    }
    for (uint32_t salt = 0; salt < 3; ++salt) {
      const std::vector<Tensor> in = case_tensors(op_case, dtype, salt);
      const Tensor want = run_case(op_case, in);
      const GeneratorState after = generator_state();
      manual_seed(11);
      const std::vector<Tensor> got = compiled(in);
      EXPECT_EQ(generator_state().offset, after.offset) << "the position in the random stream";
      expect_same(got, {want}, str("call ", salt));
    }
    if (!op_case.gradient || !is_floating(dtype)) continue;
    // Gradients with respect to captured leaves, whose values change between the calls.
    const std::vector<Tensor> leaves = case_tensors(op_case, dtype, 0, true);
    Compiled step =
        compile([&](const std::vector<Tensor>&) { return forward_and_gradients(op_case, leaves); });
    for (uint32_t salt = 0; salt < 3; ++salt) {
      const std::vector<Tensor> fresh = case_tensors(op_case, dtype, salt, true);
      {
        const NoGrad off;
        for (size_t i = 0; i < leaves.size(); ++i) assign(leaves[i], fresh[i]);
      }
      manual_seed(11);
      const std::vector<Tensor> want = forward_and_gradients(op_case, fresh);
      manual_seed(11);
      expect_same(step({}), want, str("gradients, call ", salt));
    }
  }
}

Array reference_of(const OpCase& op_case, const std::vector<Array>& values) {
  if (op_case.reference) return op_case.reference(values);
  const ComposedForms forms;
  return to_array(run_case(op_case, as_tensors(op_case, values, false)));
}

void check_composed(const OpCase& op_case) {
  bool any = false, same = true;
  for (const std::string& name : ops_called(op_case)) {
    const OpDef& op = *find_op(name);
    any = any || op.composed;
    same = same && (!op.composed || op.composed_has_same_bits);
  }
  if (!any) return;
  for (const DType dtype : case_dtypes(op_case)) {
    SCOPED_TRACE(::testing::Message() << op_case.name << " in " << dtype);
    const bool with_gradients = op_case.gradient && is_floating(dtype);
    const auto results = [&] {
      const std::vector<Tensor> in = case_tensors(op_case, dtype, 0, with_gradients);
      manual_seed(11);
      return with_gradients ? forward_and_gradients(op_case, in) : std::vector<Tensor>{op_case.call(in)};
    };
    const std::vector<Tensor> want = results();
    const uint64_t place = generator_state().offset;
    const ComposedForms forms;
    const std::vector<Tensor> got = results();
    EXPECT_EQ(generator_state().offset, place) << "the position in the random stream";
    if (same) {
      expect_same(got, want, "composed");
      continue;
    }
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(near(to_array(got[i]), to_array(want[i]), (i ? 8 : 2) * case_tolerance(op_case, dtype)))
          << "result " << i;
  }
  const ComposedForms forms;
  check_graph(op_case);
  check_noncontiguous(op_case);
}

void check_noncontiguous(const OpCase& op_case) {
  const DType dtype = op_case.floating ? DType::f32 : op_case.dtypes[0];
  const auto results = [&](std::vector<Tensor> in) {
    manual_seed(11);
    if (!op_case.gradient) return std::vector<Tensor>{run_case(op_case, in)};
    for (size_t i = 0; i < in.size(); ++i)
      if (op_case.inputs[i].kind == CaseInput::real) in[i].set_requires_grad();
    return forward_and_gradients(op_case, in);
  };
  const std::vector<Tensor> plain = case_tensors(op_case, dtype);
  const std::vector<Tensor> want = results(plain);
  for (int way = 0; way < 3; ++way) {
    std::vector<Tensor> twins;
    for (const Tensor& x : plain) twins.push_back(strided_twin(x, way));
    expect_same(results(twins), want, str("strided in way ", way));
  }
  // One row repeated by a stride of 0, against the same repeated by a copy.
  std::vector<Tensor> repeated, copied;
  for (const Tensor& x : plain) {
    const bool can = x.rank() > 0 && x.size(0) > 0;
    repeated.push_back(can ? expand(slice(x, 0, 0, 1), x.shape()).detach() : x);
    copied.push_back(clone(repeated.back()).detach());
  }
  expect_same(results(repeated), results(copied), "expanded");
}

/// What a short sum in another order may be off by.
double sum_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-13;
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-10;
    default:
      return 1e-5;
  }
}

void check_device(const OpCase& op_case, Device device) {
  for (const DType dtype : case_dtypes(op_case)) {
    SCOPED_TRACE(::testing::Message() << op_case.name << " in " << dtype << " on " << device);
    const std::vector<Tensor> here = case_tensors(op_case, dtype);
    std::vector<Tensor> there;
    for (const Tensor& x : here) there.push_back(to(x, device));
    const Tensor want = run_case(op_case, here), got = run_case(op_case, there);
    const DType measure = is_floating(dtype) == is_floating(got.dtype()) ? dtype : got.dtype();
    EXPECT_EQ(got.dtype(), want.dtype());
    EXPECT_TRUE(near(to_array(got), to_array(want), 2 * case_tolerance(op_case, measure)));
    if (!op_case.gradient || !is_floating(dtype)) continue;
    std::vector<Tensor> leaves_here = case_tensors(op_case, dtype, 0, true);
    std::vector<Tensor> leaves_there = case_tensors(op_case, dtype, 0, true, device);
    const std::vector<Tensor> want_gradients = only_defined(case_gradients(op_case, leaves_here));
    const std::vector<Tensor> got_gradients = only_defined(case_gradients(op_case, leaves_there));
    ASSERT_EQ(want_gradients.size(), got_gradients.size());
    for (size_t i = 0; i < want_gradients.size(); ++i)
      // The gradient of an exact op may still be a sum, whose order differs between devices.
      EXPECT_TRUE(near(to_array(got_gradients[i]), to_array(want_gradients[i]),
                       std::max(8 * case_tolerance(op_case, dtype), sum_tolerance(dtype))))
          << "gradient " << i;
  }
}

}  // namespace tandem::testing
