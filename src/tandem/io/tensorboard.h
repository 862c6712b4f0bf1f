// Event files for TensorBoard: scalars, histograms and images over the steps of a run. TFRecords of protobuf messages,
// written by hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/core/tensor.h"

namespace tandem::io {

/// CRC-32C (Castagnoli) of some bytes, and as TFRecords hold it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

class TensorBoardWriter {
 public:
  /// Makes the folder where it is missing, and a new file in it. Throws Error where that fails.
  explicit TensorBoardWriter(const std::string& folder);
  ~TensorBoardWriter();

  void scalar(const std::string& tag, double value, int64_t step);
  /// 30 bars of equal width from the least to the largest; NaN and infinities are left out.
  void histogram(const std::string& tag, const std::vector<double>& values, int64_t step);
  /// u8 (1 or 3, height, width), on the CPU.
  void image(const std::string& tag, const Tensor& pixels, int64_t step);
  /// From here on the run goes on after `step`: what other files of the folder hold beyond it is not shown.
  void restart(int64_t step);
  void flush();
  const std::string& path() const { return path_; }

 private:
  void event(int64_t step, std::string_view content);
  void record(std::string_view bytes);

  std::string path_;
  Descriptor file_;
  std::string buffer_;
};

}  // namespace tandem::io
