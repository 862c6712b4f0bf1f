// Distributions, made of public operations.
// Why they are in nn: like a loss, a distribution is written with public operations, has no weights of its own and is used
// with a model. Its parameters are the model's results, and -log_prob is a loss. `ops` defines operations only.
#include "tandem/nn/distributions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "tandem/core/function.h"
#include "tandem/core/tape.h"
#include "tandem/core/trace.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/define.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem::distributions {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_parameter(const char* what, const char* name, const Tensor& x) {
  TD_CHECK(x.defined() && is_floating(x.dtype()), what, ": ", name, " must be a floating tensor; got ",
           describe(x), ". full({}, 0.5) makes one of a number.");
}

/// Two parameters, in one shape from now on.
void take_pair(const char* what, const char* a_name, const char* b_name, const Tensor& a, const Tensor& b,
               Tensor& a_out, Tensor& b_out) {
  check_parameter(what, a_name, a);
  check_parameter(what, b_name, b);
  TD_CHECK(a.dtype() == b.dtype() && a.device() == b.device(), what, ": ", a_name, " and ", b_name,
           " must have one type and device; got ", describe(a), " and ", describe(b), ".");
  const Dims shape = broadcast_shapes(what, a.shape(), b.shape());
  a_out = expand(a, shape);
  b_out = expand(b, shape);
}

/// Whether values can be looked at without making anybody wait, and not only while tracing.
bool can_look_at(const Tensor& x) { return !current_tracer() && x.device().is_cpu() && x.size() > 0; }

/// Refuses a parameter with values that do not keep the rule.
template <class Rule>
void check_values(const char* what, const char* name, const char* rule, const Tensor& x, const Rule& keeps) {
  if (!can_look_at(x)) return;
  const NoGrad off;
  const Tensor values = x.detach();
  if (all(keeps(values)).template item<bool>()) return;
  throw Error(str(what, ": ", name, " must be ", rule, "; got values from ",
                  min(values).template item<double>(), " to ", max(values).template item<double>(), "."));
}
void check_above_0(const char* what, const char* name, const Tensor& x) {
  check_values(what, name, "above 0", x, [](const Tensor& v) { return greater(v, 0); });
}

/// The shape of samples: `shape`, then that of the parameters.
Dims samples_shape(const char* what, const Dims& shape, const Dims& parameters) {
  TD_CHECK(shape.rank() + parameters.rank() <= kMaxRank, what, " sample: samples must have at most ",
           kMaxRank, " axes; got the shape ", shape, " of samples of ", parameters, ".");
  Dims out = shape;
  for (const Dim size : parameters) out.push_back(size);
  return out;
}

/// A value for log_prob: floating, or a count or class that was drawn.
Tensor valued(const char* what, const Tensor& value, const Tensor& parameter) {
  TD_CHECK(value.defined() && value.device() == parameter.device(), what,
           " log_prob: the value must be a tensor on the device of the parameters, ", parameter.device(),
           "; got ", describe(value), ".");
  return value.dtype() == parameter.dtype() ? value : cast(value, parameter.dtype());
}

/// Probabilities keep away from 0 and 1 before their logarithms are taken, as PyTorch's.
Tensor kept_inside(const Tensor& probabilities) {
  const double epsilon = spacing_at_1(probabilities.dtype());
  return clamp(probabilities, epsilon, 1 - epsilon);
}

/// x · log(y), which is 0 where x is, whatever y.
Tensor times_log(const Tensor& x, const Tensor& y) {
  const Tensor none = equal(x, 0.0);
  return where(none, 0.0, x * log(where(none, 1.0, y)));
}

/// log of the function Beta(a, b).
Tensor log_beta(const Tensor& a, const Tensor& b) { return lgamma(a) + lgamma(b) - lgamma(a + b); }

/// The type that the samplers by rejection and inversion compute in.
DType wide(DType dtype) { return promote(dtype, DType::f32); }

/// Gamma samples of rate 1 (Marsaglia and Tsang 2000). For a below 1 by those of a + 1 and a power of a uniform number.
Tensor standard_gamma(const Tensor& concentration, const Dims& shape) {
  constexpr int kRounds = 16;  // each accepts with a chance above 0.95
  const DType dtype = wide(concentration.dtype());
  const Device device = concentration.device();
  const Tensor a = expand(cast(concentration, dtype), shape);
  const Tensor is_small = less(a, 1.0);
  const Tensor d = where(is_small, a + 1.0, a) - 1.0 / 3.0, c = 1.0 / sqrt(d * 9.0);
  Tensor out = d, found = zeros(shape, DType::boolean, device);
  for (int round = 0; round < kRounds; ++round) {
    const Tensor x = normal(shape, 0, 1, dtype, device), u = uniform(shape, 0, 1, dtype, device);
    const Tensor root = x * c + 1.0, v = root * root * root;
    const Tensor is_positive = greater(root, 0.0), safe = where(is_positive, v, 1.0);
    const Tensor limit = x * x * 0.5 + d - d * safe + d * log(safe);
    const Tensor accepted = logical_and(is_positive, less(log1p(-u), limit));
    out = where(logical_and(accepted, logical_not(found)), d * v, out);
    found = logical_or(found, accepted);
  }
  const Tensor boost = exp(log1p(-uniform(shape, 0, 1, dtype, device)) / a);
  return maximum(where(is_small, out * boost, out), least_normal(dtype));
}
/// The same with a gradient: the sample moves with the concentration as if its quantile stayed.
Tensor moving_gamma(const Tensor& concentration, const Dims& shape) {
  const Tensor a = expand(cast(concentration, wide(concentration.dtype())), shape);
  static const CustomFunction& sampled = *new CustomFunction(
      "Gamma rsample",
      [](FunctionContext& context, const std::vector<Tensor>& in) {
        const Tensor x = standard_gamma(in[0], in[0].shape());
        context.save(in[0]);
        context.save(x);
        return std::vector<Tensor>{x};
      },
      [](const FunctionContext& context, const std::vector<Tensor>& grads) {
        TD_CHECK(!grad_enabled(),
                 "Gamma rsample: gradients must be of first order; got create_graph. Leave that out, or use "
                 "log_prob of sample().");
        return std::vector<Tensor>{grads[0] * gamma_slope(context.saved(0), context.saved(1))};
      });
  return sampled({a})[0];
}

}  // namespace

// ---- Normal

Normal::Normal(const Tensor& mean, const Tensor& deviation) {
  take_pair("Normal", "mean", "deviation", mean, deviation, mean_, deviation_);
  check_above_0("Normal", "deviation", deviation);
}
Tensor Normal::rsample(const Dims& shape) const {
  const Dims whole = samples_shape("Normal", shape, mean_.shape());
  return mean_ + deviation_ * normal(whole, 0, 1, mean_.dtype(), mean_.device());
}
Tensor Normal::sample(const Dims& shape) const {
  const NoGrad off;
  return rsample(shape);
}
Tensor Normal::log_prob(const Tensor& value) const {
  const Tensor distance = (valued("Normal", value, mean_) - mean_) / deviation_;
  return distance * distance * -0.5 - log(deviation_) - 0.5 * std::log(2 * std::numbers::pi);
}
Tensor Normal::entropy() const { return log(deviation_) + (0.5 + 0.5 * std::log(2 * std::numbers::pi)); }
Tensor Normal::variance() const { return deviation_ * deviation_; }

Tensor kl(const Normal& p, const Normal& q) {
  const Tensor ratio = p.deviation() / q.deviation(), squared = ratio * ratio;
  const Tensor distance = (p.mean() - q.mean()) / q.deviation();
  return (squared + distance * distance - 1.0 - log(squared)) * 0.5;
}

// ---- Uniform

Uniform::Uniform(const Tensor& low, const Tensor& high) {
  take_pair("Uniform", "low", "high", low, high, low_, high_);
  check_values("Uniform", "high - low", "above 0", high_ - low_,
               [](const Tensor& v) { return greater(v, 0); });
}
Tensor Uniform::rsample(const Dims& shape) const {
  const Dims whole = samples_shape("Uniform", shape, low_.shape());
  return low_ + (high_ - low_) * uniform(whole, 0, 1, low_.dtype(), low_.device());
}
Tensor Uniform::sample(const Dims& shape) const {
  const NoGrad off;
  return rsample(shape);
}
Tensor Uniform::log_prob(const Tensor& value) const {
  const Tensor x = valued("Uniform", value, low_);
  return where(logical_and(greater_equal(x, low_), less(x, high_)), -log(high_ - low_), -kInfinity);
}
Tensor Uniform::entropy() const { return log(high_ - low_); }
Tensor Uniform::mean() const { return (low_ + high_) * 0.5; }
Tensor Uniform::variance() const {
  const Tensor width = high_ - low_;
  return width * width / 12.0;
}

Tensor kl(const Uniform& p, const Uniform& q) {
  const Tensor leaves = logical_or(greater(q.low(), p.low()), less(q.high(), p.high()));
  return where(leaves, kInfinity, log((q.high() - q.low()) / (p.high() - p.low())));
}

// ---- Exponential

Exponential::Exponential(const Tensor& rate) : rate_(rate) {
  check_parameter("Exponential", "rate", rate);
  check_above_0("Exponential", "rate", rate);
}
Tensor Exponential::rsample(const Dims& shape) const {
  const Dims whole = samples_shape("Exponential", shape, rate_.shape());
  return exponential(whole, 1, rate_.dtype(), rate_.device()) / rate_;
}
Tensor Exponential::sample(const Dims& shape) const {
  const NoGrad off;
  return rsample(shape);
}
Tensor Exponential::log_prob(const Tensor& value) const {
  const Tensor x = valued("Exponential", value, rate_);
  return where(less(x, 0.0), -kInfinity, log(rate_) - rate_ * x);
}
Tensor Exponential::entropy() const { return 1.0 - log(rate_); }
Tensor Exponential::mean() const { return 1.0 / rate_; }
Tensor Exponential::variance() const { return 1.0 / (rate_ * rate_); }

Tensor kl(const Exponential& p, const Exponential& q) {
  const Tensor ratio = q.rate() / p.rate();
  return ratio - log(ratio) - 1.0;
}

// ---- Bernoulli

Bernoulli::Bernoulli(Tensor probabilities, Tensor logits)
    : probabilities_(std::move(probabilities)), logits_(std::move(logits)) {}
Bernoulli::Bernoulli(const Tensor& probabilities) {
  check_parameter("Bernoulli", "probabilities", probabilities);
  check_values("Bernoulli", "probabilities", "from 0 to 1", probabilities,
               [](const Tensor& v) { return logical_and(greater_equal(v, 0.0), less_equal(v, 1.0)); });
  probabilities_ = probabilities;
  const Tensor inside = kept_inside(probabilities);
  logits_ = log(inside) - log1p(-inside);
}
Bernoulli Bernoulli::from_logits(const Tensor& logits) {
  check_parameter("Bernoulli", "logits", logits);
  return {sigmoid(logits), logits};
}
Tensor Bernoulli::sample(const Dims& shape) const {
  const NoGrad off;
  const DType dtype = wide(logits_.dtype());
  const Dims whole = samples_shape("Bernoulli", shape, logits_.shape());
  return cast(less(uniform(whole, 0, 1, dtype, logits_.device()), cast(probabilities_, dtype)),
              logits_.dtype());
}
Tensor Bernoulli::log_prob(const Tensor& value) const {
  const Tensor x = valued("Bernoulli", value, logits_);
  return logits_ * x - relu(logits_) - log1p(exp(-abs(logits_)));
}
Tensor Bernoulli::entropy() const { return -log_prob(probabilities_); }
Tensor Bernoulli::variance() const { return probabilities_ * (1.0 - probabilities_); }

Tensor kl(const Bernoulli& p, const Bernoulli& q) {
  const auto part = [](const Tensor& share, const Tensor& other, const Tensor& logits,
                       const Tensor& other_logits) {
    const Tensor term = share * (softplus(-other_logits) - softplus(-logits));
    return where(equal(share, 0.0), 0.0, where(equal(other, 0.0), kInfinity, term));
  };
  return part(p.probabilities(), q.probabilities(), p.logits(), q.logits()) +
         part(1.0 - p.probabilities(), 1.0 - q.probabilities(), -p.logits(), -q.logits());
}

// ---- Categorical

Categorical::Categorical(Tensor probabilities, Tensor logits)
    : probabilities_(std::move(probabilities)), logits_(std::move(logits)) {}
Categorical::Categorical(const Tensor& probabilities) {
  check_parameter("Categorical", "probabilities", probabilities);
  TD_CHECK(probabilities.rank() >= 1 && probabilities.shape().back() >= 1,
           "Categorical: probabilities must have the classes on the last axis, at least one; got ",
           describe(probabilities), ".");
  check_values("Categorical", "probabilities", "at least 0 and finite", probabilities,
               [](const Tensor& v) { return logical_and(greater_equal(v, 0.0), less(v, kInfinity)); });
  const Tensor total = sum(probabilities, {-1}, true);
  check_values("Categorical", "the sum of the probabilities", "above 0", total,
               [](const Tensor& v) { return greater(v, 0.0); });
  probabilities_ = probabilities / total;
  logits_ = log(kept_inside(probabilities_));
}
Categorical Categorical::from_logits(const Tensor& logits) {
  check_parameter("Categorical", "logits", logits);
  TD_CHECK(logits.rank() >= 1 && logits.shape().back() >= 1,
           "Categorical: logits must have the classes on the last axis, at least one; got ", describe(logits),
           ".");
  const Tensor normed = log_softmax(logits, -1);
  return {exp(normed), normed};
}
Tensor Categorical::sample(const Dims& shape) const {
  const NoGrad off;
  Dims batch = logits_.shape();
  batch.erase(batch.rank() - 1);
  const Dims whole = samples_shape("Categorical", shape, batch);
  const int64_t count = size_of(shape);
  if (size_of(whole) == 0) return zeros(whole, DType::i64, logits_.device());
  const Tensor drawn = multinomial(reshape(probabilities_, {-1, logits_.shape().back()}), count, true);
  return reshape(transpose(drawn, 0, 1), whole);
}
Tensor Categorical::log_prob(const Tensor& value) const {
  TD_CHECK(value.defined() && (value.dtype() == DType::i64 || value.dtype() == DType::i32),
           "Categorical log_prob: the value must be i64 or i32; got ", describe(value), ".");
  const int64_t classes = logits_.shape().back();
  Dims batch = logits_.shape();
  batch.erase(batch.rank() - 1);
  Dims shape = broadcast_shapes("Categorical log_prob", value.shape(), batch);
  const Tensor places = unsqueeze(expand(value, shape), -1);
  shape.push_back(classes);
  return squeeze(gather(expand(logits_, shape), -1, places), -1);
}
Tensor Categorical::entropy() const {
  // Where a probability is 0, its logarithm must not be infinite.
  return -sum(maximum(logits_, -largest_of(logits_.dtype())) * probabilities_, {-1});
}

Tensor kl(const Categorical& p, const Categorical& q) {
  TD_CHECK(p.logits().shape().back() == q.logits().shape().back(),
           "kl: both must have the same number of classes; got ", p.logits().shape().back(), " and ",
           q.logits().shape().back(), ".");
  const Tensor terms = p.probabilities() * (p.logits() - q.logits());
  return sum(
      where(equal(p.probabilities(), 0.0), 0.0, where(equal(q.probabilities(), 0.0), kInfinity, terms)),
      {-1});
}

// ---- Gamma, Beta, Poisson

Gamma::Gamma(const Tensor& concentration, const Tensor& rate) {
  take_pair("Gamma", "concentration", "rate", concentration, rate, concentration_, rate_);
  check_above_0("Gamma", "concentration", concentration);
  check_above_0("Gamma", "rate", rate);
}
Tensor Gamma::rsample(const Dims& shape) const {
  const Dims whole = samples_shape("Gamma", shape, rate_.shape());
  return cast(moving_gamma(concentration_, whole) / cast(rate_, wide(rate_.dtype())), rate_.dtype());
}
Tensor Gamma::sample(const Dims& shape) const {
  const NoGrad off;
  return rsample(shape);
}
Tensor Gamma::log_prob(const Tensor& value) const {
  const Tensor x = valued("Gamma", value, rate_);
  const Tensor density =
      concentration_ * log(rate_) + times_log(concentration_ - 1.0, x) - rate_ * x - lgamma(concentration_);
  return where(less(x, 0.0), -kInfinity, density);
}
Tensor Gamma::entropy() const {
  return concentration_ - log(rate_) + lgamma(concentration_) +
         (1.0 - concentration_) * digamma(concentration_);
}
Tensor kl(const Gamma& p, const Gamma& q) {
  const Tensor &a = p.concentration(), &b = q.concentration();
  return b * log(p.rate() / q.rate()) + lgamma(b) - lgamma(a) + (a - b) * digamma(a) +
         (q.rate() - p.rate()) * (a / p.rate());
}
Tensor Gamma::mean() const { return concentration_ / rate_; }
Tensor Gamma::variance() const { return concentration_ / (rate_ * rate_); }

Beta::Beta(const Tensor& a, const Tensor& b) {
  take_pair("Beta", "a", "b", a, b, a_, b_);
  check_above_0("Beta", "a", a);
  check_above_0("Beta", "b", b);
}
Tensor Beta::rsample(const Dims& shape) const {
  const Dims whole = samples_shape("Beta", shape, a_.shape());
  // In f64: of small concentrations both are often too small for f32, and their quotient would be that of two floors.
  const Tensor x = moving_gamma(cast(a_, DType::f64), whole), y = moving_gamma(cast(b_, DType::f64), whole);
  return clamp(cast(x / (x + y), a_.dtype()), least_normal(a_.dtype()), 1 - spacing_at_1(a_.dtype()) / 2);
}
Tensor Beta::sample(const Dims& shape) const {
  const NoGrad off;
  return rsample(shape);
}
Tensor Beta::log_prob(const Tensor& value) const {
  const Tensor x = valued("Beta", value, a_);
  const Tensor density = times_log(a_ - 1.0, x) + times_log(b_ - 1.0, 1.0 - x) - log_beta(a_, b_);
  return where(logical_or(less(x, 0.0), greater(x, 1.0)), -kInfinity, density);
}
Tensor Beta::entropy() const {
  return log_beta(a_, b_) - (a_ - 1.0) * digamma(a_) - (b_ - 1.0) * digamma(b_) +
         (a_ + b_ - 2.0) * digamma(a_ + b_);
}
Tensor kl(const Beta& p, const Beta& q) {
  return log_beta(q.a(), q.b()) - log_beta(p.a(), p.b()) + (p.a() - q.a()) * digamma(p.a()) +
         (p.b() - q.b()) * digamma(p.b()) + (q.a() + q.b() - p.a() - p.b()) * digamma(p.a() + p.b());
}
Tensor Beta::mean() const { return a_ / (a_ + b_); }
Tensor Beta::variance() const {
  const Tensor total = a_ + b_;
  return a_ * b_ / (total * total * (total + 1.0));
}

Poisson::Poisson(const Tensor& rate, const PoissonOptions& options)
    : rate_(rate), max_rate_(options.max_rate) {
  check_parameter("Poisson", "rate", rate);
  TD_CHECK(max_rate_ > 0 && max_rate_ <= 700, "Poisson: max_rate must be above 0 and at most 700; got ",
           max_rate_, ". Add samples of smaller rates for a larger one.");
  check_values("Poisson", "rate", str("from 0 to the max_rate of ", max_rate_).c_str(), rate,
               [&](const Tensor& v) { return logical_and(greater_equal(v, 0.0), less_equal(v, max_rate_)); });
}
Tensor Poisson::sample(const Dims& shape) const {
  const NoGrad off;
  const Dims whole = samples_shape("Poisson", shape, rate_.shape());
  // Beyond twelve deviations (and twenty counts, for small rates) lies less than 53 bits can show.
  const auto most = static_cast<int64_t>(std::ceil(max_rate_ + 12 * std::sqrt(max_rate_) + 20));
  const Tensor rate = cast(rate_, DType::f64), u = uniform(whole, 0, 1, DType::f64, rate_.device());
  Tensor chance = exp(-rate), below = chance, count = zeros(whole, DType::f64, rate_.device());
  for (int64_t k = 1; k <= most; ++k) {
    count = count + cast(greater_equal(u, below), DType::f64);
    chance = chance * rate / static_cast<double>(k);
    below = below + chance;
  }
  return cast(count, rate_.dtype());
}

Tensor Poisson::log_prob(const Tensor& value) const {
  const Tensor count = valued("Poisson", value, rate_);
  const Tensor is_count = logical_and(greater_equal(count, 0.0), equal(count, floor(count)));
  const Tensor safe = where(is_count, count, 0.0);
  return where(is_count, times_log(safe, rate_) - rate_ - lgamma(safe + 1.0), -kInfinity);
}
Tensor kl(const Poisson& p, const Poisson& q) {
  return times_log(p.rate(), p.rate() / q.rate()) - (p.rate() - q.rate());
}

}  // namespace tandem::distributions
