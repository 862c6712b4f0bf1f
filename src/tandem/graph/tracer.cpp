#include "tandem/graph/tracer.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "tandem/core/rng.h"

namespace tandem::graph {

bool Capture::memory_holds() const {
  const Meta& now = tensor->meta;
  return tensor->storage == storage && now.offset == meta.offset && now.dtype == meta.dtype &&
         now.shape == meta.shape && now.strides == meta.strides;
}

bool Dependencies::memory_holds() const {
  return std::all_of(captures.begin(), captures.end(), [](const Capture& c) { return c.memory_holds(); }) &&
         std::all_of(gradients.begin(), gradients.end(),
                     [](const HeldGradient& g) { return g.holds() || !g.gradient; });
}

bool Dependencies::hold() const {
  const auto all_hold = [](const auto& list) {
    return std::all_of(list.begin(), list.end(), [](const auto& each) { return each.holds(); });
  };
  return all_hold(captures) && all_hold(switches) && all_hold(gradients);
}

namespace {

std::atomic<uint64_t> g_serial{0};

class GraphTracer : public Tracer {
 public:
  explicit GraphTracer(Trace& trace) : trace_(trace), graph_(trace.graph), serial_(++g_serial) {}

  Tensor placeholder(const Tensor& like, int index) {
    Meta meta = like.meta();
    meta.offset = 0;
    Tensor t = wrap(graph_.add_input(meta, index));
    t.impl()->requires_grad = like.impl()->requires_grad;
    t.impl()->copied_by = like.impl()->copied_by;
    placeholders_.push_back(t);
    return t;
  }

  Tensors append(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                 std::span<const Meta> out) override {
    Node node;
    node.op = &op;
    node.attrs = attrs;
    for (const Tensor& t : in) node.in.push_back(id_of(t));
    if (in.empty() && graph_.value_count() == 0) graph_.device = out[0].device;
    TD_CHECK(out[0].device == graph_.device, op.name, ": a compiled callable runs on one device, ",
             graph_.device, "; got a result on ", out[0].device, ". Make or move the tensor outside of it.");
    for (int v : node.in) node.versions.push_back(changes_[graph_.base_of(v)]);
    if (op.is_random()) {
      node.random_offset = graph_.random_blocks;
      graph_.random_blocks += philox_blocks(size_of(out[0].shape));
    }
    if (op.effects.is_ordered()) node.order = ++ordered_;
    Tensors results;
    for (const Meta& meta : out) {
      node.out.push_back(graph_.add_value(meta, Source::computed));
      results.push_back(wrap(node.out.back()));
    }
    const Node& placed = graph_.node(graph_.append(std::move(node)));
    graph_.writes_of(placed, [&](int v) {
      if (graph_.is_changed_in_place(v)) ++changes_[graph_.base_of(v)];
    });
    return results;
  }

  bool replays() const override { return true; }
  uint64_t serial() const override { return serial_; }

  bool share_memory(const Tensor& a, const Tensor& b) const override {
    if (!a.is_traced() && !b.is_traced()) return a.impl()->storage == b.impl()->storage;
    return base_of(a) == base_of(b) && base_of(a) != kNone;
  }
  uint32_t changes_of(const Tensor& tensor) const override {
    const auto found = changes_.find(base_of(tensor));
    return found == changes_.end() ? 0 : found->second;
  }

  void depends_on(const Tensor& tensor, Asked asked) override {
    if (!tensor.defined()) return;  // refused by whoever asked
    TensorImpl* impl = tensor.impl();
    if (asked == Asked::gradient) {
      if (touched_.count(impl) || holds_ours(*impl) || !asked_gradients_.insert(impl).second) return;
      TD_CHECK(!tensor.is_traced() || !is_placeholder(impl),
               "grad: the gradient that an input holds from outside cannot be read inside a compiled "
               "callable; got ",
               describe(tensor), ". Pass the gradient in as another input.");
      if (!tensor.is_traced()) trace_.depends_on.gradients.push_back({tensor.ref(), impl->grad});
    } else if (!tensor.is_traced()) {
      note_capture(tensor);
    }
  }
  void depends_on(const std::shared_ptr<const uint64_t>& place) override {
    if (switches_.insert(place.get()).second) trace_.depends_on.switches.push_back({place, *place});
  }
  Tensor detached(const Tensor& tensor) override {
    Tensor traced = wrap(id_of(tensor));
    traced.impl()->copied_by = tensor.impl()->copied_by;
    return traced;
  }
  void zeroes_gradient(const Tensor& tensor) override {
    touched_.emplace(tensor.impl(), Touched{tensor.ref(), !holds_ours(*tensor.impl())});
  }
  Tensor sets_gradient(const Tensor& tensor, const Tensor& grad) override {
    zeroes_gradient(tensor);
    return grad.is_traced() ? grad : wrap(id_of(grad));
  }

  /// The value number of a tensor of this trace, or of a captured one.
  int id_of(const Tensor& t) {
    if (t.is_traced()) {
      TD_CHECK(t.impl()->trace_serial == serial_,
               "compile: got a tensor of another compiled callable, or of an earlier trace of this one: ",
               describe(t), ". Return it from that callable and pass the result in.");
      return static_cast<int>(t.impl()->trace_id);
    }
    TD_CHECK(t.device() == graph_.device || graph_.value_count() == 0,
             "compile: a compiled callable runs on one device, ", graph_.device, "; it captured ",
             describe(t), ". Move the tensor first.");
    const auto [at, fresh] = captured_.emplace(t.impl(), kNone);
    if (!fresh) return at->second;
    if (graph_.value_count() == 0) graph_.device = t.device();
    const auto [base, first] = bases_.emplace(t.impl()->storage.get(), kNone);
    if (first) base->second = graph_.add_captured_memory(t.impl()->storage, t.device());
    at->second = graph_.add_captured_view(t.meta(), base->second);
    note_capture(t);
    ++graph_.captured;
    return at->second;
  }

  /// Turns gradients left on leaves into outputs, and notes which were zeroed.
  void take_gradients() {
    for (size_t i = 0; i < placeholders_.size(); ++i)
      take_gradient({nullptr, static_cast<int>(i)}, placeholders_[i].ref());
    for (const Capture& c : trace_.depends_on.captures) take_gradient({c.tensor}, c.tensor);
    for (const auto& [impl, touched] : touched_)
      take_gradient({touched.tensor}, touched.tensor);  // neither an input nor captured
    drop_gradients();
  }
  void drop_gradients() {
    const auto drop = [&](TensorImpl& leaf) {
      if (holds_ours(leaf)) leaf.grad.reset();
    };
    for (const Capture& c : trace_.depends_on.captures) drop(*c.tensor);
    for (const auto& [impl, touched] : touched_) drop(*impl);
  }

 private:
  void take_gradient(LeafGradient gradient, const Ref<TensorImpl>& leaf) {
    if (taken_.count(leaf.get())) return;
    const auto touched = touched_.find(leaf.get());
    if (touched == touched_.end() && !holds_ours(*leaf)) return;
    gradient.zeroed = touched != touched_.end() && touched->second.dropped_first;
    if (holds_ours(*leaf)) {
      gradient.output = static_cast<int>(graph_.outputs().size());
      graph_.add_output(static_cast<int>(leaf->grad->trace_id));
    }
    taken_.insert(leaf.get());
    trace_.gradients.push_back(std::move(gradient));
  }
  /// Whether the gradient that a leaf holds is of this trace.
  bool holds_ours(const TensorImpl& leaf) const { return leaf.grad && leaf.grad->trace_serial == serial_; }
  void note_capture(const Tensor& t) {
    if (noted_.insert(t.impl()).second)
      trace_.depends_on.captures.push_back(
          {t.ref(), t.impl()->storage, t.impl()->meta, t.impl()->requires_grad});
  }
  bool is_placeholder(const TensorImpl* impl) const {
    return std::any_of(placeholders_.begin(), placeholders_.end(),
                       [&](const Tensor& t) { return t.impl() == impl; });
  }
  int base_of(const Tensor& t) const {
    if (t.is_traced()) return graph_.base_of(static_cast<int>(t.impl()->trace_id));
    const auto found = bases_.find(t.impl()->storage.get());
    return found == bases_.end() ? kNone : found->second;
  }
  Tensor wrap(int id) {
    auto impl = make_ref<TensorImpl>();
    impl->meta = graph_.meta(id);
    impl->trace_id = id;
    impl->trace_serial = serial_;
    return Tensor(std::move(impl));
  }

  Trace& trace_;
  Graph& graph_;
  uint64_t serial_;
  uint64_t ordered_ = 0;
  std::unordered_map<TensorImpl*, int> captured_;
  std::unordered_map<Storage*, int> bases_;
  std::unordered_map<int, uint32_t> changes_;  // by base: how often it was changed in place so far
  std::vector<Tensor> placeholders_;
  struct Touched {
    Ref<TensorImpl> tensor;
    bool dropped_first;  // its gradient was dropped or set before anything was added to it
  };
  std::unordered_map<TensorImpl*, Touched> touched_;
  std::unordered_set<const TensorImpl*> taken_, noted_, asked_gradients_;
  std::unordered_set<const uint64_t*> switches_;
};

}  // namespace

Trace trace(const TensorFunction& function, const std::vector<Tensor>& inputs) {
  Trace result;
  GraphTracer tracer(result);
  if (!inputs.empty()) result.graph.device = inputs[0].device();
  result.graph.inputs = static_cast<int>(inputs.size());
  std::vector<Tensor> placeholders;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TD_CHECK(inputs[i].device() == inputs[0].device(), "compile: all inputs must be on one device; got ",
             describe(inputs[0]), " and ", describe(inputs[i]), ".");
    placeholders.push_back(tracer.placeholder(inputs[i], static_cast<int>(i)));
  }
  std::vector<Tensor> results;
  try {
    TraceScope scope(&tracer);
    results = function(placeholders);
    for (const Tensor& t : results) {
      TD_CHECK(t.defined(), "compile: every result must be a tensor; got an undefined handle.");
      result.graph.add_output(tracer.id_of(t));
      result.marks.push_back(t.impl()->copied_by);
    }
    result.results = results.size();
    tracer.take_gradients();
  } catch (...) {
    tracer.drop_gradients();
    throw;
  }
  return result;
}

}  // namespace tandem::graph
