// The table of choices: in memory, and as a file to which lines are added.
#include "tandem/core/choices.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string_view>

#include "tandem/core/file.h"
#include "tandem/core/implementations.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 3;  // of timing
constexpr int64_t kMaxTableBytes = int64_t{1} << 26;
constexpr double kHopeless = 4;  // times the best of the first round: not timed again

struct Setting {
  std::atomic<ChoiceMode> mode{ChoiceMode::heuristic};
  std::atomic<bool> keep{true};
};
Setting g_convolution, g_matmul;
std::atomic<size_t> g_workspace{ConvolutionChoice().workspace};
std::atomic<uint64_t> g_epoch{1};
enum class Tf32 : uint8_t { as_environment, off, on };
std::atomic<Tf32> g_tf32{Tf32::as_environment};

struct Row {
  std::string algorithm;
  double microseconds = 0;
};
struct Table {
  Mutex mutex{LockOrder::choices};
  std::map<std::string, Row> made;  // in use by this process
  std::map<std::string, Row> file;  // as it was when it was read
  bool has_read = false;
  std::string forced;  // by ForcedImplementation
};
Table& table() {
  static Table& all = *new Table;  // threads may ask until the process has ended
  return all;
}
[[maybe_unused]] const auto& g_made_at_start = table();  // in no fork's way

fs::path table_file() {
  if (const char* folder = std::getenv("TANDEM_CACHE"); folder && *folder)
    return fs::path(folder) / "algorithms.tsv";
  if (const char* home = std::getenv("HOME"); home && *home)
    return fs::path(home) / ".cache/tandem/algorithms.tsv";
  return {};
}

/// The text of the table, or nothing where it cannot be read: then choices are made anew.
std::string table_text() {
  try {
    InputFile file("read", table_file().string());
    std::string text(static_cast<size_t>(std::min(file.bytes(), kMaxTableBytes)), '\0');
    file.read(text.data(), text.size());
    return text;
  } catch (const Error&) {  // there is none, or something that is no file
    return "";
  }
}

/// A line that is not three fields (torn, or not ours) is passed over; of two with one key the later holds.
std::map<std::string, Row> read_table() {
  std::map<std::string, Row> rows;
  std::istringstream in(table_text());
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == std::string::npos || second == std::string::npos ||
        line.find('\t', second + 1) != std::string::npos)
      continue;
    rows[line.substr(0, first)] = {line.substr(first + 1, second - first - 1),
                                   std::atof(line.c_str() + second + 1)};
  }
  return rows;
}

/// Whether the last line of the file was cut off, by a full disk or an editor: what is added must not become a part of it.
bool ends_within_a_line(const Descriptor& file) {
  const off_t size = ::lseek(file.fd(), 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file.fd(), &last, 1, size - 1) == 1 && last != '\n';
}

/// Adds a line in one write, so that processes do not tear each other's. A file that cannot be written costs the next
/// process its time, no more.
void add_to_table(const std::string& key, const Row& row) {
  const fs::path path = table_file();
  if (path.empty()) return;
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  try {
    const Descriptor file = open_file("save", path.string(), O_RDWR | O_CREAT | O_APPEND, 0644);
    write_all(
        file, "save", path.string(),
        str(ends_within_a_line(file) ? "\n" : "", key, '\t', row.algorithm, '\t', row.microseconds, '\n'));
  } catch (const Error&) {  // full, read-only, or something that is no file
  }
}

size_t index_of(const std::vector<std::string>& names, const std::string& wanted) {
  size_t i = 0;
  while (i < names.size() && names[i] != wanted) ++i;
  return i;
}

/// The file is read again after this, and whatever kernels remember of choices is dropped (choice_epoch).
void change(Setting& setting, ChoiceMode mode, bool keep) {
  setting.mode = mode;
  setting.keep = keep;
  std::lock_guard lock(table().mutex);
  table().has_read = false;
  ++g_epoch;
}

}  // namespace

const char* name(ChoiceMode mode) {
  return mode == ChoiceMode::fixed ? "fixed" : mode == ChoiceMode::heuristic ? "heuristic" : "profile";
}

ChoiceMode parse_choice_mode(const std::string& text, const char* setting) {
  for (const ChoiceMode mode : kChoiceModes)
    if (text == name(mode)) return mode;
  throw Error(str(setting, ": must be fixed, heuristic or profile; got '", text, "'."));
}

void set_convolution_choice(const ConvolutionChoice& choice) {
  g_workspace = choice.workspace;
  change(g_convolution, choice.mode, choice.keep);
}

ConvolutionChoice convolution_choice() {
  return {g_convolution.mode.load(std::memory_order_relaxed), g_workspace.load(std::memory_order_relaxed),
          g_convolution.keep.load(std::memory_order_relaxed)};
}

void set_matmul_choice(const MatmulChoice& choice) { change(g_matmul, choice.mode, choice.keep); }

MatmulChoice matmul_choice() {
  return {g_matmul.mode.load(std::memory_order_relaxed), g_matmul.keep.load(std::memory_order_relaxed)};
}

void set_tf32(bool allowed) {
  g_tf32 = allowed ? Tf32::on : Tf32::off;
  ++g_epoch;
}

bool tf32() {
  if (const Tf32 set = g_tf32.load(std::memory_order_relaxed); set != Tf32::as_environment)
    return set == Tf32::on;
  static const bool allowed = [] {
    const char* text = std::getenv("TANDEM_TF32");
    return !text || std::string_view(text) != "0";
  }();
  return allowed;
}

ForcedImplementation::ForcedImplementation(const std::string& name) {
  std::lock_guard lock(table().mutex);
  table().forced = name;
  ++g_epoch;
}
ForcedImplementation::~ForcedImplementation() {
  std::lock_guard lock(table().mutex);
  table().forced.clear();
  ++g_epoch;
}

uint64_t choice_epoch() { return g_epoch.load(std::memory_order_relaxed); }

std::vector<Choice> choices_made() {
  std::lock_guard lock(table().mutex);
  std::vector<Choice> all;
  for (const auto& [key, row] : table().made) all.push_back({key, row.algorithm, row.microseconds});
  return all;
}

void take_choices(const std::vector<Choice>& choices) {
  std::lock_guard lock(table().mutex);
  for (const Choice& c : choices) table().made[c.key] = {c.algorithm, c.microseconds};
  ++g_epoch;
}

size_t choose_by_time(const std::string& what, const std::vector<std::string>& names, bool keep,
                      const std::function<double(size_t)>& seconds) {
  // The lock is held throughout: two timings at once would disturb each other. Asked in this order: what is forced,
  // what this process has taken or made, the file, the clock.
  const std::string key = what + "; tandem " TANDEM_VERSION;
  std::lock_guard lock(table().mutex);
  if (const size_t i = index_of(names, table().forced); i < names.size()) return i;
  const auto known = [&](const std::map<std::string, Row>& rows) {
    const auto at = rows.find(key);
    const size_t i = at == rows.end() ? names.size() : index_of(names, at->second.algorithm);
    if (i < names.size()) table().made[key] = at->second;
    return i;
  };
  if (const size_t i = known(table().made); i < names.size()) return i;
  if (keep) {
    if (!table().has_read) table().file = read_table();
    table().has_read = true;
    if (const size_t i = known(table().file); i < names.size()) return i;
  }
  // The first run of each touches memory and loads code: it only says who can.
  std::vector<bool> able(names.size());
  for (size_t i = 0; i < names.size(); ++i) able[i] = seconds(i) >= 0;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> best(names.size(), kNever);
  size_t chosen = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (!able[i] || (round > 0 && best[i] > kHopeless * best[chosen])) continue;
      if (const double s = seconds(i); s >= 0) best[i] = std::min(best[i], s);
    }
    chosen = static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
    TD_CHECK(best[chosen] < kNever, "choose: none of the algorithms can do ", what, ".");
  }
  const Row row{names[chosen], best[chosen] * 1e6};
  table().made[key] = row;
  if (keep) add_to_table(key, row);
  return chosen;
}

}  // namespace tandem
