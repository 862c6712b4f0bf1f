// One node of a graph, ready to run.
#pragma once

#include "tandem/graph/executor.h"

namespace tandem::graph {

/// A body of a node, ready to run.
class BodyCalls final : public CallList {
 public:
  BodyCalls(const Body& body, MemoryPlan plan, bool check_anomalies, const uint64_t* random);

  // Where each input and result is.
  std::vector<char*> in, out;
  /// As they are in the node.
  void take(const std::vector<Buffer>& node_in, const std::vector<Buffer>& node_out);
  /// One run, with this memory to work in and random numbers from there on.
  void run(char* arena, const RngPosition& random);
  bool has_run() const { return placed_; }
  /// Whether some op in it has several implementations.
  bool has_candidates() const;

  size_t bytes_of_input(size_t i) const { return bytes_of_base(graph_, input_values_[i]); }
  size_t bytes_of_result(size_t k) const { return bytes_of_base(graph_, base_of_result(k)); }
  /// Whether kernels write a result straight to its place.
  bool is_written_there(size_t k) const { return written_there_[k]; }

 private:
  int base_of_result(size_t k) const { return graph_.base_of(graph_.outputs()[k]); }
  void move(int base, char* to);

  /// A buffer of a call, so far from the start of its base.
  struct Part {
    Buffer* buffer;
    int64_t offset;
  };
  const Body& body_;
  std::vector<int> input_values_;
  std::vector<bool>
      written_there_;  // by result; others are memory from outside, or that of an earlier result
  std::vector<std::vector<Part>> parts_;  // by base that may move from run to run
  bool placed_ = false;
};

struct CallList::Call {
  const Node* node = nullptr;
  KernelFn kernel = nullptr;
  std::unique_ptr<FusedKernel> fused;
  std::vector<std::unique_ptr<BodyCalls>> bodies;
  MemoryPlan::ForBodies for_bodies;  // its plans are the bodies'
  std::vector<Buffer> in, out;
  KernelArgs args;
};

}  // namespace tandem::graph
