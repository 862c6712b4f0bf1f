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
  Dim projection = 0;
  bool norm = false;
  Dim state() const { return projection ? projection : hidden; }
};
Variant projected(Variant v, const char* name, Dim size) {
  v.name = name, v.projection = size;
  return v;
}
Variant normalised(Variant v, const char* name) {
  v.name = name, v.norm = true;
  return v;
}
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
                           *keeps_h = nullptr, *keeps_c = nullptr, *candidates = nullptr,
                           *projection = nullptr, *norm = nullptr, *norm_c = nullptr, *norm_c_bias = nullptr;
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
    projection = take(v.projection > 0);
    norm = take(v.norm);
    norm_c = take(v.norm && v.kind == Recurrence::lstm);
    norm_c_bias = take(v.norm && v.kind == Recurrence::lstm);
  }
};

constexpr double kMaskScale = 2, kCandidateScale = 1.5, kEps = 1e-3;

void normalise(std::vector<double>& x) {
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  for (double& v : x) v = (v - mean) / std::sqrt(variance + kEps);
}

/// Output, h and c, flat, one after the other: step by step, sample by sample.
Array naive(const Variant& v, std::span<const Array> in) {
  const Given<Array> given(v, in);
  const bool lstm = v.kind == Recurrence::lstm;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Dim rows = gates_of(v.kind) * v.hidden;
  Array h = *given.h, c = lstm ? *given.c : Array(given.h->shape), output({v.steps, v.samples, v.state()});
  for (Dim i = 0; i < v.steps; ++i) {
    const Dim t = v.from_end ? v.steps - 1 - i : i;
    for (Dim n = 0; n < v.samples; ++n) {
      if (!given.lengths || t < static_cast<Dim>((*given.lengths)[n])) {
        std::vector<double> q, cells, now;
        for (Dim r = 0; r < rows; ++r) {
          double sum = 0;
          for (Dim k = 0; k < v.state(); ++k)
            sum += given.weight->at({r, k}) * h.at({n, k}) *
                   (given.state_mask ? given.state_mask->at({n, k}) * kMaskScale : 1);
          q.push_back(sum);
        }
        if (v.norm) normalise(q);
        for (Dim r = 0; r < rows; ++r) {
          double& sum = q[static_cast<size_t>(r)];
          if (v.norm) sum *= (*given.norm)[r];
          if (given.bias) sum += (*given.bias)[r];
        }
        const auto x = [&](Dim g, Dim u) { return given.x->at({t, n, g * v.hidden + u}); };
        const auto product = [&](Dim g, Dim u) { return q[static_cast<size_t>(g * v.hidden + u)]; };
        for (Dim u = 0; u < v.hidden; ++u) {
          if (lstm) {
            const double share = v.candidates ? given.candidates->at({t, n, u}) * kCandidateScale : 1;
            cells.push_back(sigmoid(x(1, u) + product(1, u)) * c.at({n, u}) +
                            sigmoid(x(0, u) + product(0, u)) * std::tanh(x(2, u) + product(2, u)) * share);
            const double keeps = given.keeps_c ? given.keeps_c->at({t, n, u}) : v.keep_c;
            c.at({n, u}) = keeps * c.at({n, u}) + (1 - keeps) * cells.back();
          } else if (v.kind == Recurrence::gru) {
            const double r = sigmoid(x(0, u) + product(0, u)), z = sigmoid(x(1, u) + product(1, u));
            now.push_back((1 - z) * std::tanh(x(2, u) + r * product(2, u)) + z * h.at({n, u}));
          } else {
            const double sum = x(0, u) + product(0, u);
            now.push_back(v.kind == Recurrence::rnn_tanh ? std::tanh(sum) : std::max(sum, 0.0));
          }
        }
        if (lstm && v.norm) normalise(cells);
        for (Dim u = 0; lstm && u < v.hidden; ++u) {
          double& cell = cells[static_cast<size_t>(u)];
          if (v.norm) cell = cell * (*given.norm_c)[u] + (*given.norm_c_bias)[u];
          now.push_back(sigmoid(x(3, u) + product(3, u)) * std::tanh(cell));
        }
        if (v.projection) {
          const std::vector<double> whole = std::exchange(now, {});
          for (Dim p = 0; p < v.projection; ++p) {
            now.push_back(0);
            for (Dim u = 0; u < v.hidden; ++u)
              now.back() += given.projection->at({p, u}) * whole[static_cast<size_t>(u)];
          }
        }
        for (Dim u = 0; u < v.state(); ++u) {
          const double keeps = given.keeps_h ? given.keeps_h->at({t, n, u}) : v.keep_h;
          h.at({n, u}) = keeps * h.at({n, u}) + (1 - keeps) * now[static_cast<size_t>(u)];
        }
      }
      for (Dim u = 0; u < v.state(); ++u) output.at({t, n, u}) = h.at({n, u});
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
          .candidates = some(given.candidates),
          .projection = some(given.projection),
          .norm = some(given.norm),
          .norm_c = some(given.norm_c),
          .norm_c_bias = some(given.norm_c_bias)};
}

RecurrentOptions options_of(const Variant& v) {
  return {.kind = v.kind,
          .from_end = v.from_end,
          .keep_h = v.keep_h,
          .keep_c = v.keep_c,
          .candidate_scale = v.candidates ? kCandidateScale : 1,
          .eps = kEps};
}

Tensor flat(const Tensor& x) { return reshape(x, {x.size()}); }

OpCase case_of(const Variant& v) {
  const Dim rows = gates_of(v.kind) * v.hidden;
  const bool lstm = v.kind == Recurrence::lstm;
  const Dims state{v.samples, v.state()}, cell{v.samples, v.hidden};
  const auto mask = [&](Dim size) { return CaseInput{{v.steps, v.samples, size}, 0, 2, CaseInput::boolean}; };
  OpCase c;
  c.name = v.name;
  c.inputs = {{{v.steps, v.samples, rows}}, {{rows, v.state()}}, {state}};
  if (lstm) c.inputs.push_back({cell});
  if (v.bias) c.inputs.push_back({{rows}});
  if (v.lengths) c.inputs.push_back({{v.samples}, 0, static_cast<double>(v.steps + 1), CaseInput::index64});
  if (v.state_mask) c.inputs.push_back({state, 0, 2, CaseInput::boolean});
  if (v.zoneout) c.inputs.push_back(mask(v.state()));
  if (v.zoneout && lstm) c.inputs.push_back(mask(v.hidden));
  if (v.candidates) c.inputs.push_back(mask(v.hidden));
  if (v.projection) c.inputs.push_back({{v.projection, v.hidden}});
  if (v.norm) c.inputs.push_back({{rows}});
  if (v.norm && lstm) c.inputs.insert(c.inputs.end(), 2, {{v.hidden}});
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
    a.gradients = 3;
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
  const Variant plain{"", Recurrence::lstm, 3, 2, 3}, empty{"", Recurrence::lstm, 2, 0, 3},
      all{"", Recurrence::lstm, 4, 3, 7, true, false, true, true, true, true},
      means{"", Recurrence::lstm, 3, 2, 3, false, false, false, false, false, false, 0.25, 0.4},
      gru{"", Recurrence::gru, 3, 3, 5, true, true, true, true, true},
      tanh{"", Recurrence::rnn_tanh, 3, 3, 19, true, false, true, true, true},
      wide{"", Recurrence::lstm, 2, 7, 37};
  for (const Variant& v :
       {projected(plain, "recurrent/projection", 2), projected(all, "recurrent/projection_all", 4),
        projected(means, "recurrent/projection_zoneout_mean", 2),
        projected(wide, "recurrent/projection_wide", 18), projected(empty, "recurrent/projection_empty", 2),
        normalised(plain, "recurrent/norm"), normalised(all, "recurrent/norm_all"),
        normalised(means, "recurrent/norm_zoneout_mean"), normalised(wide, "recurrent/norm_wide"),
        normalised(empty, "recurrent/norm_empty"), normalised(gru, "recurrent/norm_gru"),
        normalised(tanh, "recurrent/norm_tanh"),
        normalised(projected(all, "", 4), "recurrent/norm_projection")})
    cases.push_back(case_of(v));
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
    errors.push_back({str("recurrent/", name),
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
  add("x_size", [](auto& in, auto&) { in.x = ones({3, 2, 6}); }, {"(T, N, 8)", "(3, 2, 6)"});
  add("no_steps", [](auto& in, auto&) { in.x = ones({0, 2, 8}); }, {"at least one step"});
  add("integers", [](auto& in, auto&) { in.x = ones({3, 2, 8}, DType::i64); }, {"f64, f32, bf16 or f16"});
  add("h", [](auto& in, auto&) { in.h = ones({1, 2}); }, {"h must be f32 (2, 2)", "(1, 2)"});
  add("lengths", [](auto& in, auto&) { in.lengths = ones({2}); }, {"lengths must be i64 (2,)"});
  add("keeps", [](auto& in, auto&) { in.keeps_h = ones({3, 2, 2}); }, {"keeps_h must be bool (3, 2, 2)"});
  add("share", [](auto&, auto& o) { o.keep_h = 1.5; }, {"from 0 to 1; got 1.5"});
  add("both", [mask](auto& in, auto& o) { in.keeps_h = mask, o.keep_h = 0.5; }, {"Leave one out"});
  add("bias", [](auto& in, auto&) { in.bias = ones({8}); }, {"belongs into x"});
  add("projection",
      [](auto& in, auto&) {
        in.projection = ones({3, 2});
      },
      {"the weight must be (4 · hidden, P)", "(3, 2)"});
  add("projection_rank", [](auto& in, auto&) { in.projection = ones({2}); },
      {"the projection must be (P, hidden)"});
  add("projection_of_rnn",
      [](auto& in, auto& o) {
        in = {.x = ones({3, 2, 2}), .weight = ones({2, 2}), .h = ones({2, 2}), .projection = ones({2, 2})};
        o.kind = Recurrence::rnn_tanh;
      },
      {"a projection has an lstm alone"});
  add("norm_alone", [](auto& in, auto&) { in.norm = ones({8}); }, {"norm_c and norm_c_bias go with norm"});
  add("norm", [](auto& in, auto&) { in.norm = ones({4}), in.norm_c = in.norm_c_bias = ones({2}); },
      {"norm must be f32 (8,)", "(4,)"});
  add("eps", [](auto&, auto& o) { o.eps = 0; }, {"eps must be above 0"});
  add("cells_of_rnn",
      [mask](auto& in, auto& o) {
        in = {.x = ones({3, 2, 2}), .weight = ones({2, 2}), .h = ones({2, 2}), .candidates = mask};
        o.kind = Recurrence::rnn_tanh;
      },
      {"of an lstm alone"});
}

}  // namespace tandem::testing
