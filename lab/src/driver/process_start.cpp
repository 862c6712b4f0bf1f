// How a driver's process begins: its environment, its cores, its pipes, and its guard.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "lab/src/driver/guard.h"
#include "lab/src/driver/process.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

extern char** environ;

namespace tandem::lab {
namespace {

constexpr const char* kMark = "TANDEM_LAB_PROCESS";

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0)
      throw resource_error("driver: the lab must be able to open pipes; got '", std::strerror(errno),
                           "'. Close other programs or raise the limit of open files (ulimit -n).");
    // Above 2, so that the driver's descriptors 0 to 2 can be set whatever the lab was started with.
    for (int& fd : fds)
      if (fd < 3)
        if (const int higher = ::fcntl(fd, F_DUPFD_CLOEXEC, 3); higher >= 0)
          ::close(std::exchange(fd, higher));
    read = fds[0], write = fds[1];
  }
  ~Pipe() { close_fd(read), close_fd(write); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

/// The file that exec will run. Looked up before the fork, where memory may still be allocated.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string rest = path ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return name;
}

std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; entry && *entry; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals) all[std::string(*entry, static_cast<size_t>(equals - *entry))] = equals + 1;
  }
  for (const auto& [name, value] : changes) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

int64_t counter_in(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  std::string word;
  int64_t value = 0;
  while (in >> word >> value)
    if (word == name) return value;
  return 0;
}

}  // namespace

int64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Whatever a framework builds on, its pools are to have as many threads as the cell says.
std::vector<std::pair<std::string, std::string>> thread_environment(int64_t threads) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* name :
       {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"})
    out.emplace_back(name, std::to_string(threads));
  return out;
}

std::vector<int> first_cpus(int64_t count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE && static_cast<int64_t>(out.size()) < count; ++cpu)
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  return out;
}

std::string Ending::text() const {
  if (status) return str("exit status ", *status);
  if (signal)
    return str("signal ", signal, " (", ::strsignal(signal), ")",
               out_of_memory ? ", for want of memory" : "");
  return "an unknown end";
}

// A count before and after tells whether the kernel killed for memory meanwhile, on the machine or in this control
// group.
int64_t out_of_memory_kills() {
  int64_t kills = counter_in("/proc/vmstat", "oom_kill");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.rfind("0::", 0) == 0)
      kills += counter_in("/sys/fs/cgroup" + line.substr(3) + "/memory.events", "oom_kill");
  return kills;
}

Process::Process(const ProcessOptions& options) : line_limit_(options.line_limit), stop_(options.stop) {
  TD_CHECK(!options.command.empty() && !options.command[0].empty(),
           "driver: the command must name a program; got none. Fix its entry in drivers.toml.");
  static std::atomic<int> number{0};
  const std::string mark = str(::getpid(), "-", ++number);
  mark_ = str(kMark, "=", mark);
  auto changes = options.environment;
  changes.emplace_back(kMark, mark);
  std::vector<std::string> command = options.command, variables = merged_environment(changes);
  std::vector<char*> arguments = pointers(command), settings = pointers(variables);
  const std::string program = find_program(command[0]);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);

  Pipe in, out, err, control, report;
  memory_kills_ = out_of_memory_kills();
  // The guard begins with all signals blocked: none may run a handler of the lab in it.
  sigset_t all, old;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);
  guard_ = ::fork();
  if (guard_ == 0)
    guard_driver({program.c_str(), arguments.data(), settings.data(), options.cpus.empty() ? nullptr : &cpus,
                  in.read, out.write, err.write},
                 control.read, report.write);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (guard_ < 0)
    throw resource_error("driver: the lab must be able to start a process; got '", std::strerror(fork_error),
                         "'. Close other programs.");
  // Now the guard alone has this end: where it dies, the read below ends instead of waiting for ever.
  close_fd(report.write);
  GuardMessage message{};
  ssize_t got;
  while ((got = ::read(report.read, &message, sizeof message)) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(sizeof message) || message.what != GuardMessage::What::started) {
    close_fd(control.write);
    while (::waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw resource_error("driver: the command must be a program that runs; got '",
                         io::one_line(command[0], 300),
                         "': ", got > 0 ? std::strerror(message.value) : "its guard was killed",
                         ". Run 'tandem lab list' to see what is installed.");
  }
  pid_ = message.value;
  control_ = std::exchange(control.write, -1);
  report_ = std::exchange(report.read, -1);
  input_ = std::exchange(in.write, -1);
  output_ = std::exchange(out.read, -1);
  errors_ = std::exchange(err.read, -1);
  // Reads and writes wait in poll, with a deadline; they must never block by themselves.
  for (const int fd : {input_, output_, errors_, report_})
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace tandem::lab
