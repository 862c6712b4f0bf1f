#include "tandem/ops/dropout.h"

#include <cmath>

#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"

namespace tandem {

namespace {

/// Masks whole channels: what stands before the last `axes` axes.
Tensor drop_channels(const char* op, const Tensor& x, double p, int axes) {
  TD_CHECK(p >= 0 && p < 1, op, ": the probability must be at least 0 and below 1; got ", p, ".");
  TD_CHECK(x.defined() && (x.rank() == axes + 1 || x.rank() == axes + 2), op, ": x must have ", axes + 2,
           " or ", axes + 1, " axes (batch, channels, places); got ",
           x.defined() ? str("shape ", x.shape()) : std::string("an undefined handle"), ".");
  if (p == 0) return x;
  Dims shape = x.shape();
  for (int i = 1; i <= axes; ++i) shape[shape.rank() - i] = 1;
  return x * (bernoulli(shape, 1 - p, x.dtype(), x.device()) * (1 / (1 - p)));
}

}  // namespace

Tensor dropout1d(const Tensor& x, double p) { return drop_channels("dropout1d", x, p, 1); }
Tensor dropout2d(const Tensor& x, double p) { return drop_channels("dropout2d", x, p, 2); }
Tensor dropout3d(const Tensor& x, double p) { return drop_channels("dropout3d", x, p, 3); }

Tensor alpha_dropout(const Tensor& x, double p) {
  TD_CHECK(p >= 0 && p < 1, "alpha_dropout: the probability must be at least 0 and below 1; got ", p, ".");
  if (p == 0) return x;
  const double low = -1.7580993408473766;  // SELU at minus infinity
  const double scale = 1 / std::sqrt((low * low * p + 1) * (1 - p));
  const Tensor kept = bernoulli(x.shape(), 1 - p, x.dtype(), x.device());
  return (x * kept + (1.0 - kept) * low) * scale + -scale * low * p;
}

Tensor dropout(const Tensor& x, double p) {
  TD_CHECK(p >= 0 && p < 1, "dropout: the probability must be at least 0 and below 1; got ", p, ".");
  if (p == 0) return x;
  return x * (bernoulli(x.shape(), 1 - p, x.dtype(), x.device()) * (1 / (1 - p)));
}

}  // namespace tandem
