// compile(): turns a callable into one that is traced once per signature, optimised, planned and replayed.
// What it computes has the same bits as calling it eagerly.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"

namespace tandem {

/// A callable over tensors: inputs in, results out. Tensors that it captures (parameters, optimiser state)
/// are read anew at each call and may be changed with assign(); everything else that it does on the host
/// happens only while tracing. A training step - forward, backward, update - is such a callable.
using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct CompileOptions {
  /// The passes to run, in order: these are all the names there are. Without plan_memory every value has memory of
  /// its own.
  std::vector<std::string> passes = {"prune", "common_subexpressions", "fold_constants", "fuse_pointwise",
                                     "plan_memory"};
  /// Signatures kept; the one unused longest is dropped.
  size_t cache_size = 16;
};

/// What one pass did.
struct PassReport {
  std::string pass;
  int nodes_before = 0, nodes_after = 0;
  int removed_expensive = 0, removed_cheap = 0, removed_no_op = 0;  // by the ops' cost class
  double milliseconds = 0;
};

/// What became of one traced signature.
struct GraphReport {
  std::string signature;  // "f32 (100, 1, 28, 28) cpu, i64 (100,) cpu; grad"
  std::vector<PassReport> passes;
  std::vector<std::string>
      nodes;  // one line a node after the passes, in order, with its algorithm if it has several
  int inputs = 0, captured = 0, outputs = 0;
  size_t values_bytes = 0;  // if every value had memory of its own
  size_t arena_bytes = 0;   // as planned
  std::string executor;     // "cpu", "cuda: one CUDA graph" …
};

class Compiled {
 public:
  Compiled(TensorFunction function, CompileOptions options);
  Compiled(Compiled&&) noexcept;
  Compiled& operator=(Compiled&&) noexcept;
  ~Compiled();

  /// Replays, tracing first where the signature is new. Results have no tape. They are fresh tensors, or, where the
  /// callable returns an input, a captured tensor or a view of one, share its memory as they would eagerly.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);
  /// One report for each signature traced so far.
  std::vector<GraphReport> reports() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Compiled compile(TensorFunction function, CompileOptions options = {});

}  // namespace tandem
