// Differentiating a piece of code apart from what is around it: what compiled callables, checkpoints and functions with
// rules of their own are made of. For the library itself.
#pragma once

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"

namespace tandem {

/// How often the memory of a tensor was changed so far; in a trace: by the trace.
uint32_t version_of(const Tensor& tensor);
/// A tensor and the version it has now; and back, or an Error that names the function and `what` ("input 0").
TapeNode::Saved save_for_gradient(const Tensor& tensor);
Tensor unpack_saved(const TapeNode::Saved& saved, const char* function, const std::string& what);

/// Operations recorded in this scope belong together. Where `again`, they repeat what an earlier scope did, and a graph
/// must not take them for the same (it would keep the values that were to be computed again).
class Region {
 public:
  explicit Region(bool again = false);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  uint64_t id() const { return id_; }
  /// The id of the innermost scope around that repeats; 0: none.
  static uint64_t repeated();

 private:
  uint64_t id_, previous_, previous_repeated_;
};

class LinearHook;

/// Code in this scope is a branch or a step of `function`, "cond": part of one node, which acts on the world around it by
/// what it returns and what it changes in place alone. Neither gradients of tensors nor hooks may be changed in it.
class BodyScope {
 public:
  explicit BodyScope(const char* function);
  ~BodyScope();
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;
  /// Whether this thread is in such a scope.
  static bool is_open();
  /// Refuses `what` there.
  static void refuse(const char* what);

 private:
  const char* outer_;
  LinearHook* outer_hook_;
};

/// Takes the place of linear() in the code that it is set for; a BodyScope inside sets none.
class LinearHook {
 public:
  virtual bool takes(const Tensor& x, const Tensor& weight, const Tensor& bias) const = 0;
  virtual Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) = 0;

 protected:
  ~LinearHook() = default;
};
/// Of this thread; null: none.
LinearHook*& linear_hook();
/// The number of the node that this thread recorded last.
uint64_t last_recorded();

/// Makes `tensor` output number `output` of a node.
void attach(const Tensor& tensor, const Ref<TapeNode>& node, size_t output);
/// Where the gradient of a tensor goes.
TapeNode::Edge edge_of(const Tensor& tensor);
/// Those among some tensors that nodes `inside` made: a tensor that is there twice has one gradient.
struct Outputs {
  std::vector<size_t> first;  // by output: the tensor that it is
  std::vector<int> slot;      // by tensor: the output that it is; -1: none
  std::vector<bool> within;   // by output: whether another one is computed from it
};
Outputs outputs_of(std::span<const Tensor> tensors, const std::function<bool(const TapeNode&)>& inside);
/// Where gradients of `outputs` leave the nodes that are `inside`: each once, by first sight.
std::vector<TapeNode::Edge> edges_out_of(std::span<const Tensor> outputs,
                                         const std::function<bool(const TapeNode&)>& inside);
/// Gradients of the outputs (one seed each, undefined where none arrived) on their way out at `ends`: one entry for each
/// use, in the order in which a walk through everything would add them up, so that whoever adds them so gets its bits.
/// Neither leaves nor hooks of the ends are touched.
std::vector<TapeNode::Delivery> gradients_at(std::span<const TapeNode::Edge> ends,
                                             std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                                             bool create_graph);
/// Records a function with a rule of its own, and marks `out`, which nothing has made yet, as its results.
Ref<TapeNode> record(std::string name, std::vector<TapeNode::Edge> edges, std::span<Tensor> out,
                     TapeNode::Rule rule);

/// Where the next numbers of this thread, or of what it traces, come from; a scope in which they come from an earlier such
/// place again, without moving the stream: for code that is run twice.
GeneratorState random_place();
class RandomReplay {
 public:
  explicit RandomReplay(GeneratorState place);
  ~RandomReplay();
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  GeneratorState after_;
};

}  // namespace tandem
