#include "tandem/core/function.h"

#include "tandem/core/region.h"

namespace tandem {

Tensor FunctionContext::saved(size_t i) const {
  TD_CHECK(i < kept_.size(), name_, ": saved(i) must name a tensor that was kept by save(); got ", i, " of ",
           kept_.size(), ".");
  Tensor t = unpack_saved(kept_[i].saved, name_.c_str(), str("saved tensor ", i));
  if (kept_[i].output < 0 || !is_floating(t.dtype()) || !grad_enabled()) return t;
  t = t.detach();
  attach(t, Ref<TapeNode>(node_),
         static_cast<size_t>(kept_[i].output));  // its gradient goes on through this call
  return t;
}

CustomFunction::CustomFunction(std::string name, Forward forward, Gradient gradient)
    : name_(std::move(name)), forward_(std::move(forward)), gradient_(std::move(gradient)) {
  TD_CHECK(forward_ && gradient_, "CustomFunction '", name_,
           "': must have a forward function and a gradient; got ",
           forward_ ? "no gradient." : "no forward function.");
}

std::vector<Tensor> CustomFunction::operator()(const std::vector<Tensor>& in) const {
  auto context = std::make_shared<FunctionContext>();
  context->name_ = name_;
  std::vector<TapeNode::Edge> edges;
  std::vector<Description> like;
  bool wanted = false;
  for (size_t i = 0; i < in.size(); ++i) {
    TD_CHECK(in[i].defined(), name_, ": input ", i, " must be a tensor; got an undefined handle.");
    context->needs_.push_back(grad_enabled() && in[i].requires_grad());
    wanted = wanted || context->needs_.back();
    edges.push_back(edge_of(in[i]));
    like.push_back({in[i].shape(), in[i].dtype(), in[i].device()});
  }
  std::vector<Tensor> out;
  {
    // The forward function is not recorded: its gradient is given, not derived.
    const NoGrad off;
    out = forward_(*context, in);
  }
  for (size_t i = 0; i < out.size(); ++i)
    TD_CHECK(out[i].defined(), name_, ": result ", i, " must be a tensor; got an undefined handle.");
  std::vector<Tensor> given = std::move(context->given_);
  context->given_.clear();
  if (!wanted) return out;

  const std::vector<Tensor> made = out;
  for (Tensor& t : out) t = t.detach();  // an input that is returned, or one result twice
  for (const Tensor& t : given) {
    TD_CHECK(t.defined(), name_, ": save() takes a tensor; got an undefined handle.");
    FunctionContext::Kept& kept = context->kept_.emplace_back();
    bool is_input = false;
    for (const Tensor& input : in) is_input = is_input || t.same(input);
    for (size_t i = 0; i < made.size() && !is_input; ++i)
      if (t.same(made[i])) kept.output = static_cast<int>(i);
    // An output is kept without its node, which owns this context: that would be a cycle. saved() puts the node back.
    kept.saved = save_for_gradient(kept.output < 0 ? t : t.detach());
  }
  const Ref<TapeNode> node = record(
      name_, std::move(edges), out, [context, gradient = gradient_, like](std::span<const Tensor> grads) {
        const std::vector<Tensor> result = gradient(*context, {grads.begin(), grads.end()});
        TD_CHECK(result.size() == like.size(), context->name_,
                 ": the gradient must give one tensor per input; got ", result.size(), " for ", like.size(),
                 " inputs. Give an undefined one where there is none.");
        std::vector<TapeNode::Delivery> deliveries;
        for (size_t i = 0; i < result.size(); ++i) {
          if (!result[i].defined() || !context->needs_[i]) continue;
          TD_CHECK(result[i].shape() == like[i].shape && result[i].dtype() == like[i].dtype &&
                       result[i].device() == like[i].device,
                   context->name_, ": the gradient of input ", i, " must be like it, ", like[i].dtype, " ",
                   like[i].shape, " on ", like[i].device, "; got ", describe(result[i]), ".");
          deliveries.push_back({i, result[i]});
        }
        return deliveries;
      });
  context->node_ = node.get();  // which owns the context
  return out;
}

}  // namespace tandem
