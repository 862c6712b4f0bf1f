// Runs a planned graph with the kernels of the eager engine. There are two ways: on a backend that does not record, the
// calls are made in order over the caller's own memory; on one that records (CUDA), over memory that stays in place, so
// that the whole list can be recorded once and replayed as one. The bodies of a node are lists of calls that it makes.
#pragma once

#include <memory>
#include <vector>

#include "tandem/core/activity.h"
#include "tandem/core/backend.h"
#include "tandem/core/recorded_control.h"
#include "tandem/core/rng.h"
#include "tandem/graph/plan.h"

namespace tandem::graph {

/// Memory that the graphs of one compiled callable share. It only grows; who holds addresses in it compares `storage`.
struct Arena {
  Ref<Storage> storage;
  void reserve(Device device, size_t bytes);
  char* data() const { return storage ? static_cast<char*>(storage->data()) : nullptr; }
};

/// The calls of a graph in order, over memory that is put in place for each run.
class CallList {
 public:
  virtual ~CallList();
  CallList(const CallList&) = delete;
  CallList& operator=(const CallList&) = delete;

  /// What there is to see of it, with the algorithm of each kernel that has several.
  GraphView view() const;
  const Graph& graph() const { return graph_; }
  /// Why the calls, those of bodies included, cannot be recorded; empty where they can.
  std::string refusal_to_record() const;
  /// Whether what runs is decided by values on the device.
  bool chooses_by_value() const;
  /// Whether some call may refuse values.
  bool may_refuse() const;
  /// Whether some body that has not run yet holds an op whose implementation is chosen by timing, as none can be while it
  /// is recorded.
  bool has_untimed_bodies() const;

 protected:
  struct Call;  // one node, ready to run

  CallList(Graph graph, MemoryPlan plan, bool check_anomalies);
  /// Call once memory for it is in place: `random` holds seed and offset of the current run; null: it draws nothing.
  void make_calls(const uint64_t* random);
  void run_constants();
  Call make_call(const Node& node);
  void set_pointers(Call& call);
  void launch(Call& call);
  /// What all calls together compute and move; of bodies nothing, where it is not known beforehand what runs.
  Work work() const;
  void run_bodies(Call& call);
  void run_loop(Call& call, char* arena, const RngPosition& random);
  /// The same within a recording, where the device decides how often it runs (recorded_loop.cpp).
  void record_loop(Call& call, char* arena, const RngPosition& random);
  /// Where the calls draw from now on.
  void set_random(const RngPosition& random);
  void check_finite(const Call& call);
  Ref<Storage> new_memory(int base);
  void put(int base, const Ref<Storage>& storage);
  void put_arena(char* arena);

  Graph graph_;
  MemoryPlan plan_;
  bool check_anomalies_;
  Backend& backend_;
  RecordedControl* const control_;  // null: none
  std::vector<Call> calls_;
  std::vector<char*> memory_;      // by base: where it lives now
  std::vector<Ref<Storage>> own_;  // by base: constants, and whatever else this list holds
  std::vector<int> input_bases_, returned_bases_, arena_bases_;  // returned ones that are computed
  char* arena_ = nullptr;
  RngPosition random_;
};

/// Runs whole graphs.
class Executor : public CallList {
 public:
  /// The one for the graph's device.
  static std::unique_ptr<Executor> make(Graph graph, MemoryPlan plan, bool check_anomalies);

  /// One run. The results are fresh tensors (or views of inputs and captured tensors, where the callable made such).
  /// Random numbers come from `random` on: graph().random_blocks of them.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Arena& arena, GeneratorState random);

  /// By input: whether a run changes it.
  const std::vector<bool>& changes_input() const { return changes_input_; }
  /// Captured memory that a run changes.
  const std::vector<Ref<Storage>>& changed_memory() const { return changed_memory_; }
  virtual std::string describe() const = 0;

 protected:
  Executor(Graph graph, MemoryPlan plan, bool check_anomalies);
  /// Puts inputs, outputs and the arena in their places for this run; true where some address changed.
  virtual bool place(const std::vector<Tensor>& inputs, Arena& arena) = 0;
  /// Makes the calls.
  virtual void execute() = 0;
  /// Memory of a returned base for the caller to keep.
  virtual Ref<Storage> hand_over(int base) = 0;
  /// After all results are handed over.
  virtual void finish(const std::vector<Tensor>& inputs) = 0;

  void set_random_base(GeneratorState random);

  std::vector<bool> changes_input_;
  std::vector<Ref<Storage>> changed_memory_;
  uint64_t random_host_[2] = {0, 0};  // seed and offset of the current call
  Ref<Storage> random_device_;        // the same two numbers in device memory
};

/// For backends that record.
std::unique_ptr<Executor> make_recording_executor(Graph graph, MemoryPlan plan, bool check_anomalies);

}  // namespace tandem::graph
