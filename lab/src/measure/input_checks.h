// Whether a driver's pipeline made the samples that it was asked for. A batch that was made ahead can come at once, so that times
// say little; instead the lab makes the last batch of every region itself, and holds its sums and its work against the driver's.
#pragma once

#include "lab/src/inputs/pictures.h"
#include "lab/src/measure/honesty.h"

namespace tandem::lab {

/// `made`: what the lab makes of the last batch. `share`: by how much a sum may differ, of the size of the numbers. `waits`: the
/// answer must tell how long steps waited, and that must fit into them.
Objection check_samples(const Timed& timed, const BatchSums& made, double share, bool waits,
                        const HonestyLimits& limits = {});

/// Phase load: a step must use a share of the processor time in which the lab made that batch. A pipeline that keeps what it
/// decoded, or never decodes, uses next to none.
Objection check_decoding(const Timed& timed, const Witness& seen, const BatchSums& made,
                         const HonestyLimits& limits = {});

}  // namespace tandem::lab
