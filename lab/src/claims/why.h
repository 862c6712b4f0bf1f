// Why one system is faster than another, as far as their breakdowns tell.
#pragma once

#include <string>
#include <vector>

#include "lab/src/claims/advise.h"
#include "lab/src/claims/evidence.h"

namespace tandem::lab {

/// What differs between the two in kernels, copies, launches, graph nodes, algorithms and memory; plain sentences, the
/// most telling first. Empty where neither says anything.
std::vector<std::string> reasons(const Evidence& evidence, const Candidate& best, const Candidate& other);

}  // namespace tandem::lab
