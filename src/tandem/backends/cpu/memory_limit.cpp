// How much memory this process may use. Linux ends a process that goes beyond the limit of its control group rather than
// refuse, so the allocator must know it.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "tandem/backends/cpu/allocator.h"

namespace tandem::cpu {

namespace {

/// The number in a file, or `otherwise` where there is none ("max", or no such file).
size_t number_in(const std::string& file, size_t otherwise) {
  std::ifstream in(file);
  size_t number = 0;
  return in >> number ? number : otherwise;
}

/// The lowest limit of a control group and those above it. `folder` is where the groups are mounted.
size_t limit_of_group(const std::string& folder, std::string group, const char* file, size_t limit) {
  for (;;) {
    limit = std::min(limit, number_in(folder + group + '/' + file, limit));
    const size_t slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return limit;
    group.erase(slash);
  }
}

}  // namespace

size_t memory_limit() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
  size_t limit = pages > 0 && bytes > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(bytes) : SIZE_MAX;
  std::ifstream groups("/proc/self/cgroup");  // lines "number:controllers:/group"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      group = line.substr(second + 1);
    if (controllers.empty())
      limit = limit_of_group("/sys/fs/cgroup", group, "memory.max", limit);
    else if ((',' + controllers + ',').find(",memory,") != std::string::npos)
      limit = limit_of_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", limit);
  }
  return limit;
}

}  // namespace tandem::cpu
