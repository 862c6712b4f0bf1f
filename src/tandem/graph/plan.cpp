#include "tandem/graph/plan.h"

#include <map>
#include <set>

namespace tandem::graph {

namespace {
constexpr size_t kAlignment =
    256;  // a multiple of every backend's alignment, so both engines' buffers are alike

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
}  // namespace

size_t bytes_of_base(const Graph& graph, int base) {
  const Meta& m = graph.meta(base);
  if (size_of(m.shape) == 0) return 0;
  int64_t last = 0;  // an input may be strided: all between its first and its last element counts
  for (int i = 0; i < m.shape.rank(); ++i) last += (m.shape[i] - 1) * m.strides[i];
  return static_cast<size_t>(last + 1) * bytes_of(m.dtype);
}

MemoryPlan plan_memory(const Graph& graph, bool share) {
  const size_t values = static_cast<size_t>(graph.value_count());
  MemoryPlan plan;
  plan.offset.assign(values, -1);
  std::vector<bool> apart = graph.returned_bases();  // they and constants have memory of their own
  for (const Node& node : graph.constants())
    for (int v : node.out) apart[static_cast<size_t>(graph.base_of(v))] = true;

  const auto each_base = [&](const Node& node, auto f) {
    const auto touch = [&](int v) {
      const int base = graph.base_of(v);
      if (!graph.is_external(v) && !apart[static_cast<size_t>(base)]) f(base);
    };
    for (int v : node.in) touch(v);
    for (int v : node.out) touch(v);
  };
  const auto bytes_of_life = [&](int base) {
    const size_t bytes = (bytes_of_base(graph, base) + kAlignment - 1) / kAlignment * kAlignment;
    return std::max(bytes, kAlignment);
  };
  std::vector<int> last(values, kNone);  // by base: the last node that touches it
  for (int n = graph.first(); n != kNone; n = graph.next(n))
    if (!graph.node(n).is_view())
      each_base(graph.node(n), [&](int base) { last[static_cast<size_t>(base)] = n; });
  FreeParts parts;
  for (int n = graph.first(); n != kNone; n = graph.next(n)) {
    if (graph.node(n).is_view()) continue;
    each_base(graph.node(n), [&](int base) {
      int64_t& offset = plan.offset[static_cast<size_t>(base)];
      if (offset >= 0) return;
      offset = static_cast<int64_t>(parts.take(bytes_of_life(base)));
      plan.values_bytes += bytes_of_life(base);
    });
    if (!share) continue;
    each_base(graph.node(n), [&](int base) {
      int& until = last[static_cast<size_t>(base)];
      if (until != n) return;
      parts.give_back(static_cast<size_t>(plan.offset[static_cast<size_t>(base)]), bytes_of_life(base));
      until = kNone;
    });
  }
  plan.arena_bytes = parts.end();
  return plan;
}

}  // namespace tandem::graph
