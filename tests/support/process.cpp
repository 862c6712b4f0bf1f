// Child processes of the built command.
#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {
namespace {

std::filesystem::path fresh_name(const char* what) {
  static std::atomic<int> count{0};
  return std::filesystem::temp_directory_path() /
         ("tandem_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++) + what);
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, const ProcessOptions& options)
    : out_(fresh_name(".out")), err_(fresh_name(".err")) {
  const std::string program = command_path().string();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (const std::string& variable : options.environment)
    environment.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable; ++variable) environment.push_back(*variable);
  environment.push_back(nullptr);
  const std::string out = out_.string(), err = err_.string(), folder = options.folder.string();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ > 0) return;
  // The child: system calls only until exec.
  const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(out_fd, STDOUT_FILENO);
  ::dup2(err_fd, STDERR_FILENO);
  if (!folder.empty() && ::chdir(folder.c_str()) != 0) ::_exit(126);
  if (options.max_file_bytes >= 0) {
    const auto limit = static_cast<rlim_t>(options.max_file_bytes);
    const rlimit both{limit, limit};
    ::signal(SIGXFSZ, SIG_DFL);  // which ends a process that does not see to it
    ::setrlimit(RLIMIT_FSIZE, &both);
  }
  ::execve(program.c_str(), argv.data(), environment.data());
  ::_exit(127);
}

Process::~Process() {
  if (pid_ > 0) {
    kill();
    wait();
  }
}

void Process::kill() { send(SIGKILL); }
void Process::send(int signal) { ::kill(pid_, signal); }

ProcessResult Process::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  ProcessResult result;
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = read_text(out_.string());
  result.err = read_text(err_.string());
  std::error_code ignored;
  std::filesystem::remove(out_, ignored);
  std::filesystem::remove(err_, ignored);
  return result;
}

}  // namespace tandem::testing
