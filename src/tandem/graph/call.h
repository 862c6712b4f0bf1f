// One node of a graph, ready to run.
#pragma once

#include "tandem/graph/executor.h"

namespace tandem::graph {

struct Executor::Call {
  const Node* node = nullptr;
  KernelFn kernel = nullptr;
  std::unique_ptr<FusedKernel> fused;
  std::vector<Buffer> in, out;
  KernelArgs args;
};

}  // namespace tandem::graph
