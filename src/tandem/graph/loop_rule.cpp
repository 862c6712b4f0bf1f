// The gradient goes through the runs from the last to the first, in plain code or by a second node whose body is the
// backward pass of one run. That body carries, for each state, the single gradients that it has got so far, one by one: a
// walk through the plain loop would add them to what the run before gets from elsewhere one by one, too, in this order. What
// tensors from around get is added to a sum that is carried; what slices get is stacked. Everything begins with -0.
#include "tandem/graph/loop_rule.h"

#include <algorithm>
#include <mutex>

#include "tandem/ops/arrange.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::graph {

using List = std::vector<Tensor>;

Meta row_major(const Meta& meta) { return contiguous_meta(meta.shape, meta.dtype, meta.device); }
Meta stack_of(const Meta& meta, int64_t count) {
  Dims shape = meta.shape;
  shape.insert(0, count);
  return contiguous_meta(shape, meta.dtype, meta.device);
}
int64_t bytes_of_meta(const Meta& meta) {
  return size_of(meta.shape) * static_cast<int64_t>(bytes_of(meta.dtype));
}

Meta TracedLoop::meta_of_own(size_t i) const {
  Meta meta = own(i).meta();
  if (i >= states()) meta.shape.erase(0);
  return row_major(meta);
}

bool is_one_slice_repeated(const Tensor& sequence) {
  const Meta& meta = sequence.meta();
  if (meta.shape.rank() < 2 || meta.strides[0] != 0) return false;
  Meta slice = meta;
  slice.shape.erase(0);
  const Meta plain = row_major(slice);
  for (int axis = 0; axis < plain.shape.rank(); ++axis)
    if (plain.shape[axis] != 1 && plain.strides[axis] != meta.strides[axis + 1]) return false;
  return true;
}
int64_t TracedLoop::bytes_between_slices(size_t i) const {
  return is_one_slice_repeated(own(i)) ? 0 : bytes_of_meta(meta_of_own(i));
}

List TracedLoop::separate(List results) const {
  for (size_t i = 0; i < results.size(); ++i)
    results[i] = same[i] < i ? results[same[i]] : copied[i] ? clone(results[i]) : results[i];
  return results;
}

namespace {
/// All runs in order, on the tape, with random numbers from where the loop had them.
List run_on_tape(const TracedLoop& loop) {
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
}  // namespace

std::vector<TapeNode::Delivery> LoopRule::operator()(std::span<const Tensor> grads) const {
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

LoopRule::Backward LoopRule::backward_of_run(const std::vector<bool>& arrives) const {
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

std::vector<TapeNode::Delivery> LoopRule::compute_again(const List& seeds) const {
  for (size_t i = 0; i < saved.size(); ++i)
    unpack_saved(
        saved[i], loop.code.name,
        i < loop.wants_grad.size() ? loop.name_of_own(i) : str("a tensor that ", loop.code.what, " uses"));
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

std::vector<TapeNode::Delivery> LoopRule::walk(const Backward& back, std::span<const TapeNode::Edge> at,
                                               const List& results, const List& parts,
                                               const List& seeds) const {
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

List LoopRule::share_out(const Backward& back, const std::vector<TapeNode::Delivery>& found,
                         const List& sums) const {
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

std::vector<TapeNode::Delivery> LoopRule::deliver(const Backward& back, const List& given) const {
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
      while (next[k] < until[k]) deliveries.push_back({static_cast<size_t>(end_of_own[k]), given[next[k]++]});
  return deliveries;
}

void LoopRule::check_memory(const Backward& back) const {
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

List LoopRule::run_backward(const Backward& back, List carried, const List& seeds) const {
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

List LoopRule::append_backward(const Backward& back, List carried, const List& seeds) const {
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
      add(tensor, is_state ? Loop::padded(bytes) : loop.bytes_between_slices(static_cast<size_t>(own)));
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

void LoopRule::check_kept(bool is_there) const {
  TD_CHECK(
      is_there, loop.code.name, ": the gradient of ", loop.code.what,
      " needs values that it did not need when it was traced. Keep what depends on anything but tensors, "
      "modules and random operations out of its gradient rules.");
}

}  // namespace tandem::graph
