// The weight gradient: dw(o, t) = sum over images and pixels of g(n, o, i, j) * x(n, offset(t) + i * pitch + j).
// A tile of output channels × taps stays in registers, one vector of pixels a sum, while the loop walks over
// the pixels of a block of images. Blocks of images are fixed by the shape; their sums are added in order.
#include "tandem/backends/cpu/kernels/conv.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int kMaxChannels = kVectorRegisters == 32 ? 4 : 3;  // output channels of a tile
constexpr int kMaxTaps = 8;                                   // taps of a tile
constexpr int64_t kWantedBlocks = 32;                         // blocks of images
constexpr int64_t kPartialBytes = 32 << 20;                   // all partial sums together, where possible
constexpr int64_t kCacheBytes = 256 << 10;                    // images that are walked over together
constexpr int64_t kWantedChunks = 16;
constexpr int64_t kShortRow = 4;     // vectors of a row below which planes are walked over as one row,
constexpr int64_t kWorthCopies = 4;  // where at least so many output channels share the copies of x

/// Taps of a tile with so many channels: the sums, and one vector for each channel and tap, fit the registers.
constexpr int taps_for(int channels) {
  const int fit = (kVectorRegisters - 1 - channels) / (channels + 1);
  return fit < kMaxTaps ? fit : kMaxTaps;
}

/// The pixels that a tile walks over.
template <class T>
struct Pixels {
  const T* g;                     // channel 0 of the tile, image 0
  const T* x;                     // image 0
  int64_t images, rows, vectors;  // vectors a row
  int64_t g_image, g_plane, g_pitch;
  int64_t x_image, x_pitch;
};

/// out[c * out_stride + t] (+)= the sums of kChannels × kTaps products.
/// Lane l of a sum takes the pixels l, l + kLanes … of each row; the lanes are added at the end, by sum_each.
template <class T, int kChannels, int kTaps>
void run_tile(const Pixels<T>& p, const int64_t* offsets, T* out, int64_t out_stride, bool add) {
  constexpr int kL = kLanes<T>;
  Vec<T> sums[kChannels][kTaps] = {};
  const T* g[kChannels];
  const T* x[kTaps];
  for (int64_t image = 0; image < p.images; ++image) {
#pragma GCC unroll 16
    for (int c = 0; c < kChannels; ++c) g[c] = p.g + image * p.g_image + c * p.g_plane;
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) x[t] = p.x + image * p.x_image + offsets[t];
    for (int64_t row = 0; row < p.rows; ++row) {
      int64_t gi = row * p.g_pitch, xi = row * p.x_pitch;
      for (int64_t v = 0; v < p.vectors; ++v, gi += kL, xi += kL) {
        Vec<T> gv[kChannels];
#pragma GCC unroll 16
        for (int c = 0; c < kChannels; ++c) gv[c] = load(g[c] + gi);
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t) {
          const Vec<T> xv = load(x[t] + xi);
#pragma GCC unroll 16
          for (int c = 0; c < kChannels; ++c) sums[c][t] = fma(gv[c], xv, sums[c][t]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChannels; ++c) sum_each<T, kTaps>(out + c * out_stride, sums[c], add);
}

template <class T>
using TileFn = void (*)(const Pixels<T>&, const int64_t*, T*, int64_t, bool);

/// A tile of more taps than fit is never asked for: fit() only keeps it from being compiled.
template <class T, int kChannels>
TileFn<T> tile_with_taps(int64_t taps) {
  constexpr int kMost = taps_for(kChannels);
  constexpr auto fit = [](int n) { return n < kMost ? n : kMost; };
  switch (taps) {
    case 1:
      return run_tile<T, kChannels, fit(1)>;
    case 2:
      return run_tile<T, kChannels, fit(2)>;
    case 3:
      return run_tile<T, kChannels, fit(3)>;
    case 4:
      return run_tile<T, kChannels, fit(4)>;
    case 5:
      return run_tile<T, kChannels, fit(5)>;
    case 6:
      return run_tile<T, kChannels, fit(6)>;
    case 7:
      return run_tile<T, kChannels, fit(7)>;
    default:
      return run_tile<T, kChannels, fit(8)>;
  }
}

template <class T>
TileFn<T> tile_for(int64_t channels, int64_t taps) {
  switch (channels) {
    case 1:
      return tile_with_taps<T, 1>(taps);
    case 2:
      return tile_with_taps<T, 2>(taps);
    case 3:
      return tile_with_taps<T, 3>(taps);
    default:
      return tile_with_taps<T, kMaxChannels>(taps);
  }
}

/// `size` cut into equal parts of at most `most`; part i is [begin(i), begin(i + 1)).
struct Parts {
  int64_t size, count;
  Parts(int64_t size, int64_t most) : size(size), count(ceil_div(size, most)) {}
  int64_t begin(int64_t i) const { return i * size / count; }
  int64_t width(int64_t i) const { return begin(i + 1) - begin(i); }
};

/// How the pixels of a plane are walked over: row by row, each row of g padded with zeros to whole vectors; or,
/// where rows are short and a plane is a whole number of vectors, as one row of all pixels. The latter needs
/// a copy of x for each kernel column, so that the pixels of a tap are adjacent over the rows too.
template <class S>
struct PixelLayout {
  using T = Accumulator<S>;
  const ConvShape& s;
  PhasePlanes planes;
  bool flat;
  int64_t rows, wide;  // of g: rows a plane, elements a row
  int64_t x_channel;   // elements that a channel of x takes

  explicit PixelLayout(const ConvShape& s)
      : s(s),
        planes(s, kLanes<T>),
        flat(s.oh * s.ow % kLanes<T> == 0 && s.group_out() >= kWorthCopies &&
             (s.ow % kLanes<T> != 0 || s.ow < kShortRow * kLanes<T>)),
        rows(flat ? 1 : s.oh),
        wide(flat ? s.oh * s.ow : ceil_div(s.ow, kLanes<T>) * kLanes<T>),
        x_channel(flat ? s.kw * s.stride_h * planes.rows * s.ow : planes.channel()) {}
  bool copies_g() const { return !std::is_same_v<S, T> || (!flat && wide != s.ow); }
  bool copies_x() const { return !std::is_same_v<S, T> || flat || !planes.is_plain(s); }
  int64_t x_pitch() const { return flat ? 0 : planes.pitch; }
  /// Where the pixels of kernel position (i, j) begin in a channel of x.
  int64_t offset(int64_t i, int64_t j) const {
    const int64_t h = i * s.dilation_h;
    if (!flat) return planes.offset(h, j * s.dilation_w);
    return ((j * s.stride_h + h % s.stride_h) * planes.rows + h / s.stride_h) * s.ow;
  }
  void fill_x(T* to, const S* x) const {
    if (!flat) return planes.fill(to, x, s);
    std::memset(static_cast<void*>(to), 0, static_cast<size_t>(x_channel) * sizeof(T));
    for (int64_t j = 0; j < s.kw; ++j) {
      const int64_t shift =
          j * s.dilation_w - s.padding_w;  // output column c reads column c * stride_w + shift of x
      const int64_t first = shift < 0 ? ceil_div(-shift, s.stride_w) : 0;
      const int64_t inside = s.w > shift ? ceil_div(s.w - shift, s.stride_w) : 0;
      const int64_t last = inside < s.ow ? inside : s.ow;
      for (int64_t a = 0; a < s.stride_h; ++a)
        for (int64_t i = 0; i < planes.rows; ++i, to += s.ow) {
          const int64_t h = i * s.stride_h + a - s.padding_h;
          if (h >= 0 && h < s.h && first < last)
            copy_row(to + first, x + h * s.w + first * s.stride_w + shift, last - first, s.stride_w);
        }
    }
  }
  /// Copies planes of g, with zeros at the end of each row.
  void fill_g(T* to, const S* g, int64_t planes_of_g) const {
    const int64_t width = flat ? wide : s.ow;
    for (int64_t row = 0; row < planes_of_g * rows; ++row, to += wide) {
      store(to + wide - kLanes<T>, Vec<T>{});
      copy_row(to, g + row * width, width, 1);
    }
  }
};

/// Adds the sums of some images into out (channels × taps), tile by tile.
template <class T>
void add_images(Pixels<T> p, const int64_t* offsets, int64_t taps, int64_t n_channels, T* out, bool add) {
  const Parts channels(n_channels, kMaxChannels);
  const T* g = p.g;
  for (int64_t ct = 0; ct < channels.count; ++ct) {
    const Parts tap_tiles(taps, taps_for(static_cast<int>(channels.width(ct))));
    p.g = g + channels.begin(ct) * p.g_plane;
    for (int64_t tt = 0; tt < tap_tiles.count; ++tt) {
      const int64_t t = tap_tiles.begin(tt);
      tile_for<T>(channels.width(ct), tap_tiles.width(tt))(p, offsets + t,
                                                           out + channels.begin(ct) * taps + t, taps, add);
    }
  }
}

}  // namespace

void add_row_products(const float* a, const float* b, int64_t a_pitch, int64_t n, const int64_t* b_offsets,
                      int64_t a_rows, int64_t b_rows, float* out, bool add) {
  Pixels<float> p{};
  p.g = a;
  p.x = b;
  p.images = p.rows = 1;
  p.vectors = n / kLanes<float>;
  p.g_plane = a_pitch;
  add_images(p, b_offsets, b_rows, a_rows, out, add);
}

template <class S>
void conv_direct_weight_gradient(const ConvShape& s, const S* g, const S* x, S* dw) {
  using T = Accumulator<S>;
  const PixelLayout<S> layout(s);
  const int64_t cg = s.group_in(), og = s.group_out(), taps = s.taps();
  const int64_t g_plane = layout.rows * layout.wide, x_image = cg * layout.x_channel;

  // Blocks of images: the unit whose sums are added in order.
  const int64_t fitting = kPartialBytes / (s.o * taps * static_cast<int64_t>(sizeof(T)));
  const int64_t blocks_most = fitting < 1 ? 1 : fitting < kWantedBlocks ? fitting : kWantedBlocks;
  const Parts blocks(s.n, ceil_div(s.n, s.n < blocks_most ? s.n : blocks_most));
  // Channels of the output are spread over chunks only where blocks and groups are few.
  const int64_t independent = blocks.count * s.groups;
  const int64_t pieces_wanted = independent < kWantedChunks ? ceil_div(kWantedChunks, independent) : 1;
  const Parts pieces(og, ceil_div(ceil_div(og, pieces_wanted), kMaxChannels) * kMaxChannels);
  int64_t together = kCacheBytes / ((og * g_plane + x_image) * static_cast<int64_t>(sizeof(T)));
  if (together < 1) together = 1;

  // [block][output channel][tap]. A task writes the rows of its own block, group and piece of channels.
  T* partial = scratch_of<T>(ScratchSlot::conv_weights, blocks.count * s.o * taps);
  int64_t* offsets = scratch_of<int64_t>(ScratchSlot::conv_tile, taps);
  for (int64_t c = 0, t = 0; c < cg; ++c)
    for (int64_t i = 0; i < s.kh; ++i)
      for (int64_t j = 0; j < s.kw; ++j) offsets[t++] = c * layout.x_channel + layout.offset(i, j);

  parallel_for(independent * pieces.count, [&](int64_t chunk) {
    const int64_t piece = chunk % pieces.count, group = chunk / pieces.count % s.groups,
                  block = chunk / pieces.count / s.groups;
    const int64_t channel = group * og + pieces.begin(piece), channels = pieces.width(piece);
    T* buffer = scratch_of<T>(ScratchSlot::conv_source, together * (channels * g_plane + x_image));
    const int64_t end = blocks.begin(block + 1);
    // The first images of a block set the sums, later ones add to them.
    for (int64_t n = blocks.begin(block); n < end; n += together) {
      const S* g_first = g + (n * s.o + channel) * s.oh * s.ow;
      const S* x_first = x + (n * s.c + group * cg) * s.h * s.w;
      Pixels<T> p{};
      p.images = end - n < together ? end - n : together;
      p.rows = layout.rows;
      p.vectors = layout.wide / kLanes<T>;
      p.g_plane = g_plane;
      p.g_pitch = layout.wide;
      p.x_pitch = layout.x_pitch();
      if (layout.copies_g()) {
        p.g = buffer;
        p.g_image = channels * g_plane;
        for (int64_t image = 0; image < p.images; ++image)
          layout.fill_g(buffer + image * p.g_image, g_first + image * s.o * s.oh * s.ow, channels);
      } else if constexpr (std::is_same_v<S, T>) {
        p.g = g_first;
        p.g_image = s.o * s.oh * s.ow;
      }
      if (layout.copies_x()) {
        T* to = buffer + together * channels * g_plane;
        p.x = to;
        p.x_image = x_image;
        for (int64_t image = 0; image < p.images; ++image)
          for (int64_t c = 0; c < cg; ++c, to += layout.x_channel)
            layout.fill_x(to, x_first + (image * s.c + c) * s.h * s.w);
      } else if constexpr (std::is_same_v<S, T>) {
        p.x = x_first;
        p.x_image = s.c * s.h * s.w;
      }
      add_images(p, offsets, taps, channels, partial + (block * s.o + channel) * taps,
                 n > blocks.begin(block));
    }
  });

  // The blocks in order, into the first; then one rounding to S.
  parallel_ranges(s.o * taps, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t block = 1; block < blocks.count; ++block)
      for (int64_t i = begin; i < end; ++i) partial[i] += partial[block * s.o * taps + i];
    for (int64_t i = begin; i < end; ++i) dw[i] = static_cast<S>(partial[i]);
  });
}

template void conv_direct_weight_gradient(const ConvShape&, const double*, const double*, double*);
template void conv_direct_weight_gradient(const ConvShape&, const float*, const float*, float*);
template void conv_direct_weight_gradient(const ConvShape&, const BFloat16*, const BFloat16*, BFloat16*);
template void conv_direct_weight_gradient(const ConvShape&, const Float16*, const Float16*, Float16*);

}  // namespace tandem::cpu::TD_ISA
