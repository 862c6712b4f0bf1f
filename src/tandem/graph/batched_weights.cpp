// Where a step computes linear(x, weight, bias) with tensors from around, it computes it apart from their gradients and adds -0, its
// slice of a sequence of its own. The gradient of that sequence is that of all such products, stacked; what enters them is one more
// output. With both at hand, the gradients of weight and bias are one product and one sum.
#include "tandem/graph/batched_weights.h"

#include "tandem/core/autocast.h"
#include "tandem/core/region.h"
#include "tandem/graph/bodies.h"
#include "tandem/graph/loop_rule.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem::graph {

namespace {

using List = std::vector<Tensor>;

/// One call of linear() in a step.
struct LinearUse {
  Tensor weight, bias;              // from around; a bias may be undefined
  Tensor plain_weight, plain_bias;  // the same without gradients
  Meta result;
};

class BatchedWeights final : public LinearHook {
 public:
  /// In the step: `own` are its tensors, taps one for each use; none: uses are looked for.
  void begin(const List& own, std::span<const Tensor> taps) {
    own_ = &own;
    taps_ = taps;
    before_ = last_recorded();
    if (taps.empty()) uses.clear();
    entered.clear();
  }

  bool takes(const Tensor& x, const Tensor& weight, const Tensor& bias) const override {
    const bool wants = weight.requires_grad() || (bias.defined() && bias.requires_grad());
    if (!wants || !grad_enabled() || !is_from_around(weight) || (bias.defined() && !is_from_around(bias)))
      return false;
    const double rows = static_cast<double>(x.size(0)), in = static_cast<double>(weight.size(1)),
                 out = static_cast<double>(weight.size(0));
    return rows * (in + out) < in * out;
  }
  Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) override {
    linear_hook() = nullptr;
    const size_t at = entered.size();
    if (taps_.empty()) {
      const Tensor y = tandem::linear(x, weight, bias);
      uses.push_back({weight, bias, {}, {}, row_major(y.meta())});
      linear_hook() = this;
      entered.push_back(x);
      return y;
    }
    TD_CHECK(at < uses.size() && uses[at].weight.impl() == weight.impl(),
             "scan: with batch_weights the step must call linear() with the same weights each time.");
    const Tensor y = tandem::linear(x, uses[at].plain_weight, uses[at].plain_bias) + taps_[at];
    entered.push_back(x.detach());
    linear_hook() = this;
    return y;
  }

  std::vector<LinearUse> uses;
  List entered;  // into each use, in this step

 private:
  /// Neither the step's own nor made in it.
  bool is_from_around(const Tensor& tensor) const {
    for (const Tensor& own : *own_)
      if (own.impl() == tensor.impl()) return false;
    const Ref<TapeNode>& node = tensor.impl()->node;
    return !node || node->sequence <= before_;
  }
  const List* own_ = nullptr;
  std::span<const Tensor> taps_;
  uint64_t before_ = 0;
};

/// The step with the hook around it. `taps`: how many of its last slices are those of uses.
ScanFunction hooked(const std::shared_ptr<BatchedWeights>& weights, const ScanFunction& step, size_t taps) {
  return [weights, step, taps](const List& state, const List& slices) {
    const List given(slices.begin(), slices.end() - static_cast<std::ptrdiff_t>(taps));
    List own = state;
    own.insert(own.end(), slices.begin(), slices.end());
    weights->begin(own, std::span(slices).last(taps));
    struct Scope {
      explicit Scope(LinearHook* hook) { linear_hook() = hook; }
      ~Scope() { linear_hook() = nullptr; }  // none was set before: the step begins with a BodyScope
    };
    ScanStep made;
    {
      const Scope scope(weights.get());
      made = step(state, given);
    }
    if (taps == 0) return made;
    if (weights->entered.size() != taps) refuse_other_results("scan", "the step");
    made.outputs.insert(made.outputs.end(), weights->entered.begin(), weights->entered.end());
    return made;
  };
}

/// -0 for each step, whose gradient becomes that of the weight once `entered` is there.
Tensor make_tap(const LinearUse& use, int64_t steps, const std::shared_ptr<TapeNode::Saved>& entered) {
  Dims shape = use.result.shape;
  shape.insert(0, steps);
  List made;
  {
    const NoGrad off;
    made = {expand(negative_zeros(use.result), shape)};
  }
  std::vector<TapeNode::Edge> edges = {edge_of(use.weight)};
  if (use.bias.defined()) edges.push_back(edge_of(use.bias));
  const bool wants_weight = use.weight.requires_grad(),
             wants_bias = use.bias.defined() && use.bias.requires_grad();
  record("scan", std::move(edges), made,
         [entered, wants_weight, wants_bias, weight_type = use.weight.dtype(),
          bias_type = wants_bias ? use.bias.dtype() : DType::f32](std::span<const Tensor> grads) {
           const NoAutocast as_recorded;
           std::vector<TapeNode::Delivery> deliveries;
           if (!grads[0].defined()) return deliveries;
           const Tensor x = unpack_saved(*entered, "scan", "what enters a product");
           const auto rows = [](const Tensor& t) { return reshape(t, {t.size(0) * t.size(1), t.size(2)}); };
           const Tensor of_results = rows(grads[0]);
           if (wants_weight)
             deliveries.push_back(
                 {0, cast(matmul(transpose(of_results), cast(rows(x), of_results.dtype())), weight_type)});
           if (wants_bias) deliveries.push_back({1, cast(sum(of_results, 0), bias_type)});
           return deliveries;
         });
  return made[0];
}

}  // namespace

ScanResult run_batched(LoopCode code) {
  if (!grad_enabled()) return run_loop(std::move(code));
  if (Tracer* const tracer = current_tracer(); tracer && !tracer->replays()) return run_loop(std::move(code));
  const auto weights = std::make_shared<BatchedWeights>();
  LoopCode look = code;
  look.step = hooked(weights, code.step, 0);
  look_at_step(std::move(look));
  if (weights->uses.empty()) return run_loop(std::move(code));

  std::vector<std::shared_ptr<TapeNode::Saved>> entered;
  for (LinearUse& use : weights->uses) {
    use.plain_weight = use.weight.detach();
    if (use.bias.defined()) use.plain_bias = use.bias.detach();
    entered.push_back(std::make_shared<TapeNode::Saved>());
    code.sequences.push_back(make_tap(use, code.count, entered.back()));
  }
  code.step = hooked(weights, code.step, entered.size());
  ScanResult result = run_loop(std::move(code));
  const size_t outputs = result.outputs.size() - entered.size();
  for (size_t i = 0; i < entered.size(); ++i)
    *entered[i] = save_for_gradient(result.outputs[outputs + i].detach());
  result.outputs.resize(outputs);
  return result;
}

}  // namespace tandem::graph
