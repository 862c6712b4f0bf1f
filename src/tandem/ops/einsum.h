// Sums of products named by index letters, made of permutes, reshapes, sums and batched matrix products.
#pragma once

#include <string_view>
#include <vector>

#include "tandem/core/op.h"

namespace tandem {

/// "ij,jk->ik": each operand's axes are letters, "..." stands for axes that broadcast. A letter that is not in the output
/// is summed over; one that appears twice in an operand takes its diagonal; an axis of size 1 stretches. Without "->" the
/// output has the axes of "..." and then, in order (A-Z, a-z), the letters that appear once. Spaces are ignored. Several
/// operands are contracted pair by pair, the pair whose product is smallest first. One operand whose axes only move is
/// viewed where strides allow, else copied and marked (CopyMark).
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

/// Sums over axes_a[i] of a and axes_b[i] of b; the result has the other axes of a, then those of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& axes_a, const Dims& axes_b);
/// The same over the last `axes` axes of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t axes = 2);

}  // namespace tandem
