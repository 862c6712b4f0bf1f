#include "tandem/graph/compile.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <mutex>

#include "tandem/core/choice_cache.h"
#include "tandem/core/tape.h"
#include "tandem/graph/executor.h"
#include "tandem/graph/tracer.h"

namespace tandem {

namespace {

using graph::Graph;

/// What a trace depends on besides its captures and flags.
struct Signature {
  struct Input {
    Meta meta;
    bool requires_grad = false;
  };
  std::vector<Input> inputs;
  bool grad = grad_enabled(), anomaly = anomaly_mode();
  uint64_t choices = choice_epoch();  // a recording holds the algorithms of its time

  explicit Signature(const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors) inputs.push_back({t.meta(), t.requires_grad()});
  }
  bool matches(const std::vector<Tensor>& tensors) const {
    if (tensors.size() != inputs.size() || grad != grad_enabled() || anomaly != anomaly_mode()) return false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Meta &a = inputs[i].meta, &b = tensors[i].meta();
      const bool same = a.shape == b.shape && a.strides == b.strides && a.dtype == b.dtype &&
                        a.device == b.device && inputs[i].requires_grad == tensors[i].requires_grad();
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
  for (const auto& node : g.nodes) {
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
  std::vector<graph::Capture> captures;
  std::vector<graph::Flag> flags;
  std::vector<graph::LeafGradient> gradients;
  size_t results = 0;
  std::unique_ptr<graph::Executor> executor;
  GraphReport report;
  std::vector<bool> changes_input;    // by input
  std::vector<Ref<Storage>> changed;  // captured memory that it assigns to

  bool captures_hold() const {
    return std::all_of(captures.begin(), captures.end(), [](const auto& c) { return c.holds(); });
  }
  bool flags_hold() const {
    return std::all_of(flags.begin(), flags.end(), [](const auto& f) { return f.holds(); });
  }
};

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
  bool share = false;
  for (const std::string& name : options.passes) {
    share = share || name == "plan_memory";
    // A fused chain would hide which op made a NaN.
    if (anomaly_mode() && name == "fuse_pointwise") continue;
    const Counts before = count(g);
    const auto start = std::chrono::steady_clock::now();
    graph::run_pass(name, g);
    const Counts after = count(g);
    PassReport pass;
    pass.pass = name;
    pass.nodes_before = before.total;
    pass.nodes_after = after.total;
    pass.removed_expensive = before.expensive - after.expensive;
    pass.removed_cheap = before.cheap - after.cheap;
    pass.removed_no_op = before.no_op - after.no_op;
    pass.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    report.passes.push_back(pass);
  }
  graph::MemoryPlan plan = graph::plan_memory(g, share);
  report.values_bytes = plan.values_bytes;
  report.arena_bytes = plan.arena_bytes;

  entry->changes_input.assign(inputs.size(), false);
  const std::vector<bool> assigned = g.assigned_bases();
  for (size_t b = 0; b < assigned.size(); ++b) {
    if (!assigned[b]) continue;
    if (g.values[b].source == graph::Source::input)
      entry->changes_input[static_cast<size_t>(g.values[b].input)] = true;
    if (g.values[b].source == graph::Source::captured) entry->changed.push_back(g.values[b].storage);
  }
  entry->captures = std::move(traced.captures);
  entry->flags = std::move(traced.flags);
  entry->gradients = std::move(traced.gradients);
  entry->results = traced.results;
  entry->executor = std::make_unique<graph::Executor>(std::move(g), std::move(plan), anomaly_mode());
  return entry;
}

/// Memory that is changed must not come in twice under different names: the trace could not see that it is one.
void check_aliases(const Entry& entry, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Ref<Storage>& storage = inputs[i].impl()->storage;
    for (const auto& changed : entry.changed)
      TD_CHECK(!(changed == storage), "compile: input ", i,
               " shares memory with a captured tensor that the callable assigns to. Pass a clone().");
    if (!entry.changes_input[i]) continue;
    for (size_t j = 0; j < inputs.size(); ++j)
      TD_CHECK(i == j || !(inputs[j].impl()->storage == storage), "compile: input ", i,
               " is assigned to by the callable and shares memory with input ", j, ". Pass a clone().");
    for (const auto& capture : entry.captures)
      TD_CHECK(!(capture.storage == storage), "compile: input ", i,
               " is assigned to by the callable and shares memory with a captured tensor. Pass a clone().");
  }
}

}  // namespace

struct Compiled::State {
  TensorFunction function;
  CompileOptions options;
  std::mutex mutex;                                    // one call at a time: the arena is shared
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

std::vector<Tensor> Compiled::operator()(const std::vector<Tensor>& inputs) {
  if (current_tracer()) return state_->function(inputs);  // part of a larger trace
  std::lock_guard lock(state_->mutex);
  for (const Tensor& t : inputs)
    TD_CHECK(t.defined(), "compile: every input must be a tensor; got an undefined handle.");
  auto& entries = state_->entries;
  auto found = entries.end();
  for (auto at = entries.begin(); at != entries.end();) {
    if ((*at)->signature.choices != choice_epoch()) {  // never again
      at = entries.erase(at);
      continue;
    }
    if (found == entries.end() && (*at)->signature.matches(inputs)) {
      if (!(*at)->captures_hold()) {  // its memory is gone for good
        at = entries.erase(at);
        continue;
      }
      if ((*at)->flags_hold()) found = at;
    }
    ++at;
  }
  if (found == entries.end()) {
    entries.push_front(build(state_->function, state_->options, inputs));
    if (entries.size() > state_->options.cache_size) entries.pop_back();
  } else if (found != entries.begin()) {
    entries.splice(entries.begin(), entries, found);
  }
  Entry& entry = *entries.front();
  check_aliases(entry, inputs);
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
      entry.executor->run(inputs, state_->arenas[{static_cast<int>(device.kind), device.index}]);
  for (const auto& gradient : entry.gradients)
    if (gradient.output >= 0) leaf_of(gradient).set_grad(results[static_cast<size_t>(gradient.output)]);
  results.resize(entry.results);
  return results;
}

std::vector<GraphReport> Compiled::reports() const {
  std::lock_guard lock(state_->mutex);
  std::vector<GraphReport> out;
  for (auto at = state_->entries.rbegin(); at != state_->entries.rend(); ++at) {
    out.push_back((*at)->report);
    out.back().executor = (*at)->executor->describe();
    out.back().nodes = (*at)->executor->describe_nodes();
  }
  return out;
}

Compiled compile(TensorFunction function, CompileOptions options) {
  return Compiled(std::move(function), std::move(options));
}

}  // namespace tandem
