// What every recipe of the fuzzer uses: see fuzz_run.h.
#include "tests/support/fuzz_run.h"

#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::testing {

const std::vector<FuzzRecipe>& fuzz_recipes() {
  static const std::vector<FuzzRecipe> recipes = [] {
    std::vector<FuzzRecipe> list;
    add_plain_recipes(list);
    add_gradient_recipes(list);
    add_case_recipes(list);
    return list;
  }();
  return recipes;
}

bool overlaps_itself(const Tensor& x) {
  std::vector<std::pair<Dim, Dim>> axes;  // stride, size
  for (int i = 0; i < x.rank(); ++i)
    if (x.size(i) > 1) axes.emplace_back(x.strides()[i], x.size(i));
  std::sort(axes.begin(), axes.end());
  Dim reach = 0;
  for (const auto& [stride, size] : axes) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

void FuzzRun::start(const std::vector<Tensor>& inputs) {
  uint32_t id = 0;
  for (size_t i = 0; i < inputs.size(); ++i) values_.push_back({id++, str("x", i), inputs[i]});
  for (size_t i = 0; i < side.state.size(); ++i) values_.push_back({id++, str("w", i), side.state[i]});
  outer_ = values_.size();
  for (const Value& value : values_)
    if (is_floating(value.tensor.dtype())) leaves.push_back(value.tensor);
  if (side.net)
    for (const Tensor& parameter : side.net->parameters()) leaves.push_back(parameter);
  // Recipes ask for types, strides and flags. A trace follows changes of these for tensors that an op takes: each is taken
  // once. A tensor that was on another device is row-major.
  const bool changes = std::any_of(program.events.begin(), program.events.end(), [](const FuzzEvent& event) {
    return event.kind == FuzzEvent::rebind || event.kind == FuzzEvent::rebind_type ||
           event.kind == FuzzEvent::toggle_requires_grad || event.kind == FuzzEvent::freeze_net ||
           event.kind == FuzzEvent::other_handle;
  });
  if (!changes) return;
  for (const auto& [name, tensor] : side.captured()) unsqueeze(tensor, 0);
}

void FuzzRun::step(const FuzzStep& step) {
  step_ = &step;
  next_ = 0;
  used_.clear();
  const bool off = step.choice.back() % 16 == 15;  // one in sixteen without gradients
  const GradMode mode(grad_enabled() && !off);
  if (notes.log && off) *notes.log += "  NoGrad:";
  // In programs under Autocast one in sixteen each switches it off, and to either type.
  std::optional<DType> precision = autocast_dtype();
  if (const uint32_t change = step.choice.back() / 16 % 16; program.autocast && change < 3) {
    precision = change == 0 ? std::nullopt : std::optional(change == 1 ? DType::bf16 : DType::f16);
    if (notes.log) *notes.log += str("  ", precision ? str("Autocast ", *precision) : "NoAutocast", ":");
  }
  const Autocast autocast(precision);
  const FuzzRecipe& recipe = fuzz_recipes()[step.recipe];
  try {
    recipe.run(*this);
  } catch (const Error&) {
    if (notes.log) *notes.log += str("  ", recipe.name, "(", used_, ") refuses\n");
    throw;
  }
}

std::vector<Tensor> FuzzRun::outputs() {
  std::vector<Tensor> results;
  std::string names;
  for (const FuzzStep& output : program.outputs) {
    step_ = &output;
    next_ = 0;
    used_.clear();
    const Tensor value = pick();
    results.push_back(chance(0.5) ? value.detach() : value);
    names += (names.empty() ? "" : ", ") + used_;
  }
  if (notes.log) *notes.log += str("  return ", names, "\n");
  return results;
}

Tensor FuzzRun::pick() {
  // Later values are likelier, so that chains grow. By number, so that removing a step leaves the choices of others.
  const uint32_t count = step_->id;
  const uint32_t back = std::min(raw() % count, raw() % count), wanted = count - 1 - back;
  const auto after = std::upper_bound(values_.begin(), values_.end(), wanted,
                                      [](uint32_t id, const Value& value) { return id < value.id; });
  const Value& value = after == values_.begin() ? values_.front() : *(after - 1);
  used_ += (used_.empty() ? "" : ", ") + value.name;
  return value.tensor;
}

Tensor FuzzRun::pick_outer() {
  const Value& value = values_[static_cast<size_t>(below(static_cast<int64_t>(outer_)))];
  used_ += (used_.empty() ? "" : ", ") + value.name;
  return value.tensor;
}

Tensor FuzzRun::pick_floating() {
  const Tensor x = pick();
  return is_floating(x.dtype()) ? x : cast(x, DType::f32);
}

Tensor FuzzRun::pick_number() {
  const Tensor x = pick();
  return x.dtype() == DType::boolean ? cast(x, chance(0.5) ? DType::i32 : DType::f32) : x;
}

Tensor FuzzRun::partner(const Tensor& x, bool to_shape) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string used = used_;
    const Tensor y = pick();
    try {
      const Dims shape = broadcast_shapes("partner", x.shape(), y.shape());
      if (size_of(shape) <= kMostElements && (!to_shape || shape == x.shape())) return y;
    } catch (const Error&) {
    }
    if (attempt == 1) return y.rank() == 0 ? y : sum(y);
    used_ = used;
  }
  return x;
}

Dims FuzzRun::some_axes(const Tensor& x) {
  Dims axes;
  const uint32_t bits = raw();
  for (int i = 0; i < x.rank(); ++i)
    if ((bits >> (2 * i)) % 4 == 3) axes.push_back(i);
  return axes;
}

DType FuzzRun::some_type() {
  static constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16,    DType::i64,
                                     DType::i32, DType::u8,  DType::f32,  DType::boolean};
  return kTypes[below(std::size(kTypes))];
}

Tensor FuzzRun::fitted(const Tensor& x, const CaseInput& form, DType dtype, int64_t int_low,
                       int64_t int_high) {
  const uint32_t bits = raw();
  const bool wild = bits % 32 == 31, turned = bits / 32 % 8 == 7;
  const Dim n = size_of(form.shape);
  Tensor y = x;
  if (!(y.shape() == form.shape)) {
    y = y.size() == 0 && n > 0 ? full({n}, 0.5, y.dtype(), y.device()) : reshape(y, {-1});
    if (y.size() < n) y = reshape(expand(unsqueeze(y, 0), {(n + y.size() - 1) / y.size(), y.size()}), {-1});
    const Dim spare = y.size() - n, start = bits / 256 % (spare + 1);
    if (spare > 0) y = slice(y, 0, start, start + n);
    y = reshape(y, form.shape);
  }
  const bool is_real = form.kind == CaseInput::real;
  const DType type = is_real                           ? dtype
                     : form.kind == CaseInput::index64 ? DType::i64
                     : form.kind == CaseInput::index32 ? DType::i32
                                                       : DType::boolean;
  if (type == DType::boolean) {
    if (y.dtype() != type) y = greater(y, 0);
  } else if (is_floating(type)) {
    y = cast(y, type);
    if (!wild) y = clamp(y, form.low, form.high);
  } else {
    y = cast(y, type);
    const int64_t low = is_real ? int_low : static_cast<int64_t>(form.low);
    const int64_t high = is_real ? int_high : static_cast<int64_t>(form.high);
    if (!wild && high > low) y = tandem::add(remainder(y, high - low), low);
  }
  if (turned && y.rank() >= 2) y = transpose(clone(transpose(y, 0, -1)), 0, -1);
  return y;
}

Tensor FuzzRun::apart(uint32_t number, const CaseInput& form, DType dtype) {
  struct Before {
    FuzzRun& run;
    std::vector<Value> values = run.values_;
    std::vector<Tensor> leaves = run.leaves;
    const FuzzStep* step = run.step_;
    size_t next = run.next_;
    std::string used = run.used_;
    explicit Before(FuzzRun& r) : run(r) { ++run.depth_; }
    ~Before() {
      run.values_ = values;
      run.leaves = leaves;
      run.step_ = step;
      run.next_ = next;
      run.used_ = used;
      --run.depth_;
    }
  } before(*this);
  Random random(number);
  FuzzStep inner;
  inner.id = step_->id;
  for (int64_t i = 1 + random.below(3); i > 0; --i, ++inner.id) {
    static const int64_t plain = [] {
      std::vector<FuzzRecipe> list;
      add_plain_recipes(list);
      add_gradient_recipes(list);
      return static_cast<int64_t>(list.size());
    }();
    const int64_t count = random.chance(0.6) ? plain : static_cast<int64_t>(fuzz_recipes().size());
    inner.recipe = static_cast<uint32_t>(random.below(count));
    for (uint32_t& choice : inner.choice) choice = static_cast<uint32_t>(random.next() >> 32);
    if (fuzz_recipes()[inner.recipe].name == "only_eagerly" && !random.chance(0.02)) continue;
    step(inner);
  }
  step_ = &inner;
  next_ = inner.choice.size();  // plainest
  return fitted(values_.back().tensor, form, dtype);
}

void FuzzRun::add(const std::string& what, const Tensor& result) {
  const bool again = !values_.empty() && values_.back().id == step_->id;  // a step with several results
  const std::string name = again ? values_.back().name + "'" : str("v", step_->id);
  if (notes.log)
    *notes.log += str("  ", name, " = ", what, "(", used_, ")  -> ", describe(result),
                      result.is_contiguous() ? "" : str(" strides ", result.strides()), "\n");
  if (result.size() <= kMostElements) values_.push_back({step_->id, name, result});
}

void FuzzRun::say(const std::string& what) {
  if (notes.log) *notes.log += str("  ", what, "(", used_, ")\n");
}

std::vector<Tensor> run_program(const FuzzProgram& program, const std::vector<Tensor>& inputs,
                                const FuzzSide& side, FuzzNotes& notes) {
  FuzzRun run(program, side, notes);
  run.start(inputs);
  for (const FuzzStep& step : program.steps) run.step(step);
  return run.outputs();
}

}  // namespace tandem::testing
