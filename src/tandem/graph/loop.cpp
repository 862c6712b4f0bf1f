// Loops: the step is traced once, by shapes. In a trace its graph becomes the body of one node; elsewhere it runs as plain
// code, each time on tensors that are leaves of a tape of its own.
//
// The gradient goes through the runs from the last to the first, in plain code or by a second node whose body is the
// backward pass of one run. That body carries, for each state, the single gradients that it has got so far, one by one: a
// walk through the plain loop would add them to what the run before gets from elsewhere one by one, too, in this order. What
// tensors from around get is added to a sum that is carried; what slices get is stacked. Everything begins with -0.
#include "tandem/graph/loop.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tandem/core/autocast.h"
#include "tandem/core/mutex.h"
#include "tandem/graph/bodies.h"
#include "tandem/graph/checkpoint.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::graph {

namespace {

using List = std::vector<Tensor>;

Dims with_axis(const Dims& shape, int64_t size) {
  Dims longer = shape;
  longer.insert(0, size);
  return longer;
}
Meta row_major(const Meta& meta) { return contiguous_meta(meta.shape, meta.dtype, meta.device); }
Meta stack_of(const Meta& meta, int64_t count) {
  return contiguous_meta(with_axis(meta.shape, count), meta.dtype, meta.device);
}
int64_t bytes_of_meta(const Meta& meta) {
  return size_of(meta.shape) * static_cast<int64_t>(bytes_of(meta.dtype));
}
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
      if (current_tracer()) error.prepend(cat(name, ": in ", what, ": "));  // nothing is computed
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

/// A loop whose step is traced.
struct Traced {
  LoopCode code;  // its tensors are row-major
  TensorFunction step;
  std::shared_ptr<Mutex> turn;                 // traces are continued by one thread at a time
  std::vector<std::shared_ptr<Trace>> bodies;  // the step; the condition
  std::vector<bool> wants_grad;                // by own input: state, then sequences
  // By result: state, then outputs.
  std::vector<size_t> same;  // the first one that is the same tensor
  std::vector<bool> copied;  // it is no fresh tensor, so a copy of it is the result
  GeneratorState place;      // in the random stream
  uint64_t blocks = 0;       // of one run

  size_t states() const { return code.state.size(); }
  bool has_condition() const { return bodies.size() > 1; }
  Trace& trace() const { return *bodies[0]; }
  const List& results() const { return bodies[0]->results; }
  const Tensor& own(size_t i) const { return i < states() ? code.state[i] : code.sequences[i - states()]; }
  /// What a run is handed for it.
  Meta meta_of_own(size_t i) const {
    Meta meta = own(i).meta();
    if (i >= states()) meta.shape.erase(0);
    return row_major(meta);
  }
  std::string name_of_own(size_t i) const {
    return i < states() ? cat("state ", i) : cat("sequence ", i - states());
  }
  int64_t slice_of(int64_t run) const { return code.from_end ? code.count - 1 - run : run; }

  /// Results are memory of their own, and one tensor that is there twice stays one: its gradients are added one by one.
  List separate(List results) const {
    for (size_t i = 0; i < results.size(); ++i)
      results[i] = same[i] < i ? results[same[i]] : copied[i] ? clone(results[i]) : results[i];
    return results;
  }
};

void trace_step(Traced& loop) {
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

void trace_condition(Traced& loop) {
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
          error.prepend(cat(code.name, ": in the condition: "));
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
void check_changes(const Traced& loop, const ChangedAround& changed) {
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

/// All runs in order, on the tape, with random numbers from where the loop had them.
List run_on_tape(const Traced& loop) {
  List state = loop.code.state;
  std::vector<List> stacks(loop.results().size() - loop.states(), List(static_cast<size_t>(loop.code.count)));
  for (int64_t run = 0; run < loop.code.count; ++run) {
    const RandomReplay numbers(
        {loop.place.seed, loop.place.offset + static_cast<uint64_t>(run) * loop.blocks});
    List own = state;
    for (const Tensor& t : loop.code.sequences) own.push_back(select(t, 0, loop.slice_of(run)));
    List results = loop.step(own);
    if (results.size() != loop.same.size()) refuse_other_results(loop.code.name, loop.code.what);
    results = loop.separate(std::move(results));
    for (size_t i = 0; i < results.size(); ++i)
      (i < state.size() ? state[i] : stacks[i - state.size()][static_cast<size_t>(loop.slice_of(run))]) =
          results[i];
  }
  for (const List& each : stacks) state.push_back(stack(each));
  return state;
}

/// The gradient.
struct Rule {
  Traced loop;
  ChangedAround changed;
  // Where gradients leave a run, in its trace: at its own inputs, then at tensors from around.
  std::vector<TapeNode::Edge> ends;
  std::vector<int> own_of_end;         // kNone: from around
  std::vector<int> end_of_own;         // kNone: wants no gradient
  std::vector<size_t> wanted;          // results that gradients can arrive at
  std::vector<TapeNode::Saved> saved;  // by own input; then, to compute again, what the step uses
  std::vector<TapeNode::Edge> edges;   // by end: where its gradient goes outside
  // In a trace: stacks of the memory of runs that the backward pass reads and of states before them, and how many runs.
  std::unordered_map<int, Tensor> kept;
  List history;
  Tensor count;
  // In plain code: each run, with its tape.
  struct Run {
    List own, results;
  };
  std::vector<Run> runs;
  std::optional<DType> precision = autocast_dtype();

  /// The backward pass of one run, for gradients of some results.
  struct Backward {
    std::vector<size_t> outputs;  // results that arriving gradients are slices for, the last one first
    std::vector<size_t> parts;    // by state: how many single gradients it is carried as
    std::vector<size_t> singles;  // ends of all single gradients of a run, in the order of the walk
    std::vector<size_t> sums;     // ends from around that get some
    std::vector<Meta> sum_metas;
    std::vector<size_t> slices;  // own inputs: sequences that get some
    BackwardBody body;           // in: parts, outputs, sums, then what it reads; out: parts, sums, slices
    size_t part_count() const {
      size_t count = 0;
      for (size_t n : parts) count += n;
      return count;
    }
  };

  std::vector<TapeNode::Delivery> operator()(std::span<const Tensor> grads) const {
    const bool create_graph = grad_enabled();
    TD_CHECK(!create_graph || (loop.code.recompute && !loop.has_condition()), loop.code.name,
             ": gradients of gradients (create_graph) go through a scan() with recompute alone. Set that, or "
             "write the loop in plain C++.");
    TD_CHECK(loop.code.is_bounded(), loop.code.name,
             ": only a loop with a bound has gradients. Set at_most, or call it under NoGrad.");
    List seeds(loop.results().size());
    std::vector<bool> arrives(seeds.size(), false);
    for (size_t k = 0; k < wanted.size(); ++k)
      if (grads[k].defined()) {
        seeds[wanted[k]] = contiguous(grads[k]);
        arrives[wanted[k]] = true;
      }
    if (create_graph) return compute_again(seeds);
    const Backward back = backward_of_run(arrives);
    check_memory(back);
    List carried;  // parts, sums
    for (size_t k = 0; k < back.parts.size(); ++k)
      for (size_t j = 0; j < back.parts[k]; ++j)
        carried.push_back(j == 0 && seeds[k].defined() ? seeds[k] : negative_zeros(loop.meta_of_own(k)));
    for (const Meta& meta : back.sum_metas) carried.push_back(negative_zeros(meta));
    return deliver(back, current_tracer() ? append_backward(back, std::move(carried), seeds)
                                          : run_backward(back, std::move(carried), seeds));
  }

  /// A state that gets gradients from a run hands them to the one before: known once no further one does.
  Backward backward_of_run(const std::vector<bool>& arrives) const {
    const std::lock_guard lock(*loop.turn);
    const NoGrad off;
    const NoAutocast as_recorded;
    Backward back;
    for (size_t k = 0; k < loop.states(); ++k) back.parts.push_back(arrives[k] ? 1 : 0);
    for (size_t i = arrives.size(); i-- > loop.states();)
      if (arrives[i]) back.outputs.push_back(i);
    for (bool grows = true; grows;) {
      grows = false;
      back.body = derive_body(loop.trace(), [&](const NewInput& new_input) {
        List parts, seeds, sums;
        for (size_t k = 0; k < back.parts.size(); ++k)
          for (size_t j = 0; j < back.parts[k]; ++j) parts.push_back(new_input(loop.meta_of_own(k)));
        for (size_t i : back.outputs) seeds.push_back(new_input(loop.results()[i].meta()));
        const std::vector<TapeNode::Delivery> found = walk(back, ends, loop.results(), parts, seeds);
        std::vector<size_t> count(ends.size(), 0);
        std::vector<Meta> metas(ends.size());
        back.singles.clear();
        for (const TapeNode::Delivery& d : found) {
          back.singles.push_back(d.edge);
          ++count[d.edge];
          metas[d.edge] = row_major(d.gradient.meta());
        }
        back.sums.clear();
        back.sum_metas.clear();
        back.slices.clear();
        for (size_t e = 0; e < ends.size(); ++e) {
          if (count[e] == 0) continue;
          if (own_of_end[e] == kNone) {
            back.sums.push_back(e);
            back.sum_metas.push_back(metas[e]);
            sums.push_back(new_input(metas[e]));
          } else if (const size_t own = static_cast<size_t>(own_of_end[e]); own >= loop.states()) {
            back.slices.push_back(own);
          } else if (count[e] > back.parts[own]) {
            back.parts[own] = count[e];
            grows = true;
          }
        }
        return grows ? List{} : share_out(back, found, sums);
      });
    }
    return back;
  }

 private:
  /// As plain code on the tape, in both engines, so that it can be differentiated in turn.
  std::vector<TapeNode::Delivery> compute_again(const List& seeds) const {
    for (size_t i = 0; i < saved.size(); ++i)
      unpack_saved(
          saved[i], loop.code.name,
          i < loop.wants_grad.size() ? loop.name_of_own(i) : cat("a tensor that ", loop.code.what, " uses"));
    List results;
    {
      const Region region(true);
      const Autocast as_before(precision);
      results = run_on_tape(loop);
    }
    List from, with;
    for (size_t i : wanted)
      if (seeds[i].defined()) {
        from.push_back(results[i]);
        with.push_back(seeds[i]);
      }
    return gradients_at(edges, from, with, true);
  }

  /// Single gradients of one run, for those that its results get. What arrives from outside comes before what the next run
  /// gave.
  std::vector<TapeNode::Delivery> walk(const Backward& back, std::span<const TapeNode::Edge> at,
                                       const List& results, const List& parts, const List& seeds) const {
    List from, with;
    for (size_t n = 0; n < back.outputs.size(); ++n) {
      from.push_back(results[back.outputs[n]]);
      with.push_back(seeds[n]);
    }
    size_t part = 0;
    for (size_t k = 0; k < back.parts.size(); ++k)
      for (size_t j = 0; j < back.parts[k]; ++j, ++part) {
        if (!results[k].impl()->requires_grad) continue;
        from.push_back(results[k]);
        with.push_back(parts[part]);
      }
    return gradients_at(at, from, with, false);
  }

  /// What they become: parts and sums to carry on, and what is stacked.
  List share_out(const Backward& back, const std::vector<TapeNode::Delivery>& found, const List& sums) const {
    std::vector<List> singles(ends.size());
    for (const TapeNode::Delivery& d : found) singles[d.edge].push_back(d.gradient);
    List out;
    for (size_t k = 0; k < back.parts.size(); ++k)
      for (size_t j = 0; j < back.parts[k]; ++j) {
        const List& of = singles[static_cast<size_t>(end_of_own[k])];
        out.push_back(j < of.size() ? of[j] : negative_zeros(loop.meta_of_own(k)));
      }
    const auto add_all = [](Tensor sum, const List& of, size_t first) {
      for (size_t i = first; i < of.size(); ++i) sum = add(sum, of[i]);
      return sum;
    };
    for (size_t n = 0; n < sums.size(); ++n) out.push_back(add_all(sums[n], singles[back.sums[n]], 0));
    for (size_t own : back.slices) {
      const List& of = singles[static_cast<size_t>(end_of_own[own])];
      out.push_back(add_all(of[0], of, 1));
    }
    return out;
  }

  /// What the backward pass of all runs gave: parts and sums, and gradients of sequences.
  std::vector<TapeNode::Delivery> deliver(const Backward& back, const List& given) const {
    std::vector<TapeNode::Delivery> deliveries;
    const size_t parts = back.part_count();
    for (size_t n = 0; n < back.sums.size(); ++n) deliveries.push_back({back.sums[n], given[parts + n]});
    for (size_t n = 0; n < back.slices.size(); ++n)
      deliveries.push_back(
          {static_cast<size_t>(end_of_own[back.slices[n]]), given[parts + back.sums.size() + n]});
    // In the order of the walk through the first run. A state may have more: where no run took place, all that arrived.
    std::vector<size_t> next(back.parts.size()), until(back.parts.size());
    size_t place = 0;
    for (size_t k = 0; k < back.parts.size(); ++k) {
      next[k] = place;
      until[k] = place += back.parts[k];
    }
    for (size_t e : back.singles)
      if (const int own = own_of_end[e]; own != kNone && static_cast<size_t>(own) < back.parts.size())
        deliveries.push_back({e, given[next[static_cast<size_t>(own)]++]});
    if (loop.has_condition())
      for (size_t k = 0; k < back.parts.size(); ++k)
        while (next[k] < until[k])
          deliveries.push_back({static_cast<size_t>(end_of_own[k]), given[next[k]++]});
    return deliveries;
  }

  /// What it reads must be what the runs saw.
  void check_memory(const Backward& back) const {
    for (int own : back.body.own)
      if (own != kNone)
        unpack_saved(saved[static_cast<size_t>(own)], loop.code.name,
                     loop.name_of_own(static_cast<size_t>(own)));
    if (loop.code.count == 1 || !changed.any) return;
    bool reads_changed = false;
    for (int operand : back.body.operands)
      reads_changed = reads_changed || std::count(changed.operands.begin(), changed.operands.end(), operand);
    for (int v = 0; v < back.body.graph.value_count(); ++v)
      for (const Ref<Storage>& storage : changed.storages)
        reads_changed = reads_changed || back.body.graph.value(v).storage == storage;
    TD_CHECK(!reads_changed, loop.code.name, ": a tensor that ", loop.code.what,
             " changes in place is needed for its gradient as it was in each run. Make it a state, or use a "
             "clone() of it inside.");
  }

  List run_backward(const Backward& back, List carried, const List& seeds) const {
    const size_t carries = carried.size(), parts = back.part_count();
    std::vector<List> slices(back.slices.size(), List(runs.size()));
    for (size_t run = runs.size(); run-- > 0;) {
      std::vector<TapeNode::Edge> at = ends;
      for (size_t e = 0; e < at.size(); ++e)
        if (own_of_end[e] != kNone) at[e] = edge_of(runs[run].own[static_cast<size_t>(own_of_end[e])]);
      const int64_t slice = loop.slice_of(static_cast<int64_t>(run));
      List of_outputs;
      for (size_t i : back.outputs) of_outputs.push_back(select(seeds[i], 0, slice));
      const std::vector<TapeNode::Delivery> found = walk(back, at, runs[run].results, carried, of_outputs);
      if (!std::equal(found.begin(), found.end(), back.singles.begin(), back.singles.end(),
                      [](const TapeNode::Delivery& d, size_t end) { return d.edge == end; }))
        refuse_other_results(loop.code.name, loop.code.what);
      const auto first_sum = carried.begin() + static_cast<std::ptrdiff_t>(parts);
      List out = share_out(back, found, {first_sum, carried.end()});
      for (size_t n = 0; n < slices.size(); ++n) slices[n][static_cast<size_t>(slice)] = out[carries + n];
      out.resize(carries);
      carried = std::move(out);
    }
    for (const List& slice : slices) carried.push_back(stack(slice));
    return carried;
  }

  List append_backward(const Backward& back, List carried, const List& seeds) const {
    const int64_t count_most = loop.code.count;
    const size_t parts = back.part_count();
    auto description = std::make_shared<Loop>();
    description->count = count_most;
    description->from_end = !loop.code.from_end;
    description->repeats = true;
    description->random_blocks = loop.blocks;
    NewBody body;
    body.graph = back.body.graph;
    body.operands = back.body.operands;
    // The tensors that come in beside memory from around, by input of the body.
    List in(carried.begin(), carried.begin() + static_cast<std::ptrdiff_t>(parts));
    for (size_t i : back.outputs) {
      description->sliced.push_back({static_cast<int>(in.size()), bytes_of_meta(loop.results()[i].meta())});
      in.push_back(seeds[i]);
    }
    in.insert(in.end(), carried.begin() + static_cast<std::ptrdiff_t>(parts), carried.end());
    const size_t handed = in.size();
    for (size_t i = 0; i < body.operands.size(); ++i) {
      body.own.push_back(static_cast<int>(in.size()));
      if (i < handed) {
        body.own.back() = static_cast<int>(i);
        continue;
      }
      const auto add = [&](const Tensor& tensor, int64_t bytes) {
        description->sliced.push_back({static_cast<int>(i), bytes});
        in.push_back(tensor);
      };
      const int64_t bytes = bytes_of_meta(body.graph.meta(body.graph.value_of_input(static_cast<int>(i))));
      if (const int own = back.body.own[i]; own != kNone) {
        const bool is_state = static_cast<size_t>(own) < loop.states();
        const Tensor& tensor =
            is_state ? history[static_cast<size_t>(own)] : loop.own(static_cast<size_t>(own));
        check_kept(tensor.defined());
        add(tensor, is_state ? Loop::padded(bytes) : bytes);
      } else if (const int base = back.body.kept[i]; base != kNone) {
        const auto found = kept.find(base);
        check_kept(found != kept.end());
        add(found->second, Loop::padded(bytes));
      }
    }
    for (size_t c = 0; c < carried.size(); ++c) {
      description->carried.push_back(static_cast<int>(c < parts ? c : c + back.outputs.size()));
      description->history.push_back(kNone);
    }
    if (count.defined()) {
      description->count_in = static_cast<int>(in.size());
      in.push_back(count);
    }
    std::vector<Meta> out;
    for (const Tensor& t : carried) out.push_back(row_major(t.meta()));
    for (size_t own : back.slices) {
      const Meta meta = loop.meta_of_own(own);
      description->stacked.push_back({static_cast<int>(out.size()), bytes_of_meta(meta)});
      out.push_back(stack_of(meta, count_most));
    }
    for (size_t k = 0; k < out.size(); ++k) body.out.push_back(static_cast<int>(k));
    std::vector<NewBody> bodies;
    bodies.push_back(std::move(body));
    return append_node(*loop.code.op, in, std::move(bodies), out, loop.place.offset, description);
  }
  void check_kept(bool is_there) const {
    TD_CHECK(
        is_there, loop.code.name, ": the gradient of ", loop.code.what,
        " needs values that it did not need when it was traced. Keep what depends on anything but tensors, "
        "modules and random operations out of its gradient rules.");
  }
};

/// Appends the node of a loop; the rule gets what is kept for it.
List append_forward(Rule& rule) {
  const Traced& loop = rule.loop;
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
      description->sliced.push_back({static_cast<int>(i), bytes_of_meta(loop.meta_of_own(i))});
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
List run_plainly(Rule& rule) {
  const Traced& loop = rule.loop;
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
  std::vector<List> stacks(outputs, List(code.condition ? 0 : static_cast<size_t>(code.count)));
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
    for (size_t i = 0; i < outputs; ++i)
      stacks[i][static_cast<size_t>(slice)] = results[state.size() + i].detach();
    if (keeps) rule.runs.push_back({std::move(own), std::move(results)});
  }
  for (Tensor& t : state) t = clone(t);
  for (const List& each : stacks) state.push_back(stack(each));
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
Traced trace_loop(LoopCode code) {
  for (List* list : {&code.state, &code.sequences})
    for (Tensor& t : *list) t = contiguous(t);
  Traced loop;
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

  Traced traced = trace_loop(std::move(code));
  const ChangedAround changed(traced.bodies);
  check_changes(traced, changed);
  Rule rule{std::move(traced), changed, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  const Traced& loop = rule.loop;
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
