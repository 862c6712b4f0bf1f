#include "tandem/graph/bodies.h"

#include "tandem/ops/create.h"

namespace tandem::graph {

ChangedAround::ChangedAround(std::span<const std::shared_ptr<Trace>> bodies) {
  for (const auto& body : bodies) {
    const Graph& g = body->graph;
    const std::vector<bool> changed = g.changed_bases();
    for (int v = 0; v < g.value_count(); ++v) {
      if (!changed[static_cast<size_t>(v)] || !g.is_external(v)) continue;
      const Value& value = g.value(v);
      any = true;
      if (value.storage)
        storages.push_back(value.storage);
      else if (const int operand = body->operands[static_cast<size_t>(value.input)]; operand != kNone)
        operands.push_back(operand);
    }
  }
}

void refuse_other_results(const char* function, const char* which) {
  throw Error(
      str(function, ": ", which,
          " must do the same each time it is called (first by shapes alone, then to compute); the second "
          "time it gave other results. Keep what depends on anything but tensors, modules and random "
          "operations out of it."));
}

bool are_like(std::span<const Tensor> tensors, std::span<const Tensor> traced) {
  bool alike = tensors.size() == traced.size();
  for (size_t i = 0; alike && i < tensors.size(); ++i)
    alike = tensors[i].shape() == traced[i].shape() && tensors[i].dtype() == traced[i].dtype() &&
            tensors[i].impl()->requires_grad == traced[i].impl()->requires_grad;
  return alike;
}

Tensor negative_zeros(const Meta& like) { return full(like.shape, -0.0, like.dtype, like.device); }

void show_uses(const OpDef& op, std::span<const std::shared_ptr<Trace>> bodies, const ChangedAround& changed,
               std::span<const Tensor> given, std::span<const Tensor> results) {
  Observer* const observer = current_observer();
  if (!observer) return;
  TD_CHECK(!changed.any, op.name,
           ": inside checkpoint(), which runs its function twice, the functions must not change tensors in "
           "place. Do that outside.");
  std::vector<Tensor> used(given.begin(), given.end());
  for (const auto& body : bodies) used.insert(used.end(), body->used.begin(), body->used.end());
  observer->before(op, used);
  observer->after(results);
}

}  // namespace tandem::graph
