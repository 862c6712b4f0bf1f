// Cases of whole recurrent sequences, and of their gradient as an op of its own.
#include "tandem/ops/recurrent.h"

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
  Dim steps, samples, hidden;
  bool from_end = false, bias = false, lengths = false, state_mask = false, zoneout = false,
       candidates = false;
  double keep_h = 0, keep_c = 0;
};
const Variant kVariants[] = {
    {"recurrent", Recurrence::lstm, 3, 2, 3},
    {"recurrent/from_end", Recurrence::lstm, 4, 2, 2, true},
    {"recurrent/lengths", Recurrence::lstm, 4, 3, 2, false, false, true},
    {"recurrent/zoneout", Recurrence::lstm, 3, 2, 3, false, false, false, false, true},
    {"recurrent/zoneout_mean", Recurrence::lstm, 3, 2, 3, true, false, false, false, false, false, 0.25, 0.4},
    {"recurrent/dropout", Recurrence::lstm, 3, 2, 3, false, false, false, true, false, true},
    {"recurrent/all", Recurrence::lstm, 5, 3, 7, true, false, true, true, true, true},
    {"recurrent/one_step", Recurrence::lstm, 1, 1, 1},
    {"recurrent/wide", Recurrence::lstm, 2, 7, 37},
    {"recurrent/empty", Recurrence::lstm, 2, 0, 3},
    {"recurrent/gru", Recurrence::gru, 3, 2, 3, false, true},
    {"recurrent/gru_no_bias", Recurrence::gru, 3, 2, 3, true},
    {"recurrent/gru_all", Recurrence::gru, 4, 3, 5, true, true, true, true, true},
    {"recurrent/gru_wide", Recurrence::gru, 2, 7, 37, false, true},
    {"recurrent/tanh", Recurrence::rnn_tanh, 4, 2, 3},
    {"recurrent/tanh_all", Recurrence::rnn_tanh, 4, 3, 19, true, false, true, true, true},
    {"recurrent/relu", Recurrence::rnn_relu, 3, 2, 3, false, false, false, false, false, false, 0.3},
};

/// The inputs of a variant in order, of which each may be missing.
template <class T>
struct Given {
  const T *x, *weight, *h, *c = nullptr, *bias = nullptr, *lengths = nullptr, *state_mask = nullptr,
                           *keeps_h = nullptr, *keeps_c = nullptr, *candidates = nullptr;
  Given(const Variant& v, std::span<const T> in) {
    size_t next = 0;
    const auto take = [&](bool is_there) { return is_there ? &in[next++] : nullptr; };
    x = take(true), weight = take(true), h = take(true);
    c = take(v.kind == Recurrence::lstm);
    bias = take(v.bias);
    lengths = take(v.lengths);
    state_mask = take(v.state_mask);
    keeps_h = take(v.zoneout);
    keeps_c = take(v.zoneout && v.kind == Recurrence::lstm);
    candidates = take(v.candidates);
  }
};

constexpr double kMaskScale = 2, kCandidateScale = 1.5;

/// Output, h and c, flat, one after the other: step by step, element by element.
Array naive(const Variant& v, std::span<const Array> in) {
  const Given<Array> given(v, in);
  const bool lstm = v.kind == Recurrence::lstm;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  Array h = *given.h, c = lstm ? *given.c : Array(given.h->shape), output({v.steps, v.samples, v.hidden});
  for (Dim i = 0; i < v.steps; ++i) {
    const Dim t = v.from_end ? v.steps - 1 - i : i;
    const Array h_old = h, c_old = c;
    for (Dim n = 0; n < v.samples; ++n)
      for (Dim u = 0; u < v.hidden; ++u) {
        if (!given.lengths || t < static_cast<Dim>((*given.lengths)[n])) {
          const auto x = [&](Dim g) { return given.x->at({t, n, g * v.hidden + u}); };
          const auto product = [&](Dim g) {
            double sum = given.bias ? (*given.bias)[g * v.hidden + u] : 0;
            for (Dim k = 0; k < v.hidden; ++k)
              sum += given.weight->at({g * v.hidden + u, k}) * h_old.at({n, k}) *
                     (given.state_mask ? given.state_mask->at({n, k}) * kMaskScale : 1);
            return sum;
          };
          double now;
          if (lstm) {
            const double share = v.candidates ? given.candidates->at({t, n, u}) * kCandidateScale : 1;
            double cell = sigmoid(x(1) + product(1)) * c_old.at({n, u}) +
                          sigmoid(x(0) + product(0)) * std::tanh(x(2) + product(2)) * share;
            now = sigmoid(x(3) + product(3)) * std::tanh(cell);
            const double keeps = given.keeps_c ? given.keeps_c->at({t, n, u}) : v.keep_c;
            c.at({n, u}) = keeps * c_old.at({n, u}) + (1 - keeps) * cell;
          } else if (v.kind == Recurrence::gru) {
            const double r = sigmoid(x(0) + product(0)), z = sigmoid(x(1) + product(1));
            now = (1 - z) * std::tanh(x(2) + r * product(2)) + z * h_old.at({n, u});
          } else {
            const double sum = x(0) + product(0);
            now = v.kind == Recurrence::rnn_tanh ? std::tanh(sum) : std::max(sum, 0.0);
          }
          const double keeps = given.keeps_h ? given.keeps_h->at({t, n, u}) : v.keep_h;
          h.at({n, u}) = keeps * h_old.at({n, u}) + (1 - keeps) * now;
        }
        output.at({t, n, u}) = h.at({n, u});
      }
  }
  std::vector<double> all = output.values;
  all.insert(all.end(), h.values.begin(), h.values.end());
  if (lstm) all.insert(all.end(), c.values.begin(), c.values.end());
  const Dim size = static_cast<Dim>(all.size());
  return Array({size}, std::move(all));
}

RecurrentInputs inputs_of(const Variant& v, std::span<const Tensor> in) {
  const Given<Tensor> given(v, in);
  const auto some = [](const Tensor* t) { return t ? *t : Tensor(); };
  return {.x = *given.x,
          .weight = *given.weight,
          .h = *given.h,
          .c = some(given.c),
          .bias = some(given.bias),
          .lengths = some(given.lengths),
          .state_mask = given.state_mask ? cast(*given.state_mask, in[0].dtype()) * kMaskScale : Tensor(),
          .keeps_h = some(given.keeps_h),
          .keeps_c = some(given.keeps_c),
          .candidates = some(given.candidates)};
}

RecurrentOptions options_of(const Variant& v) {
  return {.kind = v.kind,
          .from_end = v.from_end,
          .keep_h = v.keep_h,
          .keep_c = v.keep_c,
          .candidate_scale = v.candidates ? kCandidateScale : 1};
}

Tensor flat(const Tensor& x) { return reshape(x, {x.size()}); }

OpCase case_of(const Variant& v) {
  const Dim rows = gates_of(v.kind) * v.hidden;
  const Dims state{v.samples, v.hidden}, each{v.steps, v.samples, v.hidden};
  const CaseInput mask{each, 0, 2, CaseInput::boolean};
  OpCase c;
  c.name = v.name;
  c.inputs = {{{v.steps, v.samples, rows}}, {{rows, v.hidden}}, {state}};
  if (v.kind == Recurrence::lstm) c.inputs.push_back({state});
  if (v.bias) c.inputs.push_back({{rows}});
  if (v.lengths) c.inputs.push_back({{v.samples}, 0, static_cast<double>(v.steps + 1), CaseInput::index64});
  if (v.state_mask) c.inputs.push_back({state, 0, 2, CaseInput::boolean});
  if (v.zoneout) c.inputs.push_back(mask);
  if (v.zoneout && v.kind == Recurrence::lstm) c.inputs.push_back(mask);
  if (v.candidates) c.inputs.push_back(mask);
  c.call = [v](std::span<const Tensor> in) {
    const RecurrentResult result = recurrent(inputs_of(v, in), options_of(v));
    std::vector<Tensor> parts = {flat(result.output), flat(result.h)};
    if (result.c.defined()) parts.push_back(flat(result.c));
    return concat(parts, 0);
  };
  c.reference = [v](std::span<const Array> in) { return naive(v, in); };
  c.tolerance = 1e-5;
  c.half_ulps = 16;
  c.second_order = false;
  c.refuses_second_order = v.samples > 0;
  return c;
}

/// The gradient op against differences of the naive sequence: gradients of x and h for the gradient g of output and h.
void add_gradient(std::vector<OpCase>& cases, const char* name, Dim samples) {
  const Variant v{name, Recurrence::gru, 3, samples, 3, true, true};
  OpCase c = case_of(v);
  const size_t own = c.inputs.size();
  c.inputs.push_back({{v.steps, v.samples, v.hidden}});
  c.inputs.push_back({{v.samples, v.hidden}});
  c.call = [=](std::span<const Tensor> in) {
    const RecurrentInputs inputs = inputs_of(v, in);
    RecurrentAttrs a{.kind = v.kind, .from_end = v.from_end, .has_bias = true};
    const Tensor forward_in[] = {inputs.x, inputs.weight, inputs.h, inputs.bias};
    const Tensors made = apply(op_recurrent(), forward_in, a);
    a.has_grad_output = a.has_grad_h = true;
    const Tensor back_in[] = {forward_in[1], forward_in[2], made[0], made[2], in[own], in[own + 1]};
    const Tensors out = apply(op_recurrent_gradient(), back_in, a);
    return concat({flat(out[0]), flat(out[2])}, 0);
  };
  c.reference = [=](std::span<const Array> in) {
    std::vector<double> slopes;
    for (const size_t input : {size_t{0}, size_t{2}})
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

void add_recurrent_cases(std::vector<OpCase>& cases) {
  for (const Variant& v : kVariants) cases.push_back(case_of(v));
  add_gradient(cases, "recurrent_gradient", 2);
  add_gradient(cases, "recurrent_gradient/empty", 0);
}

void add_recurrent_errors(std::vector<ErrorCase>& errors) {
  struct Sizes {
    Tensor x = ones({3, 2, 8}), weight = ones({8, 2}), h = ones({2, 2}), c = ones({2, 2});
  };
  const auto add = [&](const char* name,
                       const std::function<void(RecurrentInputs&, RecurrentOptions&)>& change,
                       std::vector<std::string> texts) {
    errors.push_back({cat("recurrent/", name),
                      [change] {
                        const Sizes s;
                        RecurrentInputs inputs{.x = s.x, .weight = s.weight, .h = s.h, .c = s.c};
                        RecurrentOptions options;
                        change(inputs, options);
                        recurrent(inputs, options);
                      },
                      std::move(texts)});
  };
  const Tensor mask = zeros({3, 2, 2}, DType::boolean);
  add("no_x", [](auto& in, auto&) { in.x = Tensor(); }, {"recurrent: x, weight and h must be given"});
  add("no_c", [](auto& in, auto&) { in.c = Tensor(); }, {"c with an lstm alone"});
  add("c_of_gru", [](auto&, auto& o) { o.kind = Recurrence::gru; }, {"c with an lstm alone"});
  add("weight",
      [](auto& in, auto&) {
        in.weight = ones({8, 3});
      },
      {"the weight must be (4 · hidden, hidden)", "(8, 3)"});
  add("weight_type", [](auto& in, auto&) { in.weight = ones({8, 2}, DType::f64); }, {"in f32", "f64"});
  add("x_size", [](auto& in, auto&) { in.x = ones({3, 2, 6}); }, {"(T, N, 4 · 2)", "(3, 2, 6)"});
  add("no_steps", [](auto& in, auto&) { in.x = ones({0, 2, 8}); }, {"at least one step"});
  add("integers", [](auto& in, auto&) { in.x = ones({3, 2, 8}, DType::i64); }, {"f64, f32, bf16 or f16"});
  add("h", [](auto& in, auto&) { in.h = ones({1, 2}); }, {"h must be f32 (2, 2)", "(1, 2)"});
  add("lengths", [](auto& in, auto&) { in.lengths = ones({2}); }, {"lengths must be i64 (2,)"});
  add("keeps", [](auto& in, auto&) { in.keeps_h = ones({3, 2, 2}); }, {"keeps_h must be bool (3, 2, 2)"});
  add("share", [](auto&, auto& o) { o.keep_h = 1.5; }, {"from 0 to 1; got 1.5"});
  add("both", [mask](auto& in, auto& o) { in.keeps_h = mask, o.keep_h = 0.5; }, {"Leave one out"});
  add("bias", [](auto& in, auto&) { in.bias = ones({8}); }, {"belongs into x"});
  add("cells_of_rnn",
      [mask](auto& in, auto& o) {
        in = {.x = ones({3, 2, 2}), .weight = ones({2, 2}), .h = ones({2, 2}), .candidates = mask};
        o.kind = Recurrence::rnn_tanh;
      },
      {"of an lstm alone"});
}

}  // namespace tandem::testing
