// The profile of a model's training step, or of its forward pass: what `tandem profile` shows.
#pragma once

#include "tandem/profile/profile.h"
#include "tandem/train/config.h"

namespace tandem {

struct ModelProfile {
  Profile profile;  ///< of all steps; the scopes "step 1" … are theirs
  int64_t steps = 0;
  int threads = 0;           ///< on the CPU
  double unprofiled_ns = 0;  ///< a step takes that long while nobody looks
  Peaks peaks;
};

inline constexpr int64_t kProfiledSteps = 5;  ///< where config.steps is not set
inline constexpr int64_t kMostProfiledSteps = 10'000;

/// Trains config's model for config.steps steps on made-up data, with its optimiser, engine, batch, types and device, after
/// some that let compiled steps settle. With `infer`: forward passes in evaluation mode. Once *config.stop is true, no
/// more steps are taken.
ModelProfile profile_model(const TrainConfig& config, bool infer = false);

/// How long such a step takes while nobody looks: the median of kTimedRounds rounds, each of as many steps as take a fifth of a
/// second. config.steps is not looked at.
double step_nanoseconds(const TrainConfig& config, bool infer = false);
inline constexpr int kTimedRounds = 5;

}  // namespace tandem
