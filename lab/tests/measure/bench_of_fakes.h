// A bench whose driver is the fake one, with a fault or without, and cells small enough for a test.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "lab/src/measure/disturbance.h"
#include "lab/src/measure/one_run.h"
#include "tests/support/temp_folder.h"

namespace tandem::lab {

/// The framework "tandem" is honest: the gate's reference. "fake" has the fault.
inline Bench bench_of_fakes(const std::string& fault) {
  Bench bench;
  bench.launcher = [fault](const std::string& framework) -> Launch {
    const std::string program = std::string(TANDEM_BIN_DIR) + "/lab_fake_driver";
    if (framework == "tandem") return {{program}, {}, ""};
    if (framework == "fake") return {{program, fault}, {}, ""};
    return {{}, {}, framework + ": is not installed. Run 'tandem lab setup " + framework + "'."};
  };
  bench.threads = 1;
  bench.patience.hello_s = bench.patience.prepare_s = bench.patience.check_s = 60;
  bench.patience.first_step_s = bench.patience.epoch_s = 60;
  bench.patience.run_s = 60;
  bench.patience.quit_s = 5;
  return bench;
}

inline Cell small_cell(const std::string& phase = "train", const std::string& workload = "lenet") {
  Cell cell;
  cell.part = "test";
  cell.system = "fake:eager";
  cell.condition.workload = workload;
  cell.condition.phase = phase;
  cell.condition.batch = 4;
  cell.condition.input = {1, 28, 28};
  cell.effort = {.runs = 2, .warmup_steps = 5, .timed_steps = 4000, .timed_s = 1.0, .epochs = 1, .cap_s = 60};
  if (phase != "infer") {
    cell.condition.optimizer = "sgd";
    cell.optimizer = {{"name", "sgd"}, {"lr", 0.01}, {"momentum", 0.0}};
  }
  return cell;
}

/// The workloads of cells with phase fit, with few samples: an epoch takes a fraction of a second.
inline Workloads small_workloads() {
  Workload lenet = load_workload("lenet"), speech = load_workload("deepspeech2_small");
  lenet.data = "synthetic";
  lenet.samples = 2000;
  speech.samples = 64;
  return Workloads({lenet, speech});
}

/// One run of one cell with that fault, in a folder of its own or in one where the gate has been passed already.
inline Run run_with(const std::string& fault, Cell cell, const std::string& folder,
                    const Patience* patience = nullptr) {
  Bench bench = bench_of_fakes(fault);
  if (patience) bench.patience = *patience;
  Materials materials(folder);
  Gatekeeper gatekeeper(folder, bench, materials);
  const Workloads workloads = small_workloads();
  const RunSetting setting{bench, workloads, materials, gatekeeper};
  return take_run(cell, {0, 0, 0}, setting);
}

/// The honest one. A machine that gives it no core for most of one region can make its times contradict each other: one of a few
/// runs must pass.
inline Run honest_run(const Cell& cell, const std::string& folder) {
  Run run;
  for (int attempt = 0; attempt < 4 && (attempt == 0 || run.status == Status::dishonest); ++attempt)
    run = run_with("", cell, folder);
  return run;
}

/// For tests whose verdicts must not depend on how busy the machine is.
inline DisturbanceLimits undisturbed() {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  return {.others_cores = kAny, .stolen_cores = kAny, .core_share = 0, .slowdown = kAny};
}

}  // namespace tandem::lab
