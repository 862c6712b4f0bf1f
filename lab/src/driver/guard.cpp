#include "lab/src/driver/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace tandem::lab {
namespace {

/// A process that cannot be killed (it waits for a broken disk or driver) must not hold the lab for ever.
constexpr int64_t kPatience_ms = 10'000;

int64_t now_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
}

/// What the lab has open must not stay open here: its locks, and the other drivers' pipes, whose closing is a signal.
void close_all_but(int* kept, int count) {
  std::sort(kept, kept + count);
  const auto close_range = [](unsigned first, unsigned last) {
    if (first > last) return;
#ifdef SYS_close_range
    if (::syscall(SYS_close_range, first, last, 0) == 0) return;
#endif
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    for (unsigned fd = first; fd <= last && fd < most.rlim_cur; ++fd) ::close(static_cast<int>(fd));
  };
  unsigned next = 0;
  for (int i = 0; i < count; ++i) {
    if (static_cast<unsigned>(kept[i]) > next) close_range(next, static_cast<unsigned>(kept[i]) - 1);
    next = std::max(next, static_cast<unsigned>(kept[i]) + 1);
  }
  close_range(next, ~0u);
}

/// The driver's side, between vfork and exec. `cause` lies in the guard's memory, which the two share until then.
[[noreturn]] void become(const GuardedProgram& program, pid_t guard, volatile int* cause) {
  ::setpgid(0, 0);
  // The guard may have died before the next line was in force: then the parent is another by now.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // where somebody kills the guard, the driver must not go on for nobody
  if (::getppid() != guard) ::_exit(127);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP, SIGQUIT})
    ::sigaction(signal, &usual, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (program.cpus) ::sched_setaffinity(0, sizeof *program.cpus, program.cpus);
  // The pipes are above 2, and dup2 clears close-on-exec.
  ::dup2(program.in, 0);
  ::dup2(program.out, 1);
  ::dup2(program.err, 2);
  ::execve(program.file, program.arguments, program.variables);
  *cause = errno;
  ::_exit(127);
}

void tell(int report, GuardMessage::What what, int value) {
  const GuardMessage message{what, value};
  [[maybe_unused]] const ssize_t n = ::write(report, &message, sizeof message);
}

/// The parent of a process, from /proc/NAME/stat; 0 where it has gone.
pid_t parent_of(const char* name) {
  char path[64] = "/proc/";
  const size_t length = ::strnlen(name, 32);
  std::memcpy(path + 6, name, length);
  std::memcpy(path + 6 + length, "/stat", 6);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[512];
  const ssize_t got = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (got <= 0) return 0;
  text[got] = 0;
  const char* at = ::strrchr(text, ')');  // the program's name may hold brackets and spaces
  if (!at || at + 4 >= text + got) return 0;
  pid_t parent = 0;
  for (at += 4; *at >= '0' && *at <= '9'; ++at) parent = parent * 10 + (*at - '0');
  return parent;
}

/// Kills every child. Theirs become the guard's own as they die, and are killed in the next round.
void kill_children() {
  const int folder = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const pid_t self = ::getpid();
  alignas(dirent64) char entries[16384];
  for (;;) {
    const long got = ::syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (got <= 0) break;
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
      if (parent_of(entry->d_name) != self) continue;
      pid_t pid = 0;
      for (const char* digit = entry->d_name; *digit >= '0' && *digit <= '9'; ++digit)
        pid = pid * 10 + (*digit - '0');
      ::kill(pid, SIGKILL);
    }
  }
  ::close(folder);
}

/// Takes the ends of all children that have ended. False where there is no child any more.
bool take_ends(pid_t driver, int report, bool& driver_ended) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid == 0) return true;
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return false;
    if (pid != driver) continue;
    driver_ended = true;
    tell(report, GuardMessage::What::ended, status);
  }
}

}  // namespace

// Runs in a process that was forked from one with threads: no memory is allocated and no lock taken here, since
// another thread may have held one. It lives until the lab closes `control`, or dies, which closes it as well; then
// it kills all that the driver has started, of which it is made the parent (subreaper) as their own parents die.
void guard_driver(const GuardedProgram& program, int control, int report) {
  ::setpgid(0, 0);  // Ctrl-C is for the lab, which then ends the driver in order
  ::prctl(PR_SET_NAME, "lab-guard");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  int kept[] = {program.in, program.out, program.err, control, report};
  close_all_but(kept, 5);
  struct sigaction wake {};
  wake.sa_handler = [](int) {};
  ::sigaction(SIGCHLD, &wake, nullptr);

  volatile int cause = 0;
  const pid_t self = ::getpid();
  // vfork returns here after exec or _exit, so that `cause` is final.
  const pid_t driver = ::vfork();
  if (driver == 0) become(program, self, &cause);
  if (driver < 0) cause = errno;
  for (const int fd : {program.in, program.out, program.err}) ::close(fd);
  if (cause != 0) {
    tell(report, GuardMessage::What::failed, cause);
    ::_exit(0);
  }
  tell(report, GuardMessage::What::started, driver);

  sigset_t but_children;
  sigfillset(&but_children);
  sigdelset(&but_children, SIGCHLD);
  bool driver_ended = false;
  for (;;) {
    take_ends(driver, report, driver_ended);
    pollfd lab{control, POLLIN, 0};
    // Children's signals are let through inside ppoll alone: none is lost between take_ends and the wait.
    if (::ppoll(&lab, 1, nullptr, &but_children) > 0 && lab.revents) break;  // nobody writes: it was closed
  }
  if (!driver_ended) ::kill(-driver, SIGKILL);
  const int64_t deadline = now_ms() + kPatience_ms;
  for (;;) {
    kill_children();
    if (!take_ends(driver, report, driver_ended)) ::_exit(0);
    if (now_ms() > deadline) ::_exit(1);
    const timespec moment{0, 2'000'000};
    ::nanosleep(&moment, nullptr);
  }
}

}  // namespace tandem::lab
