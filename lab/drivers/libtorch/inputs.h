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

/// What one file of samples must hold, of each sample. `least` and `most` bound whole numbers where `bounded`.
struct Column {
  std::string name, type;  // "f32" or "i64"
  std::vector<int64_t> shape;
  bool bounded = false;
  int64_t least = 0, most = 0;
};

/// Samples in NumPy files, one for each input of the network and each target of the workload.
class Samples {
 public:
  /// what: the part's name in messages. paths: by the columns' names.
  Samples(const std::string& what, const std::map<std::string, std::string>& paths,
          const std::vector<Column>& columns);
  int64_t size() const { return size_; }
  /// Column `name` of batch `index`, f32 or i64, in the given order (that of the file where it is null), which runs on
  /// from the start.
  void batch(const std::string& name, int64_t index, int64_t batch, const std::vector<int64_t>* order,
             void* to) const;

 private:
  struct Part {
    std::unique_ptr<MappedFile> file;
    const char* data = nullptr;
    size_t bytes = 0;  // of one sample
  };
  std::map<std::string, Part> parts_;
  int64_t size_ = 0;
};

uint32_t hashed(uint32_t index, int64_t seed);

/// The order of epoch 0, 1, … of fit.
std::vector<int64_t> epoch_order(int64_t samples, int64_t seed, int64_t epoch);

/// All trained parameters by the protocol's formula.
Weights hash_weights(const Shapes& shapes, int64_t seed);

/// The file's f32 tensors. Every name of `shapes` must be there in that shape; running statistics may be, too.
Weights read_weights(const std::string& path, const Shapes& shapes);

}  // namespace libtorch_driver
