#include "tandem/graph/cond.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tandem/core/mutex.h"
#include "tandem/core/region.h"
#include "tandem/graph/bodies.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

using graph::kNone;
using graph::NewBody;
using graph::Trace;

/// Runs the first body or the second (body_calls.cpp). The host waits for the condition, but within a recording.
const OpDef& cond_op() {
  static const OpDef& op = *new OpDef{.name = "cond", .effects = {.reads = 1}, .waits = true};
  return op;
}

constexpr const char* kBranch[] = {"if_true", "if_false"};

struct Functions {
  const TensorFunction* branch[2];
  const std::vector<Tensor>& inputs;

  /// Fresh tensors, so that results are alike whichever branch runs.
  std::vector<Tensor> run(size_t which) const {
    const BodyScope scope("cond");
    std::vector<Tensor> results = (*branch[which])(inputs);
    for (Tensor& t : results) {
      TD_CHECK(t.defined(), "cond: every result must be a tensor; got an undefined handle.");
      t = clone(t);
    }
    return results;
  }
  /// Where nothing is computed, by shapes and types: errors name the branch.
  std::vector<Tensor> run_unseen(size_t which) const {
    try {
      return run(which);
    } catch (Error& error) {
      error.prepend(str("cond: in ", kBranch[which], ": "));
      throw;
    }
  }
};

void check_alike(const std::vector<Tensor>& x, const std::vector<Tensor>& y) {
  TD_CHECK(x.size() == y.size(), "cond: both functions must return equally many tensors; got ", x.size(),
           " from if_true and ", y.size(), " from if_false.");
  for (size_t i = 0; i < x.size(); ++i)
    TD_CHECK(x[i].shape() == y[i].shape() && x[i].dtype() == y[i].dtype(), "cond: result ", i,
             " must have one shape and type in both functions; got ", describe(x[i]), " from if_true and ",
             describe(y[i]), " from if_false.");
}

using Traces = std::array<std::shared_ptr<Trace>, 2>;

Traces trace_both(const Functions& functions, Device device) {
  Traces traces;
  for (size_t b = 0; b < 2; ++b)
    traces[b] = graph::trace_body([&] { return functions.run_unseen(b); }, device);
  check_alike(traces[0]->results, traces[1]->results);
  return traces;
}

/// Where single gradients of both branches leave: for each end as many places as the branch that has more, in order.
struct Place {
  size_t end;
  Meta meta;
};
struct Places {
  std::vector<Place> list;
  std::array<std::vector<size_t>, 2> ends, of;  // by branch and single gradient: its end, and its place

  /// `ends[b]`, `metas[b]`: of each single gradient of branch b.
  Places(std::array<std::vector<size_t>, 2> ends_of, const std::array<std::vector<Meta>, 2>& metas)
      : ends(std::move(ends_of)) {
    std::vector<std::vector<size_t>> by_end;  // the places of an end
    for (size_t b = 0; b < 2; ++b) {
      std::vector<size_t> seen;
      for (size_t i = 0; i < ends[b].size(); ++i) {
        const size_t end = ends[b][i];
        if (end >= seen.size()) seen.resize(end + 1);
        if (end >= by_end.size()) by_end.resize(end + 1);
        const size_t nth = seen[end]++;
        if (nth == by_end[end].size()) {
          by_end[end].push_back(list.size());
          const Meta& meta = metas[b][i];
          list.push_back({end, contiguous_meta(meta.shape, meta.dtype, meta.device)});
        }
        of[b].push_back(by_end[end][nth]);
      }
    }
  }
  /// The gradients of a branch at their places. What the other one has more is -0: added to anything, it leaves its bits.
  std::vector<Tensor> fill(size_t b, const std::vector<TapeNode::Delivery>& gradients) const {
    std::vector<Tensor> filled(list.size());
    bool as_traced = gradients.size() == ends[b].size();
    for (size_t i = 0; as_traced && i < gradients.size(); ++i) {
      as_traced = gradients[i].edge == ends[b][i];
      filled[of[b][i]] = clone(gradients[i].gradient);
    }
    if (!as_traced) graph::refuse_other_results("cond", kBranch[b]);
    for (size_t p = 0; p < filled.size(); ++p)
      if (!filled[p].defined()) filled[p] = graph::negative_zeros(list[p].meta);
    return filled;
  }
  std::vector<TapeNode::Delivery> deliver(std::vector<Tensor> gradients) const {
    std::vector<TapeNode::Delivery> deliveries;
    for (size_t p = 0; p < list.size(); ++p) deliveries.push_back({list[p].end, std::move(gradients[p])});
    return deliveries;
  }
};

/// One more result of a graph: a constant.
void add_result(graph::Graph& g, const Meta& meta, double value) {
  graph::Node node;
  node.op = &op_full();
  node.attrs =
      FullAttrs{meta.shape, value, 0, meta.dtype, static_cast<uint8_t>(meta.device.kind), meta.device.index};
  const int v = g.add_value(meta, graph::Source::computed);
  node.out.push_back(v);
  g.append(std::move(node));
  g.add_output(v);
}

/// A choice between two traced bodies: cond() itself, or its gradient where that is recorded.
struct Choice {
  std::shared_ptr<Mutex> turn;  // traces are continued by one thread at a time
  Tensor condition;
  size_t taken = 0;  // in plain code
  Traces traces;
  std::array<std::vector<Tensor>, 2> results;  // of each, in its trace
  GeneratorState place;                        // in the random stream
  bool changes = false;                        // one of them changes memory from around
};
std::vector<Tensor> choose(Choice choice, const std::function<std::vector<Tensor>()>& run_plainly);

/// Results of a branch that gradients arrive at and that want them, and these gradients.
struct Arriving {
  std::vector<Tensor> outputs, seeds;
  Arriving(const std::vector<Tensor>& results, const std::vector<Tensor>& gradients) {
    for (size_t i = 0; i < results.size(); ++i) {
      if (!gradients[i].defined() || !results[i].impl()->requires_grad) continue;
      outputs.push_back(results[i]);
      seeds.push_back(gradients[i]);
    }
  }
};

/// Its gradient.
struct Rule {
  Choice choice;
  std::vector<TapeNode::Edge> ends;  // of both
  std::vector<size_t> wanted;        // results that gradients can arrive at
  std::vector<TapeNode::Saved> used;
  // Inside a trace: by branch, the memory that its backward pass reads and the tensors that hold it.
  std::array<std::unordered_map<int, Tensor>, 2> kept;
  // In plain code: what ran, with its tape.
  std::vector<Tensor> results;

  std::vector<TapeNode::Delivery> operator()(std::span<const Tensor> grads) const {
    const bool create_graph = grad_enabled();
    std::vector<Tensor> seeds(choice.results[0].size());
    for (size_t k = 0; k < wanted.size(); ++k)
      if (grads[k].defined()) seeds[wanted[k]] = contiguous(grads[k]);
    std::array<graph::BackwardBody, 2> back;
    std::array<std::vector<size_t>, 2> ends_of;
    std::array<std::vector<Meta>, 2> metas;
    for (size_t b = 0; b < 2; ++b) {
      const std::lock_guard lock(*choice.turn);
      const NoGrad off;
      const Arriving arriving(choice.results[b], seeds);
      back[b] = graph::differentiate_body(*choice.traces[b], ends, arriving.outputs, arriving.seeds);
      ends_of[b] = back[b].ends;
      for (int v : back[b].graph.outputs()) metas[b].push_back(back[b].graph.meta(v));
    }
    const Places places(std::move(ends_of), metas);
    if (!create_graph) {
      if (!current_tracer()) return places.deliver(places.fill(choice.taken, walk(results, seeds, false)));
      if (std::optional<std::vector<NewBody>> bodies = bodies_of(places, back)) {
        std::vector<Meta> out;
        for (const Place& place : places.list) out.push_back(place.meta);
        return places.deliver(graph::append_node(cond_op(), {&choice.condition, 1}, std::move(*bodies), out,
                                                 choice.place.offset));
      }
    }
    return places.deliver(compute_again(places, seeds, create_graph));
  }

 private:
  /// Single gradients of one branch.
  std::vector<TapeNode::Delivery> walk(const std::vector<Tensor>& of, const std::vector<Tensor>& seeds,
                                       bool create_graph) const {
    const Arriving arriving(of, seeds);
    return gradients_at(ends, arriving.outputs, arriving.seeds, create_graph);
  }

  /// The backward passes as bodies of a node; nothing where they need what was not kept.
  std::optional<std::vector<NewBody>> bodies_of(const Places& places,
                                                std::array<graph::BackwardBody, 2>& back) const {
    std::vector<NewBody> bodies;
    for (size_t b = 0; b < 2; ++b) {
      NewBody& body = bodies.emplace_back();
      body.operands = back[b].operands;
      for (size_t i = 0; i < body.operands.size(); ++i) {
        if (body.operands[i] != kNone) continue;
        const auto found = kept[b].find(back[b].kept[i]);
        if (found == kept[b].end()) return std::nullopt;
        body.operands[i] = static_cast<int>(found->second.impl()->trace_id);
      }
      body.graph = std::move(back[b].graph);
      std::vector<bool> filled(places.list.size(), false);
      for (size_t p : places.of[b]) {
        body.out.push_back(static_cast<int>(p));
        filled[p] = true;
      }
      for (size_t p = 0; p < places.list.size(); ++p) {
        if (filled[p]) continue;
        add_result(body.graph, places.list[p].meta, -0.0);
        body.out.push_back(static_cast<int>(p));
      }
    }
    return bodies;
  }

  /// As another choice, whose bodies compute everything again, so that it can be differentiated in turn: in both engines
  /// the same.
  std::vector<Tensor> compute_again(const Places& places, const std::vector<Tensor>& seeds,
                                    bool create_graph) const {
    TD_CHECK(!choice.changes,
             "cond: a gradient that is itself recorded (create_graph) computes the branches again, so they "
             "must not change tensors in place. Do that outside.");
    for (const TapeNode::Saved& saved : used) unpack_saved(saved, "cond", "a tensor that the functions use");
    Choice again = choice;
    for (size_t b = 0; b < 2; ++b) {
      const std::lock_guard lock(*choice.turn);
      graph::continue_body(*choice.traces[b], [&] {
        again.results[b] = places.fill(b, walk(choice.results[b], seeds, create_graph));
      });
    }
    return choose(std::move(again),
                  [&] { return places.fill(choice.taken, walk(results, seeds, create_graph)); });
  }
};

/// Appends the node, or runs plain code; either way the results are on the tape.
std::vector<Tensor> choose(Choice choice, const std::function<std::vector<Tensor>()>& run_plainly) {
  Rule rule;
  const size_t count = choice.results[0].size();
  for (size_t i = 0; i < count; ++i)
    if (choice.results[0][i].impl()->requires_grad || choice.results[1][i].impl()->requires_grad)
      rule.wanted.push_back(i);
  if (!grad_enabled()) rule.wanted.clear();
  if (!rule.wanted.empty()) {
    std::vector<Tensor> of_both = choice.results[0];
    of_both.insert(of_both.end(), choice.results[1].begin(), choice.results[1].end());
    rule.ends = graph::ends_of_bodies(choice.traces, of_both);
  }

  std::vector<Tensor> results;
  if (current_tracer()) {
    std::vector<Meta> out;
    for (const Tensor& t : choice.results[0]) out.push_back(t.meta());
    std::vector<NewBody> bodies;
    std::array<std::vector<int>, 2> all_kept;
    for (size_t b = 0; b < 2; ++b) {
      std::vector<int> kept;
      if (!rule.wanted.empty()) try {
          const NoGrad off;
          for (int base : graph::foresee_backward(*choice.traces[b], rule.ends, choice.results[b]).kept)
            if (base != kNone) kept.push_back(base);
        } catch (const Error&) {  // of a gradient rule or a hook: it belongs to the backward pass
        }
      NewBody& body = bodies.emplace_back(*choice.traces[b], choice.results[b]);
      for (size_t i = 0; i < count; ++i) body.out.push_back(static_cast<int>(i));
      for (int base : kept) {
        body.graph.add_output(base);
        body.out.push_back(static_cast<int>(out.size()));
        out.push_back(body.graph.meta(base));
      }
      body.graph.kept = static_cast<int>(kept.size());
      all_kept[b] = std::move(kept);
    }
    // Changed later, it must not send gradients through the other branch.
    if (!rule.wanted.empty()) choice.condition = clone(choice.condition);
    results =
        graph::append_node(cond_op(), {&choice.condition, 1}, std::move(bodies), out, choice.place.offset);
    size_t at = count;
    for (size_t b = 0; b < 2; ++b)
      for (int base : all_kept[b]) rule.kept[b].emplace(base, results[at++]);
    results.resize(count);
  } else {
    results = run_plainly();
    if (!graph::are_like(results, choice.results[choice.taken]))
      graph::refuse_other_results("cond", kBranch[choice.taken]);
  }
  if (rule.wanted.empty()) return results;
  for (const auto& trace : choice.traces)
    for (const Tensor& t : trace->used) rule.used.push_back(save_for_gradient(t));
  std::vector<Tensor> outputs;
  for (size_t i : rule.wanted) outputs.push_back(results[i].detach());
  const std::vector<size_t> wanted = rule.wanted;
  std::vector<TapeNode::Edge> ends = rule.ends;
  rule.results = results;
  rule.choice = std::move(choice);
  record("cond", std::move(ends), outputs, std::move(rule));
  for (size_t k = 0; k < wanted.size(); ++k) results[wanted[k]] = outputs[k];
  return results;
}

}  // namespace

std::vector<Tensor> cond(const Tensor& condition, const TensorFunction& if_true,
                         const TensorFunction& if_false, const std::vector<Tensor>& inputs) {
  TD_CHECK(if_true && if_false, "cond: the functions must not be empty.");
  TD_CHECK(condition.defined() && condition.dtype() == DType::boolean && condition.size() == 1,
           "cond: the condition must be one bool; got ", describe(condition),
           ". Compare, and use any() or all() where there are several.");
  for (const Tensor& t : inputs)
    TD_CHECK(t.defined(), "cond: every input must be a tensor; got an undefined handle.");
  const Functions functions{{&if_true, &if_false}, inputs};
  Tracer* const tracer = current_tracer();
  if (tracer && !tracer->replays()) {  // shapes alone
    std::vector<Tensor> results = functions.run_unseen(0);
    check_alike(results, functions.run_unseen(1));
    return results;
  }
  Choice choice;
  choice.turn = std::make_shared<Mutex>(LockOrder::turn, "result of cond()");
  choice.condition = condition;
  choice.place = random_place();
  if (!tracer) choice.taken = condition.item<bool>() ? 0 : 1;
  choice.traces = trace_both(functions, condition.device());
  uint64_t blocks = 0;
  for (size_t b = 0; b < 2; ++b) {
    choice.results[b] = choice.traces[b]->results;
    blocks = std::max(blocks, choice.traces[b]->graph.random_blocks);
  }
  const graph::ChangedAround changed(choice.traces);
  choice.changes = changed.any;
  // What the branches use is shown for both, since their gradients ask for both.
  const auto show = [&](std::span<const Tensor> results) {
    graph::show_uses(cond_op(), choice.traces, changed, {}, results);
  };
  std::vector<Tensor> results;
  if (!tracer) show({});
  graph::run_in_place_of(choice.traces, [&] {
    results = choose(choice, [&] {
      // As for the node of a graph: whichever branch runs, a tape from before must not use what one of them changes.
      for (const Ref<Storage>& storage : changed.storages) storage->bump_version();
      return functions.run(choice.taken);
    });
  });
  if (tracer) {
    show(results);
    tracer->set_random_place(choice.place.offset + blocks);
  } else {
    set_generator_state({choice.place.seed, choice.place.offset + blocks});
  }
  return results;
}

Tensor cond(const Tensor& condition, const std::function<Tensor()>& if_true,
            const std::function<Tensor()>& if_false) {
  TD_CHECK(if_true && if_false, "cond: the functions must not be empty.");
  const auto as_list = [](const std::function<Tensor()>& function) {
    return [function](const std::vector<Tensor>&) { return std::vector<Tensor>{function()}; };
  };
  return cond(condition, as_list(if_true), as_list(if_false), {})[0];
}

}  // namespace tandem
