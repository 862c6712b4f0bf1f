// A study's folder: study.json, provenance.json, and runs.jsonl, to which one line per run is appended. A line that a kill
// cut off has no newline and is not whole JSON: readers leave it out, and the next append cuts it.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "lab/src/files/json.h"
#include "lab/src/record/record.h"
#include "tandem/core/error.h"
#include "tandem/io/file.h"

namespace tandem::lab {
namespace {

std::string path_in(const std::string& folder, const char* name) {
  return folder.empty() || folder.back() == '/' ? folder + name : folder + "/" + name;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Json read_object(const std::string& path) {
  const auto bytes = io::read_file("read", path, int64_t{1} << 28);
  const char* const what_to_do = "Restore the file, or measure into a new folder.";
  Json json = parse_json<Json>(str("read '", io::one_line(path), "': the file "),
                               {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, what_to_do);
  TD_CHECK(json.is_object(), "read '", io::one_line(path), "': the file must hold one JSON object; got a ",
           json.type_name(), ". ", what_to_do);
  return json;
}

/// True where the text is one whole JSON value. A cut-off object never is: its last brace is missing.
bool is_whole(std::string_view line) { return Json::accept(line.begin(), line.end()); }

std::vector<Run> read_runs(const std::string& path) {
  const auto bytes = io::read_maybe_gzip("read", path);
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<Run> runs;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t newline = rest.find('\n');
    const std::string_view line = rest.substr(0, newline);
    const bool ended = newline != std::string_view::npos;
    rest.remove_prefix(ended ? newline + 1 : rest.size());
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!ended && !is_whole(line)) break;
    const std::string where = str("read '", io::one_line(path), "', line ", number, ": ");
    const char* const what_to_do = "Remove that line; the study measures what is missing.";
    try {
      runs.push_back(run_from_json(parse_json<Json>("the line ", line, what_to_do)));
    } catch (const Json::exception& error) {
      throw Error(str(where, "the line must be one JSON object; got: ", io::one_line(error.what(), 200), ". ",
                      what_to_do));
    } catch (Error& error) {
      error.prepend(where);
      throw;
    }
  }
  return runs;
}

[[noreturn]] void fail(const std::string& path, const char* step, int error) {
  throw resource_error("append to '", io::one_line(path), "': ", step, ": ", std::strerror(error),
                       error == ENOSPC || error == EDQUOT
                           ? ". Free some space; the study goes on where it stopped."
                           : ". Check the folder and the disk.");
}

void write_all(int fd, const std::string& path, std::string_view text, off_t keep) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Half a record helps nobody; where even this fails, the next reader leaves it out.
      if (::ftruncate(fd, keep) != 0) fail(path, "cannot write, nor cut what was written", error);
      fail(path, "cannot write", error);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

/// Reads bytes [from, to) of the file.
std::string piece(int fd, const std::string& path, off_t from, off_t to) {
  std::string text(static_cast<size_t>(to - from), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::pread(fd, text.data() + have, text.size() - have, from + static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "cannot read its end", errno);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

/// Makes the file end with a newline: completes a last line that is whole, cuts one that is not. Returns the size.
off_t end_last_line(int fd, const std::string& path) {
  struct stat state {};
  if (::fstat(fd, &state) != 0) fail(path, "cannot ask for its size", errno);
  constexpr off_t kPiece = 1 << 16;
  off_t begin = state.st_size;  // of the last line
  while (begin > 0) {
    const off_t from = std::max<off_t>(0, begin - kPiece);
    const size_t newline = piece(fd, path, from, begin).rfind('\n');
    begin = newline == std::string::npos ? from : from + static_cast<off_t>(newline) + 1;
    if (newline != std::string::npos) break;
  }
  const std::string line = piece(fd, path, begin, state.st_size);
  if (line.empty()) return state.st_size;
  if (is_whole(line)) {
    write_all(fd, path, "\n", state.st_size);
    return state.st_size + 1;
  }
  if (::ftruncate(fd, begin) != 0) fail(path, "cannot cut its torn last line", errno);
  return begin;
}

}  // namespace

Results load_results(const std::string& folder) {
  const std::string study = path_in(folder, "study.json");
  TD_CHECK(exists(study), "read '", io::one_line(folder),
           "': the folder must hold a study; got one without study.json. Name a folder that `tandem lab run` "
           "made.");
  Results results;
  results.folder = folder;
  results.study = read_object(study);
  const std::string provenance = path_in(folder, "provenance.json");
  if (exists(provenance)) results.provenance = read_object(provenance);
  const std::string runs = path_in(folder, "runs.jsonl"), packed = runs + ".gz";
  TD_CHECK(!exists(runs) || !exists(packed), "read '", io::one_line(folder),
           "': the folder must hold one file of runs; got runs.jsonl and runs.jsonl.gz. Remove one.");
  if (exists(runs)) results.runs = read_runs(runs);
  if (exists(packed)) results.runs = read_runs(packed);
  return results;
}

void append_run(const std::string& folder, const Run& run) {
  // Foreign bytes of a driver's last words may be no UTF-8: they become replacement characters.
  const std::string line = to_json(run).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string path = path_in(folder, "runs.jsonl");
  TD_CHECK(!exists(path + ".gz"), "append to '", io::one_line(path),
           "': the runs so far must not be packed; got runs.jsonl.gz. Unpack it: gunzip.");
  const bool is_new = !exists(path);
  const Descriptor file = open_file("append to", path, O_RDWR | O_CREAT | O_APPEND);
  while (::flock(file.fd(), LOCK_EX) != 0)
    if (errno != EINTR) break;  // a file system without locks: go on without
  const off_t size = end_last_line(file.fd(), path);
  write_all(file.fd(), path, line, size);
  if (::fsync(file.fd()) != 0) fail(path, "cannot make it durable", errno);
  if (!is_new) return;
  // The name of a new file is durable only when its folder is.
  const Descriptor place(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!place || ::fsync(place.fd()) != 0) fail(path, "cannot make its folder durable", errno);
}

}  // namespace tandem::lab
