// Shapes and algorithms of two-dimensional convolution on the CPU.
#pragma once

#include <cstdint>
#include <cstring>

#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/core/kernel.h"
#include "tandem/ops/conv.h"

namespace tandem::cpu::TD_ISA {

/// All sizes of one convolution x (n, c, h, w) * weight (o, c / groups, kh, kw) -> (n, o, oh, ow).
struct ConvShape {
  int64_t n, c, h, w;
  int64_t o, kh, kw;
  int64_t oh, ow;
  int64_t stride, padding, dilation, groups;

  int64_t group_in() const { return c / groups; }
  int64_t group_out() const { return o / groups; }
  int64_t taps() const { return group_in() * kh * kw; }  // products that one output sums
  int64_t reach_h() const { return (kh - 1) * dilation; }
  int64_t reach_w() const { return (kw - 1) * dilation; }
  bool empty() const { return n * c * h * w * o * oh * ow * kh * kw == 0; }
};

enum class ConvOp { forward, input_gradient, weight_gradient };

// The algorithms. The choice is a function of the shape only (conv.cpp):
//   "pointwise 1x1": a matrix product over the pixels, where the kernel is 1x1 with stride 1, unpadded;
//   "im2col": a matrix product whose right operand is gathered from the images while it is packed, where
//     rows are too short to fill vectors;
//   "direct": sums of output channels x pixels stay in registers while a list of taps walks over a padded
//     copy of one image, everywhere else. The weight gradient always runs a direct kernel.

/// The kernels by algorithm. S: double, float, BFloat16, Float16. bias may be null.
template <class S>
void conv_direct(const ConvShape& shape, const S* x, const S* weight, const S* bias, S* y);
template <class S>
void conv_direct_input_gradient(const ConvShape& shape, const S* g, const S* weight, S* dx);
template <class S>
void conv_direct_weight_gradient(const ConvShape& shape, const S* g, const S* x, S* dw);
template <class S>
void conv_im2col(const ConvShape& shape, const S* x, const S* weight, const S* bias, S* y);

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// to[i] = from[i * step], converted.
template <class T, class S>
inline void copy_row(T* to, const S* from, int64_t n, int64_t step) {
  int64_t i = 0;
  if constexpr (std::is_same_v<S, T>) {
    if (step == 1 && n >= kLanes<T>) {  // the last vector may overlap the one before
      for (; i + kLanes<T> <= n; i += kLanes<T>) store(to + i, load(from + i));
      store(to + n - kLanes<T>, load(from + n - kLanes<T>));
      return;
    }
  }
  for (; i < n; ++i) to[i] = static_cast<T>(from[i * step]);
}

/// A copy of image planes laid out so that every tap of a strided, padded, dilated convolution reads adjacent
/// elements: plane (c, i % stride, j % stride) holds x(c, i - padding, j - padding) at row i / stride, column
/// j / stride; zeros outside the image. A tap (c, kh, kw) is then one offset for all output pixels.
struct PhasePlanes {
  int64_t stride, rows, pitch;  // of one plane

  explicit PhasePlanes(const ConvShape& s, int lanes)
      : stride(s.stride),
        rows(s.oh + s.reach_h() / s.stride),
        pitch(ceil_div(s.ow, lanes) * lanes + s.reach_w() / s.stride) {}
  int64_t plane() const { return rows * pitch; }
  int64_t channel() const { return stride * stride * plane(); }
  /// True where the copy would equal the image: it can then be read in place.
  bool is_plain(const ConvShape& s) const {
    return stride == 1 && s.padding == 0 && rows == s.h && pitch == s.w;
  }
  /// Where the tap at distance (i, j) from an output pixel's corner begins, within its channel.
  int64_t offset(int64_t i, int64_t j) const {
    return (i % stride * stride + j % stride) * plane() + i / stride * pitch + j / stride;
  }
  /// Writes one channel of x.
  template <class T, class S>
  void fill(T* to, const S* x, const ConvShape& s) const {
    std::memset(static_cast<void*>(to), 0, static_cast<size_t>(channel()) * sizeof(T));
    for (int64_t a = 0; a < stride; ++a)
      for (int64_t b = 0; b < stride; ++b) {
        const int64_t shift = b - s.padding;  // column j of the plane is column j * stride + shift of x
        const int64_t first = shift < 0 ? ceil_div(-shift, stride) : 0;
        const int64_t inside = s.w > shift ? ceil_div(s.w - shift, stride) : 0;
        const int64_t last = inside < pitch ? inside : pitch;
        for (int64_t i = 0; i < rows; ++i, to += pitch) {
          const int64_t h = i * stride + a - s.padding;
          if (h >= 0 && h < s.h && first < last)
            copy_row(to + first, x + h * s.w + first * stride + shift, last - first, stride);
        }
      }
  }
};

}  // namespace tandem::cpu::TD_ISA
