// What cond() and loops have in common: functions of the caller that become bodies of a node. For the library itself.
#pragma once

#include "tandem/graph/tracer.h"

namespace tandem::graph {

/// Memory from around that bodies change in place.
struct ChangedAround {
  explicit ChangedAround(std::span<const std::shared_ptr<Trace>> bodies);
  bool any = false;
  std::vector<Ref<Storage>> storages;  // in plain code
  std::vector<int> operands;           // in a trace: bases of the graph around
};

/// For a function that did something else when it computed than when it was traced: "cond", "if_true".
[[noreturn]] void refuse_other_results(const char* function, const char* which);
/// Whether tensors have the shapes, types and requires_grad of others.
bool are_like(std::span<const Tensor> tensors, std::span<const Tensor> traced);

/// -0: added to anything, it leaves its bits.
Tensor negative_zeros(const Meta& like);

/// Shows whoever looks at each operation what the bodies use; `given` comes on top. Refuses changes in place then.
void show_uses(const OpDef& op, std::span<const std::shared_ptr<Trace>> bodies, const ChangedAround& changed,
               std::span<const Tensor> given, std::span<const Tensor> results);

}  // namespace tandem::graph
