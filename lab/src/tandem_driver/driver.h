// Tandem's own driver: speaks lab/docs/protocol.md for both engines, on the CPU and on CUDA.
#pragma once

#include <iosfwd>

namespace tandem::lab {

/// Reads requests from `in`, one JSON object per line, and writes the answers to `out`, until `quit` or the end of `in`. Returns
/// the exit status. A bad request does not end the driver: its answer is the error. The caller must write nothing else to `out`.
int run_tandem_driver(std::istream& in, std::ostream& out);

}  // namespace tandem::lab
