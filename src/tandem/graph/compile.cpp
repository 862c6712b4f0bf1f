#include "tandem/graph/compile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <mutex>

#include "tandem/core/choice_cache.h"
#include "tandem/core/mutex.h"
#include "tandem/core/tape.h"
#include "tandem/graph/executor.h"
#include "tandem/graph/tracer.h"

namespace tandem {

namespace {

using graph::Graph;

/// What a trace depends on besides graph::Dependencies.
struct Signature {
  struct Input {
    Meta meta;
    bool requires_grad = false;
  };
  std::vector<Input> inputs;
  bool grad = grad_enabled(), anomaly = anomaly_mode();
  uint64_t choices = choice_epoch();  // a recording holds the algorithms of its time

  explicit Signature(const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors) inputs.push_back({t.meta(), t.impl()->requires_grad});
  }
  bool matches(const std::vector<Tensor>& tensors) const {
    if (tensors.size() != inputs.size() || grad != grad_enabled() || anomaly != anomaly_mode()) return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Meta &a = inputs[i].meta, &b = tensors[i].meta();
      const bool same = a.shape == b.shape && a.strides == b.strides && a.dtype == b.dtype &&
                        a.device == b.device && inputs[i].requires_grad == tensors[i].impl()->requires_grad;
      if (!same) return false;
    }
    return true;
  }
};

std::string describe_signature(const std::vector<Tensor>& inputs) {
  std::string text;
  for (const Tensor& t : inputs) {
    text += cat(text.empty() ? "" : ", ", t.dtype(), " ", t.shape(), " ", t.device());
    if (!t.is_contiguous()) text += cat(" strides ", t.strides());
    if (t.requires_grad()) text += " requires_grad";
  }
  return text + (grad_enabled() ? "; grad" : "; no grad") + (anomaly_mode() ? "; anomaly" : "");
}

struct Counts {
  int total = 0, expensive = 0, cheap = 0, no_op = 0;
};
Counts count(const Graph& g) {
  Counts c;
  const auto add = [&](const OpDef& op) {
    (op.cost == Cost::expensive ? c.expensive : op.cost == Cost::cheap ? c.cheap : c.no_op) += 1;
  };
  for (int n = g.first(); n != graph::kNone; n = g.next(n)) {
    const graph::Node& node = g.node(n);
    ++c.total;
    if (node.is_fused())
      ++c.cheap;
    else
      add(*node.op);
  }
  return c;
}

/// One traced signature.
struct Entry {
  explicit Entry(const std::vector<Tensor>& inputs) : signature(inputs) {}
  Signature signature;
  graph::Dependencies depends_on;
  std::vector<graph::LeafGradient> gradients;
  std::vector<const CopyMark*> marks;  // of the results
  std::unique_ptr<graph::Executor> executor;
  GraphReport report;
};

/// Runs one stage and reports what it did.
template <class Stage>
void run_stage(const std::string& name, const Graph& g, GraphReport& report, Stage stage) {
  const Counts before = count(g);
  const auto start = std::chrono::steady_clock::now();
  stage();
  PassReport pass;
  pass.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const Counts after = count(g);
  pass.pass = name;
  pass.nodes_before = before.total;
  pass.nodes_after = after.total;
  pass.removed_expensive = before.expensive - after.expensive;
  pass.removed_cheap = before.cheap - after.cheap;
  pass.removed_no_op = before.no_op - after.no_op;
  report.passes.push_back(pass);
}

std::unique_ptr<Entry> build(const TensorFunction& function, const CompileOptions& options,
                             const std::vector<Tensor>& inputs) {
  auto entry = std::make_unique<Entry>(inputs);
  graph::Trace traced = graph::trace(function, inputs);
  Graph& g = traced.graph;
  GraphReport& report = entry->report;
  report.signature = describe_signature(inputs);
  report.inputs = g.inputs;
  report.captured = g.captured;
  report.outputs = static_cast<int>(traced.results);
  if (options.verify) g.verify("tracing");
  for (const std::string& name : options.passes) {
    const graph::Pass pass = graph::find_pass(name);
    // A fused chain would hide which op made a NaN.
    if (anomaly_mode() && name == "fuse_pointwise") continue;
    run_stage(name, g, report, [&] { pass(g); });
    if (options.verify) g.verify(name.c_str());
  }
  graph::MemoryPlan plan;
  if (options.plan_memory)
    run_stage("plan_memory", g, report, [&] { plan = graph::plan_memory(g, true); });
  else
    plan = graph::plan_memory(g, false);
  report.values_bytes = plan.values_bytes;
  report.arena_bytes = plan.arena_bytes;
  entry->depends_on = std::move(traced.depends_on);
  entry->gradients = std::move(traced.gradients);
  entry->marks = std::move(traced.marks);
  entry->executor = graph::Executor::make(std::move(g), std::move(plan), anomaly_mode());
  return entry;
}

/// Memory that is changed must not come in twice under different names: the trace could not see that it is one.
void check_aliases(const Entry& entry, const std::vector<Tensor>& inputs) {
  const graph::Executor& executor = *entry.executor;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Ref<Storage>& storage = inputs[i].impl()->storage;
    for (const auto& changed : executor.changed_memory())
      TD_CHECK(!(changed == storage), "compile: input ", i,
               " shares memory with a captured tensor that the callable assigns to. Pass a clone().");
    if (!executor.changes_input()[i]) continue;
    check_target("compile", inputs[i]);  // the trace may have seen one without a mark
    for (size_t j = 0; j < inputs.size(); ++j)
      TD_CHECK(i == j || !(inputs[j].impl()->storage == storage), "compile: input ", i,
               " is assigned to by the callable and shares memory with input ", j, ". Pass a clone().");
    for (const auto& capture : entry.depends_on.captures)
      TD_CHECK(!(capture.storage == storage), "compile: input ", i,
               " is assigned to by the callable and shares memory with a captured tensor. Pass a clone().");
  }
}

/// A leaf that comes in under two names would get its gradient in two parts.
void check_leaves(const Entry& entry, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!entry.signature.inputs[i].requires_grad) continue;
    for (size_t j = 0; j < i; ++j)
      TD_CHECK(!inputs[i].same(inputs[j]),
               "compile: a tensor that requires a gradient must be one input; got it as inputs ", j, " and ",
               i, ". Pass it once.");
    for (const auto& capture : entry.depends_on.captures)
      TD_CHECK(inputs[i].impl() != capture.tensor.get(), "compile: input ", i,
               " requires a gradient and is captured by the callable, too. Use it by one of the two ways.");
  }
}

/// As part of a larger trace: like a call of its own, the results have no tape, and gradients end at the inputs.
std::vector<Tensor> inlined(const TensorFunction& function, std::vector<Tensor> inputs) {
  for (Tensor& t : inputs)
    if (t.defined() && !t.is_leaf()) {
      const bool wanted = t.impl()->requires_grad;
      t = t.detach();
      t.impl()->requires_grad = wanted;
    }
  std::vector<Tensor> results = function(inputs);
  for (Tensor& t : results)
    if (t.defined() && !t.is_leaf()) t = t.detach();
  return results;
}

}  // namespace

struct Compiled::State {
  TensorFunction function;
  CompileOptions options;
  Mutex mutex{LockOrder::turn, "compiled callable"};   // one call at a time: the arena is shared
  std::list<std::unique_ptr<Entry>> entries;           // most recently used first
  std::map<std::pair<int, int>, graph::Arena> arenas;  // by device
};

Compiled::Compiled(TensorFunction function, CompileOptions options) : state_(std::make_unique<State>()) {
  TD_CHECK(function, "compile: the callable must not be empty.");
  TD_CHECK(options.cache_size >= 1, "compile: cache_size must be at least 1; got ", options.cache_size, ".");
  state_->function = std::move(function);
  state_->options = std::move(options);
}
Compiled::Compiled(Compiled&&) noexcept = default;
Compiled& Compiled::operator=(Compiled&&) noexcept = default;
Compiled::~Compiled() = default;

Compiled::State& Compiled::state() const {
  TD_CHECK(state_, "compile: this Compiled was moved from and is empty. Call the one that it was moved to.");
  return *state_;
}

std::vector<Tensor> Compiled::operator()(const std::vector<Tensor>& inputs) {
  State& state = this->state();
  if (current_tracer()) return inlined(state.function, inputs);
  std::lock_guard lock(state.mutex);
  for (const Tensor& t : inputs)
    TD_CHECK(t.defined(), "compile: every input must be a tensor; got an undefined handle.");
  auto& entries = state.entries;
  auto found = entries.end();
  for (auto at = entries.begin(); at != entries.end();) {
    if ((*at)->signature.choices != choice_epoch()) {  // never again
      at = entries.erase(at);
      continue;
    }
    if (found == entries.end() && (*at)->signature.matches(inputs)) {
      if (!(*at)->depends_on.memory_holds()) {  // never again
        at = entries.erase(at);
        continue;
      }
      if ((*at)->depends_on.hold()) found = at;
    }
    ++at;
  }
  if (found == entries.end()) {
    entries.push_front(build(state.function, state.options, inputs));
    if (entries.size() > state.options.cache_size) entries.pop_back();
  } else if (found != entries.begin()) {
    entries.splice(entries.begin(), entries, found);
  }
  Entry& entry = *entries.front();
  check_aliases(entry, inputs);
  check_leaves(entry, inputs);
  const auto leaf_of = [&](const graph::LeafGradient& gradient) {
    return gradient.leaf ? Tensor(gradient.leaf) : inputs[static_cast<size_t>(gradient.input)];
  };
  for (const auto& gradient : entry.gradients) {
    Tensor leaf = leaf_of(gradient);
    if (gradient.zeroed) leaf.zero_grad();
    TD_CHECK(!leaf.grad().defined(),
             "backward: inside a compiled callable a leaf must not hold a gradient from outside; "
             "got one on ",
             describe(leaf), ". Call zero_grad() first, or use grad().");
  }
  const Device device = entry.executor->graph().device;
  std::vector<Tensor> results =
      entry.executor->run(inputs, state.arenas[{static_cast<int>(device.kind), device.index}]);
  for (const auto& gradient : entry.gradients)
    if (gradient.output >= 0) leaf_of(gradient).set_grad(results[static_cast<size_t>(gradient.output)]);
  results.resize(entry.marks.size());
  for (size_t i = 0; i < results.size(); ++i) results[i].impl()->copied_by = entry.marks[i];
  return results;
}

std::vector<GraphReport> Compiled::reports() const {
  State& state = this->state();
  std::lock_guard lock(state.mutex);
  std::vector<GraphReport> out;
  for (auto at = state.entries.rbegin(); at != state.entries.rend(); ++at) {
    out.push_back((*at)->report);
    out.back().executor = (*at)->executor->describe();
    out.back().graph = (*at)->executor->view();
  }
  return out;
}

int GraphView::count(const std::string& op) const {
  int found = 0;
  for (const Node& node : nodes) {
    found += node.op == op;
    for (const auto& chain : node.fused)
      found += static_cast<int>(std::count(chain.begin(), chain.end(), op));
  }
  return found;
}

std::string GraphView::describe(const Node& node) const {
  const auto list = [&](const std::vector<int>& numbers) {
    std::string text;
    for (int v : numbers) {
      const Value& value = values[static_cast<size_t>(v)];
      text += cat(text.empty() ? "" : ", ", "%", v, " ", value.dtype, " ", value.shape);
    }
    return text;
  };
  std::string what = node.op, attributes;
  for (const Attribute& a : node.attributes)
    attributes += cat(attributes.empty() ? "" : ", ", a.name, "=", a.value.print());
  if (!attributes.empty()) what += "[" + attributes + "]";
  if (node.op.empty()) {
    std::string chains;
    for (const auto& chain : node.fused) {
      if (!chains.empty()) chains += " | ";
      for (size_t i = 0; i < chain.size(); ++i) chains += cat(i ? " " : "", chain[i]);
      if (chain.empty()) chains += "move";
    }
    what = "fused{" + chains + "}";
  }
  return cat(list(node.out), " = ", what, "(", list(node.in), ")", node.algorithm.empty() ? "" : "; ",
             node.algorithm);
}

std::vector<std::string> all_stages() {
  std::vector<std::string> names = all_passes();
  names.push_back("plan_memory");
  return names;
}

CompileOptions with_stages(const std::vector<std::string>& names) {
  CompileOptions options;
  options.passes.clear();
  options.plan_memory = false;
  for (const std::string& name : names)
    if (name == "plan_memory")
      options.plan_memory = true;
    else
      options.passes.push_back(name);
  return options;
}

namespace {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
std::atomic<bool> g_verify{true};
#else
std::atomic<bool> g_verify{false};
#endif
}  // namespace
bool verify_graphs() { return g_verify; }
void set_verify_graphs(bool on) { g_verify = on; }

Compiled compile(TensorFunction function, CompileOptions options) {
  return Compiled(std::move(function), std::move(options));
}

}  // namespace tandem
