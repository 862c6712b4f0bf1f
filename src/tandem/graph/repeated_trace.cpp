#include "tandem/graph/repeated_trace.h"

#include <algorithm>
#include <map>

namespace tandem::graph {

namespace {

/// Older ones are forgotten: reading such a tensor is still refused, without the name of what made it.
constexpr size_t kMostLeftBehind = 1000;

std::string describe(const Node& node) {
  std::string text = node.what();
  if (!node.attrs.empty()) text += str("(", node.attrs.print(), ")");
  return node.layer ? str(text, " in ", *node.layer) : text;
}
std::string both(const std::string& a, const std::string& b) {
  return a == b ? str(a, " twice, of other tensors") : str(a, " and then ", b);
}
std::string describe_captured(const Capture& capture) { return tandem::describe(Tensor(capture.tensor)); }

/// The bytes of a block of memory, on the host.
std::vector<std::byte> bytes_in(const Ref<Storage>& storage) {
  auto impl = make_ref<TensorImpl>();
  impl->meta = contiguous_meta({static_cast<Dim>(storage->bytes())}, DType::u8, storage->device());
  impl->storage = storage;
  return host_bytes(Tensor(std::move(impl)));
}

class Comparison {
 public:
  Comparison(const Trace& first, const Trace& second) : first_(first), second_(second) {}

  std::string run() {
    if (std::string found = graphs(first_.graph, second_.graph); !found.empty()) return found;
    if (std::string found = captures(); !found.empty()) return found;
    if (!same_results()) return "other results";
    if (!same_gradients()) return "other gradients of leaves";
    return {};
  }

 private:
  std::string graphs(const Graph& a, const Graph& b) {
    int m = a.first(), n = b.first();
    for (; m != kNone && n != kNone; m = a.next(m), n = b.next(n))
      if (!same(a, a.node(m), b, b.node(n))) return both(describe(a.node(m)), describe(b.node(n)));
    if (m != kNone) return describe(a.node(m)) + " and then nothing in its place";
    if (n != kNone) return "nothing and then " + describe(b.node(n));
    if (a.random_blocks != b.random_blocks) return "another number of random numbers";
    if (a.value_count() != b.value_count()) return "other captured tensors";
    for (int v = 0; v < a.value_count(); ++v)
      if (!same(a.value(v), b.value(v)))
        return str("use of a tensor ", a.meta(v).dtype, " ", a.meta(v).shape, " and then of another one, ",
                   b.meta(v).dtype, " ", b.meta(v).shape);
    return a.outputs() == b.outputs() ? "" : "other results";
  }

  bool same(const Graph& a, const Node& m, const Graph& b, const Node& n) {
    const auto equal = [](const auto& x, const auto& y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end());
    };
    if (m.op != n.op || !(m.attrs == n.attrs) || !equal(m.in, n.in) || !equal(m.out, n.out) ||
        !equal(m.versions, n.versions) || m.random_offset != n.random_offset || m.order != n.order)
      return false;
    if (repeated_.emplace(m.repeated, n.repeated).first->second != n.repeated) return false;
    for (const int v : m.in)
      if (!same(a.value(v), b.value(v))) return false;
    for (const int v : m.out)
      if (!same(a.value(v), b.value(v))) return false;
    return same_bodies(m, n);
  }
  bool same_bodies(const Node& m, const Node& n) {
    if (!m.bodies != !n.bodies) return false;
    if (!m.bodies) return true;
    const std::vector<Body>&x = m.bodies->list, &y = n.bodies->list;
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](const Body& a, const Body& b) {
      return a.in == b.in && a.out == b.out && graphs(*a.graph, *b.graph).empty();
    });
  }
  bool same(const Value& a, const Value& b) const {
    return a.source == b.source && a.base == b.base && a.input == b.input && a.meta.shape == b.meta.shape &&
           a.meta.strides == b.meta.strides && a.meta.offset == b.meta.offset &&
           a.meta.dtype == b.meta.dtype && a.meta.device == b.meta.device && same(a.storage, b.storage);
  }
  /// What is made of host values is made anew by each trace.
  bool same(const Ref<Storage>& a, const Ref<Storage>& b) const {
    if (a == b) return true;
    return a && b && first_.made_of_host_values.count(a.get()) &&
           second_.made_of_host_values.count(b.get()) && bytes_in(a) == bytes_in(b);
  }

  std::string captures() const {
    const std::vector<Capture>&a = first_.depends_on.captures, &b = second_.depends_on.captures;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!(a[i].tensor == b[i].tensor) && a[i].storage == b[i].storage)
        return str("use of a tensor ", describe_captured(a[i]), " and then of another one, ",
                   describe_captured(b[i]));
    return a.size() == b.size() ? "" : "other captured tensors";
  }
  bool same_results() const {
    const std::vector<Tensor>&a = first_.results, &b = second_.results;
    return first_.returned_input == second_.returned_input && first_.outputs.slot == second_.outputs.slot &&
           first_.ends.size() == second_.ends.size() &&
           std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
             return x.impl()->requires_grad == y.impl()->requires_grad && x.is_leaf() == y.is_leaf() &&
                    x.is_traced() == y.is_traced() && (x.is_traced() || x.same(y));
           });
  }
  bool same_gradients() const {
    const std::vector<LeafGradient>&a = first_.gradients, &b = second_.gradients;
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(), [](const LeafGradient& x, const LeafGradient& y) {
          const bool both_made_inside = x.leaf && y.leaf && x.leaf->trace_serial && y.leaf->trace_serial;
          return (x.leaf == y.leaf || both_made_inside) && x.input == y.input && x.zeroed == y.zeroed &&
                 x.output == y.output;
        });
  }

  const Trace &first_, &second_;
  std::map<uint64_t, uint64_t> repeated_ = {{0, 0}};  // Node::repeated
};

void remember(LeftBehind& left_behind, const Trace& trace) {
  left_behind.insert(left_behind.end(), trace.survivors.begin(), trace.survivors.end());
  if (left_behind.size() > kMostLeftBehind)
    left_behind.erase(left_behind.begin(), left_behind.end() - kMostLeftBehind);
}

}  // namespace

std::string difference(const Trace& first, const Trace& second) { return Comparison(first, second).run(); }

// The second trace is the one that is kept: what the callable leaves in C++ variables then belongs to it, and gradient rules
// that are called later may read it.
std::unique_ptr<Trace> trace_checked(const TensorFunction& function, const std::vector<Tensor>& inputs,
                                     bool verify, LeftBehind& left_behind) {
  std::unique_ptr<Trace> first = trace(function, inputs, left_behind);
  remember(left_behind, *first);
  if (!verify && first->survivors.empty()) return first;
  if (!first->depends_on.hold()) return first;  // it has changed that itself: no call will replay it
  std::unique_ptr<Trace> second = trace(function, inputs, left_behind, first.get());
  remember(left_behind, *second);
  if (const std::string found = difference(*first, *second); !found.empty())
    throw Error(
        str("compile: a callable must do the same each time it is called with the same inputs, since "
            "replays do not run its C++ code; traced twice, it gave ",
            found,
            ". Keep what changes from call to call (a counter, the choice of a tensor) in a tensor made "
            "outside and change it with assign(), or pass it as an argument."));
  return second;
}

}  // namespace tandem::graph
