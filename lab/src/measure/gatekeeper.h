// Takes systems through the gate, each in a process of its own, and remembers in gate.json how it went: once for each
// system, workload, phase, device, precision, input, optimiser and set of switches.
#pragma once

#include <functional>
#include <string>

#include "lab/src/driver/client.h"
#include "lab/src/measure/gate.h"
#include "lab/src/measure/materials.h"
#include "lab/src/study/study.h"

namespace tandem::lab {

/// How a framework's driver is started, or why it cannot be.
struct Launch {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string absent;                         // "": it is there
  std::vector<std::string> definitions = {};  // the files that define its networks
  std::string version = {};                   // of its main package, where it is known
};
using Launcher = std::function<Launch(const std::string& framework)>;

/// What all processes of a study have in common.
struct Bench {
  Launcher launcher;
  int64_t threads = 1;
  Patience patience = {};
  const std::atomic<bool>* stop = nullptr;
  std::string reference = "tandem:eager";  // the system that the gate compares with

  /// A fresh process of the driver of a system, for a cell on that device. Throws DriverFailure(absent) where there is none.
  Client start(const std::string& system, const std::string& device) const;
};

/// "pytorch:eager" is the framework pytorch in its variant eager.
std::string framework_of(const std::string& system);
std::string variant_of(const std::string& system);

/// The value of the switch `storage` of a cell; "": it has none.
std::string storage_of(const Condition& condition);
/// Whether batches of `run` come from the driver's pipeline: phase load, and training with the switch feed=loader.
bool takes_from_loader(const Condition& condition);

/// What prepare says for a cell: as it is timed. Data, weights and batch are left to the caller.
Preparation preparation_for(const Cell& cell, const Workload& workload, int64_t threads, uint64_t seed);

/// What the first step of a run gives, on the first batch from the prepared weights. The gate asks a process of its own; that the
/// one which is timed runs the same network shows here.
struct FirstStep {
  std::optional<double> loss, output_sum;  // of training, of inference
  std::optional<double> last_output_sum;   // of the last of the batches that are taken in turns
  std::string why;                         // neither is there: the reason
};

class Gatekeeper {
 public:
  Gatekeeper(std::string folder, const Bench& bench, Materials& materials);

  /// Throws DriverFailure where the driver fails on the way. `stage` is told what goes on.
  GateResult pass(const Cell& cell, const Workload& workload,
                  const std::function<void(const std::string&)>& stage);

  /// The reference's, for a run that is prepared like this: in f32 on the processor, once for each network and batch. It has a
  /// minute; where that is not enough, there is none.
  FirstStep first_step(const Cell& cell, const Workload& workload, Preparation preparation, int64_t turns,
                       const std::function<void(const std::string&)>& stage);

 private:
  struct Move {
    double by = 0;  // none
    uint64_t seed = 0;
  };
  Checked check(const std::string& system, const Cell& cell, const Workload& workload,
                const std::string& precision, const Move& move);
  Checked reference(const Cell& cell, const Workload& workload, const Move& move);
  /// The reference's answers to moved samples.
  std::vector<Checked> moved(const Cell& cell, const Workload& workload, double by);
  void save();

  std::string path_;
  const Bench& bench_;
  Materials& materials_;
  Json known_;  // key: result; and the reference's answers
};

}  // namespace tandem::lab
