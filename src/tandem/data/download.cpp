// Fetching files with curl.
#include "tandem/data/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tandem/data/places.h"
#include "tandem/io/file.h"
#include "tandem/io/md5.h"
#include "tandem/io/sha256.h"

namespace tandem::data {

namespace fs = std::filesystem;

namespace {

// curl's exit codes that are treated apart.
constexpr int kNoHost = 6, kNoConnection = 7, kPartial = 18, kHttpError = 22, kWriteError = 23, kTimeout = 28,
              kNoRange = 33, kNotExecuted = 127, kEmptyAnswer = 52, kReceiveError = 56;

constexpr auto kPause =
    std::chrono::milliseconds(100);  // before the second try; doubled for each further one

int64_t size_of_file(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

/// Removes what curl left or would write to. What cannot be removed would be met again and again.
void remove_file(const std::string& where, const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error)
    throw resource_error(where, "cannot remove '", io::one_line(path), "': ", error.message(),
                         ". Remove it yourself, or choose another folder (`data_dir`).");
}

/// Ends a child that is still running.
struct Child {
  pid_t pid = -1;
  ~Child() {
    if (pid <= 0) return;
    ::kill(pid, SIGTERM);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  }
};

struct Outcome {
  int code = 0;
  std::string message;  // what curl said
};

/// Runs curl until it ends. What `part` holds is kept and continued.
Outcome run_curl(const std::string& url, const std::string& part, const DownloadOptions& options) {
  const std::string messages = part + ".messages";
  remove_file("download: ", messages);
  const std::vector<std::string> words = {options.program,
                                          "--fail",
                                          "--location",
                                          "--silent",
                                          "--show-error",
                                          "--globoff",
                                          "--proto",
                                          "=http,https,ftp,file",
                                          "--connect-timeout",
                                          "30",
                                          "--speed-limit",
                                          "1",
                                          "--speed-time",
                                          "60",
                                          "--continue-at",
                                          "-",
                                          "--stderr",
                                          messages,
                                          "--output",
                                          part,
                                          "--url",
                                          url};
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Child child{::fork()};
  if (child.pid < 0)
    throw resource_error("download: cannot start a process: ", std::strerror(errno), ". End some others.");
  if (child.pid == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    for (int fd : {0, 1, 2})
      if (null >= 0) ::dup2(null, fd);
    ::execvp(arguments[0], arguments.data());
    ::_exit(kNotExecuted);
  }
  Outcome outcome;
  auto pause = std::chrono::milliseconds(2);
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(child.pid, &status, WNOHANG);
    if (ended == child.pid) {
      child.pid = -1;
      outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
      break;
    }
    if (ended != 0 && errno != EINTR)
      throw resource_error("download: cannot wait for ", options.program, ": ", std::strerror(errno), ".");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
    if (options.progress) options.progress(size_of_file(part));
  }
  std::error_code ignored;
  if (fs::exists(messages, ignored)) {
    const std::vector<uint8_t> said = io::read_file("download", messages);
    outcome.message = io::one_line({reinterpret_cast<const char*>(said.data()), said.size()}, 300);
    while (outcome.message.ends_with("\\x0a")) outcome.message.resize(outcome.message.size() - 4);
    fs::remove(messages, ignored);
  }
  return outcome;
}

[[noreturn]] void fail(const std::string& where, const Outcome& outcome, const DownloadOptions& options) {
  const char* what_to_do = "Try again: what is here is continued.";
  switch (outcome.code) {
    case kNotExecuted:
      throw resource_error(
          where, "needs the program ", options.program,
          ", which is not here. Install it (Debian, Ubuntu: apt-get install curl), or fetch the "
          "file yourself.");
    case kNoHost:
    case kNoConnection:
      what_to_do = "Check the network, or fetch the file elsewhere.";
      break;
    case kHttpError:
      what_to_do = "The source may have moved: fetch the file elsewhere.";
      break;
    case kWriteError:
      what_to_do = "Free some space or choose another folder.";
      break;
    default:
      break;
  }
  throw resource_error(
      where,
      outcome.message.empty() ? str(options.program, " failed with code ", outcome.code) : outcome.message,
      ". ", what_to_do);
}

struct Wanted {
  std::string kind, sum;
};

Wanted parse_checksum(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  TD_CHECK(colon != std::string::npos && (kind == "md5" || kind == "sha256"),
           "download: a checksum must be md5:… or sha256:…; got '", io::one_line(text, 100), "'.");
  return {kind, text.substr(colon + 1)};
}

void sync_and_rename(const std::string& where, const std::string& part, const std::string& path) {
  const Descriptor file = open_file("download", part, O_RDONLY);
  if (::fsync(file.fd()) != 0)
    throw resource_error(where, "cannot write to the disk: ", std::strerror(errno), ".");
  if (::rename(part.c_str(), path.c_str()) != 0)
    throw resource_error(where, "cannot rename the file: ", std::strerror(errno), ".");
}

}  // namespace

std::string checksum_of(const std::string& kind, const std::string& path) {
  io::InputFile file("checksum", path);
  io::Md5 md5;
  io::Sha256 sha256;
  TD_CHECK(kind == "md5" || kind == "sha256", "checksum: must be md5 or sha256; got '",
           io::one_line(kind, 20), "'.");
  std::vector<char> buffer(size_t{1} << 20);
  for (int64_t left = file.bytes(); left > 0;) {
    const auto take = static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(buffer.size())));
    file.read(buffer.data(), take);
    kind == "md5" ? md5.update(buffer.data(), take) : sha256.update(buffer.data(), take);
    left -= static_cast<int64_t>(take);
  }
  return kind == "md5" ? md5.hex() : sha256.hex();
}

void download(const std::string& url, const std::string& path, const DownloadOptions& options) {
  const std::string where = str("download '", io::one_line(url, 500), "': "), part = path + ".part";
  const Wanted wanted = options.checksum.empty() ? Wanted{} : parse_checksum(options.checksum);
  const auto is_right = [&](const std::string& file) {
    return wanted.kind.empty() || checksum_of(wanted.kind, file) == wanted.sum;
  };
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error)
    throw resource_error(where, "cannot make the folder '", io::one_line(folder.string()),
                         "': ", error.message(), ". Choose another with `data_dir`.");
  // A lock on the folder keeps two downloads apart; the second finds the file of the first.
  const std::string place = folder.empty() ? "." : folder.string();
  const Descriptor lock(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock || ::access(place.c_str(), W_OK) != 0)
    throw resource_error(where, "cannot write to '", io::one_line(place), "': ", std::strerror(errno),
                         ". Choose another folder with `data_dir`.");
  while (::flock(lock.fd(), LOCK_EX) != 0 && errno == EINTR) continue;

  if (fs::is_regular_file(path, error) && !wanted.kind.empty() && is_right(path)) return;
  // curl would wait for a pipe's other end, or write through a link.
  const fs::file_type kind = fs::symlink_status(part, error).type();
  TD_CHECK(kind == fs::file_type::not_found || kind == fs::file_type::regular, where, "'", io::one_line(part),
           "' must be a regular file or not exist; got something else. Remove it.");
  for (int tries = 0;;) {
    const int64_t before = size_of_file(part);
    const Outcome outcome = run_curl(url, part, options);
    const int64_t after = size_of_file(part);
    if (options.progress) options.progress(after);
    if (outcome.code == 0 && fs::exists(part, error)) {
      if (is_right(part)) return sync_and_rename(where, part, path);
      const std::string found = checksum_of(wanted.kind, part);
      remove_file(where, part);
      // What was here before may have been of another file: once more from the start.
      if (before > 0) continue;
      throw Error(str(where, "the file must have the ", wanted.kind, " sum ", wanted.sum, "; it has ", found,
                      ". It was thrown away: fetch it elsewhere, or check who answers for that address."));
    }
    if (outcome.code == 0 && before == 0) {  // an empty file: curl makes none
      open_file("download", part, O_WRONLY | O_CREAT);
      if (is_right(part)) return sync_and_rename(where, part, path);
      remove_file(where, part);
    }
    // The server cannot continue, or finds nothing after what is here.
    const bool cannot_continue = before > 0 && (outcome.code == kNoRange || outcome.code == kHttpError);
    if (cannot_continue) {
      if (!wanted.kind.empty() && is_right(part)) return sync_and_rename(where, part, path);
      remove_file(where, part);
      continue;
    }
    const bool broke_off = outcome.code == kPartial || outcome.code == kTimeout ||
                           outcome.code == kReceiveError || outcome.code == kEmptyAnswer;
    if (!broke_off || after <= before || ++tries >= options.tries) {
      if (after == 0) remove_file(where, part);
      fail(where, outcome, options);
    }
    std::this_thread::sleep_for(kPause * (1 << std::min(tries, 6)));
  }
}

std::string download_dataset(const std::string& name, const std::string& data_dir,
                             const std::function<void(const std::string& file, int64_t bytes)>& progress) {
  const DatasetInfo& info = dataset_info(name);
  TD_CHECK(!info.files.empty(), "download: ", name, " is not a data set that can be fetched. ",
           info.how_to_get);
  const std::string folder = download_folder(name, data_dir);
  for (const RemoteFile& file : info.files) {
    DownloadOptions options{.checksum = file.checksum};
    if (progress) options.progress = [&](int64_t bytes) { progress(file.name, bytes); };
    download(file.url, (fs::path(folder) / file.name).string(), options);
  }
  return folder;
}

}  // namespace tandem::data
