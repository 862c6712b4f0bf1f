#include "tandem/graph/tracer.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "tandem/core/region.h"

namespace tandem::graph {

HooksSeen::HooksSeen(const TensorImpl& tensor)
    : hooks(tensor.hooks), changes(tensor.hooks ? tensor.hooks->changes : 0) {}
bool HooksSeen::hold(const TensorImpl& tensor) const {
  return tensor.hooks == hooks && (!hooks || hooks->changes == changes);
}

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

  /// A value that comes in.
  Tensor add_input(Meta meta, int index) {
    meta.offset = 0;
    return wrap(graph_.add_input(meta, index));
  }
  Tensor placeholder(const Tensor& like, int index) {
    Tensor t = add_input(like.meta(), index);
    t.impl()->requires_grad = like.impl()->requires_grad;
    t.impl()->hooks = like.impl()->hooks;
    t.impl()->copied_by = like.impl()->copied_by;
    placeholders_.push_back(t);
    return t;
  }

  Tensors append(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                 std::span<const Meta> out) override {
    Node node;
    node.op = &op;
    node.attrs = attrs;
    if (op.changes_memory())
      for (size_t i = 0; i < in.size(); ++i)
        TD_CHECK(
            !op.effects.writes_input(i) || !is_made_inside(in[i]), op.name,
            ": a tensor made of host values inside a compiled callable is made once, while tracing, so it "
            "must not be changed in place; got ",
            describe(in[i]), ". Change a clone() of it, or make it outside.");
    for (const Tensor& t : in) node.in.push_back(id_of(t));
    if (in.empty() && graph_.value_count() == 0) graph_.device = out[0].device;
    TD_CHECK(out[0].device == graph_.device, op.name, ": a compiled callable runs on one device, ",
             graph_.device, "; got a result on ", out[0].device, ". Make or move the tensor outside of it.");
    for (int v : node.in) node.versions.push_back(changes_[graph_.base_of(v)]);
    if (op.is_random()) {
      node.random_offset = random_place_;
      random_place_ += philox_blocks(size_of(out[0].shape));
      graph_.random_blocks = std::max(graph_.random_blocks, random_place_);
    }
    node.repeated = Region::repeated();
    node.layer = current_layer();
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

  uint64_t memory_of(const Tensor& tensor) override {
    return static_cast<uint64_t>(graph_.base_of(id_of(tensor)));
  }
  uint64_t random_place() const override { return random_place_; }
  void set_random_place(uint64_t place) override { random_place_ = place; }
  void on_rewind(std::function<void()> undo) override { undo_.push_back(std::move(undo)); }
  bool is_input(const Tensor& tensor) const override { return is_placeholder(tensor.impl()); }
  void made_on_host(const Tensor& tensor) override {
    made_inside_.emplace(tensor.impl()->storage.get(), tensor.impl()->storage);
  }
  bool is_made_inside(const Tensor& tensor) const {
    return !tensor.is_traced() && made_inside_.count(tensor.impl()->storage.get());
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

  /// The trace as it stands, to go back to.
  struct Mark {
    int nodes, values;
    uint64_t random_blocks, random_place, ordered;
    std::unordered_map<int, uint32_t> changes;
    Dependencies depends_on;
  };
  /// From here on the trace has dependencies of its own.
  Mark mark() {
    undo_.clear();
    return {graph_.numbers_given(),
            graph_.value_count(),
            graph_.random_blocks,
            random_place_,
            ordered_,
            changes_,
            std::exchange(trace_.depends_on, {})};
  }
  /// Goes back to a mark, and gives the dependencies noted since.
  Dependencies rewind(Mark mark) {
    for (; !undo_.empty(); undo_.pop_back()) undo_.back()();
    graph_.cut(mark.nodes, mark.values);
    graph_.random_blocks = mark.random_blocks;
    random_place_ = mark.random_place;
    ordered_ = mark.ordered;
    changes_ = std::move(mark.changes);
    const auto is_gone = [&](const auto& row) { return row.second >= mark.values; };
    graph_.captured -= static_cast<int>(std::erase_if(captured_, is_gone));
    std::erase_if(bases_, is_gone);
    for (const Capture& capture : trace_.depends_on.captures) noted_.erase(capture.tensor.get());
    for (const Switch& each : trace_.depends_on.switches) switches_.erase(each.place.get());
    return std::exchange(trace_.depends_on, std::move(mark.depends_on));
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
          {t.ref(), t.impl()->storage, t.impl()->meta, t.impl()->requires_grad, HooksSeen(*t.impl())});
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
  uint64_t ordered_ = 0, random_place_ = 0;
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
  std::vector<std::function<void()>> undo_;                       // since the last mark
  std::unordered_map<const Storage*, Ref<Storage>> made_inside_;  // of host values, while tracing
};

}  // namespace

std::unique_ptr<Trace> trace(const TensorFunction& function, const std::vector<Tensor>& inputs) {
  auto result = std::make_unique<Trace>();
  auto own = std::make_shared<GraphTracer>(*result);
  GraphTracer& tracer = *own;
  result->tracer = own;
  Graph& graph = result->graph;
  if (!inputs.empty()) graph.device = inputs[0].device();
  graph.inputs = static_cast<int>(inputs.size());
  std::vector<Tensor> placeholders;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TD_CHECK(inputs[i].device() == inputs[0].device(), "compile: all inputs must be on one device; got ",
             describe(inputs[0]), " and ", describe(inputs[i]), ".");
    placeholders.push_back(tracer.placeholder(inputs[i], static_cast<int>(i)));
  }
  const auto input_of = [&](const TensorImpl* impl) {
    for (size_t i = 0; i < placeholders.size(); ++i)
      if (placeholders[i].impl() == impl) return static_cast<int>(i);
    return -1;
  };
  try {
    TraceScope scope(&tracer);
    result->results = function(placeholders);
    for (Tensor& t : result->results) {
      TD_CHECK(t.defined(), "compile: every result must be a tensor; got an undefined handle.");
      if (tracer.is_made_inside(t)) t = apply(*find_op("copy"), {&t, 1})[0];  // each call gives its own
      graph.add_output(tracer.id_of(t));
      result->returned_input.push_back(input_of(t.impl()));
    }
    const auto inside = [&](const TapeNode& node) { return node.trace == tracer.serial(); };
    result->outputs = outputs_of(result->results, inside);
    if (!result->outputs.first.empty()) {
      for (const TapeNode::Edge& edge : edges_out_of(result->results, inside)) {
        End end{edge, -1, -1};
        if (edge.leaf && edge.leaf->trace_serial) {
          end.input = input_of(edge.leaf.get());
          for (size_t i = 0; i < result->results.size() && end.result < 0; ++i)
            if (result->results[i].impl() == edge.leaf.get()) end.result = static_cast<int>(i);
          if (end.input < 0 && end.result < 0) continue;  // made and used inside
        }
        result->ends.push_back(std::move(end));
      }
    }
    tracer.take_gradients();
  } catch (...) {
    tracer.drop_gradients();
    throw;
  }
  return result;
}

namespace {

/// Takes the nodes from `first_node` on out of a graph, as one of their own.
class Extraction {
 public:
  Extraction(const Graph& from, int first_node, int first_value)
      : from_(from), first_node_(first_node), first_value_(first_value) {
    to_.graph.device = from.device;
    changes_.assign(static_cast<size_t>(first_value), 0);
    for (int n = from.first(); n != kNone && n < first_node; n = from.next(n))
      from.writes_of(from.node(n), [&](int v) {
        if (from.is_changed_in_place(v)) ++changes_[static_cast<size_t>(from.base_of(v))];
      });
  }

  void add_input(int v) {
    places_[v] = to_.graph.add_input(from_.meta(v), to_.graph.inputs);
    ++to_.graph.inputs;
  }

  void copy_nodes() {
    for (int n = first_node_; n < from_.numbers_given(); ++n) copy(from_.node(n));
  }
  void add_output(int v, size_t end) {
    to_.graph.add_output(place_of(v));
    to_.ends.push_back(end);
  }
  BackwardGraph take() { return std::move(to_); }

 private:
  /// The value in the new graph: made there, of captured memory, or kept by the forward graph.
  int place_of(int v) {
    const auto [at, fresh] = places_.try_emplace(v, kNone);
    if (!fresh) return at->second;
    const Value& value = from_.value(v);
    const Value& base = from_.value(value.base);
    Graph& graph = to_.graph;
    if (base.source == Source::captured) {
      const auto [memory, first] = memories_.try_emplace(value.base, kNone);
      if (first) memory->second = graph.add_captured_memory(base.storage, from_.device);
      ++graph.captured;
      return places_[v] = graph.add_captured_view(value.meta, memory->second);
    }
    TD_ASSERT(v < first_value_, "value ", v, " of the backward pass is used before it is made");
    if (const int maker = value.maker; maker != kNone && is_constant(from_.node(maker), v)) {
      copy(from_.node(maker));  // cheaper to make again than to keep
      return places_[v];
    }
    Meta meta = value.meta;
    meta.offset = 0;
    to_.kept.push_back(v);
    return places_[v] = graph.add_input(meta, graph.inputs++);
  }

  bool is_constant(const Node& node, int v) const {
    return node.in.empty() && node.effects().resources == 0 && from_.base_of(v) == v &&
           changes_[static_cast<size_t>(v)] == 0;
  }

  void copy(const Node& node) {
    Node copy;
    copy.op = node.op;
    copy.attrs = node.attrs;
    copy.order = node.order;
    copy.repeated = node.repeated;
    copy.layer = node.layer;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const int base = from_.base_of(node.in[i]);
      const uint32_t before = base < first_value_ ? changes_[static_cast<size_t>(base)] : 0;
      copy.in.push_back(place_of(node.in[i]));
      copy.versions.push_back(node.versions[i] - before);
    }
    if (node.op->is_random()) {
      copy.random_offset = node.random_offset;
      to_.graph.random_blocks =
          std::max(to_.graph.random_blocks,
                   node.random_offset + philox_blocks(size_of(from_.meta(node.out[0]).shape)));
    }
    for (int v : node.out) {
      places_[v] = to_.graph.add_value(from_.meta(v), Source::computed);
      copy.out.push_back(places_[v]);
    }
    to_.graph.append(std::move(copy));
  }

  const Graph& from_;
  int first_node_, first_value_;
  BackwardGraph to_;
  std::vector<uint32_t> changes_;  // by base: how often it was changed before the first node
  std::unordered_map<int, int> places_, memories_;
};

}  // namespace

BackwardGraph differentiate(Trace& trace, const std::vector<const Meta*>& arriving) {
  GraphTracer& tracer = static_cast<GraphTracer&>(*trace.tracer);
  const TraceScope scope(&tracer);
  const GraphTracer::Mark mark = tracer.mark();
  try {
    std::vector<Tensor> outputs, seeds;
    for (size_t k = 0; k < arriving.size(); ++k) {
      outputs.push_back(trace.results[trace.outputs.first[k]]);
      seeds.push_back(arriving[k] ? tracer.add_input(*arriving[k], -1) : Tensor());
    }
    std::vector<TapeNode::Edge> ends;
    for (const End& end : trace.ends) ends.push_back(end.edge);
    const std::vector<TapeNode::Delivery> gradients = gradients_at(ends, outputs, seeds, false);
    TD_CHECK(trace.graph.random_blocks == mark.random_blocks,
             "compile: a gradient rule that draws random numbers cannot be used on the results of a compiled "
             "callable. Take the gradient inside the callable.");
    Extraction extraction(trace.graph, mark.nodes, mark.values);
    for (const Tensor& seed : seeds)
      if (seed.defined()) extraction.add_input(static_cast<int>(seed.impl()->trace_id));
    extraction.copy_nodes();
    for (const TapeNode::Delivery& g : gradients) extraction.add_output(tracer.id_of(g.gradient), g.edge);
    BackwardGraph result = extraction.take();
    result.depends_on = tracer.rewind(mark);
    return result;
  } catch (...) {
    tracer.rewind(mark);
    throw;
  }
}

}  // namespace tandem::graph
