// ScanOptions::batch_weights. For the library itself.
#pragma once

#include "tandem/graph/loop.h"

namespace tandem::graph {

/// run_loop() of a scan with that option.
ScanResult run_batched(LoopCode code);

}  // namespace tandem::graph
