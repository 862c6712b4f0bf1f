// Programs run to their end, by posix_spawn.
#include "lab/src/driver/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/core/error.h"

extern char** environ;

namespace tandem::lab {
namespace {

/// What becomes of the child's descriptors 0, 1 and 2.
class Actions {
 public:
  Actions() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
  }
  ~Actions() { posix_spawn_file_actions_destroy(&actions_); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  void open(int fd, const char* path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, fd, path, flags, 0644);
  }
  void copy(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// -1 where it cannot be started.
pid_t spawn(const std::vector<std::string>& words, const Actions& actions) {
  TD_CHECK(!words.empty(), "run: a command must have at least one word; got none.");
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  return error == 0 ? pid : -1;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int run_program(const std::vector<std::string>& words, const std::string& log) {
  Actions actions;
  actions.open(1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND);
  actions.copy(1, 2);
  const pid_t pid = spawn(words, actions);
  return pid < 0 ? 127 : wait_for(pid);
}

Printed run_and_read(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw resource_error("run '", words.empty() ? "" : words[0], "': a pipe must be made; got ",
                         std::strerror(errno), ".");
  Actions actions;
  actions.copy(ends[1], 1);
  actions.open(2, "/dev/null", O_WRONLY);
  const pid_t pid = spawn(words, actions);
  close(ends[1]);
  Printed printed;
  char buffer[4096];
  for (;;) {
    const ssize_t got = pid < 0 ? 0 : read(ends[0], buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (printed.text.size() < size_t{1} << 20) printed.text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  if (pid >= 0) printed.status = wait_for(pid);
  return printed;
}

}  // namespace tandem::lab
