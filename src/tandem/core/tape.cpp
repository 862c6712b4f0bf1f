#include "tandem/core/tape.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tandem/core/autocast.h"
#include "tandem/core/region.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

thread_local bool t_grad_enabled = true;
thread_local uint64_t t_sequence = 0;
thread_local LinearHook* t_linear_hook = nullptr;
thread_local uint64_t t_region = 0, t_repeated = 0;
thread_local const char* t_body = nullptr;  // the function whose BodyScope this thread is in
std::atomic<uint64_t> g_region{0};
TapeOps g_ops;

/// What died on this thread while something else was being destroyed.
struct Dying {
  SmallVector<TensorImpl*, 8> tensors;  // a few need no memory
  SmallVector<TapeNode*, 8> nodes;
};
constinit thread_local Dying* t_dying = nullptr;
constinit thread_local int t_depth = 0;  // of plain tensors within each other

/// The first object that dies on a thread collects what dies with it and deletes that afterwards, one by one. Else a
/// tape of n nodes would be destroyed n calls deep.
template <class T>
void destroy_in_turn(T* object, SmallVector<T*, 8> Dying::*list) {
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
    waiting.resize(waiting.size() - 1);
    delete last;
    return true;
  };
  while (next(dying.nodes) || next(dying.tensors)) {
  }
  t_dying = nullptr;
}

uint32_t version_in(const Tracer* tracer, const Tensor& t) {
  if (tracer && tracer->replays()) return tracer->changes_of(t);
  const TensorImpl& impl = *t.impl();
  return impl.earlier_changes + (impl.storage ? impl.storage->version() : 0);
}
bool is_stale(const Tracer* tracer, const TapeNode::Saved& saved) {
  return saved.value && version_in(tracer, Tensor(saved.value)) != saved.version;
}
[[noreturn]] void refuse_stale(const char* function, const std::string& what) {
  throw Error(str(
      function, ": ", what,
      " is needed for the gradient but was changed in place (by assign() or the like) after the operation. "
      "Change it after backward(), or change a clone()."));
}
}  // namespace

uint32_t version_of(const Tensor& t) { return version_in(current_tracer(), t); }

TapeNode::Saved save_for_gradient(const Tensor& t) { return {t.ref(), version_of(t)}; }

Tensor unpack_saved(const TapeNode::Saved& saved, const char* function, const std::string& what) {
  if (is_stale(current_tracer(), saved)) refuse_stale(function, what);
  return saved.value ? Tensor(saved.value) : Tensor();
}

void set_tape_ops(const TapeOps& ops) { g_ops = ops; }
const TapeOps& tape_ops() { return g_ops; }

bool grad_enabled() { return t_grad_enabled; }
GradMode::GradMode(bool enabled) : previous_(t_grad_enabled) { t_grad_enabled = enabled; }
GradMode::~GradMode() { t_grad_enabled = previous_; }

void destroy(TensorImpl* object) {
  constexpr int kDeepest = 32;
  int& depth = t_depth;
  const bool is_plain = !object->node && !object->grad && !object->hooks;
  if (is_plain && depth < kDeepest) {  // nothing hangs on it but what memory from outside may refer to
    ++depth;
    delete object;
    --depth;
  } else {
    destroy_in_turn(object, &Dying::tensors);
  }
}
void destroy(TapeNode* object) { destroy_in_turn(object, &Dying::nodes); }

namespace {
/// Has an empty edge lead to where the gradient of a tensor goes.
inline void lead(TapeNode::Edge& edge, const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  if (!impl.requires_grad) return;
  if (impl.node)
    edge.node = impl.node;
  else
    edge.leaf = tensor.ref();
  edge.output = impl.node_output;
}
}  // namespace

TapeNode::Edge edge_of(const Tensor& tensor) {
  TapeNode::Edge edge;
  lead(edge, tensor);
  return edge;
}

Region::Region(bool again) : id_(++g_region), previous_(t_region), previous_repeated_(t_repeated) {
  t_region = id_;
  if (again) t_repeated = id_;
}
Region::~Region() {
  t_region = previous_;
  t_repeated = previous_repeated_;
}
uint64_t Region::repeated() { return t_repeated; }

LinearHook*& linear_hook() { return t_linear_hook; }
uint64_t last_recorded() { return t_sequence; }

BodyScope::BodyScope(const char* function)
    : outer_(std::exchange(t_body, function)), outer_hook_(std::exchange(t_linear_hook, nullptr)) {}
BodyScope::~BodyScope() {
  t_body = outer_;
  t_linear_hook = outer_hook_;
}
bool BodyScope::is_open() { return t_body; }
void BodyScope::refuse(const char* what) {
  TD_CHECK(!t_body, what, ": must not be called inside a function that is given to ", t_body,
           "(), whose only effects are results and changes in place. Use grad() there, or do it outside.");
}

namespace {
Ref<TapeNode> new_node(const Tracer* tracer) {
  auto node = make_ref<TapeNode>();
  node->sequence = ++t_sequence;
  if (tracer) node->trace = tracer->serial();
  node->region = t_region;
  return node;
}
}  // namespace

void attach(const Tensor& tensor, const Ref<TapeNode>& node, size_t output) {
  tensor.impl()->requires_grad = true;
  tensor.impl()->node = node;
  tensor.impl()->node_output = static_cast<uint32_t>(output);
}

void record(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs, std::span<Tensor> out) {
  const Tracer* const tracer = current_tracer();
  const auto save = [tracer](TapeNode::Saved& saved, const Tensor& t) {
    saved.value = t.ref();
    saved.version = version_in(tracer, t);
  };
  Ref<TapeNode> node = new_node(tracer);
  node->op = &op;
  node->attrs = attrs;
  for (size_t i = 0; i < in.size(); ++i) {
    // In place: this runs for every op that wants a gradient.
    lead(node->edges.emplace_back(), in[i]);
    const Meta& meta = in[i].meta();
    Description& description = node->in_meta.emplace_back();
    description.shape = meta.shape;
    description.dtype = meta.dtype;
    description.device = meta.device;
    TapeNode::Saved& saved = node->saved_in.emplace_back();
    if (op.saves_input(i)) save(saved, in[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    // A saved output is kept without its node (which would be a cycle); the walk puts the node back.
    TapeNode::Saved& saved = node->saved_out.emplace_back();
    if (op.saves_output(i)) save(saved, out[i].detach());
    if (is_floating(out[i].dtype())) attach(out[i], node, i);
  }
}

Ref<TapeNode> record(std::string name, std::vector<TapeNode::Edge> edges, std::span<Tensor> out,
                     TapeNode::Rule rule) {
  Ref<TapeNode> node = new_node(current_tracer());
  node->extra = std::make_unique<TapeNode::Extra>();
  node->extra->name = std::move(name);
  node->extra->rule = std::move(rule);
  for (TapeNode::Edge& edge : edges) node->edges.push_back(std::move(edge));
  node->saved_out.resize(out.size());
  for (size_t i = 0; i < out.size(); ++i)
    if (is_floating(out[i].dtype())) attach(out[i], node, i);
  return node;
}

void GradientHookHandle::remove() {
  const auto hooks = hooks_.lock();
  hooks_.reset();
  if (!hooks) return;
  refuse_while_tracing("GradientHookHandle::remove", "it would act only while the callable is traced",
                       "Remove the hook before the call.");
  std::erase_if(hooks->list, [&](const auto& row) { return row.first == id_; });
  ++hooks->changes;
}

GradientHookHandle on_gradient(const Tensor& tensor, GradientHook hook) {
  TD_CHECK(hook, "on_gradient: the hook must not be empty.");
  BodyScope::refuse("on_gradient");
  TD_CHECK(tensor.defined() && tensor.requires_grad(),
           "on_gradient: the tensor must be one that gradients reach; got ", describe(tensor),
           ", which requires none. Call set_requires_grad() on it first, or hook what is computed from such "
           "a tensor.");
  TensorImpl& impl = *tensor.impl();
  TD_CHECK(!impl.trace_serial || (current_tracer() && current_tracer()->serial() == impl.trace_serial),
           "on_gradient: got a tensor of a compiled callable outside of it: ", describe(tensor),
           ". Add the hook inside the callable, or to its result.");
  std::shared_ptr<GradientHooks>* place = &impl.hooks;
  if (impl.node) {
    if (!impl.node->extra) impl.node->extra = std::make_unique<TapeNode::Extra>();
    auto& all = impl.node->extra->hooks;
    if (all.size() <= impl.node_output) all.resize(impl.node_output + 1);
    place = &all[impl.node_output];
  } else {
    refuse_while_tracing("on_gradient", "on a leaf it would act only while the callable is traced",
                         "Add the hook before the call, or hook what is computed inside.");
  }
  if (!*place) *place = std::make_shared<GradientHooks>();
  const uint64_t id = ++(*place)->changes;
  (*place)->list.emplace_back(id, std::move(hook));
  return {*place, id};
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

/// What the hooks make of a gradient.
Tensor hooked(const std::shared_ptr<GradientHooks>& hooks, Tensor gradient) {
  if (!hooks) return gradient;
  const auto list = hooks->list;  // a hook may remove itself
  for (const auto& [id, hook] : list) {
    const Tensor other = hook(gradient);
    if (!other.defined()) continue;
    TD_CHECK(
        other.shape() == gradient.shape() && other.dtype() == gradient.dtype() &&
            other.device() == gradient.device(),
        "on_gradient: a hook must return a gradient like the one that it got, or an undefined tensor; got ",
        describe(other), " for ", describe(gradient), ".");
    gradient = other;
  }
  return gradient;
}

/// One backward walk.
class Walk {
 public:
  explicit Walk(const BackwardOptions& options) : options_(options) {}

  /// Gradients that arrive at these stay there, each by itself.
  void end_at(std::span<const TapeNode::Edge> ends) {
    for (size_t i = 0; i < ends.size(); ++i) ends_.emplace(target_of(ends[i]), i);
  }

  /// Begins at an output. All must be given before run().
  void start(const Tensor& output, const Tensor& seed) {
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
    const Target target = target_of(output);
    if (const auto end = ends_.find(target); end != ends_.end()) {
      ended_.push_back({end->second, start});
      return;
    }
    if (output.impl()->node)
      roots_.push_back(output.impl()->node);
    else
      leaf_roots_.push_back(output.ref());
    deliver(target, start);
  }

  /// Makes gradients of these tensors known under their target even where they are not leaves.
  void watch(std::span<const Tensor> tensors) {
    for (const Tensor& t : tensors) {
      if (Tracer* tracer = current_tracer()) tracer->depends_on(t, Tracer::Asked::requires_grad);
      watched_.emplace(target_of(t), t);
    }
  }

  /// A node is visited once every edge that leads to it has been served. Of those that are ready the one recorded
  /// last goes first, so that gradients are added in an order that the recording alone decides.
  void run() {
    collect();
    GradMode mode(options_.create_graph);
    const NoAutocast as_recorded;
    for (const Ref<TensorImpl>& leaf : leaf_roots_)  // an output itself
      if (!pending_.count(leaf.get())) ready(Target{leaf.get(), 0}, Tensor(leaf));
    for (const Ref<TapeNode>& root : roots_)
      if (pending_[root.get()] == 0) {
        pending_[root.get()] = -1;  // once
        queue_.push(root.get());
      }
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
  /// What arrived at the ends, in order.
  std::vector<TapeNode::Delivery>& ended() { return ended_; }

 private:
  struct Later {
    bool operator()(const TapeNode* a, const TapeNode* b) const { return a->sequence < b->sequence; }
  };

  bool is_end(const TapeNode::Edge& edge) const { return !ends_.empty() && ends_.count(target_of(edge)); }

  /// Counts, for every node and leaf reachable from the roots, the edges that lead to it.
  void collect() {
    const uint64_t trace = current_tracer() ? current_tracer()->serial() : 0;
    std::vector<TapeNode*> stack;
    for (const Ref<TapeNode>& root : roots_)
      if (pending_.try_emplace(root.get(), 0).second) stack.push_back(root.get());
    while (!stack.empty()) {
      TapeNode* node = stack.back();
      stack.pop_back();
      TD_CHECK(node->trace == trace,
               "backward: what is differentiated must be computed inside the compiled callable, too; got the "
               "result of ",
               node->name(),
               " from outside. Move that operation into the callable, or detach() its "
               "result.");
      for (const auto& edge : node->edges) {
        if (!edge.needed() || is_end(edge)) continue;
        if (edge.leaf) {
          ++pending_[edge.leaf.get()];
        } else {
          const auto [at, fresh] = pending_.try_emplace(edge.node.get(), 0);
          ++at->second;
          if (fresh) stack.push_back(edge.node.get());
        }
      }
    }
  }

  /// Sums in the order of arrival.
  void deliver(const Target& to, const Tensor& gradient) {
    auto [at, fresh] = gradients_.emplace(to, gradient);
    if (!fresh) at->second = g_ops.add(at->second, gradient);
  }

  /// The gradient of a leaf, or of what was asked for, is complete.
  void ready(const Target& at, const Tensor& tensor) {
    const auto found = gradients_.find(at);
    if (found == gradients_.end()) return;
    const Tensor gradient = hooked(tensor.impl()->hooks, found->second);
    gradients_.erase(found);
    keep(at, tensor, gradient);
  }
  void keep(const Target& at, const Tensor& tensor, const Tensor& gradient) {
    kept_[at] = gradient;
    reached_.push_back(tensor);
    if (options_.on_grad_ready) options_.on_grad_ready(tensor, gradient);
  }

  /// Where another output is computed from output i inside of the node, the whole gradient of i is not seen out here.
  static void check_whole(const TapeNode& node, size_t i, const Tensors& grads) {
    if (i >= node.extra->within.size() || !node.extra->within[i]) return;
    for (size_t j = 0; j < grads.size(); ++j)
      TD_CHECK(
          j == i || !grads[j].defined(), node.name(), ": the gradient of result ", i,
          " cannot be asked for, nor hooked, where another result is computed from it inside. Ask for it "
          "inside, or compute the other one outside.");
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
      gradients_.erase(found);
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      const Target at{&node, static_cast<uint32_t>(i)};
      const bool has_hooks = node.extra && i < node.extra->hooks.size() && node.extra->hooks[i];
      if (node.extra && (has_hooks || watched_.count(at))) check_whole(node, i, grads);
      if (!grads[i].defined()) continue;
      if (has_hooks) grads[i] = hooked(node.extra->hooks[i], grads[i]);
      if (const auto watched = watched_.find(at); watched != watched_.end())
        keep(at, watched->second, grads[i]);
    }
    // Without a gradient the node has nothing to send, but those behind it still wait for its edges.
    if (any) run_rule(node, grads);
    for (const auto& edge : node.edges) {
      if (!edge.needed() || is_end(edge)) continue;
      const void* owner = edge.node ? static_cast<const void*>(edge.node.get()) : edge.leaf.get();
      if (--pending_[owner] != 0) continue;
      if (edge.node)
        queue_.push(edge.node.get());
      else
        ready(target_of(edge), Tensor(edge.leaf));
    }
  }

  /// Sends a gradient along an edge.
  void send(const TapeNode::Edge& edge, const Tensor& gradient) {
    const Target to = target_of(edge);
    if (const auto end = ends_.find(to); end != ends_.end())
      ended_.push_back({end->second, gradient});
    else
      deliver(to, gradient);
  }

  void run_rule(TapeNode& node, const Tensors& grads) {
    if (!node.op) {
      for (const TapeNode::Delivery& delivery : node.extra->rule(grads))
        if (const TapeNode::Edge& edge = node.edges[delivery.edge]; edge.needed())
          send(edge, delivery.gradient);
      return;
    }
    Tensors in, out;
    SmallVector<bool, 4> needs;
    for (size_t i = 0; i < node.edges.size(); ++i) {
      in.push_back(unpack(node, node.saved_in[i], "input", i));
      needs.push_back(node.edges[i].needed());
    }
    for (size_t i = 0; i < node.saved_out.size(); ++i) {
      Tensor t = unpack(node, node.saved_out[i], "output", i);
      // A rule that is recorded itself must see the output as a result of this node.
      if (t.defined() && options_.create_graph && is_floating(t.dtype())) {
        t = t.detach();
        attach(t, Ref<TapeNode>(&node), i);
      }
      out.push_back(std::move(t));
    }
    const GradArgs args{node.attrs,
                        in,
                        out,
                        grads,
                        {node.in_meta.data(), node.in_meta.size()},
                        {needs.data(), needs.size()},
                        *node.op,
                        node.op->context.get()};
    const Tensors results = results_of_rule(node, args);
    TD_CHECK(results.size() == node.edges.size(), node.op->name,
             ": the gradient rule must give one tensor per input; got ", results.size(), " for ",
             node.edges.size(), " inputs. Give an undefined one where there is none.");
    for (size_t i = 0; i < results.size(); ++i)
      if (needs[i] && results[i].defined()) send(node.edges[i], checked(node, i, results[i]));
  }

  /// A rule that reads what its record does not save finds an undefined handle: then the record is what to correct.
  static Tensors results_of_rule(const TapeNode& node, const GradArgs& args) {
    const OpDef& op = *node.op;
    try {
      return op.gradient(args);
    } catch (Error& error) {
      const std::string in = saved_ones("in", op.saves_inputs, args.in.size()),
                        out = saved_ones("out", op.saves_outputs, args.out.size());
      if (std::string_view(error.what()).find("handle") == std::string_view::npos ||
          (in.empty() && out.empty()))
        throw;
      error.prepend(str(op.name,
                        ": the gradient rule may read only what its record saves; it read an undefined "
                        "tensor, and the record saves ",
                        in.empty() ? "every input" : in, " and ", out.empty() ? "every output" : out,
                        ". Set saves_inputs, whose bit i stands for in[i] (0b11: in[0] and in[1]), or "
                        "saves_outputs. What the rule met: "));
      throw;
    }
  }
  /// "no in[…]", "in[0] in[2]"; empty where all of them are saved.
  static std::string saved_ones(const char* what, uint32_t mask, size_t count) {
    std::string names;
    size_t saved = 0;
    for (size_t i = 0; i < count && i < 32; ++i)
      if (mask >> i & 1) names += str(saved++ ? ", " : "", what, "[", i, "]");
    return saved == count ? "" : saved ? names : str("no ", what, "[]");
  }

  Tensor unpack(const TapeNode& node, const TapeNode::Saved& saved, const char* what, size_t index) {
    if (is_stale(tracer_, saved)) [[unlikely]]
      refuse_stale(node.name(), str(what, " ", index));
    return saved.value ? Tensor(saved.value) : Tensor();
  }

  /// Every gradient that a rule returns must fit its input; axes that were broadcast are summed here, for all rules.
  Tensor checked(const TapeNode& node, size_t i, Tensor g) {
    const Description& want = node.in_meta[i];
    if (g.shape() != want.shape) g = g_ops.sum_to(g, want.shape);
    TD_CHECK(g.dtype() == want.dtype && g.device() == want.device, node.op->name,
             ": the gradient rule must give a gradient like input ", i, ", ", want.dtype, " on ", want.device,
             "; got ", describe(g), ".");
    return g;
  }

  const BackwardOptions& options_;
  const Tracer* tracer_ = current_tracer();
  std::vector<Ref<TapeNode>> roots_;
  std::vector<Ref<TensorImpl>> leaf_roots_;
  std::unordered_map<const void*, int64_t> pending_;
  std::map<Target, Tensor> watched_;
  std::map<Target, Tensor> gradients_, kept_;
  std::map<Target, size_t> ends_;
  std::vector<Tensor> reached_;
  std::vector<TapeNode::Delivery> ended_;
  std::priority_queue<TapeNode*, std::vector<TapeNode*>, Later> queue_;
};

/// Calls visit(node) once for each node that the outputs depend on and that is `inside`.
template <class Inside, class Visit>
void for_each_node(std::span<const Tensor> outputs, Inside inside, Visit visit) {
  std::unordered_set<const TapeNode*> seen;
  std::vector<const TapeNode*> stack;
  const auto push = [&](const TapeNode* node) {
    if (node && inside(*node) && seen.insert(node).second) stack.push_back(node);
  };
  for (const Tensor& t : outputs) push(t.impl()->node.get());
  while (!stack.empty()) {
    const TapeNode* node = stack.back();
    stack.pop_back();
    visit(*node);
    for (const auto& edge : node->edges) push(edge.node.get());
  }
}

}  // namespace

void backward(const Tensor& output, const Tensor& seed, const BackwardOptions& options) {
  BodyScope::refuse("backward");
  Walk walk(options);
  walk.start(output, seed);
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
    TD_CHECK(
        !current_observer(),
        "backward: must not be called inside checkpoint(), which runs its function twice. Use grad() there, "
        "or do it outside.");
    leaf.impl()->grad =
        without_mark(total).ref();  // in a trace: added to what is there, which set_grad() would replace
  }
}

std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed,
                         const BackwardOptions& options, bool allow_unused) {
  Walk walk(options);
  walk.start(output, seed);
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

// Results that are one output of one node share a slot, since gradients of them are added before they arrive.
Outputs outputs_of(std::span<const Tensor> tensors, const std::function<bool(const TapeNode&)>& inside) {
  Outputs outputs;
  std::map<Target, int> seen;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TapeNode* node = tensors[i].impl()->node.get();
    if (!node || !inside(*node)) {
      outputs.slot.push_back(-1);
      continue;
    }
    const auto [at, fresh] = seen.emplace(target_of(tensors[i]), static_cast<int>(outputs.first.size()));
    if (fresh) outputs.first.push_back(i);
    outputs.slot.push_back(at->second);
  }
  outputs.within.assign(outputs.first.size(), false);
  for_each_node(tensors, inside, [&](const TapeNode& node) {
    for (const auto& edge : node.edges)
      if (edge.node)
        if (const auto at = seen.find(target_of(edge)); at != seen.end())
          outputs.within[static_cast<size_t>(at->second)] = true;
  });
  return outputs;
}

std::vector<TapeNode::Edge> edges_out_of(std::span<const Tensor> outputs,
                                         const std::function<bool(const TapeNode&)>& inside) {
  std::vector<TapeNode::Edge> out;
  std::set<Target> seen;
  for_each_node(outputs, inside, [&](const TapeNode& node) {
    for (const auto& edge : node.edges)
      if (edge.needed() && !(edge.node && inside(*edge.node)) && seen.insert(target_of(edge)).second)
        out.push_back(edge);
  });
  return out;
}

std::vector<TapeNode::Delivery> gradients_at(std::span<const TapeNode::Edge> ends,
                                             std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                                             bool create_graph) {
  const BackwardOptions options{.create_graph = create_graph};
  Walk walk(options);
  walk.end_at(ends);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (seeds[i].defined()) walk.start(outputs[i], seeds[i]);
  walk.run();
  return std::move(walk.ended());
}

}  // namespace tandem
