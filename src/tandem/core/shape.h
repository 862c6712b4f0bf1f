// Dims: up to eight sizes, strides or axes, held inline. A tensor's shape is a Dims.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

namespace tandem {

inline constexpr int kMaxRank = 8;

/// One size. An alias today; the place where symbolic sizes will enter.
using Dim = int64_t;

class Dims {
 public:
  constexpr Dims() = default;
  Dims(std::initializer_list<Dim> values) : Dims(std::span<const Dim>(values.begin(), values.size())) {}
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
  Dim values_[kMaxRank] = {};
  int rank_ = 0;
};

/// Prints as "(2, 3)".
std::ostream& operator<<(std::ostream& out, const Dims& dims);

/// The number of elements of a shape (1 for rank 0). Throws Error where it overflows or a size is negative.
Dim size_of(const Dims& shape);

/// Row-major strides, in elements.
Dims contiguous_strides(const Dims& shape);

/// True where the elements lie row-major without gaps (axes of size 1 may have any stride).
bool is_contiguous(const Dims& shape, const Dims& strides);

/// The common shape of two by the broadcasting rule (right-aligned; 1 stretches). Throws Error naming `op`.
Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b);

/// Turns a possibly negative axis into 0..rank-1. Throws Error naming `op`.
int normal_axis(const char* op, int64_t axis, int rank);

}  // namespace tandem
