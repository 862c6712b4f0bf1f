#include "tandem/graph/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "tandem/core/backend.h"
#include "tandem/core/recorded_control.h"

namespace tandem::graph {

namespace {
constexpr size_t kAlignment =
    256;  // a multiple of every backend's alignment, so both engines' buffers are alike

constexpr size_t kMostToSort = 2000;  // models of the zoo have hundreds

/// From the first to the last node that touches a base, by their places in the order, both included.
struct Life {
  int base = 0;  // kNone: the arena of the bodies of `node`
  int from = 0, to = 0;
  size_t bytes = 0;
  size_t offset = 0;
  int node = kNone;
};

/// The free parts of an arena that grows where none is large enough. Hands out the smallest that fits; parts that are
/// given back grow together again.
class FreeParts {
 public:
  size_t take(size_t bytes) {
    const auto fits = by_size_.lower_bound({bytes, 0});
    if (fits != by_size_.end()) {
      const auto [size, at] = *fits;
      remove(at, size);
      if (size > bytes) add(at + bytes, size - bytes);
      return at;
    }
    // Nothing fits: the free part at the end, if there is one, grows.
    size_t at = end_;
    if (!by_place_.empty()) {
      const auto last = std::prev(by_place_.end());
      if (last->first + last->second == end_) {
        at = last->first;
        remove(last->first, last->second);
      }
    }
    end_ = at + bytes;
    return at;
  }
  void give_back(size_t at, size_t bytes) {
    auto after = by_place_.lower_bound(at);
    if (after != by_place_.end() && after->first == at + bytes) {
      bytes += after->second;
      remove(after->first, after->second);
      after = by_place_.lower_bound(at);
    }
    if (after != by_place_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == at) {
        at = before->first;
        bytes += before->second;
        remove(before->first, before->second);
      }
    }
    add(at, bytes);
  }
  size_t end() const { return end_; }

 private:
  void add(size_t at, size_t bytes) {
    by_place_[at] = bytes;
    by_size_.insert({bytes, at});
  }
  void remove(size_t at, size_t bytes) {
    by_place_.erase(at);
    by_size_.erase({bytes, at});
  }
  std::map<size_t, size_t> by_place_;            // place -> bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // (bytes, place)
  size_t end_ = 0;
};

/// The largest first, each at the lowest place that is free for all of its life. The tightest of the two, at a cost that
/// grows with the square of their number. Returns the bytes of the arena.
size_t place_largest_first(std::vector<Life>& lives) {
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  size_t end = 0;
  std::vector<std::pair<size_t, size_t>> taken;
  for (size_t i = 0; i < lives.size(); ++i) {
    Life& life = lives[i];
    // What is alive at the same time, by place; the first gap that is large enough is taken.
    taken.clear();
    for (size_t j = 0; j < i; ++j)
      if (lives[j].from <= life.to && life.from <= lives[j].to)
        taken.emplace_back(lives[j].offset, lives[j].offset + lives[j].bytes);
    std::sort(taken.begin(), taken.end());
    for (const auto& [begin, until] : taken) {
      if (life.offset + life.bytes <= begin) break;
      life.offset = std::max(life.offset, until);
    }
    end = std::max(end, life.offset + life.bytes);
  }
  return end;
}

/// In the order in which they begin, each in the smallest free part that fits.
size_t place_in_order(std::vector<Life>& lives) {
  FreeParts parts;
  std::multimap<int, const Life*> ends;  // what is alive, by its end
  for (Life& life : lives) {
    while (!ends.empty() && ends.begin()->first < life.from) {
      parts.give_back(ends.begin()->second->offset, ends.begin()->second->bytes);
      ends.erase(ends.begin());
    }
    life.offset = parts.take(life.bytes);
    ends.emplace(life.to, &life);
  }
  return parts.end();
}
}  // namespace

size_t bytes_of_base(const Graph& graph, int base) {
  const Meta& m = graph.meta(base);
  if (size_of(m.shape) == 0) return 0;
  int64_t last = 0;  // an input may be strided: all between its first and its last element counts
  for (int i = 0; i < m.shape.rank(); ++i) last += (m.shape[i] - 1) * m.strides[i];
  return static_cast<size_t>(last + 1) * bytes_of(m.dtype);
}

namespace {
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

MemoryPlan::ForBodies plan_bodies(const Bodies& bodies, bool share) {
  MemoryPlan::ForBodies plan;
  for (const Body& body : bodies.list) {
    plan.plans.push_back(plan_memory(*body.graph, share));
    plan.bytes = std::max(plan.bytes, aligned(plan.plans.back().arena_bytes));
  }
  if (!bodies.loop) return plan;
  const Loop& loop = *bodies.loop;
  const Graph& step = *bodies.list[0].graph;
  const auto take = [&](size_t bytes) {
    const int64_t at = static_cast<int64_t>(plan.bytes);
    plan.bytes += std::max(aligned(bytes), kAlignment);
    return at;
  };
  const auto bytes_of_input = [&](int i) { return bytes_of_base(step, step.value_of_input(i)); };
  Backend* const runs_it = find_backend(step.device.kind);
  const bool is_recorded =
      !bodies.has_fixed_count() && runs_it && runs_it->recorded_control(step.device) != nullptr;
  for (size_t c = 0; c < loop.carried.size(); ++c)
    plan.second.push_back(is_recorded || (loop.history[c] == kNone && loop.count != 1)
                              ? take(bytes_of_input(loop.carried[c]))
                              : -1);
  for (const Loop::Slices& each : loop.stacked)
    plan.staged.push_back(
        is_recorded || each.bytes % Loop::kAlignment != 0 ? take(static_cast<size_t>(each.bytes)) : -1);
  for (const Loop::Slices& each : loop.sliced)
    plan.gathered.push_back(is_recorded && each.bytes != 0 ? take(bytes_of_input(each.of)) : -1);
  if (is_recorded) plan.state = take(sizeof(LoopState));
  return plan;
}
}  // namespace

// A base lives from the first to the last node that touches it, both included: two bases that one node touches
// never overlap. The arena of a node's bodies lives at that node alone, and the bodies share it, since one of them
// runs.
MemoryPlan plan_memory(const Graph& graph, bool share) {
  const size_t values = static_cast<size_t>(graph.value_count());
  MemoryPlan plan;
  plan.offset.assign(values, -1);
  std::vector<bool> apart = graph.returned_bases();  // they and constants have memory of their own
  for (const Node& node : graph.constants())
    for (int v : node.out) apart[static_cast<size_t>(graph.base_of(v))] = true;

  std::vector<Life> lives;
  std::vector<int> life_of(values, kNone);  // by base
  int place = 0;
  for (int n = graph.first(); n != kNone; n = graph.next(n), ++place) {
    const Node& node = graph.node(n);
    if (node.is_view()) continue;
    const auto touch = [&](int v) {
      const int base = graph.base_of(v);
      if (graph.is_external(v) || apart[static_cast<size_t>(base)]) return;
      int& life = life_of[static_cast<size_t>(base)];
      if (life == kNone) {
        life = static_cast<int>(lives.size());
        lives.push_back({base, place, place, std::max(aligned(bytes_of_base(graph, base)), kAlignment)});
      }
      lives[static_cast<size_t>(life)].to = place;
    };
    for (int v : node.in) touch(v);
    for (int v : node.out) touch(v);
    if (!node.bodies) continue;
    const size_t bytes = (plan.bodies[n] = plan_bodies(*node.bodies, share)).bytes;
    if (bytes) lives.push_back({kNone, place, place, bytes, 0, n});
  }
  for (Life& life : lives) {
    // Without sharing, one after the other; values_bytes is reported in both cases.
    life.offset = plan.values_bytes;
    plan.values_bytes += life.bytes;
  }
  plan.arena_bytes = plan.values_bytes;
  if (share) {
    for (Life& life : lives) life.offset = 0;
    plan.arena_bytes = lives.size() <= kMostToSort ? place_largest_first(lives) : place_in_order(lives);
  }
  for (const Life& life : lives)
    if (life.base == kNone)
      plan.bodies[life.node].offset = life.offset;
    else
      plan.offset[static_cast<size_t>(life.base)] = static_cast<int64_t>(life.offset);
  return plan;
}

}  // namespace tandem::graph
