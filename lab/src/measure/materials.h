// The weights and samples that all drivers load: written once into the study's folder, below `material/`, and named by what
// they hold, so that a study which goes on finds them. They can be made anew at any time, and go when a study is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/src/measure/storage.h"
#include "lab/src/study/study.h"

namespace tandem::lab {

/// Samples on disk. `data` is what prepare takes.
struct SampleFiles {
  Json data;
  std::string name;      // "mnist", "synthetic-mnist"
  bool is_real = false;  // not made up
  int64_t train = 0, test = 0;
};

/// Image files of a workload with [images].
struct PictureFiles {
  Json images;       // as prepare takes them
  std::string name;  // "voc2012", "synthetic-photographs"
  std::vector<std::string> paths;
};

class Materials {
 public:
  explicit Materials(const std::string& folder);

  /// `weights` of prepare: a file, or the seed of the protocol's formula, as the workload's gate says.
  Json weights(const Workload& workload, const std::vector<int64_t>& input);
  /// For check and run: so many samples of the workload's data, or synthetic ones.
  SampleFiles samples(const Workload& workload, const std::vector<int64_t>& input, int64_t count);
  /// The same samples, each number of the inputs that have a point times 1 + r, r drawn from -by to by with the seed.
  Json moved(const Json& data, const std::vector<std::string>& inputs, double by, uint64_t seed);
  /// For fit: all of the data, with its tests (under each noise that the workload names, as part test_noise_0.10 …); where its files are
  /// not there, as many synthetic samples as the workload's [fit] says, or as MNIST has and fit into 192 MiB.
  SampleFiles whole(const Workload& workload, const std::vector<int64_t>& input);

  /// So many image files at most, on the storage that the switch names; "": in the study's folder, wherever the system keeps
  /// them.
  PictureFiles pictures(const Workload& workload, int64_t count, const std::string& storage);

  void remove();

 private:
  SampleFiles written(const std::string& name, const Workload& workload, const std::vector<int64_t>& input,
                      int64_t train, int64_t test);
  SampleFiles all(const Workload& workload, const std::vector<int64_t>& input);
  void add_noise(SampleFiles& files, const Workload& workload, const std::vector<int64_t>& input);
  std::string folder_;
  std::unique_ptr<RamFolder> ram_;  // where something was placed there
};

/// How many image files a run of `timed_steps` steps reads: no file twice, as far as 4096 go.
int64_t pictures_for(int64_t batch, int64_t timed_steps);

/// "noise_0.10".
std::string noise_name(double deviation);

/// How many batches `run` takes in turns: eight, or as many as fit into 256 MiB, at least one.
int64_t turns_for(int64_t batch, int64_t sample_bytes);

}  // namespace tandem::lab
