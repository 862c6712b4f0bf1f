// Processor time and waiting time of a process and its descendants, from /proc.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "lab/src/measure/honesty.h"

namespace tandem::lab {
namespace {

namespace fs = std::filesystem;

struct Row {
  pid_t parent = 0;
  double cpu_s = 0;
};

/// Fields of /proc/PID/stat after the name, which may itself hold blanks and brackets.
std::optional<Row> read_stat(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  std::string state;
  Row row;
  fields >> state >> row.parent;
  std::string skipped;
  for (int i = 0; i < 9; ++i) fields >> skipped;
  double user = 0, system = 0, child_user = 0, child_system = 0;
  fields >> user >> system >> child_user >> child_system;
  if (!fields) return std::nullopt;
  // Children that have ended and were waited for count with their parent.
  row.cpu_s = (user + system + child_user + child_system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return row;
}

/// The longest wait among the threads of one process: the second number of schedstat, in nanoseconds. None where the kernel does not
/// count: then the file is absent, or all of it is zero.
std::optional<double> longest_wait_s(const std::string& folder) {
  std::optional<double> longest;
  std::error_code ignored;
  for (fs::directory_iterator at(folder + "/task", ignored), end; at != end; at.increment(ignored)) {
    std::ifstream in(at->path() / "schedstat");
    double on_cpu = 0, waited = 0;
    if (in >> on_cpu >> waited && on_cpu > 0) longest = std::max(longest.value_or(0), waited / 1e9);
  }
  return longest;
}

}  // namespace

Witness witness(pid_t pid) {
  std::map<pid_t, Row> all;
  std::error_code ignored;
  for (fs::directory_iterator at("/proc", ignored), end; at != end; at.increment(ignored)) {
    const std::string name = at->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto row = read_stat(at->path() / "stat"))
      all[static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10))] = *row;
  }
  Witness out;
  for (const auto& [one, row] : all) {
    pid_t up = one;
    for (int depth = 0; depth < 64 && up != pid && all.count(up); ++depth) up = all[up].parent;
    if (up != pid) continue;
    out.cpu_s += row.cpu_s;
    if (const auto waited = longest_wait_s("/proc/" + std::to_string(one))) {
      out.delay_s = std::max(out.delay_s, *waited);
      out.knows_delay = true;
    }
  }
  return out;
}

}  // namespace tandem::lab
