#include "tandem/core/tape.h"

#include <map>
#include <queue>
#include <unordered_map>

#include "tandem/core/trace.h"

namespace tandem {

namespace {

thread_local bool t_grad_enabled = true;
thread_local uint64_t t_sequence = 0;
TapeOps g_ops;

/// What died on this thread while something else was being destroyed.
struct Dying {
  std::vector<TensorImpl*> tensors;
  std::vector<TapeNode*> nodes;
};
constinit thread_local Dying* t_dying = nullptr;

template <class T>
void destroy_in_turn(T* object, std::vector<T*> Dying::*list) {
  if (t_dying) {
    (t_dying->*list).push_back(object);
    return;
  }
  Dying dying;
  t_dying = &dying;
  delete object;
  const auto next = [](auto& waiting) {
    if (waiting.empty()) return false;
    auto* const last = waiting.back();
    waiting.pop_back();
    delete last;
    return true;
  };
  while (next(dying.nodes) || next(dying.tensors)) {
  }
  t_dying = nullptr;
}

/// How often the memory of a tensor was changed: so far, or, in a trace, by then.
uint32_t version_of(const Tensor& t) {
  const uint32_t outside = t.impl()->storage ? t.impl()->storage->version() : 0;
  return current_tracer() ? outside + current_tracer()->changes_of(t) : outside;
}

Tensor unpack(const TapeNode& node, const TapeNode::Saved& saved, const char* what, size_t index) {
  if (!saved.value) return {};
  const Tensor value(saved.value);
  TD_CHECK(version_of(value) == saved.version, node.op->name, ": ", what, " ", index,
           " is needed for the gradient but was changed in place (by assign() or the like) after the "
           "operation. Change "
           "it after backward(), or change a clone().");
  return value;
}

TapeNode::Saved save(const Tensor& t) { return {t.ref(), version_of(t)}; }

}  // namespace

void set_tape_ops(const TapeOps& ops) { g_ops = ops; }

bool grad_enabled() { return t_grad_enabled; }
GradMode::GradMode(bool enabled) : previous_(t_grad_enabled) { t_grad_enabled = enabled; }
GradMode::~GradMode() { t_grad_enabled = previous_; }

void destroy(TensorImpl* object) { destroy_in_turn(object, &Dying::tensors); }
void destroy(TapeNode* object) { destroy_in_turn(object, &Dying::nodes); }

void record(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs, std::span<Tensor> out) {
  auto node = make_ref<TapeNode>();
  node->op = &op;
  node->attrs = attrs;
  node->sequence = ++t_sequence;
  node->trace = current_tracer() ? current_tracer()->serial() : 0;
  for (size_t i = 0; i < in.size(); ++i) {
    TapeNode::Edge edge;
    if (in[i].impl()->requires_grad) {
      if (in[i].impl()->node)
        edge.node = in[i].impl()->node;
      else
        edge.leaf = in[i].ref();
      edge.output = in[i].impl()->node_output;
    }
    node->edges.push_back(std::move(edge));
    const Meta& meta = in[i].meta();
    node->in_meta.push_back({meta.shape, meta.dtype, meta.device});
    node->saved_in.push_back(i < 32 && (op.saves_inputs >> i) & 1 ? save(in[i]) : TapeNode::Saved{});
  }
  for (size_t i = 0; i < out.size(); ++i) {
    // A saved output is kept without its node (which would be a cycle); the walk puts the node back.
    node->saved_out.push_back((op.saves_outputs >> i) & 1 ? save(out[i].detach()) : TapeNode::Saved{});
    if (!is_floating(out[i].dtype())) continue;
    out[i].impl()->requires_grad = true;
    out[i].impl()->node = node;
    out[i].impl()->node_output = static_cast<uint32_t>(i);
  }
}

namespace {

/// Where a gradient can arrive: an output of a node, or a leaf.
struct Target {
  const void* owner;  // TapeNode or TensorImpl
  uint32_t output;
  friend auto operator<=>(const Target&, const Target&) = default;
};
Target target_of(const Tensor& t) {
  return t.impl()->node ? Target{t.impl()->node.get(), t.impl()->node_output} : Target{t.impl(), 0};
}
Target target_of(const TapeNode::Edge& edge) {
  return edge.node ? Target{edge.node.get(), edge.output} : Target{edge.leaf.get(), 0};
}

/// One backward walk.
class Walk {
 public:
  Walk(const Tensor& output, const Tensor& seed, const BackwardOptions& options) : options_(options) {
    TD_CHECK(output.defined() && output.impl()->requires_grad,
             "backward: the output must depend on a tensor that requires a gradient; got ", describe(output),
             ". Call set_requires_grad() on a leaf, and check that NoGrad is not in force.");
    Tensor start = seed;
    if (!start.defined()) {
      TD_CHECK(output.size() == 1, "backward: without a seed the output must have one element; got ",
               describe(output), ". Pass a seed of its shape, or sum() it.");
      NoGrad off;
      start = g_ops.full_like(output, 1);
    }
    TD_CHECK(start.shape() == output.shape() && start.dtype() == output.dtype() &&
                 start.device() == output.device(),
             "backward: the seed must match the output; got ", describe(start), " for ", describe(output),
             ".");
    if (output.impl()->node) {
      root_ = output.impl()->node;
      collect();
    } else {
      leaves_[output.impl()] = output.ref();
    }
    deliver(target_of(output), start);
  }

  /// Makes gradients of these tensors known under their target even where they are not leaves.
  void watch(std::span<const Tensor> tensors) {
    for (const Tensor& t : tensors) {
      if (Tracer* tracer = current_tracer()) tracer->depends_on(t, Tracer::Asked::requires_grad);
      watched_.emplace(target_of(t), t);
    }
  }

  void run() {
    GradMode mode(options_.create_graph);
    if (!root_) {
      for (auto& [impl, leaf] : leaves_) ready(Target{impl, 0}, Tensor(leaf));
      return;
    }
    queue_.push(root_.get());
    while (!queue_.empty()) {
      TapeNode* node = queue_.top();
      queue_.pop();
      visit(*node);
    }
  }

  Tensor gradient(const Tensor& t) const {
    const auto found = kept_.find(target_of(t));
    return found == kept_.end() ? Tensor() : found->second;
  }
  /// Leaves that got a gradient, in the order in which the gradients were complete.
  const std::vector<Tensor>& reached() const { return reached_; }

 private:
  struct Later {
    bool operator()(const TapeNode* a, const TapeNode* b) const { return a->sequence < b->sequence; }
  };

  /// Counts, for every node and leaf reachable from the root, the edges that lead to it.
  void collect() {
    const uint64_t trace = current_tracer() ? current_tracer()->serial() : 0;
    std::vector<TapeNode*> stack{root_.get()};
    pending_[root_.get()] = 0;
    while (!stack.empty()) {
      TapeNode* node = stack.back();
      stack.pop_back();
      TD_CHECK(node->trace == trace,
               "backward: what is differentiated must be computed inside the compiled callable, too; got the "
               "result of ",
               node->op->name,
               " from outside. Move that operation into the callable, or detach() its "
               "result.");
      for (const auto& edge : node->edges) {
        if (edge.leaf) {
          leaves_[edge.leaf.get()] = edge.leaf;
          ++pending_[edge.leaf.get()];
        } else if (edge.node) {
          if (++pending_[edge.node.get()] == 1 && edge.node.get() != root_.get())
            stack.push_back(edge.node.get());
        }
      }
    }
  }

  void deliver(const Target& to, const Tensor& gradient) {
    auto [at, fresh] = gradients_.emplace(to, gradient);
    if (!fresh) at->second = g_ops.add(at->second, gradient);
  }

  void ready(const Target& at, const Tensor& tensor) {
    const auto found = gradients_.find(at);
    if (found == gradients_.end()) return;
    const Tensor gradient = found->second;
    gradients_.erase(found);
    kept_[at] = gradient;
    reached_.push_back(tensor);
    if (options_.on_grad_ready) options_.on_grad_ready(tensor, gradient);
  }

  void visit(TapeNode& node) {
    Tensors grads;
    bool any = false;
    for (size_t i = 0; i < node.saved_out.size(); ++i) {
      const Target at{&node, static_cast<uint32_t>(i)};
      const auto found = gradients_.find(at);
      grads.push_back(found == gradients_.end() ? Tensor() : found->second);
      if (found == gradients_.end()) continue;
      any = true;
      if (const auto watched = watched_.find(at); watched != watched_.end()) {
        ready(at, watched->second);
      } else {
        gradients_.erase(found);
      }
    }
    Tensors results;
    if (any) results = run_rule(node, grads);
    for (size_t i = 0; i < node.edges.size(); ++i) {
      const auto& edge = node.edges[i];
      if (!edge.needed()) continue;
      if (any && results[i].defined()) deliver(target_of(edge), checked(node, i, results[i]));
      const void* owner = edge.node ? static_cast<const void*>(edge.node.get()) : edge.leaf.get();
      if (--pending_[owner] != 0) continue;
      if (edge.node)
        queue_.push(edge.node.get());
      else
        ready(target_of(edge), Tensor(edge.leaf));
    }
  }

  Tensors run_rule(TapeNode& node, const Tensors& grads) {
    Tensors in, out;
    SmallVector<bool, 4> needs;
    for (size_t i = 0; i < node.edges.size(); ++i) {
      in.push_back(unpack(node, node.saved_in[i], "input", i));
      needs.push_back(node.edges[i].needed());
    }
    for (size_t i = 0; i < node.saved_out.size(); ++i) {
      Tensor t = unpack(node, node.saved_out[i], "output", i);
      if (t.defined() && options_.create_graph && is_floating(t.dtype())) {
        t = t.detach();
        t.impl()->requires_grad = true;
        t.impl()->node = Ref<TapeNode>(&node);
        t.impl()->node_output = static_cast<uint32_t>(i);
      }
      out.push_back(std::move(t));
    }
    const GradArgs args{
        node.attrs, in, out, grads, {node.in_meta.data(), node.in_meta.size()}, {needs.data(), needs.size()}};
    Tensors results = node.op->gradient(args);
    TD_ASSERT(results.size() == node.edges.size(), "the gradient rule of ", node.op->name, " returned ",
              results.size(), " gradients for ", node.edges.size(), " inputs");
    return results;
  }

  /// Every gradient that a rule returns must fit its input; axes that were broadcast are summed here, for all rules.
  Tensor checked(const TapeNode& node, size_t i, Tensor g) {
    const Description& want = node.in_meta[i];
    if (g.shape() != want.shape) g = g_ops.sum_to(g, want.shape);
    TD_ASSERT(g.dtype() == want.dtype && g.device() == want.device, "the gradient rule of ", node.op->name,
              " returned ", describe(g), " for input ", i, " of type ", want.dtype, " on ", want.device);
    return g;
  }

  const BackwardOptions& options_;
  Ref<TapeNode> root_;
  std::unordered_map<const void*, int64_t> pending_;
  std::unordered_map<TensorImpl*, Ref<TensorImpl>> leaves_;
  std::map<Target, Tensor> watched_;
  std::map<Target, Tensor> gradients_, kept_;
  std::vector<Tensor> reached_;
  std::priority_queue<TapeNode*, std::vector<TapeNode*>, Later> queue_;
};

}  // namespace

void backward(const Tensor& output, const Tensor& seed, const BackwardOptions& options) {
  Walk walk(output, seed, options);
  walk.run();
  GradMode mode(options.create_graph);
  for (Tensor leaf : walk.reached()) {
    Tensor total = walk.gradient(leaf);
    if (const Tensor held(leaf.impl()->grad); held.defined()) {
      TD_CHECK(
          !(current_tracer() && !held.is_traced()),
          "backward: inside a compiled callable a leaf must not hold a gradient from outside; got one on ",
          describe(leaf), ". Call zero_grad() first, or use grad().");
      total = g_ops.add(held, total);
    }
    leaf.impl()->grad =
        without_mark(total).ref();  // in a trace: added to what is there, which set_grad() would replace
  }
}

std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed,
                         const BackwardOptions& options, bool allow_unused) {
  Walk walk(output, seed, options);
  walk.watch(inputs);
  walk.run();
  std::vector<Tensor> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor g = walk.gradient(inputs[i]);
    if (!g.defined()) {
      TD_CHECK(allow_unused, "grad: the output must depend on every input; it does not depend on input ", i,
               " (", describe(inputs[i]), "). Leave it out, or pass allow_unused.");
      g = g_ops.full_like(inputs[i], 0);
    }
    result.push_back(without_mark(g));
  }
  return result;
}

}  // namespace tandem
