#include "tandem/ops/work.h"

#include <algorithm>

namespace tandem {
namespace {

int64_t flops_of(const OpDef& op, const KernelArgs& args) {
  if (op.flops) return op.flops(args);
  if (op.is_view() || op.cost == Cost::no_op) return 0;
  const int64_t written = args.out[0].size();
  return op.is_pointwise() || args.n_in == 0 ? written : std::max<int64_t>(written, args.in[0].size());
}

/// Elements that are the same one along an axis count once.
int64_t bytes_of_buffer(const Buffer& buffer) {
  int64_t elements = 1;
  for (int i = 0; i < buffer.rank; ++i)
    elements *= buffer.strides[i] == 0 ? std::min<int64_t>(buffer.shape[i], 1) : buffer.shape[i];
  return elements * static_cast<int64_t>(bytes_of(buffer.dtype));
}

int64_t bytes_of_outputs(const KernelArgs& args) {
  int64_t bytes = 0;
  for (int i = 0; i < args.n_out; ++i) bytes += bytes_of_buffer(args.out[i]);
  return bytes;
}

}  // namespace

Work work_of(const OpDef& op, const KernelArgs& args) {
  if (op.is_view() || args.n_out == 0) return {};
  Work work{flops_of(op, args), 0};
  if (op.bytes) {
    work.bytes = op.bytes(args);
    return work;
  }
  work.bytes = bytes_of_outputs(args);
  for (int i = 0; i < args.n_in; ++i)
    if (op.effects.reads_input(static_cast<size_t>(i))) work.bytes += bytes_of_buffer(args.in[i]);
  return work;
}

Work work_of(std::span<const FusedProgram> programs, const KernelArgs& args) {
  Work work{0, bytes_of_outputs(args)};
  for (int i = 0; i < args.n_in; ++i) work.bytes += bytes_of_buffer(args.in[i]);
  for (const FusedProgram& program : programs)
    for (const FusedProgram::Step& step : program.steps)
      if (!step.op->flops) work.flops += size_of(program.shape);  // given: a cast, which computes nothing
  return work;
}

}  // namespace tandem
