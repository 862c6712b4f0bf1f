// Every op of the table with hostile arguments, see support/hostile.h: wrong ranks, types and sizes, nothing at all, NaN,
// indices out of range, aliases, strides of 0, and attributes at the ends of int64; through the public functions that its
// cases call, and directly through apply().
// ctest: asan shards=2 timeout=300
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tandem/core/tape.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/index.h"
#include "tandem/ops/linalg.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/unfold.h"
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

// Attributes: one field at a time.
void spoil(Random& random, int64_t& value) { value = hostile_integer(random); }
void spoil(Random& random, double& value) { value = hostile_number(random); }
void spoil(Random&, bool& value) { value = !value; }
void spoil(Random& random, Axes3& value) {
  value[static_cast<int>(random.below(3))] = hostile_integer(random);
}
void spoil(Random& random, Dims& value) {
  const int at = value.rank() ? static_cast<int>(random.below(value.rank())) : 0;
  switch (random.below(4)) {
    case 0:
      if (value.rank() < kMaxRank) value.push_back(hostile_integer(random));
      break;
    case 1:
      if (value.rank() > 0) value.erase(at);
      break;
    default:
      if (value.rank() > 0) value[at] = hostile_integer(random);
  }
}
template <class T>
void spoil(Random&, T&) {}  // types, devices and kinds have no values beyond theirs

template <class A>
bool spoil_as(Random& random, Attrs& attrs) {
  A value = attrs.as<A>();
  if (!(Attrs(value) == attrs)) return false;  // of another type
  A::fields([&](auto... f) {
    int64_t which = random.below(sizeof...(f));
    ((which-- == 0 ? spoil(random, value.*(f.member)) : void()), ...);
  });
  attrs = Attrs(value);
  return true;
}
template <class... A>
bool spoil_any(Random& random, Attrs& attrs) {
  return (spoil_as<A>(random, attrs) || ...);
}
bool spoil_attributes(Random& random, Attrs& attrs) {
  return attrs.empty() ||
         spoil_any<CastAttrs, IndexAttrs, ScatterAttrs, RavelAttrs, OneHotAttrs, SortAttrs, SearchAttrs,
                   ScanAttrs, UnfoldAttrs, ResampleAttrs, ReduceAttrs, NormAttrs, ShapeAttrs, FullAttrs,
                   ConvAttrs, PermuteAttrs, TriangularSolveAttrs, SliceAttrs, PoolAttrs, RandomAttrs,
                   AxisAttrs, FftAttrs, RandintAttrs, FrameAttrs, WindowAttrs, MultinomialAttrs>(random,
                                                                                                 attrs);
}

std::string described(const std::string& name, std::span<const Tensor> in, const Attrs& attrs) {
  std::string text = name + "(";
  for (const Tensor& t : in)
    text +=
        (t.defined() ? describe(t) : "undefined") + (t.defined() && !t.is_contiguous() ? " strided; " : "; ");
  return text + attrs.print() + ")";
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

/// The calls of an op that its cases make, with their values.
std::vector<AppliedOp> calls_of(const OpDef& op) {
  std::vector<AppliedOp> calls;
  for (const OpCase* op_case : cases_by_op().at(op.name)) {
    const std::vector<Tensor> in = case_tensors(*op_case, type_of(*op_case));
    if (op_case->data_dependent) {
      calls.push_back({&op, in, {}, {}});
      calls.back().in.resize(1);
      continue;
    }
    RecordingTracer tracer(true);
    {
      const TraceScope scope(&tracer);
      run_case(*op_case, in);
    }
    for (const AppliedOp& applied : tracer.applied)
      if (applied.op == &op) calls.push_back(applied);
  }
  return calls;
}

/// Half of the ops each, so that ctest can run them side by side.
class HostileOps : public ::testing::TestWithParam<size_t> {};

TEST_P(HostileOps, DirectlyThroughApply) {
  for (size_t i = GetParam(); i < all_ops().size(); i += 2) {
    const OpDef& op = *all_ops()[i];
    if (std::string(op.name) == "to") continue;  // needs a second device
    ASSERT_TRUE(cases_by_op().count(op.name)) << "op '" << op.name << "' has no small case";
    std::vector<AppliedOp> calls;
    expect_survives(op.name, [&](Random& random) {
      if (calls.empty()) calls = calls_of(op);
      AppliedOp call = calls[static_cast<size_t>(random.below(static_cast<int64_t>(calls.size())))];
      const std::vector<Tensor> original = call.in;
      for (Tensor& t : call.in)
        if (random.chance(0.5)) t = hostile(random, t, original);
      if (random.chance(0.6) && !spoil_attributes(random, call.attrs))
        return hostile_failure(
            "its attributes have a type that this test does not know; add it to "
            "spoil_attributes()");
      // A change in place must not reach the values that the next calls begin from.
      if (writes_in_place(op) && call.in[0].defined() && !random.chance(0.2)) call.in[0] = clone(call.in[0]);
      const auto run = [&] {
        const Tensors out = apply(op, call.in, call.attrs);
        return std::vector<Tensor>(out.begin(), out.end());
      };
      if (!op.data_dependent) return hostile_call(described(op.name, call.in, call.attrs), run, true);
      hostile_call(described(op.name, call.in, call.attrs), [&] {
        const TraceScope eagerly(nullptr);
        return run();
      });
    });
  }
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
      hostile_call(described(op_case.name, in, {}), [&] {
        const TraceScope scope(op_case.data_dependent ? nullptr : current_tracer());
        return std::vector<Tensor>{op_case.call(in)};
      });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, HostileOps, ::testing::Values(0, 1));

}  // namespace
}  // namespace tandem::testing
