// Every op of the table with hostile arguments, see support/hostile.h: wrong ranks, types and sizes, nothing at all, NaN,
// indices out of range, aliases and strides of 0, through the public functions that its cases call.
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

/// Half of the ops each, so that ctest can run them side by side.
class HostileOps : public ::testing::TestWithParam<size_t> {};

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
