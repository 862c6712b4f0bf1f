// Every op of the table with hostile arguments, see support/hostile.h: wrong ranks, types and sizes, nothing at all, NaN,
// indices out of range, aliases and strides of 0, through the public functions that its cases call; and, with spoiled
// attributes and any number of inputs besides, directly through apply(), as other languages and files will call it.
// ctest: asan shards=2 timeout=300
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/support/hostile.h"
#include "tests/support/op_case.h"

namespace tandem::testing {
namespace {

Tensor numbers(Random& random, const Dims& shape, DType dtype) {
  if (is_floating(dtype)) return full(shape, hostile_number(random), dtype);
  std::vector<int64_t> values;
  for (int64_t i = size_of(shape); i > 0; --i) values.push_back(hostile_integer(random));
  return cast(from_vector(values, shape), dtype);
}

Tensor hostile(Random& random, const Tensor& x, std::span<const Tensor> others) {
  static constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                     DType::i64, DType::i32, DType::u8,  DType::boolean};
  Dims shape = x.shape();
  const int axis = x.rank() ? static_cast<int>(random.below(x.rank())) : 0;
  switch (random.below(18)) {
    case 0:
      return cast(x, kTypes[random.below(std::size(kTypes))]);
    case 1:
      return x.rank() < kMaxRank ? unsqueeze(x, random.below(x.rank() + 1)) : x;
    case 2:
      return x.rank() > 0 && x.size(axis) > 0 ? select(x, axis, 0) : x;
    case 3:
      if (x.rank() > 0) shape[axis] = 0;
      return full(shape, 1, x.dtype());
    case 4:
      if (x.rank() > 0) shape[axis] += 1 + random.below(3);
      return full(shape, 1, x.dtype());
    case 5:
      return x.rank() >= 2 ? transpose(clone(transpose(x, 0, -1)), 0, -1) : x;
    case 6:
      return expand(full({}, 1, x.dtype()), shape);
    case 7:
    case 8:
      return numbers(random, shape, x.dtype());
    case 9:
      return others[static_cast<size_t>(random.below(static_cast<int64_t>(others.size())))];
    case 10:
      return full({}, 1, x.dtype());
    case 11:
      return full(Dims::filled(kMaxRank, 1 + random.below(2)), 1, x.dtype());
    case 12:
      return random.chance(0.2) ? Tensor() : x;
    case 13:
      return slice(x.rank() ? x : unsqueeze(x, 0), x.rank() ? axis : 0, 0, 1);
    default:
      return x;
  }
}

/// Another value of the same kind, mostly.
AttrValue hostile(Random& random, AttrValue value) {
  static constexpr const char* kTexts[] = {"f32", "f64", "bf16", "i64", "u8", "bool", "", "no such type"};
  if (random.chance(0.03)) value.kind = static_cast<AttrValue::Kind>(random.below(5));
  value.integer = value.kind == AttrValue::Kind::truth ? !value.integer : hostile_integer(random);
  value.number = hostile_number(random);
  value.text = kTexts[random.below(std::size(kTexts))];
  std::vector<int64_t>& list = value.list;
  const size_t at = list.empty() ? 0 : static_cast<size_t>(random.below(static_cast<int64_t>(list.size())));
  switch (random.below(8)) {
    case 0:
      list.push_back(hostile_integer(random));
      break;
    case 1:
      if (!list.empty()) list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      list.clear();
      break;
    case 3:
      list.resize(random.chance(0.5) ? 8 : 1000, hostile_integer(random));
      break;
    case 4:
      std::reverse(list.begin(), list.end());
      break;
    default:
      if (!list.empty()) list[at] = hostile_integer(random);
  }
  return value;
}

/// One or two attributes by name; or all of another op, or none.
void spoil_attributes(Random& random, Attrs& attrs, const Attrs& others) {
  if (random.chance(0.04)) attrs = random.chance(0.5) ? others : Attrs();
  const std::vector<Attribute> all = attrs.list();
  for (int64_t i = random.below(all.empty() ? 1 : 3); i > 0; --i) {
    const Attribute& one = all[static_cast<size_t>(random.below(static_cast<int64_t>(all.size())))];
    try {
      attrs.set(one.name, hostile(random, one.value));
    } catch (const Error&) {  // of another kind, or too long
    }
  }
}

/// Each of them perhaps; perhaps one missing, or one too many.
void spoil_inputs(Random& random, std::vector<Tensor>& in) {
  const std::vector<Tensor> original = in;
  for (Tensor& t : in)
    if (random.chance(0.3)) t = hostile(random, t, original);
  if (random.chance(0.03)) in.push_back(in.empty() ? full({2}, 1) : in[0]);
  if (random.chance(0.03) && !in.empty()) in.pop_back();
  if (random.chance(0.01)) in.clear();
}

std::string described(const std::string& name, std::span<const Tensor> in) {
  std::string text = name + "(";
  for (const Tensor& t : in)
    text +=
        (t.defined() ? describe(t) : "undefined") + (t.defined() && !t.is_contiguous() ? " strided; " : "; ");
  return text + ")";
}

bool is_small(const OpCase& op_case) {
  int64_t size = 0;
  for (const CaseInput& input : op_case.inputs) size += size_of(input.shape);
  return size <= 700;
}
DType type_of(const OpCase& op_case) { return op_case.floating ? DType::f32 : op_case.dtypes[0]; }

/// Op -> the small cases that call it. Nothing is computed for it, so that processes can still be split off.
const std::map<std::string, std::vector<const OpCase*>>& cases_by_op() {
  static const auto table = [] {
    std::map<std::string, std::vector<const OpCase*>> by_op;
    for (const OpCase& op_case : all_cases())
      if (is_small(op_case))
        for (const std::string& name : ops_called(op_case))
          if (auto& list = by_op[name]; list.empty() || list.back() != &op_case) list.push_back(&op_case);
    return by_op;
  }();
  return table;
}

/// Some calls of an op that its cases make, with their values.
std::vector<AppliedOp> calls_of(const OpDef& op) {
  constexpr size_t kCases = 4, kCallsOfCase = 3;
  std::vector<const OpCase*> cases = cases_by_op().at(op.name);
  std::erase_if(cases, [&](const OpCase* op_case) { return op_case->data_dependent && !op.data_dependent; });
  std::vector<AppliedOp> calls;
  for (size_t i = 0; i < std::min(kCases, cases.size()); ++i) {
    const OpCase& op_case = *cases[i * cases.size() / std::min(kCases, cases.size())];
    const std::vector<Tensor> in = case_tensors(op_case, type_of(op_case));
    if (op.data_dependent) {
      calls.push_back({&op, {in[0]}, {}, {}});
      continue;
    }
    RecordingTracer tracer(true);
    {
      const TraceScope scope(&tracer);
      run_case(op_case, in);
    }
    size_t of_case = 0;
    for (const AppliedOp& applied : tracer.applied)
      if (applied.op == &op && of_case++ < kCallsOfCase) calls.push_back(applied);
  }
  return calls;
}

/// The op, and where it has a gradient, mostly that: its rule relies on what inference let through, too.
std::vector<Tensor> run_directly(const OpDef& op, std::vector<Tensor> in, const Attrs& attrs,
                                 bool with_gradient) {
  std::vector<Tensor> leaves;
  const GradMode recording(with_gradient);
  if (with_gradient)
    for (Tensor& t : in)
      if (t.defined() && is_floating(t.dtype())) leaves.push_back(t = t.detach().set_requires_grad());
  const Tensors out = apply(op, in, attrs);
  std::vector<Tensor> results(out.begin(), out.end());
  if (leaves.empty() || !out[0].requires_grad()) return results;
  const NoGrad off;
  for (const Tensor& t : grad(out[0], leaves, ones_like(out[0]), {}, true)) results.push_back(t);
  return results;
}

/// A part of the ops each, so that ctest can run them side by side.
class HostileOps : public ::testing::TestWithParam<size_t> {};

TEST_P(HostileOps, DirectlyThroughApply) {
  for (size_t i = GetParam(); i < all_ops().size(); i += 2) {
    const OpDef& op = *all_ops()[i];
    if (std::string(op.name) == "to") continue;  // its cases need a second device
    ASSERT_TRUE(cases_by_op().count(op.name)) << "op '" << op.name << "' has no small case";
    std::vector<AppliedOp> calls;
    expect_survives(op.name, [&](Random& random) {
      if (calls.empty()) calls = calls_of(op);
      AppliedOp call = calls[static_cast<size_t>(random.below(static_cast<int64_t>(calls.size())))];
      if (random.chance(0.6)) spoil_inputs(random, call.in);
      if (random.chance(0.7)) spoil_attributes(random, call.attrs, CastAttrs{DType::f64});
      // A change in place must not reach the values that the next calls begin from.
      if (writes_in_place(op) && !call.in.empty() && call.in[0].defined() && !random.chance(0.2))
        call.in[0] = clone(call.in[0]);
      const bool with_gradient = op.gradient && random.chance(0.3);
      hostile_call(described(op.name, call.in) + " with " + call.attrs.print(), [&] {
        const TraceScope scope(op.data_dependent ? nullptr : current_tracer());
        return run_directly(op, call.in, call.attrs, with_gradient);
      });
    });
  }
}

TEST(OpTable, EveryOpSaysHowManyInputsItTakes) {
  for (const OpDef* op : all_ops())
    EXPECT_TRUE(op->inputs.most < OpInputs::kAny || std::string(op->name) == "concat") << op->name;
}

/// Gradients have no public function: their cases call apply().
bool has_public_function(const OpCase& op_case) {
  for (const char* part : {"_gradient", "_adjoint", "max_pool_scatter", "max_pool_gather"})
    if (op_case.name.find(part) != std::string::npos) return false;
  return true;
}

TEST_P(HostileOps, ThroughThePublicFunctionsOfTheirCases) {
  size_t number = 0;
  for (const auto& [name, all] : cases_by_op()) {
    std::vector<const OpCase*> cases;
    std::copy_if(all.begin(), all.end(), std::back_inserter(cases),
                 [](const OpCase* op_case) { return has_public_function(*op_case); });
    if (cases.empty() || number++ % 2 != GetParam()) continue;
    expect_survives(name, [&](Random& random) {
      const OpCase& op_case = *cases[static_cast<size_t>(random.below(static_cast<int64_t>(cases.size())))];
      std::vector<Tensor> in = case_tensors(op_case, type_of(op_case));
      const std::vector<Tensor> original = in;
      for (Tensor& t : in)
        if (random.chance(0.6)) t = hostile(random, t, original);
      hostile_call(described(op_case.name, in), [&] {
        const TraceScope scope(op_case.data_dependent ? nullptr : current_tracer());
        return std::vector<Tensor>{op_case.call(in)};
      });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, HostileOps, ::testing::Values(0, 1));

}  // namespace
}  // namespace tandem::testing
