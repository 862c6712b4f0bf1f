// Drawing synthetic images. Only + - * / are used on floats, and every random number is a Philox word.
#include "tandem/data/synthetic.h"

#include <algorithm>
#include <vector>

#include "tandem/core/rng.h"
#include "tandem/data/drawn_digits.h"

namespace tandem::data {

namespace {

constexpr uint64_t kSeed = 7, kClassStream = 0x636c617373657321, kSampleStream = 0x73796e7468657469;
constexpr int kGrid = 5;  // points of a pattern on each side

constexpr SyntheticKind kKinds[] = {
    {"mnist", 1, 28, 10, 60000, 10000},         {"cifar10", 3, 32, 10, 50000, 10000},
    {"cifar100", 3, 32, 100, 50000, 10000},     {"svhn", 3, 32, 10, 73257, 26032},
    {"imagenet", 3, 224, 1000, 1281167, 50000},
};

/// A word of a stream as a number in -1 … 1.
float signed_unit(uint32_t word) { return 2.0f * uniform_from_bits(word) - 1.0f; }

}  // namespace

std::span<const SyntheticKind> synthetic_kinds() { return kKinds; }

SyntheticImages::SyntheticImages(const SyntheticKind& kind, uint64_t seed, int64_t first, int64_t size)
    : kind_(kind), seed_(seed), first_(first), size_(size) {
  TD_CHECK(first >= 0 && size >= 0,
           "synthetic images: the first sample and the size must be at least 0; got ", first, " and ", size,
           ".");
}

int64_t SyntheticImages::label(int64_t i) const {
  check_index("label", i, size_);
  const PhiloxBlock block = philox(seed_ ^ kSampleStream, static_cast<uint64_t>(first_ + i) << 20);
  return static_cast<int64_t>(uint64_t{block.x[0]} * static_cast<uint64_t>(kind_.classes) >> 32);
}

void SyntheticImages::draw(int64_t i, float* out) const {
  const int64_t side = kind_.side;
  uint64_t counter = static_cast<uint64_t>(first_ + i) << 20;
  const PhiloxBlock head = philox(seed_ ^ kSampleStream, counter++),
                    more = philox(seed_ ^ kSampleStream, counter++);
  const int64_t which =
      static_cast<int64_t>(uint64_t{head.x[0]} * static_cast<uint64_t>(kind_.classes) >> 32);
  const float shift_x = 0.5f * uniform_from_bits(head.x[1]), shift_y = 0.5f * uniform_from_bits(head.x[2]);
  const float ink = 0.6f + 0.6f * uniform_from_bits(head.x[3]), noise = 1.0f + uniform_from_bits(more.x[0]);
  const float step = (static_cast<float>(kGrid) - 1.5f) / static_cast<float>(side);
  for (int64_t c = 0; c < kind_.channels; ++c) {
    float grid[kGrid * kGrid + 3];
    for (int k = 0; k < kGrid * kGrid; k += 4) {
      const PhiloxBlock block = philox(seed_ ^ kClassStream, static_cast<uint64_t>((which * 8 + c) * 64 + k));
      for (int j = 0; j < 4; ++j) grid[k + j] = 2.0f * signed_unit(block.x[j]);
    }
    for (int64_t y = 0; y < side; ++y) {
      const float gy = static_cast<float>(y) * step + shift_y;
      const int row = static_cast<int>(gy);
      const float down = gy - static_cast<float>(row);
      for (int64_t x = 0; x < side; x += 4) {
        const PhiloxBlock block = philox(seed_ ^ kSampleStream, counter++);
        for (int64_t j = 0; j < std::min<int64_t>(4, side - x); ++j) {
          const float gx = static_cast<float>(x + j) * step + shift_x;
          const int column = static_cast<int>(gx);
          const float right = gx - static_cast<float>(column);
          const float* at = grid + row * kGrid + column;
          const float above = at[0] + right * (at[1] - at[0]),
                      below = at[kGrid] + right * (at[kGrid + 1] - at[kGrid]);
          *out++ = ink * (above + down * (below - above)) + noise * signed_unit(block.x[j]);
        }
      }
    }
  }
}

std::vector<Tensor> SyntheticImages::get(int64_t i) const {
  check_index("get", i, size_);
  Tensor image = empty({kind_.channels, kind_.side, kind_.side}, DType::f32);
  draw(i, image.data<float>());
  return {image, from_vector<int64_t>({label(i)}, {})};
}

std::vector<Tensor> SyntheticImages::batch(std::span<const int64_t> indices) const {
  TD_CHECK(!indices.empty(), "batch: must ask for at least one sample; got none.");
  const auto n = static_cast<Dim>(indices.size());
  Tensor images = empty({n, kind_.channels, kind_.side, kind_.side}, DType::f32),
         labels = empty({n}, DType::i64);
  float* out = images.data<float>();
  for (size_t row = 0; row < indices.size(); ++row, out += kind_.channels * kind_.side * kind_.side) {
    check_index("batch", indices[row], size_);
    draw(indices[row], out);
    labels.data<int64_t>()[row] = label(indices[row]);
  }
  return {images, labels};
}

std::string SyntheticImages::describe() const {
  return str("synthetic ", kind_.name, ": ", size_, " images of (", kind_.channels, ", ", kind_.side, ", ",
             kind_.side, ")");
}

Splits open_synthetic(const DatasetInfo& info, const OpenOptions&) {
  for (const SyntheticKind& kind : kKinds)
    if (info.name == std::string("synthetic-") + kind.name)
      return {std::make_shared<SyntheticImages>(kind, kSeed, 0, kind.train_size),
              std::make_shared<SyntheticImages>(kind, kSeed, kind.train_size, kind.test_size), info,
              info.name, kBuiltIn};
  throw InternalError("no synthetic set is called " + info.name);
}

}  // namespace tandem::data
