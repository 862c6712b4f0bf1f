#include "tandem/ops/norm.h"

#include <algorithm>

#include "tandem/core/autocast.h"
#include "tandem/core/tape.h"
#include "tandem/ops/define.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"

namespace tandem {

namespace {

/// Whether x's axes, in order, make up samples, groups · channels and inner. What has elements may be seen otherwise, too.
bool fits_view(const NormAttrs& n, const Dims& shape) {
  const Dim size = size_of(shape);
  if (size > 0) return size_of({n.samples, n.groups, n.channels, n.inner}) == size;
  const auto product = [&](int from, int upto) {
    Dim total = 1;
    for (int i = from; i < upto; ++i) total *= shape[i];
    return total;
  };
  for (int i = 0; i <= shape.rank(); ++i)
    for (int j = i; j <= shape.rank(); ++j)
      if (n.samples == product(0, i) && times_capped(n.groups, n.channels) == product(i, j) &&
          n.inner == product(j, shape.rank()))
        return true;
  return false;
}

DType type_of_statistics(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

/// The attributes, which must describe x; what stands from in[first] on are its weight and bias.
const NormAttrs& checked_attributes(const InferArgs& a, const Tensor& x, bool over_batch, size_t first,
                                    bool takes_bias) {
  const auto& n = a.attributes<NormAttrs>();
  check_floating(a.op, x);
  TD_CHECK(n.samples >= 0 && n.groups >= 0 && n.channels >= 0 && n.inner >= 0 && fits_view(n, x.shape()) &&
               (!over_batch || n.groups == 1),
           a.op, ": x must be (samples, groups · channels, inner)", over_batch ? " with one group" : "",
           "; got ", a.given.print(), " for x ", x.shape(), ".");
  TD_CHECK(n.eps >= 0, a.op, ": eps must be at least 0; got ", n.eps, ".");
  const size_t wanted = first + n.has_weight + (takes_bias && n.has_bias);
  TD_CHECK(a.in.size() == wanted, a.op, ": there must be ", wanted,
           " inputs, by has_weight and has_bias; got ", a.in.size(), ".");
  for (size_t i = first; i < wanted; ++i)
    TD_CHECK(a.in[i].shape() == Dims{n.groups * n.channels} && a.in[i].dtype() == type_of_statistics(x), a.op,
             ": weight and bias must have one ", type_of_statistics(x), " for each channel; got ",
             describe(a.in[i]), " for ", n.groups * n.channels, " channels of ", x.dtype(),
             ". reshape() or cast() it.");
  return n;
}

template <bool over_batch>
void infer_norm(InferArgs& a) {
  const Tensor& x = a.in[0];
  const Dims rows{checked_attributes(a, x, over_batch, 1, true).rows(over_batch)};
  a.add(x.shape(), x.dtype());
  a.add(rows, type_of_statistics(x));
  a.add(rows, type_of_statistics(x));
}

template <bool over_batch>
void infer_gradient(InferArgs& a) {  // in g, x, mean, variance and perhaps weight
  const Tensor& x = a.in[1];
  const auto& n = checked_attributes(a, x, over_batch, 4, false);
  check_like(a.op, "the gradient", a.in[0], x);
  for (const Tensor& t : a.in.subspan(2, 2))
    TD_CHECK(t.shape() == Dims{n.rows(over_batch)} && t.dtype() == type_of_statistics(x), a.op,
             ": mean and variance must be those that the forward op gave, ", type_of_statistics(x), " (",
             n.rows(over_batch), ",); got ", describe(t), ".");
  a.add(x.shape(), x.dtype());
  for (const bool has : {n.has_weight, n.has_bias})
    if (has) a.add({n.groups * n.channels}, type_of_statistics(x));
}

Tensors grad_norm(const OpDef& gradient, const GradArgs& a) {
  const auto& n = a.attributes.as<NormAttrs>();
  Tensors in{a.grad[0], a.in[0], a.out[1], a.out[2]};
  if (n.has_weight) in.push_back(a.in[1]);
  return apply(gradient, {in.begin(), in.size()}, a.attributes);
}

/// The gradient of the gradient, by public ops. With r = 1 / sqrt(var + eps), xhat = (x - mean) r, n elements a group and
/// P(v) = v - mean(v) - xhat mean(v xhat), the gradient op computes dx = r P(w g), dw = sum(g xhat) and db = sum(g); and
/// d xhat / dx is r P, dr / dx is -r² xhat / n.
template <bool over_batch>
Tensors second_norm(const GradArgs& a) {
  const auto& attrs = a.attributes.as<NormAttrs>();
  const Dims view{attrs.samples, attrs.groups, attrs.channels, attrs.inner};
  const Dims affine{1, attrs.groups, attrs.channels, 1};
  const Dims over = over_batch ? Dims{0, 3} : Dims{2, 3}, across{0, 3};
  const auto viewed = [&](const Tensor& t) { return reshape(t, view); };
  const Tensor g = viewed(a.in[0]), x = viewed(a.in[1]);
  const Tensor away = x - mean(x, over, true);
  const Tensor r = rsqrt(mean(away * away, over, true) + attrs.eps), xhat = away * r;
  const auto project = [&](const Tensor& v) {
    return v - mean(v, over, true) - xhat * mean(v * xhat, over, true);
  };
  const Tensor weight = attrs.has_weight ? reshape(a.in[4], affine) : Tensor();
  const auto weighted = [&](const Tensor& v) { return weight.defined() ? v * weight : v; };
  const auto plus = [](const Tensor& p, const Tensor& q) {
    return p.defined() ? q.defined() ? p + q : p : q;
  };

  size_t next = 1;
  const Tensor u = a.grad[0].defined() ? viewed(a.grad[0]) : Tensor();
  const Tensor dw = attrs.has_weight ? a.grad[next++] : Tensor(),
               db = attrs.has_bias ? a.grad[next] : Tensor();
  Tensor for_g, for_x, for_weight;
  if (u.defined()) {
    const Tensor wg = weighted(g), pu = project(u) * r;
    for_g = weighted(pu);
    if (weight.defined()) for_weight = sum(g * pu, across);
    const Tensor through_xhat = neg(u * mean(wg * xhat, over, true) + wg * mean(u * xhat, over, true)) * r;
    const Tensor through_r = mean(u * project(wg), over, true) * r * r;
    for_x = r * project(through_xhat) - xhat * through_r;
  }
  if (dw.defined()) {
    const Tensor v = reshape(dw, affine);
    for_g = plus(for_g, xhat * v);
    for_x = plus(for_x, r * project(g * v));
  }
  if (db.defined()) for_g = plus(for_g, expand(reshape(db, affine), view));
  const auto back = [](const Tensor& t, const Description& d) {
    return t.defined() ? cast(reshape(t, d.shape), d.dtype) : Tensor();
  };
  Tensors out{back(for_g, a.in_meta[0]), back(for_x, a.in_meta[1]), Tensor(), Tensor()};
  if (attrs.has_weight) out.push_back(back(for_weight, a.in_meta[4]));
  return out;
}

// ---- checks

void check_channels(const char* op, const Tensor& x) {
  check_floating(op, x);
  TD_CHECK(x.rank() >= 2, op, ": x must be (N, C, …); got ", x.shape(), ".");
}

/// An optional tensor of a known shape.
void check_shape(const char* op, const char* what, const Tensor& t, const Dims& shape) {
  TD_CHECK(!t.defined() || (t.shape() == shape && is_floating(t.dtype())), op, ": ", what,
           " must be floating and have shape ", shape, "; got ", describe(t), ".");
}

void check_eps(const char* op, double eps) {
  TD_CHECK(eps >= 0, op, ": eps must be at least 0; got ", eps, ".");
}

/// Checks that `shape` is the end of x's; gives how many elements that is.
Dim check_last_axes(const char* op, const Tensor& x, const Dims& shape) {
  check_floating(op, x);
  bool fits = shape.rank() >= 1 && shape.rank() <= x.rank();
  for (int i = 1; fits && i <= shape.rank(); ++i) fits = shape[shape.rank() - i] == x.shape()[x.rank() - i];
  TD_CHECK(fits, op, ": the normalised shape must be the last sizes of x; got ", shape, " and x ", x.shape(),
           ".");
  return size_of(shape);
}

/// Runs a norm op; weight and bias are flat and of any floating type.
Tensors run_norm(const OpDef& op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 NormAttrs attrs) {
  attrs.has_weight = weight.defined();
  attrs.has_bias = bias.defined();
  Tensors in{x};
  for (const Tensor* t : {&weight, &bias})
    if (t->defined()) in.push_back(cast(reshape(*t, {t->size()}), type_of_statistics(x)));
  return apply(op, {in.begin(), in.size()}, attrs);
}

/// (N, C, …) with its channels in `groups`.
NormAttrs channel_view(const Tensor& x, int64_t groups, double eps) {
  const Dim samples = x.shape()[0], channels = x.shape()[1];
  Dim inner = 1;
  for (int i = 2; i < x.rank(); ++i) inner *= x.shape()[i];
  return {samples, groups, channels / groups, inner, eps};
}

/// (C) beside x (N, C, …).
Tensor beside(const Tensor& t, const Tensor& x) {
  Dims shape = Dims::filled(x.rank() - 1, 1);
  shape[0] = t.size();
  return reshape(t, shape);
}

Tensor scaled(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor y = weight.defined() ? x * weight : x;
  return bias.defined() ? y + bias : y;
}

Tensor widened(const Tensor& x) { return bytes_of(x.dtype()) == 2 ? cast(x, DType::f32) : x; }

/// What the records of the norms share, and those of their gradients.
OpDef normalization(OpDef d) {
  d.saves_inputs = 0b11;
  d.saves_outputs = 0b110;
  return d;
}
OpDef norm_gradient(OpDef d) {
  d.saves_inputs = 0b10011;
  return d;
}

}  // namespace

OpDef& op_layer_norm() {
  static OpDef& op = define(
      normalization({.name = "layer_norm",
                     .about = "x less its mean, over its deviation, of the last axes",
                     .inputs = {"x", "weight?", "bias?"},
                     .outputs = {"y", "mean", "variance"},
                     .infer = infer_norm<false>,
                     .gradient = [](const GradArgs& a) { return grad_norm(op_layer_norm_gradient(), a); },
                     .precision = Precision::full}));
  return op;
}
OpDef& op_group_norm() {
  static OpDef& op = define(
      normalization({.name = "group_norm",
                     .about = "x less its mean, over its deviation, of groups of channels",
                     .inputs = {"x", "weight?", "bias?"},
                     .outputs = {"y", "mean", "variance"},
                     .infer = infer_norm<false>,
                     .gradient = [](const GradArgs& a) { return grad_norm(op_group_norm_gradient(), a); },
                     .precision = Precision::full}));
  return op;
}
OpDef& op_batch_norm() {
  static OpDef& op = define(normalization(
      {.name = "batch_norm",
       .about = "x less its mean, over its deviation, of all samples of a batch, channel by channel",
       .inputs = {"x", "weight?", "bias?"},
       .outputs = {"y", "mean", "variance"},
       .infer = infer_norm<true>,
       .gradient = [](const GradArgs& a) { return grad_norm(op_batch_norm_gradient(), a); }}));
  return op;
}
OpDef& op_layer_norm_gradient() {
  static OpDef& op = define(norm_gradient({.name = "layer_norm_gradient",
                                           .about = "the gradients of layer_norm",
                                           .function = "",
                                           .inputs = {"g", "x", "mean", "variance", "weight?"},
                                           .outputs = {"x_gradient", "weight_gradient", "bias_gradient"},
                                           .infer = infer_gradient<false>,
                                           .gradient = second_norm<false>}));
  return op;
}
OpDef& op_group_norm_gradient() {
  static OpDef& op = define(norm_gradient({.name = "group_norm_gradient",
                                           .about = "the gradients of group_norm",
                                           .function = "",
                                           .inputs = {"g", "x", "mean", "variance", "weight?"},
                                           .outputs = {"x_gradient", "weight_gradient", "bias_gradient"},
                                           .infer = infer_gradient<false>,
                                           .gradient = second_norm<false>}));
  return op;
}
OpDef& op_batch_norm_gradient() {
  static OpDef& op = define(norm_gradient({.name = "batch_norm_gradient",
                                           .about = "the gradients of batch_norm",
                                           .function = "",
                                           .inputs = {"g", "x", "mean", "variance", "weight?"},
                                           .outputs = {"x_gradient", "weight_gradient", "bias_gradient"},
                                           .infer = infer_gradient<true>,
                                           .gradient = second_norm<true>}));
  return op;
}

Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias, double eps) {
  const Dim n = check_last_axes("layer_norm", x, shape);
  check_shape("layer_norm", "the weight", weight, shape);
  check_shape("layer_norm", "the bias", bias, shape);
  check_eps("layer_norm", eps);
  Dim rows = 1;
  for (int i = 0; i < x.rank() - shape.rank(); ++i) rows *= x.shape()[i];
  return run_norm(op_layer_norm(), x, weight, bias, {rows, 1, n, 1, eps})[0];
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps) {
  check_channels("group_norm", x);
  const Dim channels = x.shape()[1];
  TD_CHECK(groups >= 1 && channels % groups == 0,
           "group_norm: the channels must be a multiple of groups; got x ", x.shape(), " and ", groups,
           " groups.");
  check_shape("group_norm", "the weight", weight, {channels});
  check_shape("group_norm", "the bias", bias, {channels});
  check_eps("group_norm", eps);
  return run_norm(op_group_norm(), x, weight, bias, channel_view(x, groups, eps))[0];
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_channels("instance_norm", x);
  const Dim channels = x.shape()[1];
  check_shape("instance_norm", "the weight", weight, {channels});
  check_shape("instance_norm", "the bias", bias, {channels});
  check_eps("instance_norm", eps);
  return run_norm(op_group_norm(), x, weight, bias, channel_view(x, std::max<Dim>(channels, 1), eps))[0];
}

namespace {

/// Moves a running statistic towards the batch's.
void move(const Tensor& running, const Tensor& batch, double momentum, const Tensor& moves = {}) {
  if (!running.defined()) return;
  const NoGrad off;
  const Tensor before = widened(running);
  const Tensor after = before * (1 - momentum) + reshape(batch.detach(), running.shape()) * momentum;
  assign(running, moves.defined() ? where(moves, after, before) : after);
}

void check_mask(const Tensor& mask, const Tensor& x) {
  bool fits = mask.dtype() == DType::boolean && mask.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i)
    fits = mask.size(i) == 1 || (i != 1 && mask.size(i) == x.size(i));
  TD_CHECK(fits,
           "batch_norm: the mask must be bool with the axes of x, of size 1 on that of the channels and of "
           "x's size or 1 on the others; got ",
           describe(mask), " and x ", x.shape(), ".");
}

/// In training, over the places of the mask.
Tensor masked_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  const Tensor& mask = options.mask;
  Dims others;      // all axes but that of the channels
  double each = 1;  // values of a channel for each element of the mask
  for (int i = 0; i < x.rank(); ++i) {
    if (i == 1) continue;
    others.push_back(i);
    if (mask.size(i) == 1) each *= static_cast<double>(x.size(i));
  }
  const Tensor wide = widened(x), values = sum(cast(mask, wide.dtype())) * each, count = maximum(values, 1.0);
  const Tensor mean = sum(where(mask, wide, 0.0), others, true) / count;
  const Tensor centred = where(mask, wide - mean, 0.0);
  const Tensor variance = sum(centred * centred, others, true) / count;
  const Tensor has_variance = greater(values, 1.0);
  move(running_mean, mean, options.momentum, has_variance);
  move(running_var, variance * (count / maximum(count - 1.0, 1.0)), options.momentum, has_variance);
  Tensor scale = rsqrt(variance + options.eps);
  if (weight.defined()) scale = scale * beside(widened(weight), x);
  const Tensor y = centred * scale;
  if (!bias.defined()) return cast(y, x.dtype());
  return cast(where(mask, y + beside(widened(bias), x), 0.0), x.dtype());
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  check_channels("batch_norm", x);
  const Dims channels{x.shape()[1]};
  check_shape("batch_norm", "the running mean", running_mean, channels);
  check_shape("batch_norm", "the running variance", running_var, channels);
  check_shape("batch_norm", "the weight", weight, channels);
  check_shape("batch_norm", "the bias", bias, channels);
  check_eps("batch_norm", options.eps);
  const bool is_masked = options.mask.defined();
  if (is_masked) check_mask(options.mask, x);
  if (!options.training) {
    TD_CHECK(
        running_mean.defined() && running_var.defined(),
        "batch_norm: evaluation needs running statistics; got none. Set training to use the batch's own.");
    // In the running statistics' own precision: one factor and one summand a channel.
    Tensor scale = rsqrt(widened(running_var) + options.eps);
    if (weight.defined()) scale = scale * widened(weight);
    Tensor shift = neg(widened(running_mean) * scale);
    if (bias.defined()) shift = shift + widened(bias);
    const Tensor y = cast(widened(x) * beside(scale, x) + beside(shift, x), x.dtype());
    return is_masked ? where(options.mask, y, 0.0) : y;
  }
  if (is_masked) return masked_batch_norm(x, running_mean, running_var, weight, bias, options);
  const NormAttrs attrs = channel_view(x, 1, options.eps);
  const double count = static_cast<double>(attrs.count(true));
  TD_CHECK(count != 1, "batch_norm: training needs more than one value for each channel; got x ", x.shape(),
           ". Take a larger batch, or evaluate.");
  const Tensors out = run_norm(op_batch_norm(), x, weight, bias, attrs);
  if (count > 1) {
    move(running_mean, out[1], options.momentum);
    move(running_var, out[2] * (count / (count - 1)), options.momentum);
  }
  return out[0];
}

Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight, double eps) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full,
        [&](const Tensor& x, const Tensor& weight) { return rms_norm(x, shape, weight, eps); }, x, weight);
  check_last_axes("rms_norm", x, shape);
  check_shape("rms_norm", "the weight", weight, shape);
  check_eps("rms_norm", eps);
  if (eps == 0) eps = spacing_at_1(x.dtype());
  Dims over;
  for (int i = x.rank() - shape.rank(); i < x.rank(); ++i) over.push_back(i);
  const Tensor wide = widened(x);
  const Tensor y = wide * rsqrt(mean(wide * wide, over, true) + eps);
  return cast(scaled(y, weight.defined() ? widened(weight) : weight, {}), x.dtype());
}

Tensor normalize(const Tensor& x, double p, int64_t axis, double eps) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return normalize(x, p, axis, eps); }, x);
  check_floating("normalize", x);
  check_eps("normalize", eps);
  const Tensor wide = widened(x);
  return cast(wide / maximum(norm(wide, p, {normal_axis("normalize", axis, x.rank())}, true), eps),
              x.dtype());
}

Tensor local_response_norm(const Tensor& x, int64_t size, double alpha, double beta, double k) {
  if (autocast_is_on())
    return as_one_op(
        Precision::full, [&](const Tensor& x) { return local_response_norm(x, size, alpha, beta, k); }, x);
  check_channels("local_response_norm", x);
  TD_CHECK(size >= 1, "local_response_norm: size must be at least 1; got ", size, ".");
  const Dim channels = x.shape()[1];
  const Tensor wide = widened(x), square = wide * wide;
  // Channel c looks at c - size / 2 … c + (size - 1) / 2; what lies beyond the ends counts as zero.
  Tensor total = square;
  for (int64_t by = -std::min(size / 2, channels); by <= std::min((size - 1) / 2, channels); ++by) {
    if (by == 0 || std::abs(by) >= channels) continue;
    const Tensor part = by > 0 ? slice(square, 1, by, channels) : slice(square, 1, 0, channels + by);
    total = total + slice_into_zeros(part, 1, by > 0 ? 0 : -by, 1, channels);
  }
  return cast(wide / pow(total * (alpha / static_cast<double>(size)) + k, beta), x.dtype());
}

}  // namespace tandem
