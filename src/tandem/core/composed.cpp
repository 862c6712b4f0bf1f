#include "tandem/core/composed.h"

#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/core/region.h"
#include "tandem/core/rng.h"
#include "tandem/core/scope.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

uint64_t memory_of(const Tensor& t) {
  if (Tracer* const tracer = current_tracer()) return tracer->memory_of(t);
  return reinterpret_cast<uint64_t>(t.impl()->storage.get());
}

/// Runs the form under the op's name, in errors, profiles and graphs. It must draw exactly `blocks` blocks of random numbers.
Tensors run_form(const OpDef& op, const ComposedArgs& args, uint64_t blocks) {
  const NoAutocast as_given;
  const Scope scope(op.name);
  const auto& layer = current_layer();
  const LayerScope named(std::make_shared<const std::string>(layer ? str(*layer, ": ", op.name) : op.name));
  const GeneratorState before = random_place();
  Tensors out;
  try {
    out = op.composed(args);
  } catch (Error& error) {
    const std::string begin = str(op.name, ": ");  // errors of ComposedRun begin with the name already
    if (!std::string_view(error.what()).starts_with(begin)) error.prepend(begin);
    throw;
  }
  if (const Tracer* tracer = current_tracer(); tracer && !tracer->replays())
    return out;  // has no random stream
  const GeneratorState after = random_place();
  TD_CHECK(after.seed == before.seed && after.offset == before.offset + blocks, op.name,
           ": its composed form must draw as many random numbers as a kernel would, ", blocks,
           " blocks of four, and seed nothing; got ",
           after.seed == before.seed ? str(after.offset - before.offset, " blocks") : "another seed",
           ". The numbers that a program draws afterwards would depend on the device.");
  return out;
}

void check_count(const OpDef& op, const Tensors& out, size_t count) {
  TD_CHECK(out.size() == count, op.name, ": its composed form must give ", count,
           " tensors, as inference says; got ", out.size(), ".");
  for (size_t i = 0; i < out.size(); ++i)
    TD_CHECK(out[i].defined(), op.name, ": result ", i, " of its composed form must be a tensor; got none.");
}

/// Results are new row-major tensors, as those of a kernel are: no view, no input, nothing that the form keeps, none twice.
void make_results_new(Tensors& out, const ComposedRun& run) {
  static const OpDef& copy = *find_op("copy");
  const bool traced = current_tracer() != nullptr;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].requires_grad()) out[i] = out[i].detach();  // of a form that switches gradients on
    const TensorImpl& impl = *out[i].impl();
    // Someone else has the tensor or its memory: the form keeps it, or it is an input.
    const bool is_held = !traced && (impl.use_count() > 1 || impl.storage->use_count() > 1);
    bool is_new = run.made(out[i]) && !is_held && out[i].is_contiguous();
    for (size_t k = 0; k < i; ++k) is_new = is_new && memory_of(out[i]) != memory_of(out[k]);
    if (!is_new) out[i] = apply(copy, {&out[i], 1})[0];
  }
}

}  // namespace

ComposedRun::ComposedRun(const OpDef& op) : op_(op), outer_(composed_run()) { composed_run() = this; }
ComposedRun::~ComposedRun() { composed_run() = outer_; }

void ComposedRun::meet(const OpDef& inner, std::span<const Tensor> in) {
  TD_CHECK(
      !inner.effects.is_ordered() && !inner.data_dependent, op_.name,
      ": its composed form must neither act on the world outside nor ask for sizes that depend on values; "
      "got ",
      inner.name, ".");
  for (const ComposedRun* run = this; run; run = run->outer_)
    TD_CHECK(&inner != &run->op_, run->op_.name,
             ": its composed form must be made of other ops; it calls the op itself.");
  for (size_t i = 0; i < in.size(); ++i)
    TD_CHECK(!inner.effects.writes_input(i) || memory_.contains(memory_of(in[i])), op_.name,
             ": its composed form must change nothing that it has not made; ", inner.name, " changes ",
             describe(in[i]), ". Let it work on a copy (clone()).");
}

void ComposedRun::note(const OpDef& inner, const Tensors& out) {
  for (ComposedRun* run = this; run; run = run->outer_)
    for (size_t i = 0; i < out.size(); ++i)
      if (inner.effects.alias_of(i) < 0) {
        run->made_.insert(out[i].impl());
        run->memory_.insert(memory_of(out[i]));
      } else {
        run->made_.erase(out[i].impl());  // another one may have had its place
      }
}

bool ComposedRun::made(const Tensor& tensor) const {
  return made_.contains(tensor.impl()) && memory_.contains(memory_of(tensor));
}

Tensors run_composed(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                     const InferArgs& inferred) {
  const ComposedRun run(op);
  const NoGrad off;
  const uint64_t blocks = op.is_random() ? philox_blocks(size_of(inferred.out[0].shape)) : 0;
  Tensors out = run_form(op, {attrs, in, op.context.get()}, blocks);
  check_count(op, out, inferred.out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Meta& want = inferred.out[i];
    TD_CHECK(out[i].shape() == want.shape && out[i].dtype() == want.dtype && out[i].device() == want.device,
             op.name, ": result ", i, " of its composed form must be ", want.dtype, " ", want.shape, " on ",
             want.device, ", as inference says; got ", describe(out[i]), ".");
  }
  make_results_new(out, run);
  return out;
}

// The form runs again, and the walk goes back through it as far as the inputs.
Tensors gradient_of_composed(const GradArgs& a) {
  const bool create_graph = grad_enabled();
  std::vector<Tensor> in;
  std::vector<TapeNode::Edge> ends;
  std::vector<size_t> input_of;  // by end
  for (size_t i = 0; i < a.in.size(); ++i) {
    in.push_back(a.needs[i] ? a.in[i] : a.in[i].detach());
    if (!a.needs[i]) continue;
    TD_CHECK(
        a.in[i].requires_grad(), a.op.name, ": ", a.op.inputs.name(i),
        " must still require a gradient in the backward pass, which runs the composed form again. Change "
        "requires_grad after backward().");
    ends.push_back(edge_of(a.in[i]));
    input_of.push_back(i);
  }
  Tensors out;
  std::vector<Tensor> outputs, seeds;
  {
    const ComposedRun run(a.op);
    const Region region;
    const GradMode on(true);
    out = run_form(a.op, {a.attributes, in, a.context}, 0);
    check_count(a.op, out, a.grad.size());
    for (size_t i = 0; i < out.size(); ++i) {
      if (!a.grad[i].defined() || !out[i].requires_grad()) continue;
      TD_CHECK(out[i].shape() == a.grad[i].shape() && out[i].dtype() == a.grad[i].dtype(), a.op.name,
               ": result ", i, " of its composed form must be ", a.grad[i].dtype(), " ", a.grad[i].shape(),
               ", as inference says; got ", describe(out[i]), ".");
      outputs.push_back(out[i]);
      seeds.push_back(a.grad[i]);
    }
    const auto inside = [id = region.id()](const TapeNode& node) { return node.region == id; };
    const auto is_end = [&](const TapeNode::Edge& edge) {
      return std::any_of(ends.begin(), ends.end(), [&](const TapeNode::Edge& end) {
        return end.node == edge.node && end.output == edge.output && end.leaf == edge.leaf;
      });
    };
    std::vector<TapeNode::Edge> leaving = edges_out_of(outputs, inside);
    for (const Tensor& output : outputs)  // an input, or a tensor that the form keeps
      if (const TapeNode::Edge edge = edge_of(output); !edge.node || !inside(*edge.node))
        leaving.push_back(edge);
    for (const TapeNode::Edge& edge : leaving)
      TD_CHECK(is_end(edge), a.op.name,
               ": its composed form must depend on its inputs alone; it uses another tensor that requires a "
               "gradient. Make it an input.");
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

void check_names(const OpDef& op) {
  const OpInputs& inputs = op.inputs;
  TD_CHECK(inputs.least >= 0 && inputs.least <= inputs.most, "define: op '", op.name,
           "' must take from 0 inputs on, and no fewer at most than at least; got ", inputs.least, " to ",
           inputs.most, ".");
  std::vector<std::string> plain;
  bool optional = false, any = false;
  for (const char* text : inputs.names) {
    if (!text) break;
    std::string name = text;
    const bool is_any = name.ends_with("..."), is_optional = name.ends_with('?');
    if (is_any) name.resize(name.size() - 3);
    if (is_optional) name.pop_back();
    TD_CHECK(!name.empty() && name.find_first_of(".?") == std::string::npos &&
                 std::find(plain.begin(), plain.end(), name) == plain.end(),
             "define: op '", op.name,
             "' must have inputs of different names, each a word, or one with ? or ... ", "behind it; got '",
             text, "'.");
    TD_CHECK(!any && (is_optional || is_any || !optional) && !(is_any && optional), "define: op '", op.name,
             "' must have inputs that may be left out (?), or any number of them (...), last; got '", text,
             "' behind such a one.");
    optional = optional || is_optional;
    any = any || is_any;
    plain.push_back(name);
  }
}

}  // namespace tandem
