// Runs a planned graph with the kernels of the eager engine.
#pragma once

#include <memory>
#include <vector>

#include "tandem/core/backend.h"
#include "tandem/graph/plan.h"

namespace tandem::graph {

/// Memory that the graphs of one compiled callable share. It only grows; who holds addresses in it compares `storage`.
struct Arena {
  Ref<Storage> storage;
  void reserve(Device device, size_t bytes);
};

class Executor {
 public:
  Executor(Graph graph, MemoryPlan plan, bool check_anomalies);
  ~Executor();

  /// One run. The results are fresh tensors (or views of inputs and captured tensors, where the callable made such).
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Arena& arena);

  /// One line a node, with the algorithm where its kernel has several.
  std::vector<std::string> describe_nodes() const;

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  std::string describe() const;

 private:
  struct Call;  // one node, ready to run
  void prepare();
  Call make_call(const Node& node);
  void run_constants();
  void bind(const std::vector<Tensor>& inputs, Arena& arena);
  void launch(Call& call);
  std::vector<RecordStep> record_steps();
  void check_finite(const Call& call);
  void set_random_base();

  Graph graph_;
  MemoryPlan plan_;
  bool check_anomalies_;
  Backend& backend_;
  std::vector<Call> calls_;
  std::vector<char*> memory_;         // by base: where it lives now
  std::vector<Ref<Storage>> own_;     // by base: constants, and on recording backends inputs and outputs
  std::vector<bool> is_output_;       // by base
  uint64_t random_host_[2] = {0, 0};  // seed and offset of the current call
  Ref<Storage> random_device_;        // the same two numbers in device memory
  Ref<Storage> bound_arena_;
  std::unique_ptr<Recording> recording_;
  bool has_run_ = false;
  bool recordable_ = true;  // no op waits for the device
};

}  // namespace tandem::graph
