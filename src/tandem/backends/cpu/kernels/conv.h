// Shapes of convolution on the CPU, over two axes (conv.cpp says how a third is added), and what its implementations share.
#pragma once

#include <compare>
#include <cstdint>
#include <cstring>

#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/core/implementations.h"
#include "tandem/core/kernel.h"
#include "tandem/ops/conv.h"

namespace tandem::cpu::TD_ISA {

/// All sizes of one convolution x (n, c, h, w) * weight (o, c / groups, kh, kw) -> (n, o, oh, ow).
struct ConvShape {
  int64_t n, c, h, w;
  int64_t o, kh, kw;
  int64_t oh, ow;
  int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int64_t groups;

  int64_t group_in() const { return c / groups; }
  int64_t group_out() const { return o / groups; }
  int64_t taps() const { return group_in() * kh * kw; }  // products that one output sums
  int64_t reach_h() const { return (kh - 1) * dilation_h; }
  int64_t reach_w() const { return (kw - 1) * dilation_w; }
  bool empty() const {  // a product of all would not fit 63 bits
    return n == 0 || c == 0 || h == 0 || w == 0 || o == 0 || oh == 0 || ow == 0 || kh == 0 || kw == 0;
  }
  /// A matrix product over the pixels, with channels enough to fill tiles.
  bool is_pointwise() const {
    return kh == 1 && kw == 1 && stride_h == 1 && stride_w == 1 && padding_h == 0 && padding_w == 0 &&
           oh == h && ow == w && group_in() >= 4 && group_out() >= 4;
  }
  /// Where it is pointwise, all pixels of a plane as one row.
  ConvShape with_joined_rows() const {
    ConvShape joined = *this;
    if (is_pointwise()) {
      joined.w = joined.ow = h * w;
      joined.h = joined.oh = 1;
    }
    return joined;
  }
  friend auto operator<=>(const ConvShape&, const ConvShape&) = default;
};

enum class ConvOp { forward, input_gradient, weight_gradient };

struct ConvProblem {
  ConvOp op;
  DType dtype;  // f64, f32, bf16 or f16
  ConvShape shape;
  friend auto operator<=>(const ConvProblem&, const ConvProblem&) = default;
};
/// a and b: x, weight; g, weight; g, x. The bias, of the forward pass, may be null. All are contiguous; none is empty.
struct ConvCall {
  ConvProblem problem;
  const void *a, *b, *bias;
  void* out;
};
/// conv.cpp has the list of these. Their memory beside the tensors is the threads' own (thread_memory.h).
using ConvImplementation = Implementation<ConvProblem, ConvCall>;

/// The gradients of the implementation "direct". S: double, float, BFloat16, Float16.
template <class S>
void conv_direct_input_gradient(const ConvShape& shape, const S* g, const S* weight, S* dx);
template <class S>
void conv_direct_weight_gradient(const ConvShape& shape, const S* g, const S* x, S* dw);

/// out(i, j) (+)= the sum over n elements (whole vectors) of row i of a times row j of b, for rows i < a_rows,
/// j < b_rows; b's rows begin at b_offsets.
void add_row_products(const float* a, const float* b, int64_t a_pitch, int64_t n, const int64_t* b_offsets,
                      int64_t a_rows, int64_t b_rows, float* out, bool add);

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
/// elements: plane (c, i % stride_h, j % stride_w) holds x(c, i - padding_h, j - padding_w) at row i / stride_h,
/// column j / stride_w; zeros outside the image. A tap (c, kh, kw) is then one offset for all output pixels.
struct PhasePlanes {
  int64_t stride_h, stride_w;
  int64_t rows, pitch;  // of one plane

  explicit PhasePlanes(const ConvShape& s, int lanes)
      : stride_h(s.stride_h),
        stride_w(s.stride_w),
        rows(s.oh + s.reach_h() / s.stride_h),
        pitch(ceil_div(s.ow, lanes) * lanes + s.reach_w() / s.stride_w) {}
  int64_t plane() const { return rows * pitch; }
  int64_t channel() const { return stride_h * stride_w * plane(); }
  /// True where the copy would equal the image: it can then be read in place.
  bool is_plain(const ConvShape& s) const {
    return stride_h == 1 && stride_w == 1 && s.padding_h == 0 && s.padding_w == 0 && rows == s.h &&
           pitch == s.w;
  }
  /// Where the tap at distance (i, j) from an output pixel's corner begins, within its channel.
  int64_t offset(int64_t i, int64_t j) const {
    return (i % stride_h * stride_w + j % stride_w) * plane() + i / stride_h * pitch + j / stride_w;
  }
  /// Writes one channel of x.
  template <class T, class S>
  void fill(T* to, const S* x, const ConvShape& s) const {
    std::memset(static_cast<void*>(to), 0, static_cast<size_t>(channel()) * sizeof(T));
    for (int64_t a = 0; a < stride_h; ++a)
      for (int64_t b = 0; b < stride_w; ++b) {
        const int64_t shift = b - s.padding_w;  // column j of the plane is column j * stride_w + shift of x
        const int64_t first = shift < 0 ? ceil_div(-shift, stride_w) : 0;
        const int64_t inside = s.w > shift ? ceil_div(s.w - shift, stride_w) : 0;
        const int64_t last = inside < pitch ? inside : pitch;
        for (int64_t i = 0; i < rows; ++i, to += pitch) {
          const int64_t h = i * stride_h + a - s.padding_h;
          if (h >= 0 && h < s.h && first < last)
            copy_row(to + first, x + h * s.w + first * stride_w + shift, last - first, stride_w);
        }
      }
  }
};

}  // namespace tandem::cpu::TD_ISA
