// Numbers given for the spatial axes of a convolution or a pool: one for all of them, or one for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string_view>

#include "tandem/core/standard.h"

namespace tandem {

/// Sizes of the three spatial axes: depth, height, width. What has fewer axes leaves the first ones unused. A
/// field of attributes.
struct Axes3 {
  int64_t v[3];
  constexpr int64_t operator[](int i) const { return v[i]; }
  constexpr int64_t& operator[](int i) { return v[i]; }
  friend bool operator==(const Axes3&, const Axes3&) = default;
};
std::ostream& operator<<(std::ostream& out, const Axes3& axes);

/// An option: `.stride = 2` means every axis, `.stride = {1, 2}` one number per axis, {} nothing.
class PerAxis {
 public:
  PerAxis() = default;
  PerAxis(int64_t every) : count_(1), values_{{every, 0, 0}} {}
  PerAxis(std::initializer_list<int64_t> values);

  bool given() const { return count_ > 0; }
  int count() const { return count_; }
  /// The numbers of the last `axes` places, `unused` in the places before. Refused with a message of `op` where
  /// their count fits neither. `what` names the option.
  Axes3 over(int axes, const char* op, const char* what, int64_t unused) const;

 private:
  int count_ = 0;
  Axes3 values_{};
};

/// Padding: numbers, or "same" (as much as keeps the size; for stride 1), or "valid" (none).
class Padding : public PerAxis {
 public:
  using PerAxis::PerAxis;
  template <size_t n>
  Padding(const char (&word)[n]) : Padding(std::string_view(word)) {}
  Padding() : PerAxis(0) {}
  bool same() const { return same_; }

 private:
  explicit Padding(std::string_view word);
  bool same_ = false;
};

/// How a window moves over an axis: at each of its `outputs` places it covers kernel elements, `dilation` apart.
struct WindowAxis {
  int64_t kernel, stride, padding, dilation;
  /// Elements from the first covered to the last.
  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  /// True where all numbers are in range, so that nothing below overflows.
  bool sound() const {
    constexpr int64_t kLimit = int64_t{1} << 28;
    return kernel >= 1 && kernel < kLimit && stride >= 1 && stride < kLimit && padding >= 0 &&
           padding < kLimit && dilation >= 1 && dilation < kLimit;
  }
  bool fits(int64_t size) const { return size + 2 * padding >= reach(); }
  /// Places of the window. With `ceil`, one that leaves the padded image counts too, if it begins before the
  /// padding at the end.
  int64_t outputs(int64_t size, bool ceil = false) const {
    const int64_t room = size + 2 * padding - reach();
    int64_t count = (room + (ceil ? stride - 1 : 0)) / stride + 1;
    if (ceil && (count - 1) * stride >= size + padding) --count;
    return count;
  }
};

}  // namespace tandem
