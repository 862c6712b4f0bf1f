// cond(): one of two functions, by a value that is known only when it runs.
#pragma once

#include "tandem/graph/compile.h"

namespace tandem {

/// The results of if_true(inputs) where the one element of `condition` (bool) is true, else those of if_false(inputs). Both
/// must return equally many tensors of the same shapes and types; the results are fresh tensors. Inside compile() this is
/// one node with two graphs, of which each call runs one; anywhere else the chosen function runs as plain code. Both
/// engines give the bits of a plain `if` over tensors.
///
/// The functions may use tensors from around them, change them in place, draw random numbers and be nested. As in a
/// compiled callable, values cannot be read inside, and plain C++ in them runs more than once: both are traced each time
/// cond() is called. Random numbers: cond() takes as many from the stream as the one of the two that draws more.
/// Gradients go through the branch that ran; what only the other one uses gets zeros. backward(), and changes of gradients
/// and hooks, are refused inside.
std::vector<Tensor> cond(const Tensor& condition, const TensorFunction& if_true,
                         const TensorFunction& if_false, const std::vector<Tensor>& inputs = {});
/// The same for one tensor.
Tensor cond(const Tensor& condition, const std::function<Tensor()>& if_true,
            const std::function<Tensor()>& if_false);

}  // namespace tandem
