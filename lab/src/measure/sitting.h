// The runs of one call of a study: block after block within its budget, with what the runs took so far and what else the machine did.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/src/measure/cooling.h"
#include "lab/src/measure/disturbance.h"
#include "lab/src/measure/gatekeeper.h"
#include "lab/src/measure/materials.h"
#include "lab/src/measure/progress.h"
#include "lab/src/measure/runner.h"
#include "lab/src/measure/schedule.h"
#include "lab/src/monitor/monitor.h"

namespace tandem::lab {

/// What each cell's runs took, to say how long the rest will.
class Forecast {
 public:
  explicit Forecast(const std::vector<Cell>& cells) : cells_(cells), seconds_(cells.size(), -1) {}
  void add(size_t cell, double s) { seconds_[cell] = seconds_[cell] < 0 ? s : 0.5 * (seconds_[cell] + s); }
  /// Of one run of the cell: its own, or the mean of those of its phase that are known, or of all; less than 0 where
  /// nothing is.
  double of(size_t cell) const;
  /// Of all these turns; less than 0 where one of them is not known.
  double of(std::span<const Turn> turns) const;

 private:
  const std::vector<Cell>& cells_;
  std::vector<double> seconds_;
};

class Sitting {
 public:
  /// `standing`: after earlier calls. The others must outlive this.
  Sitting(const Plan& plan, const RunnerOptions& options, Standing standing, Progress& progress);

  StudyOutcome take_blocks();

 private:
  std::vector<Turn> open_turns(int64_t block) const;
  bool is_stopped();
  /// Whether so many seconds more would not fit into the budget. One run always does.
  bool exceeds(double seconds) const;
  /// One run and its record. False where the user stopped it; `repeats`: other work disturbed it, and it has another turn.
  bool take(const Turn& turn, bool& repeats);
  /// These turns, and once all of them have been taken those again that other work disturbed.
  void take_turns(std::vector<Turn> turns);
  /// Those whole comparisons that fit into the budget.
  void take_comparisons(const std::vector<Turn>& turns);
  double seconds_left() const;

  const Plan& plan_;
  const RunnerOptions& options_;
  Progress& progress_;
  Standing standing_;
  StudyOutcome outcome_;
  Materials materials_;
  Gatekeeper gatekeeper_;
  Forecast forecast_;
  MachineWatch machine_;
  Monitor thermometer_;
  Cooling cooling_;
  int64_t begun_ns_;
  int64_t next_order_ = 0;  // of repeats in this block
};

}  // namespace tandem::lab
