// Loops: the step is traced once, by shapes. In a trace its graph becomes the body of one node; elsewhere it runs as plain
// code, each time on tensors that are leaves of a tape of its own.
#include "tandem/graph/loop.h"

#include <algorithm>

#include "tandem/graph/checkpoint.h"
#include "tandem/graph/loop_rule.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/shape.h"

namespace tandem::graph {

namespace {

using List = std::vector<Tensor>;

/// Slices that only the engine looks at: bytes.
Meta padded_stack_of(const Meta& meta, int64_t count) {
  return contiguous_meta({count, Loop::padded(bytes_of_meta(meta))}, DType::u8, meta.device);
}

/// The step as a function of what it is handed, state and slices, that gives state and outputs.
TensorFunction as_one_list(const LoopCode& code) {
  return [name = code.name, what = code.what, step = code.step, states = code.state.size()](const List& own) {
    const BodyScope scope(name);
    const auto middle = own.begin() + static_cast<std::ptrdiff_t>(states);
    ScanStep made;
    try {
      made = step({own.begin(), middle}, {middle, own.end()});
    } catch (Error& error) {
      if (current_tracer()) error.prepend(str(name, ": in ", what, ": "));  // nothing is computed
      throw;
    }
    TD_CHECK(made.state.size() == states, name, ": ", what, " must return as many states as it takes; got ",
             made.state.size(), " for ", states, ".");
    for (size_t k = 0; k < states; ++k) {
      TD_CHECK(made.state[k].defined(), name, ": every result must be a tensor; state ", k,
               " is an undefined handle.");
      TD_CHECK(made.state[k].shape() == own[k].shape() && made.state[k].dtype() == own[k].dtype() &&
                   made.state[k].device() == own[k].device(),
               name, ": a state must keep its shape and type; state ", k, " was ", describe(own[k]),
               " and became ", describe(made.state[k]), ". reshape() or cast() it.");
    }
    for (size_t i = 0; i < made.outputs.size(); ++i) {
      TD_CHECK(made.outputs[i].defined(), name, ": every result must be a tensor; output ", i,
               " is an undefined handle.");
      TD_CHECK(made.outputs[i].shape().rank() < kMaxRank, name, ": an output must have at most ",
               kMaxRank - 1, " axes, since the steps become one more; output ", i, " is ",
               describe(made.outputs[i]), ".");
    }
    made.state.insert(made.state.end(), made.outputs.begin(), made.outputs.end());
    return std::move(made.state);
  };
}

void trace_step(TracedLoop& loop) {
  std::vector<OwnInput> own;
  for (size_t i = 0; i < loop.wants_grad.size(); ++i)
    own.push_back({loop.meta_of_own(i), loop.wants_grad[i]});
  const Device device = loop.own(0).device();
  loop.bodies = {trace_body(
      [&](const List& in) {
        List results = loop.step(in);
        loop.same.clear();
        loop.copied.clear();
        for (size_t i = 0; i < results.size(); ++i) {
          size_t first = 0;
          while (results[first].impl() != results[i].impl()) ++first;
          loop.same.push_back(first);
          loop.copied.push_back(!has_memory_of_its_own(results[i]));
        }
        return loop.separate(std::move(results));
      },
      own, device)};
}

void trace_condition(TracedLoop& loop) {
  std::vector<OwnInput> own;
  for (size_t i = 0; i < loop.states(); ++i) own.push_back({loop.meta_of_own(i)});
  const NoGrad off;
  const LoopCode& code = loop.code;
  const auto condition = trace_body(
      [&](const List& in) {
        const BodyScope scope(code.name);
        Tensor holds;
        try {
          holds = code.condition(in);
        } catch (Error& error) {
          error.prepend(str(code.name, ": in the condition: "));
          throw;
        }
        TD_CHECK(holds.defined() && holds.dtype() == DType::boolean && holds.size() == 1, code.name,
                 ": the condition must give one bool; got ", describe(holds),
                 ". Compare, and use any() or all() where there are several.");
        return List{has_memory_of_its_own(holds) ? holds : clone(holds)};
      },
      own, loop.own(0).device());
  TD_CHECK(!ChangedAround({&condition, 1}).any && condition->graph.random_blocks == 0, code.name,
           ": the condition must not change tensors in place nor draw random numbers. Do that in the body.");
  loop.bodies.push_back(condition);
}

/// Own inputs and what they are parts of must stay as they are: the step's graph does not know that they share memory.
void check_changes(const TracedLoop& loop, const ChangedAround& changed) {
  const Graph& g = loop.trace().graph;
  const std::vector<bool> bases = g.changed_bases();
  for (size_t i = 0; i < loop.wants_grad.size(); ++i) {
    bool is_changed = bases[static_cast<size_t>(loop.trace().own[i].impl()->trace_id)];
    if (Tracer* tracer = current_tracer())
      is_changed = is_changed || std::count(changed.operands.begin(), changed.operands.end(),
                                            static_cast<int>(tracer->memory_of(loop.own(i))));
    else
      for (const Ref<Storage>& storage : changed.storages)
        is_changed = is_changed || storage == loop.own(i).impl()->storage;
    TD_CHECK(!is_changed, loop.code.name, ": ", loop.code.what, " must not change ", loop.name_of_own(i),
             " in place. Return the new values, or change a clone().");
  }
  TD_CHECK(!loop.code.recompute || !changed.any, loop.code.name, ": with recompute, which runs ",
           loop.code.what, " twice, it must not change tensors in place. Leave recompute out.");
}

/// Appends the node of a loop; the rule gets what is kept for it.
List append_forward(LoopRule& rule) {
  const TracedLoop& loop = rule.loop;
  const LoopCode& code = loop.code;
  auto description = std::make_shared<Loop>();
  description->count = code.count;
  description->from_end = code.from_end;
  description->random_blocks = loop.blocks;
  List in;
  for (size_t i = 0; i < loop.wants_grad.size(); ++i) {
    in.push_back(loop.own(i));
    if (i < loop.states())
      description->carried.push_back(static_cast<int>(i));
    else
      description->sliced.push_back({static_cast<int>(i), loop.bytes_between_slices(i)});
  }
  std::vector<Meta> out;
  const auto add = [&](const Meta& meta) {
    out.push_back(meta);
    return static_cast<int>(out.size()) - 1;
  };
  const auto body_of = [&](const Trace& trace) {
    NewBody body(trace, trace.results);
    for (size_t i = 0; i < body.operands.size(); ++i)
      body.own.push_back(i < trace.own.size() ? static_cast<int>(i) : kNone);
    return body;
  };
  NewBody step = body_of(loop.trace());
  const auto add_stacked = [&](int64_t bytes, const Meta& meta) {
    description->stacked.push_back({static_cast<int>(step.out.size()), bytes});
    step.out.push_back(add(meta));
  };
  for (size_t i = 0; i < loop.results().size(); ++i) {
    const Meta& meta = loop.results()[i].meta();
    if (i < loop.states())
      step.out.push_back(add(meta));
    else
      add_stacked(bytes_of_meta(meta), stack_of(meta, code.count));
  }
  // What the backward pass will read of each run.
  std::vector<int> kept;
  std::vector<bool> needs_history(loop.states(), false);
  if (!rule.wanted.empty() && code.is_bounded()) try {
      std::vector<bool> arrives(loop.results().size(), false);
      for (size_t i : rule.wanted) arrives[i] = true;
      const BackwardBody body = rule.backward_of_run(arrives).body;
      for (int base : body.kept)
        if (base != kNone) kept.push_back(base);
      for (int own : body.own)
        if (own != kNone && static_cast<size_t>(own) < loop.states())
          needs_history[static_cast<size_t>(own)] = true;
    } catch (const Error&) {  // of a gradient rule or a hook: it belongs to the backward pass
    }
  const size_t first_kept = out.size();
  for (int base : kept) {
    const Meta meta = step.graph.meta(base);
    step.graph.add_output(base);
    add_stacked(Loop::padded(bytes_of_meta(meta)), padded_stack_of(meta, code.count));
  }
  step.graph.kept = static_cast<int>(kept.size());
  for (size_t k = 0; k < loop.states(); ++k)
    description->history.push_back(needs_history[k] ? add(padded_stack_of(loop.meta_of_own(k), code.count))
                                                    : kNone);
  std::vector<NewBody> bodies;
  bodies.push_back(std::move(step));
  if (loop.has_condition()) {
    bodies.push_back(body_of(*loop.bodies[1]));
    const Device device = loop.own(0).device();
    bodies[1].out.push_back(add(contiguous_meta({}, DType::boolean, device)));
    description->count_out = add(contiguous_meta({}, DType::i64, device));
  }
  List made = append_node(*code.op, in, std::move(bodies), out, loop.place.offset, description);
  for (size_t i = 0; i < kept.size(); ++i) rule.kept.emplace(kept[i], made[first_kept + i]);
  for (int output : description->history)
    rule.history.push_back(output == kNone ? Tensor() : made[static_cast<size_t>(output)]);
  if (loop.has_condition()) rule.count = made[static_cast<size_t>(description->count_out)];
  made.resize(loop.results().size());
  return made;
}

/// Runs it as plain code.
List run_plainly(LoopRule& rule) {
  const TracedLoop& loop = rule.loop;
  const LoopCode& code = loop.code;
  const bool keeps = !rule.wanted.empty() && code.is_bounded();
  const GradMode mode(grad_enabled() && code.is_bounded());
  // As for the node of a graph: however often it runs, a tape from before must not use what it changes.
  if (code.condition)
    for (const Ref<Storage>& storage : rule.changed.storages) storage->bump_version();
  List state, sequences;
  for (const Tensor& t : code.state) state.push_back(t.detach());
  for (const Tensor& t : code.sequences) sequences.push_back(t.detach());
  const size_t outputs = loop.results().size() - loop.states();
  std::vector<List> stacks(outputs);
  for (int64_t run = 0; run < code.count; ++run) {
    if (code.condition) {
      const NoGrad off;
      const BodyScope scope(code.name);
      const Tensor holds = code.condition(state);
      if (!holds.defined() || holds.dtype() != DType::boolean || holds.size() != 1)
        refuse_other_results(code.name, "the condition");
      if (!holds.item<bool>()) break;
    }
    set_generator_state({loop.place.seed, loop.place.offset + static_cast<uint64_t>(run) * loop.blocks});
    List own = state;
    const int64_t slice = loop.slice_of(run);
    for (const Tensor& t : sequences) own.push_back(select(t, 0, slice));
    for (size_t i = 0; i < own.size(); ++i) {
      own[i] = own[i].detach();
      if (grad_enabled() && loop.wants_grad[i]) own[i].set_requires_grad();
    }
    List results = loop.step(own);
    if (results.size() != loop.same.size()) refuse_other_results(code.name, code.what);
    results = loop.separate(std::move(results));
    if (code.is_bounded() && !are_like(results, loop.results())) refuse_other_results(code.name, code.what);
    for (size_t k = 0; k < state.size(); ++k) state[k] = results[k].detach();
    for (size_t i = 0; i < outputs; ++i) stacks[i].push_back(results[state.size() + i].detach());
    if (keeps) rule.runs.push_back({std::move(own), std::move(results)});
  }
  for (Tensor& t : state) t = clone(t);
  for (List& each : stacks) {
    if (code.from_end) std::reverse(each.begin(), each.end());
    state.push_back(stack(each));
  }
  return state;
}

/// In a trace that computes nothing and is not replayed.
List run_by_shapes(const LoopCode& code) {
  const TensorFunction step = as_one_list(code);
  const size_t states = code.state.size();
  List state = code.state;
  std::vector<List> stacks;
  for (int64_t run = 0; run < (code.condition ? 1 : code.count); ++run) {
    if (code.condition) code.condition(state);
    List own = state;
    for (const Tensor& t : code.sequences)
      own.push_back(select(t, 0, code.from_end ? code.count - 1 - run : run));
    const List results = step(own);
    stacks.resize(results.size() - states);
    for (size_t i = 0; i < results.size(); ++i)
      (i < states ? state[i] : stacks[i - states].emplace_back()) = results[i];
  }
  for (const List& each : stacks) state.push_back(stack(each));
  return state;
}

/// Everything about it that shapes tell.
TracedLoop trace_loop(LoopCode code) {
  for (List* list : {&code.state, &code.sequences})
    for (Tensor& t : *list)
      if (list == &code.state || !is_one_slice_repeated(t)) t = contiguous(t);
  TracedLoop loop;
  loop.step = as_one_list(code);
  if (code.recompute) loop.step = [step = loop.step](const List& own) { return checkpoint(step, own); };
  loop.turn = std::make_shared<Mutex>(LockOrder::turn, code.name);
  loop.code = std::move(code);
  loop.place = random_place();
  const size_t own = loop.code.state.size() + loop.code.sequences.size();
  for (size_t i = 0; i < own; ++i)
    loop.wants_grad.push_back(grad_enabled() && loop.own(i).impl()->requires_grad);
  // A state wants gradients as soon as what becomes of it does.
  for (bool grows = true; grows;) {
    grows = false;
    trace_step(loop);
    for (size_t k = 0; k < loop.states(); ++k)
      if (loop.results()[k].impl()->requires_grad && !loop.wants_grad[k]) loop.wants_grad[k] = grows = true;
  }
  loop.blocks = loop.trace().graph.random_blocks;
  TD_CHECK(loop.code.is_bounded() || loop.blocks == 0, loop.code.name,
           ": only a loop with a bound may draw random numbers, since what follows in the stream must not "
           "depend on how often it runs. Set at_most.");
  if (loop.code.condition) trace_condition(loop);
  return loop;
}

}  // namespace

void look_at_step(LoopCode code) { trace_loop(std::move(code)); }

ScanResult run_loop(LoopCode code) {
  const size_t states = code.state.size();
  const auto as_result = [&](List results) {
    const auto middle = results.begin() + static_cast<std::ptrdiff_t>(states);
    return ScanResult{{results.begin(), middle}, {middle, results.end()}};
  };
  for (const List* list : {&code.state, &code.sequences})
    for (const Tensor& t : *list) {
      const Device device = (states ? code.state : code.sequences)[0].device();
      TD_CHECK(t.device() == device, code.name,
               ": all states and sequences must be on one device; got one on ", device, " and ", describe(t),
               ". Move one first.");
    }
  Tracer* const tracer = current_tracer();
  if (tracer && !tracer->replays()) return as_result(run_by_shapes(code));

  TracedLoop traced = trace_loop(std::move(code));
  const ChangedAround changed(traced.bodies);
  check_changes(traced, changed);
  LoopRule rule{std::move(traced), changed, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  const TracedLoop& loop = rule.loop;
  const List& made = loop.results();
  for (size_t i = 0; grad_enabled() && i < made.size(); ++i)
    if (loop.has_condition() ? static_cast<bool>(loop.wants_grad[i]) : made[i].impl()->requires_grad)
      rule.wanted.push_back(i);
  std::vector<TapeNode::Edge>& edges = rule.edges;
  for (size_t i = 0; i < loop.wants_grad.size(); ++i) {
    rule.end_of_own.push_back(loop.wants_grad[i] ? static_cast<int>(edges.size()) : kNone);
    if (!loop.wants_grad[i]) continue;
    rule.ends.push_back(edge_of(loop.trace().own[i]));
    rule.own_of_end.push_back(static_cast<int>(i));
    edges.push_back(edge_of(loop.own(i)));
  }
  if (!rule.wanted.empty())
    for (TapeNode::Edge& edge : ends_of_bodies({loop.bodies.data(), 1}, made)) {
      rule.ends.push_back(edge);
      rule.own_of_end.push_back(kNone);
      edges.push_back(std::move(edge));
    }

  const std::vector<std::shared_ptr<Trace>> bodies = loop.bodies;
  const uint64_t after =
      loop.place.offset + (loop.blocks ? loop.blocks * static_cast<uint64_t>(loop.code.count) : 0);
  const GeneratorState place = loop.place;
  List given = loop.code.state;
  given.insert(given.end(), loop.code.sequences.begin(), loop.code.sequences.end());
  const OpDef& op = *loop.code.op;
  List results;
  if (!tracer) show_uses(op, bodies, changed, given, {});
  run_in_place_of(bodies, [&] {
    results = tracer ? append_forward(rule) : run_plainly(rule);
    if (rule.wanted.empty()) return;
    for (const Tensor& t : given) rule.saved.push_back(save_for_gradient(t));
    List outputs;
    for (size_t i : rule.wanted) outputs.push_back(results[i].detach());
    const std::vector<size_t> wanted = rule.wanted;
    const char* const name = loop.code.name;
    rule.loop.code.step = {};  // what they hold need not live as long as the tape
    rule.loop.code.condition = {};
    if (loop.code.recompute)
      for (const Tensor& t : loop.trace().used) rule.saved.push_back(save_for_gradient(t));
    else
      rule.loop.step = {};
    std::vector<TapeNode::Edge> to = rule.edges;
    record(name, std::move(to), outputs, std::move(rule));
    for (size_t k = 0; k < wanted.size(); ++k) results[wanted[k]] = outputs[k];
  });
  if (tracer) {
    show_uses(op, bodies, changed, given, results);
    tracer->set_random_place(after);
  } else {
    set_generator_state({place.seed, after});
  }
  return as_result(std::move(results));
}

}  // namespace tandem::graph
