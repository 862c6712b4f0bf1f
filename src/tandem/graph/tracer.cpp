#include "tandem/graph/tracer.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "tandem/core/rng.h"

namespace tandem::graph {

namespace {

std::atomic<uint64_t> g_serial{0};

class GraphTracer : public Tracer {
 public:
  explicit GraphTracer(Trace& trace) : trace_(trace), graph_(trace.graph), serial_(++g_serial) {}

  Tensor placeholder(const Tensor& like, int index) {
    Meta meta = like.meta();
    meta.offset = 0;
    const int id = add_value(meta, Source::input);
    graph_.values[static_cast<size_t>(id)].input = index;
    Tensor t = wrap(id);
    t.impl()->requires_grad = like.requires_grad();
    placeholders_.push_back(t);
    return t;
  }

  Tensors append(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                 std::span<const Meta> out) override {
    Node node;
    node.op = &op;
    node.attrs = attrs;
    for (const Tensor& t : in) node.in.push_back(id_of(t));
    if (in.empty() && graph_.values.empty()) graph_.device = out[0].device;
    TD_CHECK(out[0].device == graph_.device, op.name, ": a compiled callable runs on one device, ",
             graph_.device, "; got a result on ", out[0].device, ". Make or move the tensor outside of it.");
    for (int v : node.in) node.versions.push_back(version_[graph_.base_of(v)]);
    if (op.random) {
      node.random_offset = graph_.random_blocks;
      graph_.random_blocks += philox_blocks(size_of(out[0].shape));
    }
    Tensors results;
    for (const Meta& meta : out) {
      const int id = add_value(meta, Source::computed);
      if (op.view || op.changes_input)
        graph_.values[static_cast<size_t>(id)].base = graph_.base_of(node.in[0]);
      node.out.push_back(id);
      results.push_back(wrap(id));
    }
    if (op.changes_input) ++version_[graph_.base_of(node.in[0])];
    graph_.nodes.push_back(std::move(node));
    return results;
  }

  bool share_memory(const Tensor& a, const Tensor& b) const override {
    const auto base = [&](const Tensor& t) -> int {
      if (t.is_traced()) return graph_.base_of(static_cast<int>(t.impl()->trace_id));
      const auto found = bases_.find(t.impl()->storage.get());
      return found == bases_.end() ? -1 : found->second;
    };
    if (!a.is_traced() && !b.is_traced()) return a.impl()->storage == b.impl()->storage;
    return base(a) == base(b) && base(a) >= 0;
  }

  void zeroes_gradient(const Tensor& tensor) override { zeroed_.emplace(tensor.impl(), tensor.ref()); }
  void depends_on(const std::shared_ptr<const bool>& flag) override { trace_.flags.push_back({flag, *flag}); }

  /// The value number of a tensor of this trace, or of a captured one.
  int id_of(const Tensor& t) {
    if (t.is_traced()) {
      TD_CHECK(t.impl()->trace_serial == serial_,
               "compile: got a tensor of another compiled callable, or of an earlier trace of this one: ",
               describe(t), ". Return it from that callable and pass the result in.");
      return static_cast<int>(t.impl()->trace_id);
    }
    TD_CHECK(t.device() == graph_.device || graph_.values.empty(),
             "compile: a compiled callable runs on one device, ", graph_.device, "; it captured ",
             describe(t), ". Move the tensor first.");
    const auto [at, fresh] = captured_.emplace(t.impl(), -1);
    if (!fresh) return at->second;
    if (graph_.values.empty()) graph_.device = t.device();
    Storage* storage = t.impl()->storage.get();
    int base = -1;
    if (const auto found = bases_.find(storage); found != bases_.end()) {
      base = found->second;
    } else {
      base = add_value(contiguous_meta({static_cast<Dim>(storage->bytes())}, DType::u8, t.device()),
                       Source::captured);
      graph_.values[static_cast<size_t>(base)].storage = t.impl()->storage;
      bases_[storage] = base;
    }
    const int id = add_value(t.meta(), Source::captured);
    graph_.values[static_cast<size_t>(id)].base = base;
    at->second = id;
    trace_.captures.push_back({t.ref(), t.impl()->storage});
    ++graph_.captured;
    return id;
  }

  /// Turns gradients left on leaves into outputs, and notes which were zeroed.
  void take_gradients() {
    for (size_t i = 0; i < placeholders_.size(); ++i)
      take_gradient({nullptr, static_cast<int>(i)}, placeholders_[i].ref());
    for (const Capture& c : trace_.captures) take_gradient({c.tensor}, c.tensor);
    for (const auto& [impl, tensor] : zeroed_)
      take_gradient({tensor}, tensor);  // neither an input nor captured
    drop_gradients();
  }
  void drop_gradients() {
    for (const Capture& c : trace_.captures)
      if (c.tensor->grad && c.tensor->grad->trace_serial == serial_) c.tensor->grad.reset();
  }

 private:
  void take_gradient(LeafGradient gradient, const Ref<TensorImpl>& leaf) {
    if (taken_.count(leaf.get())) return;
    gradient.zeroed = zeroed_.count(leaf.get()) > 0;
    if (leaf->grad && leaf->grad->trace_serial == serial_) {
      gradient.output = static_cast<int>(graph_.outputs.size());
      graph_.outputs.push_back(static_cast<int>(leaf->grad->trace_id));
    }
    if (!gradient.zeroed && gradient.output < 0) return;
    taken_.insert(leaf.get());
    trace_.gradients.push_back(std::move(gradient));
  }
  int add_value(const Meta& meta, Source source) {
    Value value;
    value.meta = meta;
    value.source = source;
    value.base = static_cast<int>(graph_.values.size());
    graph_.values.push_back(std::move(value));
    return static_cast<int>(graph_.values.size()) - 1;
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
  std::unordered_map<TensorImpl*, int> captured_;
  std::unordered_map<Storage*, int> bases_;
  std::unordered_map<int, uint32_t> version_;  // by base
  std::vector<Tensor> placeholders_;
  std::unordered_map<TensorImpl*, Ref<TensorImpl>> zeroed_;
  std::unordered_set<TensorImpl*> taken_;
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
      result.graph.outputs.push_back(tracer.id_of(t));
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
