// fuse_pointwise: chains of pointwise ops of one shape, and the assigns that take their results, become one kernel.
//
// A group runs at the place of its last member. Going through the nodes in order, a group stays open as long as moving
// its members down to the next node changes nothing: it is closed as soon as another node reads what it makes, or
// assigns to what it reads. Groups that have nothing to do with each other and stand close together are then joined
// into one launch.
#include <algorithm>
#include <optional>
#include <set>

#include "tandem/graph/graph.h"

namespace tandem::graph {

namespace {

constexpr size_t kMostSteps = 48, kMostOperands = 24;     // of one program
constexpr size_t kMostPrograms = 32, kMostBuffers = 160;  // of one launch

struct Group {
  std::vector<size_t> members;  // node indices, ascending
  Dims shape;
  std::set<int> reads;     // values read from outside
  std::set<int> makes;     // values made by members
  std::set<int> assigned;  // bases written by absorbed assigns
  bool open = true;
};

class Grouping {
 public:
  explicit Grouping(Graph& graph) : graph_(graph), group_of_(graph.nodes.size(), -1) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.is_fused()) {
        for (int v : node.in) close_writers(graph.base_of(v));
        for (int v : node.out) close_all_on(graph.base_of(v));
      } else if (node.op->view) {
        continue;  // runs nothing; whoever reads the view is looked at through its base
      } else if (node.op->is_pointwise()) {
        add_pointwise(i, node);
      } else if (node.changes_memory()) {
        add_assign(i, node);
      } else {
        for (int v : node.in) close_writers(graph.base_of(v));
      }
    }
  }

  const std::vector<Group>& groups() const { return groups_; }
  int group_of(size_t node) const { return group_of_[node]; }

 private:
  /// The open group that makes (or assigns to) the memory of a base, or -1.
  int writer_of(int base) const {
    for (size_t g = groups_.size(); g-- > 0;)
      if (groups_[g].open && (groups_[g].makes.count(base) || groups_[g].assigned.count(base)))
        return static_cast<int>(g);
    return -1;
  }
  void close_writers(int base) {
    for (int g = writer_of(base); g >= 0; g = writer_of(base)) groups_[static_cast<size_t>(g)].open = false;
  }
  void close_readers(int base, int except) {
    for (size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].open && static_cast<int>(g) != except && reads_base(groups_[g], base))
        groups_[g].open = false;
  }
  void close_all_on(int base) {
    close_writers(base);
    close_readers(base, -1);
  }
  bool reads_base(const Group& group, int base) const {
    return std::any_of(group.reads.begin(), group.reads.end(),
                       [&](int v) { return graph_.base_of(v) == base; });
  }

  void add_pointwise(size_t i, const Node& node) {
    const Dims& shape = graph_.meta(node.out[0]).shape;
    // Inputs taken over element by element may join; any other use of a group's memory needs it written before.
    for (int v : node.in) {
      const int g = writer_of(graph_.base_of(v));
      if (g < 0) continue;
      const Group& group = groups_[static_cast<size_t>(g)];
      const bool direct = group.makes.count(v) && group.shape == shape && graph_.meta(v).shape == shape;
      if (!direct) close_writers(graph_.base_of(v));
    }
    std::set<int> candidates;
    for (int v : node.in)
      if (const int g = writer_of(graph_.base_of(v)); g >= 0) candidates.insert(g);
    size_t steps = 1, operands = node.in.size() + 1;
    for (int g : candidates) {
      const Group& group = groups_[static_cast<size_t>(g)];
      steps += group.members.size();
      operands += group.reads.size() + group.makes.size() + group.assigned.size();
    }
    // Two groups that write and read the same memory must keep their order.
    bool conflict = steps > kMostSteps || operands > kMostOperands;
    for (int a : candidates)
      for (int b : candidates)
        for (int base : groups_[static_cast<size_t>(a)].assigned)
          conflict = conflict || (a != b && (groups_[static_cast<size_t>(b)].assigned.count(base) ||
                                             reads_base(groups_[static_cast<size_t>(b)], base)));
    if (conflict) {
      for (int g : candidates) groups_[static_cast<size_t>(g)].open = false;
      candidates.clear();
    }
    Group merged;
    merged.shape = shape;
    for (int g : candidates) {
      Group& part = groups_[static_cast<size_t>(g)];
      merged.members.insert(merged.members.end(), part.members.begin(), part.members.end());
      merged.reads.insert(part.reads.begin(), part.reads.end());
      merged.makes.insert(part.makes.begin(), part.makes.end());
      merged.assigned.insert(part.assigned.begin(), part.assigned.end());
      part = Group{};
      part.open = false;
    }
    merged.members.push_back(i);
    std::sort(merged.members.begin(), merged.members.end());
    for (int v : node.in)
      if (!merged.makes.count(v)) merged.reads.insert(v);
    merged.makes.insert(node.out[0]);
    for (size_t m : merged.members) group_of_[m] = static_cast<int>(groups_.size());
    groups_.push_back(std::move(merged));
  }

  /// An assign joins the group that makes its source where it writes element by element over dense memory that the
  /// group reads, if at all, in the same places.
  void add_assign(size_t i, const Node& node) {
    const int target = node.in[0], source = node.in[1], base = graph_.base_of(target);
    const Meta& to = graph_.meta(target);
    close_writers(base);
    const int g = writer_of(graph_.base_of(source));
    bool absorbs = g >= 0 && groups_[static_cast<size_t>(g)].makes.count(source) &&
                   groups_[static_cast<size_t>(g)].shape == to.shape &&
                   graph_.meta(source).shape == to.shape && is_contiguous(to.shape, to.strides);
    if (absorbs)
      for (int v : groups_[static_cast<size_t>(g)].reads)
        if (graph_.base_of(v) == base) {
          const Meta& m = graph_.meta(v);
          absorbs = absorbs && m.shape == to.shape && m.strides == to.strides && m.offset == to.offset &&
                    m.dtype == to.dtype;
        }
    close_readers(base, absorbs ? g : -1);
    if (!absorbs) {
      close_writers(graph_.base_of(source));
      return;
    }
    Group& group = groups_[static_cast<size_t>(g)];
    group.members.push_back(i);
    group.assigned.insert(base);
    group_of_[i] = g;
  }

  Graph& graph_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
};

/// Strides of a value laid over `shape`, 0 where it is broadcast.
Dims strides_over(const Meta& meta, const Dims& shape) {
  Dims strides = Dims::filled(shape.rank(), 0);
  const int lead = shape.rank() - meta.shape.rank();
  for (int i = 0; i < meta.shape.rank(); ++i)
    if (meta.shape[i] == shape[lead + i]) strides[lead + i] = meta.strides[i];
  return strides;
}

/// The group as one node: a program, its inputs, and those of its results that somebody else needs.
Node build(const Graph& graph, const Group& group, const std::vector<bool>& needed) {
  Node fused;
  fused.fused_nodes = static_cast<int>(group.members.size());
  FusedProgram program;
  program.shape = group.shape;
  std::vector<std::pair<int, int>> registers;  // value -> register
  const auto find = [&](int v) -> std::optional<int> {
    for (const auto& [value, r] : registers)
      if (value == v) return r;
    return std::nullopt;
  };
  for (size_t m : group.members)
    for (int v : graph.nodes[m].in) {
      const bool is_target = graph.nodes[m].changes_memory() && v == graph.nodes[m].in[0];
      if (is_target || group.makes.count(v) || find(v)) continue;
      registers.emplace_back(v, static_cast<int>(program.inputs.size()));
      program.inputs.push_back({graph.meta(v).dtype, strides_over(graph.meta(v), group.shape)});
      fused.in.push_back(v);
    }
  for (size_t m : group.members) {
    const Node& node = graph.nodes[m];
    if (node.changes_memory()) {
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
    if (needed[static_cast<size_t>(node.out[0])]) {
      program.outputs.push_back(r);
      fused.out.push_back(node.out[0]);
    }
  }
  fused.programs.push_back(std::move(program));
  return fused;
}

/// Whether `later` may run together with `earlier`, or `earlier` may be moved past it: neither touches what the other
/// writes.
bool independent(const Graph& graph, const Node& earlier, const Node& later) {
  const auto writes = [&](const Node& n, int base) {
    for (int v : n.out)
      if (graph.base_of(v) == base) return true;
    return false;
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

/// Joins small fused nodes with the one before them where nothing between stands in the way.
void join_launches(Graph& graph) {
  constexpr size_t kWindow = 12;
  constexpr Dim kSmall = 1 << 20;
  std::vector<Node> out;
  for (Node& node : graph.nodes) {
    if (node.is_fused() && size_of(node.programs[0].shape) <= kSmall) {
      for (size_t back = 0; back < std::min(kWindow, out.size()); ++back) {
        Node& earlier = out[out.size() - 1 - back];
        const bool joins =
            earlier.is_fused() && size_of(earlier.programs[0].shape) <= kSmall &&
            earlier.programs.size() < kMostPrograms &&
            earlier.in.size() + earlier.out.size() + node.in.size() + node.out.size() <= kMostBuffers;
        if (joins) {
          bool free = independent(graph, earlier, node);
          for (size_t k = out.size() - back; free && k < out.size(); ++k)
            free = independent(graph, earlier, out[k]);
          if (free) {  // runs at the later place
            for (int v : node.in) earlier.in.push_back(v);
            for (int v : node.out) earlier.out.push_back(v);
            for (auto& p : node.programs) earlier.programs.push_back(std::move(p));
            earlier.fused_nodes += node.fused_nodes;
            node = std::move(earlier);
            out.erase(out.end() - 1 - static_cast<std::ptrdiff_t>(back));
          }
          break;
        }
      }
    }
    out.push_back(std::move(node));
  }
  graph.nodes = std::move(out);
}

}  // namespace

void fuse_pointwise(Graph& graph) {
  const Grouping grouping(graph);
  // A member's result is written to memory where a node outside its group, or a view, or the caller, reads it.
  std::vector<bool> needed(graph.values.size(), false);
  for (int v : graph.outputs) needed[static_cast<size_t>(graph.base_of(v))] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (int v : graph.nodes[i].in) {
      const int g = grouping.group_of(i);
      if (g < 0 || !grouping.groups()[static_cast<size_t>(g)].makes.count(v))
        needed[static_cast<size_t>(graph.base_of(v))] = true;
    }
  std::vector<Node> out;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int g = grouping.group_of(i);
    if (g < 0 || grouping.groups()[static_cast<size_t>(g)].members.size() == 1) {
      out.push_back(graph.nodes[i]);
      continue;
    }
    const Group& group = grouping.groups()[static_cast<size_t>(g)];
    if (group.members.back() == i) out.push_back(build(graph, group, needed));
  }
  graph.nodes = std::move(out);
  join_launches(graph);
}

}  // namespace tandem::graph
