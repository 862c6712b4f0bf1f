// Recipes of the fuzzer that choose shapes freely: pointwise ops with broadcasting, views, reductions, products, changes
// in place of whatever is at hand, gradients, and the things that a compiled callable is documented to refuse.
#include <algorithm>

#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/graph/cond.h"
#include "tandem/graph/scan.h"
#include "tandem/graph/while_loop.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"
#include "tests/support/fuzz_run.h"

namespace tandem::testing {

namespace {

void unary(FuzzRun& run) {
  using Function = Tensor (*)(const Tensor&);
  static constexpr std::pair<const char*, Function> kReal[] = {
      {"tanh", tanh},
      {"exp", exp},
      {"sigmoid", sigmoid},
      {"gelu", gelu},
      {"sin", sin},
      {"floor", floor},
      {"erf", erf},
      {"cos", cos},
      {"log", log},
      {"rsqrt", rsqrt},
      {"sqrt", sqrt},
      {"silu", silu},
      {"gelu_tanh", gelu_tanh},
      {"mish", mish},
      {"expm1", expm1},
      {"log1p", log1p},
      {"atan", atan},
      {"round", round},
      {"elu", [](const Tensor& x) { return elu(x, 0.5); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.25); }},
      {"lerp", [](const Tensor& x) { return lerp(x, x * 0.5, 0.3); }}};
  static constexpr std::pair<const char*, Function> kNumber[] = {
      {"neg", neg}, {"abs", abs}, {"relu", relu}, {"sign", sign}, {"clamp", [](const Tensor& x) {
                                                                     return clamp(x, 0, 2);
                                                                   }}};
  if (run.chance(0.6)) {
    const auto& [name, f] = kReal[run.below(std::size(kReal))];
    run.add(name, f(run.pick_floating()));
  } else if (run.chance(0.15)) {
    run.add("logical_not", logical_not(run.pick()));
  } else {
    const auto& [name, f] = kNumber[run.below(std::size(kNumber))];
    run.add(name, f(run.pick_number()));
  }
}

void binary(FuzzRun& run) {
  using Function = Tensor (*)(const Operand&, const Operand&);
  static constexpr std::pair<const char*, Function> kArithmetic[] = {
      {"add", add}, {"sub", sub}, {"mul", mul}};
  static constexpr std::pair<const char*, Function> kEvery[] = {{"maximum", maximum},
                                                                {"minimum", minimum},
                                                                {"equal", equal},
                                                                {"less", less},
                                                                {"greater", greater},
                                                                {"not_equal", not_equal},
                                                                {"logical_and", logical_and},
                                                                {"less_equal", less_equal},
                                                                {"logical_xor", logical_xor},
                                                                {"remainder", remainder},
                                                                {"div", div}};
  const Tensor x = run.pick_number();
  const int64_t way = run.below(10);
  const auto& [name, f] = kArithmetic[run.below(3)];
  if (way == 9) {
    const double number = static_cast<double>(run.below(9) - 4) * 0.5;
    return run.add(str(name, " ", number, " and "),
                   run.chance(0.5) ? f(x, number) : f(static_cast<int64_t>(number), x));
  }
  const Tensor y = run.partner(x);
  if (way < 6) return run.add(name, f(x, y));
  if (way == 6) return run.add(name, f(y, x));
  if (way == 7) {
    const auto& [other, g] = kEvery[run.below(std::size(kEvery))];
    return run.add(other, g(x, y));
  }
  const Tensor c = x.dtype() == DType::boolean ? x : greater(x, 0);
  run.add("where", where(c, x, y));
}

void view(FuzzRun& run) {
  const Tensor x = run.pick();
  if (x.rank() == 0) return run.add("unsqueeze", unsqueeze(x, 0));
  const int axis = run.axis_of(x);
  switch (run.below(10)) {
    case 0:
      return run.add("transpose", transpose(x, axis, run.axis_of(x)));
    case 1:
    case 2: {
      const Dim start = x.size(axis) ? run.below(x.size(axis)) : 0;
      return run.add(str("slice axis ", axis, " from ", start, " of "),
                     slice(x, axis, start, start + 1 + run.below(5), 1 + run.below(2)));
    }
    case 3:
      return x.rank() < 5 ? run.add("unsqueeze", unsqueeze(x, axis)) : run.say("nothing");
    case 4: {
      if (x.rank() >= 5) return;
      Dims shape = x.shape();
      for (int i = 0; i < shape.rank(); ++i)
        if (shape[i] == 1) shape[i] = 1 + run.below(4);
      shape.insert(0, 1 + run.below(3));
      return size_of(shape) <= FuzzRun::kMostElements ? run.add("expand", expand(x, shape))
                                                      : run.say("nothing");
    }
    case 5:
      return run.add("reshape", reshape(x, {-1}));
    case 6:
      if (x.size(axis) == 0) return;
      return run.add(str("select axis ", axis, " of "), select(x, axis, run.below(x.size(axis))));
    case 7:
      return run.chance(0.5) ? run.add("clone", clone(x)) : run.add("contiguous", contiguous(x));
    case 8:
      return run.add("detach", x.detach());
    default:
      return run.add("concat", concat({x, slice(x, axis, 0, 2), x}, axis));
  }
}

void reduction(FuzzRun& run) {
  const Tensor x = run.pick();
  const bool keep = run.chance(0.5);
  const Dims axes = run.some_axes(x);
  switch (run.below(5)) {
    case 0:
    case 1:
      return run.add("sum", sum(x, axes, keep));
    case 2:
      return run.add("mean", mean(is_floating(x.dtype()) ? x : cast(x, DType::f32), axes, keep));
    case 3:
      return x.size() == 0 ? run.add("sum", sum(x)) : run.add("max", max(x, axes, keep));
    default:
      return x.size() == 0 ? run.add("sum", sum(x)) : run.add("min", min(x, axes, keep));
  }
}

void product(FuzzRun& run) {
  Tensor a = run.pick_floating();
  if (a.rank() == 0) return run.add("log_softmax", log_softmax(unsqueeze(a, 0)));
  if (run.chance(0.3)) return run.add("softmax", softmax(a, run.axis_of(a)));
  const Tensor b = run.chance(0.5) ? transpose(unsqueeze(flatten(a), 0)) : transpose(a, 0, -1);
  if (a.rank() != 2) a = reshape(a, {-1, a.size(-1) ? a.size(-1) : 1});
  run.add("matmul", matmul(a, b.rank() == 2 && b.shape()[0] == a.shape()[1] ? b : transpose(a)));
}

void random_numbers(FuzzRun& run) {
  const Device device = run.program.device;
  const Dim n = 1 + run.below(4);
  switch (run.below(8)) {
    case 0:
      return run.add("uniform", uniform({n, 3}, 0, 1, DType::f32, device));
    case 1:
      return run.add("normal", normal({2 * n + 1}, 0, 1, DType::f32, device));
    case 2:
      return run.add("dropout", dropout(run.pick_floating(), 0.25));
    case 3:
      return run.add("full", full({n, 1}, 1.5, run.some_type(), device));
    case 4:
      return run.add("arange", arange(n, DType::i64, device));
    case 5:
      return run.add("randint", randint(-3, 9, {n, 3}, DType::i64, device));
    case 6:
      return run.add("exponential", exponential({n, 3}, 1, DType::f32, device));
    default:
      return run.add("bernoulli", bernoulli(run.pick().shape(), 0.5, DType::f32, device));
  }
}

void indexed(FuzzRun& run) {
  const Tensor x = run.pick();
  if (x.rank() == 0 || x.size() == 0) return run.add("clone", clone(x));
  const int axis = run.axis_of(x);
  const Tensor index = argmax(x, axis, true);
  const int64_t way = run.below(4);
  if (way == 0) return run.add("argmax", index);
  if (way == 1 && x.rank() < 6) return run.add("one_hot argmax", one_hot(index, x.size(axis)));
  run.add("gather argmax", gather(x, axis, index));
}

void overwrite(FuzzRun& run) {
  const Tensor target = run.chance(0.4) ? run.pick_outer() : run.pick();
  if (overlaps_itself(target)) return run.add("clone", clone(target));
  const Tensor source = run.partner(target, true);
  run.say("assign");
  const GradMode mode(grad_enabled() && run.chance(0.02));  // refused where a gradient is wanted
  assign(target, source);
}

/// Moves a part of a tensor, or something computed from it, over another part that overlaps it.
void overwrite_within(FuzzRun& run) {
  const Tensor x = run.chance(0.4) ? run.pick_outer() : run.pick();
  const NoGrad off;
  if (overlaps_itself(x)) return run.add("clone", clone(x));
  if (x.rank() == 2 && x.size(0) == x.size(1) && run.chance(0.3)) {
    run.say("assign its transpose to ");
    return assign(x, transpose(x));
  }
  if (x.rank() == 0 || x.size(0) < 2) return;
  const Dim shift = 1 + run.below(x.size(0) - 1);
  Tensor from = slice(x, 0, 0, x.size(0) - shift), target = slice(x, 0, shift, x.size(0));
  if (run.chance(0.5)) std::swap(from, target);
  run.say(str("assign itself, shifted by ", shift, ", to "));
  if (x.dtype() == DType::boolean || run.chance(0.4)) return assign(target, from);
  assign(target, run.chance(0.5) ? from + 1 : abs(from) * from - target);
}

/// Adds rows, which may be of the same memory, to a tensor or a row-major part of one.
void add_rows(FuzzRun& run) {
  Tensor target = run.chance(0.5) ? run.pick_outer() : run.pick();
  if (target.rank() == 0 || !target.is_contiguous() || target.dtype() == DType::boolean || target.size() == 0)
    return run.add("clone", clone(target));
  if (run.chance(0.3)) target = slice(target, 0, run.below(target.size(0)), target.size(0));
  const Dim rows = 1 + run.below(4);
  const Tensor index = run.fitted(
      run.pick(), {{rows}, 0, static_cast<double>(target.size(0)), CaseInput::index64}, DType::f32);
  Dims shape = target.shape();
  shape[0] = rows;
  const Tensor source = run.chance(0.3) && rows <= target.size(0)
                            ? slice(target, 0, 0, rows)
                            : run.fitted(run.pick(), {shape, -2, 2}, target.dtype(), 0, 9);
  run.say("index_add_into");
  const NoGrad off;
  index_add_into(target, index, source);
}

void module(FuzzRun& run) {
  if (!run.side.net) return;
  const Dim rows = 2 + run.below(3);
  run.add("net", (*run.side.net)(run.fitted(run.pick(), {{rows, 3}, -2, 2}, DType::f32)));
}

/// A part that is run again where its gradient is asked for: it draws random numbers, reads captured values and, now and
/// then, changes one.
void repeated(FuzzRun& run) {
  const Tensor x = run.pick_floating(), other = run.pick_floating(), target = run.pick_outer();
  const bool changes = run.chance(0.3) && is_floating(target.dtype()) && !overlaps_itself(target);
  run.add("checkpoint", checkpoint(
                            [=](const Tensor& t) {
                              const Tensor h = dropout(tanh(t) * t, 0.25) + mean(cast(other, t.dtype()));
                              if (changes) {
                                const NoGrad off;
                                assign(target, target * 0.5);
                              }
                              return h * h;
                            },
                            x));
}

/// One of two parts of a program, by a value.
void branches(FuzzRun& run) {
  if (run.depth() >= 2) return;
  const Tensor by = run.pick_number(), also = run.pick_floating();
  const uint32_t first = run.raw(), second = run.chance(0.05) ? first : run.raw();
  const CaseInput form{{2, 3}, -2, 2}, other{run.chance(0.05) ? Dims{3, 2} : Dims{2, 3}, -2, 2};
  const DType type = run.chance(0.8) ? DType::f32 : DType::f64;
  const std::vector<Tensor> results = cond(
      greater(sum(by), 0),
      [&](const auto&) {
        return std::vector{run.apart(first, form, type), also};
      },
      [&](const auto&) {
        return std::vector{run.apart(second, other, type), also * 0.5};
      });
  for (const Tensor& result : results) run.add("cond", result);
}

/// A part of a program for each slice of a value, or as long as values say so.
void loops(FuzzRun& run) {
  if (run.depth() >= 2) return;
  const CaseInput form{{2, 3}, -2, 2};
  const Tensor h = run.fitted(run.pick_floating(), form, DType::f32);
  const Tensor x = run.fitted(run.pick_floating(), {{3, 2, 3}, -2, 2}, DType::f32);
  const uint32_t number = run.raw();
  const auto part = [&] { return run.apart(number, form, DType::f32); };
  if (run.chance(0.4)) {
    const std::vector<Tensor> results = while_loop([](const auto& s) { return less(sum(s[0]), 1); },
                                                   [&](const auto& s) {
                                                     const Tensor made = part();
                                                     return std::vector{s[0] * 0.5 + sigmoid(made), made};
                                                   },
                                                   {h, select(x, 0, 0)}, {.at_most = 3});
    for (const Tensor& result : results) run.add("while_loop", result);
    return;
  }
  const ScanOptions options{.from_end = run.chance(0.3), .recompute = run.chance(0.3)};
  ScanFunction step = [&](const auto& s, const auto& in) {
    const Tensor made = part(), next = tanh(made * s[0]) + in[0];
    return ScanStep{{next}, {next, made * s[0]}};
  };
  if (options.recompute)  // called again when other values are at hand
    step = [h](const auto& s, const auto& in) {
      const Tensor next = dropout(tanh(h * s[0]), 0.25) * s[0] + in[0];
      return ScanStep{{next}, {next, next * h}};
    };
  const ScanResult made = scan(step, {h}, {x}, options);
  run.add("state of scan", made.state[0]);
  for (const Tensor& output : made.outputs) run.add("scan", output);
}

/// A scalar made of several values, and of a leaf that wants a gradient; undefined where none does.
Tensor loss_of(FuzzRun& run) {
  Tensor total;
  for (const Tensor& leaf : run.leaves)
    if (!total.defined() && leaf.requires_grad()) total = sum(cast(leaf, DType::f32)) * 0.5;
  if (!total.defined()) return total;
  for (int64_t i = 1 + run.below(2); i >= 0; --i) {
    const Tensor x = run.pick();
    if (is_floating(x.dtype())) total = total + cast(mean(x), DType::f32);
  }
  return total;
}

std::vector<Tensor> wanted_of(FuzzRun& run) {
  const bool all = run.chance(0.3);
  std::vector<Tensor> wanted;
  for (const Tensor& leaf : run.leaves)
    if (all || leaf.requires_grad()) wanted.push_back(leaf);
  return wanted;
}

void gradients(FuzzRun& run) {
  if (!grad_enabled()) return;
  const Tensor loss = loss_of(run);
  if (!loss.defined()) return;
  BackwardOptions options;
  options.create_graph = run.chance(0.3) && !run.called_inner;
  for (const Tensor& g : grad(loss, wanted_of(run), {}, options, true)) run.add("grad of mean", g);
}

void backwards(FuzzRun& run) {
  if (!grad_enabled()) return;
  const Tensor loss = loss_of(run);
  if (!loss.defined()) return;
  if (run.chance(0.1))
    run.notes.only_eagerly = true;  // adds to gradients that earlier calls left
  else
    for (Tensor leaf : run.leaves) leaf.zero_grad();
  BackwardOptions options;
  options.create_graph = run.chance(0.15) && !run.called_inner;
  run.say("backward from mean");
  backward(loss, {}, options);
  for (const Tensor& leaf : run.leaves)
    if (leaf.grad().defined()) run.add("gradient left by backward", leaf.grad());
}

/// As an optimiser does it.
void update(FuzzRun& run) {
  const NoGrad off;
  for (const Tensor& leaf : run.leaves) {
    if (!leaf.requires_grad()) continue;
    const Tensor step = run.fitted(run.pick(), {leaf.shape(), -1, 1}, leaf.dtype());
    run.say("update a leaf by ");
    assign(leaf, leaf - step * 0.125);
    return;
  }
}

void new_leaf(FuzzRun& run) {
  Tensor leaf = run.pick_floating().detach();
  leaf.set_requires_grad();
  run.leaves.push_back(leaf);
  run.add("leaf", leaf);
}

/// What a compiled callable cannot do at each call, and says so.
void only_eagerly(FuzzRun& run) {
  run.notes.only_eagerly = true;
  switch (run.below(5)) {
    case 0: {  // reads a captured value on the host
      const Tensor w = run.pick_outer();
      const std::vector<std::byte> bytes = host_bytes(w);
      const double number = bytes.empty() ? 1 : static_cast<double>(bytes[0]);
      return run.add(str("times the first byte of ", describe(w)), run.pick_floating() * number);
    }
    case 1:
      run.say("manual_seed");
      manual_seed(run.raw());
      return run.add("uniform", uniform({3}, 0, 1, DType::f32, run.program.device));
    case 2: {
      for (Tensor leaf : run.leaves) {
        run.say("set_grad");
        return leaf.set_grad(leaf.detach());
      }
      return;
    }
    case 3: {  // state in a C++ variable
      const Tracer* const tracer = current_tracer();
      if (run.depth() > 0 || (tracer && !tracer->replays())) return run.say("nothing");
      const Tensor x = cast(sum(run.pick_floating()).detach(), DType::f32);
      run.side.kept = run.side.kept.defined() ? run.side.kept + x : x * 1.0;
      return run.add("its sum with those of earlier calls", run.side.kept);
    }
    default: {  // a gradient that an earlier call left
      for (const Tensor& leaf : run.leaves)
        if (leaf.grad().defined()) return run.add("gradient from before", leaf.grad() * 2);
      return run.say("no gradient from before");
    }
  }
}

}  // namespace

void add_plain_recipes(std::vector<FuzzRecipe>& recipes) {
  recipes.push_back({"unary", 14, unary});
  recipes.push_back({"binary", 16, binary});
  recipes.push_back({"view", 14, view});
  recipes.push_back({"reduction", 7, reduction});
  recipes.push_back({"product", 3, product});
  recipes.push_back({"convert", 4, [](FuzzRun& run) {
                       const Tensor x = run.pick();
                       run.add("cast", cast(x, run.some_type()));
                     }});
  recipes.push_back({"random_numbers", 3, random_numbers});
  recipes.push_back({"indexed", 3, indexed});
  recipes.push_back({"overwrite", 5, overwrite});
  recipes.push_back({"overwrite_within", 3, overwrite_within});
  recipes.push_back({"add_rows", 2, add_rows});
  recipes.push_back({"nested", 0.3, [](FuzzRun& run) {
                       const Tensor x = run.pick_floating();
                       run.called_inner = true;
                       run.add("compiled tanh(x) * x of ", run.side.inner({x})[0]);
                     }});
  recipes.push_back({"branches", 2, branches});
  recipes.push_back({"loops", 2, loops});
  recipes.push_back({"only_eagerly", 0.25, only_eagerly});
  recipes.push_back({"module", 8, module, false, true});
}

void add_gradient_recipes(std::vector<FuzzRecipe>& recipes) {
  recipes.push_back({"gradients", 5, gradients, true});
  recipes.push_back({"backwards", 3, backwards, true});
  recipes.push_back({"update", 4, update, true});
  recipes.push_back({"new_leaf", 1, new_leaf, true});
  recipes.push_back({"repeated", 1, repeated, true});
}

}  // namespace tandem::testing
