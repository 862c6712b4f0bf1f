// Recurrent sequences: the list of implementations, and the choice among them, which is made as that of matrix products is.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/record.h"
#include "tandem/backends/cuda/recurrent.cuh"
#include "tandem/backends/cuda/recurrent_library.h"
#include "tandem/backends/cuda/timing.h"
#include "tandem/core/op.h"

namespace tandem::cuda {

// The list: one row per implementation, the most wanted first; each is a function that its file defines.
// clang-format off
#define TD_RECURRENT_IMPLEMENTATIONS(row) \
  row(recurrence_in_tensor_clusters)      \
  row(recurrence_on_tensor_cores)         \
  row(recurrence_in_clusters)             \
  row(resident_recurrence)                \
  row(recurrence_by_steps)
// clang-format on

#define TD_ROW(implementation) const RecurrentImplementation& implementation();
TD_RECURRENT_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW

namespace {

Chooser<RecurrentProblem, RecurrentCallArgs>& chooser() {
  static const RecurrentImplementation* const rows[] = {
#define TD_ROW(implementation) &implementation(),
      TD_RECURRENT_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW
  };
  static auto& all = *new Chooser<RecurrentProblem, RecurrentCallArgs>(rows);
  return all;
}

RecurrentProblem problem_of(const KernelArgs& args, bool backward) {
  const auto& a = args.attributes<RecurrentAttrs>();
  const RecurrentOperands<Buffer> in(a, backward, args.in);
  const DeviceState& state = state_of(args);
  const Buffer& all = backward ? *in.saved : *in.x;
  return {state.index,
          state.properties.major,
          state.properties.multiProcessorCount,
          state.properties.sharedMemPerBlockOptin,
          clusters_at_once(state),
          in.weight->dtype,
          backward,
          a.needs_rows(),
          allow_tf32(),
          static_cast<int>(gates_of(a.kind)),
          all.shape[0],
          all.shape[1],
          in.projection ? in.projection->shape[1] : in.weight->shape[1]};
}

template <bool backward>
void compute(const KernelArgs& args) {
  const RecurrentCallArgs call{args, problem_of(args, backward)};
  const RecurrentProblem& p = call.problem;
  if (p.samples == 0) return;
  const MatmulChoice choice = matmul_choice();
  const auto by_time = [&](const auto& list) -> const RecurrentImplementation& {
    if (is_recording(args)) return list.by_rule(ChoiceMode::heuristic, p);
    const std::string what = str("recurrent ", backward ? "gradient " : "", name(p.dtype),
                                 p.dtype == DType::f32 && p.tf32 ? " as tf32" : "", " ", p.steps, "x",
                                 p.samples, "x", p.gates, "x", p.hidden, p.needs_rows ? " by rows" : "", "; ",
                                 state_of(args).properties.name, ", cuBLASLt ", cublasLtGetVersion());
    return list.by_time(p, what, choice.keep, [&](const RecurrentImplementation& row) {
      return device_seconds(args, [&] { row.run(call); });
    });
  };
  chooser().choose(choice.mode, p, by_time).run(call);
}

template <bool backward>
Candidates candidates(const KernelArgs& args) {
  if (!args.device) return {{}, "not run yet"};
  Candidates seen = chooser().report(matmul_choice().mode, problem_of(args, backward));
  add_library_rows(args.attributes<RecurrentAttrs>(), seen.all);
  return seen;
}

}  // namespace

void register_recurrent_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  chooser();  // made at start, in no fork's way
  op_recurrent().kernels[kCuda] = &compute<false>;
  op_recurrent_gradient().kernels[kCuda] = &compute<true>;
  op_recurrent().candidates[kCuda] = &candidates<false>;
  op_recurrent_gradient().candidates[kCuda] = &candidates<true>;
}

}  // namespace tandem::cuda
