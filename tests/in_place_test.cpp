// Writing into existing memory: what may be written, what is refused in both engines alike, and the functions that put
// values in place.
// ctest: asan
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/nn/module.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/einsum.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/shape.h"
#include "tests/support/op_case.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

using Numbers = std::vector<double>;
using Part = std::function<Tensor(const Tensor&)>;

Tensor counting(const Dims& shape) { return reshape(arange(size_of(shape), DType::f32), shape); }
Numbers values(const Tensor& x) { return to_array(x).values; }
Tensor list(const std::vector<int64_t>& numbers) {
  return from_vector(numbers, {static_cast<Dim>(numbers.size())});
}

/// All passes, and all but fuse_pointwise.
std::vector<CompileOptions> pass_lists() {
  CompileOptions unfused;
  std::erase(unfused.passes, "fuse_pointwise");
  return {unfused, CompileOptions()};
}

/// What each engine says to a write into a part of a captured tensor, of an input, and of one made inside. All must
/// agree.
std::string refusal_of_write(const Tensor& like, const Part& part) {
  const auto write = [&](const Tensor& x) { assign(part(x), full({}, 9, x.dtype())); };
  const Tensor eager = clone(like), captured = clone(like), input = clone(like);
  const std::string want = message_of<Error>([&] { write(eager); });
  Compiled inside = compile([&](const std::vector<Tensor>&) {
    write(captured);
    return std::vector<Tensor>{};
  });
  Compiled given = compile([&](const std::vector<Tensor>& in) {
    write(in[0]);
    return std::vector<Tensor>{};
  });
  Compiled made = compile([&](const std::vector<Tensor>& in) {
    const Tensor fresh = clone(in[0]);
    write(fresh);
    return std::vector<Tensor>{fresh};
  });
  EXPECT_EQ(message_of<Error>([&] { inside({}); }), want) << "captured";
  EXPECT_EQ(message_of<Error>([&] { given({input}); }), want) << "input";
  EXPECT_EQ(message_of<Error>([&] { made({like}); }), want) << "made inside";
  EXPECT_EQ(values(captured), values(eager));
  EXPECT_EQ(values(input), values(eager));
  if (!want.empty()) {
    EXPECT_EQ(values(eager), values(like)) << "a refused write must change nothing";
  }
  return want;
}

Tensor rows() { return list({2, 0}); }

TEST(Assign, ToASilentCopyIsRefusedInBothEnginesAndNamesTheFunctionThatCopied) {
  const std::vector<std::pair<const char*, Part>> copies = {
      {"index", [](const Tensor& x) { return index(x, {rows()}); }},
      {"index",
       [](const Tensor& x) {
         return index(x, {Slice{}, rows()});
       }},
      {"index", [](const Tensor& x) { return index(x, {full({}, 1, DType::i64)}); }},
      {"index_select", [](const Tensor& x) { return index_select(x, 1, rows()); }},
      {"gather",
       [](const Tensor& x) {
         return gather(x, 0, full({1, 4}, 1, DType::i64));
       }},
      {"take_along",
       [](const Tensor& x) {
         return take_along(x, full({1, 1}, 1, DType::i64), 0);
       }},
      {"take", [](const Tensor& x) { return take(x, rows()); }},
      {"reshape", [](const Tensor& x) { return reshape(transpose(x), {12}); }},
      {"reshape", [](const Tensor& x) { return reshape(slice(x, 1, 0, 2), {6}); }},
      {"reshape",
       [](const Tensor& x) {
         return reshape(expand(unsqueeze(x, 0), {2, 3, 4}), {24});
       }},
      {"flatten", [](const Tensor& x) { return flatten(transpose(x)); }},
      {"unflatten",
       [](const Tensor& x) {
         return unflatten(reshape(transpose(x), {2, 6}), 0, {2, 1});
       }},
      {"contiguous", [](const Tensor& x) { return contiguous(transpose(x)); }},
      {"diagonal", [](const Tensor& x) { return diagonal(transpose(x)); }},
      {"diagonal", [](const Tensor& x) { return diag(transpose(x)); }},
      {"diagonal", [](const Tensor& x) { return diagonal(x, 0, 1, 0); }},
      {"flip", [](const Tensor& x) { return flip(x, {0}); }},
      {"flip", [](const Tensor& x) { return flip(x, {}); }},
      {"rot90", [](const Tensor& x) { return rot90(x); }},
      {"rot90", [](const Tensor& x) { return rot90(x, 0); }},
      {"einsum", [](const Tensor& x) { return einsum("ii->i", {transpose(slice(x, 1, 0, 3))}); }},
  };
  for (const auto& [name, part] : copies) {
    SCOPED_TRACE(name);
    // unflatten() of a copy: the first function that copied is named.
    const std::string named = std::string(name) == "unflatten" ? "reshape" : name;
    const std::string text = refusal_of_write(counting({3, 4}), part);
    EXPECT_EQ(text.find("assign: the target must be a tensor of its own or a view of one; got f32 ("), 0u)
        << text;
    EXPECT_NE(text.find(str("a copy that ", named, "() made")), std::string::npos) << text;
    EXPECT_NE(text.find("clone()"), std::string::npos) << text;
  }
  // Masks select a number of elements that depends on the data: a compiled callable refuses them anyway.
  const Tensor x = counting({3, 4}), mask = greater(x, 5);
  for (const auto& [name, copy] :
       {std::pair{"index", index(x, {mask})}, {"masked_select", masked_select(x, mask)}}) {
    const std::string text = message_of<Error>([&, copy = copy] { assign(copy, zeros({1})); });
    EXPECT_NE(text.find(str("a copy that ", name, "() made")), std::string::npos) << text;
    EXPECT_NE(text.find("masked_scatter_into()"), std::string::npos) << text;
  }
}

TEST(Assign, ToAViewOfASilentCopyIsRefusedAsWell) {
  for (const Part& view : std::vector<Part>{
           [](const Tensor& y) { return slice(y, 0, 0, 1); }, [](const Tensor& y) { return select(y, 1, 2); },
           [](const Tensor& y) { return transpose(y); }, [](const Tensor& y) { return reshape(y, {8}); },
           [](const Tensor& y) { return unsqueeze(y, 0); }, [](const Tensor& y) { return y.detach(); },
           [](const Tensor& y) {
             return index(y, {1, Slice{0, 2}});
           },
           [](const Tensor& y) { return y[0]; }, [](const Tensor& y) { return unfold_axis(y, 1, 2, 2); },
           [](const Tensor& y) { return split(y, 1)[1]; }})
    EXPECT_NE(refusal_of_write(counting({3, 4}), [&](const Tensor& x) { return view(index(x, {rows()})); })
                  .find("index()"),
              std::string::npos);
}

TEST(Assign, ToAViewReachesTheTensorInBothEngines) {
  for (const Part& view : std::vector<Part>{
           [](const Tensor& x) { return x; }, [](const Tensor& x) { return transpose(x); },
           [](const Tensor& x) { return reshape(x, {12}); }, [](const Tensor& x) { return flatten(x); },
           [](const Tensor& x) {
             return reshape(transpose(x), {4, 3, 1});
           },
           [](const Tensor& x) {
             return unflatten(transpose(x), 0, {2, 2});
           },
           [](const Tensor& x) { return squeeze(unsqueeze(transpose(x), 1)); },
           [](const Tensor& x) { return contiguous(x); }, [](const Tensor& x) { return diagonal(x, 1); },
           [](const Tensor& x) { return diag(x); },
           [](const Tensor& x) {
             return index(x, {1, Slice{0, 4, 2}});
           },
           [](const Tensor& x) {
             return index(x, {ellipsis, new_axis, -1});
           },
           [](const Tensor& x) { return einsum("ij->ji", {x}); },
           [](const Tensor& x) { return to(x, Device{}); },
           [](const Tensor& x) { return cast(x, DType::f32); }, [](const Tensor& x) { return x.detach(); }}) {
    const Tensor x = counting({3, 4});
    EXPECT_EQ(refusal_of_write(x, view), "");
    assign(view(x), full({}, -5));
    EXPECT_NE(values(x), values(counting({3, 4})));
  }
}

TEST(Assign, ToElementsThatShareMemoryIsRefusedInBothEngines) {
  for (const Part& view : std::vector<Part>{[](const Tensor& x) {
                                              return expand(slice(x, 0, 0, 1), {3, 4});
                                            },
                                            [](const Tensor& x) {
                                              return expand(x, {2, 3, 4});
                                            },
                                            [](const Tensor& x) {
                                              return broadcast_to(select(x, 0, 0), {2, 4});
                                            },
                                            [](const Tensor& x) {
                                              return transpose(expand(select(x, 0, 0), {2, 4}));
                                            },
                                            [](const Tensor& x) { return unfold_axis(x, 1, 3, 1); }}) {
    const std::string text = refusal_of_write(counting({3, 4}), view);
    EXPECT_NE(text.find("must not share memory"), std::string::npos) << text;
  }
}

TEST(Assign, ToANewTensorIsAllowedAndNeverReachesTheOld) {
  // Functions that make something new, also where there is nothing to do.
  for (const Part& make : std::vector<Part>{
           [](const Tensor& x) { return clone(index(x, {rows()})); },
           [](const Tensor& x) { return concat({x}); },
           [](const Tensor& x) { return stack({x}); },
           [](const Tensor& x) { return roll(x, {0}, {0}); },
           [](const Tensor& x) { return roll(x, {12}); },
           [](const Tensor& x) { return roll(x, {1}, {1}); },
           [](const Tensor& x) {
             return repeat(x, {1, 1});
           },
           [](const Tensor& x) {
             return repeat(x, {2, 1});
           },
           [](const Tensor& x) { return tile(x, {1}); },
           [](const Tensor& x) { return repeat_interleave(x, 1, 0); },
           [](const Tensor& x) { return repeat_interleave(x, 3, 1); },
           [](const Tensor& x) {
             return pad(x, {0, 0});
           },
           [](const Tensor& x) {
             return pad(x, {-1, 0});
           },
           [](const Tensor& x) {
             return pad(x, {1, 0});
           },
           [](const Tensor& x) {
             return pad(x, {0, 0}, {.mode = PadMode::reflect});
           },
           [](const Tensor& x) { return index_put(x, {zeros({0}, DType::i64)}, 1); },
           [](const Tensor& x) {
             return scatter(x, 0, zeros({0, 4}, DType::i64), zeros({0, 4}));
           },
           [](const Tensor& x) {
             return index_copy(x, 0, zeros({0}, DType::i64), zeros({0, 4}));
           },
           [](const Tensor& x) { return masked_scatter(x, zeros({1}, DType::boolean), zeros({0})); },
           [](const Tensor& x) { return masked_fill(x, zeros({1}, DType::boolean), 1); },
           [](const Tensor& x) { return sort(x).values; },
           [](const Tensor& x) { return topk(x, 2).values; },
           [](const Tensor& x) { return kthvalue(x, 2).values; },
           [](const Tensor& x) { return embedding(x, rows()); },
           [](const Tensor& x) {
             return einsum("ij,kj->ki", {x, x});
           },
           [](const Tensor& x) { return einsum("ij->j", {x}); },
           [](const Tensor& x) {
             return pixel_shuffle(reshape(x, {1, 12, 1, 1}), 1);
           },
           [](const Tensor& x) {
             return pixel_shuffle(reshape(x, {1, 4, 3, 1}), 2);
           },
           [](const Tensor& x) { return tril(x); },
           [](const Tensor& x) { return diag_embed(x); }}) {
    EXPECT_EQ(refusal_of_write(counting({3, 4}), make), "");
    const Tensor x = counting({3, 4}), made = make(x);
    assign(made, full({}, -5));
    EXPECT_EQ(values(x), values(counting({3, 4})));
    assign(x, full({}, 7));
    EXPECT_EQ(values(made), Numbers(static_cast<size_t>(made.size()), -5));
  }
}

TEST(Assign, ToRoundedIntegersLeavesThemAsTheyWere) {
  for (Tensor (*rounded)(const Tensor&) : {floor, ceil, round, trunc}) {
    const Tensor x = arange(3), y = rounded(x);
    assign(y, full({}, 9, DType::i64));
    EXPECT_EQ(values(x), Numbers({0, 1, 2}));
  }
}

TEST(Assign, ToACopyThatBecameAParameterABufferOrALeafIsAllowed) {
  const Tensor x = counting({3, 4});
  Tensor leaf = contiguous(transpose(x)).set_requires_grad();
  {
    const NoGrad off;
    assign(leaf, zeros({1}));
  }
  struct Holder : nn::Module {
    explicit Holder(const Tensor& x)
        : weight(parameter("weight", index_select(x, 0, rows()))),
          table(buffer("table", reshape(transpose(x), {2, 6}))) {}
    Tensor forward(const Tensor& y) override { return y; }
    Tensor weight, table;
  } holder(x);
  const NoGrad off;
  assign(holder.weight, zeros({1}));
  assign(holder.table, zeros({1}));
  Tensor other = zeros({12});
  other.rebind(reshape(transpose(x), {12}));
  assign(other, zeros({1}));
  EXPECT_EQ(values(x), values(counting({3, 4})));
}

TEST(Assign, ToAGradientIsAllowedWhateverItsRuleEndsWith) {
  // The gradient of a reshaped transpose is a copy that reshape() made, inside.
  const auto loss = [](const Tensor& x) {
    return sum(reshape(transpose(x), {12}) * arange(12, DType::f32) + flatten(flip(transpose(x), {0})));
  };
  Tensor x = counting({3, 4}).set_requires_grad();
  loss(x).backward();
  const std::vector<Tensor> inputs = {x};
  const std::vector<Tensor> again = grad(loss(x), inputs);
  const NoGrad off;
  assign(x.grad(), x.grad() * 2);
  assign(again[0], zeros({1}));
}

TEST(CopyMarks, AreThoseOfTheEagerCallInTheResultsOfACompiledOne) {
  const auto function = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{index(in[0], {rows()}), transpose(in[0]), in[0] + 1,
                               reshape(transpose(in[0]), {12})};
  };
  Compiled compiled = compile(function);
  const Tensor x = counting({3, 4});
  for (int call = 0; call < 2; ++call) {
    const std::vector<Tensor> want = function({x}), got = compiled({x});
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(message_of<Error>([&] { assign(want[i], want[i]); }),
                message_of<Error>([&] { assign(got[i], got[i]); }))
          << i;
  }
}

TEST(CopyMarks, OfAnInputCountForACallThatWasTracedWithoutOne) {
  Compiled zero = compile([](const std::vector<Tensor>& in) {
    assign(in[0], zeros({1}));
    return std::vector<Tensor>{};
  });
  const Tensor x = counting({3, 4});
  zero({counting({2, 4})});
  const std::string text = message_of<Error>([&] { zero({index(x, {rows()})}); });
  EXPECT_NE(text.find("a copy that index() made"), std::string::npos) << text;
  EXPECT_EQ(message_of<Error>([&] { zero({clone(index(x, {rows()}))}); }), "");
}

/// A new function that is sometimes a view of its input and sometimes a copy must mark the copy, and only functions
/// that read as parts of a tensor may give marked results.
TEST(CopyMarks, StandInEveryOpCaseWhereAFunctionIsAViewForOtherStrides) {
  const std::set<std::string> parts = {"reshape", "flatten",  "unflatten",    "contiguous",    "diagonal",
                                       "diag",    "index",    "index_select", "gather",        "take",
                                       "flip",    "rot90",    "take_along",   "masked_select", "einsum",
                                       "squeeze", "unsqueeze"};
  for (const OpCase& op_case : all_cases()) {
    SCOPED_TRACE(op_case.name);
    const std::string function = op_case.name.substr(0, op_case.name.find('/'));
    if (op_case.inputs.empty()) continue;
    const DType dtype = op_case.floating ? DType::f32 : op_case.dtypes[0];
    std::vector<Tensor> in = case_tensors(op_case, dtype), twins;
    for (const Tensor& x : in) {
      Dims reversed;
      for (int axis = x.rank() - 1; axis >= 0; --axis) reversed.push_back(axis);
      twins.push_back(permute(clone(permute(x, reversed)), reversed));
    }
    bool views = false, copies_unmarked = false;
    for (const std::vector<Tensor>& given : {in, twins}) {
      const Tensor out = run_case(op_case, given);
      const bool is_view = out.impl()->storage == given[0].impl()->storage;
      const CopyMark* mark = out.impl()->copied_by;
      views |= is_view && out.size() > 0;
      copies_unmarked |= !is_view && !mark;
      if (mark) {
        EXPECT_TRUE(parts.count(mark->function)) << mark->function;
        EXPECT_TRUE(parts.count(function)) << "gives a copy that " << mark->function << "() made";
      }
    }
    EXPECT_FALSE(views && copies_unmarked)
        << "is a view for some strides and a copy without a mark for others";
  }
}

/// A change in both engines, with views of a larger tensor as the target.
void expect_same_change(const std::function<void(const Tensor&)>& change, const Tensor& like,
                        const Numbers& want) {
  const Tensor eager = clone(like);
  change(eager);
  EXPECT_EQ(values(eager), want);
  for (const CompileOptions& options : pass_lists()) {
    const Tensor captured = clone(like), input = clone(like);
    Compiled inside = compile(
        [&](const std::vector<Tensor>&) {
          change(captured);
          return std::vector<Tensor>{captured + 1};
        },
        options);
    EXPECT_EQ(values(inside({})[0] - 1), want) << options.passes.size() << " passes";
    EXPECT_EQ(values(captured), want) << options.passes.size() << " passes";
    Compiled given = compile(
        [&](const std::vector<Tensor>& in) {
          change(in[0]);
          return std::vector<Tensor>{in[0] * 2};
        },
        options);
    EXPECT_EQ(values(given({input})[0] * 0.5), want) << options.passes.size() << " passes";
    EXPECT_EQ(values(input), want) << options.passes.size() << " passes";
  }
}

TEST(ScatterInto, OfDuplicatesTheLastOneStays) {
  expect_same_change(
      [](const Tensor& x) {
        scatter_into(x, 0, list({3, 1, 3, 3, 1}), from_vector<float>({10, 20, 30, 40, 50}, {5}));
      },
      zeros({5}), {0, 50, 0, 40, 0});
  expect_same_change([](const Tensor& x) { scatter_into(x, 0, list({1, 2}), 7); }, zeros({4}), {0, 7, 7, 0});
}

TEST(ScatterInto, WritesIntoAPartOfAStridedTensorAndNowhereElse) {
  expect_same_change(
      [](const Tensor& x) {
        scatter_into(transpose(slice(x, 1, 1, 3)), 1, from_vector<int64_t>({2, 0, 0, 1}, {2, 2}),
                     from_vector<float>({10, 20, 30, 40}, {2, 2}));
      },
      counting({3, 4}), {0, 20, 30, 3, 4, 5, 40, 7, 8, 10, 10, 11});
}

TEST(ScatterInto, ReadsASourceAndAnIndexThatLieInTheTargetAsTheyWereBefore) {
  expect_same_change(
      [](const Tensor& x) {
        scatter_into(slice(x, 0, 1, 4), 0, list({0, 1, 2}), slice(x, 0, 0, 3));  // shifted onto itself
      },
      counting({4}), {0, 0, 1, 2});
  const Tensor index = list({3, 2, 1, 0});
  scatter_into(index, 0, index, index);
  EXPECT_EQ(values(index), Numbers({0, 1, 2, 3}));
}

TEST(ScatterInto, ABadIndexChangesNothing) {
  const Tensor x = zeros({3});
  const std::string text = message_of<Error>([&] { scatter_into(x, 0, list({0, 3}), ones({2})); });
  EXPECT_EQ(text, "scatter_into: every index must lie in 0..2; got 3 at element 1.");
  EXPECT_EQ(values(x), Numbers({0, 0, 0}));
}

TEST(IndexCopyInto, WritesNewKeysIntoACacheAtTheirPositions) {
  // A cache (batch, heads, length, width): two new positions, through a slice for one sample.
  const Tensor cache = zeros({2, 2, 4, 2}), keys = counting({1, 2, 2, 2}) + 1, at = list({2, 3});
  const auto step = [](const Tensor& x, const Tensor& positions, const Tensor& fresh) {
    index_copy_into(slice(x, 0, 1, 2), 2, positions, fresh * 1);
  };
  step(cache, at, keys);
  const Numbers want = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                        0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8};
  EXPECT_EQ(values(cache), want);
  for (const CompileOptions& options : pass_lists()) {
    const Tensor held = zeros({2, 2, 4, 2});
    Compiled compiled = compile(
        [&](const std::vector<Tensor>& in) {
          step(held, in[0], in[1]);
          return std::vector<Tensor>{sum(held)};
        },
        options);
    EXPECT_EQ(compiled({at, keys})[0].item<float>(), 36) << options.passes.size() << " passes";
    EXPECT_EQ(values(held), want) << options.passes.size() << " passes";
    compiled({list({0, 2}), zeros({1, 2, 2, 2})});  // the next call writes elsewhere
    EXPECT_EQ(sum(held).item<float>(), 3 + 4 + 7 + 8);
  }
}

TEST(IndexCopyInto, OfDuplicatesTheLastOneStaysAndTheSourceMayLieInTheTarget) {
  expect_same_change(
      [](const Tensor& x) {
        index_copy_into(x, 0, list({1, 0, 1}), slice(x, 0, 0, 3));
      },
      counting({3, 2}), {2, 3, 4, 5, 4, 5});
  expect_same_change(
      [](const Tensor& x) {
        index_copy_into(transpose(x), 0, list({1, 1}), expand(full({1, 1}, 9), {2, 3}));
      },
      counting({3, 2}), {0, 9, 2, 9, 4, 9});
}

using ByIndex = std::function<void(const Tensor& target, const Tensor& index, const Tensor& source)>;

/// Index and source are computed, the target is read before and after, by ops that could be fused into one group.
void expect_change_in_its_place(const ByIndex& change, const Tensor& like, const Tensor& at,
                                const Tensor& fresh) {
  for (const CompileOptions& options : pass_lists()) {
    SCOPED_TRACE(str(options.passes.size(), " passes"));
    const auto step = [&](const Tensor& x, const Tensor& i, const Tensor& s) {
      const Tensor before = x * 2 + 1;
      change(x, i + 1 - 1, s * 0.5);
      const Tensor between = x + before;
      change(x, i * -1 + 1, s - between[0]);
      return std::vector<Tensor>{before, between, x * 3 - before};
    };
    const Tensor eager = clone(like), held = clone(like), input = clone(like);
    Compiled inside =
        compile([&](const std::vector<Tensor>& in) { return step(held, in[0], in[1]); }, options);
    Compiled given =
        compile([&](const std::vector<Tensor>& in) { return step(in[2], in[0], in[1]); }, options);
    for (int call = 0; call < 2; ++call) {
      const std::vector<Tensor> want = step(eager, at, fresh), got = inside({at, fresh}),
                                also = given({at, fresh, input});
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(values(got[i]), values(want[i])) << "result " << i;
        EXPECT_EQ(values(also[i]), values(want[i])) << "result " << i;
      }
      EXPECT_EQ(values(held), values(eager));
      EXPECT_EQ(values(input), values(eager));
    }
  }
}

TEST(InPlace, InACompiledCallableAChangeOfRowsKeepsItsPlaceAmongFusedOps) {
  const Tensor x = counting({4, 2}), at = list({1, 0, 1}), fresh = counting({3, 2}) + 10;
  for (const ByIndex& change : std::vector<ByIndex>{
           [](const Tensor&x, const Tensor&i, const Tensor&s) { index_copy_into(x, 0, i, s); },
           [](const Tensor&x, const Tensor&i, const Tensor&s) { index_add_into(x, i, s); },
           [](const Tensor&x, const Tensor&i, const Tensor&s) {
             scatter_into(x, 0, expand(unsqueeze(i, 1), {3, 2}), s);
           },
           [](const Tensor&x, const Tensor&i, const Tensor&s) {
             masked_scatter_into(slice(x, 0, 0, 3), unsqueeze(greater(i, 0), 1), s);
           },
           [](const Tensor&x, const Tensor&i, const Tensor&) {
             masked_fill_into(slice(x, 0, 0, 3), unsqueeze(greater(i, 0), 1), -1);
           }})
    expect_change_in_its_place(change, x, at, fresh);
}

TEST(InPlace, InACompiledCallableAnIndexOfTheTargetsShapeIsNotTakenForItsValues) {
  const Tensor x = counting({3}), at = list({1, 0, 1}), fresh = counting({3}) + 10;
  for (const ByIndex& change : std::vector<ByIndex>{
           [](const Tensor&x, const Tensor&i, const Tensor&s) { index_copy_into(x, 0, i, s); },
           [](const Tensor&x, const Tensor&i, const Tensor&s) { index_add_into(x, i, s); },
           [](const Tensor&x, const Tensor&i, const Tensor&s) { scatter_into(x, 0, i, s); },
           [](const Tensor&x, const Tensor&i, const Tensor&s) { masked_scatter_into(x, greater(i, 0), s); },
           [](const Tensor&x, const Tensor&i, const Tensor&) { masked_fill_into(x, greater(i, 0), -1); }})
    expect_change_in_its_place(change, x, at, fresh);
}

TEST(IndexCopy, GivesTheGradientToTheSliceThatWins) {
  Tensor x = zeros({3}).set_requires_grad(), source = ones({3}).set_requires_grad();
  sum(index_copy(x, 0, list({1, 1, 2}), source) * (arange(3, DType::f32) + 1)).backward();
  EXPECT_EQ(values(x.grad()), Numbers({1, 0, 0}));
  EXPECT_EQ(values(source.grad()), Numbers({0, 2, 3}));
}

TEST(MaskedScatterInto, TakesTheSourceInOrderAndMayReadTheTarget) {
  const Tensor mask = from_vector<bool>({false, true, true, false, true, false}, {2, 3});
  expect_same_change([&](const Tensor& x) { masked_scatter_into(x, mask, arange(4, DType::f32) + 10); },
                     zeros({2, 3}), {0, 10, 11, 0, 12, 0});
  expect_same_change([&](const Tensor& x) { masked_scatter_into(transpose(x), transpose(mask), flatten(x)); },
                     counting({2, 3}), {0, 0, 2, 3, 1, 5});
  expect_same_change([&](const Tensor& x) { masked_fill_into(select(x, 0, 1), select(mask, 0, 1), -1); },
                     counting({2, 3}), {0, 1, 2, 3, -1, 5});
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(
      message_of<Error>([&] { masked_scatter_into(x, mask, ones({2})); }),
      "masked_scatter_into: source must have an element for every true one of the mask; got 2 elements and a "
      "true one number 3 at element 4.");
  EXPECT_EQ(values(x), Numbers(6, 0));
}

TEST(MaskedFill, KeepsEveryBitOfLargeIntegers) {
  const int64_t large = (int64_t{1} << 53) + 1;
  const Tensor x = from_vector<int64_t>({large, 0}, {2}), mask = from_vector<bool>({false, true}, {2});
  for (const Operand& value : {Operand(2.0), Operand(2)})
    EXPECT_EQ(masked_fill(x, mask, value).to_vector<int64_t>(), (std::vector<int64_t>{large, 2}));
  const Tensor two = full({}, 2, DType::f32);
  EXPECT_EQ(masked_fill(x, mask, two).to_vector<int64_t>(), (std::vector<int64_t>{large, 2}));
}

TEST(InPlace, AChangeIsSeenByTheTape) {
  Tensor x = counting({3}).set_requires_grad();
  const Tensor factor = ones({3});
  for (const auto& change : std::vector<std::function<void()>>{
           [&] { scatter_into(factor, 0, list({0}), 2); },
           [&] { index_copy_into(factor, 0, list({0}), ones({1})); },
           [&] { masked_fill_into(factor, ones({3}, DType::boolean), 2); },
           [&] { masked_scatter_into(factor, ones({3}, DType::boolean), ones({3})); }}) {
    const Tensor y = sum(x * factor);
    change();
    EXPECT_NE(message_of<Error>([&] { y.backward(); }).find("needed for the gradient but was changed"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::testing
