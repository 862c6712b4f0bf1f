// What a whole training gives: the curve, its times, and how soon each threshold of accuracy was reached.
#pragma once

#include <vector>

#include "lab/src/driver/client.h"
#include "lab/src/record/record.h"
#include "lab/src/study/study.h"

namespace tandem::lab {

/// Epochs and all metrics fit.* of lab/docs/metrics.md, or why one is not there. `workload`: its definition, with the
/// thresholds; `window_begun`: when the monitor's window began, whose curves must be in the record already.
void add_fit_metrics(Run& run, const Fitted& fitted, const Workload& workload,
                     const std::vector<std::optional<double>>& memory_mib, int64_t window_begun);

}  // namespace tandem::lab
