// Bisection over the floating-point numbers themselves: at most 64 halvings give the exact neighbouring pair, however
// small or large the answer is.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::lab::stats {

/// The place of a finite number among all of them, in order; -0 and 0 share theirs.
inline int64_t ordinal(double value) {
  const auto bits = std::bit_cast<int64_t>(value);
  return bits >= 0 ? bits : INT64_MIN - bits;
}
inline double from_ordinal(int64_t place) {
  return std::bit_cast<double>(place >= 0 ? place : INT64_MIN - place);
}

/// The smallest number in [low, high] for which `holds` is true; it must be false below some number and true from there
/// on. Returns `high` where it holds nowhere.
template <class Predicate>
double first_where(double low, double high, Predicate holds) {
  int64_t from = ordinal(low), to = ordinal(high);
  while (from < to) {
    // The sum of both may not fit: halve the distance, which fits as an unsigned number.
    const auto half = static_cast<int64_t>((static_cast<uint64_t>(to) - static_cast<uint64_t>(from)) / 2);
    const int64_t middle = from + half;
    if (holds(from_ordinal(middle)))
      to = middle;
    else
      from = middle + 1;
  }
  return from_ordinal(from);
}

}  // namespace tandem::lab::stats
