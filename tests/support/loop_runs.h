// What tests of loops share: code that runs eagerly, in a compiled callable and as a compiled step, and what it leaves behind.
#pragma once

#include <gtest/gtest.h>

#include "tandem/core/region.h"
#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/scan.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {

using List = std::vector<Tensor>;
inline Tensor values(const Dims& shape, uint32_t salt) {
  return to_tensor(hash_array(shape, salt), DType::f32);
}

/// What code uses and leaves behind.
struct World {
  Tensor x = values({5, 2, 3}, 1).set_requires_grad(), h = values({2, 3}, 2).set_requires_grad();
  Tensor w = values({3, 3}, 3).set_requires_grad(), u = values({3, 3}, 4).set_requires_grad();
  Tensor unused = values({3}, 5).set_requires_grad(), memory = values({3}, 6);
  List leaves() const { return {x, h, w, u, unused}; }
};
using Scan = std::function<ScanResult(const ScanFunction&, const List&, const List&)>;
inline Scan by_scan(ScanOptions options = {}) {
  return [options](const ScanFunction& step, const List& state, const List& sequences) {
    return scan(step, state, sequences, options);
  };
}
/// As anybody would write it.
inline ScanResult by_plain_loop(const ScanFunction& step, const List& state, const List& sequences) {
  ScanResult result{state, {}};
  std::vector<List> stacks;
  for (int64_t t = 0; t < sequences[0].shape()[0]; ++t) {
    List slices;
    for (const Tensor& s : sequences) slices.push_back(select(s, 0, t));
    ScanStep made = step(result.state, slices);
    result.state = made.state;
    stacks.resize(made.outputs.size());
    for (size_t i = 0; i < stacks.size(); ++i) stacks[i].push_back(made.outputs[i]);
  }
  for (const List& each : stacks) result.outputs.push_back(stack(each));
  return result;
}
inline List flat(ScanResult result) {
  result.state.insert(result.state.end(), result.outputs.begin(), result.outputs.end());
  return result.state;
}
using Code = std::function<List(World&, const Scan&)>;

enum class Way { eager, compiled, compiled_step };

/// Runs it three times with a backward pass after each: results, gradients of leaves, memory that it may change, and the
/// place in the random stream.
inline std::vector<List> run(const Code& code, Way way, const Scan& loop = by_scan()) {
  World world;
  manual_seed(11);
  const List leaves = world.leaves();
  const TensorFunction forward = [&](const List&) { return code(world, loop); };
  const auto with_gradients = [&](const TensorFunction& f) {
    return [&leaves, f](const List& in) {
      for (Tensor leaf : leaves) leaf.zero_grad();
      List out = f(in);
      Tensor total;
      for (const Tensor& y : out)
        if (is_floating(y.dtype())) total = total.defined() ? total + sum(y * y) : sum(y * y);
      backward(total);
      for (Tensor& y : out) y = y.detach();
      for (const Tensor& leaf : leaves) out.push_back(leaf.grad().defined() ? leaf.grad() : zeros_like(leaf));
      return out;
    };
  };
  Compiled inner = compile(forward), whole = compile(with_gradients(forward));
  std::vector<List> seen;
  for (int call = 0; call < 3; ++call) {
    List out = way == Way::compiled        ? with_gradients([&](const List& i) { return inner(i); })({})
               : way == Way::compiled_step ? whole({})
                                           : with_gradients(forward)({});
    for (Tensor& t : out) t = clone(t);
    out.push_back(clone(world.memory));
    out.push_back(full({}, static_cast<double>(generator_state().offset), DType::f64));
    seen.push_back(std::move(out));
  }
  EXPECT_LE(inner.reports().size() + whole.reports().size(), 1u) << "it was traced again";
  return seen;
}

inline void expect_same(const std::vector<List>& a, const std::vector<List>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t call = 0; call < a.size(); ++call) {
    ASSERT_EQ(a[call].size(), b[call].size()) << what;
    for (size_t i = 0; i < a[call].size(); ++i)
      EXPECT_EQ(host_bytes(a[call][i]), host_bytes(b[call][i]))
          << what << ", call " << call << ", tensor " << i;
  }
}
/// -0 and 0 are the same: the loop adds zeros around the gradient of each slice.
inline void expect_equal_values(const std::vector<List>& a, const std::vector<List>& b) {
  for (size_t call = 0; call < a.size(); ++call)
    for (size_t i = 0; i < a[call].size(); ++i)
      EXPECT_EQ(to_array(a[call][i]).values, to_array(b[call][i]).values)
          << "call " << call << ", tensor " << i;
}
/// Both engines the same, and gradients by computing again the same; gives what the eager engine did.
inline std::vector<List> both_engines(const Code& code, bool recomputes = true) {
  const auto eager = run(code, Way::eager);
  expect_same(run(code, Way::compiled), eager, "results of a compiled callable");
  expect_same(run(code, Way::compiled_step), eager, "gradients inside it");
  if (recomputes)
    for (Way way : {Way::eager, Way::compiled, Way::compiled_step})
      expect_same(run(code, way, by_scan({.recompute = true})), eager, "computed again");
  return eager;
}

/// The refusal of both engines, which must be one.
inline std::string refusal_of_both(const std::function<List()>& code) {
  const std::string eager = refusal(code);
  EXPECT_EQ(refusal([&] { compile([&](const List&) { return code(); })({}); }), eager);
  EXPECT_FALSE(BodyScope::is_open()) << "a refusal left something behind";
  return eager;
}

}  // namespace tandem::testing
