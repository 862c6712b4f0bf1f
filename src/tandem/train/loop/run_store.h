// What a run leaves behind. The loop calls its store and never asks whether the run has a folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/config.h"
#include "tandem/train/run_folder.h"

namespace tandem {

/// The store of a run without a folder: it keeps nothing. store_in makes one that does.
class RunStore {
 public:
  explicit RunStore(std::string folder = "") : folder_(std::move(folder)) {}
  virtual ~RunStore() = default;
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  const std::string& folder() const { return folder_; }  ///< empty: none
  /// data::fingerprint, where there is a data set and a resumed run will compare it; else empty.
  virtual std::string fingerprint(const data::Dataset*) const { return ""; }

  /// The checkpoint to go on from (newest_checkpoint, train/checkpoint.h).
  virtual std::optional<FoundCheckpoint> resume(std::vector<std::string>& /*warnings*/) { return {}; }
  /// What is known before the first step: the settings and the machine.
  virtual void begin(const TrainConfig& /*config*/, const std::string& /*settings*/, Device) {}
  /// Whether a checkpoint of this state is wanted: false where the newest one is of it.
  virtual bool needs(const RunState&) const { return false; }
  /// Returns the checkpoint's path.
  virtual std::string save(const Checkpoint&) { return ""; }
  /// The final weights.
  virtual void finish(const nn::NamedTensors& /*weights*/, const std::string& /*settings*/) {}

 private:
  const std::string folder_;
};

/// A folder as a store. If the run fails before its first file, the store removes a folder that was made for it. `record`: of data that
/// has a name.
std::unique_ptr<RunStore> store_in(RunFolder folder, std::optional<DataRecord> record = {});

}  // namespace tandem
