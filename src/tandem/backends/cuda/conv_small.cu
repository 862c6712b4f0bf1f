// Small f32 convolutions in tf32, such as the first layers of small networks: few channels, where a library
// spends its time on layouts and launches. A block holds one whole image in shared memory, padded with zeros,
// and multiplies on the matrix units without ever writing out patches: element (pixel, tap) of the matrix of
// patches lies at pixel_offset + tap_offset of the image.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/layout.cuh"
#include "tandem/backends/cuda/tf32.cuh"

namespace tandem::cuda {
namespace {

constexpr int kMaxShared = 96 << 10;
constexpr int kMaxWarps = 16;

/// One image's side of the product. Taps are (channel, row, column) of the kernel, in that order.
struct Image {
  int channels, height, width;      // in memory
  int padded_height, padded_width;  // in shared memory
  int pad_top, pad_left, stride;
  int kernel_height, kernel_width;
  int out_height, out_width;  // how many places the kernel takes
  int taps, pixels;           // channels · kernel, out_height · out_width
  FastDivide by_padded_width, by_padded_height, by_kernel, by_kernel_width, by_out_width;

  int shared_size() const { return channels * padded_height * padded_width; }

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
  /// Brings image n into shared memory, rounded to tf32, with zeros around it.
  __device__ void load(unsigned* shared, const float* from, int n) const {
    from += static_cast<int64_t>(n) * channels * height * width;
#pragma unroll 4
    for (int i = threadIdx.x; i < channels * padded_height * padded_width; i += blockDim.x) {
      const int line = by_padded_width.divide(i), x = i - line * padded_width - pad_left;
      const int channel = by_padded_height.divide(line), y = line - channel * padded_height - pad_top;
      const bool inside = x >= 0 && x < width && y >= 0 && y < height;
      shared[i] = inside ? to_tf32(from[(channel * height + y) * width + x]) : 0u;
    }
  }
};

Image make_image(int64_t channels, int64_t height, int64_t width, int64_t pad_top, int64_t pad_left,
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
  i.by_padded_width = FastDivide(static_cast<uint32_t>(i.padded_width));
  i.by_padded_height = FastDivide(static_cast<uint32_t>(i.padded_height));
  i.by_kernel = FastDivide(static_cast<uint32_t>(i.kernel_height * i.kernel_width));
  i.by_kernel_width = FastDivide(static_cast<uint32_t>(i.kernel_width));
  i.by_out_width = FastDivide(static_cast<uint32_t>(i.out_width));
  return i;
}

/// Whether a description is small enough that no number below overflows and the work suits these kernels.
bool is_small(const DeviceState& state, const Convolution& s) {
  return s.dtype == DType::f32 && allow_tf32() && state.properties.major >= 8 && s.groups == 1 &&
         s.dilation == 1 && s.n <= 65535 && s.c <= 512 && s.o <= 512 && s.h <= 128 && s.w <= 128 &&
         s.oh <= 128 && s.ow <= 128 && s.kh <= 16 && s.kw <= 16;
}

/// Rows of the weights in shared memory: the output channels and a gap that spreads a warp's reads over the
/// banks.
template <int kTiles>
constexpr int kWeightRow = kTiles == 1 ? 8 : 8 * kTiles + 8;

/// One block an image; a warp makes 16 pixels by 8 · kTiles channels. `flipped` reads weight (taps' channel,
/// out channel, kh, kw) upside down: then this is the gradient with respect to the input.
template <int kTiles>
__global__ void __launch_bounds__(32 * kMaxWarps)
    small_conv_kernel(const Image image, const int out_channels, const bool flipped,
                      const FastDivide by_steps, const float* __restrict__ x,
                      const float* __restrict__ weight, const float* __restrict__ bias,
                      float* __restrict__ y) {
  extern __shared__ unsigned shared[];
  constexpr int kRow = kWeightRow<kTiles>;
  const int padded_taps = static_cast<int>(by_steps.divisor),
            kernel = image.kernel_height * image.kernel_width;
  unsigned* weights = shared + image.channels * image.padded_height * image.padded_width;  // [tap][channel]
  int* tap_offsets = reinterpret_cast<int*>(weights + padded_taps * kRow);
  image.load(shared, x, blockIdx.x);
#pragma unroll 4
  for (int i = threadIdx.x; i < padded_taps * 8 * kTiles; i += blockDim.x) {
    const int channel = by_steps.divide(i), tap = i - channel * padded_taps;
    unsigned value = 0;
    if (channel < out_channels && tap < image.taps) {
      const int group = image.by_kernel.divide(tap), rest = tap - group * kernel;
      value = to_tf32(weight[flipped ? (group * out_channels + channel) * kernel + kernel - 1 - rest
                                     : channel * image.taps + tap]);
    }
    weights[tap * kRow + channel] = value;
  }
  for (int tap = threadIdx.x; tap < padded_taps; tap += blockDim.x) tap_offsets[tap] = image.tap_offset(tap);
  __syncthreads();

  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32, g = lane / 4,
            t = lane % 4;
  for (int first = warp * 16; first < image.pixels; first += warps * 16) {
    const unsigned *upper = shared + image.pixel_offset(first + g),
                   *lower = shared + image.pixel_offset(first + g + 8);
    float sum[kTiles][4] = {};
#pragma unroll 4
    for (int k = t; k < padded_taps; k += 8) {
      const int left = tap_offsets[k], right = tap_offsets[k + 4];
      const unsigned patches[4] = {upper[left], lower[left], upper[right], lower[right]};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const unsigned filters[2] = {weights[k * kRow + 8 * j + g], weights[(k + 4) * kRow + 8 * j + g]};
        multiply_add(sum[j], patches, filters);
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int channel = 8 * j + 2 * t + e % 2, pixel = first + g + 8 * (e / 2);
        if (channel < out_channels && pixel < image.pixels)
          y[(static_cast<int64_t>(blockIdx.x) * out_channels + channel) * image.pixels + pixel] =
              sum[j][e] + (bias ? bias[channel] : 0.f);
      }
  }
}

template <int kTiles>
bool run_small_conv(const KernelArgs& args, const Image& image, int64_t images, int64_t out_channels,
                    bool flipped, const void* x, const void* weight, const void* bias, void* y) {
  const int padded_taps = (image.taps + 7) / 8 * 8;
  const int bytes = 4 * (image.shared_size() + padded_taps * kWeightRow<kTiles> + padded_taps);
  if (bytes > kMaxShared) return false;
  if (bytes > 48 << 10)
    check(cudaFuncSetAttribute(small_conv_kernel<kTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
  int warps = (image.pixels + 15) / 16;
  warps = warps < 4 ? 4 : (warps > kMaxWarps ? kMaxWarps : warps);
  small_conv_kernel<kTiles>
      <<<static_cast<unsigned>(images), 32 * warps, static_cast<size_t>(bytes), stream_of(args)>>>(
          image, static_cast<int>(out_channels), flipped, FastDivide(static_cast<uint32_t>(padded_taps)),
          static_cast<const float*>(x), static_cast<const float*>(weight), static_cast<const float*>(bias),
          static_cast<float*>(y));
  launched("small_conv_kernel");
  return true;
}

bool small_conv(const KernelArgs& args, const Image& image, int64_t images, int64_t out_channels,
                bool flipped, const void* x, const void* weight, const void* bias, void* y) {
  if (image.taps > 512 || out_channels > 32) return false;
  if (out_channels <= 8)
    return run_small_conv<1>(args, image, images, out_channels, flipped, x, weight, bias, y);
  if (out_channels <= 16)
    return run_small_conv<2>(args, image, images, out_channels, flipped, x, weight, bias, y);
  return run_small_conv<4>(args, image, images, out_channels, flipped, x, weight, bias, y);
}

/// The weight gradient is a product over pixels: taps (rows) by out channels (columns). A warp holds 16 taps and
/// takes every splits-th group of 8 pixels; blocks take every gridDim.x-th image. Sums over the splits and over
/// the blocks run in order.
template <int kTiles>
__global__ void __launch_bounds__(32 * kMaxWarps)
    small_weight_gradient_kernel(const Image image, const int images, const int out_channels,
                                 const int splits, const FastDivide by_pixels, const float* __restrict__ g,
                                 const float* __restrict__ x, float* __restrict__ partial) {
  extern __shared__ unsigned shared[];
  const int pixels = image.pixels, padded_pixels = static_cast<int>(by_pixels.divisor),
            row = padded_pixels + 4;
  unsigned* gradients =
      shared + image.channels * image.padded_height * image.padded_width;  // [channel][pixel]
  int* pixel_offsets = reinterpret_cast<int*>(gradients + 8 * kTiles * row);
  for (int p = threadIdx.x; p < padded_pixels; p += blockDim.x) pixel_offsets[p] = image.pixel_offset(p);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane / 4, t = lane % 4;
  const int tap_tiles = (image.taps + 15) / 16, tile = warp / splits, split = warp - tile * splits;
  const bool works = tile < tap_tiles;
  const int upper = image.tap_offset(tile * 16 + q), lower = image.tap_offset(tile * 16 + q + 8);
  float sum[kTiles][4] = {};
  for (int n = blockIdx.x; n < images; n += gridDim.x) {
    __syncthreads();  // the image before this one is read
    image.load(shared, x, n);
    const float* from = g + static_cast<int64_t>(n) * out_channels * pixels;
#pragma unroll 4
    for (int i = threadIdx.x; i < 8 * kTiles * padded_pixels; i += blockDim.x) {
      const int channel = by_pixels.divide(i), p = i - channel * padded_pixels;
      gradients[channel * row + p] =
          channel < out_channels && p < pixels ? to_tf32(from[channel * pixels + p]) : 0u;
    }
    __syncthreads();
    if (!works) continue;
#pragma unroll 4
    for (int p = split * 8 + t; p < padded_pixels; p += splits * 8) {
      const int left = pixel_offsets[p], right = pixel_offsets[p + 4];
      const unsigned patches[4] = {shared[upper + left], shared[lower + left], shared[upper + right],
                                   shared[lower + right]};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const unsigned* at = gradients + (8 * j + q) * row + p;
        const unsigned other[2] = {at[0], at[4]};
        multiply_add(sum[j], patches, other);
      }
    }
  }
  __syncthreads();
  // Shared memory now takes the sums: [split][tap][channel].
  float* sums = reinterpret_cast<float*>(shared);
  constexpr int kRow = 8 * kTiles;
  if (works)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[((split * tap_tiles + tile) * 16 + q + 8 * (e / 2)) * kRow + 8 * j + 2 * t + e % 2] = sum[j][e];
  __syncthreads();
  for (int i = threadIdx.x; i < image.taps * out_channels; i += blockDim.x) {
    const int channel = i / image.taps, tap = i - channel * image.taps;
    float total = 0;
    for (int s = 0; s < splits; ++s) total += sums[(s * tap_tiles * 16 + tap) * kRow + channel];
    partial[static_cast<int64_t>(blockIdx.x) * image.taps * out_channels + i] = total;
  }
}

/// Adds the blocks' sums: 32 outputs a block, 8 lanes each, in order.
__global__ void __launch_bounds__(256)
    sum_partials_kernel(int size, int count, const float* __restrict__ partial, float* __restrict__ out) {
  __shared__ float shared[8][32];
  const int column = threadIdx.x % 32, lane = threadIdx.x / 32, i = blockIdx.x * 32 + column;
  float sum = 0;
  if (i < size)
#pragma unroll 8
    for (int c = lane; c < count; c += 8) sum += partial[static_cast<int64_t>(c) * size + i];
  shared[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || i >= size) return;
  float total = 0;
#pragma unroll
  for (int l = 0; l < 8; ++l) total += shared[l][column];
  out[i] = total;
}

template <int kTiles>
bool run_weight_gradient(const KernelArgs& args, const Image& image, const Convolution& s, const void* g,
                         const void* x, void* gw) {
  const int tap_tiles = (image.taps + 15) / 16;
  const int padded_pixels = (image.pixels + 7) / 8 * 8;
  int splits = kMaxWarps / tap_tiles;
  if (splits > padded_pixels / 8) splits = padded_pixels / 8;
  int bytes = 4 * (image.shared_size() + 8 * kTiles * (padded_pixels + 4) + padded_pixels);
  const int sums = 4 * splits * tap_tiles * 16 * 8 * kTiles;
  if (sums > bytes) bytes = sums;
  if (bytes > kMaxShared) return false;
  if (bytes > 48 << 10)
    check(cudaFuncSetAttribute(small_weight_gradient_kernel<kTiles>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
  const int blocks = s.n < 128 ? static_cast<int>(s.n) : 128;
  const int size = image.taps * static_cast<int>(s.o);
  auto* out = static_cast<float*>(gw);
  float* partial = blocks == 1
                       ? out
                       : static_cast<float*>(args.workspace(sizeof(float) * static_cast<size_t>(blocks) *
                                                            static_cast<size_t>(size)));
  int warps = tap_tiles * splits;
  if (warps < 4) warps = 4;
  small_weight_gradient_kernel<kTiles><<<blocks, 32 * warps, static_cast<size_t>(bytes), stream_of(args)>>>(
      image, static_cast<int>(s.n), static_cast<int>(s.o), splits,
      FastDivide(static_cast<uint32_t>(padded_pixels)), static_cast<const float*>(g),
      static_cast<const float*>(x), partial);
  launched("small_weight_gradient_kernel");
  if (blocks > 1) {
    sum_partials_kernel<<<(size + 31) / 32, 256, 0, stream_of(args)>>>(size, blocks, partial, out);
    launched("sum_partials_kernel");
  }
  return true;
}

}  // namespace

bool small_conv_forward(const KernelArgs& args, const Convolution& s, const void* x, const void* weight,
                        const void* bias, void* y) {
  if (!is_small(state_of(args), s)) return false;
  const Image image = make_image(s.c, s.h, s.w, s.padding, s.padding, s.stride, s.kh, s.kw, s.oh, s.ow);
  return small_conv(args, image, s.n, s.o, false, x, weight, bias, y);
}

bool small_conv_input_gradient(const KernelArgs& args, const Convolution& s, const void* g,
                               const void* weight, void* gx) {
  if (!is_small(state_of(args), s) || s.stride != 1 || s.padding >= s.kh || s.padding >= s.kw) return false;
  const Image image =
      make_image(s.o, s.oh, s.ow, s.kh - 1 - s.padding, s.kw - 1 - s.padding, 1, s.kh, s.kw, s.h, s.w);
  return small_conv(args, image, s.n, s.c, true, g, weight, nullptr, gx);
}

bool small_conv_weight_gradient(const KernelArgs& args, const Convolution& s, const void* g, const void* x,
                                void* gw) {
  if (!is_small(state_of(args), s) || s.o > 32) return false;
  const Image image = make_image(s.c, s.h, s.w, s.padding, s.padding, s.stride, s.kh, s.kw, s.oh, s.ow);
  if (image.taps > 16 * kMaxWarps) return false;
  if (s.o <= 8) return run_weight_gradient<1>(args, image, s, g, x, gw);
  if (s.o <= 16) return run_weight_gradient<2>(args, image, s, g, x, gw);
  return run_weight_gradient<4>(args, image, s, g, x, gw);
}

}  // namespace tandem::cuda
