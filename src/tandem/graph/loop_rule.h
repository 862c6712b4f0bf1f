// A loop that is traced, and its gradient. For the library itself.
#pragma once

#include <optional>
#include <unordered_map>

#include "tandem/core/autocast.h"
#include "tandem/core/mutex.h"
#include "tandem/graph/bodies.h"
#include "tandem/graph/loop.h"

namespace tandem::graph {

/// A loop whose step is traced.
struct TracedLoop {
  LoopCode code;  // its tensors are row-major; a sequence may be one slice repeated
  TensorFunction step;
  std::shared_ptr<Mutex> turn;                 // traces are continued by one thread at a time
  std::vector<std::shared_ptr<Trace>> bodies;  // the step; the condition
  std::vector<bool> wants_grad;                // by own input: state, then sequences
  // By result: state, then outputs.
  std::vector<size_t> same;  // the first one that is the same tensor
  std::vector<bool> copied;  // it is no fresh tensor, so a copy of it is the result
  GeneratorState place;      // in the random stream
  uint64_t blocks = 0;       // of one run

  size_t states() const { return code.state.size(); }
  bool has_condition() const { return bodies.size() > 1; }
  Trace& trace() const { return *bodies[0]; }
  const std::vector<Tensor>& results() const { return bodies[0]->results; }
  const Tensor& own(size_t i) const { return i < states() ? code.state[i] : code.sequences[i - states()]; }
  /// What a run is handed for it.
  Meta meta_of_own(size_t i) const;
  /// Of a sequence.
  int64_t bytes_between_slices(size_t i) const;
  std::string name_of_own(size_t i) const {
    return i < states() ? str("state ", i) : str("sequence ", i - states());
  }
  int64_t slice_of(int64_t run) const { return code.from_end ? code.count - 1 - run : run; }

  /// Results are memory of their own, and one tensor that is there twice stays one: its gradients are added one by one.
  std::vector<Tensor> separate(std::vector<Tensor> results) const;
};

/// Whether all slices of a sequence are one, row-major: an expand()ed tensor.
bool is_one_slice_repeated(const Tensor& sequence);

// Layouts of stacks.
Meta row_major(const Meta& meta);
Meta stack_of(const Meta& meta, int64_t count);
int64_t bytes_of_meta(const Meta& meta);

/// The gradient of a loop: the rule of its node of the tape.
struct LoopRule {
  TracedLoop loop;
  ChangedAround changed;
  // Where gradients leave a run, in its trace: at its own inputs, then at tensors from around.
  std::vector<TapeNode::Edge> ends;
  std::vector<int> own_of_end;         // kNone: from around
  std::vector<int> end_of_own;         // kNone: wants no gradient
  std::vector<size_t> wanted;          // results that gradients can arrive at
  std::vector<TapeNode::Saved> saved;  // by own input; then, to compute again, what the step uses
  std::vector<TapeNode::Edge> edges;   // by end: where its gradient goes outside
  // In a trace: stacks of the memory of runs that the backward pass reads and of states before them, and how many runs.
  std::unordered_map<int, Tensor> kept;
  std::vector<Tensor> history;
  Tensor count;
  // In plain code: each run, with its tape.
  struct Run {
    std::vector<Tensor> own, results;
  };
  std::vector<Run> runs;
  std::optional<DType> precision = autocast_dtype();

  /// The backward pass of one run, for gradients of some results.
  struct Backward {
    std::vector<size_t> outputs;  // results that arriving gradients are slices for, the last one first
    std::vector<size_t> parts;    // by state: how many single gradients it is carried as
    std::vector<size_t> singles;  // ends of all single gradients of a run, in the order of the walk
    std::vector<size_t> sums;     // ends from around that get some
    std::vector<Meta> sum_metas;
    std::vector<size_t> slices;  // own inputs: sequences that get some
    BackwardBody body;           // in: parts, outputs, sums, then what it reads; out: parts, sums, slices
    size_t part_count() const {
      size_t count = 0;
      for (size_t n : parts) count += n;
      return count;
    }
  };

  std::vector<TapeNode::Delivery> operator()(std::span<const Tensor> grads) const;
  /// A state that gets gradients from a run hands them to the one before: known once no further one does.
  Backward backward_of_run(const std::vector<bool>& arrives) const;

 private:
  /// As plain code on the tape, in both engines, so that it can be differentiated in turn.
  std::vector<TapeNode::Delivery> compute_again(const std::vector<Tensor>& seeds) const;
  /// Single gradients of one run, for those that its results get. What arrives from outside comes before what the next run
  /// gave.
  std::vector<TapeNode::Delivery> walk(const Backward& back, std::span<const TapeNode::Edge> at,
                                       const std::vector<Tensor>& results, const std::vector<Tensor>& parts,
                                       const std::vector<Tensor>& seeds) const;
  /// What they become: parts and sums to carry on, and what is stacked.
  std::vector<Tensor> share_out(const Backward& back, const std::vector<TapeNode::Delivery>& found,
                                const std::vector<Tensor>& sums) const;
  /// What the backward pass of all runs gave: parts and sums, and gradients of sequences.
  std::vector<TapeNode::Delivery> deliver(const Backward& back, const std::vector<Tensor>& given) const;
  /// What it reads must be what the runs saw.
  void check_memory(const Backward& back) const;
  /// All runs from the last to the first, in plain code or as a node: `carried` holds parts and sums, and gives them, too;
  /// gradients of sequences come behind.
  std::vector<Tensor> run_backward(const Backward& back, std::vector<Tensor> carried,
                                   const std::vector<Tensor>& seeds) const;
  std::vector<Tensor> append_backward(const Backward& back, std::vector<Tensor> carried,
                                      const std::vector<Tensor>& seeds) const;
  /// Of what append_backward() looks for among what the node of the loop kept.
  void check_kept(bool is_there) const;
};

}  // namespace tandem::graph
