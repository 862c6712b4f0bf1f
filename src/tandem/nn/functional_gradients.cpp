// Derivatives of functions, made of grad().
#include "tandem/nn/functional_gradients.h"

#include "tandem/core/tape.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

using List = std::vector<Tensor>;

/// A second tensor of the same memory: a use of it is a use by the function, and no other. With `keeps_graph` it is computed
/// from x, else it is a leaf.
Tensor argument(const Tensor& x, bool keeps_graph) {
  Dims axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  const GradMode mode(keeps_graph);
  Tensor view = permute(x, axes);
  if (!view.requires_grad()) view.set_requires_grad();
  return view;
}

/// One call of a function, ready to be differentiated.
struct Call {
  List in, out;

  Call(const char* what, const ManyToMany& f, const List& inputs, const DerivativeOptions& options) {
    TD_CHECK(f != nullptr, what, ": the function must be callable; got an empty one.");
    TD_CHECK(!inputs.empty(), what, ": there must be at least one input; got none.");
    for (size_t i = 0; i < inputs.size(); ++i) {
      TD_CHECK(inputs[i].defined() && is_floating(inputs[i].dtype()), what,
               ": every input must be a floating tensor; input ", i, " is ", describe(inputs[i]),
               ". Let the function capture what it is not differentiated by.");
      in.push_back(argument(inputs[i], options.create_graph && inputs[i].requires_grad()));
    }
    out = f(in);
    for (size_t i = 0; i < out.size(); ++i)
      TD_CHECK(out[i].defined() && is_floating(out[i].dtype()), what,
               ": every output of the function must be a floating tensor; output ", i, " is ",
               describe(out[i]), ".");
  }
};

/// Of `given` one for each of `like`, of its shape and type.
void check_vectors(const char* what, const char* given_name, const char* like_name, const List& given,
                   const List& like) {
  TD_CHECK(given.size() == like.size(), what, ": there must be one ", given_name, " for each ", like_name,
           "; got ", given.size(), " for ", like.size(), ".");
  for (size_t i = 0; i < given.size(); ++i)
    TD_CHECK(given[i].defined() && given[i].shape() == like[i].shape() && given[i].dtype() == like[i].dtype(),
             what, ": ", given_name, " ", i, " must have the shape and type of its ", like_name, ", ",
             describe(like[i]), "; got ", describe(given[i]), ".");
}

/// Gradients of the sum of all products a[i] · b[i] by `inputs`; zeros where nothing depends on them.
List gradients_of_product(const List& a, const List& b, const List& inputs, bool create_graph) {
  Tensor total;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor term = sum(a[i] * b[i]);
    total = total.defined() ? total + term : term;
  }
  if (total.defined() && total.requires_grad())
    return grad(total, inputs, {}, {.create_graph = create_graph}, true);
  List none;
  for (const Tensor& input : inputs) none.push_back(zeros_like(input.detach()));
  return none;
}

/// Without the tape, unless it was asked for.
List given_out(List tensors, const DerivativeOptions& options) {
  if (!options.create_graph)
    for (Tensor& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

/// The gradient of each element of y by every input: (shape of y, shape of the input).
List rows(const Tensor& y, const List& inputs, const DerivativeOptions& options) {
  const int64_t size = y.size();
  std::vector<List> parts(inputs.size());
  const Tensor one = ones({1}, y.dtype(), y.device());
  for (int64_t i = 0; i < size && y.requires_grad(); ++i) {
    const Tensor seed = reshape(slice_into_zeros(one, 0, i, 1, size), y.shape());
    const List gradients = grad(y, inputs, seed, {.create_graph = options.create_graph}, true);
    for (size_t j = 0; j < inputs.size(); ++j) parts[j].push_back(gradients[j]);
  }
  List out;
  for (size_t j = 0; j < inputs.size(); ++j) {
    Dims shape = y.shape();
    for (const Dim dim : inputs[j].shape()) shape.push_back(dim);
    out.push_back(parts[j].empty() ? zeros(shape, inputs[j].dtype(), inputs[j].device())
                                   : reshape(stack(parts[j]), shape));
  }
  return given_out(std::move(out), options);
}

void check_rank(const char* what, const Tensor& a, const Tensor& b) {
  TD_CHECK(a.rank() + b.rank() <= kMaxRank, what, ": the axes of both shapes together must be at most ",
           kMaxRank, "; got ", a.shape(), " and ", b.shape(), ". Flatten one of them first.");
}

ManyToMany many(const OneToOne& f) {
  if (!f) return nullptr;
  return [&f](const List& in) { return List{f(in[0])}; };
}

}  // namespace

JacobianProducts vjp(const ManyToMany& f, const List& inputs, const List& seeds,
                     const DerivativeOptions& options) {
  const GradMode on(true);
  const Call call("vjp", f, inputs, options);
  List weights = seeds;
  if (seeds.empty() && call.out.size() == 1 && call.out[0].rank() == 0)
    weights.push_back(ones({}, call.out[0].dtype(), call.out[0].device()));
  check_vectors("vjp", "seed", "output", weights, call.out);
  List products;
  if (call.out.size() == 1 && call.out[0].requires_grad())
    products = grad(call.out[0], call.in, weights[0], {.create_graph = options.create_graph}, true);
  else
    products = gradients_of_product(call.out, weights, call.in, options.create_graph);
  return {given_out(call.out, options), given_out(std::move(products), options)};
}

JacobianProduct vjp(const OneToOne& f, const Tensor& input, const Tensor& seed,
                    const DerivativeOptions& options) {
  const JacobianProducts all = vjp(many(f), List{input}, seed.defined() ? List{seed} : List{}, options);
  return {all.outputs[0], all.products[0]};
}

// The gradient v J is linear in v: its derivative by v, times the tangent, is J t.
JacobianProducts jvp(const ManyToMany& f, const List& inputs, const List& tangents,
                     const DerivativeOptions& options) {
  const GradMode on(true);
  const Call call("jvp", f, inputs, options);
  check_vectors("jvp", "tangent", "input", tangents, call.in);
  List weights;
  for (const Tensor& y : call.out) weights.push_back(argument(zeros_like(y.detach()), false));
  const List rows = gradients_of_product(call.out, weights, call.in, true);
  List products = gradients_of_product(rows, tangents, weights, options.create_graph);
  return {given_out(call.out, options), given_out(std::move(products), options)};
}

JacobianProduct jvp(const OneToOne& f, const Tensor& input, const Tensor& tangent,
                    const DerivativeOptions& options) {
  const JacobianProducts all = jvp(many(f), List{input}, List{tangent}, options);
  return {all.outputs[0], all.products[0]};
}

std::vector<List> jacobian(const ManyToMany& f, const List& inputs, const DerivativeOptions& options) {
  const GradMode on(true);
  const Call call("jacobian", f, inputs, options);
  std::vector<List> out;
  for (const Tensor& y : call.out) {
    for (const Tensor& x : call.in) check_rank("jacobian", y, x);
    out.push_back(rows(y, call.in, options));
  }
  return out;
}

Tensor jacobian(const OneToOne& f, const Tensor& input, const DerivativeOptions& options) {
  return jacobian(many(f), List{input}, options)[0][0];
}

std::vector<List> hessian(const std::function<Tensor(const List& in)>& f, const List& inputs,
                          const DerivativeOptions& options) {
  const GradMode on(true);
  const Call call("hessian", f ? ManyToMany([&](const List& in) { return List{f(in)}; }) : ManyToMany(),
                  inputs, options);
  TD_CHECK(call.out[0].rank() == 0, "hessian: the function must give a 0-d tensor; got ",
           describe(call.out[0]), ". Use jacobian(), or sum() its result.");
  const Tensor one = ones({}, call.out[0].dtype(), call.out[0].device());
  const List gradients = gradients_of_product({call.out[0]}, {one}, call.in, true);
  std::vector<List> out;
  for (const Tensor& gradient : gradients) {
    for (const Tensor& x : call.in) check_rank("hessian", gradient, x);
    out.push_back(rows(gradient, call.in, options));
  }
  return out;
}

Tensor hessian(const OneToOne& f, const Tensor& input, const DerivativeOptions& options) {
  const std::function<Tensor(const List&)> list = [&f](const List& in) { return f(in[0]); };
  return hessian(f ? list : nullptr, List{input}, options)[0][0];
}

}  // namespace tandem
