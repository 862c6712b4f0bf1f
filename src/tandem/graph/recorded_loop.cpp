// A loop whose end the device decides, within a recording. What a run does is recorded once, so that every run has the same
// addresses: what is carried lies in the node's output, a run writes it to its second place, and is then copied back;
// slices of stacks are copied from and to places of their own, by the run's number in the LoopState.
#include "tandem/graph/call.h"

namespace tandem::graph {

void CallList::record_loop(Call& call, char* arena, const RngPosition& random) {
  const Loop& loop = *call.node->bodies->loop;
  const MemoryPlan::ForBodies& places = call.for_bodies;
  BodyCalls& step = *call.bodies[0];
  BodyCalls* const condition = call.bodies.size() > 1 ? call.bodies[1].get() : nullptr;
  step.take(call.in, call.out);
  if (condition) condition->take(call.in, call.out);

  std::vector<SliceCopy> at_first, before, after;  // before all runs; before and after each
  for (size_t c = 0; c < loop.carried.size(); ++c) {
    const size_t input = static_cast<size_t>(loop.carried[c]);
    const int64_t bytes = static_cast<int64_t>(step.bytes_of_input(input));
    char *const now = step.out[c], *const next = arena + places.second[c];
    at_first.push_back({now, step.in[input], bytes});
    if (const int history = loop.history[c]; history != kNone)
      before.push_back({call.out[static_cast<size_t>(history)].as<char>(), now, bytes, Loop::padded(bytes)});
    after.push_back({now, next, bytes});
    step.in[input] = now;
    step.out[c] = next;
    if (condition) condition->in[c] = now;
  }
  for (size_t s = 0; s < loop.sliced.size(); ++s) {
    const auto& [of, bytes] = loop.sliced[s];
    if (bytes == 0) continue;  // one slice for all runs
    char*& place = step.in[static_cast<size_t>(of)];
    const int64_t slice = static_cast<int64_t>(step.bytes_of_input(static_cast<size_t>(of)));
    before.push_back({arena + places.gathered[s], place, slice, 0, bytes});
    place = arena + places.gathered[s];
  }
  for (size_t s = 0; s < loop.stacked.size(); ++s) {
    const auto& [of, bytes] = loop.stacked[s];
    char*& place = step.out[static_cast<size_t>(of)];
    after.push_back({place, arena + places.staged[s], bytes, bytes});
    place = arena + places.staged[s];
  }

  auto* const state = reinterpret_cast<LoopState*>(arena + places.state);
  LoopStart start{.count = loop.count};
  RngPosition drawn = random;
  if (loop.count_in != kNone)
    start.count_in = call.in[static_cast<size_t>(loop.count_in)].as<const int64_t>();
  if (random.base && loop.random_blocks) {
    start.random = random.base;
    start.random_offset = random.offset;
    start.random_blocks = loop.random_blocks;
    start.goes_back = loop.repeats;
    drawn = {0, 0, state->random};
  }
  const bool stops_at_fault = step.may_refuse() || (condition && condition->may_refuse());
  const auto ask = [&] { condition->run(arena, random); };

  control_->begin(state, start);
  control_->copy(state, at_first, false);
  if (condition) ask();
  control_->repeat(&state->is_within, condition ? reinterpret_cast<const bool*>(condition->out[0]) : nullptr,
                   stops_at_fault, [&] {
                     control_->copy(state, before, loop.from_end);
                     step.run(arena, drawn);
                     control_->copy(state, after, loop.from_end);
                     control_->advance(state);
                     // Nobody asks once the bound is reached: an index may then be out of range.
                     if (condition && condition->may_refuse())
                       control_->branch(&state->is_within, ask, {});
                     else if (condition)
                       ask();
                   });
  if (loop.count_out != kNone)
    backend_.copy_within(graph_.device, call.out[static_cast<size_t>(loop.count_out)].data, &state->run,
                         sizeof(state->run));
}

}  // namespace tandem::graph
