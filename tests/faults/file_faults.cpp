// A library to preload into a program (LD_PRELOAD), which makes one of its file calls fail or ends the program there.
// Only calls for files in one folder count, in the order in which the program makes them, from 1.
//   FILE_FAULTS_FOLDER  that folder
//   FILE_FAULTS_LOG     a file that gets a line for each call, "write+ …/config.json.tmp"; + marks those that change
//                       something on the disk
//   FILE_FAULTS_AT      the number of the call to act at
//   FILE_FAULTS_ERROR   the errno that it fails with; absent: the process gets SIGKILL (a write is half done by then)
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace {

struct Settings {
  std::string folder;
  int log = -1;
  long at = 0, error = 0;
};

const Settings& settings() {
  static const Settings all = [] {
    const auto value = [](const char* name) {
      return getenv(name) ? std::string(getenv(name)) : std::string();
    };
    Settings s{value("FILE_FAULTS_FOLDER"), -1, atol(value("FILE_FAULTS_AT").c_str()),
               atol(value("FILE_FAULTS_ERROR").c_str())};
    if (const std::string log = value("FILE_FAULTS_LOG"); !log.empty())
      s.log = static_cast<int>(
          syscall(SYS_openat, AT_FDCWD, log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    return s;
  }();
  return all;
}

/// Counts the call. True: it must fail, and errno is set.
bool fails(const char* call, const char* path, bool changes, int fd = -1, const void* data = nullptr,
           size_t bytes = 0) {
  static std::atomic<long> calls{0};
  const Settings& s = settings();
  if (s.folder.empty() || !path || strncmp(path, s.folder.c_str(), s.folder.size()) != 0) return false;
  const long number = ++calls;
  if (s.log >= 0) {
    const std::string line = std::string(call) + (changes ? "+ " : " ") + path + "\n";
    syscall(SYS_write, s.log, line.data(), line.size());
  }
  if (number != s.at) return false;
  if (s.error) {
    errno = static_cast<int>(s.error);
    return true;
  }
  if (data) syscall(SYS_write, fd, data, bytes / 2);
  syscall(SYS_kill, getpid(), SIGKILL);
  return true;
}

bool fails_for_fd(const char* call, int fd, bool changes, const void* data = nullptr, size_t bytes = 0) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof(path) - 1);
  if (length <= 0) return false;
  path[length] = 0;
  return fails(call, path, changes, fd, data, bytes);
}

/// The function that this one stands before.
template <class F>
F next(F, const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list rest) {
  return flags & (O_CREAT | O_TMPFILE) ? static_cast<mode_t>(va_arg(rest, int)) : 0;
}

}  // namespace

extern "C" {

#define OPEN(name) \
  int name(const char* path, int flags, ...) { \
    va_list rest; \
    va_start(rest, flags); \
    const mode_t mode = mode_of(flags, rest); \
    va_end(rest); \
    if (fails("open", path, (flags & O_CREAT) != 0)) return -1; \
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode)); \
  }
OPEN(open)
OPEN(open64)

int openat(int folder, const char* path, int flags,
           ...) {  // with AT_FDCWD alone here: folders that are listed
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  if (fails("openat", path, (flags & O_CREAT) != 0)) return -1;
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

ssize_t read(int fd, void* data, size_t bytes) {
  if (fails_for_fd("read", fd, false)) return -1;
  return syscall(SYS_read, fd, data, bytes);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (fails_for_fd("write", fd, true, data, bytes)) return -1;
  return syscall(SYS_write, fd, data, bytes);
}
int fsync(int fd) { return fails_for_fd("fsync", fd, true) ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }

#define CALL_FD(name, changes, parameters, arguments) \
  int name parameters { \
    static const auto real = next(&name, #name); \
    return fails_for_fd(#name, fd, changes) ? -1 : real arguments; \
  }
#define CALL_PATH(name, changes, parameters, arguments) \
  int name parameters { \
    static const auto real = next(&name, #name); \
    return fails(#name, path, changes) ? -1 : real arguments; \
  }
CALL_FD(ftruncate, true, (int fd, off_t length), (fd, length))
CALL_FD(ftruncate64, true, (int fd, off64_t length), (fd, length))
CALL_FD(flock, false, (int fd, int operation), (fd, operation))
CALL_PATH(rename, true, (const char* path, const char* to), (path, to))
CALL_PATH(unlink, true, (const char* path), (path))
CALL_PATH(remove, true, (const char* path), (path))
CALL_PATH(mkdir, true, (const char* path, mode_t mode), (path, mode))
CALL_PATH(unlinkat, true, (int folder, const char* path, int flags), (folder, path, flags))
CALL_PATH(stat, false, (const char* path, struct stat* out), (path, out))
CALL_FD(fstat, false, (int fd, struct stat* out), (fd, out))

DIR* opendir(const char* path) {
  static const auto real = next(&opendir, "opendir");
  return fails("opendir", path, false) ? nullptr : real(path);
}
}
