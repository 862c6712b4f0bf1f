// The parts of the op-case harness that every mode uses: the list of cases, their inputs, tolerances, gradients.
#include "tests/support/op_case.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"

namespace tandem::testing {

const std::vector<OpCase>& all_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> list;
#define TD_LISTED(family) family(list);
#include "lists/op_cases.inc"
#undef TD_LISTED
    return list;
  }();
  return cases;
}

const std::vector<ErrorCase>& all_error_cases() {
  static const std::vector<ErrorCase> errors = [] {
    std::vector<ErrorCase> list;
#define TD_LISTED(family) family(list);
#include "lists/op_errors.inc"
#undef TD_LISTED
    return list;
  }();
  return errors;
}

std::vector<DType> half_types() {
  std::vector<DType> types;
  for (const DType dtype : {DType::bf16, DType::f16}) types.push_back(dtype);
  return types;
}

const OpCase* find_case(const std::string& name) {
  for (const OpCase& op_case : all_cases())
    if (op_case.name == name) return &op_case;
  return nullptr;
}

namespace {
DType input_dtype(const CaseInput& input, DType dtype) {
  switch (input.kind) {
    case CaseInput::index64:
      return DType::i64;
    case CaseInput::index32:
      return DType::i32;
    case CaseInput::boolean:
      return DType::boolean;
    default:
      return dtype;
  }
}
}  // namespace

std::vector<Array> case_values(const OpCase& op_case, DType dtype, uint32_t salt) {
  std::vector<Array> values;
  uint32_t position = 0;
  for (const CaseInput& input : op_case.inputs) {
    const uint32_t input_salt = 1000 * ++position + salt;
    const DType type = input_dtype(input, dtype);
    if (input.kind == CaseInput::boolean || type == DType::boolean) {
      values.push_back(hash_array(input.shape, input_salt, 0, 2));
    } else if (input.kind != CaseInput::real) {
      values.push_back(hash_array(input.shape, input_salt, input.low, input.high));
    } else if (is_floating(type)) {
      values.push_back(hash_array(input.shape, input_salt, input.low, input.high));
    } else {
      values.push_back(hash_array(input.shape, input_salt, static_cast<double>(op_case.int_low),
                                  static_cast<double>(op_case.int_high)));
    }
    if (!is_floating(type))
      for (double& v : values.back().values) v = std::floor(v);
    values.back() = to_array(to_tensor(values.back(), type));
  }
  return values;
}

std::vector<Tensor> case_tensors(const OpCase& op_case, DType dtype, uint32_t salt, bool leaves,
                                 Device device) {
  const std::vector<Array> values = case_values(op_case, dtype, salt);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_real = op_case.inputs[i].kind == CaseInput::real;
    tensors.push_back(to_tensor(values[i], input_dtype(op_case.inputs[i], dtype), device));
    if (leaves && is_real) tensors.back().set_requires_grad();
  }
  return tensors;
}

Tensor run_case(const OpCase& op_case, std::span<const Tensor> in) {
  manual_seed(11);
  return op_case.call(in);
}

double case_tolerance(const OpCase& op_case, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return op_case.tolerance64 >= 0 ? op_case.tolerance64 : op_case.tolerance * 1e-7;
    case DType::f32:
      return op_case.tolerance;
    case DType::bf16:
      return op_case.half_ulps * 0x1p-8;
    case DType::f16:
      return op_case.half_ulps * 0x1p-11;
    default:
      return 0;
  }
}

std::vector<Tensor> case_gradients(const OpCase& op_case, std::span<const Tensor> in, bool create_graph) {
  return gradients_of(op_case, run_case(op_case, in), in, create_graph);
}

std::vector<Tensor> gradients_of(const OpCase& op_case, const Tensor& y, std::span<const Tensor> in,
                                 bool create_graph) {
  const Tensor weight = to_tensor(hash_array(y.shape(), 77), y.dtype(), y.device());
  const Tensor objective = sum(mul(mul(y, y), weight));
  std::vector<Tensor> wanted;
  for (size_t i = 0; i < in.size(); ++i)
    if (op_case.inputs[i].kind == CaseInput::real) wanted.push_back(in[i]);
  BackwardOptions options;
  options.create_graph = create_graph;
  const std::vector<Tensor> found = grad(objective, wanted, {}, options, true);
  std::vector<Tensor> gradients(in.size());
  size_t next = 0;
  for (size_t i = 0; i < in.size(); ++i)
    if (op_case.inputs[i].kind == CaseInput::real) gradients[i] = found[next++];
  return gradients;
}

std::vector<AppliedOp> ops_applied(const OpCase& op_case, std::span<const Tensor> in) {
  RecordingTracer tracer;
  const GeneratorState before = generator_state();
  {
    const TraceScope scope(&tracer);
    if (op_case.data_dependent) {  // apply() refuses the op, by its name
      const std::string name = data_dependent_op(error_of([&] { run_case(op_case, in); }));
      if (!name.empty()) tracer.applied.push_back({find_op(name), {in.begin(), in.end()}, {}, {}});
    } else {
      run_case(op_case, in);
    }
  }
  set_generator_state(before);
  return tracer.applied;
}

std::vector<std::string> ops_called(const OpCase& op_case) {
  std::vector<std::string> names;
  const DType dtype = op_case.floating ? DType::f32 : op_case.dtypes[0];
  for (const AppliedOp& applied : ops_applied(op_case, case_tensors(op_case, dtype)))
    names.push_back(applied.op->name);
  return names;
}

}  // namespace tandem::testing
