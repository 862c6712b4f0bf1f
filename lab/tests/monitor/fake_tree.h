// What the monitor's tests need: temporary folders that look like /proc and /sys, and child processes that do something.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace tandem::lab {

/// A folder of files, removed at the end.
class FakeTree {
 public:
  FakeTree() {
    std::string name = (std::filesystem::temp_directory_path() / "monitor_test_XXXXXX").string();
    if (!::mkdtemp(name.data())) std::abort();
    root_ = name;
  }
  ~FakeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? root_ : root_ + "/" + name; }
  /// Writes the file in place, so that whoever holds it open reads the new content, and never an empty file.
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    const int fd = ::open(path(name).c_str(), O_WRONLY | O_CREAT, 0644);
    const auto bytes = static_cast<ssize_t>(content.size());
    if (fd < 0 || ::pwrite(fd, content.data(), content.size(), 0) != bytes || ::ftruncate(fd, bytes) != 0)
      std::abort();
    ::close(fd);
  }

 private:
  std::string root_;
};

/// A child that runs `body`; killed and waited for at the end. It says over a pipe when it is ready.
class Child {
 public:
  /// `body` calls the function it is given once it is ready.
  explicit Child(const std::function<void(const std::function<void()>&)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      body([&] {
        const char ready = 1;
        if (::write(ends[1], &ready, 1) != 1) ::_exit(3);
      });
      ::_exit(0);
    }
    ::close(ends[1]);
    char ready = 0;
    is_ready_ = ::read(ends[0], &ready, 1) == 1;
    ::close(ends[0]);
  }
  ~Child() { stop(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  bool is_ready() const { return is_ready_; }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  bool is_ready_ = false;
};

inline void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Uses that much processor time of the calling thread.
inline void burn_s(double seconds) {
  timespec time{};
  const auto now = [&] {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  for (const double end = now() + seconds; now() < end;) {
  }
}

/// Takes memory and touches every page of it.
inline char* touch_mib(size_t mib) {
  const size_t bytes = mib << 20;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) ::_exit(4);
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);  // small pages, the costly case for whoever counts them
  for (size_t i = 0; i < bytes; i += 1024) static_cast<char*>(memory)[i] = static_cast<char>(i >> 10);
  return static_cast<char*>(memory);
}

}  // namespace tandem::lab
