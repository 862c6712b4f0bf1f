// What the user sees while a study runs: on a terminal a table that stays in place, elsewhere one line per run, or JSON lines.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lab/src/study/study.h"

namespace tandem::lab {

/// Told by the runner what happens. All calls come from one thread.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void begin(const Plan& plan, const std::string& folder, int64_t blocks, int64_t runs_left) = 0;
  /// A run begins; then what it is doing: "gate", "warm-up", "timing", "epoch 3, accuracy 0.91".
  virtual void start(size_t cell, int64_t block) = 0;
  virtual void stage(const std::string& text) = 0;
  /// It has ended. `left_s`: what the rest will take, or less than 0 where nothing is known yet.
  virtual void done(size_t cell, const Run& run, double left_s) = 0;
  /// A record of an earlier call, found in the folder.
  virtual void known(size_t cell, const Run& run) = 0;
  /// The cell takes no more turns.
  virtual void give_up(size_t cell, const std::string& why) = 0;
  virtual void note(const std::string& text) = 0;
  /// What makes times worth less.
  virtual void warn(const std::string& text) { note("read with care: " + text); }
  virtual void end() = 0;
};

/// The metric of which a cell shows its median: the time of a step, or of an epoch.
std::string headline_metric(const std::string& phase);

/// For a person. `stream` is a terminal: the table is redrawn in place; else lines.
std::unique_ptr<Progress> text_progress(std::FILE* stream);
/// One JSON object per line on stdout.
std::unique_ptr<Progress> json_progress(std::FILE* stream);
/// Says nothing.
std::unique_ptr<Progress> no_progress();

/// "2 h 05 min", "3 min 20 s", "12 s"; "0.034 s", "12.1 ms".
std::string duration_text(double seconds);
std::string short_time_text(double seconds);

}  // namespace tandem::lab
