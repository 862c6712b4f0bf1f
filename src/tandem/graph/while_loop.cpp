#include "tandem/graph/while_loop.h"

#include "tandem/graph/loop.h"

namespace tandem {

namespace {
/// Runs its first body while the second one says so. The host waits for each answer (body_calls.cpp), but within a recording
/// (recorded_loop.cpp).
const OpDef& while_op() {
  static const OpDef& op = *new OpDef{.name = "while_loop", .effects = {.reads = 0}, .waits = true};
  return op;
}
}  // namespace

std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                               const TensorFunction& body, const std::vector<Tensor>& state,
                               const WhileOptions& options) {
  TD_CHECK(condition && body, "while_loop: the functions must not be empty.");
  TD_CHECK(!state.empty(),
           "while_loop: there must be at least one state, which the condition looks at; got none.");
  for (size_t i = 0; i < state.size(); ++i)
    TD_CHECK(state[i].defined(), "while_loop: every state must be a tensor; state ", i,
             " is an undefined handle.");
  TD_CHECK(!options.at_most || (*options.at_most >= 1 && *options.at_most <= graph::LoopCode::kMost),
           "while_loop: at_most must be from 1 to ", graph::LoopCode::kMost, "; got ", *options.at_most,
           ". Leave it out for no bound.");
  const ScanFunction step = [body](const std::vector<Tensor>& now, const std::vector<Tensor>&) {
    return ScanStep{body(now), {}};
  };
  graph::LoopCode code{
      "while_loop", &while_op(), "the body", step,
      condition,    state,       {},         options.at_most.value_or(graph::LoopCode::kUnbounded)};
  code.recompute = options.recompute;
  return graph::run_loop(std::move(code)).state;
}

}  // namespace tandem
