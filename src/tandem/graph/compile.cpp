#include "tandem/graph/compiled_state.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tandem/core/composed.h"
#include "tandem/core/region.h"
#include "tandem/core/warning.h"

namespace tandem {

namespace {

using graph::Backward;
using graph::Entry;
using graph::Graph;

/// "input 2", or "input 'mask'" where inputs have names.
std::string input_text(const CompiledState::InputNames& names, size_t i) {
  return i < names.size() ? str("input '", names[i], "'") : str("input ", i);
}

/// Memory that is changed must not come in twice under different names: the trace could not see that it is one.
void check_aliases(const Entry& entry, const std::vector<Tensor>& inputs,
                   const CompiledState::InputNames& names) {
  const auto input = [&](size_t i) { return input_text(names, i); };
  const graph::Executor& executor = *entry.executor;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Ref<Storage>& storage = inputs[i].impl()->storage;
    for (const auto& changed : executor.changed_memory())
      TD_CHECK(!(changed == storage), "compile: ", input(i),
               " shares memory with a captured tensor that the callable assigns to. Pass a clone().");
    if (!executor.changes_input()[i]) continue;
    check_target("compile", inputs[i]);  // the trace may have seen one without a mark
    for (size_t j = 0; j < inputs.size(); ++j)
      TD_CHECK(i == j || !(inputs[j].impl()->storage == storage), "compile: ", input(i),
               " is assigned to by the callable and shares memory with ", input(j), ". Pass a clone().");
    for (const auto& capture : entry.depends_on.captures)
      TD_CHECK(!(capture.storage == storage), "compile: ", input(i),
               " is assigned to by the callable and shares memory with a captured tensor. Pass a clone().");
  }
}

/// A leaf that comes in under two names would get its gradient in two parts.
void check_leaves(const Entry& entry, const std::vector<Tensor>& inputs,
                  const CompiledState::InputNames& names) {
  const auto input = [&](size_t i) { return input_text(names, i); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!entry.signature.inputs[i].requires_grad) continue;
    for (size_t j = 0; j < i; ++j)
      TD_CHECK(!inputs[i].same(inputs[j]),
               "compile: a tensor that requires a gradient must be one input; got it as ", input(j), " and ",
               input(i), ". Pass it once.");
    const auto check = [&](const Ref<TensorImpl>& captured) {
      TD_CHECK(inputs[i].impl() != captured.get(), "compile: ", input(i),
               " requires a gradient and is captured by the callable, too. Use it by one of the two ways.");
    };
    for (const auto& capture : entry.depends_on.captures) check(capture.tensor);
    for (const auto& gradient : entry.depends_on.gradients) check(gradient.tensor);
    for (const auto& gradient : entry.gradients) check(gradient.leaf);
  }
  for (const auto& gradient : entry.gradients)
    TD_CHECK(
        gradient.output < 0 || gradient.input < 0 || inputs[static_cast<size_t>(gradient.input)].is_leaf(),
        "backward: inside a compiled callable gradients must end at leaves; they reach input ",
        gradient.input,
        ", which is the result of an operation outside. Move that operation into the callable, detach() the "
        "input, or call backward() on the results.");
}

}  // namespace

// A captured tensor may be a result, which holds this. A call in progress on another thread holds the lock; its entries then go
// with the state.
void CompiledState::leave() {
  has_owner = false;
  std::list<std::shared_ptr<Entry>> gone;
  if (std::unique_lock lock(mutex, std::try_to_lock); lock.owns_lock()) gone.swap(entries);
}

std::vector<graph::EntryInUse> CompiledState::entries_in_use() {
  std::vector<graph::EntryInUse> all;
  const auto add = [&](std::shared_ptr<Entry> entry, long others) {
    const auto calls = static_cast<uint32_t>(entry.use_count() - others);
    all.push_back({std::move(entry), calls});
  };
  for (const std::shared_ptr<Entry>& entry : entries) add(entry, 2);  // the list, and this one
  std::erase_if(dropped, [](const auto& entry) { return entry.expired(); });
  for (const std::weak_ptr<Entry>& weak : dropped)
    if (std::shared_ptr<Entry> entry = weak.lock()) add(std::move(entry), 1);
  return all;
}

bool CompiledState::captures_are_held(const Entry& entry) {
  uint32_t most = 0;
  for (const std::shared_ptr<Entry>& each : entries)
    most += each->most.always + static_cast<uint32_t>(each.use_count() - 1) * each->most.by_call;
  const auto has_more = [&](const TensorImpl* tensor) { return tensor->use_count() > most; };
  if (dropped.empty() && std::all_of(entry.watched.begin(), entry.watched.end(), has_more)) return true;
  return graph::captures_are_held(entry, entries_in_use());
}

namespace {

/// What one call keeps for the backward pass of its results.
struct Kept {
  std::shared_ptr<CompiledState> state;
  std::shared_ptr<Entry> entry;
  std::vector<Tensor> inputs;
  std::vector<TapeNode::Saved> values;  // Entry::kept
  std::vector<uint32_t> inputs_seen;    // their versions when the call ended
  mutable std::vector<uint32_t> captures_seen;
  std::vector<TapeNode::Edge> ends;
  GeneratorState random;

  void check(bool holds, const char* what, size_t i) const {
    TD_CHECK(holds, "compile: ", what, " ", i,
             " of the callable is needed for the gradient but was changed in place (by assign() or the like) "
             "after the call. Change it after backward(), or change a clone().");
  }
  void check_input(size_t i) const { check(version_of(inputs[i]) == inputs_seen[i], "input", i); }
  void check_capture(size_t i) const {
    const graph::Capture& capture = entry->depends_on.captures[i];
    check(capture.memory_holds() && capture.storage->version() == captures_seen[i], "captured tensor", i);
  }

  /// The backward pass of one call, by the graph that fits the gradients that arrive. Where that graph would need a
  /// value that the call did not keep, or would change its inputs, the function is run again instead.
  std::vector<TapeNode::Delivery> operator()(std::span<const Tensor> grads) const {
    if (grad_enabled()) return run_again(grads);  // the gradient is to be recorded
    std::unique_lock lock(state->mutex);
    const Backward& backward = state->backward_for(*entry, grads);
    if (!backward.executor) {
      lock.unlock();
      return run_again(grads);
    }
    for (size_t i : backward.captures) check_capture(i);
    std::vector<Tensor> in;
    for (const Tensor& grad : grads)
      if (grad.defined()) in.push_back(grad);
    for (size_t i : backward.kept)
      in.push_back(unpack_saved(values[i], "compile", "a value of the callable"));
    const std::vector<Tensor> out = backward.executor->run(in, state->arena_of(*backward.executor), random);
    for (size_t i : backward.captures)  // a checkpoint inside puts state back and changes it again
      captures_seen[i] = entry->depends_on.captures[i].storage->version();
    std::vector<TapeNode::Delivery> deliveries;
    for (size_t i = 0; i < out.size(); ++i) deliveries.push_back({backward.ends[i], out[i]});
    return deliveries;
  }

 private:
  /// By calling the function again, eagerly.
  std::vector<TapeNode::Delivery> run_again(std::span<const Tensor> grads) const {
    const graph::Executor& executor = *entry->executor;
    bool changes = !executor.changed_memory().empty() || !entry->gradients.empty();
    for (bool changed : executor.changes_input()) changes = changes || changed;
    const char* const kWhy =
        "compile: this gradient runs the callable again (it is recorded itself, by create_graph, or needs "
        "what a call does not keep), so ";
    TD_CHECK(!changes, kWhy,
             "the callable must neither change tensors in place nor call backward(). Compile the whole "
             "computation instead.");
    TD_CHECK(state->has_owner, kWhy, "its Compiled must still be there. Keep it until after backward().");
    bool as_it_was = entry->depends_on.hold();
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_input(i);
      as_it_was = as_it_was && inputs[i].impl()->requires_grad == entry->signature.inputs[i].requires_grad;
    }
    for (size_t i = 0; i < captures_seen.size(); ++i) check_capture(i);
    TD_CHECK(
        as_it_was, kWhy,
        "what the callable depends on (train/eval mode, requires_grad, hooks) must not have changed since "
        "the call. Change it after backward().");
    const bool create_graph = grad_enabled();
    std::vector<Tensor> results;
    {
      const RandomReplay replay(random);
      const GradMode on(true);
      results = state->function(inputs, entry->signature.layout);
    }
    std::vector<TapeNode::Edge> now = ends;  // leaves that the callable made are others
    for (size_t k = 0; k < now.size(); ++k)
      if (const int result = entry->ends[k].result; result >= 0 && entry->ends[k].input < 0)
        now[k] = edge_of(results.at(static_cast<size_t>(result)));
    std::vector<Tensor> outputs(entry->outputs);
    for (size_t i = 0; i < entry->results.size(); ++i)
      if (const int slot = entry->results[i].slot; slot >= 0)
        outputs[static_cast<size_t>(slot)] = results.at(i);
    return gradients_at(now, outputs, grads, create_graph);
  }
};

/// Makes `outputs` results of the callable on the tape, as after a plain call of it.
void put_on_tape(const std::shared_ptr<CompiledState>& state, const std::shared_ptr<Entry>& entry,
                 const std::vector<Tensor>& inputs, const std::vector<Tensor>& results,
                 std::span<Tensor> outputs, std::span<const Tensor> values, GeneratorState random) {
  if (!entry->trace) {
    record("compile", {}, outputs, [entry](std::span<const Tensor>) -> std::vector<TapeNode::Delivery> {
      throw Error(entry->stale);
    });
    return;
  }
  Kept kept{state, entry, inputs, {}, {}, {}, {}, random};
  for (const graph::End& end : entry->ends)
    kept.ends.push_back(end.input >= 0    ? edge_of(inputs[static_cast<size_t>(end.input)])
                        : end.result >= 0 ? edge_of(results[static_cast<size_t>(end.result)])
                                          : end.edge);
  for (const Tensor& value : values) kept.values.push_back(save_for_gradient(value));
  for (const Tensor& input : inputs) kept.inputs_seen.push_back(version_of(input));
  for (const graph::Capture& capture : entry->depends_on.captures)
    kept.captures_seen.push_back(capture.storage->version());
  std::vector<TapeNode::Edge> edges = kept.ends;
  record("compile", std::move(edges), outputs, std::move(kept))->extra->within = entry->within;
}

}  // namespace

// Which gradients are defined, and how they lie, decides which graph fits. The oldest is dropped at cache_size.
Backward& CompiledState::backward_for(Entry& entry, std::span<const Tensor> grads) {
  for (Backward& known : entry.backwards)
    if (known.fits(grads)) return known;
  if (entry.backwards.size() >= options.cache_size) entry.backwards.pop_back();
  Backward made;
  std::vector<const Meta*> arriving;
  for (const Tensor& grad : grads)
    made.arriving.push_back(grad.defined() ? std::optional(grad.meta()) : std::nullopt);
  for (const auto& meta : made.arriving) arriving.push_back(meta ? &*meta : nullptr);
  graph::BackwardGraph backward = graph::differentiate(*entry.trace, arriving);
  made.ends = std::move(backward.ends);
  made.depends_on = std::move(backward.depends_on);
  std::unordered_map<int, size_t> places;
  for (size_t i = 0; i < entry.kept.size(); ++i) places.emplace(entry.kept[i], i);
  bool all_kept = true;
  for (int v : backward.kept) {
    const auto at = places.find(v);
    all_kept = all_kept && at != places.end();
    if (all_kept) made.kept.push_back(at->second);
  }
  if (all_kept) {
    GraphReport report;
    made.executor = graph::make_executor(std::move(backward.graph), options, report);
    // Its inputs are gradients and kept values that others may still hold: it must not change them.
    const std::vector<bool>& changed = made.executor->changes_input();
    if (std::find(changed.begin(), changed.end(), true) != changed.end()) made.executor.reset();
  }
  if (made.executor) {
    const Graph& g = made.executor->graph();
    // Only captured memory that the backward graph reads must be unchanged since the call.
    std::unordered_set<const Storage*> read;
    for (int v = 0; v < g.value_count(); ++v) read.insert(g.value(v).storage.get());
    for (size_t i = 0; i < entry.depends_on.captures.size(); ++i)
      if (read.count(entry.depends_on.captures[i].storage.get())) made.captures.push_back(i);
  }
  return entry.backwards.emplace_front(std::move(made));
}

CompiledState::CompiledState(Function f, CompileOptions o) : function(std::move(f)), options(std::move(o)) {
  TD_CHECK(options.cache_size >= 1, "compile: cache_size must be at least 1; got ", options.cache_size, ".");
}

Compiled::Compiled(TensorFunction function, CompileOptions options) {
  TD_CHECK(function, "compile: the callable must not be empty.");
  state_ = std::make_shared<CompiledState>(
      [function = std::move(function)](const std::vector<Tensor>& in, size_t) { return function(in); },
      std::move(options));
}
Compiled::Compiled(Compiled&&) noexcept = default;
Compiled& Compiled::operator=(Compiled&& other) noexcept {
  if (this == &other) return *this;
  if (state_) state_->leave();
  state_ = std::move(other.state_);
  return *this;
}
Compiled::~Compiled() {
  if (state_) state_->leave();
}

Tensor Compiled::only(std::vector<Tensor> results) {
  TD_CHECK(results.size() == 1,
           "compile: a callable that is called with single tensors must return one; got ", results.size(),
           " results. Call it with a list: f({x, y}).");
  return std::move(results[0]);
}

void detail::refuse_inputs(size_t got, size_t takes) {
  throw Error(
      str("compile: this callable takes ", takes, takes == 1 ? " tensor" : " tensors", "; got ", got, "."));
}

CompiledState& Compiled::state() const {
  TD_CHECK(state_, "compile: this Compiled was moved from and is empty. Call the one that it was moved to.");
  return *state_;
}

// Entries that can never fit again (a choice has changed, captured memory has been replaced) are dropped on the way.
// One whose switches differ now, such as training mode, stays: they may be set back.
Entry& CompiledState::entry_for(const std::vector<Tensor>& inputs, size_t layout, const InputNames& names) {
  auto found = entries.end();
  for (auto at = entries.begin(); at != entries.end();) {
    if ((*at)->signature.choices != choice_epoch()) {  // never again
      at = drop(at);
      continue;
    }
    if (found == entries.end() && (*at)->signature.matches(inputs, layout)) {
      if (!(*at)->depends_on.memory_holds() || !captures_are_held(**at)) {
        at = drop(at);  // never again
        continue;
      }
      if ((*at)->depends_on.hold()) found = at;
    }
    ++at;
  }
  if (found == entries.end()) {
    CompileOptions named = options;
    named.input_names = names;
    const auto traced = [&](const std::vector<Tensor>& in) { return function(in, layout); };
    entries.push_front(graph::make_entry(traced, layout, named, inputs, left_behind));
    graph::watch_captures(*entries.front(), entries_in_use());
    drop_oldest_of(layout);
  } else if (found != entries.begin()) {
    entries.splice(entries.begin(), entries, found);
  }
  return *entries.front();
}

// Each layout has room for cache_size entries.
void CompiledState::drop_oldest_of(size_t layout) {
  size_t count = 0;
  EntryAt oldest = entries.end();
  for (EntryAt at = entries.begin(); at != entries.end(); ++at)
    if ((*at)->signature.layout == layout) {
      ++count;
      oldest = at;
    }
  if (count <= options.cache_size) return;
  drop(oldest);
  if (!std::exchange(has_warned, true))
    warn(
        str("compile: a callable was traced for more signatures (input shapes and types, modes) than it "
            "keeps, ",
            options.cache_size,
            ", so the one unused longest was dropped; a call with a dropped one traces again. Pad inputs to "
            "fewer shapes, or set CompileOptions::cache_size to the number of signatures."));
}

std::vector<Tensor> CompiledState::call(const std::vector<Tensor>& inputs, size_t layout,
                                        const InputNames& names) {
  for (const Tensor& t : inputs)
    TD_CHECK(t.defined(), "compile: every input must be a tensor; got an undefined handle.");
  // As part of a larger trace, or of code that was traced first; and where somebody looks at each operation.
  if (current_tracer() || current_observer() || BodyScope::is_open() || composed_run())
    return function(inputs, layout);
  for (size_t i = 0; i < inputs.size(); ++i)
    TD_CHECK(!inputs[i].is_traced(), "compile: every input must have values; got, as ", input_text(names, i),
             ", a tensor of a compiled callable outside of it: ", describe(inputs[i]),
             ". Return it from the callable and use the result.");
  std::lock_guard lock(mutex);
  Entry& entry = entry_for(inputs, layout, names);
  check_aliases(entry, inputs, names);
  check_leaves(entry, inputs, names);
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
  // All random numbers of the call are taken at once; each node has its offset from here.
  const RngPosition random = take_random(entry.executor->graph().random_blocks);
  const GeneratorState place{random.seed, random.offset};
  std::vector<Tensor> all = entry.executor->run(inputs, arena_of(*entry.executor), place);
  for (const auto& gradient : entry.gradients)
    if (gradient.output >= 0) leaf_of(gradient).set_grad(all[static_cast<size_t>(gradient.output)]);

  std::vector<Tensor> outputs(entry.outputs), results;
  for (size_t i = 0; i < entry.results.size(); ++i) {
    const Entry::Result& result = entry.results[i];
    all[i].impl()->copied_by = result.mark;
    all[i].impl()->requires_grad = result.is_leaf;
    if (result.input >= 0)
      results.push_back(inputs[static_cast<size_t>(result.input)]);
    else if (result.tensor)
      results.push_back(Tensor(result.tensor));
    else if (result.slot >= 0 && outputs[static_cast<size_t>(result.slot)].defined())
      results.push_back(outputs[static_cast<size_t>(result.slot)]);
    else
      results.push_back(all[i]);
    if (result.slot >= 0) outputs[static_cast<size_t>(result.slot)] = results.back();
  }
  if (!outputs.empty())
    put_on_tape(shared_from_this(), entries.front(), inputs, results, outputs,
                std::span(all).last(entry.kept.size()), place);
  return results;
}

std::vector<std::pair<size_t, GraphReport>> CompiledState::reports() {
  std::lock_guard lock(mutex);
  std::vector<std::pair<size_t, GraphReport>> out;
  for (auto at = entries.rbegin(); at != entries.rend(); ++at) {
    GraphReport& report = out.emplace_back((*at)->signature.layout, (*at)->report).second;
    report.executor = (*at)->executor->describe();
    report.graph = (*at)->executor->view();
  }
  return out;
}

std::vector<Tensor> Compiled::operator()(const std::vector<Tensor>& inputs) {
  CompiledState& state = this->state();
  return state.call(inputs, 0, state.options.input_names);
}

std::vector<GraphReport> Compiled::reports() const {
  std::vector<GraphReport> out;
  for (auto& [layout, report] : state().reports()) out.push_back(std::move(report));
  return out;
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
