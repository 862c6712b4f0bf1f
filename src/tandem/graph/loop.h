// What scan() and while_loop() are made of. For the library itself.
#pragma once

#include "tandem/core/op.h"
#include "tandem/graph/scan.h"

namespace tandem::graph {

struct LoopCode {
  const char* name;  // of the public function
  const OpDef* op;   // of the node
  const char* what;  // the parameter that is the step, for messages
  ScanFunction step;
  std::function<Tensor(const std::vector<Tensor>&)> condition;  // empty: none
  std::vector<Tensor> state, sequences;
  int64_t count = 0;  // of runs; with a condition: the most
  bool from_end = false, recompute = false;

  static constexpr int64_t kMost = INT32_MAX;  // runs
  static constexpr int64_t kUnbounded = INT64_MAX;
  bool is_bounded() const { return count != kUnbounded; }
};

/// Appends the node, or runs plain code; either way the results are on the tape.
ScanResult run_loop(LoopCode code);
/// Traces it and throws that away: for a step that looks at what it calls.
void look_at_step(LoopCode code);

}  // namespace tandem::graph
