// fuse_pointwise: chains of pointwise ops of one shape, and the stores (assign) that take their results, become one
// kernel.
//
// A group runs at the place of its last member. Going through the nodes in order, a group stays open as long as moving
// its members down to the next node changes nothing: it is closed as soon as another node reads what it makes, or
// changes what it reads. Groups that have nothing to do with each other and stand close together are then joined
// into one launch.
#include <algorithm>
#include <optional>

#include "tandem/graph/graph.h"

namespace tandem::graph {

namespace {

constexpr size_t kMostSteps = 48, kMostOperands = 24;     // of one program
constexpr size_t kMostPrograms = 32, kMostBuffers = 160;  // of one launch

struct Group {
  std::vector<int> members;  // nodes, in order
  Dims shape;
  std::vector<int> reads;   // values read from outside, each once
  std::vector<int> makes;   // values made by members
  std::vector<int> stores;  // bases written by absorbed stores
  bool open = true;
};

bool holds(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class Grouping {
 public:
  explicit Grouping(const Graph& graph)
      : graph_(graph),
        writer_(static_cast<size_t>(graph.value_count()), kNone),
        readers_(static_cast<size_t>(graph.value_count())) {
    int position = 0;
    for (int n = graph.first(); n != kNone; n = graph.next(n), ++position) {
      const Node& node = graph.node(n);
      if (static_cast<size_t>(n) >= place_.size()) {
        place_.resize(static_cast<size_t>(n) + 1, 0);
        group_of_.resize(static_cast<size_t>(n) + 1, kNone);
      }
      place_[static_cast<size_t>(n)] = position;
      if (node.is_view()) continue;  // runs nothing; whoever reads the view is looked at through its base
      if (node.op && node.op->is_pointwise())
        add_pointwise(n, node);
      else if (!(node.op && node.op->store && absorb_store(n, node)))
        pass_by(node);
    }
    for (Group& group : groups_)
      std::sort(group.members.begin(), group.members.end(), [&](int a, int b) {
        return place_[static_cast<size_t>(a)] < place_[static_cast<size_t>(b)];
      });
  }

  /// The group of a node, or null where it runs alone.
  const Group* group_of(int n) const {
    const int g = static_cast<size_t>(n) < group_of_.size() ? group_of_[static_cast<size_t>(n)] : kNone;
    return g == kNone ? nullptr : &groups_[static_cast<size_t>(current(g))];
  }

 private:
  /// Groups are merged; the number of a merged one leads to the one that took it in.
  int current(int g) const {
    while (merged_into_[static_cast<size_t>(g)] != g) g = merged_into_[static_cast<size_t>(g)];
    return g;
  }
  Group& group(int g) { return groups_[static_cast<size_t>(g)]; }

  /// The open group that makes, or stores to, the memory of a base; or kNone. There is one at most.
  int writer_of(int base) const {
    const int g = writer_[static_cast<size_t>(base)];
    if (g == kNone) return kNone;
    const int now = current(g);
    return groups_[static_cast<size_t>(now)].open ? now : kNone;
  }
  void close_writer(int base) {
    if (const int g = writer_of(base); g != kNone) group(g).open = false;
  }
  void close_readers(int base, int except = kNone) {
    std::vector<int>& readers = readers_[static_cast<size_t>(base)];
    for (int g : readers)
      if (current(g) != except) group(current(g)).open = false;
    readers.clear();
    if (except != kNone) readers.push_back(except);
  }
  bool reads_base(const Group& group, int base) const {
    return std::any_of(group.reads.begin(), group.reads.end(),
                       [&](int v) { return graph_.base_of(v) == base; });
  }

  /// A node that joins no group: what it reads must be written before, and what it changes must have been read.
  void pass_by(const Node& node) {
    if (node.effects().refuses) {  // what was stored before a refusal stays stored
      for (int g : storing_) group(current(g)).open = false;
      storing_.clear();
    }
    for (int v : node.in) close_writer(graph_.base_of(v));
    graph_.writes_of(node, [&](int v) {
      if (!graph_.is_changed_in_place(v)) return;
      close_writer(graph_.base_of(v));
      close_readers(graph_.base_of(v));
    });
  }

  /// Joins the open groups that make its inputs, and with that merges them; else begins a group of its own.
  void add_pointwise(int n, const Node& node) {
    const Dims& shape = graph_.meta(node.out[0]).shape;
    // Inputs taken over element by element may join; any other use of a group's memory needs it written before.
    for (int v : node.in) {
      const int g = writer_of(graph_.base_of(v));
      if (g == kNone) continue;
      const bool direct =
          holds(group(g).makes, v) && group(g).shape == shape && graph_.meta(v).shape == shape;
      if (!direct) close_writer(graph_.base_of(v));
    }
    std::vector<int> candidates;
    for (int v : node.in)
      if (const int g = writer_of(graph_.base_of(v)); g != kNone && !holds(candidates, g))
        candidates.push_back(g);
    std::sort(candidates.begin(), candidates.end());
    size_t steps = 1, operands = node.in.size() + 1;
    for (int g : candidates) {
      steps += group(g).members.size();
      operands += group(g).reads.size() + group(g).makes.size() + group(g).stores.size();
    }
    // Two groups that write and read the same memory must keep their order.
    bool conflict = steps > kMostSteps || operands > kMostOperands;
    for (int a : candidates)
      for (int b : candidates)
        for (int base : group(a).stores)
          conflict = conflict || (a != b && (holds(group(b).stores, base) || reads_base(group(b), base)));
    if (conflict) {
      for (int g : candidates) group(g).open = false;
      candidates.clear();
    }
    const int g = candidates.empty() ? new_group(shape) : candidates[0];
    for (size_t i = 1; i < candidates.size(); ++i) merge(g, candidates[i]);
    for (int v : node.in)
      if (!holds(group(g).makes, v)) add_read(g, v);
    group(g).makes.push_back(node.out[0]);
    writer_[static_cast<size_t>(node.out[0])] = g;
    join(n, g);
  }

  /// A store joins the group that makes its source where it writes element by element over dense memory that the
  /// group reads, if at all, in the same places.
  bool absorb_store(int n, const Node& node) {
    const int target = node.in[0], source = node.in[1], base = graph_.base_of(target);
    const Meta& to = graph_.meta(target);
    close_writer(base);
    const int g = writer_of(graph_.base_of(source));
    if (g == kNone || !holds(group(g).makes, source) || !(group(g).shape == to.shape) ||
        !(graph_.meta(source).shape == to.shape) || !is_contiguous(to.shape, to.strides))
      return false;
    for (int v : group(g).reads) {
      if (graph_.base_of(v) != base) continue;
      const Meta& m = graph_.meta(v);
      if (!(m.shape == to.shape && m.strides == to.strides && m.offset == to.offset && m.dtype == to.dtype))
        return false;
    }
    // Other groups that read the old contents must run before this one: they take no more members.
    close_readers(base, g);
    group(g).stores.push_back(base);
    storing_.push_back(g);
    writer_[static_cast<size_t>(base)] = g;
    join(n, g);
    return true;
  }

  int new_group(const Dims& shape) {
    groups_.emplace_back().shape = shape;
    merged_into_.push_back(static_cast<int>(groups_.size()) - 1);
    return merged_into_.back();
  }
  void merge(int to, int from) {
    Group part = std::move(group(from));
    group(from) = Group{};
    group(from).open = false;
    merged_into_[static_cast<size_t>(from)] = to;
    Group& whole = group(to);
    whole.members.insert(whole.members.end(), part.members.begin(), part.members.end());
    whole.makes.insert(whole.makes.end(), part.makes.begin(), part.makes.end());
    whole.stores.insert(whole.stores.end(), part.stores.begin(), part.stores.end());
    for (int v : part.reads)
      if (!holds(whole.reads, v)) whole.reads.push_back(v);
  }
  void add_read(int g, int v) {
    if (holds(group(g).reads, v)) return;
    group(g).reads.push_back(v);
    readers_[static_cast<size_t>(graph_.base_of(v))].push_back(g);
  }
  void join(int n, int g) {
    group(g).members.push_back(n);
    group_of_[static_cast<size_t>(n)] = g;
  }

  const Graph& graph_;
  std::vector<int> place_;                 // by node: how many come before it
  std::vector<int> group_of_;              // by node
  std::vector<int> writer_;                // by base: the last group that made it or stored to it
  std::vector<std::vector<int>> readers_;  // by base: groups that read it, since it was last changed
  std::vector<int> storing_;               // groups with stores, since the last node that may refuse
  std::vector<Group> groups_;
  std::vector<int> merged_into_;
};

/// Strides of a value laid over `shape`, 0 where it is broadcast.
Dims strides_over(const Meta& meta, const Dims& shape) {
  Dims strides = Dims::filled(shape.rank(), 0);
  const int lead = shape.rank() - meta.shape.rank();
  for (int i = 0; i < meta.shape.rank(); ++i)
    if (meta.shape[i] == shape[lead + i]) strides[lead + i] = meta.strides[i];
  return strides;
}

/// A member's result is written to memory where a node outside its group, or a view, or the caller, uses it.
bool is_needed(const Graph& graph, const Grouping& grouping, const Group& group, int v) {
  return std::any_of(graph.uses_of(v).begin(), graph.uses_of(v).end(), [&](const Use& use) {
    return use.node == kNone || grouping.group_of(use.node) != &group;
  });
}

/// The group as one node: a program, its inputs, and those of its results that somebody else needs.
Node build(const Graph& graph, const Grouping& grouping, const Group& group) {
  Node fused;
  FusedProgram program;
  program.shape = group.shape;
  std::vector<std::pair<int, int>> registers;  // value -> register
  const auto find = [&](int v) -> std::optional<int> {
    for (const auto& [value, r] : registers)
      if (value == v) return r;
    return std::nullopt;
  };
  // First the inputs, in the order of their first use, then the steps: registers are numbered so.
  for (int m : group.members)
    graph.reads_of(graph.node(m), [&](int v, uint32_t version) {
      if (holds(group.makes, v) || find(v)) return;
      registers.emplace_back(v, static_cast<int>(program.inputs.size()));
      program.inputs.push_back({graph.meta(v).dtype, strides_over(graph.meta(v), group.shape)});
      fused.in.push_back(v);
      fused.versions.push_back(version);
    });
  for (int m : group.members) {
    const Node& node = graph.node(m);
    if (node.op->store) {
      program.outputs.push_back(*find(node.in[1]));
      fused.out.push_back(node.out[0]);
      continue;
    }
    FusedProgram::Step step;
    step.op = node.op;
    step.attrs = node.attrs;
    step.dtype = graph.meta(node.out[0]).dtype;
    for (int v : node.in) step.in.push_back(*find(v));
    const int r = static_cast<int>(program.inputs.size() + program.steps.size());
    registers.emplace_back(node.out[0], r);
    program.steps.push_back(std::move(step));
    if (is_needed(graph, grouping, group, node.out[0])) {
      program.outputs.push_back(r);
      fused.out.push_back(node.out[0]);
    }
  }
  fused.scope = graph.node(group.members[0]).scope;
  for (int m : group.members) fused.scope = common_scope(fused.scope, graph.node(m).scope);
  fused.programs.push_back(std::move(program));
  return fused;
}

/// Whether `later` may run together with `earlier`, or `earlier` may be moved past it: neither touches what the other
/// writes, and a refusal finds done what came before it.
bool independent(const Graph& graph, const Node& earlier, const Node& later) {
  if (later.effects().refuses && graph.changes_memory(earlier)) return false;
  const auto writes = [&](const Node& n, int base) {
    return std::any_of(n.out.begin(), n.out.end(), [&](int v) { return graph.base_of(v) == base; });
  };
  for (int v : later.in)
    if (writes(earlier, graph.base_of(v))) return false;
  for (int v : later.out) {
    if (writes(earlier, graph.base_of(v))) return false;
    for (int u : earlier.in)
      if (graph.base_of(u) == graph.base_of(v)) return false;
  }
  return true;
}

bool is_small(const Node& node) {
  constexpr Dim kSmall = 1 << 20;
  return node.is_fused() && size_of(node.programs[0].shape) <= kSmall;
}

/// The fused node just before n that it can be joined with, if nothing between stands in the way; or kNone.
int partner_of(const Graph& graph, int n) {
  constexpr int kWindow = 12;
  const Node& node = graph.node(n);
  int e = graph.previous(n);
  for (int back = 0; back < kWindow && e != kNone; ++back, e = graph.previous(e)) {
    const Node& earlier = graph.node(e);
    const bool fits =
        is_small(earlier) && earlier.programs.size() < kMostPrograms &&
        earlier.in.size() + earlier.out.size() + node.in.size() + node.out.size() <= kMostBuffers;
    if (!fits) continue;
    // Both will run at n: the earlier one moves past everything between, n included.
    for (int between = graph.next(e); between != graph.next(n); between = graph.next(between))
      if (!independent(graph, earlier, graph.node(between))) return kNone;
    return e;
  }
  return kNone;
}

/// Joins small fused nodes with the one before them; both then run at the later place.
void join_launches(Graph& graph) {
  for (int n = graph.first(), after = kNone; n != kNone; n = after) {
    after = graph.next(n);
    if (!is_small(graph.node(n))) continue;
    const int partner = partner_of(graph, n);
    if (partner == kNone) continue;
    Node joined = graph.erase(partner), later = graph.erase(n);
    for (int v : later.in) joined.in.push_back(v);
    for (uint32_t version : later.versions) joined.versions.push_back(version);
    for (int v : later.out) joined.out.push_back(v);
    for (auto& p : later.programs) joined.programs.push_back(std::move(p));
    joined.scope = common_scope(joined.scope, later.scope);
    graph.insert(after, std::move(joined));
  }
}

}  // namespace

void fuse_pointwise(Graph& graph) {
  const Grouping grouping(graph);
  for (int n = graph.first(), after = kNone; n != kNone; n = after) {
    after = graph.next(n);
    const Group* group = grouping.group_of(n);
    if (!group || group->members.size() == 1 || group->members.back() != n) continue;
    Node fused = build(graph, grouping, *group);
    for (int m : group->members) graph.erase(m);
    if (!fused.out.empty()) graph.insert(after, std::move(fused));  // else nobody needs it
  }
  join_launches(graph);
}

}  // namespace tandem::graph
