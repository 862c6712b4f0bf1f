#include "tandem/graph/tracer.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tandem/core/region.h"
#include "tandem/graph/extraction.h"
#include "tandem/graph/made_tensors.h"

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
  /// Of a body: of a node in the trace `outer`, or (null) of plain code.
  GraphTracer(Trace& trace, GraphTracer* outer, Device device) : GraphTracer(trace) {
    is_body_ = true;
    outer_ = outer;
    set_device(device);
  }
  void set_device(Device device) {
    graph_.device = device;
    has_device_ = true;
  }

  /// A value that comes in.
  Tensor add_input(Meta meta, int index) {
    meta.offset = 0;
    return wrap(graph_.add_input(meta, index), "an input");
  }
  Tensor placeholder(const Tensor& like, int index) {
    Tensor t = add_input(like.meta(), index);
    t.impl()->requires_grad = like.impl()->requires_grad;
    t.impl()->hooks = like.impl()->hooks;
    t.impl()->copied_by = like.impl()->copied_by;
    placeholders_.push_back(t);
    return t;
  }

  /// Handed to the code of a body at each run.
  void add_own(const OwnInput& own) {
    Tensor t = add_input(own.meta, graph_.inputs++);
    t.impl()->requires_grad = own.requires_grad;
    trace_.operands.push_back(kNone);
    placeholders_.push_back(t);
    trace_.own.push_back(t);
  }

  /// One node for one op. The results are tensors without memory that carry the number of their value.
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
    if (!has_device_) set_device(out[0].device);
    TD_CHECK(out[0].device == graph_.device, op.name, ": a compiled callable runs on one device, ",
             graph_.device, "; got a result on ", out[0].device, ". Make or move the tensor outside of it.");
    // How often each input's memory has been changed so far: a pass that moves a node must leave it so.
    for (int v : node.in) node.versions.push_back(changes_[graph_.base_of(v)]);
    if (op.is_random()) {
      // Random numbers are counted from the start of the call: the eager engine would draw the same ones.
      node.random_offset = random_place_;
      random_place_ += philox_blocks(size_of(out[0].shape));
      graph_.random_blocks = std::max(graph_.random_blocks, random_place_);
    }
    node.repeated = Region::repeated();
    node.layer = current_layer();
    node.scope = current_scope();
    if (op.effects.is_ordered()) node.order = ++ordered_;
    Tensors results;
    for (const Meta& meta : out) {
      node.out.push_back(graph_.add_value(meta, Source::computed));
      results.push_back(wrap(node.out.back(), op.name));
    }
    place(std::move(node));
    return results;
  }

  /// A node with bodies.
  std::vector<Tensor> append(const OpDef& op, std::span<const Tensor> in, std::vector<NewBody> bodies,
                             std::span<const Meta> out, uint64_t random_offset,
                             std::shared_ptr<const Loop> loop) {
    Node node;
    node.op = &op;
    for (const Tensor& t : in) node.in.push_back(id_of(t));
    Bodies all;
    all.loop = std::move(loop);
    std::unordered_map<int, int> places;  // value -> input of the node
    std::set<int> changed;
    node.random_offset = random_offset;
    for (NewBody& body : bodies) {
      Body& added = all.list.emplace_back();
      for (size_t i = 0; i < body.operands.size(); ++i) {
        const int v = body.operands[i];
        if (v == kNone) {
          added.in.push_back(body.own[i]);
          continue;
        }
        const auto [at, fresh] = places.emplace(v, static_cast<int>(node.in.size()));
        if (fresh) node.in.push_back(v);
        added.in.push_back(at->second);
      }
      const std::vector<bool> changes = body.graph.changed_bases();
      for (int b = 0; b < body.graph.value_count(); ++b)
        if (const Value& value = body.graph.value(b);
            changes[static_cast<size_t>(b)] && value.source == Source::input)
          changed.insert(added.in[static_cast<size_t>(value.input)]);
      added.out = std::move(body.out);
      added.graph = std::make_shared<const Graph>(std::move(body.graph));
    }
    graph_.random_blocks = std::max(graph_.random_blocks, random_offset + all.random_blocks());
    all.changed.assign(changed.begin(), changed.end());
    for (int v : node.in) node.versions.push_back(changes_[graph_.base_of(v)]);
    node.repeated = Region::repeated();
    node.layer = current_layer();
    node.scope = current_scope();
    node.order = ++ordered_;  // for those of the bodies that have ordered effects
    std::vector<Tensor> results;
    for (const Meta& meta : out) {
      node.out.push_back(graph_.add_value(meta, Source::computed));
      results.push_back(wrap(node.out.back(), op.name));
    }
    for (int i : all.changed) {
      const Meta meta = graph_.meta(node.in[static_cast<size_t>(i)]);  // a copy: the list of values grows
      node.out.push_back(graph_.add_value(meta, Source::computed));
    }
    node.bodies = std::make_shared<const Bodies>(std::move(all));
    place(std::move(node));
    return results;
  }

  bool replays() const override { return true; }
  uint64_t serial() const override { return serial_; }

  bool share_memory(const Tensor& a, const Tensor& b) const override {
    if (!a.is_traced() && !b.is_traced()) return a.impl()->storage == b.impl()->storage;
    const auto [x, in_x] = home_of(a);
    const auto [y, in_y] = home_of(b);
    return x == y && in_x == in_y && x != kNone;
  }
  uint32_t changes_of(const Tensor& tensor) const override {
    if (const int base = base_of(tensor); base != kNone) return changes_of_base(base);
    if (outer_) return outer_->changes_of(tensor);
    return is_body_ && tensor.impl()->storage ? tensor.impl()->storage->version() : 0;
  }
  /// By base: how often memory from outside of a body was changed so far, by others.
  std::unordered_map<int, uint32_t> changes_outside() const {
    std::unordered_map<int, uint32_t> counts;
    for (int b = 0; b < graph_.value_count(); ++b)
      if (graph_.base_of(b) == b && graph_.is_external(b)) counts.emplace(b, changes_outside(b));
    return counts;
  }
  /// The node that a body belongs to has been appended (or plain code has run in its place), since they were so many.
  /// Those changes are the body's own, seen from around: they must not count twice.
  void settle(const std::unordered_map<int, uint32_t>& before) {
    for (const auto& [base, count] : before) settled_[base] += changes_outside(base) - count;
  }

  uint64_t memory_of(const Tensor& tensor) override {
    return static_cast<uint64_t>(graph_.base_of(id_of(tensor)));
  }
  uint64_t random_place() const override { return random_place_; }
  void set_random_place(uint64_t place) override { random_place_ = place; }
  void on_rewind(std::function<void()> undo) override { undo_.push_back(std::move(undo)); }
  bool is_input(const Tensor& tensor) const override {
    return is_placeholder(tensor.impl()) || (outer_ && outer_->is_input(tensor));
  }
  void made_on_host(const Tensor& tensor) override {
    if (outer_) outer_->made_on_host(tensor);
    trace_.made_of_host_values.emplace(tensor.impl()->storage.get(), tensor.impl()->storage);
  }
  bool is_made_inside(const Tensor& tensor) const {
    if (outer_ && outer_->is_made_inside(tensor)) return true;
    return !tensor.is_traced() && trace_.made_of_host_values.count(tensor.impl()->storage.get());
  }

  void depends_on(const Tensor& tensor, Asked asked) override {
    if (!tensor.defined()) return;  // refused by whoever asked
    if (is_body_) {
      if (outer_) outer_->depends_on(tensor, asked);
      return;
    }
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
    if (is_body_) {
      if (outer_) outer_->depends_on(place);
      return;
    }
    if (switches_.insert(place.get()).second) trace_.depends_on.switches.push_back({place, *place});
  }
  Tensor detached(const Tensor& tensor) override {
    const bool is_ours = tensor.impl()->trace_serial == serial_;
    if (tensor.is_traced() && !is_ours && !outer_) return {};  // refused where it is used
    Tensor traced = wrap(id_of(tensor), "detach");
    if (is_ours) traced.impl()->meta = tensor.meta();
    traced.impl()->copied_by = tensor.impl()->copied_by;
    return traced;
  }
  void zeroes_gradient(const Tensor& tensor) override {
    const bool ours = holds_ours(*tensor.impl());
    const Touched touched{tensor.ref(), ours ? Ref<TensorImpl>() : tensor.impl()->grad, !ours};
    if (touched_.emplace(tensor.impl(), touched).second) touched_order_.push_back(tensor.impl());
  }
  Tensor sets_gradient(const Tensor& tensor, const Tensor& grad) override {
    zeroes_gradient(tensor);
    return grad.impl()->trace_serial == serial_ ? grad : wrap(id_of(grad), "detach");
  }

  /// The value number of a tensor of this trace, or of a captured one.
  int id_of(const Tensor& t) {
    if (t.is_traced() && t.impl()->trace_serial == serial_) return static_cast<int>(t.impl()->trace_id);
    if (outer_) return id_from_around(t);
    if (t.is_traced()) refuse_foreign(t);
    TD_CHECK(t.device() == graph_.device || !has_device_, "compile: a compiled callable runs on one device, ",
             graph_.device, "; it captured ", describe(t), ". Move the tensor first.");
    const auto [at, fresh] = captured_.emplace(t.impl(), kNone);
    if (!fresh) return at->second;
    if (!has_device_) set_device(t.device());
    if (is_body_) trace_.used.push_back(t);
    const auto [base, first] = bases_.emplace(t.impl()->storage.get(), kNone);
    if (first) base->second = graph_.add_captured_memory(t.impl()->storage, t.device());
    at->second = graph_.add_outside_view(t.meta(), base->second);
    note_capture(t);
    ++graph_.captured;
    return at->second;
  }

  /// The trace as it stands, to go back to.
  struct Mark {
    int nodes, values, inputs;
    size_t used, made;
    uint64_t random_blocks, random_place, ordered;
    std::unordered_map<int, uint32_t> changes;
    Dependencies depends_on;
  };
  /// From here on the trace has dependencies of its own.
  Mark mark() {
    undo_.clear();
    return {graph_.numbers_given(),
            graph_.value_count(),
            graph_.inputs,
            trace_.used.size(),
            outermost().made_.count(),
            graph_.random_blocks,
            random_place_,
            ordered_,
            changes_,
            std::exchange(trace_.depends_on, {})};
  }
  /// Goes back to a mark, and gives the dependencies noted since.
  /// Values and nodes noted since have the highest numbers, so that "gone" is a comparison.
  Dependencies rewind(Mark mark) {
    for (; !undo_.empty(); undo_.pop_back()) undo_.back()();
    outermost().made_.forget_since(mark.made, serial_, mark.values);
    graph_.cut(mark.nodes, mark.values);
    graph_.inputs = mark.inputs;
    if (is_body_) trace_.operands.resize(static_cast<size_t>(mark.inputs));
    trace_.used.resize(mark.used);
    graph_.random_blocks = mark.random_blocks;
    random_place_ = mark.random_place;
    ordered_ = mark.ordered;
    changes_ = std::move(mark.changes);
    const auto is_gone = [&](const auto& row) { return row.second >= mark.values; };
    graph_.captured -= static_cast<int>(std::erase_if(captured_, is_gone));
    std::erase_if(bases_, is_gone);
    std::erase_if(around_, is_gone);
    std::erase_if(memory_around_, is_gone);
    for (const Capture& capture : trace_.depends_on.captures) noted_.erase(capture.tensor.get());
    for (const Switch& each : trace_.depends_on.switches) switches_.erase(each.place.get());
    return std::exchange(trace_.depends_on, std::move(mark.depends_on));
  }

  std::vector<Survivor> survivors() { return made_.outliving(trace_, placeholders_); }
  void must_not_read(std::span<const Survivor> earlier) { earlier_ = earlier; }

  /// Turns gradients left on leaves into outputs, and notes which were zeroed.
  void take_gradients() {
    for (size_t i = 0; i < placeholders_.size(); ++i)
      take_gradient({nullptr, static_cast<int>(i)}, placeholders_[i].ref());
    for (const Capture& c : trace_.depends_on.captures) take_gradient({c.tensor}, c.tensor);
    for (TensorImpl* impl : touched_order_)  // neither an input nor captured
      take_gradient({Ref<TensorImpl>(impl)}, Ref<TensorImpl>(impl));
    put_gradients_back();
  }
  /// Leaves hold what they held before the trace: it has computed nothing.
  void put_gradients_back() {
    if (std::exchange(gradients_are_back_, true)) return;
    for (const Capture& c : trace_.depends_on.captures)
      if (holds_ours(*c.tensor)) c.tensor->grad.reset();
    for (auto& [impl, touched] : touched_) {
      if (!is_placeholder(impl)) impl->grad = std::move(touched.before);
      touched.tensor.reset();  // from here on its LeafGradient holds it
    }
  }

  /// Whether a tensor is the whole of memory that a node of this trace made for it, since there were so many values.
  bool made_since(int values, const Tensor& t) const {
    if (t.impl()->trace_serial != serial_) return false;
    const int v = static_cast<int>(t.impl()->trace_id);
    const Value& value = graph_.value(v);
    return v >= values && value.base == v && value.source == Source::computed &&
           is_contiguous(value.meta.shape, value.meta.strides);
  }

 private:
  void place(Node node) {
    const Node& placed = graph_.node(graph_.append(std::move(node)));
    graph_.writes_of(placed, [&](int v) {
      if (graph_.is_changed_in_place(v)) ++changes_[graph_.base_of(v)];
    });
  }
  /// The value of a tensor that is used in the trace around, or from outside of that: a view of its memory there.
  /// The whole memory comes in as one input of the body, however many views of it are used.
  int id_from_around(const Tensor& t) {
    const int around = outer_->id_of(t);
    const auto [at, fresh] = around_.emplace(around, kNone);
    if (!fresh) return at->second;
    const int memory = outer_->graph_.base_of(around);
    const auto [base, first] = memory_around_.emplace(memory, kNone);
    if (first) {
      base->second = graph_.add_input(outer_->graph_.meta(memory), graph_.inputs++);
      trace_.operands.push_back(memory);
    }
    trace_.used.push_back(t);
    return at->second = graph_.add_outside_view(outer_->graph_.meta(around), base->second);
  }
  static uint32_t count_in(const std::unordered_map<int, uint32_t>& counts, int base) {
    const auto found = counts.find(base);
    return found == counts.end() ? 0 : found->second;
  }
  /// How often memory from outside of a body was changed by others.
  uint32_t changes_outside(int base) const {
    const Value& value = graph_.value(base);
    if (value.source == Source::captured) return value.storage->version();
    const int operand = operand_of(value);
    return operand == kNone ? 0 : outer_->changes_of_base(operand);
  }
  /// The memory around that an input of a body is; kNone: none.
  int operand_of(const Value& value) const {
    return outer_ && value.source == Source::input && value.input >= 0
               ? trace_.operands[static_cast<size_t>(value.input)]
               : kNone;
  }
  uint32_t changes_of_base(int base) const {
    uint32_t count = count_in(changes_, base);
    if (is_body_ && graph_.is_external(base)) count += changes_outside(base) - count_in(settled_, base);
    return count;
  }
  /// The memory of a tensor, and the trace that it belongs to: an outer one, where it comes from there.
  std::pair<int, const GraphTracer*> home_of(const Tensor& t) const {
    const int base = base_of(t);
    if (!outer_) return {base, this};
    if (base == kNone) return outer_->home_of(t);
    return home_of_base(base);
  }
  std::pair<int, const GraphTracer*> home_of_base(int base) const {
    const int operand = operand_of(graph_.value(base));
    if (operand == kNone) return {base, this};
    return outer_->home_of_base(operand);
  }
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
    if (t.is_traced() && t.impl()->trace_serial == serial_)
      return graph_.base_of(static_cast<int>(t.impl()->trace_id));
    if (outer_) {
      const auto found = memory_around_.find(outer_->base_of(t));
      return found == memory_around_.end() ? kNone : found->second;
    }
    if (t.is_traced()) return kNone;
    const auto found = bases_.find(t.impl()->storage.get());
    return found == bases_.end() ? kNone : found->second;
  }
  /// `what`: makes it.
  Tensor wrap(int id, const char* what) {
    auto impl = make_ref<TensorImpl>();
    impl->meta = graph_.meta(id);
    impl->trace_id = id;
    impl->trace_serial = serial_;
    // Bodies of plain code are traced anew each time, and their rules hold them: they must not hold these in turn.
    if (GraphTracer& all = outermost(); !all.is_body_) all.made_.add(impl, what);
    return Tensor(std::move(impl));
  }
  GraphTracer& outermost() {
    GraphTracer* at = this;
    while (at->outer_) at = at->outer_;
    return *at;
  }
  [[noreturn]] void refuse_foreign(const Tensor& t) const {
    const TensorImpl& impl = *t.impl();
    for (const Survivor& kept : earlier_)
      if (kept.trace == impl.trace_serial && kept.value == impl.trace_id)
        throw Error(
            str("compile: a callable must not keep tensors in C++ variables from one call to the next, "
                "since replays do not change C++ variables; it reads ",
                describe(t), ", made by ", kept.made_by,
                " in an earlier call. Keep state in a buffer or in a tensor made outside and change it "
                "with assign(), or take it as an argument and return the new one; make a mask or table "
                "that is needed once before the first call."));
    throw Error(
        str("compile: got a tensor of another compiled callable, of an earlier trace of this one, or from "
            "inside of a function that was given to cond() or a loop: ",
            describe(t), ". Return it from there and use the result."));
  }

  Trace& trace_;
  Graph& graph_;
  uint64_t serial_;
  bool is_body_ = false, has_device_ = false;
  GraphTracer* outer_ = nullptr;                         // of a body: the trace around
  std::unordered_map<int, int> around_, memory_around_;  // values and bases of it -> ours
  std::unordered_map<int, uint32_t>
      settled_;  // by base: how often the node of this body changed it, as seen from around
  uint64_t ordered_ = 0, random_place_ = 0;
  std::unordered_map<TensorImpl*, int> captured_;
  std::unordered_map<Storage*, int> bases_;
  std::unordered_map<int, uint32_t> changes_;  // by base: how often it was changed in place so far
  std::vector<Tensor> placeholders_;
  struct Touched {
    Ref<TensorImpl> tensor, before;  // and the gradient that it held
    bool dropped_first;              // its gradient was dropped or set before anything was added to it
  };
  std::unordered_map<TensorImpl*, Touched> touched_;
  std::vector<TensorImpl*> touched_order_;
  bool gradients_are_back_ = false;
  std::unordered_set<const TensorImpl*> taken_, noted_, asked_gradients_;
  std::unordered_set<const uint64_t*> switches_;
  std::vector<std::function<void()>> undo_;  // since the last mark
  MadeTensors made_;                         // of the outermost trace: by it and the bodies in it
  std::span<const Survivor> earlier_;
};

}  // namespace

std::unique_ptr<Trace> trace(const TensorFunction& function, const std::vector<Tensor>& inputs,
                             std::span<const Survivor> earlier, const Trace* first) {
  auto result = std::make_unique<Trace>();
  auto own = std::make_shared<GraphTracer>(*result);
  GraphTracer& tracer = *own;
  result->tracer = own;
  tracer.must_not_read(earlier);
  if (first) result->made_of_host_values = first->made_of_host_values;  // what it kept is as if made again
  Graph& graph = result->graph;
  if (!inputs.empty()) tracer.set_device(inputs[0].device());
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
    const NoScopes outside;
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
    placeholders.clear();
    result->survivors = tracer.survivors();
    tracer.must_not_read({});
  } catch (...) {
    tracer.put_gradients_back();
    throw;
  }
  return result;
}

namespace {

/// Continues a trace by `code`, which gives results, and takes what that appends out of it.
struct Extracted {
  std::unique_ptr<Extraction> extraction;
  Dependencies depends_on;
};
Extracted extract(Trace& trace, bool is_body, const std::function<std::vector<Tensor>(GraphTracer&)>& code) {
  GraphTracer& tracer = static_cast<GraphTracer&>(*trace.tracer);
  const TraceScope scope(&tracer);
  const NoScopes outside;
  const ObserverScope unseen(nullptr);
  // The trace is the same before and after: what the code appends is copied out, then taken off again, also where it
  // throws.
  const GraphTracer::Mark mark = tracer.mark();
  try {
    static const OpDef& copy = *find_op("copy");
    std::vector<Tensor> outputs = code(tracer);
    for (Tensor& t : outputs)  // an output of a node is memory of its own
      if (is_body && !tracer.made_since(mark.values, t)) t = apply(copy, {&t, 1})[0];
    TD_CHECK(trace.graph.random_blocks == mark.random_blocks,
             "compile: a gradient rule that draws random numbers cannot be used on the results of a compiled "
             "callable. Take the gradient inside the callable.");
    Extracted result;
    result.extraction = std::make_unique<Extraction>(trace, mark.nodes, mark.values, is_body);
    result.extraction->add_new_inputs();
    result.extraction->copy_nodes();
    for (const Tensor& t : outputs) result.extraction->add_output(tracer.id_of(t));
    result.depends_on = tracer.rewind(mark);
    return result;
  } catch (...) {
    tracer.rewind(mark);
    throw;
  }
}

/// The walk back from outputs of a trace, taken out of it.
struct Differentiated : Extracted {
  std::vector<size_t> ends;
};
/// `make_seeds`: by output; called when the trace is continued.
Differentiated continue_back(Trace& trace, bool is_body, std::span<const TapeNode::Edge> ends,
                             const std::vector<Tensor>& outputs,
                             const std::function<std::vector<Tensor>(GraphTracer&)>& make_seeds) {
  std::vector<size_t> found;
  Extracted back = extract(trace, is_body, [&](GraphTracer& tracer) {
    std::vector<Tensor> gradients;
    for (TapeNode::Delivery& g : gradients_at(ends, outputs, make_seeds(tracer), false)) {
      found.push_back(g.edge);
      gradients.push_back(std::move(g.gradient));
    }
    return gradients;
  });
  return {std::move(back), std::move(found)};
}

/// Values that come in by themselves, one for each layout.
auto new_seeds(const std::vector<const Meta*>& layouts) {
  return [&layouts](GraphTracer& tracer) {
    std::vector<Tensor> seeds;
    for (const Meta* layout : layouts) seeds.push_back(layout ? tracer.add_input(*layout, -1) : Tensor());
    return seeds;
  };
}

}  // namespace

BackwardGraph differentiate(Trace& trace, const std::vector<const Meta*>& arriving) {
  std::vector<Tensor> outputs;
  for (size_t i : trace.outputs.first) outputs.push_back(trace.results[i]);
  std::vector<TapeNode::Edge> ends;
  for (const End& end : trace.ends) ends.push_back(end.edge);
  Differentiated back = continue_back(trace, false, ends, outputs, new_seeds(arriving));
  BackwardGraph result;
  for (int v : back.extraction->kept)
    if (v != kNone) result.kept.push_back(v);
  result.graph = std::move(back.extraction->graph);
  result.ends = std::move(back.ends);
  result.depends_on = std::move(back.depends_on);
  return result;
}

std::shared_ptr<Trace> trace_body(const TensorFunction& code, std::span<const OwnInput> own, Device device) {
  auto body = std::make_shared<Trace>();
  const auto tracer =
      std::make_shared<GraphTracer>(*body, static_cast<GraphTracer*>(current_tracer()), device);
  body->tracer = tracer;
  for (const OwnInput& each : own) tracer->add_own(each);
  continue_body(*body, [&] { body->results = code(body->own); });
  return body;
}

std::shared_ptr<Trace> trace_body(const std::function<std::vector<Tensor>()>& code, Device device) {
  return trace_body([&](const std::vector<Tensor>&) { return code(); }, {}, device);
}

bool has_memory_of_its_own(const Tensor& tensor) {
  return static_cast<GraphTracer&>(*current_tracer()).made_since(0, tensor);
}

void continue_body(Trace& trace, const std::function<void()>& code) {
  const ObserverScope unseen(nullptr);
  const TraceScope scope(trace.tracer.get());
  const NoScopes outside;
  code();
}

std::vector<TapeNode::Edge> ends_of_bodies(std::span<const std::shared_ptr<Trace>> bodies,
                                           std::span<const Tensor> results) {
  const auto is_theirs = [&](uint64_t serial) {
    return std::any_of(bodies.begin(), bodies.end(),
                       [&](const std::shared_ptr<Trace>& body) { return body->tracer->serial() == serial; });
  };
  std::vector<TapeNode::Edge> ends =
      edges_out_of(results, [&](const TapeNode& node) { return is_theirs(node.trace); });
  std::erase_if(ends, [&](const TapeNode::Edge& edge) {  // leaves made and used inside
    return edge.leaf && is_theirs(edge.leaf->trace_serial);
  });
  return ends;
}

NewBody::NewBody(const Trace& trace, std::span<const Tensor> results)
    : graph(trace.graph), operands(trace.operands) {
  for (const Tensor& t : results) graph.add_output(static_cast<int>(t.impl()->trace_id));
}

void run_in_place_of(std::span<const std::shared_ptr<Trace>> bodies, const std::function<void()>& run) {
  const auto tracer_of = [](const std::shared_ptr<Trace>& body) -> GraphTracer& {
    return static_cast<GraphTracer&>(*body->tracer);
  };
  std::vector<std::unordered_map<int, uint32_t>> before;
  for (const auto& body : bodies) before.push_back(tracer_of(body).changes_outside());
  run();
  for (size_t i = 0; i < bodies.size(); ++i) tracer_of(bodies[i]).settle(before[i]);
}

std::vector<Tensor> append_node(const OpDef& op, std::span<const Tensor> in, std::vector<NewBody> bodies,
                                std::span<const Meta> out, uint64_t random_offset,
                                std::shared_ptr<const Loop> loop) {
  return static_cast<GraphTracer&>(*current_tracer())
      .append(op, in, std::move(bodies), out, random_offset, std::move(loop));
}

namespace {
BackwardBody body_of(Extraction& e, std::vector<size_t> ends) {
  return {std::move(e.graph), std::move(e.operands), std::move(e.kept), std::move(e.own), std::move(ends)};
}
BackwardBody body_of(Differentiated back) { return body_of(*back.extraction, std::move(back.ends)); }
}  // namespace

BackwardBody derive_body(Trace& trace,
                         const std::function<std::vector<Tensor>(const NewInput& new_input)>& code) {
  const Extracted derived = extract(trace, true, [&](GraphTracer& tracer) {
    return code([&](const Meta& meta) { return tracer.add_input(meta, -1); });
  });
  return body_of(*derived.extraction, {});
}

BackwardBody differentiate_body(Trace& trace, std::span<const TapeNode::Edge> ends,
                                std::span<const Tensor> results, std::span<const Tensor> seeds) {
  return body_of(continue_back(trace, true, ends, {results.begin(), results.end()}, [&](GraphTracer&) {
    return std::vector<Tensor>(seeds.begin(), seeds.end());
  }));
}

BackwardBody foresee_backward(Trace& trace, std::span<const TapeNode::Edge> ends,
                              std::span<const Tensor> results) {
  std::vector<Tensor> outputs;
  std::vector<const Meta*> layouts;
  for (const Tensor& t : results)
    if (t.impl()->requires_grad) {
      outputs.push_back(t);
      layouts.push_back(&t.meta());
    }
  return body_of(continue_back(trace, true, ends, outputs, new_seeds(layouts)));
}

}  // namespace tandem::graph
