// The equivalence gate: before a cell may be timed, its system must show that it runs the same network. From the same
// weights and the same batches it must have as many parameters, the same outputs, loss and norms of gradients, and the same
// losses over the first steps as the reference, which is Tandem's eager engine in f64.
#pragma once

#include <optional>
#include <string>

#include "lab/src/driver/client.h"

namespace tandem::lab {

/// How far a system may be from the reference; by precision, in lab/docs/method.md.
struct Tolerance {
  double outputs;    // of the largest logit, or 1
  double loss;       // of the loss
  double gradients;  // of the norm, plus a thousandth of the largest norm
  double losses;     // of the step's loss
};
/// Throws Error for a precision that has no row.
Tolerance tolerance(const std::string& precision);

/// What was compared, with the number that lies farthest out, measured in its tolerance.
struct GateResult {
  bool passed = false;
  std::string what;                  // "outputs[2][7]", "gradients conv1.weight", "losses[9]"; or a sentence
  double reference = 0, system = 0;  // that number
  double error = 0, tolerance = 0;   // both relative, as the table states them
  std::string kind = "model";        // or "samples", of phase load
  /// Whether `what` says it all ("the output out is missing"), and the numbers are NaN.
  bool is_in_words() const;
  std::string why() const;  // one line: what, both numbers, the tolerance
  Json to_json() const;
};

/// By how much, relative, samples are moved to find out what rounding in a precision can do to a network: 32 times half a
/// unit of its last place. Nothing for f64.
std::optional<double> moved_by(const std::string& precision);

/// `training`: also loss, gradients and losses. `moved`: what the reference itself answers to samples that were moved a
/// little. A number may be ten times as far off as it is there, where that is more than its tolerance, but never by more
/// than 0.3; a loss as far as it or one before.
GateResult compare(const Checked& reference, const Checked& system, const std::string& precision,
                   bool training, const std::vector<Checked>& moved = {});

/// Phase load: the samples of a batch in test mode. `level`: what one step of the 256 of a pixel is in them. Decoders and
/// rounding may differ by 4 levels in one number, and by three quarters of one in the mean over all.
GateResult compare_samples(const Checked& reference, const Checked& system, double level);

}  // namespace tandem::lab
