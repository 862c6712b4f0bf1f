// The incomplete gamma and beta functions, from which the distributions are made. Both tails keep their relative
// precision: nothing small is found by subtracting from one.
#pragma once

namespace tandem::lab::stats {

/// The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x); a > 0, x >= 0.
double gamma_lower(double a, double x);
double gamma_upper(double a, double x);

/// The regularised incomplete beta function I_x(a, b); a, b > 0, 0 <= x <= 1. `y` is 1 - x, which the caller often
/// knows more precisely than the subtraction gives it. The upper tail is beta_lower(b, a, y, x).
double beta_lower(double a, double b, double x, double y);

}  // namespace tandem::lab::stats
