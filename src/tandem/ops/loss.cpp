#include "tandem/ops/loss.h"

#include <cmath>
#include <utility>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem {

namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  return reduction == Reduction::mean ? mean(losses) : reduction == Reduction::sum ? sum(losses) : losses;
}

/// An input of a loss as it is computed with: 16-bit types in f32.
Tensor widened(const char* op, const char* what, const Tensor& x) {
  TD_CHECK(x.defined() && is_floating(x.dtype()), op, ": ", what, " must be f64, f32, bf16 or f16; got ",
           x.defined() ? describe(x) : "an undefined handle", ". cast() it first.");
  return bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x;
}

/// A target may also hold integers (labels 1 and -1).
Tensor widened_target(const char* op, const Tensor& target, DType like) {
  TD_CHECK(target.defined(), op, ": the target must be a tensor; got an undefined handle.");
  return is_floating(target.dtype()) ? widened(op, "the target", target)
                                     : cast(target, like == DType::f64 ? DType::f64 : DType::f32);
}

void check_equal_shapes(const char* op, const Tensor& a, const Tensor& b) {
  TD_CHECK(a.shape() == b.shape(), op, ": the shapes must be equal, since nothing broadcasts in a loss; got ",
           a.shape(), " and ", b.shape(), ". reshape() one of them, or expand() it where that is meant.");
}

/// Losses times the weights that a caller gave, if any.
Tensor weighed(const char* op, const char* what, const Tensor& losses, const Tensor& weight) {
  if (!weight.defined()) return losses;
  TD_CHECK(broadcast_shapes(op, losses.shape(), weight.shape()) == losses.shape(), op, ": the ", what,
           " must broadcast to the losses' shape; got ", weight.shape(), " for ", losses.shape(), ".");
  return losses * cast(weight, losses.dtype());
}

/// Two inputs that go together element by element, and what was asked for, back in the first one's type.
template <class F>
Tensor elementwise(const char* op, const Tensor& x, const Tensor& target, Reduction reduction, F&& loss) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& x, const Tensor& target) { return elementwise(op, x, target, reduction, loss); }, x,
        target);
  const Tensor wide = widened(op, "the first input", x), t = widened_target(op, target, x.dtype());
  check_equal_shapes(op, x, target);
  return cast(reduced(loss(wide, t), reduction), x.dtype());
}

/// max(0, x) of a margin, whose gradient passes at 0 (relu's does not).
Tensor at_least_0(const Tensor& x) { return clamp(x, 0, {}); }

/// log(1 + exp(x)) without overflow; every branch is smooth at 0, so derivatives of any order are right there.
Tensor log_one_plus_exp(const Tensor& x) {
  const Tensor positive = greater(x, 0);
  return where(positive, x, 0) + log1p(exp(where(positive, neg(x), x)));
}

struct ClassTarget {
  IndexUse use;      // the loss, for messages
  Tensor index;      // (N, 1, …): i64 or i32, every one a class
  Tensor valid;      // bool (N, …); undefined where all are
  Tensor losses_of;  // the target as given, (N, …)
};

/// Checks x (N, C, …) and target (N, …).
ClassTarget class_target(IndexUse use, const Tensor& x, const Tensor& target,
                         std::optional<int64_t> ignored) {
  const char* op = name_of(use);
  TD_CHECK(x.defined() && target.defined(), op, ": both inputs must be tensors; got an undefined handle.");
  Dims rest = x.shape();
  if (rest.rank() >= 1) rest.erase(rest.rank() == 1 ? 0 : 1);
  TD_CHECK(x.rank() >= 1 && rest == target.shape(), op,
           ": logits must be (N, classes, …) and target (N, …); got ", describe(x), " and ", describe(target),
           ".");
  TD_CHECK(target.dtype() == DType::i64 || target.dtype() == DType::i32, op,
           ": the target must be i64 or i32; got ", describe(target), ". cast() it first.");
  if (target.dtype() == DType::i32 && ignored && !std::in_range<int32_t>(*ignored)) ignored = {};
  ClassTarget t;
  t.use = use;
  t.losses_of = target;
  if (ignored) t.valid = not_equal(target, *ignored);
  t.index = unsqueeze(ignored ? where(t.valid, target, 0) : target, x.rank() == 1 ? 0 : 1);
  return t;
}

void check_class_weight(const char* op, const Tensor& weight, Dim classes) {
  TD_CHECK(!weight.defined() || (weight.shape() == Dims{classes} && is_floating(weight.dtype())), op,
           ": the weight must be floating and have one element for each of ", classes, " classes; got ",
           describe(weight), ".");
}

/// (C) beside x (N, C, …).
Tensor beside_classes(const Tensor& weight, const Tensor& x) {
  if (x.rank() == 1) return weight;
  Dims shape = Dims::filled(x.rank() - 1, 1);
  shape[0] = weight.size();
  return reshape(weight, shape);
}

/// The weight of every target: 0 where it is ignored. Undefined where all are 1.
Tensor target_weights(const ClassTarget& t, const Tensor& weight, DType dtype) {
  Tensor w;
  if (weight.defined())
    w = reshape(gather_as(cast(weight, dtype), 0, reshape(t.index, {t.index.size()}), t.use),
                t.losses_of.shape());
  if (!t.valid.defined()) return w;
  return w.defined() ? where(t.valid, w, 0) : cast(t.valid, dtype);
}

/// Losses that stand at 0 where ignored: their mean goes over the weights that count.
Tensor reduced_by(const Tensor& losses, const Tensor& weights, Reduction reduction) {
  if (reduction != Reduction::mean || !weights.defined()) return reduced(losses, reduction);
  return sum(losses) / sum(weights);
}

Tensor nll_of(const Tensor& logs, const ClassTarget& t, const Tensor& weights, Reduction reduction) {
  const int axis = logs.rank() == 1 ? 0 : 1;
  const Tensor picked = gather_as(logs, axis, t.index, t.use);
  if (!weights.defined() && reduction == Reduction::mean) return neg(mean(picked));
  const Tensor losses = neg(squeeze(picked, axis));
  if (!weights.defined()) return reduced(losses, reduction);
  return reduced_by(where(not_equal(weights, 0), losses * weights, 0), weights, reduction);
}

}  // namespace

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NllLossOptions& options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& log_probabilities, const Tensor& target) {
          return nll_loss(log_probabilities, target, options);
        },
        log_probabilities, target);
  const ClassTarget t = class_target(IndexUse::nll_loss, log_probabilities, target, options.ignore_index);
  const Tensor logs = widened("nll_loss", "the input", log_probabilities);
  check_class_weight("nll_loss", options.weight, logs.size(logs.rank() == 1 ? 0 : 1));
  return cast(nll_of(logs, t, target_weights(t, options.weight, logs.dtype()), options.reduction),
              log_probabilities.dtype());
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& logits, const Tensor& target) { return cross_entropy(logits, target, options); },
        logits, target);
  constexpr const char* op = "cross_entropy";
  const double smoothing = options.label_smoothing;
  TD_CHECK(smoothing >= 0 && smoothing <= 1, op, ": label_smoothing must lie in 0..1; got ", smoothing, ".");
  TD_CHECK(logits.defined() && target.defined(), op,
           ": both inputs must be tensors; got an undefined handle.");
  const int axis = logits.rank() == 1 ? 0 : 1;
  const bool is_probabilities = is_floating(target.dtype()) && logits.shape() == target.shape();
  if (is_probabilities) {
    TD_CHECK(logits.rank() >= 1, op, ": logits must have an axis of classes; got ", describe(logits), ".");
    TD_CHECK(!options.ignore_index || *options.ignore_index < 0, op,
             ": ignore_index goes with class indices; got ", *options.ignore_index, " and probabilities ",
             describe(target), ".");
    const Tensor wide = widened(op, "the logits", logits);
    const Dim classes = wide.size(axis);
    check_class_weight(op, options.weight, classes);
    Tensor t = cast(target, wide.dtype());
    if (smoothing > 0) t = t * (1 - smoothing) + smoothing / static_cast<double>(classes);
    if (options.weight.defined()) t = t * beside_classes(cast(options.weight, wide.dtype()), wide);
    return cast(reduced(neg(sum(log_softmax(wide, axis) * t, {axis})), options.reduction), logits.dtype());
  }
  const ClassTarget t = class_target(IndexUse::cross_entropy, logits, target, options.ignore_index);
  check_class_weight(op, options.weight, logits.size(axis));
  const bool is_plain = !options.weight.defined() && !options.ignore_index && smoothing == 0;
  const Tensor wide = is_plain ? logits : widened(op, "the logits", logits);
  const Tensor logs = log_softmax(wide, axis);
  if (is_plain) return nll_of(logs, t, {}, options.reduction);
  const Tensor weights = target_weights(t, options.weight, wide.dtype());
  Tensor loss = nll_of(logs, t, weights, options.reduction);
  if (smoothing > 0) {
    const Tensor weighted =
        options.weight.defined() ? logs * beside_classes(cast(options.weight, wide.dtype()), wide) : logs;
    Tensor even = neg(sum(weighted, {axis}));
    if (t.valid.defined()) even = where(t.valid, even, 0);
    loss = loss * (1 - smoothing) + reduced_by(even, weights, options.reduction) *
                                        (smoothing / static_cast<double>(logits.size(axis)));
  }
  return cast(loss, logits.dtype());
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginOptions& options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& x, const Tensor& target) { return multi_margin_loss(x, target, options); }, x,
        target);
  constexpr const char* op = "multi_margin_loss";
  TD_CHECK(x.defined() && x.rank() == 2, op, ": x must be (N, classes); got ",
           x.defined() ? describe(x) : "an undefined handle", ".");
  TD_CHECK(options.p == 1 || options.p == 2, op, ": p must be 1 or 2; got ", options.p, ".");
  const ClassTarget t = class_target(IndexUse::multi_margin_loss, x, target, {});
  const Tensor wide = widened(op, "x", x);
  const Dim classes = x.size(1);
  check_class_weight(op, options.weight, classes);
  Tensor over = relu(wide - gather_as(wide, 1, t.index, t.use) + options.margin);
  if (options.p == 2) over = over * over;
  if (options.weight.defined()) over = over * unsqueeze(target_weights(t, options.weight, wide.dtype()), 1);
  const Tensor others = where(equal(one_hot(target, classes), 1), 0, over);
  return cast(reduced(sum(others, {1}) / static_cast<double>(classes), options.reduction), x.dtype());
}

namespace {

/// Refuses values outside 0..1, NaN among them, as PyTorch does. A table of one element refuses every index but 0, and the
/// index tells the value in millionths: nobody can look at it while tracing, or on a GPU.
void check_probabilities(const Tensor& x, IndexUse use) {
  if (x.size() == 0) return;
  const NoGrad off;
  const Tensor low = min(x), high = max(x), worst = cast(where(greater(high, 1), high, low), DType::f64);
  const Tensor is_sound = logical_and(greater_equal(low, 0), less_equal(high, 1));
  const Tensor millionths = maximum(cast(round(worst * 1e6), DType::i64), kNotANumber + 1);
  const Tensor told = where(less(worst, 0), minimum(millionths, -1), maximum(millionths, 1));
  const Tensor index = where(is_sound, 0, where(isnan(worst), kNotANumber, told));
  gather_as(zeros({1}, DType::boolean, x.device()), 0, reshape(index, {1}), use);
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target,
                            const BinaryCrossEntropyOptions& options) {
  return elementwise(
      "binary_cross_entropy", probability, target, options.reduction, [&](const Tensor& p, const Tensor& t) {
        check_probabilities(p, IndexUse::probability);
        check_probabilities(t, IndexUse::probability_target);
        // Kept from 0 by less than exp(-100), so that the gradient there is 0 and not 0 / 0.
        const auto log_of = [](const Tensor& v) { return maximum(log(maximum(v, 3e-44)), -100.0); };
        return weighed("binary_cross_entropy", "weight", neg(t * log_of(p) + (1.0 - t) * log_of(1.0 - p)),
                       options.weight);
      });
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BinaryCrossEntropyWithLogitsOptions& options) {
  return elementwise(
      "binary_cross_entropy_with_logits", logits, target, options.reduction,
      [&](const Tensor& x, const Tensor& t) {
        // (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x))
        Tensor lost = log_one_plus_exp(neg(x));
        constexpr const char* op = "binary_cross_entropy_with_logits";
        if (options.pos_weight.defined())
          lost = lost * (weighed(op, "pos_weight", t, cast(options.pos_weight, x.dtype()) - 1.0) + 1.0);
        return weighed(op, "weight", (1.0 - t) * x + lost, options.weight);
      });
}

Tensor hinge_loss(const Tensor& x, const Tensor& target, double margin, Reduction reduction) {
  return elementwise("hinge_loss", x, target, reduction,
                     [&](const Tensor& a, const Tensor& t) { return relu(margin - a * t); });
}

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin, Reduction reduction) {
  return elementwise("hinge_embedding_loss", x, target, reduction, [&](const Tensor& a, const Tensor& t) {
    return where(not_equal(t, 1), at_least_0(margin - a), 0) + where(not_equal(t, -1), a, 0);
  });
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return elementwise("soft_margin_loss", x, target, reduction,
                     [](const Tensor& a, const Tensor& t) { return log_one_plus_exp(neg(a * t)); });
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  return elementwise("mse_loss", prediction, target, reduction, [](const Tensor& a, const Tensor& t) {
    const Tensor difference = a - t;
    return difference * difference;
  });
}

Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  return elementwise("l1_loss", prediction, target, reduction,
                     [](const Tensor& a, const Tensor& t) { return abs(a - t); });
}

Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, Reduction reduction) {
  TD_CHECK(beta >= 0, "smooth_l1_loss: beta must be at least 0; got ", beta, ".");
  if (beta == 0) return l1_loss(prediction, target, reduction);
  return elementwise("smooth_l1_loss", prediction, target, reduction, [&](const Tensor& a, const Tensor& t) {
    const Tensor d = a - t, far = abs(d);
    return where(less(far, beta), d * d * (0.5 / beta), far - 0.5 * beta);
  });
}

Tensor huber_loss(const Tensor& prediction, const Tensor& target, double delta, Reduction reduction) {
  TD_CHECK(delta > 0, "huber_loss: delta must be above 0; got ", delta, ".");
  return elementwise("huber_loss", prediction, target, reduction, [&](const Tensor& a, const Tensor& t) {
    const Tensor d = a - t, far = abs(d);
    return where(less_equal(far, delta), d * d * 0.5, (far - 0.5 * delta) * delta);
  });
}

Tensor log_cosh_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  return elementwise("log_cosh_loss", prediction, target, reduction, [](const Tensor& a, const Tensor& t) {
    const Tensor d = a - t;
    return log_one_plus_exp(d * 2.0) - d - 0.69314718055994530942;
  });
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options) {
  const Reduction reduction = options.batch_mean ? Reduction::sum : options.reduction;
  const Tensor loss = elementwise("kl_div", input, target, reduction, [&](const Tensor& x, const Tensor& t) {
    if (options.log_target) return exp(t) * (t - x);
    const Tensor is_zero = equal(t, 0);
    return where(is_zero, 0, t * log(where(is_zero, 1, t))) - t * x;
  });
  if (!options.batch_mean) return loss;
  TD_CHECK(input.rank() >= 1, "kl_div: batch_mean needs an axis; got ", describe(input), ".");
  return loss / static_cast<double>(input.size(0));
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllOptions& options) {
  return elementwise(
      "poisson_nll_loss", input, target, options.reduction, [&](const Tensor& x, const Tensor& t) {
        const Tensor loss = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
        if (!options.full) return loss;
        const Tensor large = greater(t, 1), safe = where(large, t, 1);
        return loss + where(large, safe * log(safe) - safe + log(safe * 6.28318530717958647693) * 0.5, 0);
      });
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t axis, double eps) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b, axis, eps); },
        a, b);
  const Tensor x = widened("cosine_similarity", "a", a), y = widened("cosine_similarity", "b", b);
  const Dims shape = broadcast_shapes("cosine_similarity", x.shape(), y.shape());
  const Dims over{normal_axis("cosine_similarity", axis, shape.rank())};
  const Tensor p = expand(x, shape), q = expand(y, shape);
  return cast(sum(p * q, over) / (maximum(norm(p, 2, over), eps) * maximum(norm(q, 2, over), eps)),
              a.dtype());
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keep_axis) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& a, const Tensor& b) { return pairwise_distance(a, b, p, eps, keep_axis); }, a, b);
  const Tensor x = widened("pairwise_distance", "a", a), y = widened("pairwise_distance", "b", b);
  TD_CHECK(broadcast_shapes("pairwise_distance", x.shape(), y.shape()).rank() >= 1,
           "pairwise_distance: a and b must have an axis; got ", a.shape(), " and ", b.shape(), ".");
  return cast(norm(x - y + eps, p, {-1}, keep_axis), a.dtype());
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& a, const Tensor& b) { return cdist(a, b, p); }, a, b);
  const Tensor x = widened("cdist", "a", a), y = widened("cdist", "b", b);
  TD_CHECK(p >= 0, "cdist: p must not be negative; got ", p, ".");
  TD_CHECK(x.rank() >= 2 && y.rank() >= 2 && x.shape().back() == y.shape().back(),
           "cdist: a and b must be (…, rows, D) with one D; got ", a.shape(), " and ", b.shape(),
           ". unsqueeze() a single row.");
  const Tensor rows = unsqueeze(x, -2), columns = unsqueeze(y, -3);
  broadcast_shapes("cdist", rows.shape(), columns.shape());
  const Tensor away = rows - columns;
  const bool is_empty = away.shape().back() == 0;  // then every distance is 0, whatever the norm
  return cast(is_empty ? sum(away, {-1}) : norm(away, p, {-1}), promote(a.dtype(), b.dtype()));
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                             Reduction reduction) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& a, const Tensor& b, const Tensor& target) {
          return cosine_embedding_loss(a, b, target, margin, reduction);
        },
        a, b, target);
  constexpr const char* op = "cosine_embedding_loss";
  const Tensor x = widened(op, "a", a), y = widened(op, "b", b), t = widened_target(op, target, x.dtype());
  TD_CHECK(x.shape() == y.shape() && (x.rank() == 1 || x.rank() == 2) && t.rank() == x.rank() - 1 &&
               (t.rank() == 0 || t.size(0) == x.size(0)),
           op, ": a and b must be (N, D) and target (N), or (D) and (); got ", describe(a), ", ", describe(b),
           " and ", describe(target), ".");
  constexpr double kEps = 1e-12;
  const Tensor cosine = sum(x * y, {-1}) * rsqrt((sum(x * x, {-1}) + kEps) * (sum(y * y, {-1}) + kEps));
  const Tensor losses =
      where(equal(t, 1), 1.0 - cosine, 0) + where(equal(t, -1), at_least_0(cosine - margin), 0);
  return cast(reduced(losses, reduction), a.dtype());
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                           Reduction reduction) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& a, const Tensor& b, const Tensor& target) {
          return margin_ranking_loss(a, b, target, margin, reduction);
        },
        a, b, target);
  const Tensor x = widened("margin_ranking_loss", "a", a), y = widened("margin_ranking_loss", "b", b);
  check_equal_shapes("margin_ranking_loss", a, b);
  return cast(elementwise("margin_ranking_loss", x - y, target, reduction,
                          [&](const Tensor& d, const Tensor& t) { return at_least_0(margin - d * t); }),
              a.dtype());
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
          return triplet_margin_loss(anchor, positive, negative, options);
        },
        anchor, positive, negative);
  constexpr const char* op = "triplet_margin_loss";
  const Tensor a = widened(op, "the anchor", anchor), p = widened(op, "the positive", positive),
               n = widened(op, "the negative", negative);
  TD_CHECK(a.rank() >= 1, op, ": the inputs must have an axis; got ", a.shape(), ".");
  check_equal_shapes(op, a, p);
  check_equal_shapes(op, a, n);
  Tensor away = pairwise_distance(a, n, options.p, options.eps);
  if (options.swap) away = minimum(away, pairwise_distance(p, n, options.p, options.eps));
  return cast(reduced(at_least_0(pairwise_distance(a, p, options.p, options.eps) - away + options.margin),
                      options.reduction),
              anchor.dtype());
}

}  // namespace tandem
