#include "tandem/graph/entry.h"

#include <algorithm>
#include <chrono>

#include "tandem/core/tape.h"
#include "tandem/graph/references.h"

namespace tandem::graph {

namespace {

std::string describe_signature(const std::vector<Tensor>& inputs, const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    text += str(text.empty() ? "" : ", ", i < names.size() ? names[i] + " " : "", t.dtype(), " ", t.shape(),
                " ", t.device());
    if (!t.is_contiguous()) text += str(" strides ", t.strides());
    if (t.requires_grad()) text += " requires_grad";
  }
  if (const std::optional<DType> low = autocast_dtype()) text += str("; autocast ", *low);
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
  for (int n = g.first(); n != kNone; n = g.next(n)) {
    const Node& node = g.node(n);
    ++c.total;
    if (node.is_fused())
      ++c.cheap;
    else
      add(*node.op);
  }
  return c;
}

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

/// The passes, over a graph and the bodies of its nodes.
void run_passes(Graph& g, const CompileOptions& options, GraphReport& report) {
  if (options.verify) g.verify("tracing");
  for (const std::string& name : options.passes) {
    const Pass& pass = find_pass(name);
    if (anomaly_mode() && pass.hides_ops) continue;
    run_stage(name, g, report, [&] { pass.run(g); });
    if (options.verify) g.verify(name.c_str());
  }
  for (int n = g.first(); n != kNone; n = g.next(n))
    for (size_t k = 0; g.node(n).bodies && k < g.node(n).bodies->list.size(); ++k) {
      auto body = std::make_shared<Graph>(*g.node(n).bodies->list[k].graph);
      GraphReport unused;
      run_passes(*body, options, unused);
      g.set_body(n, k, std::move(body));
    }
}

}  // namespace

std::unique_ptr<Executor> make_executor(Graph g, const CompileOptions& options, GraphReport& report) {
  run_passes(g, options, report);
  MemoryPlan plan;
  if (options.plan_memory)
    run_stage("plan_memory", g, report, [&] { plan = plan_memory(g, true); });
  else
    plan = plan_memory(g, false);
  report.values_bytes = plan.values_bytes;
  report.arena_bytes = plan.arena_bytes;
  return Executor::make(std::move(g), std::move(plan), anomaly_mode());
}

// The function is traced (twice, see repeated_trace.h). Where gradients may be asked for, the trace is continued backwards once to learn which
// values that needs; the forward graph then returns them as outputs behind the results and gradients. The backward
// graph itself is made at the first backward pass, when the layouts of the arriving gradients are known.
std::shared_ptr<Entry> make_entry(const TensorFunction& function, size_t layout,
                                  const CompileOptions& options, const std::vector<Tensor>& inputs,
                                  LeftBehind& left_behind) {
  auto entry = std::make_shared<Entry>(inputs, layout);
  std::unique_ptr<Trace> traced = trace_checked(function, inputs, options.verify, left_behind);
  for (size_t i = 0; i < traced->results.size(); ++i) {
    const Tensor& result = traced->results[i];
    entry->results.push_back({result.impl()->copied_by, traced->returned_input[i],
                              result.is_traced() ? Ref<TensorImpl>() : result.ref(), traced->outputs.slot[i],
                              result.is_leaf() && result.impl()->requires_grad});
  }
  GraphReport& report = entry->report;
  report.signature = describe_signature(inputs, options.input_names);
  report.input_names = options.input_names;
  report.inputs = traced->graph.inputs;
  report.captured = traced->graph.captured;
  report.outputs = static_cast<int>(traced->results.size());
  entry->outputs = traced->outputs.first.size();
  entry->within = traced->outputs.within;
  if (entry->outputs) {
    std::vector<Meta> layouts;  // any will do to learn which values are needed
    for (size_t i : traced->outputs.first) {
      const Meta& meta = traced->results[i].meta();
      layouts.push_back(contiguous_meta(meta.shape, meta.dtype, meta.device));
    }
    std::vector<const Meta*> arriving;
    for (const Meta& meta : layouts) arriving.push_back(&meta);
    try {
      entry->kept = differentiate(*traced, arriving).kept;
    } catch (const std::exception& error) {  // of a rule or a hook: it belongs to the backward pass
      entry->stale = error.what();
    }
    report.kept = static_cast<int>(entry->kept.size());
  }
  const bool differentiable = entry->outputs && entry->stale.empty();
  // The trace keeps its graph where it will be continued again.
  Graph forward = differentiable ? traced->graph : std::move(traced->graph);
  for (int v : entry->kept) forward.add_output(v);
  forward.kept = static_cast<int>(entry->kept.size());
  entry->depends_on = std::move(traced->depends_on);
  entry->gradients = std::move(traced->gradients);
  entry->ends = traced->ends;
  entry->executor = make_executor(std::move(forward), options, report);
  if (differentiable) entry->trace = std::move(traced);
  entry->count_references();
  return entry;
}

void Entry::count_references() {
  References all;
  for (const Capture& capture : depends_on.captures) all.add(capture.tensor);
  for (const HeldGradient& held : depends_on.gradients) {
    all.add(held.tensor);
    all.add(held.gradient);
  }
  for (const LeafGradient& gradient : gradients) all.add(gradient.leaf);
  for (const Result& result : results) all.add(result.tensor);
  for (const End& end : ends) {
    all.add(end.edge.leaf);
    if (!end.edge.leaf || !trace) continue;
    uint32_t& by_call = holds[end.edge.leaf.get()].by_call;
    by_call += 2;  // by the node of the tape and by what it keeps
    most.by_call = std::max(most.by_call, by_call);
  }
  if (trace) {
    for (const End& end : trace->ends) all.add(end.edge.leaf);
    for (const Tensor& result : trace->results) all.add(result.ref());
    all.follow();
  }
  for (const auto& [tensor, count] : all.counts()) {
    if (tensor->trace_serial) continue;
    holds[tensor].always = count;
    most.always = std::max(most.always, count);
  }
}

namespace {
/// Of all references to a tensor those by these entries.
uint32_t references_by(std::span<const EntryInUse> all, const TensorImpl* tensor) {
  uint32_t count = 0;
  for (const auto& [entry, calls] : all)
    if (const auto found = entry->holds.find(tensor); found != entry->holds.end())
      count += found->second.always + calls * found->second.by_call;
  return count;
}
}  // namespace

bool captures_are_held(const Entry& entry, std::span<const EntryInUse> all) {
  return std::all_of(entry.watched.begin(), entry.watched.end(), [&](const TensorImpl* tensor) {
    return tensor->use_count() > references_by(all, tensor);
  });
}

void watch_captures(Entry& entry, std::span<const EntryInUse> all) {
  for (const Capture& capture : entry.depends_on.captures)
    if (capture.tensor->use_count() > references_by(all, capture.tensor.get()))
      entry.watched.push_back(capture.tensor.get());
}

}  // namespace tandem::graph
