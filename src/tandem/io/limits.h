// What a foreign file may cost. A few kilobytes can say that they unpack to gigabytes: each limit is checked before the
// memory is taken or the work is done, and a file beyond it is refused by the name of the limit.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/core/standard.h"

namespace tandem::io {

struct ReadingLimits {
  /// bytes: of a file that is read whole, and of all that it unpacks to.
  int64_t bytes = int64_t{1} << 32;
  /// pixels: height times width of an image. 16 times that many may be visited by the scans of a JPEG.
  int64_t pixels = int64_t{1} << 28;
  /// ratio: bytes unpacked for each byte packed (gzip, zip, MAT, images), once more than `free_bytes` are unpacked.
  int64_t ratio = 100;
  int64_t free_bytes = int64_t{1} << 27;
  /// header_bytes: of a safetensors header, read or written; of a PyTorch file's pickle, and 16 times its values.
  int64_t header_bytes = int64_t{1} << 25;
};

/// The limits of the process: those set last, or the defaults changed by the environment variable TANDEM_READING_LIMITS,
/// e.g. "pixels=1000000000,ratio=1000".
ReadingLimits reading_limits();
void set_reading_limits(const ReadingLimits& limits);
/// Named whole numbers of at least 1, with commas between them, over the defaults. Throws Error.
ReadingLimits parse_reading_limits(const std::string& text);

/// What `packed_bytes` may unpack to: no more than max_bytes, nor than the ratio allows.
int64_t unpacked_limit(uint64_t packed_bytes, int64_t max_bytes);
/// Refuses, beginning with `where`, what unpacks to more than that. `what` says what it is: "the file".
void check_unpacked(const std::string& where, const char* what, uint64_t packed_bytes,
                    uint64_t unpacked_bytes, int64_t max_bytes);

}  // namespace tandem::io
