// What a cell is fed with: samples from NumPy files, weights from safetensors files or from the protocol's hash.
// Nothing here needs libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace libtorch_driver {

/// The driver cannot obey what `what` names.
struct Declined : std::runtime_error {
  Declined(std::string name, const std::string& message)
      : std::runtime_error(message), what_name(std::move(name)) {}
  std::string what_name;
};

using Shapes = std::map<std::string, std::vector<int64_t>>;
using Weights = std::map<std::string, std::vector<float>>;

/// A file that is mapped into memory, to be read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Samples in two NumPy files: x f32 (N, C, H, W), y i64 (N,).
class Samples {
 public:
  Samples(const std::string& what, const std::string& x_path, const std::string& y_path,
          const std::vector<int64_t>& input, int64_t classes);
  int64_t size() const { return size_; }
  int64_t numbers() const { return numbers_; }  ///< of one sample
  /// Batch `index` in the given order (that of the file where it is null), which runs on from the start.
  void batch(int64_t index, int64_t batch, const std::vector<int64_t>* order, float* x, int64_t* y) const;

 private:
  std::unique_ptr<MappedFile> x_file_, y_file_;
  const char *x_ = nullptr, *y_ = nullptr;
  int64_t size_ = 0, numbers_ = 0;
};

uint32_t hashed(uint32_t index, int64_t seed);

/// The order of epoch 0, 1, … of fit.
std::vector<int64_t> epoch_order(int64_t samples, int64_t seed, int64_t epoch);

/// All trained parameters by the protocol's formula.
Weights hash_weights(const Shapes& shapes, int64_t seed);

/// The file's f32 tensors. Every name of `shapes` must be there in that shape; running statistics may be, too.
Weights read_weights(const std::string& path, const Shapes& shapes);

}  // namespace libtorch_driver
