// How a random program is drawn and run: see fuzz_program.h.
#include "tests/support/fuzz_program.h"

#include <algorithm>

#include "tandem/core/tape.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem::testing {

namespace {

constexpr int64_t kMostElements = 6000;
constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f32, DType::f64, DType::bf16,
                            DType::f16, DType::i64, DType::i32, DType::u8,  DType::boolean};

struct Value {
  Tensor tensor;
  bool is_expanded = false;  // several elements may share memory
};

/// One run of a program.
class Run {
 public:
  Run(uint64_t seed, bool gradients, std::string* log) : random_(seed), gradients_(gradients), log_(log) {}

  void add_value(const Tensor& tensor) { values_.push_back({tensor, false}); }

  std::vector<Tensor> go(const std::vector<Tensor>& leaves) {
    const int64_t steps = 3 + random_.below(22);
    for (int64_t i = 0; i < steps; ++i) step();
    std::vector<Tensor> gradients;
    if (gradients_) gradients = take_gradients(leaves);
    std::vector<Tensor> outputs;
    const int64_t count = 1 + random_.below(5);
    for (int64_t i = 0; i < count; ++i) outputs.push_back(pick().tensor.detach());
    outputs.push_back(values_.back().tensor.detach());
    outputs.insert(outputs.end(), gradients.begin(), gradients.end());
    return outputs;
  }

 private:
  Value& pick() {
    // Later values are likelier, so that chains grow.
    const size_t n = values_.size();
    const size_t back = static_cast<size_t>(
        std::min(random_.below(static_cast<int64_t>(n)), random_.below(static_cast<int64_t>(n))));
    return values_[n - 1 - back];
  }

  Tensor pick_floating() {
    const Tensor x = pick().tensor;
    return is_floating(x.dtype()) ? x : cast(x, DType::f32);
  }

  Tensor pick_number() {
    const Tensor x = pick().tensor;
    return x.dtype() == DType::boolean ? cast(x, random_.chance(0.5) ? DType::f32 : DType::i32) : x;
  }

  void note(const char* what, const Tensor& result) {
    if (log_) *log_ += cat("  v", values_.size(), " = ", what, " -> ", describe(result), "\n");
  }

  void fresh(const char* what, const Tensor& result) {
    note(what, result);
    if (result.size() <= kMostElements) values_.push_back({result, false});
  }

  /// A result that may share the memory of `source`.
  void alias(const char* what, const Value& source, const Tensor& result, bool is_expanded = false) {
    note(what, result);
    const Value value{result, source.is_expanded || is_expanded};
    if (result.size() <= kMostElements) values_.push_back(value);
  }

  /// Something that broadcasts with x: another value where one fits, else a total.
  Tensor partner(const Tensor& x, bool to_shape = false) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const Tensor y = pick().tensor;
      try {
        const Dims shape = broadcast_shapes("partner", x.shape(), y.shape());
        if (size_of(shape) <= kMostElements && (!to_shape || shape == x.shape())) return y;
      } catch (const Error&) {
      }
    }
    const Tensor y = pick().tensor;
    return y.rank() == 0 ? y : sum(y);
  }

  int axis_of(const Tensor& x) { return static_cast<int>(random_.below(x.rank())); }

  Dims some_axes(const Tensor& x) {
    Dims axes;
    for (int i = 0; i < x.rank(); ++i)
      if (random_.chance(0.4)) axes.push_back(i);
    return axes;
  }

  void step() {
    const int64_t what = random_.below(100);
    if (what < 22) return unary();
    if (what < 44) return binary();
    if (what < 62) return view();
    if (what < 72) return reduction();
    if (what < 77) return product();
    if (what < 82) return convert();
    if (what < 86) return chance();
    if (what < 91) return indexed();
    if (!gradients_) return overwrite();
    unary();
  }

  void unary() {
    using Function = Tensor (*)(const Tensor&);
    static constexpr std::pair<const char*, Function> kReal[] = {
        {"exp", exp},
        {"tanh", tanh},
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
    if (random_.chance(0.6)) {
      const auto& [name, f] = kReal[random_.below(std::size(kReal))];
      fresh(name, f(pick_floating()));
    } else if (random_.chance(0.85)) {
      const auto& [name, f] = kNumber[random_.below(std::size(kNumber))];
      fresh(name, f(pick_number()));
    } else {
      fresh("logical_not", logical_not(pick().tensor));
    }
  }

  void binary() {
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
                                                                  {"remainder", remainder}};
    const Tensor x = pick_number();
    if (random_.chance(0.2)) {
      const auto& [name, f] = kArithmetic[random_.below(3)];
      const double number = static_cast<double>(random_.below(9) - 4) * 0.5;
      return fresh(name, random_.chance(0.5) ? f(x, number) : f(static_cast<int64_t>(number), x));
    }
    const Tensor y = partner(x);
    const int64_t which = random_.below(10);
    if (which < 6) {
      const auto& [name, f] = kArithmetic[random_.below(3)];
      fresh(name, random_.chance(0.5) ? f(x, y) : f(y, x));
    } else if (which < 7) {
      fresh("div", div(x, y));
    } else if (which < 8) {
      const Tensor condition = partner(x);
      const Tensor c = condition.dtype() == DType::boolean ? condition : greater(condition, 0);
      try {
        const Dims shape =
            broadcast_shapes("where", broadcast_shapes("where", x.shape(), y.shape()), c.shape());
        if (size_of(shape) <= kMostElements) fresh("where", where(c, x, y));
      } catch (const Error&) {
      }
    } else {
      const auto& [name, f] = kEvery[random_.below(std::size(kEvery))];
      fresh(name, f(x, y));
    }
  }

  void view() {
    const Value source = pick();
    const Tensor& x = source.tensor;
    if (x.rank() == 0) return alias("unsqueeze", source, unsqueeze(x, 0));
    switch (random_.below(9)) {
      case 0:
        return alias("transpose", source, transpose(x, axis_of(x), axis_of(x)));
      case 1:
      case 2: {
        const int axis = axis_of(x);
        const Dim start = x.size(axis) ? random_.below(x.size(axis)) : 0;
        return alias("slice", source,
                     slice(x, axis, start, start + 1 + random_.below(5), 1 + random_.below(2)));
      }
      case 3:
        if (x.rank() < 5) return alias("unsqueeze", source, unsqueeze(x, random_.below(x.rank() + 1)));
        return;
      case 4: {
        if (x.rank() >= 5) return;
        Dims shape = x.shape();
        for (int i = 0; i < shape.rank(); ++i)
          if (shape[i] == 1) shape[i] = 1 + random_.below(4);
        shape.insert(0, 1 + random_.below(3));
        return alias("expand", source, expand(x, shape), true);
      }
      case 5:
        return alias("reshape", source, reshape(x, {-1}));
      case 6: {
        const int axis = axis_of(x);
        if (x.size(axis) == 0) return;
        return alias("select", source, select(x, axis, random_.below(x.size(axis))));
      }
      case 7:
        return random_.chance(0.5) ? fresh("clone", clone(x)) : alias("contiguous", source, contiguous(x));
      default: {
        const int axis = axis_of(x);
        return fresh("concat", concat({x, slice(x, axis, 0, 2), x}, axis));
      }
    }
  }

  void reduction() {
    const Tensor x = pick().tensor;
    const bool keep = random_.chance(0.5);
    switch (random_.below(5)) {
      case 0:
      case 1:
        return fresh("sum", sum(x, some_axes(x), keep));
      case 2: {
        const Tensor y = pick_floating();
        return fresh("mean", mean(y, some_axes(y), keep));
      }
      default:
        if (x.size() == 0) return fresh("sum", sum(x));
        return random_.chance(0.5) ? fresh("max", max(x, some_axes(x), keep))
                                   : fresh("min", min(x, some_axes(x), keep));
    }
  }

  void product() {
    Tensor a = pick_floating();
    if (a.rank() == 0) return fresh("log_softmax", log_softmax(unsqueeze(a, 0)));
    if (random_.chance(0.3)) return fresh("softmax", softmax(a, axis_of(a)));
    const Tensor b = random_.chance(0.5) ? transpose(unsqueeze(flatten(a), 0)) : transpose(a, 0, -1);
    if (a.rank() != 2) a = reshape(a, {-1, a.size(-1) ? a.size(-1) : 1});
    if (b.rank() == 2 && b.shape()[0] == a.shape()[1]) return fresh("matmul", matmul(a, b));
    fresh("matmul", matmul(a, transpose(a)));
  }

  void convert() {
    const Value source = pick();
    alias("cast", source, cast(source.tensor, kTypes[random_.below(std::size(kTypes))]));
  }

  void chance() {
    switch (random_.below(5)) {
      case 0:
        return fresh("uniform", uniform({1 + random_.below(4), 3}));
      case 1:
        return fresh("normal", normal({1 + random_.below(9)}));
      case 2:
        return fresh("dropout", dropout(pick_floating(), 0.25));
      case 3:
        return fresh("full", full({1 + random_.below(3), 1}, 1.5));
      default:
        return fresh("bernoulli", bernoulli(pick().tensor.shape(), 0.5));
    }
  }

  void indexed() {
    const Tensor x = pick().tensor;
    if (x.rank() == 0 || x.size() == 0) return fresh("arange", arange(1 + random_.below(5)));
    const int axis = axis_of(x);
    const Tensor index = argmax(x, axis, true);
    if (random_.chance(0.3)) return fresh("argmax", index);
    if (random_.chance(0.3) && x.rank() < 6) return fresh("one_hot", one_hot(index, x.size(axis)));
    fresh("gather", gather(x, axis, index));
  }

  void overwrite() {
    Value& target = pick();
    if (target.is_expanded || target.tensor.impl()->copied_by) return fresh("clone", clone(target.tensor));
    if (random_.chance(0.35)) return overwrite_within(target.tensor);
    const Tensor source = partner(target.tensor, true);
    if (log_) *log_ += cat("  assign to ", describe(target.tensor), " from ", describe(source), "\n");
    const NoGrad off;
    assign(target.tensor, source);
  }

  /// Moves a part of a tensor, or something computed from it, over another part that overlaps it.
  void overwrite_within(const Tensor& x) {
    const NoGrad off;
    if (x.rank() == 2 && x.size(0) == x.size(1) && random_.chance(0.3)) {
      if (log_) *log_ += cat("  assign to ", describe(x), " its transpose\n");
      return assign(x, transpose(x));
    }
    if (x.rank() == 0 || x.size(0) < 2) return;
    const Dim shift = 1 + random_.below(x.size(0) - 1);
    Tensor from = slice(x, 0, 0, x.size(0) - shift), target = slice(x, 0, shift, x.size(0));
    if (random_.chance(0.5)) std::swap(from, target);
    if (log_) *log_ += cat("  assign to ", describe(x), " from itself, shifted by ", shift, "\n");
    if (x.dtype() == DType::boolean || random_.chance(0.4)) return assign(target, from);
    assign(target, random_.chance(0.5) ? from + 1 : abs(from) * from - target);
  }

  /// Gradients of a scalar made of several values, and updates of the leaves as an optimiser does them.
  std::vector<Tensor> take_gradients(const std::vector<Tensor>& leaves) {
    Tensor loss = sum(cast(leaves[0], DType::f32));
    for (int i = 0; i < 3; ++i) loss = loss + cast(mean(pick_floating()), DType::f32);
    const bool second = random_.chance(0.25);
    BackwardOptions options;
    options.create_graph = second;
    std::vector<Tensor> gradients = grad(loss, leaves, {}, options, true);
    if (second) {
      Tensor penalty = sum(cast(leaves[0] * leaves[0], DType::f32));
      for (const Tensor& g : gradients) penalty = penalty + sum(cast(g * g, DType::f32));
      const std::vector<Tensor> more = grad(penalty, leaves, {}, {}, true);
      gradients.insert(gradients.end(), more.begin(), more.end());
    }
    const NoGrad off;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (random_.chance(0.7)) assign(leaves[i], leaves[i] - gradients[i] * 0.125);
    for (Tensor& g : gradients) g = g.detach();
    return gradients;
  }

  Random random_;
  bool gradients_;
  std::string* log_;
  std::vector<Value> values_;
};

}  // namespace

FuzzProgram::FuzzProgram(uint64_t seed) : seed_(seed) {
  Random random(seed ^ 0x5eed);
  takes_gradients_ = random.chance(0.3);
  const bool is_large = random.chance(0.04);
  static const Dims kSmall[] = {{},        {3}, {2, 3}, {4, 3}, {1, 3}, {2, 4, 3},
                                {2, 1, 3}, {1}, {5, 2}, {0, 3}, {3, 3}};
  static const Dims kLarge[] = {{40, 130}, {130}, {2, 2049}, {1, 130}, {4097}};
  const auto form = [&](bool floating) {
    Form f{is_large ? kLarge[random.below(std::size(kLarge))] : kSmall[random.below(std::size(kSmall))],
           kTypes[random.below(std::size(kTypes))], random.chance(0.2)};
    if (floating) f.dtype = random.chance(0.8) ? DType::f32 : random.chance(0.5) ? DType::f64 : DType::bf16;
    return f;
  };
  for (int64_t i = 1 + random.below(3); i > 0; --i) inputs_.push_back(form(false));
  for (int64_t i = 1 + random.below(3); i > 0; --i) state_.push_back(form(takes_gradients_));
  has_view_ = !takes_gradients_ && state_[0].shape.rank() > 0 && random.chance(0.3);
}

std::vector<Tensor> FuzzProgram::inputs(uint32_t call) const {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Form& form = inputs_[i];
    const bool is_signed = is_floating(form.dtype) || form.dtype == DType::i32 || form.dtype == DType::i64;
    Dims stored = form.shape;
    const bool turned = form.strided && stored.rank() >= 2;
    if (turned) std::swap(stored[0], stored[stored.rank() - 1]);
    const Tensor x = to_tensor(
        hash_array(stored, static_cast<uint32_t>(seed_ * 7 + i + 100 * call), is_signed ? -2 : 0, 3),
        form.dtype);
    tensors.push_back(turned ? transpose(x, 0, -1) : x);
  }
  return tensors;
}

std::vector<Tensor> FuzzProgram::state() const {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < state_.size(); ++i) {
    const Form& form = state_[i];
    Tensor x = to_tensor(hash_array(form.shape, static_cast<uint32_t>(seed_ * 11 + i), 0, 2), form.dtype);
    if (takes_gradients_) x.set_requires_grad();
    tensors.push_back(x);
  }
  if (has_view_) tensors.push_back(slice(transpose(tensors[0], 0, -1), 0, 1, 1000));
  return tensors;
}

void FuzzProgram::disturb(const std::vector<Tensor>& state, uint32_t call) const {
  const NoGrad off;
  const size_t i = (seed_ + call) % state.size();
  assign(state[i], to_tensor(hash_array(state[i].shape(), static_cast<uint32_t>(seed_ * 13 + call), 0, 2),
                             state[i].dtype()));
}

std::vector<Tensor> FuzzProgram::run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& state,
                                     std::string* log) const {
  Run run(seed_, takes_gradients_, log);
  for (const Tensor& x : inputs) run.add_value(x);
  for (const Tensor& x : state) run.add_value(x);
  return run.go(takes_gradients_ ? state : std::vector<Tensor>{});
}

}  // namespace tandem::testing
