#include "tandem/ops/recurrent_layer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tandem/core/autocast.h"
#include "tandem/core/implementations.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/define.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/recurrent_steps.h"

namespace tandem {

namespace {

// ---- the ops

/// Checks what the two ops take alike.
LayerOperands<Tensor> checked(const InferArgs& args, const RecurrentLayerAttrs& a, bool gradient) {
  const char* const op = args.op;
  const LayerOperands<Tensor> in(a, gradient, args.in.data());
  TD_CHECK(a.kind <= Recurrence::rnn_relu, op,
           ": kind must be 0 (lstm), 1 (gru), 2 (rnn_tanh) or 3 (rnn_relu); got ", static_cast<int>(a.kind),
           ".");
  TD_CHECK(static_cast<int>(args.in.size()) == in.count, op, ": there must be ", in.count,
           " inputs, by the kind and by whether there are biases; got ", args.in.size(), ".");
  TD_CHECK(a.algorithm >= 0, op, ": algorithm must be at least 0; got ", a.algorithm, ".");
  TD_CHECK(a.kept >= 0 && a.kept <= int64_t{1} << 40, op, ": kept must be from 0 to 2^40 bytes; got ", a.kept,
           ".");
  check_floating(op, *in.x);
  const Tensor &x = *in.x, &weight = *in.weight_hh;
  TD_CHECK(x.rank() == 3 && x.size(0) >= 1 && x.size(2) >= 1, op,
           ": x must be (T, N, features) with at least one step and one feature; got ", describe(x), ".");
  const Dim gates = gates_of(a.kind);
  TD_CHECK(weight.rank() == 2 && weight.size(1) >= 1 && weight.dtype() == x.dtype() &&
               weight.size(0) == times_capped(gates, weight.size(1)),
           op, ": weight_hh must be (", gates, " · hidden, hidden) in ", x.dtype(), "; got ",
           describe(weight), ".");
  const Dim steps = x.size(0), samples = x.size(1), rows = weight.size(0), hidden = weight.size(1);
  const auto check = [&](const Tensor* t, const char* what, const Dims& shape, DType dtype) {
    TD_CHECK(!t || (t->shape() == shape && t->dtype() == dtype), op, ": ", what, " must be ", dtype, " ",
             shape, "; got ", describe(*t), ". reshape() or cast() it.");
  };
  const Dims state{samples, hidden}, each{steps, samples, hidden};
  check(in.weight_ih, "weight_ih", {rows, x.size(2)}, x.dtype());
  check(in.h, "h", state, x.dtype());
  check(in.c, "c", state, x.dtype());
  check(in.bias_ih, "bias_ih", {rows}, x.dtype());
  check(in.bias_hh, "bias_hh", {rows}, x.dtype());
  check(in.output, "the output", each, x.dtype());
  check(in.kept, "what was kept", {a.kept}, DType::u8);
  check(in.grad_output, "the gradient of the output", each, x.dtype());
  check(in.grad_h, "the gradient of h", state, x.dtype());
  check(in.grad_c, "the gradient of c", state, x.dtype());
  return in;
}

void infer_layer(InferArgs& args) {
  const auto& a = args.attributes<RecurrentLayerAttrs>();
  const LayerOperands<Tensor> in = checked(args, a, false);
  const Dims state = in.h->shape();
  args.add({in.x->size(0), state[0], state[1]}, in.x->dtype());
  args.add(state, in.x->dtype());
  if (in.c) args.add(state, in.x->dtype());
  args.add({a.kept}, DType::u8);
}

void infer_layer_gradient(InferArgs& args) {
  const auto& a = args.attributes<RecurrentLayerAttrs>();
  const LayerOperands<Tensor> in = checked(args, a, true);
  for (const Tensor* t = in.x; t != in.output; ++t) args.add(t->shape(), t->dtype());
}

Tensors grad_layer(const GradArgs& args) {
  const LayerOperands<Tensor> in(args.attributes.as<RecurrentLayerAttrs>(), false, args.in.data());
  Tensors given;
  for (const Tensor& t : args.in) given.push_back(t);
  given.push_back(args.out[0]);
  given.push_back(args.out[args.out.size() - 1]);
  const auto add = [&](const Tensor& gradient, const Tensor& like) {
    given.push_back(gradient.defined() ? gradient : zeros(like.shape(), like.dtype(), like.device()));
  };
  add(args.grad[0], args.out[0]);
  add(args.grad[1], *in.h);
  if (in.c) add(args.grad[2], *in.c);
  return apply(op_recurrent_layer_gradient(), {given.begin(), given.size()}, args.attributes);
}

Tensors refuse_second_order(const GradArgs&) {
  throw Error(
      "recurrent_layer: its gradient must not be differentiated again; got a gradient of higher order. "
      "Give the layer the implementation `cell`, or step with single operations.");
}

// ---- the choice

RecurrentResult by_steps(const RecurrentLayerOperands& in, Recurrence kind, bool from_end) {
  // The biases add up in one place but for a gru, whose second one stands within the product of r.
  const bool gru = kind == Recurrence::gru;
  const Tensor bias = in.bias_ih.defined() && !gru ? in.bias_ih + in.bias_hh : in.bias_ih;
  return recurrent({.x = linear(in.x, in.weight_ih, bias),
                    .weight = in.weight_hh,
                    .h = in.h,
                    .c = in.c,
                    .bias = gru ? in.bias_hh : Tensor()},
                   {.kind = kind, .from_end = from_end});
}

RecurrentResult by_library(const RecurrentLayerOperands& in, Recurrence kind, bool from_end,
                           int64_t algorithm, int64_t kept) {
  const auto turned = [&](const Tensor& t) { return from_end ? flip(t, {0}) : t; };
  Tensors given{turned(in.x), in.weight_ih, in.weight_hh, in.h};
  for (const Tensor& t : {in.c, in.bias_ih, in.bias_hh})
    if (t.defined()) given.push_back(t);
  const Tensors out =
      apply(op_recurrent_layer(), {given.begin(), given.size()},
            RecurrentLayerAttrs{
                .kind = kind, .has_bias = in.bias_ih.defined(), .algorithm = algorithm, .kept = kept});
  return {turned(out[0]), out[1], in.c.defined() ? out[2] : Tensor()};
}

/// Algorithm `index` of a library.
struct Able {
  int64_t index;
  LayerAlgorithm algorithm;
};

/// The device's time of a layer and its gradients, on made-up numbers, outside of whatever is traced; negative where the library
/// refuses after all. algorithm: null for linear() and recurrent().
double seconds_of(const LayerProblem& p, const Able* algorithm) {
  const TraceScope no_tracer(nullptr);
  const ObserverScope no_observer(nullptr);
  const NoAutocast no_autocast;
  const GradMode with_gradients(true);
  const Device device{p.device_kind, static_cast<uint8_t>(p.device_index)};
  std::vector<Tensor> leaves;
  const auto leaf = [&](const Dims& shape) {
    return leaves.emplace_back(full(shape, 0.01, p.dtype, device).set_requires_grad());
  };
  const Dim rows = gates_of(p.kind) * p.hidden;
  RecurrentLayerOperands in{.x = leaf({p.steps, p.samples, p.features}),
                            .weight_ih = leaf({rows, p.features}),
                            .weight_hh = leaf({rows, p.hidden}),
                            .h = leaf({p.samples, p.hidden})};
  if (p.kind == Recurrence::lstm) in.c = leaf({p.samples, p.hidden});
  if (p.has_bias) in.bias_ih = leaf({rows}), in.bias_hh = leaf({rows});
  const Tensor seed = full({p.steps, p.samples, p.hidden}, 1, p.dtype, device);
  const auto run = [&] {
    const RecurrentResult y = algorithm
                                  ? by_library(in, p.kind, false, algorithm->index, algorithm->algorithm.kept)
                                  : by_steps(in, p.kind, false);
    grad(y.output, leaves, seed);
  };
  try {
    run();  // touches memory, and makes the choices of the ops inside
    return layer_library(p.device_kind).seconds(device, run);
  } catch (const Error&) {
    if (!algorithm) throw;
    return -1;
  }
}

/// What is fastest, by the table of choices or by the clock: 0 for linear() and recurrent(), else one more than a place in `able`.
size_t fastest(const LayerProblem& p, const std::vector<Able>& able, bool keep) {
  std::vector<std::string> names{kOwnLayer};
  for (const Able& one : able) names.push_back(one.algorithm.name);
  const std::string what =
      str("recurrent layer ", name(p.dtype), p.dtype == DType::f32 && tf32() ? " as tf32" : "", " ", p.steps,
          "x", p.samples, "x", p.features, "x", gates_of(p.kind), "x", p.hidden,
          p.kind == Recurrence::rnn_relu ? " relu" : "", p.has_bias ? " with biases" : "", "; ",
          layer_library(p.device_kind).words({p.device_kind, static_cast<uint8_t>(p.device_index)}));
  // The table is locked while it asks for times, and the ops that are timed make choices of their own: they run when it is not.
  struct NotKnown {};
  try {
    return choose_by_time(what, names, keep, [](size_t) -> double { throw NotKnown(); });
  } catch (const NotKnown&) {
  }
  constexpr int kRounds = 3;
  std::vector<double> best(names.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < names.size(); ++i)
      if (best[i] >= 0) best[i] = std::min(best[i], seconds_of(p, i ? &able[i - 1] : nullptr));
  return choose_by_time(what, names, keep, [&](size_t i) { return best[i]; });
}

/// The products of x and of the state with both weights, in one pass or in two (back: by the weights, too).
template <int passes>
int64_t layer_flops(const KernelArgs& args) {
  const Buffer* const in = args.in;
  return passes * 2 * in[0].shape[0] * in[0].shape[1] * (in[1].size() + in[2].size());
}

}  // namespace

OpDef& op_recurrent_layer() {
  static OpDef& op = define(OpDef{.name = "recurrent_layer",
                                  .about = "a recurrent layer, by a library that knows it whole",
                                  .function = "",
                                  .inputs = {4, 7, "x", "weight_ih", "weight_hh", "h", "more..."},
                                  .outputs = {"output", "h"},
                                  .infer = infer_layer,
                                  .gradient = grad_layer,
                                  .saves_inputs = ~0u,
                                  .saves_outputs = 0b1101,  // output; lstm: the fourth, others: the third
                                  .precision = Precision::widest,
                                  .flops = layer_flops<1>});
  return op;
}

OpDef& op_recurrent_layer_gradient() {
  static OpDef& op = define(OpDef{.name = "recurrent_layer_gradient",
                                  .about = "the gradients of recurrent_layer",
                                  .function = "",
                                  .inputs = {8, 12, "x", "weight_ih", "weight_hh", "h", "more..."},
                                  .infer = infer_layer_gradient,
                                  .gradient = refuse_second_order,
                                  .flops = layer_flops<2>});
  return op;
}

LayerLibrary& layer_library(DeviceKind kind) {
  static std::array<LayerLibrary, kDeviceKinds> all;
  return all[static_cast<size_t>(kind)];
}

RecurrentResult recurrent_layer(const RecurrentLayerOperands& in, Recurrence kind, bool from_end) {
  TD_CHECK(in.x.defined() && in.weight_ih.defined() && in.weight_hh.defined() && in.h.defined() &&
               in.c.defined() == (kind == Recurrence::lstm) && in.bias_ih.defined() == in.bias_hh.defined(),
           "recurrent_layer: x, the weights and h must be given, c with an lstm alone, and both biases "
           "or none; got an undefined handle, or one too many.");
  if (in.bias_ih.defined()) {
    const Dims rows = {in.weight_hh.rank() == 2 ? in.weight_hh.size(0) : -1};
    TD_CHECK(in.bias_ih.shape() == rows && in.bias_hh.shape() == rows,
             "recurrent_layer: both biases must be (gates · hidden), as weight_hh has rows; got ",
             describe(in.bias_ih), " and ", describe(in.bias_hh), " beside ", describe(in.weight_hh), ".");
  }
  const MatmulChoice choice = matmul_choice();
  const Device device = in.x.device();
  const LayerLibrary& library = layer_library(device.kind);
  // Under Autocast the products are in 16 bits and the states in f32, which no library mixes.
  if (choice.mode != ChoiceMode::profile || !library.algorithms || autocast_is_on() || in.x.rank() != 3 ||
      in.x.size() == 0 || in.h.rank() != 2 || !is_floating(in.x.dtype()))
    return by_steps(in, kind, from_end);
  const LayerProblem p{device.kind,  device.index, in.x.dtype(), kind,        in.bias_ih.defined(),
                       in.x.size(0), in.x.size(1), in.x.size(2), in.h.size(1)};
  const std::vector<LayerAlgorithm> all = library.algorithms(p);
  std::vector<Able> able;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].why_not.empty()) able.push_back({static_cast<int64_t>(i), all[i]});
  if (able.empty()) return by_steps(in, kind, from_end);
  static auto& chosen = *new ChoiceCache<LayerProblem, size_t>;
  constexpr size_t kUnknown = ~size_t{0};
  size_t place = chosen.find(p, kUnknown);
  if (place == kUnknown) {
    const size_t found = fastest(p, able, choice.keep);
    place = chosen.get(p, [&] { return found; });
  }
  if (place == 0) return by_steps(in, kind, from_end);
  const Able& one = able[place - 1];
  return by_library(in, kind, from_end, one.index, one.algorithm.kept);
}

}  // namespace tandem
