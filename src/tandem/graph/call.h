// One node of a graph, ready to run.
#pragma once

#include "tandem/graph/executor.h"

namespace tandem::graph {

/// A body of a node, ready to run.
class BodyCalls final : public CallList {
 public:
  BodyCalls(const Body& body, MemoryPlan plan, bool check_anomalies, const void* random,
            uint64_t random_offset);
  /// Over the buffers of the node, with this memory to work in.
  void run(const std::vector<Buffer>& in, const std::vector<Buffer>& out, char* arena);

 private:
  void move(int base, void* to);
  std::vector<int> in_, out_;  // Body::in and out
  std::vector<size_t> first_,
      copied_;  // results: the first one of each returned base; those that are copied from elsewhere
  bool moved_ = true;
};

struct CallList::Call {
  const Node* node = nullptr;
  KernelFn kernel = nullptr;
  std::unique_ptr<FusedKernel> fused;
  std::vector<std::unique_ptr<BodyCalls>> bodies;
  size_t bodies_offset = 0;  // of their memory in the arena
  std::vector<Buffer> in, out;
  KernelArgs args;
};

}  // namespace tandem::graph
