#include "tandem/nn/recurrent.h"

#include "tandem/core/autocast.h"
#include "tandem/core/function.h"
#include "tandem/nn/init.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/recurrent_layer.h"
#include "tandem/ops/recurrent_steps.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {

namespace {

/// The axis in `count` parts of equal size, views as those of chunk(). Their gradients are put together once, where each
/// part of chunk() adds zeros of the whole: of T steps that is time in proportion to T, not to T².
std::vector<Tensor> cut(const Tensor& x, int64_t axis, int64_t count) {
  const CustomFunction parts(
      "recurrent layer",
      [=](FunctionContext&, const std::vector<Tensor>& in) { return chunk(in[0], count, axis); },
      [=](const FunctionContext&, std::vector<Tensor> grads) {
        Tensor zero;  // for parts that nobody used
        for (const Tensor& g : grads)
          if (g.defined() && !zero.defined()) zero = zeros(g.shape(), g.dtype(), g.device());
        for (Tensor& g : grads)
          if (!g.defined()) g = zero;
        return std::vector<Tensor>{concat(grads, axis)};
      });
  return parts({x});
}

/// now, or what was before where `keeps` says so; or the mean of both.
Tensor zoned_out(const Tensor& now, const Tensor& before, const Tensor& keeps, double share) {
  if (keeps.defined()) return where(keeps, before, now);
  return share == 0 ? now : before * share + now * (1 - share);
}

}  // namespace

const char* name(RecurrentImplementation implementation) {
  return implementation == RecurrentImplementation::fused   ? "fused"
         : implementation == RecurrentImplementation::block ? "block"
                                                            : "cell";
}

RecurrentImplementation parse_recurrent_implementation(std::string_view text) {
  for (const auto each :
       {RecurrentImplementation::fused, RecurrentImplementation::block, RecurrentImplementation::cell})
    if (text == name(each)) return each;
  throw Error(str("recurrent layer: the implementation must be fused, block or cell; got '", text, "'."));
}

/// What regularises one direction of one layer in one call; undefined and 0 where nothing does.
struct RecurrentLayer::Masks {
  Tensor weight, input, state;          // like weight_hh, (1, N, in), (N, P): 0 or 1 / (1 - p)
  Tensor candidates, keeps_h, keeps_c;  // bool (T, N, hidden), of h (T, N, P)
  double candidate_scale = 1, keep_h = 0, keep_c = 0;
  /// Whether something acts within the steps, not on what they are given alone.
  bool act_within_steps() const {
    return state.defined() || candidates.defined() || keeps_h.defined() || keeps_c.defined() || keep_h != 0 ||
           keep_c != 0;
  }
};

/// One direction of one layer.
struct RecurrentLayer::Pass {
  Tensor steps;  // h at each step, (T, N, P); beyond a length whatever it was before
  Tensor h, c;   // (N, P), (N, hidden)
};

namespace {
RecurrentImplementation checked(const char* type, RecurrentImplementation implementation) {
  TD_CHECK(implementation <= RecurrentImplementation::cell, type,
           ": the implementation must be fused, block or cell; got ", static_cast<int>(implementation), ".");
  return implementation;
}
void check_options(const std::string& layer, Recurrence kind, int64_t features, int64_t hidden,
                   const RecurrentLayerOptions& options) {
  const bool has_cells = kind == Recurrence::lstm;
  TD_CHECK(features >= 1 && hidden >= 1 && options.layers >= 1, layer, ": sizes must be at least 1; got ",
           features, " features, ", hidden, " hidden and ", options.layers, " layers.");
  for (const auto& [what, p] : {std::pair{"dropout", options.dropout},
                                {"zoneout_h", options.zoneout_h},
                                {"zoneout_c", options.zoneout_c},
                                {"input_dropout", options.input_dropout},
                                {"state_dropout", options.state_dropout},
                                {"recurrent_dropout", options.recurrent_dropout},
                                {"weight_drop", options.weight_drop}})
    TD_CHECK(p >= 0 && p < 1, layer, ": the probability of ", what, " must be at least 0 and below 1; got ",
             p, ".");
  TD_CHECK(has_cells || (options.zoneout_c == 0 && options.recurrent_dropout == 0), layer,
           ": zoneout_c and recurrent_dropout are of an LSTM alone, which has a cell; got ",
           options.zoneout_c, " and ", options.recurrent_dropout, ". Use zoneout_h or state_dropout.");
  TD_CHECK(options.projection == 0 || (has_cells && options.projection > 0 && options.projection < hidden),
           layer, ": a projection is of an LSTM alone, and smaller than its ", hidden, " hidden units; got ",
           options.projection, ". 0 stands for none.");
  TD_CHECK(!options.relu || kind == Recurrence::rnn_relu, layer,
           ": relu is of an RNN alone; got it here. Leave it out.");
}
}  // namespace

RecurrentLayer::RecurrentLayer(Module* parent, const std::string& name, const char* type, Recurrence kind,
                               int64_t features, int64_t hidden, const RecurrentLayerOptions& options)
    : Module(parent, name),
      weights(first_weights(label(type, name), kind, features, hidden, options)),
      type_(type),
      kind_(kind),
      features_(features),
      hidden_(hidden),
      directions_(options.bidirectional ? 2 : 1),
      state_(options.projection > 0 ? options.projection : hidden),
      options_(options),
      implementation_(
          std::make_shared<uint64_t>(static_cast<uint64_t>(checked(type, options.implementation)))) {}

std::vector<RecurrentLayer::Weights> RecurrentLayer::first_weights(const std::string& layer, Recurrence kind,
                                                                   int64_t features, int64_t hidden,
                                                                   const RecurrentLayerOptions& options) {
  check_options(layer, kind, features, hidden, options);
  const int64_t state = options.projection > 0 ? options.projection : hidden;
  const Dim rows = times_capped(gates_of(kind), hidden);
  const Dim wide = times_capped(options.bidirectional ? 2 : 1, state);
  std::vector<Weights> all;
  for (int64_t i = 0; i < options.layers; ++i)
    for (const char* direction : {"", "_reverse"}) {
      if (*direction && !options.bidirectional) continue;
      const auto drawn = [&](const char* what, const Dims& shape) {
        return parameter(str(what, "_l", i, direction), uniform_by_fan_in(shape, hidden));
      };
      Weights& row = all.emplace_back();
      row.ih = drawn("weight_ih", {rows, i == 0 ? features : wide});
      row.hh = drawn("weight_hh", {rows, state});
      if (options.bias) {
        row.bias_ih = drawn("bias_ih", {rows});
        row.bias_hh = drawn("bias_hh", {rows});
      }
      if (options.projection > 0) row.hr = drawn("weight_hr", {state, hidden});
      if (!options.layer_norm) continue;
      const auto made = [&](const char* what, const Tensor& value) {
        return parameter(str(what, "_l", i, direction), value);
      };
      row.norm_ih = made("norm_ih", ones({rows}));
      row.norm_hh = made("norm_hh", ones({rows}));
      if (kind != Recurrence::lstm) continue;
      row.norm_c = made("norm_c", ones({hidden}));
      row.norm_c_bias = made("norm_c_bias", zeros({hidden}));
    }
  return all;
}

void RecurrentLayer::set_implementation(RecurrentImplementation implementation) {
  refuse_while_tracing("set_implementation", "it would act only while the callable is traced",
                       "Set it before the compiled callable, which is then traced again.");
  *implementation_ = static_cast<uint64_t>(checked(type_, implementation));
}

void RecurrentLayer::check(const Tensor& x, const RecurrentLayerInputs& inputs) const {
  const DType dtype = weights[0].ih.dtype();
  TD_CHECK(x.defined() && x.rank() == 3 && x.size(1) >= 1 && x.size(2) == features_, type_,
           ": x must be (N, T, ", features_, ") with at least one time step; got ", describe(x),
           ". unsqueeze() a single sequence; transpose() one with another order of axes.");
  TD_CHECK(x.dtype() == dtype || (autocast_is_on() && is_floating(x.dtype())), type_,
           ": x must have the type ", dtype, " of the weights; got ", describe(x),
           ". cast() it, or move the layer by to().");
  TD_CHECK(has_cells() || !inputs.c.defined(), type_, ": has one state, h; got c besides. Leave it out.");
  if (!inputs.h.defined() && !inputs.c.defined()) return;
  const Dim all = options_.layers * directions_;
  const Dims shape_h{all, x.size(0), state_}, shape_c{all, x.size(0), hidden_};
  const auto fits = [&](const Tensor& state, const Dims& shape) {
    return state.defined() && state.shape() == shape && state.dtype() == dtype;
  };
  TD_CHECK(fits(inputs.h, shape_h) && (!has_cells() || fits(inputs.c, shape_c)), type_,
           ": initial states are ", has_cells() ? "two, h and c, each" : "one, h,",
           " (layers · directions, N, hidden), here ", dtype, " ", shape_h,
           shape_h == shape_c ? std::string() : str(" (h is projected) and ", shape_c), "; got h ",
           describe(inputs.h),
           has_cells() ? str(" and c ", describe(inputs.c), ". Give both or neither")
                       : std::string(". reshape() or cast() it"),
           "; zeros are the default.");
}

RecurrentLayerResult RecurrentLayer::operator()(const Tensor& x, const RecurrentLayerInputs& inputs) {
  std::vector<Tensor> in = {x};
  for (const Tensor& given : {inputs.h, inputs.c, inputs.lengths})
    if (given.defined()) in.push_back(given);
  const std::vector<Tensor> out = call(in, [&](const std::vector<Tensor>& all) {
    size_t next = 1;
    RecurrentLayerInputs now;
    if (inputs.h.defined()) now.h = all[next++];
    if (inputs.c.defined()) now.c = all[next++];
    if (inputs.lengths.defined()) now.lengths = all[next];
    const RecurrentLayerResult result = forward(all[0], now);
    std::vector<Tensor> results = {result.output, result.h};
    if (has_cells()) results.push_back(result.c);
    return results;
  });
  return {out[0], out[1], has_cells() ? out[2] : Tensor()};
}

/// Always the same numbers in the same order, whatever computes the steps.
RecurrentLayer::Masks RecurrentLayer::draw(Dim steps, Dim samples, Dim features, DType dtype,
                                           Device device) const {
  Masks masks;
  if (!training()) {
    masks.keep_h = options_.zoneout_h;
    masks.keep_c = options_.zoneout_c;
    return masks;
  }
  const auto scaled = [&](const Dims& shape, double p) {
    return p == 0 ? Tensor() : bernoulli(shape, 1 - p, dtype, device) * (1 / (1 - p));
  };
  const auto truth = [&](double p, Dim size) {
    return bernoulli({steps, samples, size}, p, DType::boolean, device);
  };
  masks.weight = scaled({gates_of(kind_) * hidden_, state_}, options_.weight_drop);
  masks.input = scaled({1, samples, features}, options_.input_dropout);
  masks.state = scaled({samples, state_}, options_.state_dropout);
  if (options_.recurrent_dropout > 0) {
    masks.candidates = truth(1 - options_.recurrent_dropout, hidden_);
    masks.candidate_scale = 1 / (1 - options_.recurrent_dropout);
  }
  if (options_.zoneout_h > 0) masks.keeps_h = truth(options_.zoneout_h, state_);
  if (options_.zoneout_c > 0) masks.keeps_c = truth(options_.zoneout_c, hidden_);
  return masks;
}

/// Whatever computes whole layers fastest, by the choice of implementations (ops/recurrent_layer.h).
RecurrentLayer::Pass RecurrentLayer::run_whole(const Weights& row, const Tensor& x, const Tensor& h,
                                               const Tensor& c, bool from_end) const {
  const RecurrentResult result = recurrent_layer({.x = x,
                                                  .weight_ih = row.ih,
                                                  .weight_hh = row.hh,
                                                  .h = h,
                                                  .c = c,
                                                  .bias_ih = row.bias_ih,
                                                  .bias_hh = row.bias_hh},
                                                 kind_, from_end);
  return {result.output, result.h, result.c};
}

/// The products of the input, then the steps.
RecurrentLayer::Pass RecurrentLayer::run_steps(const Weights& row, const Tensor& x, const Tensor& h,
                                               const Tensor& c, const Tensor& lengths, const Tensor& within,
                                               const Masks& masks, bool from_end) const {
  // The biases add up in one place but for a gru, whose second one stands within the product of r.
  const Tensor bias =
      row.bias_ih.defined() && kind_ != Recurrence::gru ? row.bias_ih + row.bias_hh : row.bias_ih;
  const Tensor products = row.norm_ih.defined()
                              ? layer_norm(linear(x, row.ih), {row.ih.size(0)}, row.norm_ih, bias)
                              : linear(x, row.ih, bias);
  return implementation() == RecurrentImplementation::cell
             ? run_cell(row, products, h, c, within, masks, from_end)
         : implementation() == RecurrentImplementation::block
             ? run_block(row, products, h, c, lengths, masks, from_end)
             : run_fused(row, products, h, c, lengths, masks, from_end);
}

/// x (T, N, gates · hidden): the products of the input; within (T, N, 1) or undefined. What stands where `within` is false must
/// be finite.
RecurrentLayer::Pass RecurrentLayer::run_cell(const Weights& row, const Tensor& x, const Tensor& h0,
                                              const Tensor& c0, const Tensor& within, const Masks& masks,
                                              bool from_end) const {
  const Dim count = x.size(0);
  const std::vector<Tensor> products = cut(x, 0, count);  // (1, N, gates · hidden)
  const auto of_state = [&](const Tensor& state, const Tensor& bias) {
    if (!row.norm_hh.defined()) return linear(state, row.hh, bias);
    return layer_norm(linear(state, row.hh), {row.hh.size(0)}, row.norm_hh, bias);
  };
  std::vector<Tensor> steps(static_cast<size_t>(count));
  Tensor h = h0, c = c0;
  for (Dim i = 0; i < count; ++i) {
    const Dim t = from_end ? count - 1 - i : i;
    const auto at_step = [&](const Tensor& mask) { return mask.defined() ? select(mask, 0, t) : Tensor(); };
    const Tensor now = squeeze(products[static_cast<size_t>(t)], 0);
    const Tensor state = masks.state.defined() ? h * masks.state : h;
    Tensor h_next, c_next;
    if (kind_ == Recurrence::lstm) {
      const std::vector<Tensor> gates = cut(now + of_state(state, {}), 1, 4);
      Tensor candidate = tanh(gates[2]);
      if (masks.candidates.defined())
        candidate = candidate * (cast(at_step(masks.candidates), candidate.dtype()) * masks.candidate_scale);
      c_next = sigmoid(gates[1]) * c + sigmoid(gates[0]) * candidate;
      h_next =
          sigmoid(gates[3]) *
          tanh(row.norm_c.defined() ? layer_norm(c_next, {hidden_}, row.norm_c, row.norm_c_bias) : c_next);
      if (row.hr.defined()) h_next = linear(h_next, row.hr);
      c_next = zoned_out(c_next, c, at_step(masks.keeps_c), masks.keep_c);
    } else if (kind_ == Recurrence::gru) {
      const std::vector<Tensor> parts = cut(now, 1, 3), q = cut(of_state(state, row.bias_hh), 1, 3);
      const Tensor r = sigmoid(parts[0] + q[0]), z = sigmoid(parts[1] + q[1]), n = tanh(parts[2] + r * q[2]);
      h_next = n + z * (h - n);
    } else {
      const Tensor sum = now + of_state(state, {});
      h_next = kind_ == Recurrence::rnn_tanh ? tanh(sum) : relu(sum);
    }
    h_next = zoned_out(h_next, h, at_step(masks.keeps_h), masks.keep_h);
    if (within.defined()) {
      const Tensor is_true = select(within, 0, t);  // (N, 1)
      h_next = where(is_true, h_next, h);
      if (has_cells()) c_next = where(is_true, c_next, c);
    }
    h = h_next, c = c_next;
    steps[static_cast<size_t>(t)] = h;
  }
  return {stack(steps, 0), h, c};
}

RecurrentLayer::Pass RecurrentLayer::run_block(const Weights& row, const Tensor& x, const Tensor& h0,
                                               const Tensor& c0, const Tensor& lengths, const Masks& masks,
                                               bool from_end) const {
  const Dim count = x.size(0);
  const std::vector<Tensor> products = cut(x, 0, count);
  std::vector<Tensor> steps(static_cast<size_t>(count));
  Pass pass{{}, h0, c0};
  for (Dim i = 0; i < count; ++i) {
    const Dim t = from_end ? count - 1 - i : i;
    const auto at_step = [&](const Tensor& mask) {
      return mask.defined() ? slice(mask, 0, t, t + 1) : Tensor();
    };
    Masks now = masks;
    for (Tensor* mask : {&now.candidates, &now.keeps_h, &now.keeps_c}) *mask = at_step(*mask);
    pass = run_fused(row, products[static_cast<size_t>(t)], pass.h, pass.c,
                     lengths.defined() ? lengths - t : Tensor(), now, false);
    steps[static_cast<size_t>(t)] = pass.steps;
  }
  return {concat(steps, 0), pass.h, pass.c};
}

RecurrentLayer::Pass RecurrentLayer::run_fused(const Weights& row, const Tensor& x, const Tensor& h,
                                               const Tensor& c, const Tensor& lengths, const Masks& masks,
                                               bool from_end) const {
  const RecurrentResult result = recurrent({.x = x,
                                            .weight = row.hh,
                                            .h = h,
                                            .c = c,
                                            .bias = kind_ == Recurrence::gru ? row.bias_hh : Tensor(),
                                            .lengths = lengths,
                                            .state_mask = masks.state,
                                            .keeps_h = masks.keeps_h,
                                            .keeps_c = masks.keeps_c,
                                            .candidates = masks.candidates,
                                            .projection = row.hr,
                                            .norm = row.norm_hh,
                                            .norm_c = row.norm_c,
                                            .norm_c_bias = row.norm_c_bias},
                                           {.kind = kind_,
                                            .from_end = from_end,
                                            .keep_h = masks.keep_h,
                                            .keep_c = masks.keep_c,
                                            .candidate_scale = masks.candidate_scale});
  return {result.output, result.h, result.c};
}

RecurrentLayerResult RecurrentLayer::forward(const Tensor& x, const RecurrentLayerInputs& inputs) {
  check(x, inputs);
  const Dim n = x.size(0), steps = x.size(1);
  const DType dtype = weights[0].hh.dtype();
  Tensor y = transpose(x, 0, 1);  // (T, N, in): the steps lie together
  Tensor within;                  // (T, N, 1)
  if (inputs.lengths.defined()) {
    within = unsqueeze(transpose(within_lengths(type_, inputs.lengths, n, steps, 0)), 2);
    y = where(within, y, 0.0);
  }
  const auto first = [&](const Tensor& given, int64_t at, Dim size) {
    return given.defined() ? select(given, 0, at) : zeros({n, size}, dtype, x.device());
  };
  std::vector<Tensor> h, c;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    const bool is_last = layer + 1 == options_.layers;
    std::vector<Tensor> sides;
    for (int64_t direction = 0; direction < directions_; ++direction) {
      const int64_t at = layer * directions_ + direction;
      const Tensor h_first = first(inputs.h, at, state_),
                   c_first = has_cells() ? first(inputs.c, at, hidden_) : Tensor();
      Weights row = weights[static_cast<size_t>(at)];
      const Masks masks = draw(steps, n, y.size(2), dtype, x.device());
      if (masks.weight.defined()) row.hh = row.hh * masks.weight;
      const Tensor given = masks.input.defined() ? y * masks.input : y;
      const bool from_end = direction == 1;
      const bool is_plain = implementation() == RecurrentImplementation::fused && !inputs.lengths.defined() &&
                            !row.hr.defined() && !row.norm_ih.defined() && !masks.act_within_steps();
      const Pass pass =
          is_plain ? run_whole(row, given, h_first, c_first, from_end)
                   : run_steps(row, given, h_first, c_first, inputs.lengths, within, masks, from_end);
      sides.push_back(pass.steps);
      h.push_back(pass.h);
      if (has_cells()) c.push_back(pass.c);
    }
    y = sides.size() == 1 ? sides[0] : concat(sides, 2);
    if (within.defined()) y = where(within, y, 0.0);
    if (!is_last && options_.dropout > 0 && training()) y = dropout(y, options_.dropout);
  }
  return {transpose(y, 0, 1), stack(h), has_cells() ? stack(c) : Tensor()};
}

}  // namespace tandem::nn
