// What there is to choose from where an op has several implementations (choices.h), as reports show it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem {

/// One implementation of an op, as reports show it.
struct Candidate {
  std::string name;
  std::string why_not;   ///< a sentence; empty: it can
  size_t workspace = 0;  ///< bytes that it takes beside the tensors, of the device's scratch memory
};
/// All implementations of an op for one call, in the order in which the heuristic asks them.
struct Candidates {
  std::vector<Candidate> all;
  std::string chosen;  ///< a name; or why none is chosen yet: "not timed yet", "not run yet"
};

}  // namespace tandem
