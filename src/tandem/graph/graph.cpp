#include "tandem/graph/graph.h"

#include <algorithm>

namespace tandem::graph {

uint64_t Bodies::random_blocks() const {
  uint64_t most = 0;
  for (const Body& body : list) most = std::max(most, body.graph->random_blocks);
  return loop && most ? static_cast<uint64_t>(loop->count - 1) * loop->random_blocks + most : most;
}

int Node::alias_of(size_t output) const {
  if (!bodies) return effects().alias_of(output);
  const size_t own = out.size() - bodies->changed.size();
  return output < own ? -1 : bodies->changed[output - own];
}

std::string Node::what() const {
  if (!is_fused()) return op->name;
  std::string text;
  for (const FusedProgram& p : programs) {
    if (!text.empty()) text += " | ";
    std::string steps;
    for (const auto& step : p.steps) steps += str(steps.empty() ? "" : " ", step.op->name);
    text += steps.empty() ? "move" : steps;
  }
  return "fused{" + text + "}";
}

bool Graph::changes_memory(const Node& node) const {
  bool changes = false;
  writes_of(node, [&](int v) { changes = changes || is_changed_in_place(v); });
  return changes;
}

std::vector<bool> Graph::changed_bases() const {
  std::vector<bool> changed(values_.size(), false);
  for (int n = first_; n != kNone; n = next(n))
    writes_of(node(n), [&](int v) {
      if (is_changed_in_place(v)) changed[static_cast<size_t>(base_of(v))] = true;
    });
  return changed;
}

int Graph::value_of_input(int input) const {
  for (int v = 0; v < value_count(); ++v)
    if (value(v).source == Source::input && value(v).base == v && value(v).input == input) return v;
  throw InternalError(str("a graph has no input ", input));
}

std::vector<bool> Graph::returned_bases(bool with_kept) const {
  std::vector<bool> returned(values_.size(), false);
  const size_t count = outputs_.size() - (with_kept ? 0 : static_cast<size_t>(kept));
  for (size_t i = 0; i < count; ++i) returned[static_cast<size_t>(base_of(outputs_[i]))] = true;
  return returned;
}

int Graph::add_value(const Meta& meta, Source source) {
  const int v = value_count();
  Value& value = values_.emplace_back();
  value.meta = meta;
  value.source = source;
  value.base = v;
  return v;
}

int Graph::add_input(const Meta& meta, int input) {
  const int v = add_value(meta, Source::input);
  at_value(v).input = input;
  return v;
}

int Graph::add_captured_memory(const Ref<Storage>& storage, Device on) {
  const int v =
      add_value(contiguous_meta({static_cast<Dim>(storage->bytes())}, DType::u8, on), Source::captured);
  at_value(v).storage = storage;
  return v;
}

int Graph::add_outside_view(const Meta& meta, int base) {
  const int v = add_value(meta, value(base).source);
  at_value(v).base = base;
  return v;
}

void Graph::add_output(int v) {
  outputs_.push_back(v);
  output_places_.push_back(kNone);
  add_use(v, {kNone, static_cast<int>(outputs_.size()) - 1});
}

void Graph::set_place(const Use& use, int place) {
  (use.node == kNone ? output_places_[static_cast<size_t>(use.operand)]
                     : at(use.node).places_[static_cast<size_t>(use.operand)]) = place;
}

void Graph::add_use(int v, Use use) {
  std::vector<Use>& uses = at_value(v).uses;
  uses.push_back(use);
  set_place(use, static_cast<int>(uses.size()) - 1);
}

void Graph::remove_use(int v, int place) {
  std::vector<Use>& uses = at_value(v).uses;
  // The last use takes the place of the one that goes, and is told so. So removing costs the same for any number.
  uses[static_cast<size_t>(place)] = uses.back();
  set_place(uses.back(), place);
  uses.pop_back();
}

void Graph::derive_bases(const Node& node) {
  if (node.is_fused()) return;  // given by the nodes that it stands for
  for (size_t i = 0; i < node.out.size(); ++i) {
    const int alias = node.alias_of(i);
    at_value(node.out[i]).base = alias < 0 ? node.out[i] : base_of(node.in[static_cast<size_t>(alias)]);
  }
}

namespace {
/// What a node and its bodies do together.
std::shared_ptr<const Bodies> with_all_effects(const Node& node, Bodies bodies) {
  // All bodies count, since any may run: an input is read where one of them reads it.
  bodies.effects = node.op->effects;
  bodies.reads.clear();
  for (size_t i = 0; i < node.in.size(); ++i)
    bodies.reads.push_back(i < 32 && node.op->effects.reads_input(i));
  for (const Body& body : bodies.list) {
    const Graph& graph = *body.graph;
    const auto reads = [&](int v, uint32_t = 0) {
      if (const Value& base = graph.value(graph.base_of(v)); base.source == Source::input)
        bodies.reads[static_cast<size_t>(body.in[static_cast<size_t>(base.input)])] = true;
    };
    for (int n = graph.first(); n != kNone; n = graph.next(n)) {
      const Effects& effects = graph.node(n).effects();
      bodies.effects.resources |= effects.resources;
      bodies.effects.refuses = bodies.effects.refuses || effects.refuses;
      graph.reads_of(graph.node(n), reads);
    }
    for (int v : graph.outputs()) reads(v);
  }
  if (const Loop* loop = bodies.loop.get()) {  // without a run its results are what is carried
    for (int i : loop->carried)
      bodies.reads[static_cast<size_t>(bodies.list[0].in[static_cast<size_t>(i)])] = true;
    if (loop->count_in != kNone) bodies.reads[static_cast<size_t>(loop->count_in)] = true;
  }
  return std::make_shared<const Bodies>(std::move(bodies));
}
}  // namespace

void Graph::set_body(int n, size_t body, std::shared_ptr<const Graph> graph) {
  Bodies bodies = *node(n).bodies;
  bodies.list[body].graph = std::move(graph);
  at(n).bodies = with_all_effects(node(n), std::move(bodies));
}

/// The order of nodes is a list: a node's number says nothing about its place.
int Graph::insert(int before, Node node) {
  const int n = static_cast<int>(nodes_.size());
  if (node.bodies) node.bodies = with_all_effects(node, *node.bodies);
  TD_ASSERT(node.versions.size() == node.in.size(), "a node needs a version for each input");
  node.previous_ = before == kNone ? last_ : at(before).previous_;
  node.next_ = before;
  (node.previous_ == kNone ? first_ : at(node.previous_).next_) = n;
  (before == kNone ? last_ : at(before).previous_) = n;
  node.places_.resize(node.in.size());
  node.erased_ = false;
  nodes_.push_back(std::move(node));
  ++live_nodes_;
  Node& placed = nodes_.back();
  for (size_t i = 0; i < placed.in.size(); ++i) add_use(placed.in[i], {n, static_cast<int>(i)});
  for (int v : placed.out) at_value(v).maker = n;
  derive_bases(placed);
  return n;
}

Node Graph::erase(int n) {
  Node& node = at(n);
  for (size_t i = 0; i < node.in.size(); ++i) remove_use(node.in[i], node.places_[i]);
  for (int v : node.out)
    // Else another node makes it by now.
    if (value(v).maker == n) at_value(v).maker = kNone;
  (node.previous_ == kNone ? first_ : at(node.previous_).next_) = node.next_;
  (node.next_ == kNone ? last_ : at(node.next_).previous_) = node.previous_;
  --live_nodes_;
  Node taken = std::move(node);
  node = Node{};
  node.erased_ = true;
  return taken;
}

/// Views among these uses, and views of them, lie in another base now.
void Graph::rebase(const std::vector<Use>& uses, int base) {
  std::vector<int> views;
  const auto add = [&](const std::vector<Use>& list) {
    for (const Use& use : list)
      if (use.node != kNone && use.operand == 0 && node(use.node).is_view())
        views.push_back(node(use.node).out[0]);
  };
  add(uses);
  while (!views.empty()) {
    const int view = views.back();
    views.pop_back();
    at_value(view).base = base;
    add(uses_of(view));
  }
}

void Graph::replace(int from, int by) {
  std::vector<Use> uses;
  uses.swap(at_value(from).uses);
  for (const Use& use : uses) {
    (use.node == kNone ? outputs_[static_cast<size_t>(use.operand)]
                       : at(use.node).in[static_cast<size_t>(use.operand)]) = by;
    add_use(by, use);
  }
  if (base_of(from) != base_of(by)) rebase(uses, base_of(by));
}

void Graph::cut(int nodes, int values) {
  // While a graph is traced nodes are only appended, so that numbers are in order here.
  while (last_ != kNone && last_ >= nodes) erase(last_);
  nodes_.resize(static_cast<size_t>(nodes));
  values_.resize(static_cast<size_t>(values));
}

void Graph::fold(int n) { constants_.push_back(erase(n)); }

/// What every pass must leave true: the list and the uses are consistent, values are made once and before they are
/// used, each read finds its memory changed exactly as often as when it was traced, and ordered effects are in order.
void Graph::verify(const char* after) const {
  const auto require = [&](bool holds, const Node& node, const char* what) {
    TD_ASSERT(holds, "after ", after, ": ", node.what(), ": ", what);
  };
  std::vector<bool> made(values_.size(), false);
  std::vector<uint32_t> changes(values_.size(), 0);  // by base, so far
  std::vector<size_t> uses(values_.size(), 0);
  for (size_t v = 0; v < values_.size(); ++v) made[v] = values_[v].source != Source::computed;
  for (const Node& node : constants_)
    for (int v : node.out) made[static_cast<size_t>(v)] = true;
  int count = 0;
  uint64_t order = 0;
  for (int n = first_; n != kNone; n = next(n), ++count) {
    const Node& node = this->node(n);
    require(!node.erased_ && (node.next_ == kNone ? last_ == n : this->node(node.next_).previous_ == n), node,
            "the list of nodes is broken");
    for (size_t i = 0; i < node.in.size(); ++i) {
      const size_t v = static_cast<size_t>(node.in[i]);
      if (!node.is_view()) {  // a view runs nothing: it may stand before the memory that it looks at
        require(made[v], node, "an input is used before it is made");
        require(made[static_cast<size_t>(values_[v].base)], node,
                "an input is used before its memory is made");
      }
      const Use use = values_[v].uses.at(static_cast<size_t>(node.places_[i]));
      require(use.node == n && use.operand == static_cast<int>(i), node, "the uses of an input are wrong");
      ++uses[v];
    }
    reads_of(node, [&](int v, uint32_t version) {
      require(changes[static_cast<size_t>(base_of(v))] == version, node,
              "an input has been changed less or more often than when it was traced");
    });
    for (size_t i = 0; i < node.out.size(); ++i) {
      const size_t v = static_cast<size_t>(node.out[i]);
      require(!made[v] && values_[v].maker == n, node, "an output is made twice");
      const int alias = node.alias_of(i);
      require(node.is_fused() ||
                  values_[v].base == (alias < 0 ? node.out[i] : base_of(node.in[static_cast<size_t>(alias)])),
              node, "the base of an output does not follow from the op's effects");
      made[v] = true;
    }
    writes_of(node, [&](int v) {
      if (is_changed_in_place(v)) ++changes[static_cast<size_t>(base_of(v))];
    });
    for (size_t k = 0; node.bodies && k < node.bodies->list.size(); ++k) {
      const Body& body = node.bodies->list[k];
      const Graph& graph = *body.graph;
      graph.verify(after);
      require(
          body.in.size() == static_cast<size_t>(graph.inputs) && body.out.size() == graph.outputs().size(),
          node, "a body has other inputs or results than its node gives it");
      const std::vector<bool> changed = graph.changed_bases();
      for (int b = 0; b < graph.value_count(); ++b) {
        if (!changed[static_cast<size_t>(b)] || !graph.is_external(b)) continue;
        const Value& value = graph.value(b);
        require(value.source == Source::input &&
                    std::count(node.bodies->changed.begin(), node.bodies->changed.end(),
                               body.in[static_cast<size_t>(value.input)]),
                node, "a body changes memory that the node does not say it changes");
      }
    }
    if (node.effects().is_ordered()) {
      require(node.order > order, node, "an ordered effect has lost its place");
      order = node.order;
    }
  }
  TD_ASSERT(count == live_nodes_, "after ", after, ": the number of nodes is wrong");
  for (int v : outputs_) {
    TD_ASSERT(made[static_cast<size_t>(v)], "after ", after, ": a result is not made");
    ++uses[static_cast<size_t>(v)];
  }
  for (size_t v = 0; v < values_.size(); ++v)
    TD_ASSERT(uses[v] == values_[v].uses.size(), "after ", after, ": value ", v, " has uses that are gone");
}

}  // namespace tandem::graph
