// Where image files lie while a driver reads them: on the study's disk, outside of the page cache, or in memory. This is the
// switch `storage`, which the lab obeys itself; drivers get paths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::lab {

inline constexpr const char* kRamDisk = "/dev/shm";

/// Why files of `bytes` bytes cannot be placed, in one line; "": they can. `disk`: the study's folder must be on a disk from whose
/// cache files can be dropped (a file is written there to try it). `memory`: `ram` must be a file system in memory with enough room.
std::string storage_refusal(const std::string& storage, const std::string& folder, int64_t bytes,
                            const std::string& ram = kRamDisk);

/// Makes the system forget what it has in memory of these files, so that the next read is from the disk. What is not yet on disk
/// is written first.
void drop_from_cache(const std::vector<std::string>& paths);

/// How much of these files is in memory, 0 to 1.
double cached_share(const std::vector<std::string>& paths);

/// A folder in memory that is gone when this object is, or when the next lab looks after one that was killed.
class RamFolder {
 public:
  explicit RamFolder(const std::string& ram = kRamDisk);
  ~RamFolder();
  RamFolder(const RamFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tandem::lab
