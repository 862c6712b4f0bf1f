// The memory plan: where in one arena each computed base lives. Two bases share memory only if their lives do not meet.
#pragma once

#include <unordered_map>

#include "tandem/graph/graph.h"

namespace tandem::graph {

struct MemoryPlan {
  std::vector<int64_t> offset;  // by base, in bytes; -1: not in the arena
  size_t arena_bytes = 0;
  size_t values_bytes = 0;  // if every base had memory of its own
  /// What the bodies of a node need while it runs: they do not run at the same time.
  struct ForBodies {
    size_t offset = 0, bytes = 0;  // in the arena
    std::vector<MemoryPlan> plans;
    // Of a loop, from `offset` on; -1: none.
    std::vector<int64_t>
        second;  // by carried value: another place for it, so that a run never writes what it reads
    std::vector<int64_t> staged;  // by stacked result: an aligned place to write it to before it is copied
    // Of one that can be recorded as a loop: there every run has the same addresses.
    std::vector<int64_t> gathered;  // by sliced input: where a run reads it
    int64_t state = -1;             // a LoopState
  };
  std::unordered_map<int, ForBodies> bodies;  // by node
};

/// `share` off gives every base a place of its own.
MemoryPlan plan_memory(const Graph& graph, bool share);

size_t bytes_of_base(const Graph& graph, int base);

}  // namespace tandem::graph
