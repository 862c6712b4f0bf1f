// What a reader must know about the machine of a study, from provenance.json.
#pragma once

#include "lab/src/record/record.h"
#include "lab/src/report/grid.h"

namespace tandem::lab {

/// The fields of provenance.json that are texts, numbers or short lists, nested ones as "gpu.name".
Grid provenance_grid(const Json& provenance);

}  // namespace tandem::lab
