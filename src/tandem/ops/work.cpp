#include "tandem/ops/work.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace tandem {
namespace {

/// Ops that only move or make data.
bool moves_data(const OpDef& op) {
  static const auto& names = *new std::set<std::string_view>{
      "to",   "copy", "assign", "concat",  "slice_into_zeros", "gather",    "scatter_add_zeros",
      "cast", "full", "arange", "uniform", "normal",           "bernoulli", "one_hot"};
  return op.is_view() || op.cost == Cost::no_op || names.contains(op.name);
}

/// Elements of a weight (out, …) that go into one element of the output.
int64_t terms(const Buffer& weight) {
  return weight.rank == 0 || weight.shape[0] == 0 ? 0 : weight.size() / weight.shape[0];
}

int64_t flops_of(const OpDef& op, const KernelArgs& args) {
  const std::string_view name = op.name;
  const Buffer* const in = args.in;
  const int64_t written = args.out[0].size();
  if (moves_data(op)) return 0;
  if (op.is_pointwise()) return written;
  if (name == "matmul") return 2 * written * in[0].shape[in[0].rank - 1];
  if (name.starts_with("conv") && name.ends_with("_input_gradient")) return 2 * in[0].size() * terms(in[1]);
  if (name.starts_with("conv") && name.ends_with("_weight_gradient"))
    return 2 * in[0].size() * terms(args.out[0]);
  if (name == "linear" || name.starts_with("conv"))
    return 2 * written * terms(in[1]) + (args.n_in > 2 ? written : 0);
  if (name == "recurrent" ||
      name == "recurrent_gradient") {  // per step one product; what the gates take is little beside it
    const Buffer& weight = in[name == "recurrent" ? 1 : 0];
    const Buffer& all = args.out[0];
    return 2 * all.shape[0] * all.shape[1] * weight.size();
  }
  if (name == "recurrent_layer" ||
      name == "recurrent_layer_gradient") {  // x, both weights; back, also theirs
    const int64_t passes = name == "recurrent_layer" ? 1 : 2;
    return passes * 2 * in[0].shape[0] * in[0].shape[1] * (in[1].size() + in[2].size());
  }
  return args.n_in == 0 ? written : std::max<int64_t>(written, in[0].size());
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
  Work work{flops_of(op, args), bytes_of_outputs(args)};
  for (int i = 0; i < args.n_in; ++i)
    if (op.effects.reads_input(static_cast<size_t>(i))) work.bytes += bytes_of_buffer(args.in[i]);
  return work;
}

Work work_of(std::span<const FusedProgram> programs, const KernelArgs& args) {
  Work work{0, bytes_of_outputs(args)};
  for (int i = 0; i < args.n_in; ++i) work.bytes += bytes_of_buffer(args.in[i]);
  for (const FusedProgram& program : programs)
    for (const FusedProgram::Step& step : program.steps)
      if (!moves_data(*step.op)) work.flops += size_of(program.shape);
  return work;
}

}  // namespace tandem
