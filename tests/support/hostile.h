// Hostile calls: each must end in an Error or in a result that can be read to its last element; nothing may crash, hang,
// write past its memory or ask for all there is. Each subject runs in a process of its own, so that one that fails does not
// hide the others. Under asan a stray access is a crash.
//   TANDEM_HOSTILE_CALLS=10000   calls for each subject (default 300)
//   TANDEM_HOSTILE_OP=conv       only this subject, in the process of the test
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/tensor.h"
#include "tests/support/values.h"

namespace tandem::testing {

/// A number that may be at the ends of int64; a double that may be infinite or NaN.
int64_t hostile_integer(Random& random);
double hostile_number(Random& random);

/// One call. Its results are read whole.
void hostile_call(const std::string& what, const std::function<std::vector<Tensor>()>& call);
/// Ends the subject that runs, for this reason.
void hostile_failure(const std::string& what);

/// Runs `body`, which makes one hostile_call, again and again in a process of its own; fails the running test where one
/// goes wrong.
void expect_survives(const std::string& name, const std::function<void(Random&)>& body);

}  // namespace tandem::testing
