// "bf16 products": convolution of bf16 images as products by the processor's bf16 instructions (bf16_kernel()). The pixels that the taps
// of a stripe of output pixels reach are gathered into a matrix (taps, pixels); the weights times it are the output, and
// the gradient times its transpose is that of the weights. The input gradient is a convolution of g for each phase of
// the input (conv_input.cpp says how), so it is the same product with other taps.
// loops: plain
#include <algorithm>
#include <cstring>
#include <vector>

#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/kernels/conv.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kFewestRows = 24;           // from where on these were faster than the direct kernel
constexpr int64_t kStripeElements = 1 << 18;  // of a gathered matrix, about,
constexpr int64_t kFewestPixels = 256;  // with at least so many pixels, which share one packing of weights,
constexpr int64_t kMostPixels = 1024;   // and at most so many
constexpr int64_t kWantedBlocks = 16;   // of stripes, whose weight gradients are summed apart,
constexpr int64_t kPartialBytes = 32 << 20;  // where their sums take no more than this

/// One axis of taps: output p and tap t meet at p * step + shift[t] of the source, padding where that is outside.
struct TapAxis {
  int64_t source, outputs, step;
  std::vector<int64_t> shift;

  int64_t taps() const { return static_cast<int64_t>(shift.size()); }
};

TapAxis forward_axis(int64_t source, int64_t outputs, const WindowAxis& along) {
  TapAxis axis{source, outputs, along.stride, {}};
  for (int64_t k = 0; k < along.kernel; ++k) axis.shift.push_back(k * along.dilation - along.padding);
  return axis;
}

/// The inputs x with (x + padding) % stride == phase, as outputs of a convolution of the gradient.
struct PhaseAxis {
  TapAxis taps;
  std::vector<int64_t> kernel;  // the kernel position of each tap
  int64_t first;                // x of the first

  PhaseAxis(int64_t input, int64_t gradient, const WindowAxis& along, int64_t phase)
      : taps{gradient, 0, 1, {}}, first(phase - along.padding) {
    // Input first + i · stride, with i counted from the first that is inside, is reached by kernel position k from
    // output i + skipped - (k · dilation - phase) / stride.
    const int64_t skipped = first < 0 ? ceil_div(-first, along.stride) : 0;
    first += skipped * along.stride;
    taps.outputs = first < input ? ceil_div(input - first, along.stride) : 0;
    for (int64_t k = 0; k < along.kernel; ++k)
      if (k * along.dilation % along.stride == phase) {
        kernel.push_back(k);
        taps.shift.push_back(skipped - (k * along.dilation - phase) / along.stride);
      }
  }
};

/// to[i] = from[i] for n >= kLength elements, kLength at a time; the last ones may overlap those before.
template <int kLength>
[[gnu::always_inline]] inline void copy_by(BFloat16* to, const BFloat16* from, int64_t n) {
  for (int64_t i = 0; i + kLength <= n; i += kLength)
    std::memcpy(static_cast<void*>(to + i), from + i, kLength * sizeof(*to));
  std::memcpy(static_cast<void*>(to + n - kLength), from + n - kLength, kLength * sizeof(*to));
}

/// to[i] = from[i * step]: rows are short, so a call of memcpy for each would take longer than the copy.
[[gnu::always_inline]] inline void copy_pixels(BFloat16* to, const BFloat16* from, int64_t n, int64_t step) {
  if (step == 1 && n >= 8) return copy_by<8>(to, from, n);
  if (step == 1 && n >= 4) return copy_by<4>(to, from, n);
  for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
}

/// A run of output pixels that lie in one row.
struct Run {
  int64_t image, row, begin, end;
  int64_t at;  // the pixels of the stripe before it
};

/// Output pixels `first` … `first` + `count` - 1 of all images, counted through.
struct Stripe {
  int64_t first, count;
  std::vector<Run> runs;

  Stripe(int64_t first, int64_t count, int64_t high, int64_t wide) : first(first), count(count) {
    Run run{first / wide / high, first / wide % high, first % wide, 0, 0};
    while (run.at < count) {
      run.end = std::min(wide, run.begin + count - run.at);
      runs.push_back(run);
      run.at += run.end - run.begin;
      run.begin = 0;
      if (++run.row == high) {
        run.row = 0;
        ++run.image;
      }
    }
  }
  bool is_in_one_image() const { return runs.front().image == runs.back().image; }
};

/// Sources of one group of channels, and the taps that reach into them.
struct Gather {
  const BFloat16* source;   // channel 0 of image 0
  int64_t channels, image;  // image: from one to the next
  const TapAxis &down, &across;

  int64_t depth() const { return channels * down.taps() * across.taps(); }
  int64_t pixels_of_image() const { return down.outputs * across.outputs; }
  /// to (depth, stripe.count)
  void fill(BFloat16* to, const Stripe& stripe) const {
    const int64_t plane = down.source * across.source;
    for (int64_t c = 0; c < channels; ++c)
      for (const int64_t shift_down : down.shift)
        for (const int64_t shift : across.shift) {
          fill_tap(to, source + c * plane, shift_down, shift, stripe.runs);
          to += stripe.count;
        }
  }
  void fill_tap(BFloat16* to, const BFloat16* channel, int64_t shift_down, int64_t shift,
                const std::vector<Run>& runs) const {
    // The output columns whose pixel is inside.
    const int64_t first = shift < 0 ? ceil_div(-shift, across.step) : 0;
    const int64_t last = shift < across.source ? ceil_div(across.source - shift, across.step) : 0;
    for (const Run& run : runs) {
      const int64_t h = run.row * down.step + shift_down;
      const bool is_inside = h >= 0 && h < down.source;
      const int64_t begin = is_inside ? std::clamp(first, run.begin, run.end) : run.end;
      const int64_t end = std::clamp(last, begin, run.end);
      BFloat16* row = to + run.at - run.begin;
      if (run.begin < begin)
        std::memset(static_cast<void*>(row + run.begin), 0, sizeof(*to) * (begin - run.begin));
      if (begin < end)
        copy_pixels(row + begin,
                    channel + run.image * image + h * across.source + begin * across.step + shift,
                    end - begin, across.step);
      if (end < run.end) std::memset(static_cast<void*>(row + end), 0, sizeof(*to) * (run.end - end));
    }
  }
};

/// How many output pixels are gathered together: whole rows, where these are short.
int64_t stripe_pixels(int64_t depth, int64_t wide) {
  const int64_t pixels =
      std::clamp(kStripeElements / std::max<int64_t>(depth, 1), kFewestPixels, kMostPixels);
  return wide < kMostPixels ? ceil_div(pixels, wide) * wide : pixels;
}

/// Where a convolution's outputs go: channel 0, output (0, 0) of image 0.
struct Output {
  BFloat16* data;
  int64_t channels;
  int64_t image, plane, row, column;  // from one to the next
  const BFloat16* bias;               // one per channel, or null
};

/// Writes the outputs of `images` images: weights (channels of the output, depth) times what is gathered.
void product(const Bf16Kernel& kernel, const Gather& gather, int64_t images, const BFloat16* weights,
             const Output& out) {
  const int64_t wide = gather.across.outputs, plane = gather.pixels_of_image(), depth = gather.depth();
  const int64_t all = images * plane, together = stripe_pixels(depth, wide);
  // A task owns all channels of its stripe of pixels. How pixels are cut into stripes depends on the shape alone, and
  // a sum over the taps lies in one product.
  parallel_ranges(all, together, [&](int64_t first, int64_t end) {
    const Stripe stripe(first, end - first, gather.down.outputs, wide);
    BFloat16* columns = scratch_of<BFloat16>(ScratchSlot::conv_source, depth * stripe.count);
    gather.fill(columns, stripe);
    const auto multiply = [&](BFloat16* to, int64_t leading) {
      gemm_bf16(kernel, out.channels, stripe.count, depth, {weights, depth, 1}, {columns, stripe.count, 1},
                {to, nullptr, leading, false, out.bias});
    };
    // Pixels that lie in a row in one image are written in place; else by way of a tile, each run to its place.
    const bool is_dense = out.column == 1 && out.row == wide;
    if (is_dense && stripe.is_in_one_image())
      return multiply(out.data + first / plane * out.image + first % plane, out.plane);
    BFloat16* tile = scratch_of<BFloat16>(ScratchSlot::conv_tile, out.channels * stripe.count);
    multiply(tile, stripe.count);
    for (int64_t c = 0; c < out.channels; ++c)
      for (const Run& run : stripe.runs) {
        const BFloat16* from = tile + c * stripe.count + run.at - run.begin;
        BFloat16* to = out.data + run.image * out.image + c * out.plane + run.row * out.row;
        for (int64_t i = run.begin; i < run.end; ++i) to[i * out.column] = from[i];
      }
  });
}

WindowAxis down_of(const ConvShape& s) { return {s.kh, s.stride_h, s.padding_h, s.dilation_h}; }
WindowAxis across_of(const ConvShape& s) { return {s.kw, s.stride_w, s.padding_w, s.dilation_w}; }

void forward(const ConvShape& s, const BFloat16* x, const BFloat16* weight, const BFloat16* bias,
             BFloat16* y) {
  const Bf16Kernel& kernel = *bf16_kernel();
  const TapAxis down = forward_axis(s.h, s.oh, down_of(s)), across = forward_axis(s.w, s.ow, across_of(s));
  const int64_t cg = s.group_in(), og = s.group_out(), plane = s.oh * s.ow;
  for (int64_t g = 0; g < s.groups; ++g)
    product(kernel, {x + g * cg * s.h * s.w, cg, s.c * s.h * s.w, down, across}, s.n,
            weight + g * og * s.taps(),
            {y + g * og * plane, og, s.o * plane, plane, s.ow, 1, bias ? bias + g * og : nullptr});
}

/// Each phase writes inputs of its own, stride apart, so that all phases together write every input once. A phase
/// without taps still writes its inputs: the product over nothing is zero.
void input_gradient(const ConvShape& s, const BFloat16* g, const BFloat16* weight, BFloat16* dx) {
  const Bf16Kernel& kernel = *bf16_kernel();
  const int64_t cg = s.group_in(), og = s.group_out(), plane = s.h * s.w;
  for (int64_t phase = 0; phase < s.stride_h * s.stride_w; ++phase) {
    const PhaseAxis down(s.h, s.oh, down_of(s), phase / s.stride_w);
    const PhaseAxis across(s.w, s.ow, across_of(s), phase % s.stride_w);
    if (down.taps.outputs * across.taps.outputs == 0) continue;
    std::vector<int64_t> taps;  // of the phase, within a kernel
    for (const int64_t i : down.kernel)
      for (const int64_t j : across.kernel) taps.push_back(i * s.kw + j);
    for (int64_t group = 0; group < s.groups; ++group) {
      const Gather gather{g + group * og * s.oh * s.ow, og, s.o * s.oh * s.ow, down.taps, across.taps};
      BFloat16* weights = scratch_of<BFloat16>(ScratchSlot::conv_weights, cg * gather.depth());
      parallel_for(cg, [&](int64_t c) {
        BFloat16* to = weights + c * gather.depth();
        for (int64_t o = 0; o < og; ++o) {
          const BFloat16* from = weight + ((group * og + o) * cg + c) * s.kh * s.kw;
          for (const int64_t tap : taps) *to++ = from[tap];
        }
      });
      product(kernel, gather, s.n, weights,
              {dx + group * cg * plane + down.first * s.w + across.first, cg, s.c * plane, plane,
               s.stride_h * s.w, s.stride_w, nullptr});
    }
  }
}

/// Stripes go to blocks by the shape, never by the threads. A block adds its stripes up in f32 in order; then the
/// blocks are added in order and rounded to bf16 once.
void weight_gradient(const ConvShape& s, const BFloat16* g, const BFloat16* x, BFloat16* dw) {
  const Bf16Kernel& kernel = *bf16_kernel();
  const TapAxis down = forward_axis(s.h, s.oh, down_of(s)), across = forward_axis(s.w, s.ow, across_of(s));
  const int64_t cg = s.group_in(), og = s.group_out(), taps = s.taps(), size = og * taps;
  const int64_t plane = s.oh * s.ow, all = s.n * plane, together = stripe_pixels(taps, s.ow);
  const int64_t stripes = ceil_div(all, together);
  const int64_t fitting =
      std::clamp<int64_t>(kPartialBytes / (size * int64_t{sizeof(float)}), 1, kWantedBlocks);
  const int64_t each = ceil_div(stripes, fitting), blocks = ceil_div(stripes, each);
  for (int64_t group = 0; group < s.groups; ++group) {
    const Gather gather{x + group * cg * s.h * s.w, cg, s.c * s.h * s.w, down, across};
    float* partial = scratch_of<float>(ScratchSlot::conv_weights, blocks * size);
    parallel_for(blocks, [&](int64_t block) {
      for (int64_t i = block * each; i < std::min(stripes, (block + 1) * each); ++i) {
        const Stripe stripe(i * together, std::min(together, all - i * together), s.oh, s.ow);
        BFloat16* columns = scratch_of<BFloat16>(ScratchSlot::conv_source, taps * stripe.count);
        gather.fill(columns, stripe);
        const BFloat16* own = g + group * og * plane;
        // Rows of g are adjacent only within an image: a stripe over several is copied together.
        Bf16Matrix gradient{own + stripe.first / plane * s.o * plane + stripe.first % plane, plane, 1};
        if (!stripe.is_in_one_image()) {
          BFloat16* tile = scratch_of<BFloat16>(ScratchSlot::conv_tile, og * stripe.count);
          for (int64_t o = 0; o < og; ++o)
            for (const Run& run : stripe.runs)
              copy_pixels(tile + o * stripe.count + run.at,
                          own + (run.image * s.o + o) * plane + run.row * s.ow + run.begin,
                          run.end - run.begin, 1);
          gradient = {tile, stripe.count, 1};
        }
        gemm_bf16(kernel, og, taps, stripe.count, gradient, {columns, 1, stripe.count},
                  {nullptr, partial + block * size, taps, i > block * each});
      }
    });
    parallel_ranges(size, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t block = 1; block < blocks; ++block)
        for (int64_t i = begin; i < end; ++i) partial[i] += partial[block * size + i];
      convert(dw + group * size + begin, partial + begin, end - begin);
    });
  }
}

class Bf16Conv final : public ConvImplementation {
 public:
  std::string name() const override { return "bf16 products"; }
  const char* can(const ConvProblem& p) const override {
    if (p.dtype != DType::bf16) return "it computes in bf16 only.";
    return bf16_kernel() ? nullptr
                         : "it needs a processor with bf16 instructions, and TANDEM_BF16 that allows them.";
  }
  /// Where enough rows of the product share what is gathered, and sums are long enough.
  bool pays(const ConvProblem& p) const override {
    const ConvShape& s = p.shape;
    const int64_t rows = p.op == ConvOp::input_gradient ? s.group_in() : s.group_out();
    const int64_t sums = p.op == ConvOp::forward          ? s.taps()
                         : p.op == ConvOp::input_gradient ? s.group_out() * s.kh * s.kw
                                                          : s.n * s.oh * s.ow;
    return rows >= kFewestRows && sums >= kShallowestBf16;
  }
  void run(const ConvCall& call) const override {
    const ConvShape& s = call.problem.shape;
    const auto *a = static_cast<const BFloat16*>(call.a), *b = static_cast<const BFloat16*>(call.b);
    auto* out = static_cast<BFloat16*>(call.out);
    if (call.problem.op == ConvOp::forward)
      return forward(s, a, b, static_cast<const BFloat16*>(call.bias), out);
    if (call.problem.op == ConvOp::input_gradient) return input_gradient(s, a, b, out);
    weight_gradient(s.with_joined_rows(), a, b, out);
  }
};

}  // namespace

const ConvImplementation& bf16_conv() {
  static constexpr Bf16Conv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
