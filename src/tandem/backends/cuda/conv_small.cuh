// What the small convolutions share: images in shared memory, padded with zeros, as factors of the matrix units (tf32.cuh).
// Element (pixel, tap) of the matrix of patches lies at pixel_offset + tap_offset of the image.
#pragma once

#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/backends/cuda/tf32.cuh"

namespace tandem::cuda {

inline constexpr int kMaxShared = 96 << 10;
inline constexpr int kGroup = 16;  // taps or pixels of two steps of the matrix units
inline constexpr int kPieces =
    3;  // groups of four elements of an image that a thread reads before it waits for one

constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

/// One image's side of the product. Taps are (channel, row, column) of the kernel, in that order.
struct Image {
  int channels, height, width;      // in memory
  int padded_height, padded_width;  // in shared memory
  int pad_top, pad_left, stride;
  int kernel_height, kernel_width;
  int out_height, out_width;  // how many places the kernel takes
  int taps, pixels;           // channels · kernel, out_height · out_width
  FastDivide by_width, by_height, by_kernel, by_kernel_width, by_out_width;

  __host__ __device__ int size() const { return channels * height * width; }
  __host__ __device__ int shared_size() const { return channels * padded_height * padded_width; }

  __device__ int tap_offset(int tap) const {
    if (tap >= taps) return 0;
    const int channel = by_kernel.divide(tap), rest = tap - channel * kernel_height * kernel_width;
    const int row = by_kernel_width.divide(rest);
    return (channel * padded_height + row) * padded_width + rest - row * kernel_width;
  }
  __device__ int pixel_offset(int pixel) const {
    if (pixel >= pixels) return 0;
    const int row = by_out_width.divide(pixel);
    return (row * padded_width + pixel - row * out_width) * stride;
  }
  /// Brings element i to its place in shared memory. Images that follow each other in memory do so there too.
  template <bool kExact>
  __device__ __forceinline__ void put(unsigned* shared, int i, float value) const {
    const int line = by_width.divide(i), x = i - line * width + pad_left;
    const int channel = by_height.divide(line), y = line - channel * height + pad_top;
    if (x < padded_width && y < padded_height)
      shared[(channel * padded_height + y) * padded_width + x] = factor<kExact>(value);
  }
};

/// Sets words to zero; a multiple of four, aligned.
__device__ inline void clear(unsigned* shared, int words) {
  for (int i = threadIdx.x; i < words / 4; i += blockDim.x)
    reinterpret_cast<uint4*>(shared)[i] = make_uint4(0, 0, 0, 0);
}

/// Of the four columns 0, 4, 8 and 12 that a thread reads of a group (two rows each), sets those from `rest` on to zero.
__device__ __forceinline__ void clear_from(int rest, unsigned (&first)[4], unsigned (&second)[4]) {
  if (rest <= 0) first[0] = first[1] = 0;
  if (rest <= 4) first[2] = first[3] = 0;
  if (rest <= 8) second[0] = second[1] = 0;
  if (rest <= 12) second[2] = second[3] = 0;
}

/// A thread's part of `size` elements that lie together, four by four, read ahead of their use.
struct Pieces {
  float4 piece[kPieces];

  __device__ __forceinline__ void fetch(const float* from, int size, int first, bool by_four) {
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      const int i = 4 * (first + u * static_cast<int>(blockDim.x));
      float4 four = make_float4(0, 0, 0, 0);
      if (by_four) {
        if (i < size) four = *reinterpret_cast<const float4*>(from + i);
      } else {
        if (i < size) four.x = from[i];
        if (i + 1 < size) four.y = from[i + 1];
        if (i + 2 < size) four.z = from[i + 2];
        if (i + 3 < size) four.w = from[i + 3];
      }
      piece[u] = four;
    }
  }
  template <bool kExact>
  __device__ __forceinline__ void put(const Image& image, unsigned* shared, int size, int first) const {
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      const int i = 4 * (first + u * static_cast<int>(blockDim.x));
      if (i < size) image.put<kExact>(shared, i, piece[u].x);
      if (i + 1 < size) image.put<kExact>(shared, i + 1, piece[u].y);
      if (i + 2 < size) image.put<kExact>(shared, i + 2, piece[u].z);
      if (i + 3 < size) image.put<kExact>(shared, i + 3, piece[u].w);
    }
  }
  /// Puts what has been fetched, then fetches and puts the rest.
  template <bool kExact>
  __device__ __forceinline__ void put_all(const Image& image, unsigned* shared, const float* from, int size,
                                          bool by_four) {
    for (int first = threadIdx.x;;) {
      put<kExact>(image, shared, size, first);
      first += kPieces * blockDim.x;
      if (4 * first >= size) break;
      fetch(from, size, first, by_four);
    }
  }
};

inline Image make_image(int64_t channels, int64_t height, int64_t width, int64_t pad_top, int64_t pad_left,
                        int64_t stride, int64_t kernel_height, int64_t kernel_width, int64_t out_height,
                        int64_t out_width) {
  Image i;
  i.channels = static_cast<int>(channels);
  i.height = static_cast<int>(height);
  i.width = static_cast<int>(width);
  i.pad_top = static_cast<int>(pad_top);
  i.pad_left = static_cast<int>(pad_left);
  i.stride = static_cast<int>(stride);
  i.kernel_height = static_cast<int>(kernel_height);
  i.kernel_width = static_cast<int>(kernel_width);
  i.out_height = static_cast<int>(out_height);
  i.out_width = static_cast<int>(out_width);
  i.padded_height = (i.out_height - 1) * i.stride + i.kernel_height;
  i.padded_width = (i.out_width - 1) * i.stride + i.kernel_width;
  i.taps = i.channels * i.kernel_height * i.kernel_width;
  i.pixels = i.out_height * i.out_width;
  i.by_width = FastDivide(static_cast<uint32_t>(i.width > 0 ? i.width : 1));
  i.by_height = FastDivide(static_cast<uint32_t>(i.height > 0 ? i.height : 1));
  i.by_kernel = FastDivide(static_cast<uint32_t>(i.kernel_height * i.kernel_width));
  i.by_kernel_width = FastDivide(static_cast<uint32_t>(i.kernel_width));
  i.by_out_width = FastDivide(static_cast<uint32_t>(i.out_width));
  return i;
}

/// Null where a problem is small enough that no number below overflows and the work suits these kernels, else why not.
inline const char* why_not_small(const ConvProblem& p) {
  const Convolution& s = p.shape;
  const auto most = [](const Axes3& a, int64_t limit) { return a[1] <= limit && a[2] <= limit; };
  if (s.dtype != DType::f32) return "it takes f32 only.";
  if (p.capability < 8) return "it takes devices of compute capability 8.0 and later only.";
  if (s.groups != 1) return "it takes one group only.";
  if (s.in[0] != 1 || s.kernel[0] != 1 || s.out[0] != 1 || s.padding[0] != 0)
    return "it takes one or two spatial axes only.";
  if (s.dilation[1] != 1 || s.dilation[2] != 1) return "it takes dilation 1 only.";
  if (s.stride[1] != s.stride[2]) return "it takes equal strides down and across only.";
  if (s.n > 65535) return "it takes up to 65535 images only.";
  if (s.c > 512 || s.o > 512) return "it takes up to 512 channels only.";
  if (!most(s.in, 128) || !most(s.out, 128)) return "it takes images up to 128x128 only.";
  if (!most(s.kernel, 16)) return "it takes kernels up to 16x16 only.";
  return nullptr;
}
inline constexpr const char* kNoRoom = "it takes images that fit into 96 KiB of shared memory only.";

/// Output channels of a block are 8 · tiles.
inline int tiles_of(int64_t channels) { return channels <= 8 ? 1 : channels <= 16 ? 2 : 4; }

/// The weight gradient of "small", in conv_small_gradient.cu. The first and second look at nothing that why_not_small refuses.
const char* small_weight_gradient_can(const ConvProblem& problem);
size_t small_weight_gradient_workspace(const ConvProblem& problem);
void small_weight_gradient(const ConvCall& call);

/// Whether runs of `size` elements from here on may be read 16 bytes at a time. Changes how elements are read,
/// not what is computed.
inline bool reads_by_four(const void* from, int size) {
  return size % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
}

}  // namespace tandem::cuda
