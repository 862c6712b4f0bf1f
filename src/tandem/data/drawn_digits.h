// A built-in data set: the digits 0-9, 28 by 28, drawn as pen strokes under random slant, size, place, pen width,
// wobble, stray strokes and noise. It needs no files, and sample i of a seed has the same bytes on every machine.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "tandem/data/image_set.h"
#include "tandem/data/registry.h"

namespace tandem::data {

inline constexpr int64_t kDrawnTrainSize = 60000, kDrawnTestSize = 10000;
inline constexpr int64_t kDrawnSide = 28;
inline constexpr const char* kBuiltIn = "built in";

/// The digit that sample `index` of `seed` shows.
uint8_t drawn_label(uint64_t seed, int64_t index);
/// Draws that sample: kDrawnSide² bytes, row by row, ink bright on black.
void draw_digit(uint64_t seed, int64_t index, uint8_t* pixels);

/// Samples first … first+size-1 of a seed. An image is drawn when it is first asked for, and kept.
class DrawnDigits final : public ImageDataset {
 public:
  DrawnDigits(std::string name, uint64_t seed, int64_t first, int64_t size);
  const uint8_t* pixels(int64_t i, uint8_t* scratch) const override;

 private:
  enum State : uint8_t { kEmpty, kBeingDrawn, kDrawn };
  uint64_t seed_;
  int64_t first_;
  std::unique_ptr<uint8_t[]> images_;
  std::unique_ptr<std::atomic<uint8_t>[]> states_;  // one per image
};

/// Always found.
std::optional<std::string> locate_built_in(const DatasetInfo& info, const std::string& data_dir);
Splits open_drawn_digits(const DatasetInfo& info, const OpenOptions& options);

}  // namespace tandem::data
