// "direct": sums of output channels × pixels stay in registers while a list of taps walks over a padded copy of one image.
// Here the forward pass; conv_input.cpp and conv_weight.cpp have the gradients.
#include "tandem/backends/cpu/kernels/conv_taps.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

/// Taps run by kernel row first, so that the kernel rows that lie in the padding above or below an output row are the
/// ends of its range of taps. A tile leaves out what no row of it needs. A task owns some blocks of output channels of
/// one image and group; each of its sums is one chain over the taps.
template <class S>
void forward(const ConvShape& s, const S* x, const S* weight, const S* bias, S* y) {
  using T = Accumulator<S>;
  const PhasePlanes planes(s, kLanes<T>);
  const int64_t cg = s.group_in(), og = s.group_out(), taps = s.taps();
  Problem<S> p{};
  p.channels = og;
  p.rows = s.oh;
  p.columns = s.ow;
  p.pitch = planes.pitch;
  p.taps = taps;
  p.out_plane = s.oh * s.ow;
  p.out_row = s.ow;
  p.out_column = 1;

  const int64_t group_weights = p.blocks() * p.block_rows() * taps;
  T* weights = scratch_of<T>(ScratchSlot::conv_weights, s.groups * group_weights + kLanes<T>);
  // One request for three lists: offsets by tap, ranges (two numbers) by output row, and 0, 1, 2 … as kernel rows and
  // columns.
  int64_t* offsets = scratch_of<int64_t>(ScratchSlot::conv_tile, taps + 2 * s.oh + s.kh + s.kw);
  TapRange* ranges = reinterpret_cast<TapRange*>(offsets + taps);
  int64_t* all = offsets + taps + 2 * s.oh;  // 0, 1, 2 …
  for (int64_t i = 0; i < s.kh || i < s.kw; ++i) all[i] = i;
  // Tap t = (kernel row, channel, kernel column).
  for (int64_t i = 0, t = 0; i < s.kh; ++i)
    for (int64_t c = 0; c < cg; ++c)
      for (int64_t j = 0; j < s.kw; ++j)
        offsets[t++] = c * planes.channel() + planes.offset(i * s.dilation_h, j * s.dilation_w);
  for (int64_t i = 0; i < s.oh; ++i) {
    int64_t begin = 0, end = s.kh;
    while (begin < end && i * s.stride_h + begin * s.dilation_h < s.padding_h) ++begin;
    while (end > begin && i * s.stride_h + (end - 1) * s.dilation_h - s.padding_h >= s.h) --end;
    ranges[i] = {begin * cg * s.kw, end * cg * s.kw};
  }
  parallel_for(s.groups * p.blocks(), [&](int64_t chunk) {
    const int64_t g = chunk / p.blocks(), first = chunk % p.blocks() * p.block_rows();
    if (first < og)
      pack_block(weights + g * group_weights + first * taps, weight + (g * og + first) * taps, s, all, s.kh,
                 all, s.kw, cg, s.kh * s.kw, og - first < p.block_rows() ? og - first : p.block_rows(), taps,
                 p.block_rows());
  });
  p.offsets = offsets;
  p.ranges = ranges;

  const int64_t sources = s.n * s.groups, split = channel_split(sources, p.blocks());
  parallel_for(sources * split, [&](int64_t chunk) {
    const int64_t n = chunk / split / s.groups, g = chunk / split % s.groups;
    const S* image = x + (n * s.groups + g) * cg * s.h * s.w;
    const T* source = nullptr;
    // Where nothing is padded, strided or converted the image itself is the source.
    if constexpr (std::is_same_v<S, T>) source = planes.is_plain(s) ? image : nullptr;
    if (!source) {
      T* copy = scratch_of<T>(ScratchSlot::conv_source, cg * planes.channel());
      for (int64_t c = 0; c < cg; ++c) planes.fill(copy + c * planes.channel(), image + c * s.h * s.w, s);
      source = copy;
    }
    Problem<S> mine = p;
    mine.weights = weights + g * group_weights;
    mine.bias = bias ? bias + g * og : nullptr;
    for (int64_t block = chunk % split; block < p.blocks(); block += split)
      run_channels(mine, source, block, y + (n * s.groups + g) * og * p.out_plane);
  });
}

class DirectConv final : public ConvImplementation {
 public:
  std::string name() const override { return "direct"; }
  const char* can(const ConvProblem&) const override { return nullptr; }
  bool is_fixed() const override { return true; }
  void run(const ConvCall& call) const override {
    const ConvShape& s = call.problem.shape;
    visit_floating(call.problem.dtype, [&](auto zero) {
      using S = decltype(zero);
      const S *a = static_cast<const S*>(call.a), *b = static_cast<const S*>(call.b);
      S* out = static_cast<S*>(call.out);
      switch (call.problem.op) {
        case ConvOp::forward:
          return forward(s, a, b, static_cast<const S*>(call.bias), out);
        case ConvOp::input_gradient:
          return conv_direct_input_gradient(s, a, b, out);
        case ConvOp::weight_gradient:
          break;
      }
      conv_direct_weight_gradient(s.with_joined_rows(), a, b, out);
    });
  }
};

}  // namespace

const ConvImplementation& direct_conv() {
  static constexpr DirectConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
