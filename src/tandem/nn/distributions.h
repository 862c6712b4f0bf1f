// Probability distributions over tensors of parameters, which broadcast: samples, densities, entropies, divergences, with the
// formulas of torch.distributions.
//   distributions::Normal policy(net(x), deviation);
//   const Tensor action = policy.sample();
//   const Tensor loss = -mean(policy.log_prob(action) * reward);
// sample() has no gradient. rsample(), where a distribution has it, is a function of the parameters and of random numbers that
// do not depend on them, so that gradients reach the parameters (those of Gamma and Beta by how a sample moves while its
// quantile stays: implicit reparameterisation). Both put `shape` before the shape of the parameters. All
// is made of operations: it works inside compile() with the same bits, and how many random numbers are taken depends on
// shapes alone, never on values. Values of parameters are checked where that makes nobody wait: eagerly, on the CPU.
#pragma once

#include "tandem/core/tensor.h"

namespace tandem::distributions {

/// Density exp(-(x - mean)² / (2 deviation²)) / (deviation √(2π)); deviation above 0.
class Normal {
 public:
  Normal(const Tensor& mean, const Tensor& deviation);
  Tensor sample(const Dims& shape = {}) const;
  Tensor rsample(const Dims& shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  const Tensor& mean() const { return mean_; }
  const Tensor& deviation() const { return deviation_; }
  Tensor variance() const;

 private:
  Tensor mean_, deviation_;
};

/// Even over low <= x < high.
class Uniform {
 public:
  Uniform(const Tensor& low, const Tensor& high);
  Tensor sample(const Dims& shape = {}) const;
  Tensor rsample(const Dims& shape = {}) const;
  Tensor log_prob(const Tensor& value) const;  ///< -infinity outside
  Tensor entropy() const;
  const Tensor& low() const { return low_; }
  const Tensor& high() const { return high_; }
  Tensor mean() const;
  Tensor variance() const;

 private:
  Tensor low_, high_;
};

/// Density rate · exp(-rate · x) from 0 on; rate above 0.
class Exponential {
 public:
  explicit Exponential(const Tensor& rate);
  Tensor sample(const Dims& shape = {}) const;
  Tensor rsample(const Dims& shape = {}) const;
  Tensor log_prob(const Tensor& value) const;  ///< -infinity below 0
  Tensor entropy() const;
  const Tensor& rate() const { return rate_; }
  Tensor mean() const;
  Tensor variance() const;

 private:
  Tensor rate_;
};

/// 1 with a probability, else 0, in the type of the parameter. The probability of a sample is exact to 2^-24, in f64 to
/// 2^-53.
class Bernoulli {
 public:
  explicit Bernoulli(const Tensor& probabilities);
  /// The probability is sigmoid(logits).
  static Bernoulli from_logits(const Tensor& logits);
  Tensor sample(const Dims& shape = {}) const;
  Tensor log_prob(const Tensor& value) const;  ///< of 0 or 1
  Tensor entropy() const;
  const Tensor& probabilities() const { return probabilities_; }
  const Tensor& logits() const { return logits_; }
  Tensor mean() const { return probabilities_; }
  Tensor variance() const;

 private:
  Bernoulli(Tensor probabilities, Tensor logits);
  Tensor probabilities_, logits_;
};

/// One of K classes: parameters (…, K), samples (…) of i64.
class Categorical {
 public:
  /// Of at least 0 each; they need not add up to 1.
  explicit Categorical(const Tensor& probabilities);
  /// The probabilities are softmax(logits) along the last axis.
  static Categorical from_logits(const Tensor& logits);
  Tensor sample(const Dims& shape = {}) const;
  Tensor log_prob(
      const Tensor& value) const;  ///< value i64 or i32, broadcast with the shape of the parameters
  Tensor entropy() const;
  const Tensor& probabilities() const { return probabilities_; }
  const Tensor& logits() const { return logits_; }  ///< logarithms of the probabilities

 private:
  Categorical(Tensor probabilities, Tensor logits);
  Tensor probabilities_, logits_;
};

/// Density rate^a x^(a-1) exp(-rate · x) / Γ(a), a the concentration; both above 0. Samples by Marsaglia and Tsang's
/// method: 16 rounds for every element, of which one accepts but with a chance below 1e-20. Computed in f32 or f64.
class Gamma {
 public:
  Gamma(const Tensor& concentration, const Tensor& rate);
  Tensor sample(const Dims& shape = {}) const;
  Tensor rsample(const Dims& shape = {}) const;  ///< gradients of first order
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  const Tensor& concentration() const { return concentration_; }
  const Tensor& rate() const { return rate_; }
  Tensor mean() const;
  Tensor variance() const;

 private:
  Tensor concentration_, rate_;
};

/// Over 0 < x < 1, from two gammas; a and b above 0.
class Beta {
 public:
  Beta(const Tensor& a, const Tensor& b);
  Tensor sample(const Dims& shape = {}) const;
  Tensor rsample(const Dims& shape = {}) const;  ///< gradients of first order
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  const Tensor& a() const { return a_; }
  const Tensor& b() const { return b_; }
  Tensor mean() const;
  Tensor variance() const;

 private:
  Tensor a_, b_;
};

struct PoissonOptions {
  /// Rates up to this are sampled exactly, to 53 bits; up to 700. A sample costs as many steps as this and twelve times its
  /// root.
  double max_rate = 64;
};
/// Counts with a mean, by inverting the distribution function in f64. Samples have the type of the rate, which is at
/// least 0.
class Poisson {
 public:
  explicit Poisson(const Tensor& rate, const PoissonOptions& options = {});
  Tensor sample(const Dims& shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  const Tensor& rate() const { return rate_; }
  Tensor mean() const { return rate_; }
  Tensor variance() const { return rate_; }

 private:
  Tensor rate_;
  double max_rate_;
};

/// The divergence of Kullback and Leibler, Σ p (log p - log q), in the broadcast shape of the parameters. Infinite where p
/// has what q has not.
Tensor kl(const Normal& p, const Normal& q);
Tensor kl(const Uniform& p, const Uniform& q);
Tensor kl(const Exponential& p, const Exponential& q);
Tensor kl(const Bernoulli& p, const Bernoulli& q);
Tensor kl(const Categorical& p, const Categorical& q);
Tensor kl(const Gamma& p, const Gamma& q);
Tensor kl(const Beta& p, const Beta& q);
Tensor kl(const Poisson& p, const Poisson& q);

}  // namespace tandem::distributions
