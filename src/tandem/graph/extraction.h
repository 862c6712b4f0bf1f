// A part of a trace as a graph of its own. For tracer.cpp.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "tandem/graph/tracer.h"

namespace tandem::graph {

/// Takes the nodes that were appended to a trace since a mark out, as a graph of their own.
class Extraction {
 public:
  Extraction(const Trace& trace, int first_node, int first_value, bool is_body)
      : from_(trace.graph),
        operands_(trace.operands),
        own_inputs_(static_cast<int>(trace.own.size())),
        is_body_(is_body),
        first_node_(first_node),
        first_value_(first_value) {
    graph.device = from_.device;
    changes_.assign(static_cast<size_t>(first_value), 0);
    for (int n = from_.first(); n != kNone && n < first_node; n = from_.next(n))
      from_.writes_of(from_.node(n), [&](int v) {
        if (from_.is_changed_in_place(v)) ++changes_[static_cast<size_t>(from_.base_of(v))];
      });
  }

  // The graph, and by input of it: the base of the trace that it is where that is kept, the memory around where it is
  // such, and the own input of the body where it is one; kNone elsewhere.
  Graph graph;
  std::vector<int> kept, operands, own;

  /// The values that come in by themselves, in the order in which they were made.
  void add_new_inputs() {
    for (int v = first_value_; v < from_.value_count(); ++v)
      if (const Value& value = from_.value(v);
          value.source == Source::input && value.base == v && value.input < 0)
        places_[v] = new_input(value.meta, kNone, kNone, kNone);
  }

  void copy_nodes() {
    for (int n = first_node_; n < from_.numbers_given(); ++n) copy(from_.node(n));
  }
  void add_output(int v) { graph.add_output(place_of(v)); }

 private:
  int new_input(Meta meta, int kept_value, int operand, int own_input) {
    meta.offset = 0;
    kept.push_back(kept_value);
    operands.push_back(operand);
    own.push_back(own_input);
    return graph.add_input(meta, graph.inputs++);
  }

  /// The value in the new graph: made there, of memory from outside, or kept by the forward graph.
  int place_of(int v) {
    const auto [at, fresh] = places_.try_emplace(v, kNone);
    if (!fresh) return at->second;
    const Value& value = from_.value(v);
    const Value& base = from_.value(value.base);
    if (base.source == Source::captured) {
      const auto [memory, first] = memories_.try_emplace(value.base, kNone);
      if (first) memory->second = graph.add_captured_memory(base.storage, from_.device);
      ++graph.captured;
      return places_[v] = graph.add_outside_view(value.meta, memory->second);
    }
    if (is_body_ && base.source == Source::input) {
      const auto [memory, first] = memories_.try_emplace(value.base, kNone);
      if (first)
        memory->second = new_input(base.meta, kNone, operands_[static_cast<size_t>(base.input)],
                                   base.input < own_inputs_ ? base.input : kNone);
      return places_[v] = graph.add_outside_view(value.meta, memory->second);
    }
    TD_ASSERT(v < first_value_, "value ", v, " of the backward pass is used before it is made");
    if (const int maker = value.maker; maker != kNone && is_constant(from_.node(maker), v)) {
      copy(from_.node(maker));  // cheaper to make again than to keep
      return places_[v];
    }
    // Whole memory, and a view of it: views of v that the new nodes make count from there.
    const auto [memory, first] = memories_.try_emplace(value.base, kNone);
    if (first) memory->second = new_input(base.meta, value.base, kNone, kNone);
    return places_[v] = graph.add_outside_view(value.meta, memory->second);
  }

  /// Made of nothing but attributes, and never changed: full, arange and the like.
  bool is_constant(const Node& node, int v) const {
    return node.in.empty() && node.effects().resources == 0 && from_.base_of(v) == v &&
           changes_[static_cast<size_t>(v)] == 0;
  }

  void copy(const Node& node) {
    Node copy;
    copy.op = node.op;
    copy.attrs = node.attrs;
    copy.order = node.order;
    copy.repeated = node.repeated;
    copy.layer = node.layer;
    copy.scope = node.scope;
    copy.bodies = node.bodies;
    copy.random_offset = node.random_offset;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const int base = from_.base_of(node.in[i]);
      const uint32_t before = base < first_value_ ? changes_[static_cast<size_t>(base)] : 0;
      copy.in.push_back(place_of(node.in[i]));
      // The new graph begins where the forward one has ended: changes are counted from there.
      copy.versions.push_back(node.versions[i] - before);
    }
    const auto draws = [&](uint64_t blocks) {
      graph.random_blocks = std::max(graph.random_blocks, node.random_offset + blocks);
    };
    if (node.op->is_random()) draws(philox_blocks(size_of(from_.meta(node.out[0]).shape)));
    if (node.bodies) draws(node.bodies->random_blocks());
    for (int v : node.out) {
      places_[v] = graph.add_value(from_.meta(v), Source::computed);
      copy.out.push_back(places_[v]);
    }
    graph.append(std::move(copy));
  }

  const Graph& from_;
  const std::vector<int>& operands_;  // Trace::operands
  int own_inputs_;
  bool is_body_;
  int first_node_, first_value_;
  std::vector<uint32_t> changes_;  // by base: how often it was changed before the first node
  std::unordered_map<int, int> places_, memories_;
};

}  // namespace tandem::graph
