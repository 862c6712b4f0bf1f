// cond(): one of two functions, by a value that is known only when it runs.
#pragma once

#include "tandem/graph/compile.h"

namespace tandem {

/// The results of if_true(inputs) where the one element of `condition` (bool) is true, else those of if_false(inputs). Both
/// must return equally many tensors of the same shapes and types; the results are fresh tensors. Inside compile() this is
/// one node with two graphs, of which each call runs one; anywhere else the chosen function runs as plain code. Both
/// engines give the bits of a plain `if`, gradients included; those of higher orders are the same in both engines, and those
/// of the plain `if` but for rounding.
///
/// The functions may use tensors from around them, change them in place, draw random numbers and be nested. As in a
/// compiled callable, values cannot be read inside, and plain C++ in them runs more than once: both are traced each time
/// cond() is called, so each must do the same every time; they are not called again after cond() has returned. What they
/// give out by other ways than their results is of no use outside. Random numbers: cond() takes as many from the stream as
/// the one of the two that draws more. Gradients go through the branch that ran; what only the other one uses gets zeros,
/// and a refusal by its gradient counts. backward(), and changes of gradients and hooks, are refused inside.
std::vector<Tensor> cond(const Tensor& condition, const TensorFunction& if_true,
                         const TensorFunction& if_false, const std::vector<Tensor>& inputs = {});
/// The same for one tensor.
Tensor cond(const Tensor& condition, const std::function<Tensor()>& if_true,
            const std::function<Tensor()>& if_false);

}  // namespace tandem
