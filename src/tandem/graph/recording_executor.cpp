// The executor for backends that record. Inputs and results have memory of their own that stays in place: inputs are
// copied in, results and changed inputs out. The first run makes the calls one by one, the second records them, later
// ones replay.
#include <bitset>
#include <map>

#include "tandem/graph/call.h"

namespace tandem::graph {

namespace {

/// Who touched which memory last. Bases of the arena share addresses, so this goes by bytes, not by bases.
class Touches {
 public:
  /// Calls f(step) for each earlier step that a step must wait for when it reads (or writes) these bytes, and notes it.
  template <class F>
  void note(const char* begin, const char* end, int step, bool writes, F f) {
    cut(begin);
    cut(end);
    // A writer waits for the last writer and for all who read since; they are then forgotten, since waiting for this
    // step implies waiting for them.
    if (writes) {
      const auto first = parts_.lower_bound(begin), last = parts_.lower_bound(end);
      for (auto at = first; at != last; ++at) {
        if (at->second.writer >= 0) f(at->second.writer);
        for (int reader : at->second.readers) f(reader);
      }
      parts_.erase(first, last);
      parts_[begin] = {end, step, {}};
      return;
    }
    const char* from = begin;
    for (auto at = parts_.lower_bound(begin); from < end; ++at) {
      if (at == parts_.end() || at->first > from) {  // nobody has touched these bytes yet
        const char* to = at == parts_.end() ? end : std::min(end, at->first);
        at = parts_.emplace(from, Part{to, -1, {}}).first;
      }
      // A reader waits for the last writer alone: readers do not disturb each other.
      if (at->second.writer >= 0) f(at->second.writer);
      if (at->second.readers.empty() || at->second.readers.back() != step) at->second.readers.push_back(step);
      from = at->second.end;
    }
  }

 private:
  struct Part {
    const char* end = nullptr;
    int writer = -1;
    std::vector<int> readers;  // since
  };
  /// Has a part begin at an address, if one lies over it.
  void cut(const char* address) {
    auto at = parts_.lower_bound(address);
    if (at == parts_.begin()) return;
    --at;
    if (at->second.end <= address || at->first == address) return;
    Part rest = at->second;
    at->second.end = address;
    parts_.emplace(address, std::move(rest));
  }
  std::map<const char*, Part> parts_;  // by where they begin; they do not overlap
};

class RecordingExecutor final : public Executor {
 public:
  RecordingExecutor(Graph graph, MemoryPlan plan, bool check_anomalies)
      : Executor(std::move(graph), std::move(plan), check_anomalies),
        refusal_(check_anomalies ? "anomaly mode looks at each result" : refusal_to_record()) {
    for (const auto* bases : {&input_bases_, &returned_bases_})
      for (int b : *bases) put(b, new_memory(b));
  }
  std::string describe() const override {
    if (recording_) return str(graph_.device, ": recorded, replayed as one");
    return str(graph_.device, ": ", calls_.size(), " kernels in order",
               refusal_.empty() ? "" : "; not recorded: ", refusal_);
  }

 protected:
  bool place(const std::vector<Tensor>& inputs, Arena& arena) override {
    for (int b : input_bases_) {
      const size_t at = static_cast<size_t>(b);
      backend_.copy_within(graph_.device, memory_[at],
                           inputs[static_cast<size_t>(graph_.value(b).input)].raw(), own_[at]->bytes());
    }
    // A recording holds addresses. Where the arena has moved it is worth nothing, and the next run is the first
    // again.
    if (has_run_ && bound_arena_ == arena.storage) return false;
    recording_.reset();
    has_run_ = false;
    bound_arena_ = arena.storage;
    put_arena(arena.data());
    return true;
  }

  void execute() override {
    if (!recording_ && has_run_ && refusal_.empty() && !has_untimed_bodies()) record();
    if (recording_)
      replay();
    else
      for (Call& call : calls_) launch(call);
    has_run_ = true;
  }

  Ref<Storage> hand_over(int base) override {
    const Ref<Storage>& own = own_[static_cast<size_t>(base)];
    auto copy = make_ref<Storage>(graph_.device, own->bytes());
    backend_.copy_within(graph_.device, copy->data(), own->data(), own->bytes());
    return copy;
  }

  void finish(const std::vector<Tensor>& inputs) override {
    for (int b : input_bases_) {
      const size_t input = static_cast<size_t>(graph_.value(b).input), at = static_cast<size_t>(b);
      if (changes_input_[input])
        backend_.copy_within(graph_.device, inputs[input].raw(), memory_[at], own_[at]->bytes());
    }
  }

 private:
  void record() {
    const NotesPaused off;  // nothing runs while it is recorded
    try {
      recording_ = backend_.record(graph_.device, record_steps());
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      // A driver may refuse a kernel inside a branch or a loop that it takes elsewhere: the calls are then made in order.
      if (!chooses_by_value()) throw;
      refusal_ = error.what();
    }
  }

  void replay() {
    constexpr const char* kName = "recorded graph";
    NotedOp note(kName, graph_.device);
    run_noted(graph_.device, kName, [&] { recording_->replay(); });
    if (note) note.describe(work(), str(calls_.size(), " calls, launched as one"));
  }

  /// The calls with their true order: one waits for another where it touches memory that the other writes, or writes
  /// memory that the other reads; ordered effects wait for each other. What a wait implies is left out where that shows
  /// among the last steps.
  std::vector<RecordStep> record_steps() {
    constexpr size_t kWindow = 512;
    const int count = static_cast<int>(calls_.size());
    std::vector<std::bitset<kWindow>> behind(calls_.size());  // [i][k]: i waits for i - 1 - k, if indirectly
    std::vector<RecordStep> steps(calls_.size());
    Touches touches;
    int last_ordered = -1;
    for (int i = 0; i < count; ++i) {
      const Node& node = *calls_[static_cast<size_t>(i)].node;
      std::vector<int> waits;
      const auto wait = [&](int step) {
        if (step != i) waits.push_back(step);
      };
      const auto note = [&](int v, bool writes) {
        const int base = graph_.base_of(v);
        const Value& value = graph_.value(base);
        const size_t bytes = value.storage ? value.storage->bytes() : bytes_of_base(graph_, base);
        const char* begin = memory_[static_cast<size_t>(base)];
        if (bytes) touches.note(begin, begin + bytes, i, writes, wait);
      };
      graph_.reads_of(node, [&](int v, uint32_t) { note(v, false); });
      graph_.writes_of(node, [&](int v) { note(v, true); });
      const MemoryPlan::ForBodies& inner = calls_[static_cast<size_t>(i)].for_bodies;
      if (inner.bytes)
        touches.note(arena_ + inner.offset, arena_ + inner.offset + inner.bytes, i, true, wait);
      if (node.effects().is_ordered()) {
        if (last_ordered >= 0) wait(last_ordered);
        last_ordered = i;
      }
      // From the latest back: what the later ones wait for themselves need not be waited for again.
      std::sort(waits.begin(), waits.end(), std::greater<int>());
      waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
      std::bitset<kWindow>& mine = behind[static_cast<size_t>(i)];
      for (int j : waits) {
        const size_t back = static_cast<size_t>(i - 1 - j);
        if (back < kWindow && mine[back]) continue;  // implied by a later wait
        steps[static_cast<size_t>(i)].after.push_back(j);
        if (back >= kWindow) continue;
        mine[back] = true;
        mine |= behind[static_cast<size_t>(j)] << (back + 1);
      }
      steps[static_cast<size_t>(i)].launch = [this, i] { launch(calls_[static_cast<size_t>(i)]); };
    }
    return steps;
  }

  Ref<Storage> bound_arena_;
  std::unique_ptr<Recording> recording_;
  bool has_run_ = false;
  std::string refusal_;  // why it is not recorded; empty: it is
};

}  // namespace

std::unique_ptr<Executor> make_recording_executor(Graph graph, MemoryPlan plan, bool check_anomalies) {
  return std::make_unique<RecordingExecutor>(std::move(graph), std::move(plan), check_anomalies);
}

}  // namespace tandem::graph
