// Cases of whole recurrent layers as one op, and of their gradient as an op of its own.
#include "tandem/ops/recurrent_layer.h"

#include <cmath>

#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/recurrent_steps.h"
#include "tandem/ops/shape.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Variant {
  const char* name;
  Recurrence kind;
  Dim steps, samples, features, hidden;
  bool has_bias = true;
  bool is_lstm() const { return kind == Recurrence::lstm; }
  Dim rows() const { return gates_of(kind) * hidden; }
};
const Variant kVariants[] = {{"recurrent_layer", Recurrence::lstm, 3, 2, 4, 3},
                             {"recurrent_layer/no_bias", Recurrence::lstm, 4, 3, 2, 2, false},
                             {"recurrent_layer/one_step", Recurrence::lstm, 1, 1, 1, 1},
                             {"recurrent_layer/wide", Recurrence::lstm, 2, 7, 5, 37},
                             {"recurrent_layer/empty", Recurrence::lstm, 2, 0, 2, 3},
                             {"recurrent_layer/gru", Recurrence::gru, 3, 2, 4, 3},
                             {"recurrent_layer/gru_no_bias", Recurrence::gru, 4, 3, 2, 5, false},
                             {"recurrent_layer/tanh", Recurrence::rnn_tanh, 4, 2, 3, 3},
                             {"recurrent_layer/relu", Recurrence::rnn_relu, 3, 2, 3, 4},
                             {"recurrent_layer/relu_no_bias", Recurrence::rnn_relu, 3, 2, 2, 3, false}};

/// Output, h and c, flat, one after the other.
Array naive(const Variant& v, std::span<const Array> in) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Array& x = in[0];
  const size_t first_bias = v.is_lstm() ? 5 : 4;
  Array h = in[3], c = v.is_lstm() ? in[4] : Array(in[3].shape), output({v.steps, v.samples, v.hidden});
  for (Dim t = 0; t < v.steps; ++t)
    for (Dim n = 0; n < v.samples; ++n) {
      std::vector<double> a, q;
      for (Dim r = 0; r < v.rows(); ++r) {
        a.push_back(v.has_bias ? in[first_bias][r] : 0);
        q.push_back(v.has_bias ? in[first_bias + 1][r] : 0);
        for (Dim k = 0; k < v.features; ++k) a.back() += in[1].at({r, k}) * x.at({t, n, k});
        for (Dim k = 0; k < v.hidden; ++k) q.back() += in[2].at({r, k}) * h.at({n, k});
      }
      for (Dim u = 0; u < v.hidden; ++u) {
        const auto of = [&](const std::vector<double>& sums, Dim gate) {
          return sums[static_cast<size_t>(gate * v.hidden + u)];
        };
        const auto both = [&](Dim gate) { return of(a, gate) + of(q, gate); };
        double& now = output.at({t, n, u});
        if (v.is_lstm()) {
          c.at({n, u}) = sigmoid(both(1)) * c.at({n, u}) + sigmoid(both(0)) * std::tanh(both(2));
          now = sigmoid(both(3)) * std::tanh(c.at({n, u}));
        } else if (v.kind == Recurrence::gru) {
          const double z = sigmoid(both(1));
          now = (1 - z) * std::tanh(of(a, 2) + sigmoid(both(0)) * of(q, 2)) + z * h.at({n, u});
        } else {
          now = v.kind == Recurrence::rnn_tanh ? std::tanh(both(0)) : std::max(both(0), 0.0);
        }
      }
      for (Dim u = 0; u < v.hidden; ++u) h.at({n, u}) = output.at({t, n, u});
    }
  std::vector<double> all = output.values;
  all.insert(all.end(), h.values.begin(), h.values.end());
  if (v.is_lstm()) all.insert(all.end(), c.values.begin(), c.values.end());
  const Dim size = static_cast<Dim>(all.size());
  return Array({size}, std::move(all));
}

/// By the first algorithm of the device's library; the CPU's kernel keeps nothing.
RecurrentLayerAttrs attributes_of(const Variant& v, const Tensor& x) {
  RecurrentLayerAttrs a{.kind = v.kind, .has_bias = v.has_bias};
  const auto algorithms = layer_library(x.device().kind).algorithms;
  if (algorithms)
    a.kept = algorithms({x.device().kind, x.device().index, x.dtype(), v.kind, v.has_bias, x.size(0),
                         x.size(1), x.size(2), v.hidden})[0]
                 .kept;
  return a;
}

Tensor flat(const Tensor& x) { return reshape(x, {x.size()}); }

OpCase case_of(const Variant& v) {
  const Dims state{v.samples, v.hidden};
  OpCase c;
  c.name = v.name;
  c.inputs = {{{v.steps, v.samples, v.features}}, {{v.rows(), v.features}}, {{v.rows(), v.hidden}}, {state}};
  if (v.is_lstm()) c.inputs.push_back({state});
  if (v.has_bias) c.inputs.insert(c.inputs.end(), 2, {{v.rows()}});
  c.call = [v](std::span<const Tensor> in) {
    const Tensors made = apply(op_recurrent_layer(), in, attributes_of(v, in[0]));
    std::vector<Tensor> parts = {flat(made[0]), flat(made[1])};
    if (v.is_lstm()) parts.push_back(flat(made[2]));
    return concat(parts, 0);
  };
  c.reference = [v](std::span<const Array> in) { return naive(v, in); };
  c.tolerance = 1e-5;
  c.half_ulps = 16;
  c.second_order = false;
  c.refuses_second_order = v.samples > 0;
  return c;
}

/// The gradient op against differences of the naive layer, for the gradients g of output and h.
void add_gradient(std::vector<OpCase>& cases, const char* name, Dim samples) {
  const Variant v{name, Recurrence::gru, 3, samples, 2, 3};
  OpCase c = case_of(v);
  const size_t own = c.inputs.size();
  c.inputs.push_back({{v.steps, v.samples, v.hidden}});
  c.inputs.push_back({{v.samples, v.hidden}});
  c.call = [=](std::span<const Tensor> in) {
    const RecurrentLayerAttrs a = attributes_of(v, in[0]);
    const Tensors made = apply(op_recurrent_layer(), in.first(own), a);
    std::vector<Tensor> given(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(own));
    given.insert(given.end(), {made[0], made[2], in[own], in[own + 1]});
    std::vector<Tensor> parts;
    for (const Tensor& t : apply(op_recurrent_layer_gradient(), given, a)) parts.push_back(flat(t));
    return concat(parts, 0);
  };
  c.reference = [=](std::span<const Array> in) {
    std::vector<double> slopes;
    for (size_t input = 0; input < own; ++input)
      for (int64_t k = 0; k < in[input].size(); ++k) {
        double side[2];
        for (const int sign : {-1, 1}) {
          std::vector<Array> moved(in.begin(), in.end());
          moved[input][k] += sign * 1e-5;
          const Array y = naive(v, moved);
          double total = 0;
          for (int64_t e = 0; e < y.size(); ++e)
            total += y[e] * (e < in[own].size() ? in[own][e] : in[own + 1][e - in[own].size()]);
          side[sign > 0] = total;
        }
        slopes.push_back((side[1] - side[0]) / 2e-5);
      }
    const Dim size = static_cast<Dim>(slopes.size());
    return Array({size}, std::move(slopes));
  };
  c.tolerance64 = 1e-8;
  c.gradient = false;
  cases.push_back(c);
}

}  // namespace

void add_recurrent_layer_cases(std::vector<OpCase>& cases) {
  for (const Variant& v : kVariants) cases.push_back(case_of(v));
  add_gradient(cases, "recurrent_layer_gradient", 2);
  add_gradient(cases, "recurrent_layer_gradient/empty", 0);
}

void add_recurrent_layer_errors(std::vector<ErrorCase>& errors) {
  const auto add = [&](const char* name, const std::function<void(RecurrentLayerOperands&)>& change,
                       std::vector<std::string> texts) {
    errors.push_back({str("recurrent_layer/", name),
                      [change] {
                        RecurrentLayerOperands in{.x = ones({3, 2, 4}),
                                                  .weight_ih = ones({8, 4}),
                                                  .weight_hh = ones({8, 2}),
                                                  .h = ones({2, 2}),
                                                  .c = ones({2, 2})};
                        change(in);
                        Tensors given{in.x, in.weight_ih, in.weight_hh, in.h, in.c};
                        if (in.bias_ih.defined()) given.push_back(in.bias_ih);
                        if (in.bias_hh.defined()) given.push_back(in.bias_hh);
                        apply(op_recurrent_layer(), {given.begin(), given.size()},
                              RecurrentLayerAttrs{.has_bias = in.bias_ih.defined()});
                      },
                      std::move(texts)});
  };
  add("x", [](auto& in) { in.x = ones({3, 4}); }, {"x must be (T, N, features)", "(3, 4)"});
  add("no_steps", [](auto& in) { in.x = ones({0, 2, 4}); }, {"at least one step"});
  add("integers", [](auto& in) { in.x = ones({3, 2, 4}, DType::i64); }, {"f64, f32, bf16 or f16"});
  add("weight_ih", [](auto& in) { in.weight_ih = ones({8, 3}); }, {"weight_ih must be f32 (8, 4)", "(8, 3)"});
  add("weight_hh",
      [](auto& in) {
        in.weight_hh = ones({8, 3});
      },
      {"weight_hh must be (4 · hidden, hidden) in f32", "(8, 3)"});
  add("h", [](auto& in) { in.h = ones({1, 2}); }, {"h must be f32 (2, 2)", "(1, 2)"});
  add("c_type", [](auto& in) { in.c = ones({2, 2}, DType::f64); }, {"c must be f32 (2, 2)", "f64"});
  add("bias", [](auto& in) { in.bias_ih = ones({8}), in.bias_hh = ones({4}); },
      {"bias_hh must be f32 (8,)", "(4,)"});
  add("one_bias", [](auto& in) { in.bias_ih = ones({8}); }, {"there must be 7 inputs", "got 6"});
  const auto refuses = [&](const char* name, const RecurrentLayerAttrs& a, const char* text) {
    errors.push_back({str("recurrent_layer/", name),
                      [a] {
                        const Tensor in[] = {ones({3, 2, 4}), ones({2, 4}), ones({2, 2}), ones({2, 2})};
                        apply(op_recurrent_layer(), in, a);
                      },
                      {text}});
  };
  refuses("kept", {.kind = Recurrence::rnn_tanh, .kept = -1}, "kept must be from 0 to 2^40 bytes; got -1");
  refuses("algorithm", {.kind = Recurrence::rnn_tanh, .algorithm = -1},
          "algorithm must be at least 0; got -1");
  errors.push_back({"recurrent_layer/undefined",
                    [] { recurrent_layer({}, Recurrence::lstm); },
                    {"recurrent_layer: x, the weights and h must be given"}});
  errors.push_back({"recurrent_layer/one_bias_alone",
                    [] {
                      recurrent_layer({.x = ones({3, 2, 4}),
                                       .weight_ih = ones({2, 4}),
                                       .weight_hh = ones({2, 2}),
                                       .h = ones({2, 2}),
                                       .bias_hh = ones({2})},
                                      Recurrence::rnn_tanh);
                    },
                    {"both biases or none"}});
}

}  // namespace tandem::testing
