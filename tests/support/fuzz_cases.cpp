// Recipes of the fuzzer from the op table: each small op case is one. Its inputs are values at hand, made to fit. An op
// that writes in place is drawn twice: as its case calls it, on a copy, and on memory that other values share.
#include <algorithm>
#include <map>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tests/support/fuzz_run.h"

namespace tandem::testing {

namespace {

constexpr double kWeightOfCases = 20, kWeightInPlace = 5;

int64_t elements_of(const OpCase& op_case) {
  int64_t count = 0;
  for (const CaseInput& input : op_case.inputs) count += size_of(input.shape);
  return count;
}

/// The types that the case's real inputs may have, f32 first.
std::vector<DType> types_of(const OpCase& op_case) {
  std::vector<DType> types;
  if (op_case.floating) types = {DType::f32, DType::f32, DType::f64};
  types.insert(types.end(), op_case.dtypes.begin(), op_case.dtypes.end());
  return types;
}

void run_recipe(FuzzRun& run, const OpCase& op_case, bool makes_tensors) {
  // What a case makes of nothing lies on the CPU.
  if (makes_tensors && run.program.device != Device{}) return run.say(op_case.name + " not");
  const std::vector<DType> types = types_of(op_case);
  const DType dtype = types[static_cast<size_t>(run.below(static_cast<int64_t>(types.size())))];
  std::vector<Tensor> in;
  for (const CaseInput& input : op_case.inputs)
    in.push_back(run.fitted(run.pick(), input, dtype, op_case.int_low, op_case.int_high));
  run.notes.only_eagerly |= op_case.data_dependent;
  run.add(op_case.name, op_case.call(in));
}

/// One call of an op that writes into its first input, as a case makes it.
struct InPlace {
  const OpDef* op;
  Attrs attrs;
  const OpCase* op_case;
  Dims target;
  std::vector<CaseInput> others;
};

/// A part of a value at hand with this shape and type, which shares the value's memory; else a fresh one.
Tensor target_of(FuzzRun& run, const Dims& shape, const std::vector<DType>& types) {
  const auto allowed = [&](const Tensor& x) {
    return std::find(types.begin(), types.end(), x.dtype()) != types.end();
  };
  const Dim n = size_of(shape);
  Tensor x = run.pick_outer();
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (allowed(x) && x.is_contiguous() && x.size() >= n) {
      const Dim start = run.below(x.size() - n + 1);
      return reshape(slice(reshape(x, {-1}), 0, start, start + n), shape);
    }
    if (allowed(x) && x.shape() == shape && !overlaps_itself(x)) return x;
    x = run.pick();
  }
  return clone(run.fitted(x, {shape, -2, 2}, types[0]));
}

void run_in_place(FuzzRun& run, const InPlace& call) {
  const NoGrad off;
  std::vector<Tensor> in{target_of(run, call.target, types_of(*call.op_case))};
  // apply() itself, unlike the public function, must not be given what shares the target's memory.
  for (const CaseInput& other : call.others)
    in.push_back(
        clone(run.fitted(run.pick(), other, in[0].dtype(), call.op_case->int_low, call.op_case->int_high)));
  run.say(call.op->name);
  apply(*call.op, in, call.attrs);
}

/// Which input of the case this is, looking through copies; null where it is none of them.
const CaseInput* source_of(const OpCase& op_case, std::span<const Tensor> inputs,
                           const std::vector<AppliedOp>& applied, Tensor t) {
  for (auto at = applied.rbegin(); at != applied.rend(); ++at)
    if (std::string(at->op->name) == "copy" && at->out[0].same(t)) t = at->in[0];
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].same(t)) return &op_case.inputs[i];
  return nullptr;
}

}  // namespace

void add_case_recipes(std::vector<FuzzRecipe>& recipes) {
  std::map<std::string, std::vector<size_t>> by_op;  // op -> recipes that call it
  std::vector<InPlace> in_place;
  const size_t first = recipes.size();
  for (const OpCase& op_case : all_cases()) {
    if (elements_of(op_case) > 700) continue;
    const std::vector<Tensor> in =
        case_tensors(op_case, types_of(op_case).empty() ? DType::f32 : types_of(op_case)[0]);
    const std::vector<AppliedOp> applied = ops_applied(op_case, in);
    bool makes_tensors = false;
    for (const AppliedOp& call : applied) {
      auto& list = by_op[call.op->name];
      if (list.empty() || list.back() != recipes.size()) list.push_back(recipes.size());
      makes_tensors |= call.in.empty();
      if (!writes_in_place(*call.op)) continue;
      InPlace found{call.op, call.attrs, &op_case, call.in[0].shape(), {}};
      for (size_t i = 1; i < call.in.size(); ++i) {
        const Tensor& t = call.in[i];
        const CaseInput* source = source_of(op_case, in, applied, t);
        if (source && source->shape == t.shape())
          found.others.push_back(*source);
        else if (is_floating(t.dtype()))
          found.others.push_back({t.shape()});
      }
      if (found.others.size() + 1 == call.in.size()) in_place.push_back(found);
    }
    recipes.push_back({op_case.name, 0,
                       [&op_case, makes_tensors](FuzzRun& run) { run_recipe(run, op_case, makes_tensors); }});
  }
  for (const auto& [name, list] : by_op)
    for (const size_t recipe : list)
      recipes[recipe].weight +=
          kWeightOfCases / static_cast<double>(by_op.size()) / static_cast<double>(list.size());
  // Data-dependent cases end a program: rarely.
  for (size_t i = first; i < recipes.size(); ++i)
    if (find_case(recipes[i].name)->data_dependent) recipes[i].weight *= 0.4;
  for (const InPlace& call : in_place)
    recipes.push_back({str(call.op->name, " in place"), kWeightInPlace / static_cast<double>(in_place.size()),
                       [call](FuzzRun& run) { run_in_place(run, call); }});
}

}  // namespace tandem::testing
