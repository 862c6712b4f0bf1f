#include "tandem/graph/scan.h"

#include "tandem/graph/batched_weights.h"

namespace tandem {

namespace {
/// Runs its body as often as it says (body_calls.cpp). How often is known beforehand, so that it can be recorded.
const OpDef& scan_op() {
  static const OpDef& op = *new OpDef{.name = "scan", .effects = {.reads = 0}};
  return op;
}
}  // namespace

ScanResult scan(const ScanFunction& step, const std::vector<Tensor>& state,
                const std::vector<Tensor>& sequences, const ScanOptions& options) {
  TD_CHECK(step, "scan: the step must not be empty.");
  TD_CHECK(!sequences.empty(),
           "scan: there must be at least one sequence, whose first axis says how many steps there are; got "
           "none. Pass arange() of the steps where the step needs none.");
  for (size_t i = 0; i < state.size(); ++i)
    TD_CHECK(state[i].defined(), "scan: every state must be a tensor; state ", i, " is an undefined handle.");
  for (size_t i = 0; i < sequences.size(); ++i) {
    TD_CHECK(sequences[i].defined(), "scan: every sequence must be a tensor; sequence ", i,
             " is an undefined handle.");
    TD_CHECK(sequences[i].rank() >= 1 && sequences[i].shape()[0] >= 1,
             "scan: a sequence must have a first axis of at least one step; sequence ", i, " is ",
             describe(sequences[i]), ". Leave scan() out where there is nothing to go through.");
    TD_CHECK(sequences[i].shape()[0] <= graph::LoopCode::kMost, "scan: there must be at most ",
             graph::LoopCode::kMost, " steps; sequence ", i, " is ", describe(sequences[i]),
             ". Go through it in parts.");
    TD_CHECK(sequences[i].shape()[0] == sequences[0].shape()[0],
             "scan: all sequences must be equally long along their first axis; sequence 0 is ",
             describe(sequences[0]), " and sequence ", i, " is ", describe(sequences[i]),
             ". slice() the longer one.");
  }
  graph::LoopCode code{"scan", &scan_op(), "the step", step, {}, state, sequences, sequences[0].shape()[0]};
  code.from_end = options.from_end;
  code.recompute = options.recompute;
  TD_CHECK(!options.recompute || !options.batch_weights,
           "scan: batch_weights keeps what recompute would not; set one of them.");
  if (options.batch_weights) return graph::run_batched(std::move(code));
  return graph::run_loop(std::move(code));
}

}  // namespace tandem
