// Dims: up to eight sizes, strides or axes, held inline. A tensor's shape is a Dims.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <span>
#include <type_traits>

#include "tandem/core/standard.h"

namespace tandem {

inline constexpr int kMaxRank = 8;

/// One size. An alias today; the place where symbolic sizes will enter.
using Dim = int64_t;

namespace detail {
/// Of numbers: neither bool nor a kind of character, so that no text is taken for a shape.
template <class N>
concept Integer = std::is_integral_v<N> && !std::is_same_v<N, bool> && !std::is_same_v<N, char> &&
                  !std::is_same_v<N, wchar_t> && !std::is_same_v<N, char8_t> &&
                  !std::is_same_v<N, char16_t> && !std::is_same_v<N, char32_t>;
template <class R>
concept Integers = requires(const R& values) {
  requires Integer<std::remove_cvref_t<decltype(*std::begin(values))>>;
  std::end(values);
};
}  // namespace detail

class Dims {
 public:
  constexpr Dims() = default;
  /// Numbers of any integer types: {2, n}. Where one is meant, it needs no braces: sum(x, 0).
  template <detail::Integer... N>
  requires(sizeof...(N) > 0) Dims(N... values) : Dims(Listed{}, {as_dim(values)...}) {}
  /// Those of any container.
  template <detail::Integers R>
  requires(!std::is_same_v<R, Dims>) Dims(const R& values) {
    for (const auto value : values) push_back(as_dim(value));
  }
  explicit Dims(std::span<const Dim> values);
  static Dims filled(int rank, Dim value);

  int rank() const { return rank_; }
  Dim operator[](int i) const { return values_[i]; }
  Dim& operator[](int i) { return values_[i]; }
  Dim back() const { return values_[rank_ - 1]; }
  const Dim* begin() const { return values_; }
  const Dim* end() const { return values_ + rank_; }
  const Dim* data() const { return values_; }
  void push_back(Dim value);
  void erase(int i);
  void insert(int i, Dim value);

  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  struct Listed {};
  Dims(Listed, std::initializer_list<Dim> values)
      : Dims(std::span<const Dim>(values.begin(), values.size())) {}
  template <detail::Integer N>
  static Dim as_dim(N value) {
    if constexpr (std::is_unsigned_v<N> && sizeof(N) == sizeof(Dim))
      if (value > static_cast<N>(INT64_MAX)) [[unlikely]]
        refuse(value);
    return static_cast<Dim>(value);
  }
  [[noreturn]] static void refuse(uint64_t value);

  Dim values_[kMaxRank] = {};
  int rank_ = 0;
};

/// Prints as "(2, 3)".
std::ostream& operator<<(std::ostream& out, const Dims& dims);

// Sizes that come from a user may be any number. So that no arithmetic on them wraps: every tensor's sizes, counting 0
// as 1, multiply to less than 2^60 (any product of them, and their bytes, then fit 63 bits), and what is computed from
// other numbers goes through plus_capped and times_capped, whose largest result no shape accepts.

/// The number of elements of a shape (1 for rank 0). Throws Error for a negative size, and where the sizes multiply to
/// 2^60 or more.
Dim size_of(const Dims& shape);

/// Row-major strides, in elements. Throws Error as size_of does.
Dims contiguous_strides(const Dims& shape);

/// a + b and a · b, or the nearest number where that does not fit 63 bits.
constexpr Dim plus_capped(Dim a, Dim b) {
  Dim sum = 0;
  return !__builtin_add_overflow(a, b, &sum) ? sum : b < 0 ? INT64_MIN : INT64_MAX;
}
constexpr Dim times_capped(Dim a, Dim b) {
  Dim product = 0;
  return !__builtin_mul_overflow(a, b, &product) ? product : (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

/// True where the elements lie row-major without gaps (axes of size 1 may have any stride).
bool is_contiguous(const Dims& shape, const Dims& strides);

/// Whether several elements may lie at one place: an axis whose stride falls within the extent of those with smaller
/// strides.
bool has_overlap(const Dims& shape, const Dims& strides);

/// The common shape of two by the broadcasting rule (right-aligned; 1 stretches). Throws Error naming `op`.
Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b);

/// Turns a possibly negative axis into 0..rank-1. Throws Error naming `op`.
int normal_axis(const char* op, int64_t axis, int rank);

}  // namespace tandem
