// The input gradient by the direct kernel. A padded input row y = h + padding is y = i * stride + phase, and
// kernel row k reaches it from output row i - q, q = (k * dilation - phase) / stride, for the k with
// k * dilation ≡ phase (mod stride); columns likewise. So each phase of the input is a convolution of g with
// stride 1 by taps of its own, and no product with an inserted zero is computed.
#include <new>

#include "tandem/backends/cpu/kernels/conv_taps.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

/// The zero-bordered copy of g that all phases read.
struct PaddedGradient {
  int64_t above, left;  // zeros before g
  int64_t rows, pitch;

  PaddedGradient(const ConvShape& s, int lanes)
      : above(s.reach_h() / s.stride_h),
        left(s.reach_w() / s.stride_w),
        rows(above + (s.padding_h + s.h - 1) / s.stride_h + 1),
        pitch(left + (s.padding_w + s.w - 1) / s.stride_w + 1 + lanes) {}
  int64_t plane() const { return rows * pitch; }
  /// Copies `channels` planes of g. Rows and columns that reach no input are left out.
  template <class T, class S>
  void fill(T* to, const S* g, int64_t channels, const ConvShape& s) const {
    std::memset(static_cast<void*>(to), 0, static_cast<size_t>(channels * plane()) * sizeof(T));
    const int64_t high = s.oh < rows - above ? s.oh : rows - above;
    const int64_t wide = s.ow < pitch - left ? s.ow : pitch - left;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < high; ++i)
        copy_row(to + c * plane() + (above + i) * pitch + left, g + (c * s.oh + i) * s.ow, wide, 1);
  }
};

/// One axis of one phase: its pixels are i = first … first + count - 1, its taps kernel positions k[0 … taps).
struct PhaseAxis {
  int64_t phase, first = 0, count = 0, taps = 0;
  int64_t* k;
  WindowAxis along;

  PhaseAxis(const WindowAxis& along, int64_t phase, int64_t size, int64_t* room)
      : phase(phase), k(room), along(along) {
    first = along.padding > phase ? ceil_div(along.padding - phase, along.stride) : 0;
    const int64_t last = along.padding + size - 1 - phase;
    if (last >= 0 && last / along.stride >= first) count = last / along.stride - first + 1;
    for (int64_t i = 0; i < along.kernel; ++i)
      if (i * along.dilation % along.stride == phase) k[taps++] = i;
  }
  /// How many rows (columns) before pixel i tap t reads.
  int64_t back(int64_t t) const { return (k[t] * along.dilation - phase) / along.stride; }
};

/// Everything about one phase that is the same for all images.
template <class S>
struct Phase {
  Problem<S> problem;
  int64_t source;  // of its first pixel, in the padded gradient
  int64_t out;     // of its first pixel, in a plane of the input
};

}  // namespace

/// First all phases are prepared and their weights packed; then a task takes one image of one group, or some of its
/// blocks of channels, through all phases. Phases write different inputs, and every input belongs to one phase.
template <class S>
void conv_direct_input_gradient(const ConvShape& s, const S* g, const S* weight, S* dx) {
  using T = Accumulator<S>;
  const int64_t cg = s.group_in(), og = s.group_out(), phases = s.stride_h * s.stride_w;
  const PaddedGradient padded(s, kLanes<T>);
  Problem<S> common{};
  common.channels = cg;
  common.pitch = padded.pitch;
  common.out_plane = s.h * s.w;
  common.out_row = s.stride_h * s.w;
  common.out_column = s.stride_w;
  const int64_t blocks = common.blocks(), block_rows = common.block_rows();

  // One request holds, for every phase, its record, offsets, ranges and lists of kernel rows and columns. All
  // phases together have as many taps as the kernel.
  const int64_t record = static_cast<int64_t>(sizeof(Phase<S>) / sizeof(int64_t)) + 1;
  int64_t* words =
      scratch_of<int64_t>(ScratchSlot::conv_tile,
                          phases * (record + 2 * (s.h / s.stride_h + 1) + s.kh + s.kw) + og * s.kh * s.kw);
  auto* list = reinterpret_cast<Phase<S>*>(words);
  words += phases * record;
  const int64_t all_weights = blocks * block_rows * og * s.kh * s.kw;  // of a group
  T* weights = scratch_of<T>(ScratchSlot::conv_weights, s.groups * all_weights + kLanes<T>);
  int64_t taps_before = 0;
  for (int64_t f = 0; f < phases; ++f) {
    const PhaseAxis down({s.kh, s.stride_h, s.padding_h, s.dilation_h}, f / s.stride_w, s.h, words);
    const PhaseAxis across({s.kw, s.stride_w, s.padding_w, s.dilation_w}, f % s.stride_w, s.w, words + s.kh);
    words += s.kh + s.kw;
    Phase<S>& phase = *new (list + f) Phase<S>{common, 0, 0};
    phase.source = down.first * padded.pitch + across.first;
    phase.out = (down.first * s.stride_h + down.phase - s.padding_h) * s.w + across.first * s.stride_w +
                across.phase - s.padding_w;
    Problem<S>& p = phase.problem;
    p.rows = down.count;
    p.columns = across.count;
    p.taps = down.taps * og * across.taps;
    p.offsets = words;
    // Taps by kernel row, then output channel, then kernel column: as pack_block packs the weights.
    for (int64_t i = 0; i < down.taps; ++i)
      for (int64_t o = 0; o < og; ++o)
        for (int64_t j = 0; j < across.taps; ++j)
          *words++ = o * padded.plane() + (padded.above - down.back(i)) * padded.pitch + padded.left -
                     across.back(j);
    auto* ranges = reinterpret_cast<TapRange*>(words);
    words += 2 * p.rows;
    p.ranges = ranges;
    for (int64_t r = 0; r < p.rows; ++r) {
      // Rows of g that do not exist: past its end for the first taps, before its beginning for the last.
      int64_t begin = 0, end = down.taps;
      while (begin < end && down.first + r - down.back(begin) >= s.oh) ++begin;
      while (end > begin && down.first + r - down.back(end - 1) < 0) --end;
      ranges[r] = {begin * og * across.taps, end * og * across.taps};
    }
    // Phases follow each other within a group's weights; a group is all_weights further.
    p.weights = weights + taps_before * blocks * block_rows;
    taps_before += p.taps;
    parallel_for(s.groups * blocks, [&](int64_t chunk) {
      const int64_t group = chunk / blocks, first = chunk % blocks * block_rows;
      if (first >= cg) return;
      T* to = const_cast<T*>(p.weights) + group * all_weights + first * p.taps;
      pack_block(to, weight + (group * og * cg + first) * s.kh * s.kw, s, down.k, down.taps, across.k,
                 across.taps, og, cg * s.kh * s.kw, cg - first < block_rows ? cg - first : block_rows,
                 s.kh * s.kw, block_rows);
    });
  }

  const int64_t sources = s.n * s.groups, split = channel_split(sources, blocks);
  parallel_for(sources * split, [&](int64_t chunk) {
    const int64_t source_index = chunk / split, group = source_index % s.groups;
    T* source = scratch_of<T>(ScratchSlot::conv_source, og * padded.plane());
    padded.fill(source, g + source_index * og * s.oh * s.ow, og, s);
    S* out = dx + source_index * cg * common.out_plane;
    for (int64_t f = 0; f < phases; ++f) {
      Problem<S> p = list[f].problem;
      if (p.rows * p.columns == 0) continue;
      p.weights += group * all_weights;
      for (int64_t block = chunk % split; block < blocks; block += split)
        run_channels(p, source + list[f].source, block, out + list[f].out);
    }
  });
}

template void conv_direct_input_gradient(const ConvShape&, const double*, const double*, double*);
template void conv_direct_input_gradient(const ConvShape&, const float*, const float*, float*);
template void conv_direct_input_gradient(const ConvShape&, const BFloat16*, const BFloat16*, BFloat16*);
template void conv_direct_input_gradient(const ConvShape&, const Float16*, const Float16*, Float16*);

}  // namespace tandem::cpu::TD_ISA
