#include "tandem/ops/recurrent.h"

#include "tandem/ops/define.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/recurrent_steps.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

struct Sizes {
  Dim steps, samples, hidden, state;  // state: elements of h
};

/// Checks everything that the two ops take alike. all: the tensor of all steps, x or what was kept for the gradient.
Sizes checked(const InferArgs& args, const RecurrentAttrs& a, const RecurrentOperands<Tensor>& in,
              const Tensor& all) {
  const char* const op = args.op;
  const bool lstm = a.kind == Recurrence::lstm;
  TD_CHECK(a.kind <= Recurrence::rnn_relu, op,
           ": kind must be 0 (lstm), 1 (gru), 2 (rnn_tanh) or 3 (rnn_relu); got ", static_cast<int>(a.kind),
           ".");
  TD_CHECK(a.gradients >= 0 && a.gradients < 8, op, ": gradients must be from 0 to 7; got ", a.gradients,
           ".");
  TD_CHECK(lstm || (!a.has_keeps_c && !a.has_candidates && !(a.gradients & 4) && a.keep_c == 0 &&
                    a.candidate_scale == 1),
           op,
           ": keeps_c, keep_c, candidates and their scale are of an lstm alone; got them with another kind. "
           "Leave them out.");
  TD_CHECK(!a.has_bias || a.kind == Recurrence::gru, op,
           ": a bias of its own has a gru alone; of the other kinds it belongs into x. Add it there.");
  TD_CHECK(a.keep_h >= 0 && a.keep_h <= 1 && a.keep_c >= 0 && a.keep_c <= 1, op,
           ": the shares that h and c keep must be from 0 to 1; got ", a.keep_h, " and ", a.keep_c, ".");
  TD_CHECK(!(a.has_keeps_h && a.keep_h != 0) && !(a.has_keeps_c && a.keep_c != 0), op,
           ": keeps_h (keeps_c) stands in place of keep_h (keep_c); got both. Leave one out.");
  TD_CHECK(a.candidate_scale >= 0 && a.candidate_scale < 1e30, op,
           ": candidate_scale must be finite and at least 0; got ", a.candidate_scale, ".");
  TD_CHECK(lstm || !a.has_projection, op, ": a projection has an lstm alone; got it with another kind.");
  TD_CHECK(a.eps > 0 && a.eps < 1, op, ": eps must be above 0 and below 1; got ", a.eps, ".");
  check_floating(op, all);
  const Tensor& weight = *in.weight;
  const Dim gates = gates_of(a.kind);
  TD_CHECK(!in.projection || (in.projection->rank() == 2 && in.projection->size(0) >= 1 &&
                              in.projection->dtype() == all.dtype()),
           op, ": the projection must be (P, hidden) in ", all.dtype(), "; got ", describe(*in.projection),
           ".");
  TD_CHECK(
      weight.rank() == 2 && weight.size(1) >= 1 && weight.dtype() == all.dtype() &&
          weight.size(0) == times_capped(gates, in.projection ? in.projection->size(1) : weight.size(1)) &&
          (!in.projection || weight.size(1) == in.projection->size(0)),
      op, ": the weight must be (", gates, " · hidden, ", in.projection ? "P" : "hidden", ") in ",
      all.dtype(), "; got ", describe(weight),
      in.projection ? str(" with the projection ", describe(*in.projection)) : std::string(), ".");
  const Dim state_size = weight.size(1), hidden = in.projection ? in.projection->size(1) : state_size;
  TD_CHECK(hidden >= 1, op, ": hidden must be at least 1; got the projection ", describe(*in.projection),
           ".");
  const Dim columns = &all == in.x ? times_capped(gates, hidden) : RecurrentSaved(a, hidden).columns;
  TD_CHECK(all.rank() == 3 && all.size(0) >= 1 && all.size(2) == columns, op,
           ": what there is of all steps must be (T, N, ", columns, ") with at least one step; got ",
           describe(all), ".");
  const Sizes s{all.size(0), all.size(1), hidden, state_size};
  const auto check = [&](const Tensor* t, const char* what, const Dims& shape, DType dtype) {
    TD_CHECK(!t || (t->shape() == shape && t->dtype() == dtype), op, ": ", what, " must be ", dtype, " ",
             shape, "; got ", describe(*t), ". reshape() or cast() it.");
  };
  const Dims state{s.samples, s.state}, each{s.steps, s.samples, s.state}, cell{s.samples, hidden},
      each_cell{s.steps, s.samples, hidden};
  check(in.h, "h", state, all.dtype());
  check(in.c, "c", cell, all.dtype());
  check(in.bias, "the bias", {weight.size(0)}, all.dtype());
  check(in.lengths, "lengths", {s.samples}, DType::i64);
  check(in.state_mask, "state_mask", state, all.dtype());
  check(in.keeps_h, "keeps_h", each, DType::boolean);
  check(in.keeps_c, "keeps_c", each_cell, DType::boolean);
  check(in.candidates, "candidates", each_cell, DType::boolean);
  check(in.norm, "norm", {weight.size(0)}, all.dtype());
  check(in.norm_c, "norm_c", {hidden}, all.dtype());
  check(in.norm_c_bias, "norm_c_bias", {hidden}, all.dtype());
  check(in.output, "the output of each step", each, all.dtype());
  check(in.cells, "c of each step", each_cell, all.dtype());
  check(in.grad_output, "the gradient of the output", each, all.dtype());
  check(in.grad_h, "the gradient of h", state, all.dtype());
  check(in.grad_c, "the gradient of c", cell, all.dtype());
  return s;
}

void check_count(const InferArgs& args, int wanted) {
  TD_CHECK(static_cast<int>(args.in.size()) == wanted, args.op, ": there must be ", wanted,
           " inputs, by the kind and by what its attributes say is there; got ", args.in.size(), ".");
}

void infer_recurrent(InferArgs& args) {
  const auto& a = args.attributes<RecurrentAttrs>();
  TD_CHECK(a.gradients == 0, args.op, ": takes no gradients; got `gradients` ", a.gradients, ".");
  const RecurrentOperands<Tensor> in(a, false, args.in.data());
  check_count(args, in.count);
  const Sizes s = checked(args, a, in, *in.x);
  const DType dtype = in.x->dtype();
  args.add({s.steps, s.samples, s.state}, dtype);
  args.add({s.samples, s.state}, dtype);
  if (a.kind == Recurrence::lstm) {
    args.add({s.samples, s.hidden}, dtype);
    args.add({s.steps, s.samples, s.hidden}, dtype);
  }
  args.add({s.steps, s.samples, RecurrentSaved(a, s.hidden).columns}, dtype);
}

void infer_gradient(InferArgs& args) {
  const auto& a = args.attributes<RecurrentAttrs>();
  const RecurrentOperands<Tensor> in(a, true, args.in.data());
  check_count(args, in.count);
  const Sizes s = checked(args, a, in, *in.saved);
  const DType dtype = in.saved->dtype();
  const bool lstm = a.kind == Recurrence::lstm;
  const Dims each{s.steps, s.samples, gates_of(a.kind) * s.hidden};
  args.add(each, dtype);
  if (a.kind == Recurrence::gru) args.add(each, dtype);
  if (a.has_norm) args.add(each, dtype);
  args.add({s.samples, s.state}, dtype);
  if (lstm) args.add({s.samples, s.hidden}, dtype);
  if (lstm && a.has_norm) args.add({s.steps, s.samples, s.hidden}, dtype);
  if (a.has_projection) args.add({s.steps, s.samples, s.state}, dtype);
}

Tensors grad_recurrent(const GradArgs& args) {
  RecurrentAttrs a = args.attributes.as<RecurrentAttrs>();
  const RecurrentOperands<Tensor> in(a, false, args.in.data());
  const bool lstm = a.kind == Recurrence::lstm;
  const auto place = [&](const Tensor* t) { return static_cast<size_t>(t - args.in.data()); };
  TD_CHECK(!in.state_mask || !args.needs[place(in.state_mask)],
           "recurrent: there is no gradient of state_mask; got one that wants it. detach() it.");
  for (size_t i = lstm ? 3 : 2; i < args.grad.size(); ++i)
    TD_CHECK(!args.grad[i].defined(),
             "recurrent: what is kept of each step for the gradient has none itself; got one for output ", i,
             ".");
  const Tensor grad_c = lstm ? args.grad[2] : Tensor();
  a.gradients = args.grad[0].defined() + 2 * args.grad[1].defined() + 4 * grad_c.defined();
  Tensors given{*in.weight, *in.h};
  for (const Tensor* t : {in.c, in.lengths, in.state_mask, in.keeps_h, in.keeps_c, in.candidates,
                          in.projection, in.norm, in.norm_c, in.norm_c_bias})
    if (t) given.push_back(*t);
  given.push_back(args.out[0]);
  if (lstm) given.push_back(args.out[3]);
  given.push_back(args.out[args.out.size() - 1]);
  for (const Tensor& g : {args.grad[0], args.grad[1], grad_c})
    if (g.defined()) given.push_back(g);
  const Tensors back = apply(op_recurrent_gradient(), {given.begin(), given.size()}, a);

  Tensors out(args.in.size());
  const auto wants = [&](const Tensor* t) { return t && args.needs[place(t)]; };
  const Tensor& saved = args.out[args.out.size() - 1];
  const RecurrentSaved columns(a, in.projection ? in.projection->size(1) : in.weight->size(1));
  size_t next = 0;
  out[place(in.x)] = back[next];
  if (a.kind == Recurrence::gru) ++next;
  const Tensor beside_x = back[next];  // of what is added to x, or stands beside r
  if (a.has_norm) ++next;
  const Tensor of_products = back[next++];  // of weight · h
  out[place(in.h)] = back[next++];
  if (lstm) out[place(in.c)] = back[next++];
  const auto kept = [&](Dim first, Dim count) { return slice(saved, 2, first, first + count); };
  if (wants(in.norm)) out[place(in.norm)] = sum(beside_x * kept(columns.norm, beside_x.size(2)), {0, 1});
  if (in.norm_c) {
    const Tensor& of_normalised = back[next++];
    if (wants(in.norm_c))
      out[place(in.norm_c)] = sum(of_normalised * kept(columns.norm_c, of_normalised.size(2)), {0, 1});
    if (wants(in.norm_c_bias)) out[place(in.norm_c_bias)] = sum(of_normalised, {0, 1});
  }
  const auto product_over_steps = [](const Tensor& a, const Tensor& b) {  // (T, N, p), (T, N, q) -> (p, q)
    const Dim rows = a.size(0) * a.size(1);
    return matmul(transpose(reshape(a, {rows, a.size(2)})), reshape(b, {rows, b.size(2)}));
  };
  if (wants(in.projection))
    out[place(in.projection)] =
        product_over_steps(back[next], kept(columns.unprojected, in.projection->size(1)));
  if (wants(in.weight)) {
    const Dim steps = args.out[0].size(0);
    Tensor before = unsqueeze(*in.h, 0);
    if (steps > 1 && a.from_end) before = concat({slice(args.out[0], 0, 1, steps), before}, 0);
    if (steps > 1 && !a.from_end) before = concat({before, slice(args.out[0], 0, 0, steps - 1)}, 0);
    if (in.state_mask) before = before * *in.state_mask;
    out[place(in.weight)] = product_over_steps(of_products, before);
  }
  if (wants(in.bias)) out[place(in.bias)] = sum(beside_x, {0, 1});
  return out;
}

Tensors refuse_second_order(const GradArgs&) {
  throw Error(
      "recurrent: its gradient must not be differentiated again; got a gradient of higher order. Give the "
      "layer the "
      "implementation `cell`, or step with single operations.");
}

/// One product a step; what the gates take is little beside it.
template <int weight>
int64_t step_flops(const KernelArgs& args) {
  const Buffer& all = args.out[0];
  return 2 * all.shape[0] * all.shape[1] * args.in[weight].size();
}

}  // namespace

OpDef& op_recurrent() {
  static OpDef& op = define(OpDef{.name = "recurrent",
                                  .about = "a recurrent layer, step by step",
                                  .function = "",
                                  .inputs = {3, 13, "x", "weight", "state..."},
                                  .outputs = {"output", "h"},
                                  .infer = infer_recurrent,
                                  .gradient = grad_recurrent,
                                  .saves_inputs = ~1u,
                                  .saves_outputs = 0b11101,  // output; lstm: cells and saved, others: saved
                                  .precision = Precision::widest,
                                  .flops = step_flops<1>});
  return op;
}

OpDef& op_recurrent_gradient() {
  static OpDef& op = define(OpDef{.name = "recurrent_gradient",
                                  .about = "the gradients of recurrent",
                                  .function = "",
                                  .inputs = {5, 18, "weight", "operands..."},
                                  .infer = infer_gradient,
                                  .gradient = refuse_second_order,
                                  .flops = step_flops<0>});
  return op;
}

RecurrentResult recurrent(const RecurrentInputs& inputs, const RecurrentOptions& options) {
  const bool lstm = options.kind == Recurrence::lstm;
  TD_CHECK(inputs.x.defined() && inputs.weight.defined() && inputs.h.defined() && inputs.c.defined() == lstm,
           "recurrent: x, weight and h must be given, and c with an lstm alone; got an undefined handle, or "
           "c with "
           "another kind.");
  RecurrentAttrs a{.kind = options.kind,
                   .from_end = options.from_end,
                   .keep_h = options.keep_h,
                   .keep_c = options.keep_c,
                   .candidate_scale = options.candidate_scale,
                   .eps = options.eps};
  Tensors in{inputs.x, inputs.weight, inputs.h};
  if (lstm) in.push_back(inputs.c);
  const auto add = [&](const Tensor& t, bool RecurrentAttrs::*has) {
    a.*has = t.defined();
    if (t.defined()) in.push_back(t);
  };
  add(inputs.bias, &RecurrentAttrs::has_bias);
  add(inputs.lengths, &RecurrentAttrs::has_lengths);
  add(inputs.state_mask, &RecurrentAttrs::has_state_mask);
  add(inputs.keeps_h, &RecurrentAttrs::has_keeps_h);
  add(inputs.keeps_c, &RecurrentAttrs::has_keeps_c);
  add(inputs.candidates, &RecurrentAttrs::has_candidates);
  add(inputs.projection, &RecurrentAttrs::has_projection);
  add(inputs.norm, &RecurrentAttrs::has_norm);
  const bool norms_c = lstm && inputs.norm.defined();
  TD_CHECK(inputs.norm_c.defined() == norms_c && inputs.norm_c_bias.defined() == norms_c,
           "recurrent: norm_c and norm_c_bias go with norm, of an lstm; got some of them alone. Give all or "
           "none.");
  if (norms_c) {
    in.push_back(inputs.norm_c);
    in.push_back(inputs.norm_c_bias);
  }
  const Tensors out = apply(op_recurrent(), {in.begin(), in.size()}, a);
  return {out[0], out[1], lstm ? out[2] : Tensor()};
}

}  // namespace tandem
