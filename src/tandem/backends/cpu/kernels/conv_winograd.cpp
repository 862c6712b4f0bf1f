// "winograd 2x4": convolution by 3×3 kernels after Winograd; tiles of 2×4 outputs are interpolated from 24 points, so that a
// product an input and output channel takes 3 multiplications an output instead of 9. In the transformed domain
// each point is a matrix product over channels. The points are 0, ±1, ∞ down and 0, ±3/4, ±5/4, ∞ across: with
// these the rounding error stays within about twice that of plain sums.
//
// A convolution is y = Aᵀ [ (G w) · (B x) ]; the gradient of the weights is its adjoint, Gᵀ Σ (A g) (B x).
#include <vector>

#include "tandem/backends/cpu/kernels/conv_taps.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int kDown = 4, kAcross = 6, kPoints = kDown * kAcross;    // points, which are also a tile's inputs
constexpr int kTileRows = 2, kTileColumns = 4;                      // outputs of a tile
constexpr int kBlock = 2 * tile_vectors(kMaxRows) * kLanes<float>;  // tiles that are worked on together
constexpr int64_t kGradientBytes = 8 << 20;                         // transforms of tiles taken together
constexpr float kA = 0.75f, kA2 = kA * kA, kA3 = kA2 * kA, kB = 1.25f, kB2 = kB * kB, kB3 = kB2 * kB;

using V = Vec<float>;

struct Tiles {
  int64_t rows, columns, count;  // tiles down and across an image, and of all images
  explicit Tiles(const ConvShape& s)
      : rows(ceil_div(s.oh, kTileRows)), columns(ceil_div(s.ow, kTileColumns)), count(s.n * rows * columns) {}
};

/// Where the tiles of a block lie: the image, and the first output's row and column. Tiles from `used` on are not
/// there.
struct Places {
  int64_t image[kBlock], row[kBlock], column[kBlock];
  int used;

  Places(const Tiles& tiles, int64_t first) : used(0) {
    for (int t = 0; t < kBlock && first + t < tiles.count; ++t, ++used) {
      const int64_t tile = first + t;
      image[t] = tile / (tiles.rows * tiles.columns);
      row[t] = tile / tiles.columns % tiles.rows * kTileRows;
      column[t] = tile % tiles.columns * kTileColumns;
    }
  }
};

/// Copies an h × w window of each tile into to[place][tile], zeros outside the image. `plane` is the channel's in
/// the first image; windows begin `up` rows above and `left` columns before the tile's outputs.
template <int h, int w>
void gather(const Places& tiles, const float* plane, int64_t image_step, int64_t height, int64_t width,
            int64_t up, int64_t left, float* to) {
  for (int t = 0; t < tiles.used; ++t) {
    const int64_t row = tiles.row[t] - up, column = tiles.column[t] - left;
    const float* from = plane + tiles.image[t] * image_step;
    float* at = to + t;
    if (row >= 0 && column >= 0 && row + h <= height && column + w <= width) {
      from += row * width + column;
#pragma GCC unroll 4
      for (int i = 0; i < h; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < w; ++j) at[(i * w + j) * kBlock] = from[i * width + j];
    } else {
      for (int i = 0; i < h; ++i)
        for (int j = 0; j < w; ++j) {
          const int64_t y = row + i, x = column + j;
          at[(i * w + j) * kBlock] = y >= 0 && y < height && x >= 0 && x < width ? from[y * width + x] : 0.f;
        }
    }
  }
  for (int t = tiles.used; t < kBlock; ++t)
    for (int i = 0; i < h * w; ++i) to[i * kBlock + t] = 0;
}

/// B x: 24 inputs of each tile to 24 points; point p of tile t goes to to[p * step + t].
void transform_input(const float* from, float* to, int64_t step) {
  for (int t = 0; t < kBlock; t += kLanes<float>) {
    V rows[kDown][kAcross];
#pragma GCC unroll 4
    for (int i = 0; i < kDown; ++i) {
      const float* at = from + i * kAcross * kBlock + t;
      const V d0 = load(at), d1 = load(at + kBlock), d2 = load(at + 2 * kBlock), d3 = load(at + 3 * kBlock),
              d4 = load(at + 4 * kBlock), d5 = load(at + 5 * kBlock);
      const V even_a = fma(d2, splat(-kB2), d4), odd_a = fma(d1, splat(-kB2), d3) * splat(kA);
      const V even_b = fma(d2, splat(-kA2), d4), odd_b = fma(d1, splat(-kA2), d3) * splat(kB);
      rows[i][0] = fma(d0, splat(kA2 * kB2), fma(d2, splat(-kA2 - kB2), d4));
      rows[i][1] = even_a + odd_a;
      rows[i][2] = even_a - odd_a;
      rows[i][3] = even_b + odd_b;
      rows[i][4] = even_b - odd_b;
      rows[i][5] = fma(d1, splat(kA2 * kB2), fma(d3, splat(-kA2 - kB2), d5));
    }
#pragma GCC unroll 8
    for (int j = 0; j < kAcross; ++j) {
      float* at = to + j * step + t;
      store(at, rows[0][j] - rows[2][j]);
      store(at + kAcross * step, rows[1][j] + rows[2][j]);
      store(at + 2 * kAcross * step, rows[2][j] - rows[1][j]);
      store(at + 3 * kAcross * step, rows[1][j] - rows[3][j]);
    }
  }
}

/// Aᵀ m: 24 points of each tile to 8 outputs, to[output][tile].
void transform_output(const float* from, int64_t step, float bias, float* to) {
  for (int t = 0; t < kBlock; t += kLanes<float>) {
    V rows[kTileRows][kAcross];
#pragma GCC unroll 8
    for (int j = 0; j < kAcross; ++j) {
      const float* at = from + j * step + t;
      const V m0 = load(at), m1 = load(at + kAcross * step), m2 = load(at + 2 * kAcross * step),
              m3 = load(at + 3 * kAcross * step);
      rows[0][j] = m0 + (m1 + m2);
      rows[1][j] = (m1 - m2) - m3;
    }
#pragma GCC unroll 2
    for (int i = 0; i < kTileRows; ++i) {
      const V* m = rows[i];
      const V sum_a = m[1] + m[2], gap_a = m[1] - m[2], sum_b = m[3] + m[4], gap_b = m[3] - m[4];
      float* at = to + i * kTileColumns * kBlock + t;
      store(at, m[0] + (sum_a + sum_b) + splat(bias));
      store(at + kBlock, fma(gap_a, splat(kA), gap_b * splat(kB)) + splat(bias));
      store(at + 2 * kBlock, fma(sum_a, splat(kA2), sum_b * splat(kB2)) + splat(bias));
      store(at + 3 * kBlock, fma(gap_a, splat(kA3), fma(gap_b, splat(kB3), m[5])) + splat(bias));
    }
  }
}

/// A g: 8 outputs' gradients of each tile to 24 points.
void transform_gradient(const float* from, float* to, int64_t step) {
  for (int t = 0; t < kBlock; t += kLanes<float>) {
    V rows[kTileRows][kAcross];
#pragma GCC unroll 2
    for (int i = 0; i < kTileRows; ++i) {
      const float* at = from + i * kTileColumns * kBlock + t;
      const V g0 = load(at), g1 = load(at + kBlock), g2 = load(at + 2 * kBlock), g3 = load(at + 3 * kBlock);
      const V even_a = fma(g2, splat(kA2), g0), odd_a = fma(g1, splat(kA), g3 * splat(kA3));
      const V even_b = fma(g2, splat(kB2), g0), odd_b = fma(g1, splat(kB), g3 * splat(kB3));
      rows[i][0] = g0;
      rows[i][1] = even_a + odd_a;
      rows[i][2] = even_a - odd_a;
      rows[i][3] = even_b + odd_b;
      rows[i][4] = even_b - odd_b;
      rows[i][5] = g3;
    }
#pragma GCC unroll 8
    for (int j = 0; j < kAcross; ++j) {
      float* at = to + j * step + t;
      store(at, rows[0][j]);
      store(at + kAcross * step, rows[0][j] + rows[1][j]);
      store(at + 2 * kAcross * step, rows[0][j] - rows[1][j]);
      store(at + 3 * kAcross * step, V{} - rows[1][j]);
    }
  }
}

/// G, down and across: point p of a kernel is the sum of its elements by these.
/// In f64: the points of a kernel are rounded to f32 once, when they are stored.
struct WeightMap {
  double down[kDown][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  double across[kAcross][3] = {};
  WeightMap() {
    const double a = kA, b = kB, of_a = 1 / (2 * a * a * (a * a - b * b)),
                 of_b = 1 / (2 * b * b * (b * b - a * a));
    across[0][0] = 1 / (a * a * b * b);
    across[5][2] = 1;
    for (int k = 0; k < 3; ++k) {
      const double power_a = k == 0 ? 1 : k == 1 ? a : a * a, power_b = k == 0 ? 1 : k == 1 ? b : b * b;
      across[1][k] = power_a * of_a;
      across[2][k] = (k == 1 ? -power_a : power_a) * of_a;
      across[3][k] = power_b * of_b;
      across[4][k] = (k == 1 ? -power_b : power_b) * of_b;
    }
  }
  /// G w Gᵀ of one kernel, whose element (i, j) is w[i * 3 + j], or w[8 - …] where it is to be turned round.
  void apply(const float* w, bool turned, double (&to)[kPoints]) const {
    for (int p = 0; p < kDown; ++p) {
      double row[3] = {};
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
          row[j] += down[p][i] * static_cast<double>(w[turned ? 8 - i * 3 - j : i * 3 + j]);
      for (int q = 0; q < kAcross; ++q)
        to[p * kAcross + q] = across[q][0] * row[0] + across[q][1] * row[1] + across[q][2] * row[2];
    }
  }
  /// Gᵀ u G: the gradient of a kernel from that of its points, point p at u[p * step].
  void back(const float* u, int64_t step, float* w) const {
    double rows[3][kAcross] = {};
    for (int p = 0; p < kDown; ++p)
      for (int i = 0; i < 3; ++i)
        for (int q = 0; q < kAcross; ++q)
          rows[i][q] += down[p][i] * static_cast<double>(u[(p * kAcross + q) * step]);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) {
        double sum = 0;
        for (int q = 0; q < kAcross; ++q) sum += across[q][j] * rows[i][q];
        w[i * 3 + j] = static_cast<float>(sum);
      }
  }
};

/// The convolution s of x by kernels w(o, c) = weight[o * out_step + c * in_step], turned round or not.
/// Weights are transformed first. Then a task takes kBlock tiles of all images through all three steps: gather and
/// transform each input channel, one product over the channels per point, transform back and store. A tile at the
/// edge computes all 2×4 outputs and stores those that exist.
void convolve(const ConvShape& s, const float* x, const float* weight, int64_t out_step, int64_t in_step,
              bool turned, const float* bias, float* y) {
  const Tiles tiles(s);
  Problem<float> p{};
  p.channels = s.o;
  p.rows = 1;
  p.columns = p.pitch = p.out_plane = p.out_row = kBlock;
  p.out_column = 1;
  p.taps = s.c;
  const int64_t block_rows = p.block_rows(), point_weights = p.blocks() * block_rows * s.c;
  // Weights by point, then blocks of output channels, each [input channel][output channel]; then the offsets.
  float* weights =
      scratch_of<float>(ScratchSlot::conv_weights, kPoints * point_weights + kLanes<float> + 2 * s.c + 2);
  // An even number of floats lies before them, so that they are aligned.
  auto* offsets = reinterpret_cast<int64_t*>(weights + (kPoints * point_weights + kLanes<float> + 1) / 2 * 2);
  for (int64_t c = 0; c < s.c; ++c) offsets[c] = c * kBlock;
  const TapRange all{0, s.c};
  p.offsets = offsets;
  p.ranges = &all;
  const WeightMap map;
  parallel_for(p.blocks(), [&](int64_t block) {
    for (int64_t c = 0; c < s.c; ++c)
      for (int64_t r = 0; r < block_rows; ++r) {
        const int64_t o = block * block_rows + r;
        double points[kPoints] = {};
        if (o < s.o) map.apply(weight + o * out_step + c * in_step, turned, points);
        for (int k = 0; k < kPoints; ++k)
          weights[k * point_weights + (block * s.c + c) * block_rows + r] = static_cast<float>(points[k]);
      }
  });
  parallel_for(ceil_div(tiles.count, kBlock), [&](int64_t chunk) {
    const Places places(tiles, chunk * kBlock);
    float* points = scratch_of<float>(ScratchSlot::conv_source, kPoints * s.c * kBlock);
    float* sums = scratch_of<float>(ScratchSlot::conv_tile, kPoints * s.o * kBlock);
    alignas(64) float window[kPoints * kBlock];
    for (int64_t c = 0; c < s.c; ++c) {
      gather<kDown, kAcross>(places, x + c * s.h * s.w, s.c * s.h * s.w, s.h, s.w, s.padding_h, s.padding_w,
                             window);
      transform_input(window, points + c * kBlock, s.c * kBlock);
    }
    for (int k = 0; k < kPoints; ++k) {
      Problem<float> mine = p;
      mine.weights = weights + k * point_weights;
      for (int64_t block = 0; block < p.blocks(); ++block)
        run_channels(mine, points + k * s.c * kBlock, block, sums + k * s.o * kBlock);
    }
    for (int64_t o = 0; o < s.o; ++o) {
      transform_output(sums + o * kBlock, s.o * kBlock, bias ? bias[o] : 0.f, window);
      for (int t = 0; t < places.used; ++t) {
        const int64_t row = places.row[t], column = places.column[t];
        float* to = y + ((places.image[t] * s.o + o) * s.oh + row) * s.ow + column;
        const int64_t high = s.oh - row < kTileRows ? s.oh - row : kTileRows;
        const int64_t wide = s.ow - column < kTileColumns ? s.ow - column : kTileColumns;
        for (int64_t i = 0; i < high; ++i)
          for (int64_t j = 0; j < wide; ++j) to[i * s.ow + j] = window[(i * kTileColumns + j) * kBlock + t];
      }
    }
  });
}

void forward(const ConvShape& s, const float* x, const float* weight, const float* bias, float* y) {
  convolve(s, x, weight, s.c * 9, 9, false, bias, y);
}

void input_gradient(const ConvShape& s, const float* g, const float* weight, float* dx) {
  ConvShape t = s;  // the same kind of convolution, of g by the kernels turned round
  t.c = s.o, t.h = s.oh, t.w = s.ow;
  t.o = s.c, t.oh = s.h, t.ow = s.w;
  t.padding_h = 2 - s.padding_h, t.padding_w = 2 - s.padding_w;
  convolve(t, g, weight, 9, s.c * 9, true, nullptr, dx);
}

/// Tiles are taken in rounds that fit kGradientBytes. A round transforms every channel of x and g (a task per
/// channel), then adds to the sums of each point (a task per point and piece of output channels). Rounds follow each
/// other, so that an element is always summed in the order of the tiles.
void weight_gradient(const ConvShape& s, const float* g, const float* x, float* dw) {
  const Tiles tiles(s);
  const int64_t fitting =
      kGradientBytes / (kPoints * (s.c + s.o) * static_cast<int64_t>(sizeof(float))) / kBlock;
  const int64_t blocks = ceil_div(tiles.count, kBlock), together = fitting < 4        ? 4
                                                                   : fitting < blocks ? fitting
                                                                                      : blocks;
  const int64_t pitch = together * kBlock;  // tiles of one channel and point
  float* sums = scratch_of<float>(ScratchSlot::conv_weights, kPoints * s.o * s.c + 2 * s.c + 2);
  auto* offsets = reinterpret_cast<int64_t*>(sums + (kPoints * s.o * s.c + 1) / 2 * 2);
  for (int64_t c = 0; c < s.c; ++c) offsets[c] = c * pitch;
  // [point][channel][tile]: add_row_products sums over the adjacent tiles.
  float* x_points = scratch_of<float>(ScratchSlot::conv_source, kPoints * (s.c + s.o) * pitch);
  float* g_points = x_points + kPoints * s.c * pitch;
  constexpr int64_t kPiece = 32;  // output channels of a chunk
  const int64_t pieces = ceil_div(s.o, kPiece);
  std::vector<Places> places;
  for (int64_t begin = 0; begin < blocks; begin += together) {
    const int64_t count = blocks - begin < together ? blocks - begin : together;
    places.clear();
    for (int64_t b = 0; b < count; ++b) places.emplace_back(tiles, (begin + b) * kBlock);
    parallel_for(s.c + s.o, [&](int64_t channel) {
      alignas(64) float window[kPoints * kBlock];
      for (int64_t b = 0; b < count; ++b) {
        const Places& here = places[static_cast<size_t>(b)];
        if (channel < s.c) {
          gather<kDown, kAcross>(here, x + channel * s.h * s.w, s.c * s.h * s.w, s.h, s.w, s.padding_h,
                                 s.padding_w, window);
          transform_input(window, x_points + channel * pitch + b * kBlock, s.c * pitch);
        } else {
          const int64_t o = channel - s.c;
          gather<kTileRows, kTileColumns>(here, g + o * s.oh * s.ow, s.o * s.oh * s.ow, s.oh, s.ow, 0, 0,
                                          window);
          transform_gradient(window, g_points + o * pitch + b * kBlock, s.o * pitch);
        }
      }
    });
    parallel_for(kPoints * pieces, [&](int64_t chunk) {
      const int64_t point = chunk / pieces, o = chunk % pieces * kPiece;
      add_row_products(g_points + (point * s.o + o) * pitch, x_points + point * s.c * pitch, pitch,
                       count * kBlock, offsets, s.o - o < kPiece ? s.o - o : kPiece, s.c,
                       sums + (point * s.o + o) * s.c, begin > 0);
    });
  }
  const WeightMap map;
  parallel_ranges(s.o * s.c, 1024, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) map.back(sums + i, s.o * s.c, dw + i * 9);
  });
}

class WinogradConv final : public ConvImplementation {
 public:
  std::string name() const override { return "winograd 2x4"; }
  const char* can(const ConvProblem& p) const override {
    const ConvShape& s = p.shape;
    if (p.dtype != DType::f32) return "it takes f32 only.";
    if (s.kh != 3 || s.kw != 3) return "it takes 3x3 kernels only.";
    if (s.stride_h != 1 || s.stride_w != 1) return "it takes stride 1 only.";
    if (s.dilation_h != 1 || s.dilation_w != 1) return "it takes dilation 1 only.";
    if (s.padding_h > 2 || s.padding_w > 2) return "it takes padding up to 2 only.";
    if (s.groups != 1) return "it takes one group only.";
    return nullptr;
  }
  /// Whether enough channels share the transforms, and enough tiles keep the threads at work.
  bool pays(const ConvProblem& p) const override {
    const ConvShape& s = p.shape;
    const int64_t least =
        p.op == ConvOp::weight_gradient ? 80 : 48;  // from where on it was faster than direct
    const int64_t tiles = ceil_div(s.oh, kTileRows) * ceil_div(s.ow, kTileColumns);
    return s.c >= 16 && s.o >= 16 && s.c + s.o >= least && s.n * tiles >= 192 && s.oh * s.ow >= 4 * tiles;
  }
  void run(const ConvCall& call) const override {
    const ConvShape& s = call.problem.shape;
    const float *a = static_cast<const float*>(call.a), *b = static_cast<const float*>(call.b);
    float* out = static_cast<float*>(call.out);
    switch (call.problem.op) {
      case ConvOp::forward:
        return forward(s, a, b, static_cast<const float*>(call.bias), out);
      case ConvOp::input_gradient:
        return input_gradient(s, a, b, out);
      case ConvOp::weight_gradient:
        return weight_gradient(s, a, b, out);
    }
  }
};

}  // namespace

const ConvImplementation& winograd_conv() {
  static constexpr WinogradConv row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
