#include "tandem/ops/ctc.h"

#include <limits>

#include "tandem/core/autocast.h"
#include "tandem/core/trace.h"
#include "tandem/ops/create.h"
#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

/// in[first …]: log_probabilities, targets and both lengths.
void check_inputs(const InferArgs& args, size_t first) {
  const Tensor &x = args.in[first], &targets = args.in[first + 1];
  TD_CHECK(x.rank() == 3 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), args.op,
           ": log_probabilities must be f32 or f64 (T, N, C); got ", describe(x),
           ". cast() or reshape() them.");
  const Dim samples = x.size(1), blank = args.attributes<CtcAttrs>().blank;
  TD_CHECK(blank >= 0 && blank < x.size(2), args.op, ": the blank must be one of the ", x.size(2),
           " classes; got ", blank, ".");
  TD_CHECK(targets.rank() == 2 && targets.size(0) == samples && targets.dtype() == DType::i64, args.op,
           ": targets must be i64 (", samples, ", S); got ", describe(targets),
           ". cast() or reshape() them.");
  for (size_t i = first + 2; i < first + 4; ++i)
    TD_CHECK(args.in[i].shape() == Dims{samples} && args.in[i].dtype() == DType::i64, args.op,
             ": lengths must be i64 (", samples, ",); got ", describe(args.in[i]),
             ". cast() or reshape() them.");
}

Dims places_of(const Tensor& x, const Tensor& targets) {
  return {x.size(1), x.size(0), plus_capped(times_capped(2, targets.size(1)), 1)};
}

void infer_ctc(InferArgs& args) {
  check_inputs(args, 0);
  args.add({args.in[0].size(1)}, args.in[0].dtype());
  args.add(places_of(args.in[0], args.in[1]), args.in[0].dtype());
}

void infer_gradient(InferArgs& args) {
  check_inputs(args, 1);
  const Tensor& x = args.in[1];
  for (const size_t i : {size_t{0}, size_t{5}})
    TD_CHECK(args.in[i].shape() == Dims{x.size(1)} && args.in[i].dtype() == x.dtype(), args.op,
             ": losses and their gradients must be ", x.dtype(), " (", x.size(1), ",); got ",
             describe(args.in[i]), ".");
  TD_CHECK(args.in[6].shape() == places_of(x, args.in[2]) && args.in[6].dtype() == x.dtype(), args.op,
           ": the last input must be the forward op's second output, ", x.dtype(), " ",
           places_of(x, args.in[2]), "; got ", describe(args.in[6]), ".");
  args.add(x.shape(), x.dtype());
}

Tensors grad_ctc(const GradArgs& a) {
  TD_CHECK(!a.grad[1].defined(), "ctc: what is kept for the gradient has none itself; got one.");
  Tensors out(4);
  const Tensor in[] = {a.grad[0], a.in[0], a.in[1], a.in[2], a.in[3], a.out[0], a.out[1]};
  out[0] = apply(op_ctc_gradient(), in, a.attributes)[0];
  return out;
}

Tensors refuse_second_order(const GradArgs&) {
  throw Error("ctc_loss: its gradient must not be differentiated again; got a gradient of higher order.");
}

}  // namespace

OpDef& op_ctc() {
  static OpDef& op =
      define(OpDef{.name = "ctc",
                   .about = "connectionist temporal classification: the loss of each sample",
                   .function = "ctc_loss",
                   .inputs = {"log_probabilities", "targets", "input_lengths", "target_lengths"},
                   .outputs = {"loss", "places"},
                   .infer = infer_ctc,
                   .gradient = grad_ctc,
                   .saves_inputs = 0b1111,
                   .saves_outputs = 0b11,
                   .precision = Precision::full});
  return op;
}

OpDef& op_ctc_gradient() {
  static OpDef& op = define(OpDef{
      .name = "ctc_gradient",
      .about = "the gradient of ctc",
      .function = "",
      .inputs = {"g", "log_probabilities", "targets", "input_lengths", "target_lengths", "loss", "places"},
      .outputs = {"log_probabilities_gradient"},
      .infer = infer_gradient,
      .gradient = refuse_second_order});
  return op;
}

Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options) {
  constexpr const char* kName = "ctc_loss";
  const Tensor& x = log_probabilities;
  TD_CHECK(x.defined() && x.rank() == 3 && is_floating(x.dtype()), kName,
           ": log_probabilities must be floating, (T, N, C); got ", describe(x),
           ". transpose() or cast() them.");
  const Dim steps = x.size(0), samples = x.size(1), classes = x.size(2);
  TD_CHECK(
      targets.defined() && targets.dtype() == DType::i64 && targets.rank() == 2 && targets.size(0) == samples,
      kName, ": targets must be i64 (", samples, ", S), padded; got ", describe(targets),
      ". cast() or reshape() them.");
  TD_CHECK(options.blank >= 0 && options.blank < classes, kName, ": the blank must be one of the ", classes,
           " classes; got ", options.blank, ".");
  within_lengths(kName, input_lengths, samples, steps, 0);  // refuses lengths out of range
  const Tensor within = within_lengths(kName, target_lengths, samples, targets.size(1), 0);
  // Padding may hold anything.
  Tensor labels = where(within, targets, zeros_like(targets));
  if (!current_tracer() && targets.device().is_cpu()) {
    const std::vector<int64_t> all = contiguous(targets).to_vector<int64_t>(),
                               counts = target_lengths.to_vector<int64_t>();
    for (Dim n = 0; n < samples; ++n)
      for (int64_t i = 0; i < counts[static_cast<size_t>(n)]; ++i) {
        const int64_t label = all[static_cast<size_t>(n * targets.size(1) + i)];
        TD_CHECK(label >= 0 && label < classes && label != options.blank, kName,
                 ": every label must be one of the ", classes, " classes other than the blank, ",
                 options.blank, "; got ", label, " at place ", i, " of sample ", n,
                 ". Leave blanks out of targets.");
      }
  } else {
    // Nobody can look at the values now: a table of all classes, in which a blank's place lies beyond the end, refuses the others.
    labels = where(logical_and(within, equal(targets, options.blank)),
                   full_like(targets, static_cast<double>(classes)), labels);
  }
  labels = reshape(gather_as(arange(classes, DType::i64, x.device()), 0, reshape(labels, {labels.size()}),
                             IndexUse::ctc_labels),
                   labels.shape());
  const Tensor wide = bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x;
  const Tensor given[] = {wide, labels, input_lengths, target_lengths};
  Tensor losses = apply(op_ctc(), given, CtcAttrs{options.blank})[0];
  if (options.zero_infinity)
    losses = where(equal(losses, std::numeric_limits<double>::infinity()), zeros_like(losses), losses);
  if (options.reduction == Reduction::mean)
    losses = mean(losses / cast(maximum(target_lengths, full_like(target_lengths, 1)), losses.dtype()));
  if (options.reduction == Reduction::sum) losses = sum(losses);
  return cast(losses, x.dtype());
}

}  // namespace tandem
