#include "lab/src/measure/storage.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "tandem-lab-";  // of folders in memory, before the number of the process
constexpr int64_t kProbeBytes = 1 << 20;
constexpr double kStillCached = 0.05;  // of a file that was dropped

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool is_in_memory(const std::string& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

std::string disk_refusal(const std::string& folder) {
  if (is_in_memory(folder))
    return str("storage disk: the study's folder must be on a disk; '", folder,
               "' is in memory. Give an --out on a disk.");
  const std::string probe = str(folder, "/storage-probe-", ::getpid());
  std::ofstream(probe, std::ios::binary) << std::string(kProbeBytes, 'x');
  drop_from_cache({probe});
  const double left = cached_share({probe});
  std::error_code ignored;
  fs::remove(probe, ignored);
  if (left <= kStillCached) return "";
  return str("storage disk: files must leave the page cache when the system is asked to drop them; ",
             static_cast<int>(100 * left), " % of one in '", folder,
             "' stayed in memory. Give an --out on another file system.");
}

std::string memory_refusal(const std::string& ram, int64_t bytes) {
  struct statfs info {};
  if (::statfs(ram.c_str(), &info) != 0 || !is_in_memory(ram) || ::access(ram.c_str(), W_OK) != 0)
    return str("storage memory: '", ram,
               "' must be a file system in memory that can be written to; it is not. Mount a tmpfs there.");
  const double room = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_bsize);
  if (room >= static_cast<double>(bytes)) return "";
  return str("storage memory: '", ram, "' must have room for ", bytes >> 20, " MiB of image files; it has ",
             static_cast<int64_t>(room) >> 20, " MiB. Mount it larger, or shorten the study's steps.");
}

}  // namespace

std::string storage_refusal(const std::string& storage, const std::string& folder, int64_t bytes,
                            const std::string& ram) {
  return storage == "disk" ? disk_refusal(folder) : memory_refusal(ram, bytes);
}

void drop_from_cache(const std::vector<std::string>& paths) {
  if (paths.empty()) return;
  // Pages that are not on disk yet cannot be dropped.
  const OpenFile first(paths.front());
  if (first.fd() >= 0) ::syncfs(first.fd());
  for (const std::string& path : paths) {
    const OpenFile file(path);
    if (file.fd() >= 0) ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

double cached_share(const std::vector<std::string>& paths) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t all = 0, there = 0;
  for (const std::string& path : paths) {
    const OpenFile file(path);
    struct stat info {};
    if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0 || info.st_size == 0) continue;
    const auto bytes = static_cast<size_t>(info.st_size);
    void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (map == MAP_FAILED) continue;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    if (::mincore(map, bytes, pages.data()) == 0) {
      all += pages.size();
      for (const unsigned char one : pages) there += one & 1;
    }
    ::munmap(map, bytes);
  }
  return all == 0 ? 0 : static_cast<double>(there) / static_cast<double>(all);
}

RamFolder::RamFolder(const std::string& ram) : path_(str(ram, "/", kPrefix, ::getpid())) {
  // What a lab left that was killed would take memory until the machine restarts.
  std::error_code error;
  for (fs::directory_iterator at(ram, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const auto pid = static_cast<pid_t>(std::strtol(name.c_str() + std::string(kPrefix).size(), nullptr, 10));
    std::error_code ignored;
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(at->path(), ignored);
  }
  fs::create_directories(path_);
}

RamFolder::~RamFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tandem::lab
