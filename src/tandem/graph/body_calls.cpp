// How a node runs its bodies: one of two, or one again and again. Within a recording the device decides that, and everything
// that may run is recorded.
#include <algorithm>

#include "tandem/graph/call.h"

namespace tandem::graph {

BodyCalls::BodyCalls(const Body& body, MemoryPlan plan, bool check_anomalies, const uint64_t* random)
    : CallList(*body.graph, std::move(plan), check_anomalies),
      in(body.in.size()),
      out(body.out.size()),
      body_(body),
      parts_(memory_.size()) {
  make_calls(random);
  std::vector<bool> moves(memory_.size(), false);
  for (int i = 0; i < graph_.inputs; ++i) {
    input_values_.push_back(graph_.value_of_input(i));
    moves[static_cast<size_t>(input_values_.back())] = true;
  }
  // A result that the body computes is written straight to its place. One that is memory from outside, or the same memory
  // as an earlier result, is copied there at the end.
  for (size_t k = 0; k < out.size(); ++k) {
    const int base = base_of_result(k);
    written_there_.push_back(graph_.value(base).source == Source::computed &&
                             !moves[static_cast<size_t>(base)]);
    if (written_there_.back()) moves[static_cast<size_t>(base)] = true;
  }
  for (Call& call : calls_) {
    const auto note = [&](const SmallVector<int, 4>& values, std::vector<Buffer>& buffers) {
      for (size_t i = 0; i < buffers.size(); ++i) {
        const Meta& m = graph_.meta(values[i]);
        const size_t base = static_cast<size_t>(graph_.base_of(values[i]));
        if (moves[base])
          parts_[base].push_back({&buffers[i], m.offset * static_cast<int64_t>(bytes_of(m.dtype))});
      }
    };
    note(call.node->in, call.in);
    note(call.node->out, call.out);
  }
}

void BodyCalls::take(const std::vector<Buffer>& node_in, const std::vector<Buffer>& node_out) {
  for (size_t i = 0; i < in.size(); ++i) in[i] = node_in[static_cast<size_t>(body_.in[i])].as<char>();
  for (size_t k = 0; k < out.size(); ++k) out[k] = node_out[static_cast<size_t>(body_.out[k])].as<char>();
}

void BodyCalls::move(int base, char* to) {
  char*& now = memory_[static_cast<size_t>(base)];
  if (now == to) return;
  now = to;
  for (const Part& part : parts_[static_cast<size_t>(base)]) part.buffer->data = to + part.offset;
}

bool BodyCalls::has_candidates() const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const Call& call) {
    return call.node->op && call.node->op->candidates[static_cast<size_t>(graph_.device.kind)];
  });
}

void BodyCalls::run(char* arena, const RngPosition& random) {
  for (size_t i = 0; i < in.size(); ++i) move(input_values_[i], in[i]);
  for (size_t k = 0; k < out.size(); ++k)
    if (written_there_[k]) move(base_of_result(k), out[k]);
  if (!placed_ || arena != arena_) {
    put_arena(arena);
    for (Call& call : calls_) set_pointers(call);
    placed_ = true;
  }
  set_random(random);
  for (Call& call : calls_) launch(call);
  for (size_t k = 0; k < out.size(); ++k)
    if (!written_there_[k])
      backend_.copy_within(graph_.device, out[k], memory_[static_cast<size_t>(base_of_result(k))],
                           bytes_of_result(k));
}

/// The one that the first element of input 0 stands for: the first body where it is true, else the second. Or a loop. A
/// body draws from its node's share of the random numbers: its own places count from there.
void CallList::run_bodies(Call& call) {
  char* const arena = arena_ + call.for_bodies.offset;
  const RngPosition random{0, random_.offset + call.node->random_offset, random_.base};
  const Bodies& bodies = *call.node->bodies;
  const bool is_recording = control_ && control_->is_recording();
  if (bodies.loop && is_recording && !bodies.has_fixed_count()) return record_loop(call, arena, random);
  if (bodies.loop) return run_loop(call, arena, random);
  const auto run = [&](size_t which) {
    BodyCalls& body = *call.bodies[which];
    body.take(call.in, call.out);
    body.run(arena, random);
  };
  if (is_recording)
    return control_->branch(
        call.in[0].as<bool>(), [&] { run(0); }, [&] { run(1); });
  bool condition = false;
  backend_.copy_to_host(graph_.device, &condition, call.in[0].data, sizeof(condition));
  run(condition ? 0 : 1);
}

void CallList::run_loop(Call& call, char* arena, const RngPosition& random) {
  const Loop& loop = *call.node->bodies->loop;
  const Device device = graph_.device;
  BodyCalls& step = *call.bodies[0];
  BodyCalls* const condition = call.bodies.size() > 1 ? call.bodies[1].get() : nullptr;
  int64_t count = loop.count;
  if (loop.count_in != kNone)
    backend_.copy_to_host(device, &count, call.in[static_cast<size_t>(loop.count_in)].data, sizeof(count));
  step.take(call.in, call.out);
  if (condition) condition->take(call.in, call.out);

  const auto slice = [&](char* first, int64_t bytes, int64_t run) {
    return first + bytes * (loop.from_end ? count - 1 - run : run);
  };
  // What is carried: where it is at first and at last, and where before a run. Runs write two places in turn, so that the
  // last one writes the node's output; where the values before each run are kept, their slices.
  struct Carried {
    char *first, *last, *second, *history;
    int64_t bytes;
  };
  std::vector<Carried> carried;
  for (size_t c = 0; c < loop.carried.size(); ++c) {
    const size_t input = static_cast<size_t>(loop.carried[c]);
    const int history = loop.history[c];
    const int64_t second = call.for_bodies.second[c];
    carried.push_back({step.in[input], step.out[c], second < 0 ? nullptr : arena + second,
                       history == kNone ? nullptr : call.out[static_cast<size_t>(history)].as<char>(),
                       static_cast<int64_t>(step.bytes_of_input(input))});
  }
  const auto place = [&](const Carried& c, int64_t run) {
    if (run == count) return c.last;
    if (c.history) return slice(c.history, Loop::padded(c.bytes), run);
    return run == 0 ? c.first : (count - run) % 2 ? c.second : c.last;
  };
  const auto copy = [&](char* to, const char* from, int64_t bytes) {
    if (to != from) backend_.copy_within(device, to, from, static_cast<size_t>(bytes));
  };
  struct Slices {
    size_t of;
    char* first;
    int64_t bytes;
    char* staged;  // null: written to its place at once
  };
  std::vector<Slices> sliced, stacked;
  for (const Loop::Slices& each : loop.sliced)
    sliced.push_back(
        {static_cast<size_t>(each.of), step.in[static_cast<size_t>(each.of)], each.bytes, nullptr});
  for (size_t s = 0; s < loop.stacked.size(); ++s) {
    const size_t of = static_cast<size_t>(loop.stacked[s].of);
    const int64_t staged = call.for_bodies.staged[s];
    stacked.push_back({of, step.out[of], loop.stacked[s].bytes,
                       staged >= 0 && step.is_written_there(of) ? arena + staged : nullptr});
  }

  if (count > 0)
    for (const Carried& c : carried)
      if (c.history) copy(place(c, 0), c.first, c.bytes);
  int64_t run = 0;
  for (; run < count; ++run) {
    for (size_t c = 0; c < carried.size(); ++c) {
      step.in[static_cast<size_t>(loop.carried[c])] = place(carried[c], run);
      step.out[c] = place(carried[c], run + 1);
      if (condition) condition->in[c] = place(carried[c], run);
    }
    if (condition) {
      condition->run(arena, random);
      bool goes_on = false;
      backend_.copy_to_host(device, &goes_on, condition->out[0], sizeof(goes_on));
      if (!goes_on) break;
    }
    for (const Slices& each : sliced) step.in[each.of] = slice(each.first, each.bytes, run);
    for (const Slices& each : stacked)
      step.out[each.of] = each.staged ? each.staged : slice(each.first, each.bytes, run);
    const auto drawn = static_cast<uint64_t>(loop.repeats ? count - 1 - run : run);
    step.run(arena, {0, random.offset + loop.random_blocks * drawn, random.base});
    for (const Slices& each : stacked)
      if (each.staged) copy(slice(each.first, each.bytes, run), each.staged, each.bytes);
  }
  for (const Carried& c : carried) copy(c.last, run == 0 ? c.first : place(c, run), c.bytes);
  if (loop.count_out != kNone)
    backend_.copy_from_host(device, call.out[static_cast<size_t>(loop.count_out)].data, &run, sizeof(run));
}

}  // namespace tandem::graph
