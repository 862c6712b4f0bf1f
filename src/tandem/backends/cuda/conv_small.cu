// "small": small f32 convolutions, such as the first layers of small networks: few channels, where a library
// spends its time on layouts and launches. A block holds one whole image in shared memory and multiplies on the
// matrix units without ever writing out patches.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/conv_small.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWeights = 6;  // elements of the weights that a thread reads before it waits for one

struct ConvPlan {
  int out_channels;
  bool flipped;  // weight is (taps' channel, out channel, kh, kw), read upside down: the input's gradient
  bool by_four;
  int groups;      // of taps
  int weight_row;  // of the weights in shared memory: 16 more than a multiple of 32, for reads without conflicts
  int units;       // of 32 pixels
  int unit_warps;  // warps beside each other
  int splits;      // of the groups; more than 1 only where every warp has one unit
  FastDivide by_taps, by_pixels;

  __host__ __device__ int sum_row() const { return units * 32 + 4; }  // a gap against conflicts
};

constexpr int conv_warps(int tiles) { return tiles == 4 ? 16 : 32; }

/// Taps of a group in the order in which threads read them: t, t + 4, t + 8, t + 12 lie together.
__device__ __forceinline__ int tap_slot(int tap) { return (tap & ~15) | (tap & 3) << 2 | (tap >> 2 & 3); }

/// One block per image. A warp makes 32 pixels by 8 · kTiles channels from every splits-th group of taps; the
/// splits are added in order.
/// A warp's unit of 32 pixels is two tiles of 16 rows of the matrix units (m), its channels kTiles tiles of 8 columns
/// (j). Rows are g and g + 8 of a tile, columns 2t and 2t + 1, as tf32.cuh says. The order of a sum is that of its
/// groups of taps within a split, then the splits, then the bias: a function of the shape alone.
template <int kTiles, bool kExact>
__global__ void __launch_bounds__(32 * conv_warps(kTiles))
    small_conv_kernel(const Image image, const ConvPlan plan, const float* __restrict__ x,
                      const float* __restrict__ weight, const float* __restrict__ bias,
                      float* __restrict__ y) {
  extern __shared__ __align__(16) unsigned shared[];
  __shared__ float biases[8 * kTiles];
  const int image_words = round_up(image.shared_size(), 4), weight_words = 8 * kTiles * plan.weight_row;
  unsigned* weights = shared + image_words;  // [channel][tap slot]
  // 16 bits hold every offset: all of it fits 96 KiB, which is under 2^15 words.
  auto* tap_offsets = reinterpret_cast<unsigned short*>(weights + weight_words);  // [tap slot]
  const int size = image.size(), weight_size = plan.out_channels * image.taps;
  const float* from = x + static_cast<int64_t>(blockIdx.x) * size;

  // Everything is read at once; zeros are written meanwhile.
  Pieces pieces;
  pieces.fetch(from, size, threadIdx.x, plan.by_four);
  const int kernel = image.kernel_height * image.kernel_width;
  const auto place = [&](int i, int& channel, int& tap) {
    channel = plan.by_taps.divide(i);
    tap = i - channel * image.taps;
  };
  float read[kWeights];
  // Of the input's gradient: out channel and tap change places, and a kernel is read from its end.
  const auto fetch = [&](int first) {
#pragma unroll
    for (int u = 0; u < kWeights; ++u) {
      int i = first + u * static_cast<int>(blockDim.x), at = i;
      if (plan.flipped) {
        int channel, tap;
        place(i, channel, tap);
        const int group = image.by_kernel.divide(tap), rest = tap - group * kernel;
        at = (group * plan.out_channels + channel) * kernel + kernel - 1 - rest;
      }
      read[u] = i < weight_size ? weight[at] : 0.f;
    }
  };
  fetch(threadIdx.x);
  if (threadIdx.x < 8 * kTiles)
    biases[threadIdx.x] = bias && threadIdx.x < plan.out_channels ? bias[threadIdx.x] : 0.f;
  clear(shared, image_words + weight_words);
  for (int tap = threadIdx.x; tap < plan.groups * kGroup; tap += blockDim.x)
    tap_offsets[tap_slot(tap)] = static_cast<unsigned short>(image.tap_offset(tap));
  // The zeros and the offsets stand before the image and the weights are put among them.
  __syncthreads();
  pieces.put_all<kExact>(image, shared, from, size, plan.by_four);
  for (int first = threadIdx.x;;) {
#pragma unroll
    for (int u = 0; u < kWeights; ++u) {
      const int i = first + u * static_cast<int>(blockDim.x);
      int channel, tap;
      place(i, channel, tap);
      if (i < weight_size) weights[channel * plan.weight_row + tap_slot(tap)] = factor<kExact>(read[u]);
    }
    first += kWeights * blockDim.x;
    if (first >= weight_size) break;
    fetch(first);
  }
  // The image and the weights stand before any warp multiplies.
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int split = warp / plan.unit_warps;
  float sum[2][kTiles][4];
  const auto each = [&](int unit,
                        const auto& f) {  // f(channel, pixel, value) for the elements of this thread
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          f(8 * j + 2 * t + e % 2, unit * 32 + 16 * m + g + 8 * (e / 2), sum[m][j][e]);
  };
  float* out = y + static_cast<int64_t>(blockIdx.x) * plan.out_channels * image.pixels;
  // Warps beyond unit_warps · splits (a block has at least four warps) take part in the barriers alone.
  int unit = split < plan.splits ? warp - split * plan.unit_warps : plan.units;
  for (; unit < plan.units; unit += plan.unit_warps) {
    const unsigned* rows[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) rows[m][h] = shared + image.pixel_offset(unit * 32 + 16 * m + 8 * h + g);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[m][j][e] = 0;
    // A group of taps, of which the first `rest` are there. What fills it up has weight 0 and must be 0 itself: an
    // infinity times 0 would be NaN.
    const auto multiply = [&](int group, int rest) {
      const int slot = group * kGroup + 4 * t;
      const uint2 packed = *reinterpret_cast<const uint2*>(tap_offsets + slot);
      const unsigned at[4] = {packed.x & 0xffffu, packed.x >> 16, packed.y & 0xffffu, packed.y >> 16};
      uint4 filters[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
        filters[j] = *reinterpret_cast<const uint4*>(weights + (8 * j + g) * plan.weight_row + slot);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const unsigned *upper = rows[m][0], *lower = rows[m][1];
        unsigned first[4] = {upper[at[0]], lower[at[0]], upper[at[1]], lower[at[1]]};
        unsigned second[4] = {upper[at[2]], lower[at[2]], upper[at[3]], lower[at[3]]};
        if (rest < kGroup) clear_from(rest - t, first, second);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          multiply_add<kExact>(sum[m][j], first, {filters[j].x, filters[j].y});
          multiply_add<kExact>(sum[m][j], second, {filters[j].z, filters[j].w});
        }
      }
    };
    // Only the last group may be filled up, so only there is a branch between reads and products, which costs time.
    const int whole = image.taps / kGroup;
    int group = split;
#pragma unroll 2
    for (; group < whole; group += plan.splits) multiply(group, kGroup);
    if (group < plan.groups) multiply(group, image.taps - group * kGroup);
    // A warp then has one unit at most, whose sums stay in registers until the image may be overwritten.
    if (plan.splits > 1) break;
    each(unit, [&](int channel, int pixel, float value) {
      if (channel < plan.out_channels && pixel < image.pixels)
        out[channel * image.pixels + pixel] = value + biases[channel];
    });
  }
  if (plan.splits == 1) return;
  __syncthreads();                                 // the image is read: its place takes the splits' sums
  float* sums = reinterpret_cast<float*>(shared);  // [split][channel][pixel]
  const int row = plan.sum_row();
  if (unit < plan.units)
    each(unit, [&](int channel, int pixel, float value) {
      sums[(split * 8 * kTiles + channel) * row + pixel] = value;
    });
  // Every split of an element is there before it is added up.
  __syncthreads();
  for (int i = threadIdx.x; i < plan.out_channels * image.pixels; i += blockDim.x) {
    const int channel = plan.by_pixels.divide(i), pixel = i - channel * image.pixels;
    float total = 0;
    for (int s = 0; s < plan.splits; ++s) total += sums[(s * 8 * kTiles + channel) * row + pixel];
    out[i] = total + biases[channel];
  }
}

/// What the kernel is launched with, but for by_four, which depends on an address.
struct Launch {
  Image image;
  ConvPlan plan;
  int tiles, shared_bytes;
};

/// The input gradient is the convolution of g with the kernels turned round, padded by what is left of the kernel.
/// Units go to warps in even rounds; warps that are left over share the taps of a unit instead, at most four of them.
Launch launch_of(const ConvProblem& p) {
  const Convolution& s = p.shape;
  Launch l;
  ConvPlan& plan = l.plan;
  plan.flipped = p.pass == Pass::input_gradient;
  const int64_t out_channels = plan.flipped ? s.c : s.o;
  l.image = plan.flipped
                ? make_image(s.o, s.out[1], s.out[2], s.kernel[1] - 1 - s.padding[1],
                             s.kernel[2] - 1 - s.padding[2], 1, s.kernel[1], s.kernel[2], s.in[1], s.in[2])
                : make_image(s.c, s.in[1], s.in[2], s.padding[1], s.padding[2], s.stride[1], s.kernel[1],
                             s.kernel[2], s.out[1], s.out[2]);
  const Image& image = l.image;
  l.tiles = tiles_of(out_channels);
  const int warps = conv_warps(l.tiles);
  plan.out_channels = static_cast<int>(out_channels);
  plan.by_four = false;
  plan.groups = (image.taps + kGroup - 1) / kGroup;
  plan.weight_row = plan.groups * kGroup;
  if (plan.weight_row % 32 == 0) plan.weight_row += 16;
  plan.units = (image.pixels + 31) / 32;
  const int rounds = (plan.units + warps - 1) / warps;
  plan.unit_warps = (plan.units + rounds - 1) / rounds;
  plan.splits = warps / plan.units;
  if (plan.splits > 4) plan.splits = 4;
  if (plan.splits > plan.groups) plan.splits = plan.groups;
  if (plan.splits < 1) plan.splits = 1;
  plan.by_taps = FastDivide(static_cast<uint32_t>(image.taps > 0 ? image.taps : 1));
  plan.by_pixels = FastDivide(static_cast<uint32_t>(image.pixels));
  l.shared_bytes =
      4 * (round_up(image.shared_size(), 4) + 8 * l.tiles * plan.weight_row + plan.groups * kGroup / 2);
  const int sums = 4 * plan.splits * 8 * l.tiles * plan.sum_row();
  if (plan.splits > 1 && sums > l.shared_bytes) l.shared_bytes = sums;
  return l;
}

template <int kTiles, bool kExact>
void run_small_conv(const ConvCall& call, const Launch& l) {
  if (l.shared_bytes > 40 << 10)
    check(cudaFuncSetAttribute(small_conv_kernel<kTiles, kExact>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               l.shared_bytes),
          "cudaFuncSetAttribute");
  ConvPlan plan = l.plan;
  plan.by_four = reads_by_four(call.a, l.image.size());
  int warps = plan.unit_warps * plan.splits;
  if (warps < 4) warps = 4;
  small_conv_kernel<kTiles, kExact><<<static_cast<unsigned>(call.problem.shape.n), 32 * warps,
                                      static_cast<size_t>(l.shared_bytes), stream_of(call.args)>>>(
      l.image, plan, static_cast<const float*>(call.a), static_cast<const float*>(call.b),
      static_cast<const float*>(call.bias), static_cast<float*>(call.out));
  launched("small_conv_kernel");
}

template <bool kExact>
void run_tiles(const ConvCall& call, const Launch& l) {
  if (l.tiles == 1) return run_small_conv<1, kExact>(call, l);
  if (l.tiles == 2) return run_small_conv<2, kExact>(call, l);
  run_small_conv<4, kExact>(call, l);
}

class SmallConv final : public ConvImplementation {
 public:
  std::string name() const override { return "small"; }
  const char* can(const ConvProblem& p) const override {
    if (const char* why_not = why_not_small(p)) return why_not;
    const Convolution& s = p.shape;
    if (p.pass == Pass::weight_gradient) return small_weight_gradient_can(p);
    const bool backward = p.pass == Pass::input_gradient;
    if (backward && s.stride[1] != 1) return "it computes the input gradient of stride 1 only.";
    if (backward && (s.padding[1] >= s.kernel[1] || s.padding[2] >= s.kernel[2]))
      return "it computes the input gradient of paddings less than the kernel only.";
    const int64_t in_channels = backward ? s.o : s.c, out_channels = backward ? s.c : s.o;
    if (out_channels > 32) return "it makes up to 32 channels only.";
    if (in_channels * s.kernel[1] * s.kernel[2] > 512) return "it takes sums of up to 512 products only.";
    return launch_of(p).shared_bytes > kMaxShared ? kNoRoom : nullptr;
  }
  size_t workspace(const ConvProblem& p) const override {
    return p.pass == Pass::weight_gradient ? small_weight_gradient_workspace(p) : 0;
  }
  void run(const ConvCall& call) const override {
    if (call.problem.pass == Pass::weight_gradient) return small_weight_gradient(call);
    (call.problem.tf32 ? run_tiles<false> : run_tiles<true>)(call, launch_of(call.problem));
  }
};

}  // namespace

const ConvImplementation& small_conv() {
  static constexpr SmallConv row;
  return row;
}

}  // namespace tandem::cuda
