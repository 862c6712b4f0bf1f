#include "lab/src/driver/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lab/src/driver/guard.h"
#include "tandem/core/error.h"

namespace tandem::lab {
namespace {

constexpr size_t kLastWords = 8 << 10;

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

}  // namespace

Process::~Process() { finish(0); }

void Process::note_errors(const char* data, size_t bytes) {
  error_tail_.append(data, bytes);
  if (error_tail_.size() > 4 * kLastWords) error_tail_.erase(0, error_tail_.size() - kLastWords);
}

/// Reads what is there; false once the other end is closed.
bool Process::read_some(int& fd, std::string& into, size_t limit) {
  char buffer[65536];
  while (fd >= 0 && into.size() <= limit) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got > 0) {
      into.append(buffer, static_cast<size_t>(got));
      if (got < static_cast<ssize_t>(sizeof buffer)) return true;
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return true;
    } else {
      close_fd(fd);
    }
  }
  return fd >= 0;
}

/// Moves bytes in all three directions until there is new output (where wanted), the input is written, or time is up.
Process::Io Process::pump(int64_t deadline_ns, bool want_output, const char* input, size_t bytes,
                          size_t* written) {
  for (;;) {
    if (stop_ && stop_->load()) return Io::stopped;
    pollfd fds[3] = {{output_, POLLIN, 0}, {errors_, POLLIN, 0}, {bytes ? input_ : -1, POLLOUT, 0}};
    const int64_t left = deadline_ns - now_ns();
    if (left <= 0) return Io::late;
    // A signal ends poll by itself; the slice is for one that came just before it.
    const int slice = static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, 500));
    const int ready = ::poll(fds, 3, slice);
    if (ready < 0 && errno != EINTR) return Io::closed;
    if (ready <= 0) continue;
    if (fds[1].revents) {
      std::string text;
      read_some(errors_, text, kLastWords * 8);
      note_errors(text.data(), text.size());
    }
    if (fds[0].revents) {
      const bool open = read_some(output_, pending_, line_limit_);
      if (want_output) return open ? Io::done : Io::closed;
    }
    if (fds[2].revents) {
      const ssize_t sent = ::write(input_, input, bytes);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return Io::closed;
      if (sent > 0) {
        *written += static_cast<size_t>(sent);
        return Io::done;
      }
    }
  }
}

Process::Io Process::write_line(const std::string& text, int64_t deadline_ns) {
  // The process may have ended: that must be an answer here, not a SIGPIPE. The signal is the thread's own, so it is
  // blocked for the write and taken away after it.
  sigset_t pipe_signal, old;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &old);
  const std::string line = text + "\n";
  size_t written = 0;
  Io io = input_ < 0 ? Io::closed : Io::done;
  while (io == Io::done && written < line.size())
    io = pump(deadline_ns, false, line.data() + written, line.size() - written, &written);
  const timespec none{};
  while (::sigtimedwait(&pipe_signal, nullptr, &none) == SIGPIPE) {
  }
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return io;
}

Process::Io Process::read_line(std::string& line, int64_t deadline_ns) {
  for (;;) {
    // Also where a line is there already: a process that prints without end must not keep the lab from stopping.
    if (stop_ && stop_->load()) return Io::stopped;
    const size_t end = pending_.find('\n', searched_);
    if (end != std::string::npos && end <= line_limit_) {
      line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      searched_ = 0;
      return Io::done;
    }
    searched_ = pending_.size();
    if (pending_.size() > line_limit_) {
      line = pending_.substr(0, 1000);
      return Io::too_long;
    }
    if (output_ < 0) {
      line = std::exchange(pending_, "");
      searched_ = 0;
      return Io::closed;
    }
    const Io io = pump(deadline_ns, true, nullptr, 0, nullptr);
    if (io == Io::late || io == Io::stopped) return io;
  }
}

/// Takes the driver's end from its guard. False where it has not ended yet.
bool Process::reap(bool wait) {
  if (ending_) return true;
  pollfd said{report_, POLLIN, 0};
  while (::poll(&said, 1, wait ? -1 : 0) < 0 && errno == EINTR) {
  }
  GuardMessage message{};
  const ssize_t got = ::read(report_, &message, sizeof message);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  Ending ending;  // unknown where the guard ended without a word
  ending.ended_by_lab = killed_;
  if (got == static_cast<ssize_t>(sizeof message) && message.what == GuardMessage::What::ended) {
    if (WIFEXITED(message.value)) ending.status = WEXITSTATUS(message.value);
    if (WIFSIGNALED(message.value)) ending.signal = WTERMSIG(message.value);
  }
  ending.out_of_memory = !killed_ && ending.signal == SIGKILL && out_of_memory_kills() > memory_kills_;
  ending_ = ending;
  return true;
}

/// Tells the guard to end the driver and all that it started, and waits until it has done so.
void Process::end_all() {
  close_fd(control_);
  while (!reap(true)) {
  }
  int status = 0;
  pid_t got;
  while ((got = ::waitpid(guard_, &status, 0)) < 0 && errno == EINTR) {
  }
  if (got == guard_ && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) kill_marked();
  close_fd(report_);
}

/// Where somebody killed the guard: kills every process that carries this process's mark in its environment.
void Process::kill_marked() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
    if (pid == ::getpid()) continue;
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    for (std::string variable; std::getline(in, variable, '\0');)
      if (variable == mark_) {
        ::kill(pid, SIGKILL);
        break;
      }
  }
}

const Ending& Process::finish(double grace_s) {
  if (control_ < 0) return *ending_;
  close_fd(input_);
  const int64_t deadline = now_ns() + static_cast<int64_t>(grace_s * 1e9);
  while (!reap(false) && now_ns() < deadline) {
    // Drains both pipes meanwhile, so that a process which still writes can end.
    pollfd fds[2] = {{output_, POLLIN, 0}, {errors_, POLLIN, 0}};
    ::poll(fds, 2, 10);
    std::string text;
    if (output_ >= 0) read_some(output_, text, line_limit_);
    text.clear();
    if (errors_ >= 0) read_some(errors_, text, kLastWords * 8);
    note_errors(text.data(), text.size());
  }
  killed_ = !ending_;
  end_all();
  std::string text;
  if (errors_ >= 0) read_some(errors_, text, kLastWords * 8);
  note_errors(text.data(), text.size());
  close_fd(output_);
  close_fd(errors_);
  return *ending_;
}

std::string Process::last_words() {
  if (errors_ >= 0) {
    std::string text;
    read_some(errors_, text, kLastWords * 8);
    note_errors(text.data(), text.size());
  }
  if (error_tail_.size() > kLastWords) error_tail_.erase(0, error_tail_.size() - kLastWords);
  return error_tail_;
}

}  // namespace tandem::lab
