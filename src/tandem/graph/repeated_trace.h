// Traces a callable, and once more where it may keep something from call to call that no replay would change.
#pragma once

#include "tandem/graph/tracer.h"

namespace tandem::graph {

/// Tensors that traces of one callable left in C++ variables, the latest last.
using LeftBehind = std::vector<Survivor>;

/// Traces a callable. Where the trace leaves tensors behind, or `verify` is set, the callable is traced a second time: that
/// trace must read none of these and must be the same as the first, or an Error says what differs.
std::unique_ptr<Trace> trace_checked(const TensorFunction& function, const std::vector<Tensor>& inputs,
                                     bool verify, LeftBehind& left_behind);

/// What differs between two traces of one callable: "mul(value=1) in fc (Linear) and then mul(value=2) in fc (Linear)".
/// Empty: nothing.
std::string difference(const Trace& first, const Trace& second);

}  // namespace tandem::graph
