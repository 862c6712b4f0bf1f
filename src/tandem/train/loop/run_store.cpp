// A run's folder as its store.
#include "tandem/train/loop/run_store.h"

#include "tandem/train/environment.h"

namespace tandem {
namespace {

class FolderStore final : public RunStore {
 public:
  FolderStore(RunFolder folder, std::optional<DataRecord> record)
      : RunStore(std::move(folder.path)),
        lock_(std::move(folder.lock)),
        record_(std::move(record)),
        is_unused_(folder.is_new) {}
  ~FolderStore() override {
    if (is_unused_) remove_unused(folder());
  }

  std::string fingerprint(const data::Dataset* set) const override {
    return set ? data::fingerprint(*set) : "";
  }
  std::optional<FoundCheckpoint> resume(std::vector<std::string>& warnings) override {
    std::optional<FoundCheckpoint> found = newest_checkpoint(folder(), warnings);
    if (found) saved_ = position_of(found->checkpoint.state);
    return found;
  }
  void begin(const TrainConfig& config, const std::string& settings, Device device) override {
    if (!saved_) clear_run_folder(folder());
    save_config(folder(), config, settings, record_ ? &*record_ : nullptr);
    save_environment(folder(), device);
    is_unused_ = false;
  }
  bool needs(const RunState& state) const override { return saved_ != position_of(state); }
  std::string save(const Checkpoint& checkpoint) override {
    lock_.check();
    std::string path = save_checkpoint(folder(), checkpoint);
    saved_ = position_of(checkpoint.state);
    return path;
  }
  void finish(const nn::NamedTensors& weights, const std::string& settings) override {
    lock_.check();
    save_weights(weights_path(folder()), weights, settings);
  }

 private:
  /// After the last step of an epoch a run has two states: before the epoch's test, and with it.
  struct Position {
    int64_t epoch, step;
    bool operator==(const Position&) const = default;
  };
  static Position position_of(const RunState& state) { return {state.epoch, state.step}; }

  const io::FolderLock lock_;
  const std::optional<DataRecord> record_;
  bool is_unused_;                 // made for this run, and nothing has been written
  std::optional<Position> saved_;  // of the newest checkpoint
};

}  // namespace

std::unique_ptr<RunStore> store_in(RunFolder folder, std::optional<DataRecord> record) {
  return std::make_unique<FolderStore>(std::move(folder), std::move(record));
}

}  // namespace tandem
