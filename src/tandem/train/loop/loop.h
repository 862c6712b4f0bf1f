// The training loop.
#pragma once

#include "tandem/train/loop/run.h"

namespace tandem {

/// Makes a run of its parts, and trains, measures and saves until it ends or is told to stop.
DoneEvent train_loop(const FitOptions& options, RunParts parts);

}  // namespace tandem
