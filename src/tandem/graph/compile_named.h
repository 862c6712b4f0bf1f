// compile() for callables whose inputs and results have names: a training step takes a batch and the state that the step before
// left, and gives its results and the state for the next step.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/core/named.h"
#include "tandem/graph/compile.h"

namespace tandem {

/// Groups of named tensors in, groups of named tensors out. What compile.h says of a TensorFunction holds for it.
using NamedFunction = std::function<std::vector<Named>(const std::vector<Named>&)>;

/// Traces a callable once for each set of names (compared by address) and of values that are there, and, as Compiled does, for
/// each signature of these. A value that is undefined is an argument that is absent, or a result that there is not.
class CompiledNamed {
 public:
  explicit CompiledNamed(NamedFunction function, CompileOptions options = {});
  CompiledNamed(CompiledNamed&&) noexcept;
  CompiledNamed& operator=(CompiledNamed&&) noexcept;
  ~CompiledNamed();

  std::vector<Named> operator()(const std::vector<Named>& groups);
  /// One for each signature traced so far, with the names of its inputs and results.
  std::vector<GraphReport> reports() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
