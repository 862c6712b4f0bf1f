#include "tandem/graph/checkpoint.h"

#include <unordered_map>
#include <unordered_set>

#include "tandem/core/autocast.h"
#include "tandem/core/composed.h"
#include "tandem/core/region.h"
#include "tandem/core/trace.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

/// What a piece of code reads and changes of the world around it.
class Surroundings final : public Observer, public std::enable_shared_from_this<Surroundings> {
  struct Change {
    Tensor target, value;  // what it held before
  };

 public:
  uint64_t region = 0;  // Region::id() of the code

  void before(const OpDef& op, std::span<const Tensor> in) override {
    if (outer_) outer_->before(op, in);
    for (size_t i = 0; i < in.size(); ++i) {
      const uint64_t memory = memory_of(in[i]);
      if (made_.count(memory)) continue;
      // A view that the code makes would keep the values of this run: its memory is enough.
      const TensorImpl& impl = *in[i].impl();
      const bool is_own = impl.node && impl.node->region == region;
      const bool fresh = outside_.insert(memory).second;
      if (const Tensor held = is_own ? in[i].detach() : in[i]; fresh || !is_own)
        seen_.try_emplace(held.impl(), Seen{held, held.impl()->requires_grad, 0});
      if (!op.effects.writes_input(i)) continue;
      const ObserverScope unseen(nullptr);
      const NoGrad off;
      changed_.push_back({in[i].detach(), clone(in[i])});
    }
  }
  void after(std::span<const Tensor> out) override {
    if (outer_) outer_->after(out);
    for (const Tensor& t : out)
      if (const uint64_t memory = memory_of(t); !outside_.count(memory)) made_.insert(memory);
  }
  void asks(const std::shared_ptr<const uint64_t>& place) override {
    if (outer_) outer_->asks(place);
    switches_.emplace(place, *place);
  }

  /// Everything as it is now is as it must be before the code runs again.
  void hold() {
    if (Tracer* tracer = current_tracer())
      tracer->on_rewind([self = shared_from_this(), before = seen_] { self->seen_ = before; });
    for (auto& [impl, seen] : seen_) seen.version = version_of(seen.tensor);
  }
  void check() const {
    for (const auto& [impl, seen] : seen_)
      TD_CHECK(
          version_of(seen.tensor) == seen.version && seen.tensor.impl()->requires_grad == seen.requires_grad,
          "checkpoint: a tensor that the function uses must not be changed (in place, by rebind() or by "
          "set_requires_grad()) before its backward pass; got one that was: ",
          describe(seen.tensor), ". Change it after backward(), or keep this part out of checkpoint().");
    for (const auto& [place, value] : switches_)
      TD_CHECK(*place == value,
               "checkpoint: modules that the function calls must be in the same mode (train or eval), with "
               "the same hooks, in its backward pass. Switch after backward().");
  }
  /// Puts back what the code changed, runs it, and leaves everything as it is now where that fails.
  template <class F>
  auto run_again(F run) {
    std::vector<Change> now;
    {
      const NoGrad off;
      for (const Change& change : changed_) now.push_back({change.target, clone(change.target)});
      put(changed_.rbegin(), changed_.rend());
    }
    try {
      auto result = run();
      hold();
      return result;
    } catch (...) {
      const NoGrad off;
      put(now.begin(), now.end());
      hold();
      throw;
    }
  }

 private:
  static uint64_t memory_of(const Tensor& t) {
    if (Tracer* tracer = current_tracer()) return tracer->memory_of(t);
    return reinterpret_cast<uint64_t>(t.impl()->storage.get());
  }

  template <class At>
  static void put(At at, At end) {
    for (; at != end; ++at) assign(at->target, at->value);
  }

  struct Seen {
    Tensor tensor;
    bool requires_grad;
    uint32_t version;
  };
  Observer* outer_ = current_observer();
  std::unordered_set<uint64_t> made_, outside_;  // memory
  std::unordered_map<const TensorImpl*, Seen> seen_;
  std::vector<Change> changed_;
  std::unordered_map<std::shared_ptr<const uint64_t>, uint64_t> switches_;
};

}  // namespace

std::vector<Tensor> checkpoint(const TensorFunction& function, const std::vector<Tensor>& inputs) {
  TD_CHECK(function, "checkpoint: the function must not be empty.");
  if (!grad_enabled()) return function(inputs);
  const GeneratorState place = random_place();
  auto around = std::make_shared<Surroundings>();
  std::vector<Tensor> results;
  Outputs outputs;
  std::vector<TapeNode::Edge> ends;
  {
    const ObserverScope watch(around.get());
    const Region region;
    around->region = region.id();
    results = function(inputs);
    for (const Tensor& t : results)
      TD_CHECK(t.defined(), "checkpoint: every result must be a tensor; got an undefined handle.");
    const auto inside = [id = region.id()](const TapeNode& node) { return node.region == id; };
    outputs = outputs_of(results, inside);
    ends = edges_out_of(results, inside);
  }
  if (ends.empty()) return results;
  around->hold();
  // Leaves that the function makes and returns are others in the second run.
  std::vector<std::pair<size_t, size_t>> own_leaves;  // end, result
  for (size_t k = 0; k < ends.size(); ++k)
    for (size_t i = 0; i < results.size(); ++i)
      if (ends[k].leaf && ends[k].leaf == results[i].ref()) own_leaves.emplace_back(k, i);
  std::vector<Tensor> out;
  for (size_t i : outputs.first) out.push_back(results[i].detach());
  record("checkpoint", ends, out,
         [function, inputs, around, place, ends, own_leaves, first = outputs.first,
          precision = autocast_dtype(), composed = uses_composed_forms()](std::span<const Tensor> grads) {
           around->check();
           const bool create_graph = grad_enabled();
           std::vector<Tensor> again;
           {
             const RandomReplay replay(place);
             const Region region(true);
             const GradMode on(true);
             const Autocast as_before(precision);
             const auto forms = composed ? std::make_unique<ComposedForms>() : nullptr;
             again = around->run_again([&] { return function(inputs); });
           }
           std::vector<TapeNode::Edge> now = ends;
           for (const auto& [end, result] : own_leaves)
             if (result < again.size()) now[end] = edge_of(again[result]);
           std::vector<Tensor> outputs;
           for (size_t k = 0; k < first.size(); ++k) {
             TD_CHECK(first[k] < again.size() && again[first[k]].defined() &&
                          (!grads[k].defined() || again[first[k]].shape() == grads[k].shape()),
                      "checkpoint: the function must give the same results when it is run again; got others. "
                      "Keep what depends on anything but tensors, modules and random operations out of it.");
             outputs.push_back(again[first[k]]);
           }
           return gradients_at(now, outputs, grads, create_graph);
         })
      ->extra->within = outputs.within;
  for (size_t i = 0; i < results.size(); ++i)
    if (outputs.slot[i] >= 0) results[i] = out[static_cast<size_t>(outputs.slot[i])];
  return results;
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& function, const Tensor& input) {
  TD_CHECK(function, "checkpoint: the function must not be empty.");
  return checkpoint(
      [function](const std::vector<Tensor>& in) { return std::vector<Tensor>{function(in[0])}; },
      std::vector<Tensor>{input})[0];
}

}  // namespace tandem
