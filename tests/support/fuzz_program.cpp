// How a random program is drawn, and what its caller does: see fuzz_program.h.
#include "tests/support/fuzz_program.h"

#include <algorithm>

#include "tandem/core/tape.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"
#include "tests/support/fuzz_run.h"

namespace tandem::testing {

namespace {

constexpr uint32_t kFirstStep = 10;  // inputs and state have the numbers below
constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f32, DType::f64, DType::bf16,
                            DType::f16, DType::i64, DType::i32, DType::u8,  DType::boolean};

Dims some_shape(Random& random, bool is_large) {
  static const Dims kSmall[] = {{},  {3},    {2, 3}, {4, 3}, {1, 3}, {2, 4, 3}, {2, 1, 3},
                                {1}, {5, 2}, {0, 3}, {3, 3}, {5, 4}, {6, 4},    {7, 3}};
  static const Dims kLarge[] = {{40, 130}, {130}, {2, 2049}, {1, 130}, {4097}};
  return is_large ? kLarge[random.below(std::size(kLarge))] : kSmall[random.below(std::size(kSmall))];
}

FuzzForm some_form(Random& random, bool is_large, bool leaf) {
  FuzzForm form{some_shape(random, is_large), some_shape(random, is_large),
                kTypes[random.below(std::size(kTypes))], random.chance(0.2)};
  if (leaf) form.dtype = random.chance(0.8) ? DType::f32 : random.chance(0.5) ? DType::f64 : DType::bf16;
  form.leaf = leaf;
  return form;
}

void draw_choices(Random& random, FuzzStep& step) {
  for (uint32_t& choice : step.choice) choice = static_cast<uint32_t>(random.next() >> 32);
}

/// The sums of the recipes' weights, for programs with and without gradients and module.
struct Weights {
  std::vector<double> sums;
  Weights(bool gradients, bool net) {
    double sum = 0;
    for (const FuzzRecipe& recipe : fuzz_recipes()) {
      if ((!recipe.gradients || gradients) && (!recipe.net || net)) sum += recipe.weight;
      sums.push_back(sum);
    }
  }
  uint32_t draw(Random& random) const {
    const double at = static_cast<double>(random.next() >> 11) * 0x1p-53 * sums.back();
    return static_cast<uint32_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin());
  }
};

Tensor filled(const FuzzProgram& program, const FuzzForm& form, const Dims& shape, uint32_t salt) {
  const bool is_signed = is_floating(form.dtype) || form.dtype == DType::i32 || form.dtype == DType::i64;
  Dims stored = shape;
  const bool turned = form.strided && stored.rank() >= 2;
  if (turned) std::swap(stored[0], stored[stored.rank() - 1]);
  const Tensor x =
      to_tensor(hash_array(stored, static_cast<uint32_t>(program.seed * 7) + salt, is_signed ? -2 : 0, 3),
                form.dtype, program.device);
  return turned ? transpose(x, 0, -1).detach() : x;
}

/// How often something happened before a call.
uint32_t times(const FuzzProgram& program, FuzzEvent::Kind kind, uint32_t call) {
  uint32_t count = 0;
  for (const FuzzEvent& event : program.events) count += event.kind == kind && event.before_call <= call;
  return count;
}

}  // namespace

FuzzProgram draw_program(uint64_t seed, Device device) {
  Random random(seed ^ 0x5eed);
  FuzzProgram program;
  program.seed = seed;
  program.device = device;
  const bool gradients = random.chance(0.4), is_large = random.chance(0.03);
  program.has_net = random.chance(gradients ? 0.25 : 0.1);
  program.calls = static_cast<uint32_t>(2 + random.below(3));
  for (int64_t i = 1 + random.below(3); i > 0; --i)
    program.inputs.push_back(some_form(random, is_large, gradients && random.chance(0.15)));
  for (int64_t i = 1 + random.below(3); i > 0; --i)
    program.state.push_back(some_form(random, is_large, gradients && random.chance(0.8)));
  program.has_view = program.state[0].shape.rank() > 0 && random.chance(0.25);

  static const Weights weights[] = {{false, false}, {true, false}, {false, true}, {true, true}};
  const Weights& allowed = weights[(gradients ? 1 : 0) + (program.has_net ? 2 : 0)];
  const int64_t steps = 3 + random.below(14);
  for (uint32_t i = 0; i < steps; ++i) {
    FuzzStep& step = program.steps.emplace_back();
    step.id = kFirstStep + i;
    step.recipe = allowed.draw(random);
    draw_choices(random, step);
  }
  for (int64_t i = 1 + random.below(4); i > 0; --i) {
    FuzzStep& output = program.outputs.emplace_back();
    output.id = kFirstStep + static_cast<uint32_t>(steps);
    draw_choices(random, output);
  }
  program.outputs.back().choice[0] = 0;  // the last value

  for (uint32_t call = 1; call < program.calls; ++call) {
    for (int64_t i = random.below(3); i > 0; --i) {
      FuzzEvent event;
      event.before_call = call;
      event.kind = static_cast<FuzzEvent::Kind>(random.below(FuzzEvent::kKinds));
      event.choice = static_cast<uint32_t>(random.next() >> 32);
      program.events.push_back(event);
    }
  }
  program.passes = all_stages();
  if (random.chance(0.3))
    std::erase_if(program.passes, [&](const std::string&) { return random.chance(0.5); });
  // By numbers of its own: the other programs stay what they are.
  if (Random own(seed ^ 0xca57); own.chance(0.15)) {
    program.autocast = own.chance(0.6) ? DType::bf16 : DType::f16;
    program.autocast_calls = own.chance(0.5) ? ~0u : static_cast<uint32_t>(own.next());
  }
  if (Random own(seed ^ 0x0a3ed); own.chance(0.2)) program.named = static_cast<uint32_t>(own.next()) | 1;
  if (Random own(seed ^ 0xc04053); own.chance(0.1)) program.composed = true;
  // Rules of branches, loops and checkpoints hold what they use, unseen: with these the old tensor stays in use, as
  // graph/compile.h says.
  const bool has_rules = std::any_of(program.steps.begin(), program.steps.end(), [](const FuzzStep& step) {
    const std::string& name = fuzz_recipes()[step.recipe].name;
    return name == "branches" || name == "loops" || name == "repeated";
  });
  if (Random own(seed ^ 0x4a9d1e); own.chance(0.1) && !has_rules)
    program.events.push_back({static_cast<uint32_t>(1 + own.below(program.calls - 1)),
                              FuzzEvent::other_handle, static_cast<uint32_t>(own.next() >> 32)});
  return program;
}

FuzzSide::FuzzSide(const FuzzProgram& program)
    : inner(compile([](const std::vector<Tensor>& in) { return std::vector<Tensor>{tanh(in[0]) * in[0]}; })),
      random{program.seed, 0} {
  for (size_t i = 0; i < program.state.size(); ++i) {
    const FuzzForm& form = program.state[i];
    Tensor x = filled(program, form, form.shape, static_cast<uint32_t>(50 + i));
    if (form.leaf) x.set_requires_grad();
    state.push_back(x);
  }
  if (program.has_view) state.push_back(slice(transpose(state[0].detach(), 0, -1), 0, 1, 1000).detach());
  if (!program.has_net) return;
  net = std::make_unique<FuzzNet>();
  if (program.device != Device{}) net->to(program.device);
}

std::vector<Tensor> FuzzSide::inputs(const FuzzProgram& program, uint32_t call) const {
  const bool other = times(program, FuzzEvent::other_shapes, call) % 2;
  const bool toggled = times(program, FuzzEvent::toggle_input_leaf, call) % 2;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const FuzzForm& form = program.inputs[i];
    tensors.push_back(
        filled(program, form, other ? form.other_shape : form.shape, static_cast<uint32_t>(i + 100 * call)));
    if (is_floating(form.dtype)) tensors.back().set_requires_grad(form.leaf != (toggled && i == 0));
  }
  for (const FuzzEvent& event : program.events) {
    if (event.before_call != call) continue;
    if (event.kind == FuzzEvent::alias_inputs) tensors.back() = tensors.front();
    if (event.kind == FuzzEvent::pass_state) tensors[0] = state[event.choice % state.size()];
  }
  return tensors;
}

void FuzzSide::happen(const FuzzProgram& program, uint32_t call) {
  autocast = (program.autocast_calls >> call & 1) ? program.autocast : std::nullopt;
  for (const FuzzEvent& event : program.events) {
    if (event.before_call != call) continue;
    const NoGrad off;
    const size_t which = event.choice % program.state.size();
    const FuzzForm& form = program.state[which];
    Tensor& w = state[which];
    const auto fresh = [&] { return filled(program, form, form.shape, 200 + event.choice % 1000); };
    switch (event.kind) {
      case FuzzEvent::assign_state:
        assign(w, fresh());
        break;
      case FuzzEvent::assign_view:
        if (w.rank() > 0 && w.size() > 0) assign(slice(w, -1, 0, 1), slice(fresh(), -1, 0, 1));
        break;
      case FuzzEvent::rebind:  // as a module's move to another device and back does it
        w.rebind(to(to(fresh(), Device{}), program.device));
        break;
      case FuzzEvent::rebind_type:
        if (is_floating(w.dtype()))
          w.rebind(cast(fresh(), w.dtype() == DType::f64 ? DType::f32 : DType::f64));
        break;
      case FuzzEvent::toggle_requires_grad:
        if (is_floating(w.dtype())) w.set_requires_grad(!w.requires_grad());
        break;
      case FuzzEvent::toggle_grad_mode:
        grad = !grad;
        break;
      case FuzzEvent::toggle_training:
        if (net) net->train(event.choice % 2);
        break;
      case FuzzEvent::freeze_net:
        if (net) net->set_requires_grad(event.choice % 2);
        break;
      case FuzzEvent::add_hook:
        if (net)
          net->norm.add_forward_hook(
              [](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>& out) { out[0] = out[0] * 2; });
        break;
      case FuzzEvent::zero_gradients:
        for (auto& [name, t] : captured()) t.zero_grad();
        break;
      case FuzzEvent::other_handle:  // nobody else holds the old one
        w = fresh().set_requires_grad(w.requires_grad());
        break;
      case FuzzEvent::set_gradient:
        if (w.requires_grad()) w.set_grad(clone(w));
        break;
      default:  // inputs() does it
        break;
    }
  }
}

std::vector<std::pair<std::string, Tensor>> FuzzSide::captured() const {
  std::vector<std::pair<std::string, Tensor>> list;
  for (size_t i = 0; i < state.size(); ++i) list.emplace_back(str("w", i), state[i]);
  if (!net) return list;
  for (const auto& named : net->named_parameters()) list.push_back(named);
  for (const auto& named : net->named_buffers()) list.push_back(named);
  return list;
}

}  // namespace tandem::testing
