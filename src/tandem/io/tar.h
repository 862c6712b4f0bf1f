// Tar archives in memory: the names and bytes of their regular files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/standard.h"

namespace tandem::io {

struct TarEntry {
  std::string name;                // as in the archive, e.g. "folder/file"
  std::span<const uint8_t> bytes;  // of the archive's memory
};

/// The regular files of a tar archive (ustar, GNU and pax; folders, links and the like are passed over). Throws
/// Error, beginning with `where`, for a header that fails its checksum or a file that does not fit.
std::vector<TarEntry> read_tar(const std::string& where, std::span<const uint8_t> archive);

}  // namespace tandem::io
