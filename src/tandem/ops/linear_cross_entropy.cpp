#include "tandem/ops/linear_cross_entropy.h"

#include <algorithm>
#include <utility>

#include "tandem/core/function.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem {
namespace {

constexpr const char* kOp = "linear_cross_entropy";
constexpr int64_t kLogitsAtOnce = int64_t{1} << 22, kLeastRows = 16;

void check(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& target,
           const LinearCrossEntropyOptions& options) {
  TD_CHECK(x.defined() && weight.defined() && target.defined(), kOp,
           ": x, weight and target must be tensors; got an undefined handle.");
  TD_CHECK(x.rank() == 2 && weight.rank() == 2 && x.size(1) == weight.size(1) && weight.size(0) >= 1 &&
               is_floating(x.dtype()) && x.dtype() == weight.dtype(),
           kOp, ": x must be (n, features) and weight (classes, features), of one floating type; got ",
           describe(x), " and ", describe(weight), ".");
  TD_CHECK(!bias.defined() || (bias.shape() == Dims{weight.size(0)} && bias.dtype() == weight.dtype()), kOp,
           ": bias must be ", Dims{weight.size(0)}, " of the weight's type, or undefined; got ",
           describe(bias), ".");
  TD_CHECK(
      target.shape() == Dims{x.size(0)} && (target.dtype() == DType::i64 || target.dtype() == DType::i32),
      kOp, ": target must be i64 or i32 ", Dims{x.size(0)}, ", a class per row; got ", describe(target), ".");
  TD_CHECK(options.reduction != Reduction::none, kOp,
           ": gives the mean or the sum; got none of both. Use "
           "cross_entropy(linear(x, weight, bias), target) for each row's loss.");
  TD_CHECK(options.rows >= 0, kOp, ": rows must be at least 0; got ", options.rows, ".");
}

/// The logits of some rows, what they should be, and which of them count.
struct Part {
  Tensor logits, index, counts;  // (rows, classes); i64 or i32 (rows, 1); (rows, 1) of 0 and 1
  Part(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& target,
       std::optional<int64_t> ignored) {
    logits = linear(x, weight, bias);
    if (bytes_of(logits.dtype()) == 2) logits = cast(logits, DType::f32);
    const Tensor counted = ignored ? not_equal(target, *ignored) : Tensor();
    index = unsqueeze(ignored ? where(counted, target, 0) : target, 1);
    counts = ignored ? unsqueeze(cast(counted, logits.dtype()), 1)
                     : full({target.size(0), 1}, 1, logits.dtype(), logits.device());
  }
  /// What the gradient of the sum of the losses is for the logits. log_sums: (rows, 1).
  Tensor gradient(const Tensor& log_sums) const {
    const Tensor is_right = equal(index, arange(logits.size(1), index.dtype(), index.device()));
    return (exp(logits - log_sums) - cast(is_right, logits.dtype())) * counts;
  }
};

/// Gradients for x, weight and bias, where wanted; `factor` 0-d.
std::vector<Tensor> scaled(const FunctionContext& context, const Tensor& factor,
                           const std::vector<Tensor>& sums, const std::vector<DType>& dtypes) {
  std::vector<Tensor> out(4);
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t input = i < 2 ? i : 3;  // the target is the third
    if (context.needs(input)) out[input] = cast(sums[i] * factor, dtypes[i]);
  }
  return out;
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& target,
                            const LinearCrossEntropyOptions& options) {
  check(x, weight, bias, target, options);
  const Dim all = x.size(0), classes = weight.size(0);
  const bool has_bias = bias.defined(), is_mean = options.reduction == Reduction::mean;
  std::optional<int64_t> ignored = options.ignore_index;
  if (target.dtype() == DType::i32 && ignored && !std::in_range<int32_t>(*ignored)) ignored = {};
  const Dim rows = options.rows > 0 ? options.rows : std::max<Dim>(kLogitsAtOnce / classes, kLeastRows);

  const CustomFunction::Forward forward = [=](FunctionContext& context, const std::vector<Tensor>& in) {
    const Tensor own_bias = has_bias ? in[3] : Tensor();
    Tensor loss, count;
    std::vector<Tensor> pieces;  // of the gradient of x
    Tensor of_weight, of_bias;
    const auto add = [](Tensor& sum, const Tensor& more) { sum = sum.defined() ? sum + more : more; };
    // In place, by an op that is not pointwise: a chain of additions would become one kernel at its end, for which the products of
    // all parts would have to wait.
    const auto add_rows = [](Tensor& sum, const Tensor& more) {
      if (sum.defined())
        index_add_into(sum, arange(sum.size(0), DType::i64, sum.device()), more);
      else
        sum = more;
    };
    for (Dim begin = 0; begin == 0 || begin < all; begin += rows) {
      const Dim end = std::min(begin + rows, all);
      const Tensor x_part = slice(in[0], 0, begin, end);
      const Part part(x_part, in[1], own_bias, slice(in[2], 0, begin, end), ignored);
      const Tensor log_sums = logsumexp(part.logits, {1}, true);
      const Tensor picked = gather_as(part.logits, 1, part.index, IndexUse::cross_entropy);
      add(loss, sum(where(not_equal(part.counts, 0), log_sums - picked, 0)));
      add(count, sum(part.counts));
      if (!context.needs(0) && !context.needs(1) && !context.needs(3)) continue;
      const Tensor g = part.gradient(log_sums);
      const Tensor narrow = cast(g, in[0].dtype());
      if (context.needs(0)) pieces.push_back(matmul(narrow, in[1]));
      if (context.needs(1)) add_rows(of_weight, matmul(transpose(narrow, 0, 1), x_part));
      if (context.needs(3)) add(of_bias, sum(g, {0}));
    }
    // What the gradients read: their sums, the count, and the inputs for gradients of gradients.
    for (const Tensor& t : in) context.save(t);
    context.save(count);
    if (context.needs(0)) context.save(concat(pieces));
    if (context.needs(1)) context.save(of_weight);
    if (context.needs(3)) context.save(of_bias);
    return std::vector<Tensor>{cast(is_mean ? loss / count : loss, in[0].dtype())};
  };

  const CustomFunction::Gradient gradient = [=](const FunctionContext& context,
                                                const std::vector<Tensor>& grads) {
    const size_t inputs = has_bias ? 4 : 3;
    std::vector<Tensor> in;
    for (size_t i = 0; i < inputs; ++i) in.push_back(context.saved(i));
    const Tensor count = context.saved(inputs);
    std::vector<DType> dtypes = {in[0].dtype(), in[1].dtype()};
    if (has_bias) dtypes.push_back(in[3].dtype());
    const Tensor grad = cast(grads.at(0), count.dtype());
    const Tensor factor = is_mean ? grad / count : grad;
    std::vector<Tensor> sums(dtypes.size());
    if (grad_enabled()) {  // made of operations, through all logits
      const Part part(in[0], in[1], has_bias ? in[3] : Tensor(), in[2], ignored);
      const Tensor g = part.gradient(logsumexp(part.logits, {1}, true));
      const Tensor narrow = cast(g, in[0].dtype());
      sums[0] = matmul(narrow, in[1]);
      sums[1] = matmul(transpose(narrow, 0, 1), in[0]);
      if (has_bias) sums[2] = sum(g, {0});
    } else {
      size_t at = inputs + 1;
      for (size_t i = 0; i < sums.size(); ++i)
        if (context.needs(i < 2 ? i : 3)) sums[i] = context.saved(at++);
    }
    std::vector<Tensor> out = scaled(context, factor, sums, dtypes);
    out.resize(inputs);
    return out;
  };

  std::vector<Tensor> in = {x, weight, target};
  if (has_bias) in.push_back(bias);
  return CustomFunction(kOp, forward, gradient)(in)[0];
}

}  // namespace tandem
