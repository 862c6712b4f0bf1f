#include "tandem/core/composed.h"

#include "tandem/core/autocast.h"
#include "tandem/core/region.h"
#include "tandem/core/rng.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

bool share_memory(const Tensor& a, const Tensor& b) {
  const Tracer* const tracer = current_tracer();
  return tracer ? tracer->share_memory(a, b) : a.impl()->storage == b.impl()->storage;
}

/// Results are new row-major tensors, as those of a kernel are: no view, no input, none of them twice.
void make_results_new(Tensors& out, std::span<const Tensor> in) {
  static const OpDef& copy = *find_op("copy");
  for (size_t i = 0; i < out.size(); ++i) {
    bool is_new = out[i].is_contiguous();
    for (const Tensor& t : in) is_new = is_new && !share_memory(out[i], t);
    for (size_t k = 0; k < i; ++k) is_new = is_new && !share_memory(out[i], out[k]);
    if (!is_new) out[i] = apply(copy, {&out[i], 1})[0];
  }
}

void check_results(const OpDef& op, const Tensors& out, const InferArgs& inferred) {
  TD_CHECK(out.size() == inferred.out.size(), op.name, ": its composed form must give ", inferred.out.size(),
           " tensors, as inference says; got ", out.size(), ".");
  for (size_t i = 0; i < out.size(); ++i) {
    const Meta& want = inferred.out[i];
    TD_CHECK(out[i].defined() && out[i].shape() == want.shape && out[i].dtype() == want.dtype &&
                 out[i].device() == want.device,
             op.name, ": result ", i, " of its composed form must be ", want.dtype, " ", want.shape, " on ",
             want.device, ", as inference says; got ", describe(out[i]), ".");
  }
}

}  // namespace

ComposedRun::ComposedRun(const OpDef& op) : op_(op), outer_(composed_run()) { composed_run() = this; }
ComposedRun::~ComposedRun() { composed_run() = outer_; }

void ComposedRun::meet(const OpDef& inner, const InferArgs& inferred) {
  TD_CHECK(
      !inner.effects.is_ordered() && !inner.data_dependent, op_.name,
      ": its composed form must neither act on the world outside nor ask for sizes that depend on values; "
      "got ",
      inner.name, ".");
  if (!inner.is_random()) return;
  const uint64_t blocks = philox_blocks(size_of(inferred.out[0].shape));
  for (ComposedRun* run = this; run; run = run->outer_) run->drawn_ += blocks;
}

Tensors run_composed(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                     const InferArgs& inferred) {
  std::vector<uint32_t> versions;
  for (const Tensor& t : in) versions.push_back(version_of(t));
  ComposedRun run(op);
  const NoGrad off;
  const NoAutocast as_given;
  const Scope scope(op.name);
  const auto& layer = current_layer();
  const LayerScope named(std::make_shared<const std::string>(layer ? str(*layer, ": ", op.name) : op.name));
  Tensors out;
  try {
    out = op.composed({attrs, in, op.context.get()});
  } catch (Error& error) {
    error.prepend(str(op.name, ": "));
    throw;
  }
  check_results(op, out, inferred);
  make_results_new(out, in);
  for (size_t i = 0; i < in.size(); ++i)
    TD_CHECK(version_of(in[i]) == versions[i], op.name,
             ": its composed form must not change its inputs; it changed ", op.inputs.name(i),
             ". Let it work on a copy (clone()).");
  const uint64_t blocks = op.is_random() ? philox_blocks(size_of(inferred.out[0].shape)) : 0;
  TD_CHECK(run.drawn() == blocks, op.name,
           ": its composed form must draw as many random numbers as a kernel would, ", blocks,
           " blocks of four; got ", run.drawn(),
           ". The numbers that a program draws afterwards would depend on the device.");
  return out;
}

Tensors gradient_of_composed(const GradArgs& a) {
  const bool create_graph = grad_enabled();
  Tensors out;
  {
    const GradMode on(true);
    out = a.op.composed({a.attributes, a.in, a.context});
  }
  std::vector<TapeNode::Edge> ends;
  std::vector<size_t> input_of;  // by end
  for (size_t i = 0; i < a.in.size(); ++i)
    if (a.needs[i]) {
      ends.push_back(edge_of(a.in[i]));
      input_of.push_back(i);
    }
  std::vector<Tensor> outputs, seeds;
  for (size_t i = 0; i < out.size(); ++i)
    if (a.grad[i].defined() && out[i].requires_grad()) {
      outputs.push_back(out[i]);
      seeds.push_back(a.grad[i]);
    }
  Tensors result;
  result.resize(a.in.size());
  for (TapeNode::Delivery& delivery : gradients_at(ends, outputs, seeds, create_graph)) {
    Tensor& sum = result[input_of[delivery.edge]];
    sum = sum.defined() ? tape_ops().add(sum, delivery.gradient) : delivery.gradient;
  }
  return result;
}

void check_composed(const OpDef& op) {
  if (!op.composed) return;
  TD_CHECK(
      !op.is_view() && !op.changes_memory() && !op.effects.is_ordered() && !op.data_dependent, "define: op '",
      op.name,
      "' has a composed form, so it must make new tensors of sizes that inference knows, and touch nothing "
      "else.");
  if (op.gradient || op.not_differentiable) return;
  TD_CHECK(
      !op.is_random() && op.inputs.most <= 32, "define: op '", op.name,
      "' must have a gradient rule of its own: a composed form gives one to ops that draw no random numbers "
      "and take at most 32 inputs.");
}

}  // namespace tandem
