// Reverse-mode differentiation. apply() records a node for every op whose inputs want gradients; backward()
// and grad() walk the nodes in reverse. Gradient rules are made of public operations, so gradients can be
// differentiated again and traced like anything else.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/op.h"

namespace tandem {

/// Whether operations of this thread are recorded. On by default.
bool grad_enabled();

/// Switches recording on or off for a scope.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};
/// NoGrad scope: `NoGrad off;`
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

struct BackwardOptions {
  /// Record the backward pass itself, for gradients of gradients.
  bool create_graph = false;
  /// Called once for each leaf (or asked-for tensor), as soon as its gradient is complete and before the walk
  /// goes on.
  std::function<void(const Tensor& tensor, const Tensor& gradient)> on_grad_ready = {};
};

/// Adds d(output)/d(leaf) to the grad of every leaf. `output` must be a scalar, or `seed` must have its
/// shape.
void backward(const Tensor& output, const Tensor& seed = {}, const BackwardOptions& options = {});

/// Returns d(output)/d(input) for each input and leaves every tensor's grad alone. Inputs that the output
/// does not depend on give an Error, or zeros where allow_unused is set.
std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed = {},
                         const BackwardOptions& options = {}, bool allow_unused = false);

/// The same for tensors in braces: grad(y, {x, w}).
inline std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs,
                                const Tensor& seed = {}, const BackwardOptions& options = {},
                                bool allow_unused = false) {
  return grad(output, std::span<const Tensor>(inputs.begin(), inputs.size()), seed, options, allow_unused);
}

/// Sees the gradient of a tensor, and may return another one to take its place (or an undefined one to leave it).
using GradientHook = std::function<Tensor(const Tensor& gradient)>;
/// The hooks of one tensor, in the order in which they were added.
struct GradientHooks {
  std::vector<std::pair<uint64_t, GradientHook>> list;
  uint64_t changes =
      0;  // hooks added and removed so far: the last one's name, and part of a trace's signature
};
/// Names a hook, to take it away again. It may outlive the tensor.
class GradientHookHandle {
 public:
  GradientHookHandle() = default;
  GradientHookHandle(std::weak_ptr<GradientHooks> hooks, uint64_t id) : hooks_(std::move(hooks)), id_(id) {}
  void remove();

 private:
  std::weak_ptr<GradientHooks> hooks_;
  uint64_t id_ = 0;
};
/// Calls `hook` in every backward pass that reaches the tensor, once, when its gradient is complete: before it is added to
/// a leaf's grad, given to the caller of grad(), or passed on. What the hook computes is part of a compiled callable; a
/// callable is traced again where hooks of a leaf have changed.
GradientHookHandle on_gradient(const Tensor& tensor, GradientHook hook);

/// One recorded operation.
class TapeNode : public RefCounted {
 public:
  struct Saved {  // a tensor kept for the gradient rule, with the version it had
    Ref<TensorImpl> value;
    uint32_t version = 0;
  };
  struct Edge {  // where the gradient of an input goes: an output of another node, or a leaf
    Ref<TapeNode> node;
    Ref<TensorImpl> leaf;
    uint32_t output = 0;
    bool needed() const { return node || leaf; }
  };
  /// A gradient on its way along edge number `edge`.
  struct Delivery {
    size_t edge;
    Tensor gradient;
  };
  /// Takes one gradient per output, undefined where none arrived. An edge may get several gradients: they are added in order.
  using Rule = std::function<std::vector<Delivery>(std::span<const Tensor> grads)>;
  /// What few nodes have.
  struct Extra {
    std::string name;  // of a function with a rule of its own, in place of an op
    Rule rule;
    std::vector<std::shared_ptr<GradientHooks>> hooks;  // by output
    std::vector<bool> within;  // by output: another one is computed from it inside, unseen from outside
  };

  const OpDef* op = nullptr;  // null: extra->rule
  Attrs attrs;
  uint64_t sequence = 0;  // order of recording on this thread; the walk goes from high to low
  uint64_t trace = 0;     // Tracer::serial() of the trace that it was recorded in; 0: none
  uint64_t region = 0;    // Region::id() of the innermost region that it was recorded in; 0: none
  SmallVector<Edge, 2> edges;
  SmallVector<Description, 2> in_meta;
  SmallVector<Saved, 2> saved_in;
  SmallVector<Saved, 1> saved_out;  // one per output
  std::unique_ptr<Extra> extra;

  const char* name() const { return op ? op->name : extra->name.c_str(); }
};

/// The operations that the walk itself uses. Set at start-up by ops/, which core does not see.
struct TapeOps {
  Tensor (*add)(const Tensor& a, const Tensor& b) = nullptr;
  Tensor (*sum_to)(const Tensor& x, const Dims& shape) = nullptr;
  Tensor (*full_like)(const Tensor& x, double value) = nullptr;
};
void set_tape_ops(const TapeOps& ops);
const TapeOps& tape_ops();

/// Called by apply(): records `op` and marks `out` as its results.
void record(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs, std::span<Tensor> out);
}  // namespace tandem
