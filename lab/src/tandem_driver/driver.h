// Tandem's own driver: speaks lab/docs/protocol.md for both engines, on the CPU and on CUDA.
#pragma once

#include <iosfwd>

namespace tandem::lab {

/// Answers the requests of `in`, a JSON object per line, on `out`, until `quit` or the end. Returns the exit status. Nothing
/// that a request holds ends it: what goes wrong is the answer. The caller keeps everything else away from `out`.
int run_tandem_driver(std::istream& in, std::ostream& out);

}  // namespace tandem::lab
