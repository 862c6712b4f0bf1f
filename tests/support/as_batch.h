// Tensors as the batch of a task, by the order of its fields.
#pragma once

#include <vector>

#include "tandem/train/task.h"

namespace tandem::testing {

inline Named as_batch(const TaskPtr& task, std::vector<Tensor> tensors) {
  std::vector<std::string> names;
  for (const data::Field& field : task->fields())
    if (names.size() < tensors.size()) names.push_back(field.name);
  return {Names::of(names), std::move(tensors)};
}

}  // namespace tandem::testing
