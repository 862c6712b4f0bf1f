// The tree's processes, from /proc/PID.
#include "lab/src/monitor/process_tree.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

/// What is used of /proc/PID/stat.
struct Stat {
  char state = '?';
  int64_t parent = 0, own_ticks = 0, waited_ticks = 0, virtual_bytes = 0, rss_pages = 0;
};

std::optional<Stat> parse_stat(std::string_view text) {
  // The second field is the program's name in brackets, in which anything may stand: count from its end.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return std::nullopt;
  text.remove_prefix(name_end + 2);
  Stat stat;
  stat.state = text[0];
  text.remove_prefix(1);
  int64_t fields[21] = {};  // from field 4, the parent, to field 24, the resident pages
  for (int64_t& field : fields) {
    // Some fields are unsigned and larger than an int64_t; none of those are used.
    if (const auto value = take_number(text)) {
      field = *value;
      continue;
    }
    const size_t start = text.find_first_not_of(' ');
    if (start == std::string_view::npos) return std::nullopt;
    const size_t end = text.find(' ', start);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end);
  }
  stat.parent = fields[0];
  stat.own_ticks = fields[10] + fields[11];
  stat.waited_ticks = fields[12] + fields[13];
  stat.virtual_bytes = fields[19];
  stat.rss_pages = fields[20];
  return stat;
}

double page_bytes() {
  static const double bytes = static_cast<double>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

double ticks_a_second() {
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ticks;
}

bool is_number(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

ProcessTree::ProcessTree(std::string proc, pid_t root) : proc_(std::move(proc)), root_(root) {
  if (!add(root_))
    why_ = str("process ", root_, ": ", why_unreadable(str(proc_, "/", root_, "/stat"), ENOENT));
  else
    find_children();
}

bool ProcessTree::knows(pid_t pid) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const Process& one) { return one.pid == pid; });
}

bool ProcessTree::add(pid_t pid) {
  if (pid <= 0 || knows(pid)) return false;
  Process process;
  process.pid = pid;
  process.stat = KeptFile(proc_ + "/" + std::to_string(pid) + "/stat");
  if (!read_stat(process)) return false;
  process.waited_before = process.waited;
  processes_.push_back(std::move(process));
  return true;
}

bool ProcessTree::read_stat(Process& process) {
  const auto text = process.stat.read(buffer_);
  if (!text) return false;
  const auto stat = parse_stat(*text);
  if (!stat) return false;
  process.parent = static_cast<pid_t>(stat->parent);
  process.own = stat->own_ticks;
  process.waited = stat->waited_ticks;
  process.rss_bytes = static_cast<double>(stat->rss_pages) * page_bytes();
  // One that is ending gives its memory back before it is called a zombie.
  process.lives = stat->state != 'Z' && stat->state != 'X' && stat->virtual_bytes != 0;
  return true;
}

void ProcessTree::find_children() {
  if (!lists_children_) return find_by_parents();
  std::vector<pid_t> waiting = pids();
  bool listed = false, any_thread = false;
  while (!waiting.empty()) {
    const std::string task = proc_ + "/" + std::to_string(waiting.back()) + "/task/";
    waiting.pop_back();
    // A child belongs to the thread that made it.
    for (const std::string& thread : names_in(task)) {
      any_thread = true;
      const KeptFile children(task + thread + "/children");
      auto text = children.read(buffer_);
      if (!text) continue;
      listed = true;
      std::vector<pid_t> found;  // `add` reads into the same buffer
      while (const auto pid = take_number(*text)) found.push_back(static_cast<pid_t>(*pid));
      for (const pid_t pid : found)
        if (add(pid)) waiting.push_back(pid);
    }
  }
  if (any_thread && !listed && root_lives()) {
    lists_children_ = false;  // a kernel without CONFIG_PROC_CHILDREN
    find_by_parents();
  }
}

void ProcessTree::find_by_parents() {
  std::multimap<pid_t, pid_t> children;
  for (const std::string& name : names_in(proc_)) {
    if (!is_number(name)) continue;
    const KeptFile file(proc_ + "/" + name + "/stat");
    const auto text = file.read(buffer_);
    const auto stat = text ? parse_stat(*text) : std::nullopt;
    if (stat) children.emplace(static_cast<pid_t>(stat->parent), static_cast<pid_t>(std::atol(name.c_str())));
  }
  std::vector<pid_t> waiting = pids();
  while (!waiting.empty()) {
    const auto [first, last] = children.equal_range(waiting.back());
    waiting.pop_back();
    for (auto child = first; child != last; ++child)
      if (add(child->second)) waiting.push_back(child->second);
  }
}

std::optional<ProcessTree::Reading> ProcessTree::read() {
  for (Process& process : processes_) process.waited_before = process.waited;
  // A process's time moves to its parent when the parent waits for it. Parents are read before their children, so no time
  // is seen twice; and where a child is found gone, all are read once more, so that it is not missed either.
  std::vector<Process> ended;
  for (bool steady = false; !steady;) {
    steady = true;
    for (Process& process : processes_) {
      if (read_stat(process)) continue;
      process.lives = false;
      ended.push_back(std::move(process));
      process.pid = 0;
      steady = false;
    }
    std::erase_if(processes_, [](const Process& process) { return process.pid == 0; });
  }
  if (!ended.empty()) account_for(ended);

  Reading reading;
  int64_t ticks = lost_ticks_;
  bool any = false;
  for (const Process& process : processes_) {
    ticks += process.own + process.waited;
    if (process.lives) reading.rss_bytes += process.rss_bytes;  // a zombie has no memory any more
    any |= process.lives;
  }
  if (!any) {
    if (why_.empty()) why_ = str("process ", root_, " has ended");
    return std::nullopt;
  }
  reading.cpu_s = static_cast<double>(ticks) / ticks_a_second();
  return reading;
}

/// The time of an ended process is in what its parent waited for, unless the parent does not care for its children or
/// ended first: then the kernel forgets it, and the last reading of it stands.
void ProcessTree::account_for(const std::vector<Process>& ended) {
  std::map<pid_t, int64_t> owed;  // by parent: ticks of its children that ended just now
  const auto was_there = [&](pid_t pid) {
    return knows(pid) ||
           std::any_of(ended.begin(), ended.end(), [&](const Process& one) { return one.pid == pid; });
  };
  std::vector<const Process*> children_first;
  for (const Process& process : ended) children_first.push_back(&process);
  const auto depth = [&](const Process* process) {
    int steps = 0;
    for (bool found = true; found && steps <= static_cast<int>(ended.size()); ++steps) {
      const auto parent = std::find_if(ended.begin(), ended.end(),
                                       [&](const Process& one) { return one.pid == process->parent; });
      found = parent != ended.end();
      if (found) process = &*parent;
    }
    return steps;
  };
  std::stable_sort(children_first.begin(), children_first.end(),
                   [&](const Process* a, const Process* b) { return depth(a) > depth(b); });
  for (const Process* process : children_first) {
    const int64_t waited = std::max(process->waited - process->waited_before, owed[process->pid]);
    const int64_t ticks = process->own + process->waited_before + waited;
    (was_there(process->parent) ? owed[process->parent] : lost_ticks_) += ticks;
  }
  for (const Process& process : processes_) {
    const auto ticks = owed.find(process.pid);
    if (ticks != owed.end())
      lost_ticks_ += std::max<int64_t>(ticks->second - (process.waited - process.waited_before), 0);
  }
}

std::optional<double> ProcessTree::pss_bytes(std::string& why) {
  double sum = 0;
  bool any = false;
  for (const Process& process : processes_) {
    if (!process.lives) continue;
    // Not kept open: the file is bound to the memory that the process had when it was opened, before an exec perhaps.
    const KeptFile file(proc_ + "/" + std::to_string(process.pid) + "/smaps_rollup");
    int error = file.error();
    auto text = file.is_open() ? file.read(buffer_, &error) : std::nullopt;
    if (!text) {
      if (error == ESRCH || (error == ENOENT && process.pid != root_)) continue;  // it ended just now
      why = why_unreadable(file.path(), error);
      return std::nullopt;
    }
    while (!text->empty()) {
      std::string_view line = take_line(*text);
      if (!line.starts_with("Pss:")) continue;
      line.remove_prefix(4);
      if (const auto kib = take_number(line)) {
        sum += 1024.0 * static_cast<double>(*kib);
        any = true;
      }
      break;
    }
  }
  if (any) return sum;
  why = why_.empty() ? str("process ", root_, " has ended") : why_;
  return std::nullopt;
}

int64_t ProcessTree::runnable_threads() {
  int64_t count = 0;
  for (const Process& process : processes_) {
    const std::string task = proc_ + "/" + std::to_string(process.pid) + "/task/";
    for (const std::string& thread : names_in(task)) {
      const KeptFile file(task + thread + "/stat");
      const auto text = file.is_open() ? file.read(buffer_) : std::nullopt;
      const auto stat = text ? parse_stat(*text) : std::nullopt;
      count += stat && stat->state == 'R';
    }
  }
  return count;
}

bool ProcessTree::root_lives() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const Process& one) { return one.pid == root_ && one.lives; });
}

std::vector<pid_t> ProcessTree::pids() const {
  std::vector<pid_t> all;
  for (const Process& process : processes_) all.push_back(process.pid);
  return all;
}

}  // namespace tandem::lab
