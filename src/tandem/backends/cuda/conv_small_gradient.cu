// The weight gradient of "small" (conv_small.cu), in one launch.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/conv_small.cuh"

namespace tandem::cuda {
namespace {

constexpr int kGradientWarps = 16, kGradientThreads = 32 * kGradientWarps;
constexpr int kBlockTaps = 32;
constexpr int kMaxTaps = 256;
constexpr int kGradientBlocks = 128;  // about what the larger chips run at once

struct GradientPlan {
  int images, out_channels;
  int block_images;  // a block takes so many, one after the other in memory
  int held;          // in shared memory at once
  int groups;        // of an image's pixels
  bool x_by_four, g_by_four;
  FastDivide by_groups;
};

/// The weight gradient is a product over pixels: taps (rows) by out channels (columns). A block takes 32 taps
/// (blockIdx.y) and some images (blockIdx.x); its warps take every 16th group of 16 pixels. The sums of the warps,
/// and then those of the blocks, which the last block of a row of taps finds in `partial`, are added in order.
template <int kTiles, bool kExact>
__global__ void __launch_bounds__(kGradientThreads)
    small_weight_gradient_kernel(const Image image, const GradientPlan plan, const float* __restrict__ g,
                                 const float* __restrict__ x, float* partial, float* __restrict__ out,
                                 unsigned* counters) {
  extern __shared__ __align__(16) unsigned shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane / 4, t = lane % 4;
  const int pixels = image.pixels, first_tap = blockIdx.y * kBlockTaps;
  const int first_image = blockIdx.x * plan.block_images;
  const int end_image = ::min(plan.images, first_image + plan.block_images);
  // Rows of the product: taps q and q + 8 of two tiles of 16. Their place in the image is the same for all pixels.
  int taps[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) taps[m][h] = image.tap_offset(first_tap + 16 * m + 8 * h + q);
  float sum[2][kTiles][4] = {};
  for (int n = first_image; n < end_image; n += plan.held) {
    const int count = ::min(plan.held, end_image - n), size = count * image.size();
    const float* from = x + static_cast<int64_t>(n) * image.size();
    const float* gradient = g + static_cast<int64_t>(n) * plan.out_channels * pixels;
    Pieces pieces;
    // Reads are begun here and used after the barriers, which they overlap with.
    pieces.fetch(from, size, threadIdx.x, plan.x_by_four);
    float next[kTiles][4];
    const auto fetch = [&](int item) {  // pixels 4t … 4t + 3 of the group, channel q of each tile
      const int k = plan.by_groups.divide(item), p = (item - k * plan.groups) * kGroup + 4 * t;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int channel = 8 * j + q;
        const bool used = channel < plan.out_channels;
        const float* at = gradient + (k * plan.out_channels + channel) * pixels + p;
        if (plan.g_by_four) {
          float4 four = make_float4(0, 0, 0, 0);
          if (used && p < pixels) four = *reinterpret_cast<const float4*>(at);
          next[j][0] = four.x, next[j][1] = four.y, next[j][2] = four.z, next[j][3] = four.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) next[j][i] = used && p + i < pixels ? at[i] : 0.f;
        }
      }
    };
    const int items = count * plan.groups;
    if (warp < items) fetch(warp);
    if (n > first_image) __syncthreads();  // the images before these are read
    // The padding must be zero; the images themselves are written over it once all zeros stand.
    clear(shared, round_up(count * image.shared_size(), 4));
    __syncthreads();
    pieces.put_all<kExact>(image, shared, from, size, plan.x_by_four);
    __syncthreads();
    for (int item = warp; item < items; item += kGradientWarps) {
      unsigned now[kTiles][4];
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) now[j][i] = factor<kExact>(next[j][i]);
      if (item + kGradientWarps < items) fetch(item + kGradientWarps);
      const int k = plan.by_groups.divide(item), p = (item - k * plan.groups) * kGroup + 4 * t;
      const unsigned* held = shared + k * image.shared_size();
      // What fills up the last group of pixels must be zero, as in conv_small.cu. By masks here: a branch between reads and
      // products costs more.
      int at[4];
      unsigned mask[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        at[i] = image.pixel_offset(p + i);
        mask[i] = p + i < pixels ? ~0u : 0u;
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const unsigned *upper = held + taps[m][0], *lower = held + taps[m][1];
        const unsigned first[4] = {upper[at[0]] & mask[0], lower[at[0]] & mask[0], upper[at[1]] & mask[1],
                                   lower[at[1]] & mask[1]};
        const unsigned second[4] = {upper[at[2]] & mask[2], lower[at[2]] & mask[2], upper[at[3]] & mask[3],
                                    lower[at[3]] & mask[3]};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          multiply_add<kExact>(sum[m][j], first, {now[j][0], now[j][1]});
          multiply_add<kExact>(sum[m][j], second, {now[j][2], now[j][3]});
        }
      }
    }
  }
  // The block's sums: [tap][channel] of each warp in shared memory, then added.
  constexpr int kRow = 8 * kTiles, kSums = kBlockTaps * kRow;
  __syncthreads();
  // The images are read to the end by all warps: their memory now takes the sums.
  float* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<float2*>(sums + warp * kSums + (16 * m + 8 * h + q) * kRow + 8 * j + 2 * t) =
            make_float2(sum[m][j][2 * h], sum[m][j][2 * h + 1]);
  __syncthreads();
  const auto write = [&](int i, float value) {
    const int tap = first_tap + i / kRow, channel = i % kRow;
    if (tap < image.taps && channel < plan.out_channels) out[channel * image.taps + tap] = value;
  };
  float* row = partial + static_cast<int64_t>(blockIdx.y) * gridDim.x * kSums;  // [block][tap][channel]
  for (int i = threadIdx.x; i < kSums; i += kGradientThreads) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kGradientWarps; ++w) total += sums[w * kSums + i];
    if (gridDim.x == 1)
      write(i, total);
    else
      row[blockIdx.x * kSums + i] = total;
  }
  if (gridDim.x == 1) return;
  // The block's sums reach memory before its count does; the barrier makes that true of all its threads. The block
  // that counts last then sees everybody's, and reads them past its own cache. The order in which it adds them does
  // not depend on which block it is.
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&counters[blockIdx.y], 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  // Four neighbouring sums a thread; lane l takes blocks l, l + lanes … and the lanes are added in order.
  constexpr int kQuads = kSums / 4, kLanes = kGradientThreads / kQuads, kBatch = 8;
  const int quad = threadIdx.x % kQuads, part = threadIdx.x / kQuads;
  const auto add = [](float4& to, const float4& v) { to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w; };
  float4 total = make_float4(0, 0, 0, 0);
  const int blocks = static_cast<int>(gridDim.x);
  for (int first = part; first < blocks; first += kBatch * kLanes) {
    float4 read[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      // Past the last block the first is read again, and not added.
      const int b = first + u * kLanes;
      read[u] = __ldcg(reinterpret_cast<const float4*>(row) + (b < blocks ? b : first) * kQuads + quad);
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u)
      if (first + u * kLanes < blocks) add(total, read[u]);
  }
  auto* lanes = reinterpret_cast<float4*>(shared);
  lanes[threadIdx.x] = total;
  __syncthreads();
  // As the next launch expects to find it.
  if (threadIdx.x == 0) counters[blockIdx.y] = 0;
  if (part > 0) return;
#pragma unroll
  for (int l = 1; l < kLanes; ++l) add(total, lanes[l * kQuads + quad]);
  write(4 * quad, total.x);
  write(4 * quad + 1, total.y);
  write(4 * quad + 2, total.z);
  write(4 * quad + 3, total.w);
}

/// What the kernel is launched with, but for x_by_four and g_by_four, which depend on addresses.
struct Launch {
  Image image;
  GradientPlan plan;
  int tiles, blocks, tap_blocks, shared_bytes;
};

Image image_of(const Convolution& s) {
  return make_image(s.c, s.in[1], s.in[2], s.padding[1], s.padding[2], s.stride[1], s.kernel[1], s.kernel[2],
                    s.out[1], s.out[2]);
}

/// Images are shared out evenly over about kGradientBlocks blocks. As many are held at once as 48 KiB take; the sums
/// of the warps need the same memory afterwards.
Launch launch_of(const Convolution& s) {
  Launch l;
  l.image = image_of(s);
  l.tiles = tiles_of(s.o);
  l.tap_blocks = (l.image.taps + kBlockTaps - 1) / kBlockTaps;
  GradientPlan& plan = l.plan;
  plan.images = static_cast<int>(s.n);
  plan.out_channels = static_cast<int>(s.o);
  l.blocks = kGradientBlocks / l.tap_blocks;
  plan.block_images = (plan.images + l.blocks - 1) / l.blocks;
  l.blocks = (plan.images + plan.block_images - 1) / plan.block_images;
  plan.held = (48 << 10) / (4 * l.image.shared_size());
  if (plan.held > plan.block_images) plan.held = plan.block_images;
  if (plan.held < 1) plan.held = 1;
  plan.groups = (l.image.pixels + kGroup - 1) / kGroup;
  plan.x_by_four = plan.g_by_four = false;
  plan.by_groups = FastDivide(static_cast<uint32_t>(plan.groups));
  l.shared_bytes = 4 * round_up(plan.held * l.image.shared_size(), 4);
  const int sums =
      4 * kGradientWarps * kBlockTaps * 8 * l.tiles;  // at least what the sum over the blocks needs
  if (sums > l.shared_bytes) l.shared_bytes = sums;
  return l;
}

/// The blocks' sums, where there are several.
size_t partial_bytes(const Launch& l) {
  return l.blocks > 1 ? sizeof(float) * kBlockTaps * 8 * static_cast<size_t>(l.tiles) *
                            static_cast<size_t>(l.tap_blocks) * static_cast<size_t>(l.blocks)
                      : 0;
}

template <int kTiles, bool kExact>
void run_weight_gradient(const ConvCall& call, const Launch& l) {
  if (l.shared_bytes > 40 << 10)
    check(cudaFuncSetAttribute(small_weight_gradient_kernel<kTiles, kExact>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, l.shared_bytes),
          "cudaFuncSetAttribute");
  GradientPlan plan = l.plan;
  plan.x_by_four = reads_by_four(call.b, l.image.size());
  plan.g_by_four = reads_by_four(call.a, l.image.pixels);
  const size_t bytes = partial_bytes(l);
  float* partial = bytes ? static_cast<float*>(call.args.workspace(bytes)) : nullptr;
  const dim3 grid(static_cast<unsigned>(l.blocks), static_cast<unsigned>(l.tap_blocks));
  small_weight_gradient_kernel<kTiles, kExact>
      <<<grid, kGradientThreads, static_cast<size_t>(l.shared_bytes), stream_of(call.args)>>>(
          l.image, plan, static_cast<const float*>(call.a), static_cast<const float*>(call.b), partial,
          static_cast<float*>(call.out), thread_scratch(state_of(call.args)).counters());
  launched("small_weight_gradient_kernel");
}

template <bool kExact>
void run_tiles(const ConvCall& call, const Launch& l) {
  if (l.tiles == 1) return run_weight_gradient<1, kExact>(call, l);
  if (l.tiles == 2) return run_weight_gradient<2, kExact>(call, l);
  run_weight_gradient<4, kExact>(call, l);
}

}  // namespace

const char* small_weight_gradient_can(const ConvProblem& p) {
  if (p.shape.o > 32) return "it computes the weight gradient of up to 32 output channels only.";
  const int taps = image_of(p.shape).taps;
  if (taps > kMaxTaps || taps == 0)
    return "it computes the weight gradient of 1 to 256 weights per channel only.";
  return launch_of(p.shape).shared_bytes > kMaxShared ? kNoRoom : nullptr;
}

size_t small_weight_gradient_workspace(const ConvProblem& p) { return partial_bytes(launch_of(p.shape)); }

void small_weight_gradient(const ConvCall& call) {
  (call.problem.tf32 ? run_tiles<false> : run_tiles<true>)(call, launch_of(call.problem.shape));
}

}  // namespace tandem::cuda
